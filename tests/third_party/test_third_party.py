"""A package beside hitl: its combiner, connector and policy are found by entry point and work like ours."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent / "package"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as `pip install --target` leaves it."""
    folder = tmp_path_factory.mktemp("site")
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]
    shutil.copytree(PACKAGE / "third_party", folder / "third_party", ignore=shutil.ignore_patterns("__pycache__"))
    about = folder / "third_party-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    groups = [
        f"[{group}]\n" + "".join(f"{name} = {place}\n" for name, place in names.items())
        for group, names in project["entry-points"].items()
    ]
    (about / "entry_points.txt").write_text("\n".join(groups))
    return folder


def python(installed: Path, folder: Path, *arguments: str) -> str:
    """What a Python that has both packages prints; the test fails where it does not end well."""
    paths = [str(installed), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "COLUMNS": "200"}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def hitl(installed: Path, folder: Path, *arguments: str) -> str:
    return python(installed, folder, "-m", "hitl", *arguments)


def labels(folder: Path) -> None:
    """Twelve items, three annotators of whom the last errs on every third item: as a table and as JSON lines."""
    wrong = [(n, 2) for n in range(0, 12, 3)]
    rows = [(f"i{n}", f"k{k}", "cat" if (n + ((n, k) in wrong)) % 2 else "dog") for n in range(12) for k in range(3)]
    (folder / "labels.csv").write_text("item,annotator,label\n" + "".join(",".join(row) + "\n" for row in rows))
    lines = [json.dumps(dict(zip(("item", "annotator", "label"), row, strict=True))) for row in rows]
    (folder / "labels.jsonl").write_text("\n".join(lines))


def project(folder: Path, source: str = 'kind = "tables"\npath = "labels.csv"', more: str = "") -> None:
    labels(folder)
    (folder / "hitl.toml").write_text(f'name = "theirs"\n\n[source]\n{source}\n\n{more}')


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ([], ["squared", "by-name", "json-lines"]),
        (["combine"], ["squared"]),
        (["replay"], ["squared", "by-name"]),
    ],
    ids=["hitl", "combine", "replay"],
)
def test_help_names_theirs(installed: Path, tmp_path: Path, command: list[str], names: list[str]) -> None:
    said = hitl(installed, tmp_path, *command, "--help")
    assert [name for name in names if name not in said] == []


@pytest.mark.journey
def test_their_combiner_and_policy_judge_files_and_projects(installed: Path, tmp_path: Path) -> None:
    policy = '[policy]\nname = "by-name"\n\n[budget]\ntarget_confidence = 1.0\n'
    project(tmp_path, more=f'[combine]\nmethod = "squared"\noptions = {{ power = 3.0 }}\n{policy}')
    hitl(installed, tmp_path, "combine", "labels.csv", "--method", "squared", "--output", "consensus.csv")
    assert len((tmp_path / "consensus.csv").read_text().splitlines()) == 13
    hitl(installed, tmp_path, "run")
    found = json.loads(hitl(installed, tmp_path, "annotators", "--json"))
    assert next(iter(found["questions"].values()))["method"] == "squared"


@pytest.mark.journey
def test_their_connector_is_a_source_and_a_sink(installed: Path, tmp_path: Path) -> None:
    project(tmp_path, source='kind = "json-lines"\npath = "."')
    hitl(installed, tmp_path, "doctor")
    hitl(installed, tmp_path, "run")
    pushed = json.loads((tmp_path / "pushed.json").read_text())
    (judged,) = pushed["consensus "]["questions"].values()
    assert len(judged) == 12


@pytest.mark.journey
@pytest.mark.parametrize(
    "check",
    [
        "from hitl.testing import check_combiner\nfrom third_party.squared import Squared\ncheck_combiner(Squared())",
        "from hitl.testing import check_policy\nfrom third_party.by_name import ByName\ncheck_policy(ByName())",
        "from pathlib import Path\nfrom hitl.testing import check_connector\n"
        "from third_party.json_lines import JsonLines\ncheck_connector(JsonLines(Path()))",
    ],
    ids=["combiner", "policy", "connector"],
)
def test_theirs_pass_the_contracts(installed: Path, tmp_path: Path, check: str) -> None:
    labels(tmp_path)
    python(installed, tmp_path, "-c", check)
