"""The answers to a question as Arrow, by blocks of items: all evidence is read from some hundred blobs, not row by row.

    pack   makes the blocks that are not there, from the rows
    drop   forgets those of items of which a page changes anything, in the transaction of the page

The rows are what is true; what has no block is read from them. A block is of the items of so many positions, and has
one row for each answer of `Pulled.annotations`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import sqlalchemy as sa

from hitl.store.database import Database, Few
from hitl.store.lease import Lease, Leased
from hitl.store.schema import NO_ANSWER, annotation, item, packed

SIZE = 1_000
"""Items of a block."""

AT_ONCE = 100
"""Blocks that are made from the rows at a time."""

COLUMNS = ("item", "annotator", "label", "time", "duration")


class Packed(Leased):
    """Answers by blocks."""

    def pack(self, lease: Lease, questions: Iterable[str]) -> int:
        """Make the blocks of these questions that are not there; gives how many."""
        made = 0
        for question in questions:
            there = self._blocks(lease.project, question)
            for first, end in _gaps(there, self._count(lease.project)):
                for start in range(first, end, AT_ONCE):
                    made += self._pack(lease, question, start, min(start + AT_ONCE, end))
        return made

    def annotations(self, project: str, question: str) -> pa.Table:
        """Live answers: item, annotator (or null), label, time (of the version, seconds since the epoch), duration.

        Items in the order of `items`, the answers to one from the oldest to the newest.
        """
        with self.database.read() as connection:
            query = sa.select(packed.c.block, packed.c.answers).where(_is(project, question)).order_by(packed.c.block)
            blobs = {block: bytes(answers) for block, answers in connection.execute(query)}
        if not blobs:
            return self._rows(project, question, None)
        tables = {block: _unpacked(blob) for block, blob in blobs.items()}
        for first, end in _gaps(tables, self._count(project)):
            tables[first] = self._rows(project, question, (first, end))
        return pa.concat_tables(tables[block] for block in sorted(tables)).combine_chunks()

    def _pack(self, lease: Lease, question: str, first: int, end: int) -> int:
        rows = self._rows(lease.project, question, (first, end), with_position=True)
        blocks = np.asarray(rows.column("position")) // SIZE
        bounds = np.searchsorted(blocks, np.arange(first, end + 1))
        rows = rows.select(COLUMNS)
        place = {"project": lease.project, "question": question}
        values = [
            {**place, "block": first + n, "answers": _packed(rows.slice(start, stop - start))}
            for n, (start, stop) in enumerate(pairwise(map(int, bounds)))
        ]
        with self._fenced(lease) as connection:
            self.database.upsert(connection, packed, values)
        return len(values)

    def _rows(
        self, project: str, question: str, blocks: tuple[int, int] | None, *, with_position: bool = False
    ) -> pa.Table:
        """The answers, of items of these blocks alone, from the rows."""
        columns = [annotation.c[name] for name in COLUMNS] + ([item.c.position] if with_position else [])
        query = live(project, "answer", *columns).where(annotation.c.question == question)
        if blocks is not None:
            first, end = blocks
            positions = item.c.position.between(first * SIZE, end * SIZE - 1)
            query = query.where(positions)
        order = (item.c.position, annotation.c.version, annotation.c.annotation)
        return self.database.table(query.order_by(*order))

    def _blocks(self, project: str, question: str) -> set[int]:
        query = sa.select(packed.c.block).where(_is(project, question))
        return {int(row.block) for row in self.database.rows(query)}

    def _count(self, project: str) -> int:
        """How many blocks the items have."""
        last = self.database.scalar(sa.select(sa.func.max(item.c.position)).where(item.c.project == project))
        return 0 if last is None else int(last) // SIZE + 1


def drop(database: Database, connection: sa.Connection, project: str, items: Iterable[str]) -> None:
    """Forget the blocks of these items."""
    wanted = sa.and_(item.c.project == project, database.among(item.c.item, list(items)))
    positions = connection.execute(sa.select(item.c.position).where(wanted)).scalars()
    blocks = sorted({int(position) // SIZE for position in positions})
    mine = packed.c.project == project
    for start in range(0, len(blocks), 500):
        connection.execute(sa.delete(packed).where(mine, packed.c.block.in_(blocks[start : start + 500])))


def are_there(connection: sa.Connection, project: str) -> bool:
    """Whether there is any block of the project."""
    query = sa.select(packed.c.block).where(packed.c.project == project).limit(1)
    return connection.execute(query).first() is not None


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


def _gaps(there: Iterable[int], count: int) -> Iterator[tuple[int, int]]:
    """The ranges of blocks that are not there, from the first to before the end."""
    for before, after in pairwise([-1, *sorted(there), count]):
        if after - before > 1:
            yield before + 1, after


def _packed(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    codes = {name: table.column(name).dictionary_encode() for name in ("annotator", "label")}
    for name, column in codes.items():
        table = table.set_column(table.column_names.index(name), name, column)
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_table(table.combine_chunks())
    return bytes(sink.getvalue().to_pybytes())


def _unpacked(answers: bytes) -> pa.Table:
    table = pa.ipc.open_stream(answers).read_all()
    for name in ("annotator", "label"):
        table = table.set_column(table.column_names.index(name), name, table.column(name).cast(pa.string()))
    return table
