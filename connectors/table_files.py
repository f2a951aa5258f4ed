"""Find the files of the tables, and compute digests of their bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from hitl.errors import BadTable
from hitl.tables.batches import files_of
from hitl.tables.files import FORMATS, table_in

NAMES = ("annotations", "items", "truth", "added_items", "gold")
WRITTEN = ("added_items", "gold")
"""Tables in the output that are also read back."""

GRAPH, MODELS = "graph", "probabilities_"
"""Name of the table of linked items, and prefix of the tables of models."""


class TableFiles:
    """Tables in a folder and its output, or a single annotations file."""

    def __init__(self, path: Path, output: Path) -> None:
        self._path, self._output = path, output
        self.is_folder = path.is_dir()

    def find(self, name: str) -> Path | None:
        """Return the file of a table, or None. Raises BadTable if there are two."""
        if name == "annotations" and not self.is_folder:
            if not self._path.exists():
                raise BadTable(f"{self._path}: no such file or folder")
            return self._path
        return table_in(self._folder(name), name)

    def models(self) -> list[Path]:
        """Return the files, or folders, of the models."""
        return sorted(self._path.glob(f"{MODELS}*")) if self.is_folder else []

    def table_at(self, path: Path) -> str | None:
        """Return the name of the table that a file at this path is, or would be, or None."""
        file = path.resolve()
        if not self.is_folder and file == self._path.resolve():
            return "annotations"
        folders = [folder for folder in (self._path, self._output) if folder.is_dir()]
        linked = [each for folder in folders for each in folder.iterdir() if each.resolve() == file]
        return next((name for each in (path, file, *linked) if (name := self._named(each)) is not None), None)

    def _named(self, path: Path) -> str | None:
        """Return the table's name that the file name alone implies."""
        folder, name = path.parent.resolve(), path.name.removesuffix(".gz")
        if name.startswith(MODELS) and self.is_folder and folder == self._path.resolve():
            return stem(path)
        for each in (*NAMES, GRAPH):
            if name in {each + suffix for suffix in FORMATS} and folder == self._folder(each).resolve():
                return each
        return None

    def all(self) -> list[Path]:
        """Return all files that are read. Raises BadTable if there are neither annotations nor items."""
        found = {name: path for name in NAMES if (path := self.find(name)) is not None}
        if not {"annotations", "items"} & set(found):
            excel = sorted(self._path.glob("annotations.xls*")) if self.is_folder else []
            mend = f"; {excel[0].name} is, which a project does not read: save it as .csv" if excel else ""
            raise BadTable(f"{self._path}: neither annotations.* nor items.* (csv, jsonl, parquet) is there{mend}")
        return [*found.values(), *(file for path in self.models() for file in files_of(path))]

    def present(self, expected: Iterable[str]) -> list[str]:
        """Return the names of the existing tables. Raises BadTable if an expected one is missing."""
        there = [name for name in NAMES if self.find(name) is not None]
        there += sorted({stem(path) for path in self.models()})
        for name in expected:
            if name not in there:
                raise BadTable(
                    f"{self._folder(name)}: {name}.* is gone, which an earlier pull has read; nothing was deleted. "
                    "Put it back, or, if it is meant to be gone, run `hitl pull --full --accept-deletions`"
                )
        return there

    def digests(self) -> dict[Path, bytes]:
        """Return the digest of the bytes of each file."""
        found = {}
        for path in self.all():
            with path.open("rb") as file:
                found[path] = hashlib.file_digest(file, "sha256").digest()
        return found

    def _folder(self, name: str) -> Path:
        return self._output if name in WRITTEN else self._path


def stamp_of(digests: Mapping[Path, bytes]) -> str:
    """Combine the digests of several files into one."""
    digest = hashlib.sha256()
    for path, each in digests.items():
        digest.update(path.name.encode())
        digest.update(each)
    return digest.hexdigest()[:16]


def stem(path: Path) -> str:
    """Return the name of a table or model without its format. A folder has none."""
    return path.name if path.is_dir() else path.name.removesuffix(".gz").rsplit(".", 1)[0]


def state_of(files: Iterable[Path]) -> str:
    """Return a digest of the names, sizes and modification times of files."""
    states = ((path.name, path.stat()) for path in files)
    text = "".join(f"{name}\0{state.st_size}\0{state.st_mtime_ns}\0" for name, state in states)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def is_cut(path: Path | None) -> bool:
    """Return True if the last line of a text file is incomplete, as in a file that is still being written."""
    if path is None or path.suffix.lower() not in (".csv", ".tsv", ".jsonl", ".ndjson") or not path.stat().st_size:
        return False
    with path.open("rb") as file:
        file.seek(-1, 2)
        return file.read(1) not in b"\r\n"
