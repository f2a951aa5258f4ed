"""`make release`: the source distribution, the wheel made of it, and the notes, in `dist/`."""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path

from hitl import __version__
from tests.deploy.files import ROOT, built

HEADING = re.compile(r"^## (\d+\.\d+\.\d+)\b.*\n", re.MULTILINE)


def newest(text: str | None = None) -> str:
    """The newest version that the changelog has a section of."""
    return str(HEADING.findall(text or (ROOT / "CHANGELOG.md").read_text())[0])


def notes(text: str, version: str) -> str:
    """What the changelog says of a version."""
    for found in HEADING.finditer(text):
        if found[1] == version:
            return text[found.end() :].split("\n## ")[0].strip() + "\n"
    raise SystemExit(f"CHANGELOG.md: no section {version}; expected `## {version} — date`")


def main() -> None:
    """Make the files."""
    text, dist = (ROOT / "CHANGELOG.md").read_text(), ROOT / "dist"
    if f"## {__version__} — not released" in text or "\n## Unreleased\n" in text:
        raise SystemExit(f"CHANGELOG.md: expected a dated section {__version__}, and none that is unreleased")
    said = notes(text, __version__)
    with tempfile.TemporaryDirectory() as folder:
        files = built(Path(folder))
        dist.mkdir(exist_ok=True)
        for path in files:
            shutil.copy(path, dist / path.name)
    (dist / "NOTES.md").write_text(said)
    print(*(path.name for path in files), "NOTES.md", sep="\n")


if __name__ == "__main__":
    main()
