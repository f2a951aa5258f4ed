"""`hitl data`: public labels of real annotators, downloaded from their source and checked by SHA-256."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hitl import __version__
from hitl.errors import BadInput, BadSettings, Unreachable
from hitl.platform import Progress

CATALOGUE = Path(__file__).with_name("public.toml")
FILES = {"label.csv": ("annotations.csv", "item,annotator,label"), "truth.csv": ("truth.csv", "item,label")}
"""Original file -> the file that hitl writes, and its header. The other lines are those of the original."""


@dataclass(frozen=True)
class PublicSet:
    """A public set. `truth`: number of items with ground truth. `sha256`: original file -> its digest."""

    about: str
    items: int
    annotators: int
    classes: int
    labels: int
    truth: int
    licence: str
    paper: str
    source: str
    sha256: Mapping[str, str]


def catalogue() -> dict[str, PublicSet]:
    """Return name -> set, for all sets that can be downloaded."""
    return {name: PublicSet(**entry) for name, entry in tomllib.loads(CATALOGUE.read_text("utf-8")).items()}


def get(name: str, folder: Path, progress: Progress) -> dict[str, int]:
    """Download a set into a new folder. Return file name -> number of rows.

    Raises BadSettings for an unknown name and for a folder that exists, Unreachable if the download fails, and
    BadInput if a file is not the original one. After an error there is no folder.
    """
    sets = catalogue()
    if name not in sets:
        raise BadSettings(f"data set {name!r} is unknown; expected one of {', '.join(sets)}")
    if folder.exists():
        raise BadSettings(f"{folder} exists; name a new folder: `hitl data get {name} FOLDER`")
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    try:
        rows = {}
        for original, (file, header) in FILES.items():
            lines = _download(f"{sets[name].source}/{original}", sets[name].sha256[original], progress).splitlines()
            (temporary / file).write_text("\n".join([header, *lines[1:], ""]), encoding="utf-8")
            rows[file] = len(lines) - 1
        (temporary / "README.md").write_text(_readme(name, sets[name]), encoding="utf-8")
        temporary.chmod(0o755)
        temporary.replace(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return rows


def _download(address: str, sha256: str, progress: Progress) -> str:
    import httpx

    content = bytearray()
    try:
        agent = {"User-Agent": f"hitl/{__version__}"}
        with httpx.stream("GET", address, headers=agent, follow_redirects=True, timeout=30) as response:
            response.raise_for_status()
            total = int(response.headers.get("Content-Length", 0)) or None
            for chunk in response.iter_bytes():
                content += chunk
                progress(f"{address.rpartition('/')[2]}, bytes", response.num_bytes_downloaded, total)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise Unreachable(
            f"{address}: {error or type(error).__name__}; nothing was written, try again later"
        ) from error
    digest = hashlib.sha256(content).hexdigest()
    if digest != sha256:
        raise BadInput(
            f"{address}: this is not the file that hitl knows (SHA-256 {digest}, expected {sha256}); "
            "nothing was written"
        )
    return content.decode()


def _readme(name: str, public: PublicSet) -> str:
    digests = "".join(f"- {public.source}/{file}, SHA-256 {digest}\n" for file, digest in public.sha256.items())
    return (
        f"# {name}\n\n{public.about}: {public.items:,} items, {public.annotators:,} annotators, "
        f"{public.classes} classes, {public.labels:,} labels. {public.truth:,} items have ground truth.\n\n"
        f"Licence: {public.licence}\n\n"
        f"Paper: {public.paper}\n\nDownloaded by `hitl data get`, which changed only the headers:\n\n{digests}"
    )
