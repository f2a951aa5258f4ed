"""Pages of what tables say otherwise than at the cursor of the last pull.

columns  a digest of what the columns are called and what is a class: other settings read the same files anew
blocks   digests of the blocks of items (`table_blocks`) that are stored as the tables say
again    the items that were sent alone since (`table_changes`): the blocks that hold them are stored otherwise
live     a digest of which items there are, since the store was last told of all of them; None: told since
ended    whether it is the cursor of a whole pull
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np

from hitl.connectors.table_blocks import Blocks, ItemRows, Range
from hitl.connectors.table_reading import QUESTION, Answers, Columns, Reading, data_in
from hitl.connectors.table_rows import NEWEST, Keys
from hitl.platform import AnnotationRow, AnnotatorRow, Cursor, ItemRow, Page, PredictionRow

BLOCKS = 100
"""About so many blocks are in a page: a changed label has the rows of its block compared in the store."""


@dataclass(frozen=True)
class Told:
    """What tables say of items, in all tables."""

    items: ItemRows | None
    answers: Answers
    gold: Mapping[str, AnnotationRow]
    predictions: Mapping[str, Sequence[PredictionRow]]

    @classmethod
    def of(cls, reading: Reading, answers: Answers) -> Told:
        """Of all items that there are."""
        return cls(reading.items, answers, reading.gold, reading.predictions[0])

    def about(self, names: frozenset[str]) -> Told:
        """The same of these items alone; the answers are of no others."""
        rows = self.items
        if rows is not None:
            chosen = np.fromiter((name in names for name in rows.names), bool, len(rows.names))
            rows = rows.kept(chosen[rows.codes])
        gold = {key: self.gold[key] for key in names if key in self.gold}
        return Told(rows, self.answers, gold, {key: self.predictions[key] for key in names if key in self.predictions})


class TablePages:
    """What tables say, in pages of at least `size` items, where so many are to be sent."""

    def __init__(self, told: Told, columns: Columns, size: int) -> None:
        self._columns, self._size = columns, size
        answers = told.answers
        self._people = tuple(sorted(answers.unique(columns.annotator)))
        self._gold, self._predictions = told.gold, told.predictions
        rows = [part for part in (told.items, answers.rows) if part is not None]
        others = [*(part.names for part in rows[1:]), self._gold, self._predictions]
        first = rows[0].names if rows else []
        keys = [*dict.fromkeys(chain(first, *others))] if any(others) else first
        self._blocks = Blocks(keys, max(size // BLOCKS, 1), rows, [self._gold, self._predictions])
        self._items = None if told.items is None else self._blocks.parts[0]
        self._answers = None if answers.rows is None else self._blocks.parts[-1]

    def since(
        self, before: Cursor, cursor: Mapping[str, Any], problems: Sequence[str], *, partial: bool
    ) -> Iterator[Page]:
        """The pages, the last of which, which may be of no items, says which items there are.

        Each has the `cursor` with the blocks that are stored with it. A partial one may leave more in the store than it
        says: its blocks are not among them.
        """
        known = frozenset(before.get("blocks") or ()) & frozenset(self._blocks.digests)
        again = frozenset(before.get("again") or ())
        all_keys = self._blocks.of_all_keys
        as_told = before.get("live") == all_keys
        pages = [*self._blocks.pages(known, again, self._size)] or [([], [])]
        stored, total = [*known], sum(end - first for ranges, _ in pages for first, end in ranges)
        for number, (ranges, digests) in enumerate(pages, start=1):
            ended = number == len(pages)
            stored = stored if partial else [*stored, *digests]
            told = all_keys if as_told or (ended and not partial) else None
            left = sorted(again) if partial or not ended else []
            page = self._page(ranges, {**cursor, "ended": ended, "blocks": stored, "again": left, "live": told})
            yield replace(
                page,
                annotators=page.annotators if number == 1 else (),
                live=frozenset(self._blocks.keys) if ended and not as_told else None,
                problems=tuple(problems) if ended else (),
                total=total,
                partial=partial,
            )

    def at_once(self, cursor: Mapping[str, Any], problems: Sequence[str]) -> Page:
        """One page of all of it, which does not say which items there are."""
        return replace(self._page([(0, len(self._blocks.keys))], cursor), problems=tuple(problems))

    def _page(self, ranges: Sequence[Range], cursor: Mapping[str, Any]) -> Page:
        """All that is said of the items in these ranges, and all annotators."""
        return Page(
            cursor=cursor,
            items=tuple(row for each in ranges for row in self._item_rows(each)),
            annotations=tuple(row for each in ranges for row in self._annotations(each)),
            predictions=tuple(row for each in ranges for row in self._predicted(each)),
            annotators=tuple(AnnotatorRow(name, name) for name in self._people),
        )

    def _item_rows(self, these: Range) -> Iterator[ItemRow]:
        item = self._columns.item
        rows = [] if self._items is None else self._items.rows(*these)
        data = {row[item]: data_in(row, item) for row in rows}
        return (ItemRow(key, data.get(key, {}), NEWEST) for key in self._blocks.keys[slice(*these)])

    def _annotations(self, these: Range) -> Iterator[AnnotationRow]:
        """Item by item, known truth behind the answers."""
        made = Keys(self._columns.item, self._columns.annotator, self._columns.label, QUESTION)
        of: dict[str, list[AnnotationRow]] = {}
        for row in map(made.row, [] if self._answers is None else self._answers.rows(*these)):
            of.setdefault(row.item, []).append(row)
        for key in self._blocks.keys[slice(*these)]:
            yield from of.get(key, ())
            if key in self._gold:
                yield self._gold[key]

    def _predicted(self, these: Range) -> Iterator[PredictionRow]:
        return chain.from_iterable(self._predictions.get(key, ()) for key in self._blocks.keys[slice(*these)])


def labeled(answers: Answers, gold: Mapping[str, AnnotationRow], label: str) -> tuple[int, int]:
    """How many answers are labels and no skips, and how many items have answers or known truth."""
    rows: ItemRows | None = answers.rows
    if rows is None:
        return 0, len(gold)
    labels = sum(count for name, count in answers.counts(label).items() if name)
    return labels, len({*rows.names, *gold})
