"""Every public name loads, is found by tab completion, and has an example in its help that runs."""

from __future__ import annotations

import doctest
import importlib
import inspect
import subprocess
import sys
from typing import Any

import pytest

PACKAGES = (
    "hitl",
    "hitl.models",
    "hitl.models.calibration",
    "hitl.active",
    "hitl.connectors",
    "hitl.sklearn",
    "hitl.testing",
)
NAMES = [(package, name) for package in PACKAGES for name in getattr(importlib.import_module(package), "__all__", ())]
EXTRAS = (
    "sklearn",
    "torch",
    "gpytorch",
    "tensorly",
    "label_studio_sdk",
    "psycopg",
    "fastapi",
    "distributed",
    "openpyxl",
)
every_name = pytest.mark.parametrize(("package", "name"), NAMES, ids=[".".join(pair) for pair in NAMES])


def public(package: str, name: str) -> Any:
    return getattr(importlib.import_module(package), name)


@pytest.mark.parametrize("package", PACKAGES)
def test_tab_completion_finds_every_name(package: str) -> None:
    module = importlib.import_module(package)
    assert module.__all__
    assert set(module.__all__) <= set(dir(module))


def test_a_name_that_is_not_there_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match=r"^module 'hitl.models' has no attribute 'Loudest'$"):
        public("hitl.models", "Loudest")


def test_help_works_without_extras() -> None:
    """One missing extra made `help(hitl)` and `inspect.getmembers(hitl)` fail."""
    code = (
        "import sys, inspect, pydoc, importlib\n"
        f"sys.modules |= dict.fromkeys({EXTRAS})\n"
        "for name in ('hitl', 'hitl.models', 'hitl.active', 'hitl.connectors', 'hitl.testing'):\n"
        "    module = importlib.import_module(name)\n"
        "    inspect.getmembers(module), pydoc.render_doc(module)\n"
        "module = importlib.import_module('hitl')\n"
        "try: module.sklearn\n"
        "except AttributeError as error: print(error)\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "pip install 'hitl-toolkit[sklearn]'" in ran.stdout


@every_name
def test_help_shows_an_example_that_runs(package: str, name: str) -> None:
    made = public(package, name)
    examples = doctest.DocTestFinder(recurse=False).find(made, name, globs={})
    assert any(example.examples for example in examples), f"no >>> in {inspect.getsourcefile(made)}"
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    said: list[str] = []
    for example in examples:
        runner.run(example, out=said.append)
    assert not runner.failures, "".join(said)
