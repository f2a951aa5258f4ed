"""Find the files of the tables, and compute digests that show whether they have changed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from hitl.errors import BadTable
from hitl.tables.read import files_of, table_in
from hitl.tables.write import FORMATS

NAMES = ("annotations", "items", "truth", "added_items", "gold")
WRITTEN = ("added_items", "gold")
"""Tables in the output that are also read back."""

GRAPH, MODELS = "graph", "probabilities_"
"""Name of the table of linked items, and prefix of tables with a model's predictions."""


@dataclass(frozen=True)
class TableFiles:
    """Tables in a folder and its output, or a single annotations file."""

    path: Path
    output: Path

    @property
    def is_folder(self) -> bool:
        """True for a folder of tables."""
        return self.path.is_dir()

    def find(self, name: str) -> Path | None:
        """Return the file of a table, or None. Raise BadTable if there are several."""
        if name == "annotations" and not self.is_folder:
            if not self.path.exists():
                raise BadTable(f"{self.path}: no such file or folder")
            return self.path
        return table_in(self._folder(name), name)

    def models(self) -> list[Path]:
        """Return the files, or folders, with the predictions of models."""
        return sorted(self.path.glob(f"{MODELS}*")) if self.is_folder else []

    def table_at(self, path: Path) -> str | None:
        """Return the name of the table at this path, even if the file does not exist; None if it would be no table."""
        file = path.resolve()
        if not self.is_folder and file == self.path.resolve():
            return "annotations"
        folders = [folder for folder in (self.path, self.output) if folder.is_dir()]
        linked = [each for folder in folders for each in folder.iterdir() if each.resolve() == file]
        for each in (path, file, *linked):
            folder, name = each.parent.resolve(), each.name.removesuffix(".gz")
            if name.startswith(MODELS) and self.is_folder and folder == self.path.resolve():
                return stem(each)
            for table in (*NAMES, GRAPH):
                if name in {table + suffix for suffix in FORMATS} and folder == self._folder(table).resolve():
                    return table
        return None

    def all(self) -> list[Path]:
        """Return all files that a pull reads. Raise BadTable if there are neither annotations nor items."""
        tables = {name: path for name in NAMES if (path := self.find(name)) is not None}
        if not {"annotations", "items"} & set(tables):
            excel = sorted(self.path.glob("annotations.xls*")) if self.is_folder else []
            fix = f"; {excel[0].name} is, which a project does not read: save it as .csv" if excel else ""
            raise BadTable(f"{self.path}: neither annotations.* nor items.* (csv, jsonl, parquet) is there{fix}")
        return [*tables.values(), *(file for path in self.models() for file in files_of(path))]

    def present(self, expected: Iterable[str]) -> list[str]:
        """Return the names of the existing tables. Raise BadTable if an expected one is missing."""
        there = [name for name in NAMES if self.find(name) is not None]
        there += sorted({stem(path) for path in self.models()})
        for name in expected:
            if name not in there:
                raise BadTable(
                    f"{self._folder(name)}: {name}.* is gone, which an earlier pull has read; nothing was deleted. "
                    "Put it back, or, if it is meant to be gone, run `hitl pull --full --accept-deletions`"
                )
        return there

    def stamp(self) -> str:
        """Return a digest of the names and bytes of all files."""
        stamp = hashlib.sha256()
        for path in self.all():
            with path.open("rb") as file:
                stamp.update(path.name.encode() + hashlib.file_digest(file, "sha256").digest())
        return stamp.hexdigest()[:16]

    def state(self) -> str:
        """Return a digest of the names, sizes and modification times of all files."""
        states = ((path.name, path.stat()) for path in self.all())
        text = "".join(f"{name}\0{state.st_size}\0{state.st_mtime_ns}\0" for name, state in states)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def is_cut(self) -> bool:
        """Return True if the last line of annotations.* is incomplete, as in a file that is still being written."""
        path = self.find("annotations")
        if path is None or path.suffix.lower() not in (".csv", ".tsv", ".jsonl", ".ndjson") or not path.stat().st_size:
            return False
        with path.open("rb") as file:
            file.seek(-1, 2)
            return file.read(1) not in b"\r\n"

    def _folder(self, name: str) -> Path:
        return self.output if name in WRITTEN else self.path


def stem(path: Path) -> str:
    """Return the name of a file without its format (.csv.gz), or of a folder."""
    return path.name if path.is_dir() else path.name.removesuffix(".gz").rsplit(".", 1)[0]
