"""Workflows, issue forms and the conda recipe: what they run exists, and they may do little."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from hitl import __version__
from tests.deploy.files import DEPLOY, ROOT, program

GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
FORMS = sorted((GITHUB / "ISSUE_TEMPLATE").glob("*.yml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def read(path: Path) -> dict[str, Any]:
    yaml = pytest.importorskip("yaml")
    return dict(yaml.load(path.read_text(), yaml.BaseLoader))  # the key `on` stays a word


def steps(path: Path) -> list[dict[str, Any]]:
    return [step for job in read(path)["jobs"].values() for step in job.get("steps", [job])]


@pytest.mark.parametrize(
    ("schema", "paths"),
    [("github-workflows", WORKFLOWS), ("github-issue-forms", FORMS), ("citation-file-format", [ROOT / "CITATION.cff"])],
)
def test_each_file_has_the_schema_of_its_kind(schema: str, paths: list[Path]) -> None:
    words = [program("check-jsonschema", "check-jsonschema"), "--builtin-schema", f"vendor.{schema}"]
    done = subprocess.run([*words, *map(str, paths)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_workflows_run_targets_of_the_makefile() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    run = {path.name: re.findall(r"\bmake ([\w-]+)", path.read_text()) for path in WORKFLOWS}
    assert run == {"ci.yml": ["test", "journeys"], "release.yml": ["release"]}
    assert {name for names in run.values() for name in names} <= targets


def test_workflows_may_do_little() -> None:
    granted = {}
    for path in WORKFLOWS:
        workflow = read(path)
        assert workflow["permissions"] in ({}, {"contents": "read"}), path.name
        for name, job in workflow["jobs"].items():
            granted[f"{path.stem} {name}"] = job.get("permissions", workflow["permissions"])
            assert "uses" in job or int(job["timeout-minutes"]) <= 180
        for step in steps(path):
            assert re.search(r"@(v\d+|release/v1)$|^\./", step.get("uses", "./")), step
            assert "${{" not in step.get("run", ""), "an expression in a script can be an injection: use a variable"
            if "checkout" in step.get("uses", ""):
                assert step["with"]["persist-credentials"] == "false"
    assert granted.pop("release publish") == {"id-token": "write"}
    assert all(permissions == {"contents": "read"} for permissions in granted.values())


def test_only_a_tag_that_has_been_tested_and_built_is_published() -> None:
    release = read(GITHUB / "workflows" / "release.yml")
    assert release["on"] == {"push": {"tags": ["v*"]}}
    jobs = release["jobs"]
    assert (jobs["build"]["needs"], jobs["publish"]["needs"]) == ("test", "build")
    assert jobs["test"]["uses"] == "./.github/workflows/ci.yml"
    (kept,) = [step["with"] for step in jobs["build"]["steps"] if step.get("with", {}).get("name") == "packages"]
    assert kept["path"].split() == ["dist/*.whl", "dist/*.tar.gz"], "the notes are no package"


def test_ci_tests_every_python_that_the_package_names() -> None:
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert read(GITHUB / "workflows" / "ci.yml")["jobs"]["test"]["strategy"]["matrix"]["python"] == named
    assert PROJECT["requires-python"] == f">={named[0]}"


def test_issue_forms_ask_for_what_the_doctor_says() -> None:
    assert [path.stem for path in FORMS] == ["bug", "feature"]
    for path in FORMS:
        assert any("`hitl doctor`" in part["attributes"].get("label", "") for part in read(path)["body"]), path.name


def test_conda_installs_what_pip_installs() -> None:
    rattler = pytest.importorskip("rattler_build")
    recipe = rattler.Stage0Recipe.from_yaml((DEPLOY / "conda" / "recipe.yaml").read_text())
    (rendered,) = recipe.render(rattler.VariantConfig())
    package = rendered.recipe.to_dict()
    assert (package["package"]["name"], package["package"]["version"]) == (PROJECT["name"], __version__)
    python, *others = package["requirements"]["run"]
    assert python == f"python {PROJECT['requires-python']}"
    assert [name.replace(" ", "") for name in others] == PROJECT["dependencies"]
    assert rendered.recipe.to_dict()["build"]["python"]["entry_points"] == [
        f"{name} = {target}" for name, target in PROJECT["scripts"].items()
    ]
