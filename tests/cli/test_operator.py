"""Messages that an operator reads who runs hitl for the first time."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from hitl.connectors import tables as connector
from tests.cli.test_cli import project
from tests.cli.test_combine import tables
from tests.command_line import Run

__all__ = ["project", "tables"]


def one_line(text: str) -> str:
    return " ".join(text.split())


def test_a_table_without_rows_is_a_warning_and_then_says_so(
    run: Run, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows stay until the file has not changed for ten minutes; meanwhile no run says that all is well."""
    for name in ("items.csv", "probabilities_net.csv", "truth.csv"):
        (project / name).unlink(missing_ok=True)
    assert run("run")[0] == 0
    (project / "annotations.csv").write_text("item,annotator,label\n")
    for _ in range(2):
        code, out, err = run("run")
        assert code == 0
        assert "still hold" not in out
        assert "nothing new was pulled, but there are problems" in one_line(out)
        assert "A file may be half-written, so nothing was deleted" in one_line(err)
    assert "annotations.* has 0 rows" in one_line(run("status")[1])
    monkeypatch.setattr(connector, "SETTLED", 0.0)
    code, _, err = run("run")
    assert code == 65
    assert f"the last pull found none in {project}" in one_line(err)
    assert "a table that has only a header needs rows" in one_line(err)


def test_help_of_serve_names_what_monitoring_reads(run: Run) -> None:
    said = one_line(run("serve", "--help")[1])
    for words in ("/healthz", "/readyz", "/metrics", "hitl tokens create NAME --role viewer", "hitl users add NAME"):
        assert words in said


def test_a_folder_that_cannot_be_written_is_named_in_full(
    run: Run, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Path, *_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self))

    with monkeypatch.context() as patched:
        patched.setattr(Path, "mkdir", refuse)
        code, _, err = run("run")
    assert code == 74
    said = one_line(err)
    assert f"{project}/.hitl: Permission denied; check the permissions of the file and of the folder {project}" in said


@pytest.mark.parametrize("address", ["postgresql://me:s3cret@host:port/db", "mysql://root:s3cret@host/db", "hitl.db"])
def test_a_malformed_store_names_the_setting(
    run: Run, project: Path, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("HITL_STORE", address)
    code, _, err = run("status")
    assert code == 78
    assert f"store (or HITL_STORE) is '{address.replace('s3cret', '***')}'" in one_line(err)
    assert "expected sqlite:///folder/hitl.db or postgresql://" in one_line(err)


def test_a_new_class_of_a_single_label_is_said_once(run: Run, project: Path) -> None:
    """As of a file that was cut within its last label."""
    assert run("run")[0] == 0
    with (project / "annotations.csv").open("a") as file:
        file.write("cut,ann,ca")
    said = [one_line(run("run")[2]) for _ in range(2)]
    assert ["new class 'ca' (1 label, item 'cut')" in each for each in said] == [True, False]


def test_a_file_is_named_in_full_wherever_the_command_runs(run: Run, project: Path) -> None:
    with (project / "annotations.csv").open("a") as file:
        file.write('"cut,ann\n')
    _, out, err = run("run")
    assert f"{project}/annotations.csv" in one_line(out + err)


def test_status_says_when_the_next_run_is_due(run: Run, project: Path) -> None:
    with (project / "hitl.toml").open("a") as file:
        file.write('\n[schedule]\nevery = "1h"\n')
    assert run("run")[0] == 0
    assert "The next run is due at 20" in run("status")[1]
