"""The answers to a question as `Annotations` has them, kept so that a cycle need not join, name and sort all of them.

    whole      of all items, when it was made
    changes    of the items that have changed since; written with each cycle that finds any
    noted ...  positions of items that a page may have changed, in the transaction of the page (`notes`)

The rows are what is true: what is noted is read from them, and where what is kept does not fit (an annotator has
another name or is new, a class is new, a part is damaged), all is read as before, from what is packed by blocks
(`packed`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import sqlalchemy as sa

from hitl.annotations import Annotations, CheckedNames
from hitl.errors import BadInput
from hitl.platform import Question
from hitl.store.database import Few
from hitl.store.joined_answers import one
from hitl.store.lease import Lease
from hitl.store.packed import CodedAnswers, Packed
from hitl.store.schema import item
from hitl.store.schema import settled as table
from hitl.store.settled.answers import SaidNow, Settled, Terms
from hitl.store.settled.columns import DoesNotFit
from hitl.store.settled.notes import CHANGES, MOST, NOTED, WHOLE
from hitl.tables import row_differences
from hitl.tables.arrow import renamed

PART = 32
"""If more than one item in so many has changed since the whole was made, a new one is made."""

TRIED_AGAIN = 100
"""An entry that nothing can be kept counts as so many times fewer items: it is soon forgotten, and tried again."""

LARGEST = 500_000_000
"""Bytes of a whole; databases take no more than twice as many in a row."""

_SAID = (table.c.part, table.c.size, table.c.upto, table.c.terms, table.c.changed)
_BLOBS = (table.c.codes, table.c.names, table.c.time, table.c.duration)

Positions = npt.NDArray[np.int64]


class Settling(Packed):
    """Answers that are kept as `Annotations` has them."""

    def settle(self, lease: Lease, questions: Iterable[Question], names: Mapping[str, str]) -> None:
        """Bring what is kept of these questions up to date; annotators are shown by these names."""
        for question in questions:
            kept = self._kept_answers(lease.project, question.name, _SAID)
            if kept is None or not kept.are_of(question, names):
                self._settle_all(lease, question, names)
            elif kept.terms is not None and len(kept.pending):
                self._settle_changes(lease, question, names, kept)

    def labels(
        self, project: str, question: Question, names: Mapping[str, str], items: CheckedNames | None = None
    ) -> Annotations:
        """The answers to a question, their annotators shown by these names.

        `items` are those of another question. Raises BadInput where they are others by now, or there are none, and
        BadAnnotations as `Annotations.from_codes` does.
        """
        kept = self._kept_answers(project, question.name, (*_SAID, *_BLOBS))
        if kept is not None and kept.terms is not None and kept.are_of(question, names):
            try:
                now = kept.settled()
                if len(kept.pending):
                    fresh = self._said_at(project, question.name, kept.pending, kept.terms)
                    now = now.spliced(kept.pending, fresh)
                return now.annotations(kept.terms, _named(project, now.items, items))
            except DoesNotFit:
                pass
        found = self.answers(project, question.name)
        return _annotations(found, _named(project, found.items, items), question, names)

    def _kept_answers(self, project: str, question: str, columns: Sequence[sa.Column[Any]]) -> _Kept | None:
        """What is kept of a question, and what may have changed since; None where too much may have."""
        newest = sa.select(item.c.position).where(item.c.project == project, item.c.deleted.is_(sa.false()))
        with self.database.snapshot() as connection:
            found = connection.execute(sa.select(*columns).where(_is(project, question))).all()
            rows = {row.part: row for row in found}
            if WHOLE not in rows:
                return None
            newer = newest.where(item.c.position > max(row.upto for row in found))
            kept = _Kept(rows, connection.execute(newer).scalars().all())
        return None if (len(kept.changed) + len(kept.pending)) * MOST > rows[WHOLE].size else kept

    def _said_at(self, project: str, question: str, positions: Positions, terms: Terms) -> Settled:
        """What the rows say of the items at these positions. Raises DoesNotFit."""
        where = Few(self.database.among_numbers(item.c.position, positions.tolist()))
        rows = self._from_rows(project, question, where)
        (lists,) = rows.column("answers").chunks or [pa.array([], rows.schema.field("answers").type)]
        answers = lists.flatten()
        said = SaidNow(
            np.asarray(rows.column("position")),
            one(rows.column("item").chunks),
            np.diff(lists.offsets.to_numpy()),
            answers.field("annotator"),
            answers.field("label"),
            answers.field("time").to_numpy(zero_copy_only=False),
            answers.field("duration").to_numpy(zero_copy_only=False),
        )
        return said.settled(terms)

    def _settle_changes(self, lease: Lease, question: Question, names: Mapping[str, str], kept: _Kept) -> None:
        """Write what the rows say now of the items that have changed since the whole, or the whole anew."""
        assert kept.terms is not None
        changed = np.union1d(kept.changed, kept.pending)
        try:
            if len(changed) * PART > kept.rows[WHOLE].size:
                raise DoesNotFit
            fresh = self._said_at(lease.project, question.name, kept.pending, kept.terms)
            if CHANGES in kept.rows:
                mine = sa.and_(_is(lease.project, question.name), table.c.part == CHANGES)
                (before,) = self.database.rows(sa.select(*_BLOBS).where(mine))
                fresh = _unpacked(before).spliced(kept.pending, fresh)
        except DoesNotFit:
            self._settle_all(lease, question, names)
            return
        upto = max(int(changed[-1]), *(row.upto for row in kept.rows.values()))
        said = {"size": len(changed), "upto": upto, "changed": changed.tobytes()}
        self._write_part(lease, question, CHANGES, {**said, **fresh.packed()}, kept.rows.keys() - {WHOLE})

    def _settle_all(self, lease: Lease, question: Question, names: Mapping[str, str]) -> None:
        """Write the whole, or a note that it cannot be kept: an annotator gave an item two answers that differ."""
        with self.database.read() as connection:
            parts = connection.execute(sa.select(table.c.part).where(_is(lease.project, question.name))).scalars().all()
        found = self.answers(lease.project, question.name)
        if len(found.items) < row_differences.LEAST:
            return
        said: dict[str, Any] = {"size": len(found.items) // TRIED_AGAIN, "upto": int(found.positions[-1])}
        try:
            made = _annotations(found, CheckedNames.trusted(found.items), question, names, strict=True)
            terms = Terms.of(made, found.annotator.dictionary.to_pylist(), names)
            packed = Settled.of(found.positions, found.items, made).packed()
            if sum(len(part or b"") for part in packed.values()) <= LARGEST:
                said |= {"size": len(found.items), "terms": terms.to_json(), **packed}
        except BadInput:
            pass  # who judges these answers is told
        self._write_part(lease, question, WHOLE, said, parts)

    def _write_part(
        self, lease: Lease, question: Question, part: str, said: Mapping[str, Any], gone: Iterable[str]
    ) -> None:
        """Write a part in place of those that are gone."""
        row = dict.fromkeys(column.name for column in table.c) | {"project": lease.project, "question": question.name}
        with self._fenced(lease) as connection:
            connection.execute(sa.delete(table).where(_is(lease.project, question.name), table.c.part.in_([*gone])))
            connection.execute(sa.insert(table).values({**row, "part": part, **said}))


class _Kept:
    """What is kept of a question.

    Attributes:
        rows: by part.
        terms: those of the whole; None where the answers cannot be kept.
        changed: positions of the items in the changes.
        pending: positions of those that may have changed since.
    """

    def __init__(self, rows: Mapping[str, Any], newer: Sequence[int]) -> None:
        self.rows = rows
        self.terms = None if rows[WHOLE].terms is None else Terms.from_json(rows[WHOLE].terms)
        self.changed = _positions(rows[CHANGES]) if CHANGES in rows else np.empty(0, np.int64)
        noted = [_positions(row) for part, row in rows.items() if part.startswith(NOTED)]
        self.pending = np.unique(np.concatenate([np.asarray(newer, np.int64), *noted]))

    def are_of(self, question: Question, names: Mapping[str, str]) -> bool:
        """Whether they say what this question asks, of annotators with these names; or that nothing can be kept."""
        return self.terms is None or self.terms.hold(names, question.classes, question.options)

    def settled(self) -> Settled:
        """What is kept, without what is pending. Raises DoesNotFit."""
        found = _unpacked(self.rows[WHOLE])
        return found.spliced(self.changed, _unpacked(self.rows[CHANGES])) if CHANGES in self.rows else found


def _annotations(
    found: CodedAnswers, items: CheckedNames, question: Question, names: Mapping[str, str], *, strict: bool = False
) -> Annotations:
    return Annotations.from_codes(
        items,
        found.item,
        renamed(found.annotator, names),
        found.label,
        classes=question.classes,
        options=question.options,
        time=found.time,
        duration=found.duration,
        strict=strict,
    )


def _named(project: str, found: pa.Array, items: CheckedNames | None) -> CheckedNames:
    """The names of the items; those that are there already are not made again."""
    if not len(found):
        raise BadInput(f"project {project!r}: no items stored; run `hitl pull` first, or add items on the platform")
    if items is None:
        return CheckedNames.trusted(found)  # the key of their rows
    if not found.equals(items.column):
        raise BadInput(f"project {project!r}: items came or went while it was read; try again")
    return items


def _is(project: str, question: str) -> sa.ColumnElement[bool]:
    return sa.and_(table.c.project == project, table.c.question == question)


def _positions(row: Any) -> Positions:
    return np.frombuffer(bytes(row.changed), np.int64)


def _unpacked(row: Any) -> Settled:
    return Settled.unpacked(
        *(None if part is None else bytes(part) for part in (row.codes, row.names, row.time, row.duration))
    )
