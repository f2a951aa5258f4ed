"""A newcomer follows each tutorial word by word: all blocks of a page, in order, in one folder, on real servers.

Lines that begin with `pip install` are left out. Addresses, tokens and people of the page become those of the test, and
`hitl serve`, `hitl schedule` and the demo are stopped once they are up.
"""

from __future__ import annotations

import csv
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.cli.test_code_blocks import blocks
from tests.connectors.label_studio.conftest import Project
from tests.connectors.mlflow.server import Server
from tests.connectors.servers import free_port
from tests.events.receivers import receiving

pytestmark = [pytest.mark.server, pytest.mark.journey]

BASH = """
set -eo pipefail
stopped() {  # stopped TEXT COMMAND...: start it, wait until it has printed the text, press Ctrl-C
  "${@:2}" > log.txt 2>&1 & local pid=$!
  for _ in $(seq 1500); do
    if grep -q "$1" log.txt || ! kill -0 $pid 2> /dev/null; then break; fi; sleep 0.2
  done
  kill -TERM $pid; wait $pid || test $? = 143
  grep "$1" log.txt || { cat log.txt; false; }; rm log.txt
}
hitl() {
  case "$*" in
    demo*) stopped 'until you press Ctrl-C' "$HITL" "$@" ;;
    serve*) stopped 'http://127.0.0.1' "$HITL" "$@" ;;
    schedule*) stopped 'every 15m; next' "$HITL" "$@" ;;
    'users add'*) python3 -c "$TYPING" "$HITL" "$@" ;;
    certify*) "$HITL" "$@" || test $? = 3 ;;  # not proven yet
    *) "$HITL" "$@" ;;
  esac
}
"""

TYPING = """
import os, pty, sys

def read(terminal):
    printed = os.read(terminal, 1024)
    if printed.endswith(b" "):  # behind "Password:"
        os.write(terminal, b"some-long-password\\n")
    return printed

sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:], read)))
"""
"""Run a command in a terminal, and type a password when it asks."""


class Reader:
    """Does what a page says. `words`: text of the page -> the same here."""

    def __init__(self, folder: Path, words: Mapping[str, str]) -> None:
        self.folder, self.words, self.state = folder, words, folder / "state.sh"
        self.state.write_text(f"cd '{folder}'\n")
        self.environment = {key: value for key, value in os.environ.items() if not key.startswith("HITL_")}
        self.environment |= {"HITL": str(Path(sys.executable).with_name("hitl")), "HITL_HOME": os.environ["HITL_HOME"]}
        self.environment |= {"HITL_SERVE_ADDRESS": f"127.0.0.1:{free_port()}", "TYPING": TYPING}
        self.environment |= {"COLUMNS": "140", "PYTHONUNBUFFERED": "1"}

    def follow(self, name: str, after: Callable[[str], None] = lambda code: None) -> None:
        """Do each block of a tutorial; `after` does what its sentences ask for after a block."""
        for block in blocks(f"docs/tutorials/{name}.md"):
            code = block.code.strip("\n")
            for word, here in self.words.items():
                code = code.replace(word, here)
            if block.language == "sh":
                self.type(code)
            elif block.language == "toml":
                self.edit(code)
            after(code)

    def type(self, code: str) -> str:
        """Run lines in the reader's shell, whose folder and variables last. Return what they print."""
        code = re.sub(r"^pip install .*$", "", code, flags=re.MULTILINE)
        script = f"{BASH}\n. '{self.state}'\n{code}\n{{ export -p; echo \"cd '$PWD'\"; }} > '{self.state}'\n"
        done = subprocess.run(
            ["bash", "-c", script],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{code}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    @property
    def here(self) -> Path:
        """The reader's folder."""
        return Path(re.findall(r"^cd '(.*)'$", self.state.read_text(), re.MULTILINE)[-1])

    def edit(self, block: str) -> None:
        """Set the keys of the block in hitl.toml, in sections that are there or new."""
        path = self.here / "hitl.toml"
        for section in block.split("\n\n"):
            header, *lines = section.splitlines()
            before, found, rest = path.read_text().partition(f"\n{header}\n")
            if found and not header.startswith("[["):
                for key in (line.split(" = ")[0] for line in lines):
                    rest = re.sub(rf"^{key} = .*\n", "", rest, count=1, flags=re.MULTILINE)
                path.write_text("\n".join([before, header, *lines, rest]))
            else:
                path.write_text(f"{path.read_text()}\n{section}\n")
        tomllib.loads(path.read_text())


@pytest.mark.parametrize("name", ["learning", "files"])
def test_with_files(tmp_path: Path, name: str) -> None:
    reader = Reader(tmp_path, {})

    def answer(code: str) -> None:
        if "writes audit.csv" not in code:
            return
        with (reader.here / "all_truth.csv").open() as file:
            truth = {row["item"]: row["label"] for row in csv.DictReader(file)}
        path = reader.here / "audit.csv"
        with path.open() as file:
            header, *rows = list(csv.reader(file))
        at = header.index("answer")
        for row in rows:
            row[at] = truth[row[header.index("item")]]
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([header, *rows])
        assert "audit" in reader.type(code)

    reader.follow(name, answer)
    assert all((reader.here / file).exists() for file in {"files": ["replay.html", "report.html"]}.get(name, []))


def test_for_a_team(tmp_path: Path) -> None:
    with receiving() as receiver:
        reader = Reader(tmp_path, {"https://hooks.example/services/...": f"'{receiver.url}'"})
        reader.follow("team")
        assert len(receiver.got) >= 1
    assert "bob" in reader.type("hitl users list")


def test_in_label_studio(tmp_path: Path, make_project: Callable[..., Project]) -> None:
    project = make_project()
    tasks = project.add(24)
    for n, task in enumerate(tasks[:12]):
        for k in (0, 1):
            project.answer(k, task, "good" if n % 2 else "bad")
    ann, bob = (project.people[k].email for k in (0, 1))
    reader = Reader(
        tmp_path,
        {
            "http://localhost:8080/projects/12": f"{project.server.url}/projects/{project.number}",
            "HITL_LABEL_STUDIO_TOKEN=...": f"HITL_LABEL_STUDIO_TOKEN={project.server.token}",
            "ann@example.com": ann,
            "bob@example.com": bob,
        },
    )
    rows = [f"{task},{'good' if n % 2 else 'bad'}" for n, task in enumerate(tasks)]
    (tmp_path / "truth.csv").write_text("\n".join(["item,label", *rows[:6]]) + "\n")
    try:
        reader.follow("label-studio")
    finally:
        reader.state.unlink()  # it holds the token
    assert {f"hitl: {ann}", f"hitl: {bob}"} <= set(project.views())
    with (tmp_path / "labels.csv").open() as file:
        assert len(list(csv.DictReader(file))) >= 12


def test_where_traces_are(tmp_path: Path, mlflow: Server) -> None:
    made = mlflow.experiment("chat", 12, {"correct": {"categorical": {"options": ["yes", "no"]}}})
    for n in range(6):
        made.say(n, "ann", "yes" if n % 2 else "no")
        made.say(n, "gpt", "yes", kind="LLM_JUDGE")
    Reader(tmp_path, {"http://localhost:5000": mlflow.url}).follow("traces")
    assert set(made.queue("hitl: bob")) & set(range(12))
    assert [one for one in made.assessments(0) if one["assessment_name"] == "correct_hitl"]
