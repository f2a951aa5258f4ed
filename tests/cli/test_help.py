"""`hitl --help`, tab completion, and what is wrong with an entry point of another package."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from rich.markup import render

from hitl.active.registry import POLICIES
from hitl.cli.app import PANELS, app
from hitl.connectors.catalog import CONNECTORS
from hitl.models.methods import COMBINERS
from tests.command_line import Run

CONNECTOR = '''
"""A connector of another package."""

from typing import Literal

from hitl.connectors import Tables
from hitl.connectors.tables import TablesSettings


class LoudSettings(TablesSettings):
    kind: Literal["loud"] = "loud"
    shout: str


class Loud(Tables):
    Settings = LoudSettings

    @classmethod
    def open(cls, settings, folder):
        return cls(folder / settings.path, abstain=(settings.shout,))
'''


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package beside hitl: its module, and the metadata that an installer writes."""
    root = tmp_path / "site"
    metadata = root / "loud_labels-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: loud-labels\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        "[hitl.connectors]\nloud = loud_labels:Loud\nbroken = loud_labels:Nothing\nempty = loud_labels:LoudSettings\n"
    )
    (root / "loud_labels.py").write_text(CONNECTOR)
    return root


def hitl(package: Path, folder: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(package), "COLUMNS": "200", **more}
    command = [sys.executable, "-m", "hitl", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_help_groups_the_commands_and_names_what_the_registries_have(run: Run) -> None:
    code, out, _ = run("--help")
    assert code == 0
    places = [out.index(f"─ {panel} ─") for panel in PANELS]
    assert places == sorted(places)
    for name in (*COMBINERS, *POLICIES, *CONNECTORS):
        assert name in out
    assert all(name in " ".join(run("combine", "--help")[1].split()) for name in COMBINERS)
    assert all(name in " ".join(run("replay", "--help")[1].split()) for name in (*COMBINERS, *POLICIES))
    assert "--install-completion" in out


@pytest.mark.parametrize("name", ["certify", "judge", "serve"])
def test_a_help_is_wrapped_by_the_terminal_alone(run: Run, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    about = run(name, "--help")[1].partition("╭")[0].strip().split("\n")
    assert all(text.strip().endswith(".") for text in about[1:] if text.strip())


def test_brackets_in_a_help_are_text_and_not_markup() -> None:
    command = typer.main.get_command(app)
    texts = [command.help or ""]
    for one in command.commands.values():  # type: ignore[attr-defined]
        texts += [one.help or "", *(getattr(parameter, "help", None) or "" for parameter in one.params)]
    lost = [text for text in texts if render(text).plain != text.replace(r"\[", "[")]
    assert not lost


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("hitl comb", {"combine"}),
        ("hitl combine --method maj", {"majority"}),
        ("hitl annotators --method pl", {"pl", "pl-em"}),
        ("hitl replay --policy e", {"expected-gain", "even"}),
    ],
)
def test_the_shell_completes_commands_and_names(tmp_path: Path, typed: str, offered: set[str]) -> None:
    words = {"_HITL_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()) - 1)}
    code = "import sys; sys.argv = ['hitl']; from hitl.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env={**os.environ, **words}, capture_output=True, text=True
    )
    assert set(done.stdout.split()) == offered, done.stderr


@pytest.mark.journey
def test_what_is_wrong_with_a_source_of_another_package_is_said(package: Path, tmp_path: Path) -> None:
    """Those that work are in tests/third_party."""
    config = 'name = "p"\n[source]\npath = "."\n'
    (tmp_path / "hitl.toml").write_text(f'{config}kind = "loud"\nshot = "!"\n')
    said = hitl(package, tmp_path, "pull").stderr
    assert "source.shout: field required" in said
    assert "source.shot: no such key; did you mean 'shout'?" in said
    for kind, message in (
        ("broken", "source.kind 'broken' of loud-labels cannot be loaded"),
        ("empty", "source.kind 'empty': LoudSettings has no Settings; see hitl.connectors.catalog"),
        ("quiet", "'quiet' is unknown; expected one of label-studio, mlflow, phoenix, tables, broken, empty, loud"),
    ):
        (tmp_path / "hitl.toml").write_text(f'{config}kind = "{kind}"\n')
        done = hitl(package, tmp_path, "pull")
        assert (done.returncode, message in done.stderr) == (78, True), done.stderr
