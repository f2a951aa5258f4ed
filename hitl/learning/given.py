"""What a training was given of each item, kept beside what it predicts: what is another since says when to train anew.

    said    a digest of each of its labels, who said what, and of its known truth
    held    a digest of what it is predicted from: its text, its row of a file, ..., and the group that it is in

A label that was edited changes `said` and no number of labels; another file of features changes `held` alone.
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

COLUMNS = ("said", "held")
"""What a table of predictions has beside them."""


@dataclass(frozen=True, eq=False)
class Given:
    """What there is of N items that a model can be given something of.

    Attributes:
        items: their names.
        said: (N,) lists of uint32, see the module.
        held: (N,) uint64.
    """

    items: list[Name]
    said: pa.Array
    held: npt.NDArray[np.uint64]

    @classmethod
    def of(cls, evidence: Evidence, there_n: npt.NDArray[np.bool_], contents: Mapping[Name, str]) -> Given:
        """Of the items `there_n` (N,); `contents` are texts that change with what they are predicted from."""
        rows, names = np.flatnonzero(there_n), evidence.annotations.items
        items = [names[row] for row in rows]
        return cls(items, _said(evidence).take(pa.array(rows)), _digests(contents.get(name) for name in items))

    @classmethod
    def read(cls, tables: Iterable[pa.Table]) -> Given | None:
        """Of the items of these tables, as `columns` gave it; None where an older version wrote them."""
        named = [table.select(["item", *COLUMNS]) for table in tables if {*COLUMNS} <= {*table.column_names}]
        if not named:
            return None
        whole = pa.concat_tables(named).combine_chunks()
        item, said, held = (whole.column(name) for name in whole.column_names)
        return cls(item.to_pylist(), pa.concat_arrays(said.chunks), np.asarray(held))

    def columns(self, items: Sequence[Name]) -> dict[str, Any]:
        """The columns of a table of these items."""
        place = {item: row for row, item in enumerate(self.items)}
        rows = np.array([place[item] for item in items], dtype=np.int64)
        return {"said": self.said.take(pa.array(rows)), "held": self.held[rows]}

    def labels(self) -> npt.NDArray[np.uint32]:
        """(M,) the digests of the labels of all items."""
        return np.asarray(self.said.flatten())

    def since(self, before: Given) -> tuple[int, int]:
        """How many labels are new, or gone if these are more, and how many items have come, gone or hold something new.

        A label that was edited is a new one.
        """
        now, then = self.labels(), before.labels()
        labels = max(len(np.setdiff1d(now, then)), len(np.setdiff1d(then, now)))
        held = dict(zip(before.items, before.held.tolist(), strict=True))
        pairs = zip(self.items, self.held.tolist(), strict=True)
        same = sum(held.get(item) == digest for item, digest in pairs)
        return labels, max(len(self.items), len(before.items)) - same


def _said(evidence: Evidence) -> pa.Array:
    """(N,) of each item."""
    annotations, truth, known_n = evidence.annotations, evidence.truth, evidence.known
    assert truth is not None
    item_n, who, what = (_digests(names) for names in (annotations.items, annotations.annotators, annotations.options))
    label = item_n[annotations.item] * who[annotations.annotator] * what[annotations.label]
    known = item_n[known_n] * _digests(("truth", name) for name in annotations.classes)[truth[known_n]]
    of_item = np.concatenate([annotations.item, np.flatnonzero(known_n)])
    found = (np.concatenate([label, known])[np.argsort(of_item, kind="stable")] >> np.uint64(32)).astype(np.uint32)
    ends = np.cumsum(np.bincount(of_item, minlength=annotations.n_items))
    return pa.LargeListArray.from_arrays(pa.array(np.append(0, ends)), pa.array(found))


def _digests(values: Iterable[object]) -> npt.NDArray[np.uint64]:
    """Odd ones, so that of a product each says something."""
    texts = (repr(value).encode("utf-8", "surrogatepass") for value in values)
    found = [int.from_bytes(sha256(text).digest()[:8], "little") | 1 for text in texts]
    return np.array(found, dtype=np.uint64)
