"""`GrowingLabels`: who said what, while it changes: labels, items and annotators come, labels go.

The labels of item n are cells[first[n] : first[n] + size[n]] in order, cell = annotator * L + option. An item whose
place is full moves to a place twice as large at the end, so a label costs the same however many there are. Names are
kept with their codes, which never change. Times and durations are not kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from hitl.annotations import Annotations, Name, Names
from hitl.errors import BadAnnotations
from hitl.formatting import listed

Codes = npt.NDArray[np.int64]
Rows = TypeVar("Rows", bound=npt.NDArray[Any])


class GrowingLabels:
    """The labels of some `Annotations`, open to change.

    Attributes:
        first, size: (at least N,) where the labels of an item begin, and how many there are.
        cells: the labels, with gaps between those of one item and the next.
    """

    def __init__(self, annotations: Annotations) -> None:
        """The labels as they are now."""
        self.classes, self.options = annotations.classes, annotations.options
        self.anonymous = annotations.anonymous
        self._items, self._annotators = list(annotations.items), list(annotations.annotators)
        self._item = {name: code for code, name in enumerate(self._items)}
        self._annotator = {name: code for code, name in enumerate(self._annotators)}
        self._option = {name: code for code, name in enumerate(self.options)}
        self.first = annotations.item_start[:-1].copy()
        self.size = annotations.labels_per_item.copy()
        self._room = self.size.copy()
        self.cells: Codes = annotations.cell.astype(np.int64)
        self._used = self._labels = len(self.cells)

    def __len__(self) -> int:
        """Number of labels."""
        return self._labels

    @property
    def n_items(self) -> int:
        """N."""
        return len(self._items)

    @property
    def n_annotators(self) -> int:
        """K."""
        return len(self._annotators)

    @property
    def items(self) -> Names:
        """N names."""
        return tuple(self._items)

    @property
    def annotators(self) -> Names:
        """K names."""
        return tuple(self._annotators)

    @property
    def labels_per_annotator(self) -> Codes:
        """(K,) how many labels each annotator has given."""
        return np.bincount(self.all_cells() // len(self.options), minlength=self.n_annotators)

    # -- names -> codes ------------------------------------------------------------------------------------

    def find_item(self, name: Name) -> int:
        """Its code; -1 for one not met."""
        return self._item.get(name, -1)

    def find_annotator(self, name: Name) -> int:
        """The code of an annotator; -1 for one not met."""
        return self._annotator.get(name, -1)

    def option(self, name: Name) -> int:
        """The code of an option. Raises BadAnnotations for another: its confusion cells cannot be added."""
        if name not in self._option:
            raise BadAnnotations(
                f"{name!r} is not one of the options {listed(self.options)}; fit again to add an option"
            )
        return self._option[name]

    def check_names(self, items: Sequence[Name], annotators: Sequence[Name]) -> None:
        """Raise BadAnnotations unless these names are of the type of the others, whole number or text."""
        for kind, known, names in (("item", self._items, items), ("annotator", self._annotators, annotators)):
            for name in names:
                if known and isinstance(name, str) != isinstance(known[0], str):
                    raise BadAnnotations(f"the {kind} {name!r} is not of the same type as {known[0]!r}")

    def item(self, name: Name) -> int:
        """Its code; one not met joins, without labels."""
        code = self._item.setdefault(name, self.n_items)
        if code == self.n_items:
            self._items.append(name)
            self.first, self.size, self._room = (
                roomy(rows, self.n_items) for rows in (self.first, self.size, self._room)
            )
        return code

    def annotator(self, name: Name, anonymous: bool = False) -> int:
        """The code of an annotator; one not met joins."""
        code = self._annotator.setdefault(name, self.n_annotators)
        if code == self.n_annotators:
            self._annotators.append(name)
            if anonymous and self.anonymous is None:
                self.anonymous = code
        return code

    # -- labels --------------------------------------------------------------------------------------------

    def of(self, item: int) -> Codes:
        """The cells of an item's labels; a view."""
        return self.cells[self.first[item] : self.first[item] + self.size[item]]

    def count(self, item: int, annotator: int, option: int = -1) -> int:
        """How many labels an annotator has given to an item (`option` >= 0: with this option)."""
        return len(self._places(item, annotator, option))

    def put(self, item: int, annotator: int, option: int) -> None:
        """A label, in place of the annotator's earlier one (the anonymous pool: beside it)."""
        cell = annotator * len(self.options) + option
        places = self._places(item, annotator)
        if len(places) and annotator != self.anonymous:
            self.cells[places[0]] = cell
            return
        if self.size[item] == self._room[item]:
            self._move(item)
        self.size[item] += 1
        self._labels += 1
        cells = self.of(item)
        before = int(np.searchsorted(cells[:-1], cell))
        cells[before + 1 :] = cells[before:-1].copy()
        cells[before] = cell

    def take(self, item: int, annotator: int, option: int = -1) -> None:
        """Take a label back (of the anonymous pool, one with this option); it must be there."""
        cells, place = self.of(item), self._places(item, annotator, option)[0] - self.first[item]
        cells[place:-1] = cells[place + 1 :].copy()
        self.size[item] -= 1
        self._labels -= 1

    def all_cells(self) -> Codes:
        """(M,) cells, item by item."""
        size = self.size[: self.n_items]
        start = np.cumsum(size) - size
        within = np.arange(len(self)) - np.repeat(start, size)
        return self.cells[np.repeat(self.first[: self.n_items], size) + within]

    def annotations(self) -> Annotations:
        """The labels as they are now, as a table of their own."""
        cells, n_options = self.all_cells(), len(self.options)
        return Annotations(
            np.repeat(np.arange(self.n_items, dtype=np.int32), self.size[: self.n_items]),
            (cells // n_options).astype(np.int32),
            (cells % n_options).astype(np.int32),
            self.items,
            self.annotators,
            self.classes,
            self.options,
            self.anonymous,
        )

    def _places(self, item: int, annotator: int, option: int = -1) -> Codes:
        """Where in `cells` the labels are that an annotator has given to an item."""
        cells, cell = self.of(item), annotator * len(self.options)
        low, high = (cell, cell + len(self.options)) if option < 0 else (cell + option, cell + option + 1)
        places: Codes = self.first[item] + np.flatnonzero((cells >= low) & (cells < high))
        return places

    def _move(self, item: int) -> None:
        """A place twice as large, at the end."""
        labels, room = self.of(item).copy(), int(2 * self._room[item] + 2)
        self.cells = roomy(self.cells, self._used + room)
        self.first[item], self._room[item] = self._used, room
        self.cells[self._used : self._used + len(labels)] = labels
        self._used += room


def roomy(rows: Rows, size: int, fill: float = 0) -> Rows:
    """The rows; where there are fewer than `size`, more follow: a quarter more than needed, filled with `fill`."""
    if len(rows) >= size:
        return rows
    larger = np.full((size + size // 4 + 8, *rows.shape[1:]), fill, rows.dtype)
    larger[: len(rows)] = rows
    return larger  # type: ignore[return-value]
