"""A predictor over a table, into a probability file; interrupted, it goes on where it stopped.

Beside the output grows a folder ".<output>.parts": `fingerprint`, and files "<first row>-<row behind>.parquet", each
written whole or not at all. A run whose fingerprint (of model, inputs and settings) is the same takes over the rows
that are there; another one begins anew. The output is written whole from the parts at the end, and the folder is
removed.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet

from hitl.errors import BadSettings
from hitl.models.predictors.inputs import Inputs
from hitl.models.predictors.predictor import Predictor
from hitl.platform import Progress
from hitl.tables.files import atomic, require_writable, write_parts
from hitl.tables.locks import held
from hitl.tables.probabilities import as_table

ROWS = 10_000
SECONDS = 30.0
"""A part is written after so many rows, or so many seconds."""

LOCK = "lock"
PART = re.compile(r"(\d{12})-(\d{12})\.parquet")
HALF = re.compile(rf"\.({PART.pattern}|fingerprint)\..*")
"""What a run that was killed was about to write."""


@dataclass(frozen=True, slots=True)
class Done:
    """How a run went: items in all, how many the model said nothing of, how many an earlier run had judged."""

    items: int
    silent: int
    resumed: int
    seconds: float


def predict(
    inputs: Inputs,
    predictor: Predictor,
    output: Path,
    fingerprint: str,
    *,
    batch_size: int = 256,
    rows: int = ROWS,
    progress: Progress = lambda what, done, total: None,
) -> Done:
    """Judge all items and write the probability file (CSV, JSON Lines, Parquet): item, p_<class>, and the notes.

    Raises BadSettings for a batch size below 1, Busy where another process writes the same file, and BadTable for
    inputs that cannot be read; what was judged before that is kept.
    """
    if batch_size < 1:
        raise BadSettings(f"--batch-size {batch_size}: expected 1 or more")
    require_writable(output)
    began = time.monotonic()
    total = len(inputs.names())
    parts = Parts(output.with_name(f".{output.name}.parts"), fingerprint)
    parts.folder.mkdir(exist_ok=True)
    with held(parts.folder / LOCK, str(output), "file"):
        resumed = parts.begin()
        progress("predict", resumed, total)
        _judge(inputs, predictor, parts, total, resumed, batch_size, rows, progress)
        silent = parts.write(output)
        parts.remove()
        with suppress(OSError):  # another process begins just now; Windows removes no file that is open
            (parts.folder / LOCK).unlink()
            parts.folder.rmdir()
    return Done(total, silent, resumed, time.monotonic() - began)


def _judge(
    inputs: Inputs,
    predictor: Predictor,
    parts: Parts,
    total: int,
    start: int,
    batch_size: int,
    rows: int,
    progress: Progress,
) -> None:
    """Judge from row `start` on and keep the answers in parts; also those so far when something fails."""
    waiting: list[pa.Table] = []
    since, first, last = time.monotonic(), start, start
    try:
        for batch in inputs.batches(batch_size, start):
            table = as_table(batch.items, predictor.classes, predictor.predict(batch), inputs.item)
            for name, column in predictor.notes(batch).items():
                table = table.append_column(name, pa.array(column))
            waiting.append(table)
            last = batch.start + len(batch.items)
            if last - first >= rows or time.monotonic() - since >= SECONDS:
                parts.add(first, last, pa.concat_tables(waiting))
                waiting, since, first = [], time.monotonic(), last
            progress("predict", last, total)
    finally:
        if waiting:
            parts.add(first, last, pa.concat_tables(waiting))


@dataclass(frozen=True, slots=True)
class Parts:
    """The folder of an unfinished run."""

    folder: Path
    fingerprint: str

    def begin(self) -> int:
        """Make the folder ready; returns how many rows it holds of this very run. Parts of another run are removed."""
        self.folder.mkdir(exist_ok=True)
        stated = self.folder / "fingerprint"
        if not stated.is_file() or stated.read_text() != self.fingerprint:
            self.remove()
            self.folder.mkdir(exist_ok=True)
            with atomic(stated) as handle:
                handle.write(self.fingerprint.encode())
        return self._chain()[1]

    def add(self, first: int, last: int, table: pa.Table) -> None:
        """Keep the rows from `first` up to `last`."""
        with atomic(self.folder / f"{first:012d}-{last:012d}.parquet") as handle:
            parquet.write_table(table, handle)

    def write(self, output: Path) -> int:
        """Write the output from the parts, one at a time; returns the number of items on which the model abstains."""
        abstained = []

        def tables() -> Iterator[pa.Table]:
            for path in self._chain()[0]:
                table = parquet.read_table(path, partitioning=None)
                shares = next(name for name in table.column_names if name.startswith("p_"))
                abstained.append(table.column(shares).null_count)
                yield table

        write_parts(output, tables())
        return sum(abstained)

    def remove(self) -> None:
        """Remove what this class made, and the folder if nothing else is in it."""
        for path in list(self.folder.iterdir()):
            if PART.fullmatch(path.name) or path.name == "fingerprint" or HALF.fullmatch(path.name):
                path.unlink()
        if not any(self.folder.iterdir()):
            self.folder.rmdir()

    def _chain(self) -> tuple[list[Path], int]:
        """The parts that follow one another from row 0 on, and the row behind the last."""
        named = ((PART.fullmatch(path.name), path) for path in self.folder.iterdir())
        spans = {int(found[1]): (int(found[2]), path) for found, path in named if found}
        chain: list[Path] = []
        row = 0
        while row in spans:
            row, path = spans[row]
            chain.append(path)
        return chain, row
