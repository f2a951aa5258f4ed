"""What `deploy/` holds, as data: services of the compose file, manifests of the chart, every command line of hitl."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "hitl"
COMPOSE = DEPLOY / "compose.yaml"
DASHBOARD = DEPLOY / "grafana" / "hitl.json"
ALERTS = DEPLOY / "prometheus" / "alerts.yaml"

TOML = 'name = "reviews"\n[source]\nkind = "label-studio"\nurl = "http://label-studio:8080"\nproject = 1\n'
VALUES: dict[str, Any] = {
    "projects": {"reviews": TOML},
    "ingress": {"enabled": True, "className": "nginx", "tlsSecret": "tls", "annotations": {"a": "b"}},
    "backup": {"claim": "backups"},
    "extraEnv": [{"name": "HITL_LIMITS__ROWS", "value": "1000000"}],
    "networkPolicy": {"from": [{"namespaceSelector": {}}], "to": [{"ports": [{"protocol": "TCP", "port": 9}]}]},
    "nodeSelector": {"pool": "small"},
    "tolerations": [{"operator": "Exists"}],
    "imagePullSecrets": [{"name": "pull"}],
    "serve": {"arguments": ["--proxy", "10.0.0.5", "--proxy-header", "X-Forwarded-User"]},
}
"""Everything that the chart knows, turned on."""


def program(package: str, name: str) -> str:
    """The path of a program that a package of the extra `test-deploy` has brought; skips where it is not installed."""
    try:
        found = distribution(package)
    except PackageNotFoundError:
        pytest.skip(f"needs {name}: pip install {package}")
    (path,) = [file for file in found.files or () if file.name == name and file.parent.name == "bin"]
    return str(path.locate())


def copied(folder: Path) -> Path:
    """What git knows of this checkout, without what builds have left in it."""
    listed = ["git", "ls-files", "-co", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    for name in names:
        if not name.startswith(("tests/", "docs/")) and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return folder


def built(folder: Path) -> tuple[Path, Path]:
    """The source distribution, and the wheel that is made of it and of nothing else."""
    source = copied(folder / "checkout")
    words = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder / "dist"), str(source)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (sdist,), (wheel,) = (folder / "dist").glob("*.tar.gz"), (folder / "dist").glob("*.whl")
    return sdist, wheel


def installed(wheel: Path, folder: Path) -> Path:
    """The bin folder of a new environment with this wheel alone; its dependencies are lent by this one."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    (site,) = (folder / "lib").glob("python*/site-packages")
    # With its own pip: that of this environment would uninstall the hitl that is tested.
    pip = [str(folder / "bin" / "python"), "-I", "-m", "pip", "install", "-q", "--no-deps", "--no-index", str(wheel)]
    subprocess.run(pip, check=True)
    lent = {sysconfig.get_path("purelib"), *(path for path in sys.path if path.endswith("site-packages"))}
    (site / "lent.pth").write_text("\n".join(sorted(lent)) + "\n")  # whose own .pth files are not read
    return folder / "bin"


def compose() -> dict[str, Any]:
    """The compose file."""
    yaml = pytest.importorskip("yaml")
    return dict(yaml.safe_load(COMPOSE.read_text()))


def rendered(values: Mapping[str, Any] = VALUES, release: str = "demo") -> list[dict[str, Any]]:
    """The manifests of the chart, as Helm's own engine renders them."""
    yaml, helm = pytest.importorskip("yaml"), pytest.importorskip("helm_python")
    with helm.Chart.load(str(CHART)) as chart:
        texts = chart.render(dict(values), name=release, namespace="hitl")
    found = [one for name, text in texts.items() if name.endswith(".yaml") for one in yaml.safe_load_all(text)]
    return [one for one in found if one]


def pods(manifests: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Name of a manifest -> the specification of the pods it makes."""
    found = {}
    for one in manifests:
        spec = one.get("spec", {})
        template = spec.get("jobTemplate", {}).get("spec", spec).get("template")
        if template:
            found[one["metadata"]["name"]] = template["spec"]
    return found


def containers(pod: Mapping[str, Any]) -> list[dict[str, Any]]:
    """All containers of a pod, in the order in which they start."""
    return [*pod.get("initContainers", ()), *pod["containers"]]


def words_of(entrypoint: list[str], command: list[str]) -> list[str]:
    """What a container runs; the image's own entry point is `hitl`."""
    return [*(entrypoint or ["hitl"]), *command]


def commands() -> Iterator[tuple[str, list[str]]]:
    """Where, and the words behind `hitl`, of every command line in deploy/."""
    for name, service in compose()["services"].items():
        if "hitl" in service["image"]:
            yield from _of_words(f"compose {name}", words_of(service.get("entrypoint", []), service["command"]))
    for name, pod in pods(rendered()).items():
        for one in containers(pod):
            yield from _of_words(f"chart {name}", words_of(one.get("command", []), one["args"]))
    for path in sorted((DEPLOY / "systemd").glob("*.service")):
        for line in re.findall(r"^ExecStart=\S+/hitl (.*)$", path.read_text(), re.MULTILINE):
            yield path.name, line.split()


def _of_words(place: str, words: list[str]) -> Iterator[tuple[str, list[str]]]:
    if words[0] == "hitl":
        yield place, words[1:]
    for line in re.findall(r"^hitl ([^<|>]+)", words[-1]) if words[0] == "sh" else ():
        yield place, shlex.split(line)
