"""The answers to a question as Arrow, by blocks of items: all evidence is read from some hundred blobs, not row by row.

    pack   makes the blocks that are not there, or not as the rows are, from the rows
    note   notes with the blocks which of their items a page may have changed, in the transaction of the page

The rows are what is true; what has no block, and what has changed since its block was made, is read from them. A block
is of the items of so many positions. It has a row for each item that exists now, with a list of its answers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import sqlalchemy as sa

from hitl.store.database import Database, Few
from hitl.store.joined_answers import joined, one
from hitl.store.lease import Lease, Leased
from hitl.store.schema import NO_ANSWER, annotation, item, packed
from hitl.store.settled import notes

SIZE = 1_000
"""Items of a block."""

AT_ONCE = 100
"""Blocks that are made from the rows at a time."""

MOST = 10
"""A block of which more than one item in so many may have changed is made from the rows as a whole."""

COLUMNS = ("annotator", "label", "time", "duration")

_CODED = pa.dictionary(pa.int32(), pa.string())
_ANSWER = pa.struct([("annotator", _CODED), ("label", _CODED), ("time", pa.float64()), ("duration", pa.float64())])
_BLOCK = pa.schema([("position", pa.int64()), ("item", pa.string()), ("answers", pa.list_(_ANSWER))])

_SIZE_BYTES = 8


@dataclass(frozen=True, eq=False)
class CodedAnswers:
    """The live answers to a question, item by item, those to one from the oldest to the newest.

    Attributes:
        items: (N,) keys of all live items, answered or not, in the order of `Store.items`.
        positions: (N,) of these items.
        item: (M,) codes of items.
        annotator, label: (M,) keys, of which some may be null, and labels.
        time, duration: (M,) of the version, in seconds since the epoch; seconds the answer took; NaN where unknown.
    """

    items: pa.Array
    positions: npt.NDArray[np.int64]
    item: npt.NDArray[np.int32]
    annotator: pa.DictionaryArray
    label: pa.DictionaryArray
    time: npt.NDArray[np.float64]
    duration: npt.NDArray[np.float64]

    def table(self) -> pa.Table:
        """item, annotator, label, time, duration, as text and numbers."""
        coded = {"annotator": self.annotator.cast(pa.string()), "label": self.label.cast(pa.string())}
        numbers = {name: pa.array(getattr(self, name), from_pandas=True) for name in ("time", "duration")}
        return pa.table({"item": self.items.take(pa.array(self.item))} | coded | numbers)


class Packed(Leased):
    """Answers by blocks."""

    def pack(self, lease: Lease, questions: Iterable[str]) -> int:
        """Make the blocks of these questions that are not as the rows are; gives how many."""
        made = 0
        for question in questions:
            there = self._blocks(lease.project, question)
            for first, end in _gaps(there, self._count(lease.project)):
                for start in range(first, end, AT_ONCE):
                    made += self._pack(lease, question, start, min(start + AT_ONCE, end))
            behind = {block: changed for block, changed in there.items() if changed}
            made += self._mend(lease, question, behind) if behind else 0
        return made

    def key_column(self, project: str) -> pa.Array:
        """The live items alone, in the order of `items`."""
        return _one(self._items(project, None).column("item"))

    def annotations(self, project: str, question: str) -> pa.Table:
        """Live answers: item, annotator (or null), label, time (of the version, seconds since the epoch), duration.

        Items in the order of `items`, the answers to one from the oldest to the newest.
        """
        return self.answers(project, question).table()

    def answers(self, project: str, question: str) -> CodedAnswers:
        """The same in codes, with all items."""
        found = joined(self._whole(project, question))
        items = one(found.items)
        item = np.repeat(np.arange(len(items), dtype=np.int32), np.concatenate([np.empty(0, np.int32), *found.counts]))
        names, numbers = map(found.coded, ("annotator", "label")), map(found.numbers, ("time", "duration"))
        positions = np.concatenate([np.empty(0, np.int64), *found.positions])
        return CodedAnswers(items, positions, item, *names, *numbers)

    def _whole(self, project: str, question: str) -> Iterator[pa.Table]:
        """All items with their answers, by blocks: what is packed, and from the rows what is not."""
        query = sa.select(packed.c.block, packed.c.answers, packed.c.changed)
        with self.database.read() as connection:
            found = connection.execute(query.where(_is(project, question))).all()
        blobs = {block: bytes(answers) for block, answers, _ in found}
        behind = {block: _listed(changed) for block, _, changed in found if changed}
        if not blobs:
            for start in range(0, self._count(project) or 1, AT_ONCE):
                yield self._from_rows(project, question, item.c.position.between(*_of(start, start + AT_ONCE)))
            return
        tables = self._mended(project, question, behind, blobs)
        for first, end in _gaps(blobs, self._count(project)):
            tables[first] = self._from_rows(project, question, item.c.position.between(*_of(first, end)))
        for block in sorted(blobs.keys() | tables.keys()):
            yield tables[block] if block in tables else _unpacked(blobs[block])

    def _mended(
        self, project: str, question: str, behind: Mapping[int, list[int]], blobs: Mapping[int, bytes]
    ) -> dict[int, pa.Table]:
        """These blocks as the rows are now, of which the items at these positions may have changed."""
        positions = sorted(place for places in behind.values() for place in places)
        if not positions:
            return {}
        fresh = self._from_rows(project, question, Few(self.database.among_numbers(item.c.position, positions)))
        block = np.asarray(fresh.column("position")) // SIZE
        found = {}
        for number, places in behind.items():
            old = _unpacked(blobs[number])
            kept = old.filter(pa.array(~np.isin(np.asarray(old.column("position")), places)))
            both = pa.concat_tables([kept, fresh.filter(pa.array(block == number))]).unify_dictionaries()
            found[number] = both.take(pa.array(np.argsort(np.asarray(both.column("position")), kind="stable")))
        return found

    def _mend(self, lease: Lease, question: str, behind: Mapping[int, list[int]]) -> int:
        query = sa.select(packed.c.block, packed.c.answers).where(_is(lease.project, question))
        blobs = {
            int(block): bytes(answers)
            for block, answers in self.database.rows(query.where(packed.c.block.in_(sorted(behind))))
        }
        return self._write(lease, question, self._mended(lease.project, question, behind, blobs))

    def _pack(self, lease: Lease, question: str, first: int, end: int) -> int:
        rows = self._from_rows(lease.project, question, item.c.position.between(*_of(first, end)))
        blocks = np.asarray(rows.column("position")) // SIZE
        bounds = np.searchsorted(blocks, np.arange(first, end + 1))
        parts = enumerate(pairwise(map(int, bounds)), start=first)
        return self._write(lease, question, {block: rows.slice(start, stop - start) for block, (start, stop) in parts})

    def _write(self, lease: Lease, question: str, tables: Mapping[int, pa.Table]) -> int:
        place = {"project": lease.project, "question": question, "changed": None}
        values = [{**place, "block": block, "answers": _packed(table)} for block, table in tables.items()]
        with self._fenced(lease) as connection:
            self.database.upsert(connection, packed, values)
        return len(values)

    def _from_rows(self, project: str, question: str, where: sa.ColumnElement[bool] | None) -> pa.Table:
        """Items, of these alone, with their answers, from the rows."""
        items = self._items(project, where)
        rows = _answers_to(items, self._rows(project, question, where))
        counts = np.searchsorted(np.asarray(rows.column("position")), np.asarray(items.column("position")))
        offsets = pa.array(np.append(counts, rows.num_rows).astype(np.int32))
        fields = [_one(rows.column(field.name)) for field in _ANSWER]
        fields = [_coded(c) if f.type == _CODED else c for f, c in zip(_ANSWER, fields, strict=True)]
        answers = pa.ListArray.from_arrays(offsets, pa.StructArray.from_arrays(fields, fields=list(_ANSWER)))
        return pa.table([_one(items.column("position")), _one(items.column("item")), answers], schema=_BLOCK)

    def _items(self, project: str, where: sa.ColumnElement[bool] | None) -> pa.Table:
        """Position and key of live items, of these alone."""
        query = sa.select(item.c.position, item.c.item).where(item.c.project == project, item.c.deleted.is_(sa.false()))
        query = query if where is None else query.where(where)
        return self.database.table(query.order_by(item.c.position))

    def _rows(self, project: str, question: str, where: sa.ColumnElement[bool] | None) -> pa.Table:
        """The answers, of these items alone, from the rows: position, item, and `COLUMNS`."""
        columns = [item.c.position, annotation.c.item, *(annotation.c[name] for name in COLUMNS)]
        query = live(project, "answer", *columns).where(annotation.c.question == question)
        query = query if where is None else query.where(where)
        order = (item.c.position, annotation.c.version, annotation.c.annotation)
        return self.database.table(query.order_by(*order))

    def _blocks(self, project: str, question: str) -> dict[int, list[int]]:
        """The blocks that are there, and positions of items that may have changed since."""
        query = sa.select(packed.c.block, packed.c.changed).where(_is(project, question))
        return {int(row.block): _listed(row.changed) for row in self.database.rows(query)}

    def _count(self, project: str) -> int:
        """How many blocks the items have."""
        last = self.database.scalar(sa.select(sa.func.max(item.c.position)).where(item.c.project == project))
        return 0 if last is None else int(last) // SIZE + 1


def note(database: Database, connection: sa.Connection, project: str, items: Iterable[str]) -> None:
    """Note that the blocks of these items are not as the rows are; forget those of which much may have changed."""
    wanted = sa.and_(item.c.project == project, database.among(item.c.item, list(items)))
    positions = [int(place) for place in connection.execute(sa.select(item.c.position).where(wanted)).scalars()]
    notes.note(connection, project, positions)
    blocks: dict[int, set[int]] = {}
    for place in positions:
        blocks.setdefault(place // SIZE, set()).add(place)
    mine = packed.c.project == project
    gone = sorted(block for block, places in blocks.items() if len(places) * MOST > SIZE)
    for start in range(0, len(gone), 500):
        connection.execute(sa.delete(packed).where(mine, packed.c.block.in_(gone[start : start + 500])))
    rest = sorted(blocks.keys() - set(gone))
    for start in range(0, len(rest), 500):
        of_these = packed.c.block.in_(rest[start : start + 500])
        there = connection.execute(sa.select(packed.c.question, packed.c.block, packed.c.changed).where(mine, of_these))
        for question, block, changed in there.all():
            places = sorted(blocks[int(block)].union(_listed(changed)))
            this = sa.and_(_is(project, question), packed.c.block == block)
            connection.execute(sa.update(packed).where(this).values(changed=json.dumps(places)))


def are_there(connection: sa.Connection, project: str) -> bool:
    """Whether there is any block of the project, or anything that is made of them."""
    query = sa.select(packed.c.block).where(packed.c.project == project).limit(1)
    return connection.execute(query).first() is not None or notes.is_there(connection, project)


def live(project: str, kind: str, *columns: Any) -> sa.Select[Any]:
    """Annotations of one kind that exist now, of items that exist now."""
    return (
        sa.select(*columns)
        .select_from(annotation)
        .join(item, sa.and_(item.c.project == annotation.c.project, item.c.item == annotation.c.item))
        .where(
            annotation.c.project == project,
            *_of_kind(kind),
            annotation.c.deleted.is_(sa.false()),
            item.c.deleted.is_(sa.false()),
        )
    )


def _of_kind(kind: str) -> list[sa.ColumnElement[bool]]:
    """Annotations of this kind; of those that are few by their own index."""
    if kind == "answer":
        return [annotation.c.kind == kind]
    return [Few(annotation.c.kind == kind), sa.literal_column(f"{annotation.name}.{NO_ANSWER}")]


def _is(project: str, question: str) -> sa.ColumnElement[bool]:
    return sa.and_(packed.c.project == project, packed.c.question == question)


def _of(first: int, end: int) -> tuple[int, int]:
    """The first and the last position of these blocks."""
    return first * SIZE, end * SIZE - 1


def _listed(changed: str | None) -> list[int]:
    return [] if changed is None else json.loads(changed)


def _answers_to(items: pa.Table, rows: pa.Table) -> pa.Table:
    """The answers to these items: one that came after the items were read belongs to none of them."""
    position, of = np.asarray(items.column("position")), np.asarray(rows.column("position"))
    place = np.searchsorted(position, of)
    known = place < len(position)
    known[known] = position[place[known]] == of[known]
    return rows if known.all() else rows.filter(pa.array(known))


def _gaps(there: Iterable[int], count: int) -> Iterator[tuple[int, int]]:
    """The ranges of blocks that are not there, from the first to before the end."""
    for before, after in pairwise([-1, *sorted(there), count]):
        if after - before > 1:
            yield before + 1, after


def _coded(column: pa.Array) -> pa.DictionaryArray:
    return column.dictionary_encode()


def _one(column: pa.ChunkedArray) -> pa.Array:
    """One array of all chunks, with one dictionary where they have any."""
    whole = column.unify_dictionaries().combine_chunks()
    return pa.concat_arrays(whole.chunks) if isinstance(whole, pa.ChunkedArray) else whole


def _packed(table: pa.Table) -> bytes:
    """As one compressed piece: column by column it takes three times as long to read."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    plain = sink.getvalue()
    small: bytes = pa.Codec("zstd", 1).compress(plain, asbytes=True)
    return int(plain.size).to_bytes(_SIZE_BYTES, "little") + small


def _unpacked(blob: bytes) -> pa.Table:
    size, packed = int.from_bytes(blob[:_SIZE_BYTES], "little"), memoryview(blob)[_SIZE_BYTES:]
    return pa.ipc.open_stream(pa.Codec("zstd").decompress(packed, size)).read_all()
