"""An audit on a real Label Studio: drawn, served in the auditor's tab, answered, certified, verified elsewhere."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.command_line import COMMAND, Run, forked
from tests.connectors.label_studio.conftest import Project, choice

pytestmark = [pytest.mark.server, pytest.mark.journey]

TASKS, AUDITOR = 24, 2


def right(n: int) -> str:
    """The true label of the task number n."""
    return ("good", "bad")[n % 2]


def test_an_audit_is_asked_answered_certified_and_verified(
    make_project: Callable[..., Project], run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = make_project()
    people = [int(person.id) for person in project.people]

    def annotated(n: int) -> list[dict[str, Any]]:
        said = choice(right(n + (n == 5)))  # both are wrong about one
        return [{"completed_by": who, "result": said, "ground_truth": False} for who in people[:AUDITOR]]

    tasks = project.add(TASKS, annotated)
    number = {str(task): n for n, task in enumerate(tasks)}
    emails = [person.email for person in project.people]
    settings = (
        f'name = "p"\nstore = "sqlite:///hitl.db"\n[source]\nkind = "label-studio"\nurl = "{project.server.url}"\n'
        f"project = {project.number}\n[crew]\nannotators = {json.dumps(emails)}\n"
    )
    Path("hitl.toml").write_text(settings)
    monkeypatch.setenv("HITL_LABEL_STUDIO_TOKEN", project.server.token)
    assert run("run")[0] == 0
    auditor = emails[AUDITOR]
    code, out, err = run("certify", "--error", "9%", "--by", auditor, "--batch", "12")
    assert code == 3, err
    assert f"`hitl run` asks {auditor} about 12 items" in out
    for _ in range(4):
        waiting = [one["item"] for one in document()["answers"] if one["first"] is None]
        assert run("run")[0] == 0
        assert set(project.listed(project.tab(AUDITOR))) >= {int(item) for item in waiting}
        for item in waiting:
            project.answer(AUDITOR, int(item), right(number[item]))
        assert run("run")[0] == 0
        code, out, err = run("certify", "--by", auditor, "-o", "mended.csv")
        assert err == ""
        if code == 0:
            break
    assert code == 0, out
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    mended = pd.read_csv("mended.csv", dtype=str)
    audited = {one["item"] for one in document()["answers"]}
    label = dict(zip(mended["item"], mended["label"], strict=True))
    assert label[str(tasks[5])] == right(5 + (str(tasks[5]) not in audited))
    mended.to_csv(elsewhere / "labels.csv", index=False)
    (elsewhere / "certificate.json").write_bytes(Path("certificate.json").read_bytes())
    bare = {name: value for name, value in os.environ.items() if not name.startswith("HITL_")}
    done = forked(COMMAND, "verify", "certificate.json", "labels.csv", folder=elsewhere, environment=bare)
    assert (done.returncode, f"all {TASKS} labels are as certified" in done.stdout) == (0, True), done.stderr
    changed = mended["item"][7]
    mended.loc[7, "label"] = "Unsure"
    mended.to_csv(elsewhere / "labels.csv", index=False)
    done = forked(COMMAND, "verify", "certificate.json", "labels.csv", folder=elsewhere, environment=bare)
    assert done.returncode == 1
    assert f"{changed}: {right(number[changed])} is now Unsure" in done.stdout


def document() -> dict[str, Any]:
    """The certificate as it is."""
    read: dict[str, Any] = json.loads(Path("certificate.json").read_text())
    return read
