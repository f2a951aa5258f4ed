"""Digests of the training data per item, stored beside the predictions. Later changes trigger a new training.

An edited label changes the digest of its item but not the number of labels. Another features file changes only the
digest of the inputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hitl.annotations import Name
from hitl.evidence import Evidence

COLUMNS = ("labels", "labels_digest", "input_digest")


@dataclass(frozen=True, eq=False)
class TrainingRecord:
    """Item -> number of labels and ground-truth answers, a digest of them, and a digest of its inputs and group."""

    rows: Mapping[Name, tuple[int, int, int]]

    @classmethod
    def from_evidence(
        cls, evidence: Evidence, learnable_n: npt.NDArray[np.bool_], contents: Mapping[Name, str]
    ) -> TrainingRecord:
        """Record the learnable items (N,); `contents` maps items to texts that change with their inputs."""
        annotations, known_n, truth = evidence.annotations, evidence.known, evidence.truth
        assert truth is not None
        who, what = _hashes(annotations.annotators), _hashes(annotations.options)
        digest_n = np.zeros(annotations.n_items, np.uint64)
        np.add.at(digest_n, annotations.item, who[annotations.annotator] * what[annotations.label])
        digest_n[known_n] += _hashes(("truth", name) for name in annotations.classes)[truth[known_n]]
        count_n = annotations.labels_per_item + known_n
        items = [annotations.items[n] for n in np.flatnonzero(learnable_n)]
        inputs = _hashes(contents.get(item) for item in items)
        columns = (count_n[learnable_n].tolist(), digest_n[learnable_n].tolist(), inputs.tolist())
        return cls(dict(zip(items, zip(*columns, strict=True), strict=True)))

    @classmethod
    def from_tables(cls, tables: Iterable[pa.Table]) -> TrainingRecord:
        """Read the record from tables of stored predictions."""
        stored = [[table.column(name).to_pylist() for name in ("item", *COLUMNS)] for table in tables]
        return cls({item: (n, x, y) for columns in stored for item, n, x, y in zip(*columns, strict=True)})

    def columns(self, items: Sequence[Name]) -> dict[str, Any]:
        """Return the record as columns for a table of these items."""
        values = zip(*(self.rows[item] for item in items), strict=True)
        kinds = (pa.int64(), pa.uint64(), pa.uint64())
        return {name: pa.array(column, kind) for name, column, kind in zip(COLUMNS, values, kinds, strict=True)}

    def digest(self) -> bytes:
        """Return a digest of the whole record."""
        return sha256(repr(list(self.rows.items())).encode("utf-8", "surrogatepass")).digest()

    def changes_since(self, before: TrainingRecord) -> tuple[int, int]:
        """Count the labels that are new, edited or gone, and the items that are new, gone or have other inputs.

        If an item has the same number of labels as before but different ones, all of them count as edited.
        """
        added = removed = same_inputs = 0
        for item in {**self.rows, **before.rows}:
            (now, labels, inputs), (then, old_labels, old_inputs) = (
                record.rows.get(item, (0, 0, None)) for record in (self, before)
            )
            edited = now if now == then and labels != old_labels else 0
            added += max(now - then, 0) + edited
            removed += max(then - now, 0) + edited
            same_inputs += inputs == old_inputs
        return max(added, removed), max(len(self.rows), len(before.rows)) - same_inputs


def _hashes(values: Iterable[object]) -> npt.NDArray[np.uint64]:
    """Return odd hashes, because multiplying by an odd number modulo 2^64 loses no information."""
    texts = (repr(value).encode("utf-8", "surrogatepass") for value in values)
    return np.array([int.from_bytes(sha256(text).digest()[:8], "little") | 1 for text in texts], dtype=np.uint64)
