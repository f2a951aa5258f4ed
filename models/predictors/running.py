"""Run a predictor over a table and write a probability file. An interrupted run resumes where it stopped.

Predictions are collected in a file ".<output>.part" beside the output. A run with the same fingerprint reuses them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from hitl.models.predictors.features import VectorCache
from hitl.models.predictors.folds import OutOfFold
from hitl.models.predictors.inputs import Inputs
from hitl.models.predictors.predictor import Predictor
from hitl.platform import Progress, silent
from hitl.tables.matrices import as_table
from hitl.tables.write import exclusive_lock, write_parts

ROWS = 10_000
"""Number of rows written to the output at a time."""


@dataclass(frozen=True, slots=True)
class Summary:
    """Summary of a run.

    Attributes:
        items: number of items.
        silent: number of items without a prediction.
        resumed: number of items that an earlier, interrupted run had predicted.
        seconds: duration of this run.
    """

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
    """Predict all items and write the probability file (CSV, JSON Lines or Parquet): item, p_<class>, and fold if any.

    `fingerprint`: digest of the model and its inputs; predictions of an earlier run with another one are not reused.
    Raise Busy if another process writes the same file. Raise BadTable for inputs that cannot be read; a later run
    reuses the batches before them.
    """
    started, items, abstained = time.monotonic(), inputs.names(), 0
    part, lock = (output.with_name(f".{output.name}.{ending}") for ending in ("part", "lock"))
    n_classes = len(predictor.classes)

    def tables() -> Iterator[pa.Table]:
        nonlocal abstained
        for start in range(0, len(items), ROWS):
            names = items[start : start + ROWS]
            numbers = cache.read(names, names)
            abstained += int(np.isnan(numbers[:, 0]).sum())
            table = as_table(names, predictor.classes, numbers[:, :n_classes], inputs.item)
            for fold in numbers.T[n_classes:]:
                table = table.append_column("fold", pa.array(fold.astype(np.int64)))
            yield table

    with exclusive_lock(lock, str(output)):
        cache = VectorCache(part, fingerprint)
        resumed = int(cache.has(items, items).sum())
        progress("predict", resumed, len(items))
        for batch in inputs.batches(batch_size, resumed):
            numbers = predictor.predict(batch)
            if isinstance(predictor, OutOfFold):
                numbers = np.column_stack([numbers, predictor.folds(batch)])
            cache.add(batch.items, batch.items, numbers)
            progress("predict", batch.start + len(batch.items), len(items))
        write_parts(output, tables())
        for path in (part, lock):
            path.unlink(missing_ok=True)
    return Summary(len(items), abstained, resumed, time.monotonic() - started)
