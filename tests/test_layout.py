"""The house keeps its shape: imports point one way, every package is listed, light imports stay light."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = {"hitl": "hitl", "hitl.connectors": "connectors", "hitl.models": "models", "hitl.active": "active"}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())

CORE = (
    "_lazy annotations consensus crew design_effect errors evidence platform formatting parts plan registry score "
    "tables __version__"
)
MAY_IMPORT = {
    "core": "core",
    "public names": "core models sklearn",
    "models": "core models",
    "active": "core models active",
    "sklearn": "core models sklearn",
    "kinds": "core models kinds",
    "settings": "core settings",
    "testing": "core kinds models active settings store connectors testing",
    "store": "core store",
    "connectors": "core kinds settings connectors",
    "metrics": "core models active metrics",
    "learning": "core models settings store learning",
    "project": "core kinds models settings store connectors learning project",
    "operations": "core kinds settings store metrics project operations",
    "inputs_digest": "core settings store project",
    "events": "core kinds models active settings store metrics project operations events",
    "cycle": "core inputs_digest events kinds models active settings store metrics learning project operations cycle",
    "manual_operations": "core kinds settings store export project operations cycle",
    "certificates": "core active kinds settings store project operations export certificates",
    "audit": "core settings store project operations cycle",
    "export": "core kinds models operations",
    "shards": "core models shards",
    "doctor": "core models active settings store learning project status events",
    "status": "core metrics settings store",
    "report": "core kinds models active settings store metrics learning project cycle report",
    "demo": "core models active settings store connectors project operations cycle report demo",
    "service": "core events inputs_digest models active settings store connectors metrics learning project operations"
    " cycle manual_operations status report demo service",
    "__main__": "cli",
    "cli": "core kinds inputs_digest events models active settings store connectors metrics learning project operations"
    " cycle manual_operations audit export doctor status report demo service shards certificates cli",
}
"""A group of modules and what it may import: core -> parts -> cycle -> command line."""


def modules() -> dict[str, Path]:
    found = {}
    for package, folder in FOLDERS.items():
        for path in (ROOT / folder).rglob("*.py"):
            parts = list(path.relative_to(ROOT / folder).with_suffix("").parts)
            name = ".".join([package, *(parts[:-1] if parts[-1] == "__init__" else parts)])
            found[name] = path
    return found


def imports(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def group(module: str) -> str:
    parts = module.split(".")
    if len(parts) == 1 or parts[1] in CORE.split():
        return "core"
    return parts[1]


def test_imports_point_one_way() -> None:
    wrong = []
    for module, path in modules().items():
        allowed = MAY_IMPORT["public names" if module == "hitl" else group(module)].split()
        for name in imports(path):
            if name.split(".")[0] == "hitl" and group(name) not in allowed:
                wrong.append(f"{module} imports {name}")
    assert wrong == []


def test_nobody_imports_the_folders_by_their_bare_names() -> None:
    """`import models` works from a checkout and loads a second copy of every class."""
    bare = re.compile(r"^ *(?:from|import) (?:models|connectors|active)\b", re.MULTILINE)
    paths = [*modules().values(), *(ROOT / "tests").rglob("*.py")]
    assert [str(path) for path in paths if bare.search(path.read_text())] == []


def test_there_is_no_cycle_of_imports() -> None:
    """Imports for types and those in functions count: a reader follows them too."""
    known = modules()
    graph: dict[str, set[str]] = {}
    for module, path in known.items():
        names = {name if name in known else name.rpartition(".")[0] for name in imports(path)}
        graph[module] = names & known.keys() - {module}
    done: set[str] = set()

    def visit(module: str, trail: tuple[str, ...]) -> None:
        assert module not in trail, " -> ".join((*trail, module))
        if module not in done:
            for name in graph[module]:
                visit(name, (*trail, module))
            done.add(module)

    for module in graph:
        visit(module, ())


def test_every_package_is_in_the_wheel() -> None:
    listed = set(PROJECT["tool"]["setuptools"]["packages"])
    there = {name for name, path in modules().items() if path.name == "__init__.py"}
    assert listed == there


def test_top_level_holds_what_was_agreed() -> None:
    allowed = {"hitl", "connectors", "models", "active", "tests", "deploy", "docs"}
    listing = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split(
        "\n"
    )
    folders = {line.split("/")[0] for line in listing if "/" in line}
    assert {name for name in folders if not name.startswith(".")} <= allowed


def test_no_folder_is_full() -> None:
    """Of code and tests; data and recorded figures are other things."""
    listing = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    files = [Path(name) for name in listing if not name.startswith("docs/") and "data" not in Path(name).parts]
    held = Counter(path.parent for path in files)
    assert {str(folder): held[folder] for folder in held if held[folder] > 26} == {}


def test_files_stay_short() -> None:
    """A longer one, module or test, says in its first line why it is long."""
    files = [*modules().values(), *(ROOT / "tests").rglob("*.py")]
    long = [path for path in files if len(path.read_text().splitlines()) > 400]
    assert [str(path) for path in long if " Long because " not in path.read_text().split("\n")[0]] == []


def test_the_changelog_is_for_users() -> None:
    """Not a log of sessions: git merges it by union, which can also bring removed text back."""
    assert len((ROOT / "CHANGELOG.md").read_text().split()) <= 2_000


@pytest.mark.parametrize(
    ("code", "heavy"),
    [
        ("import hitl", {"numpy", "pandas", "numba", "torch", "plotly", "pyarrow", "sqlalchemy", "label_studio_sdk"}),
        (
            "import sys, contextlib; sys.argv = ['hitl', '--help']\nimport hitl.cli\n"
            "with contextlib.suppress(SystemExit):\n    hitl.cli.main()",
            {"numpy", "pandas", "numba", "torch", "plotly", "pyarrow", "sqlalchemy", "label_studio_sdk", "pydantic"},
        ),
        ("import hitl.connectors.label_studio", {"label_studio_sdk", "torch", "numba", "plotly"}),
        ("import hitl.report", {"jinja2", "plotly", "torch"}),
        ("from hitl import Annotations, Evidence, Consensus, Plan", {"torch", "numba", "plotly", "sqlalchemy"}),
        ("from hitl.models import PLEM", {"torch", "gpytorch", "plotly", "sqlalchemy", "sklearn"}),
    ],
)
def test_light_imports_stay_light(code: str, heavy: set[str]) -> None:
    script = f"{code}\nimport sys\nprint(*sorted(sys.modules), file=sys.stderr)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stderr.split()
    assert heavy & set(loaded) == set()


@pytest.mark.journey
def test_the_optional_parts_are_installed_together_and_work() -> None:
    """torch and torchvision must be of one build: a CPU-only torch breaks `import torchvision`."""
    code = "import torch, torchvision, gpytorch; from torchvision.ops import nms; print(float(torch.ones(2).sum()))"
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "2.0", done.stderr
