"""A newcomer who follows a page word by word: all blocks of it, in order, in one folder.

Lines that begin with `pip install` are left out. Addresses, tokens and people of the page become those of the test, and
`hitl serve`, `hitl schedule` and the demo are stopped once they are up.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path

import pandas as pd
import pytest

from tests.cli.test_code_blocks import blocks
from tests.connectors.label_studio.conftest import Project
from tests.connectors.servers import free_port

FOLLOWED: set[str] = set()
"""The pages that a test follows."""


def follows(*pages: str) -> pytest.MarkDecorator:
    """Run a test for each of these pages: its argument `page`."""
    FOLLOWED.update(pages)
    return pytest.mark.parametrize("page", pages)


BASH = """
set -eo pipefail
stopped() {  # stopped TEXT COMMAND...: start it, wait until it has printed the text, press Ctrl-C
  "${@:2}" > log.txt 2>&1 & local pid=$!
  for _ in $(seq 1500); do
    if grep -q "$1" log.txt || ! kill -0 $pid 2> /dev/null; then break; fi; sleep 0.2
  done
  kill -TERM $pid 2> /dev/null || { cat log.txt; false; }; wait $pid || test $? = 143
  grep "$1" log.txt || { cat log.txt; false; }; rm log.txt
}
hitl() {
  case "$*" in
    *--list) "$HITL" "$@" ;;
    'demo --serve'*|serve*) stopped 'http://127.0.0.1' "$HITL" "$@" ;;
    demo*) stopped 'until you press Ctrl-C' "$HITL" "$@" ;;
    schedule*) stopped 'every 15m; next' "$HITL" "$@" ;;
    'users add'*) python3 -c "$TYPING" "$HITL" "$@" ;;
    certify*|judge*) "$HITL" "$@" || test $? = 3 ;;  # not proven yet
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

    def follow(self, page: str, after: Callable[[str], object] = lambda line: None) -> None:
        """Do each block of a page; `after` does what the page asks for after a line of a shell."""
        for block in blocks(page):
            code = block.code.strip("\n")
            for word, here in self.words.items():
                code = code.replace(word, here)
            if block.language == "toml":
                self.edit(code)
            elif block.language == "python" and block.tag == "no_run":
                self.type(f"'{sys.executable}' - <<'END'\n{code}\nEND")
            for line in code.replace("\\\n", " ").splitlines() if block.language == "sh" else ():
                self.type(line)
                after(line)

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
        path.touch()
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


def fill(path: Path, column: str) -> None:
    """Write the truth of its items, from `all_truth.csv` beside it, into a column of a table."""
    truth, table = (pd.read_csv(each, dtype=str) for each in (path.with_name("all_truth.csv"), path))
    table.assign(**{column: table["item"].map(truth.set_index("item")["label"])}).to_csv(path, index=False)


def in_label_studio(project: Project, folder: Path) -> dict[str, str]:
    """Have 24 tasks in a project, half of them answered, and the truth of six; return the words of a page for it."""
    tasks = project.add(24)
    label = ["good" if n % 2 else "bad" for n in range(24)]
    for n, task in enumerate(tasks[:12]):
        for k in (0, 1):
            project.answer(k, task, label[n])
    rows = [f"{task},{each}\n" for task, each in zip(tasks[:6], label, strict=False)]
    (folder / "truth.csv").write_text("".join(["item,label\n", *rows]))
    return {
        "http://localhost:8080/projects/12": f"{project.server.url}/projects/{project.number}",
        "HITL_LABEL_STUDIO_TOKEN=...": f"HITL_LABEL_STUDIO_TOKEN={project.server.token}",
        "ann@example.com": project.people[0].email,
        "bob@example.com": project.people[1].email,
    }
