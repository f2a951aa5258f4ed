"""A release: what is built is whole, installs where nothing else is, and has one version everywhere."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from hitl import __version__, testing
from tests.deploy import files, release
from tests.deploy.files import DEPLOY, ROOT

FOLDERS = {"hitl": "hitl", "connectors": "hitl/connectors", "models": "hitl/models", "active": "hitl/active"}


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    pytest.importorskip("build")
    return files.built(tmp_path_factory.mktemp("release"))


def test_the_wheel_holds_every_file_of_the_packages(dist: tuple[Path, Path]) -> None:
    listed = subprocess.run(["git", "ls-files", *FOLDERS], cwd=ROOT, capture_output=True, text=True, check=True)
    expected = {re.sub(r"^\w+", lambda found: FOLDERS[found[0]], name) for name in listed.stdout.splitlines()}
    with zipfile.ZipFile(dist[1]) as wheel:
        held = {name for name in wheel.namelist() if ".dist-info/" not in name}
        assert held == expected
        (about,) = [name for name in wheel.namelist() if name.endswith("METADATA")]
        assert f"\nVersion: {__version__}\n" in wheel.read(about).decode()
    assert dist[1].stat().st_size <= 2_000_000
    with tarfile.open(dist[0]) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    assert {
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "CHANGELOG.md",
        "CITATION.cff",
        "CONTRIBUTING.md",
        "SECURITY.md",
    } <= names


def test_the_image_is_built_from_the_files_of_the_wheel(dist: tuple[Path, Path], tmp_path: Path) -> None:
    """What the Dockerfile copies makes the same wheel, and the .dockerignore lets all of it through."""
    checkout, image = files.copied(tmp_path / "checkout"), tmp_path / "image"
    let_through = (DEPLOY / "Dockerfile.dockerignore").read_text().split()
    copies = re.findall(r"^COPY (?!--from)(.*) \S+$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    for name in " ".join(copies).split():
        assert f"!{name}" in let_through
        copy = shutil.copytree if (checkout / name).is_dir() else shutil.copy
        image.mkdir(exist_ok=True)
        copy(checkout / name, image / name)
    run(image, sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path, image)
    with zipfile.ZipFile(dist[1]) as released, zipfile.ZipFile(tmp_path / dist[1].name) as built:
        assert set(built.namelist()) == set(released.namelist())


@pytest.mark.journey
def test_the_wheel_works_in_an_environment_of_its_own(dist: tuple[Path, Path], tmp_path: Path) -> None:
    """Its dependencies are lent by this one, so that nothing is downloaded; hitl and its command are the wheel's."""
    python = files.installed(dist[1], tmp_path / "venv") / "python"
    rows = [f"{n},{who},{'cat' if n % 2 else 'dog'}" for n in range(8) for who in ("ann", "bob")]
    (tmp_path / "annotations.csv").write_text("\n".join(["item,annotator,label", *rows]) + "\n")
    where = "import hitl, hitl.models, hitl.connectors, hitl.active as a; print(hitl.__file__, a.__file__)"
    assert run(tmp_path, python, "-I", "-c", where).count(str(tmp_path / "venv")) == 2
    hitl = [python, "-I", python.with_name("hitl")]
    assert run(tmp_path, *hitl, "--version") == f"hitl {__version__}\n"
    run(tmp_path, *hitl, "combine", "annotations.csv", "--output", "consensus.csv")
    assert (tmp_path / "consensus.csv").read_text().count("\n") == 9
    run(tmp_path, *hitl, "init", "--tables", ".", "--name", "pets")
    for words in (["run"], ["report", "--output", "report.html"], ["backup", "b.zip"], ["doctor"]):
        run(tmp_path, *hitl, *words)
    assert "<html" in (tmp_path / "report.html").read_text()


@pytest.mark.journey
def test_a_certificate_is_verified_where_there_are_but_the_wheel_and_two_files(
    dist: tuple[Path, Path], tmp_path: Path
) -> None:
    hitl = [files.installed(dist[1], tmp_path / "venv") / "python", "-I", tmp_path / "venv" / "bin" / "hitl"]
    labels = {str(n): "cat" if n % 2 else "dog" for n in range(9)}
    table = "item,label\n" + "".join(f"{item},{label}\n" for item, label in labels.items())
    (tmp_path / "labels.csv").write_text(table)
    run(tmp_path, *hitl, "certify", "labels.csv", "--error", "20%", "--by", "eva", code=3)
    (tmp_path / "audit.csv").write_text(table.replace("label", "answer"))  # all are drawn
    run(tmp_path, *hitl, "certify", "labels.csv")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for name in ("certificate.json", "labels.csv"):
        (elsewhere / name).write_bytes((tmp_path / name).read_bytes())
    assert "all 9 labels are as certified" in run(elsewhere, *hitl, "verify", "certificate.json", "labels.csv")
    (elsewhere / "labels.csv").write_text(table.replace("4,dog", "4,cat"))
    assert "4: dog is now cat" in run(elsewhere, *hitl, "verify", "certificate.json", "labels.csv", code=1)


def run(folder: Path, *words: str | Path, code: int = 0) -> str:
    done = subprocess.run([str(word) for word in words], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def test_there_is_one_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["dynamic"] == ["version"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "hitl.__version__"}
    assert release.newest() == __version__, "the newest heading of CHANGELOG.md with a number"
    assert re.findall(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE) == [__version__]
    chart = (DEPLOY / "helm" / "hitl" / "Chart.yaml").read_text()
    assert re.findall(r'^(?:version|appVersion): "?([^"\n]+)"?$', chart, re.MULTILINE) == [__version__] * 2
    tags = {
        path.name: set(re.findall(r"\bhitl(?:-torch)?:-?(\d[\w.]*)", path.read_text()))
        for path in (files.COMPOSE, DEPLOY / "Dockerfile", DEPLOY / "kubernetes" / "cronjob.yaml")
    }
    assert tags == {name: {__version__} for name in tags}


def test_notes_are_the_section_of_the_changelog() -> None:
    parts = (
        "# Changelog",
        "## Unreleased",
        "- z",
        "## 1.1.0 — 2027-01-02",
        "### Added\n- a",
        "## 1.0.0 — 2026",
        "- b\n",
    )
    text = "\n\n".join(parts)
    assert release.notes(text, "1.1.0") == "### Added\n- a\n"
    assert release.notes(text, "1.0.0") == "- b\n"
    with pytest.raises(SystemExit, match=r"no section 2\.0\.0"):
        release.notes(text, "2.0.0")
    assert release.newest(text) == "1.1.0"


def test_the_citation_has_what_the_format_needs() -> None:
    yaml = pytest.importorskip("yaml")
    said = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors"} <= set(said)
    assert said["license"] == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["license"]


def test_contributors_are_told_of_every_contract_suite() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    suites = [name for name in testing.__all__ if name.startswith("check_")]
    assert len(suites) == 3
    assert [name for name in suites if f"`hitl.testing.{name}`" not in text] == []
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"\bmake ([\w-]+)", text)) <= targets
    for link in re.findall(r"\]\((?!http)([^)#]+)", text):
        assert (ROOT / link).exists(), link
