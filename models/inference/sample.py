"""A sample of labeled items, the same however the items are divided into shards and ordered.

Items are sorted by a hash of who answered what, and the first ones are taken. Items with the same answers by the same
annotators are equivalent, so it does not matter which of them is taken.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Self

import numpy as np
import numpy.typing as npt

from hitl.annotations import Annotations, Floats
from hitl.evidence import Evidence
from hitl.models.inference.em import Beliefs
from hitl.models.inference.engine import Rows

ITEMS = 20_000
"""Maximum number of items."""


@dataclass(frozen=True, eq=False)
class Sample(Rows):
    """Items with at least one label.

    Attributes:
        key_n: (n,) hash of an item's answers, by which items are sorted.
        labels_n: (n,) number of labels.
        truth_n: (n,) known class, or -1.
        q_nj: (n, J) beliefs.
        annotator_m, label_m: (m,) codes of the labels, item by item.
    """

    key_n: npt.NDArray[np.uint64]
    labels_n: npt.NDArray[np.int64]
    truth_n: npt.NDArray[np.int32]
    q_nj: Floats
    annotator_m: npt.NDArray[np.int32]
    label_m: npt.NDArray[np.int32]

    @classmethod
    def of(cls, evidence: Evidence, beliefs: Beliefs) -> Self:
        """Sample one shard."""
        assert evidence.truth is not None
        annotations = evidence.annotations
        rows = np.flatnonzero(annotations.labels_per_item)
        code_m = annotations.annotator.astype(np.uint64) * np.uint64(annotations.n_options) + annotations.label.astype(
            np.uint64
        )
        key_n = np.add.reduceat(_mixed(code_m), annotations.item_start[rows]) if rows.size else code_m
        some = annotations.labels_per_item[rows], evidence.truth[rows], beliefs(evidence)[rows]
        return cls(_mixed(key_n), *some, annotations.annotator, annotations.label).first(ITEMS)

    def __add__(self, other: Self) -> Self:
        return super().__add__(other).first(ITEMS)

    def first(self, most: int) -> Self:
        """Return the first `most` items, sorted."""
        return self.among(np.argsort(self.key_n, kind="stable")[:most])

    def among(self, rows: npt.NDArray[np.intp]) -> Self:
        """Return these items."""
        start_n, labels_n = np.cumsum(self.labels_n) - self.labels_n, self.labels_n[rows]
        skipped_n = start_n[rows] - (np.cumsum(labels_n) - labels_n)
        of_m = np.arange(labels_n.sum()) + np.repeat(skipped_n, labels_n)
        taken = {f.name: getattr(self, f.name)[of_m if f.name.endswith("_m") else rows] for f in fields(self)}
        return type(self)(**taken)

    def votes(self, n_options: int) -> Floats:
        """Return (n, L) number of labels of each option."""
        n = len(self.key_n)
        cell_m = np.repeat(np.arange(n), self.labels_n) * n_options + self.label_m
        return np.bincount(cell_m, minlength=n * n_options).reshape(n, n_options).astype(np.float64)

    def evidence(self, annotations: Annotations) -> Evidence:
        """Return the sample as a table of the annotators who labeled it; classes and options are those of the crowd."""
        people, annotator_m = np.unique(self.annotator_m, return_inverse=True)
        n = len(self.key_n)
        item_m, names = np.repeat(np.arange(n, dtype=np.int32), self.labels_n), tuple(map(str, range(people.size)))
        codes = item_m, annotator_m.astype(np.int32), self.label_m
        classes, ordered = annotations.classes, annotations.ordered
        table = Annotations(*codes, tuple(range(n)), names, classes, annotations.options, ordered=ordered)
        return Evidence(table, truth=self.truth_n)


def _mixed(code: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return pseudo-random numbers that depend on these alone (splitmix64; Steele et al. 2014)."""
    z = code + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: npt.NDArray[np.uint64] = z ^ (z >> np.uint64(31))
    return mixed
