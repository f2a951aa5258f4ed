"""What deploy/ gives a process of hitl: little."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

DEPLOY = Path(__file__).parents[2] / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_unit_may_touch_its_project_alone(unit: Path) -> None:
    said = dict(re.findall(r"^(\w+)=(.*)$", unit.read_text(), re.MULTILINE))
    for key in ("NoNewPrivileges", "PrivateTmp", "ProtectHome", "PrivateDevices", "RestrictSUIDSGID"):
        assert said[key] == "yes"
    assert (said["ProtectSystem"], said["ReadWritePaths"]) == ("strict", "/srv/hitl/%i")
    assert (said["User"], said["CapabilityBoundingSet"]) == ("hitl", "")
    assert said["MemoryMax"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_understands_and_rates_it(unit: Path, tmp_path: Path) -> None:
    copy = tmp_path / unit.name.replace("@", "@reviews")
    copy.write_text(unit.read_text().replace("/opt/hitl/bin/hitl", "/bin/true"))
    for words in (["verify"], ["security", "--offline=true", "--threshold=25"]):
        done = subprocess.run(["systemd-analyze", *words, str(copy)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "Unknown key" not in done.stderr


def test_a_pod_has_no_rights_and_no_token() -> None:
    text = (DEPLOY / "kubernetes" / "cronjob.yaml").read_text()
    for line in (
        "automountServiceAccountToken: false",
        "runAsNonRoot: true",
        "readOnlyRootFilesystem: true",
        "allowPrivilegeEscalation: false",
        'drop: ["ALL"]',
        "type: RuntimeDefault",
        "limits: {",
    ):
        assert text.count(line) == 1


def test_no_secret_stands_on_a_command_line() -> None:
    for path in (path for path in DEPLOY.rglob("*") if path.is_file()):
        assert not re.search(r"(TOKEN|SECRET|PASSWORD)=(?!$)", path.read_text()), path
        assert "--from-literal" not in path.read_text()
