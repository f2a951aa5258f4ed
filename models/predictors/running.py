"""Run a predictor over a table into a probability file. An interrupted run resumes where it stopped.

Predictions are collected, one transaction per batch, in an SQLite file ".<output>.part" beside the output. A run with
the same fingerprint reuses the stored rows; any other starts again. A process holds the file's lock while it runs.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from hitl.errors import BadInput, BadSettings, Busy
from hitl.models.predictors.folds import OutOfFold
from hitl.models.predictors.inputs import Inputs
from hitl.models.predictors.predictor import Predictor
from hitl.platform import Progress, silent
from hitl.tables.matrices import as_table
from hitl.tables.write import require_writable, write_parts

ROWS = 10_000
"""Rows written to the output at a time."""


@dataclass(frozen=True, slots=True)
class Summary:
    """Numbers of items, of those without a prediction and of those predicted by an earlier run; elapsed time."""

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
    progress: Progress = silent,
) -> Summary:
    """Predict all items and write the probability file (CSV, JSON Lines, Parquet): item, p_<class> and fold.

    Raise BadSettings for a batch size below 1, Busy if another process writes the same file, and BadTable for inputs
    that cannot be read; the batches before that are kept.
    """
    if batch_size < 1:
        raise BadSettings(f"--batch-size {batch_size}: expected 1 or more")
    require_writable(output)
    started = time.monotonic()
    total = len(inputs.names())
    path = output.with_name(f".{output.name}.part")
    with closing(_open(path, output)) as part:
        if not part.execute("SELECT 1 FROM run WHERE fingerprint = ?", [fingerprint]).fetchall():
            with part:
                part.execute("DELETE FROM batch")
                part.execute("DELETE FROM run")
                part.execute("INSERT INTO run VALUES (?)", [fingerprint])
        resumed = part.execute("SELECT coalesce(max(row_behind), 0) FROM batch").fetchone()[0]
        progress("predict", resumed, total)
        for batch in inputs.batches(batch_size, resumed):
            table = as_table(batch.items, predictor.classes, predictor.predict(batch), inputs.item)
            if isinstance(predictor, OutOfFold):
                table = table.append_column("fold", pa.array(predictor.folds(batch)))
            row_behind, sink = batch.start + len(batch.items), pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table)
            with part:
                part.execute("INSERT INTO batch VALUES (?, ?)", [row_behind, sink.getvalue().to_pybytes()])
            progress("predict", row_behind, total)
        abstained: list[int] = []
        write_parts(output, _tables(part, abstained))
    path.unlink(missing_ok=True)
    return Summary(total, sum(abstained), resumed, time.monotonic() - started)


def _open(path: Path, output: Path) -> sqlite3.Connection:
    """Open and lock the file of an unfinished run. Raise Busy if another process holds the lock."""
    part = sqlite3.connect(path, timeout=0)
    try:
        part.execute("PRAGMA locking_mode = EXCLUSIVE")
        part.execute("PRAGMA journal_mode = WAL")
        part.execute("PRAGMA synchronous = NORMAL")
        part.execute("CREATE TABLE IF NOT EXISTS run (fingerprint TEXT)")
        part.execute("CREATE TABLE IF NOT EXISTS batch (row_behind INTEGER PRIMARY KEY, predictions BLOB)")
        with part:  # a write takes the lock
            part.execute("DELETE FROM batch WHERE NOT EXISTS (SELECT 1 FROM run)")
    except sqlite3.Error as error:
        part.close()
        if error.sqlite_errorcode == sqlite3.SQLITE_BUSY:
            raise Busy(f"{output}: another process writes it; wait for it, or name another file") from None
        raise BadInput(f"{path}: cannot be used for unfinished predictions: {error}; remove it") from None
    return part


def _tables(part: sqlite3.Connection, abstained: list[int]) -> Iterator[pa.Table]:
    """Yield the predictions, about ROWS at a time, and append to `abstained` how many items have none."""
    waiting: list[pa.Table] = []
    for (content,) in part.execute("SELECT predictions FROM batch ORDER BY row_behind"):
        table = pa.ipc.open_stream(content).read_all()
        shares = next(name for name in table.column_names if name.startswith("p_"))
        abstained.append(table.column(shares).null_count)
        waiting.append(table)
        if sum(table.num_rows for table in waiting) >= ROWS:
            yield pa.concat_tables(waiting).combine_chunks()
            waiting = []
    if waiting:
        yield pa.concat_tables(waiting).combine_chunks()
