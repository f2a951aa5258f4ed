"""The answers to a question as integer codes. Rows are the source of truth; one snapshot per question is derived.

A snapshot holds the answers at one revision of the project. `hitl.store.pages` raises the revision with each change and
stores it with the changed items. Readers load the snapshot, then read only the rows of items that changed since.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa

from hitl.annotations import Annotations, CheckedNames
from hitl.errors import BadInput
from hitl.platform import Question
from hitl.store.lease import Lease, Leased
from hitl.store.schema import annotation, item, snapshot
from hitl.store.schema import project as projects

LARGEST = 500_000_000
"""Largest snapshot that is stored, in bytes. Databases accept at most twice as many in one value."""

FEW = 10
"""If more than one item in `FEW` has changed since a snapshot, all rows are read."""

Places = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Answers:
    """The live answers to a question, grouped by item; within an item from the oldest to the newest.

    Attributes:
        items: (N,) keys of all live items, answered or not, in the order in which they were first seen.
        positions: (N,) their positions in that order, with gaps.
        item: (M,) codes of items.
        annotator, label: (M,) annotator keys, some of which may be null, and labels.
        time: (M,) time of the version, in seconds since the epoch; NaN where unknown.
        duration: (M,) seconds the answer took; NaN where unknown.
    """

    items: pa.Array
    positions: Places
    item: npt.NDArray[np.int32]
    annotator: pa.DictionaryArray
    label: pa.DictionaryArray
    time: npt.NDArray[np.float64]
    duration: npt.NDArray[np.float64]

    def table(self) -> pa.Table:
        """Return item, annotator, label, time and duration as text and numbers."""
        names = {name: getattr(self, name).cast(pa.string()) for name in ("annotator", "label")}
        numbers = {name: pa.array(getattr(self, name), from_pandas=True) for name in ("time", "duration")}
        return pa.table({"item": self.items.take(pa.array(self.item))} | names | numbers)

    def count(self) -> tuple[int, set[str]]:
        """Count the labels, one per annotator and item, and collect the annotators who gave them."""
        known = np.asarray(self.annotator.is_valid())
        who = np.asarray(self.annotator.indices.fill_null(0))[known]
        pairs = np.unique(self.item[known].astype(np.int64) * max(len(self.annotator.dictionary), 1) + who)
        names = self.annotator.dictionary.take(pa.array(np.unique(who))).to_pylist()
        return len(pairs) + int((~known).sum()), set(names)

    def packed(self) -> bytes:
        """Return two Arrow streams: the items with their answer counts, then the answers."""
        counts = np.bincount(self.item, minlength=len(self.items))
        items = pa.table({"item": self.items, "position": self.positions, "count": counts})
        named = {name: _narrow(getattr(self, name)) for name in ("annotator", "label")}
        answers = pa.table(named | {name: getattr(self, name) for name in ("time", "duration")})
        sink = pa.BufferOutputStream()
        for table in (items, answers):
            options = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
            with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
                writer.write_table(table)
        return bytes(sink.getvalue().to_pybytes())

    @classmethod
    def unpacked(cls, packed: bytes) -> Answers:
        """Read the output of `packed`."""
        reader = pa.BufferReader(packed)
        items, answers = (pa.ipc.open_stream(reader).read_all() for _ in range(2))
        keys, positions, counts = (_one(column) for column in items.columns)
        item = np.repeat(np.arange(len(keys), dtype=np.int32), counts.to_numpy())
        names = {name: _one(answers.column(name)) for name in ("annotator", "label")}
        numbers = {name: _floats(answers.column(name)) for name in ("time", "duration")}
        return cls(keys, positions.to_numpy(), item, **names, **numbers)

    def with_changes(self, changed: Places, fresh: Answers) -> Answers:
        """Replace all answers to the items at the `changed` positions by those in `fresh`."""
        stays = ~np.isin(self.positions, changed)
        at = np.searchsorted(self.positions[stays], fresh.positions)
        positions = np.insert(self.positions[stays], at, fresh.positions)
        is_fresh = np.insert(np.zeros(int(stays.sum()), bool), at, True)
        old_items, fresh_items = np.flatnonzero(~is_fresh), np.flatnonzero(is_fresh)
        place = np.zeros(len(stays), np.int32)
        place[stays] = old_items
        rows = stays[self.item]
        item, fresh_item = place[self.item[rows]], fresh_items[fresh.item].astype(np.int32)
        behind = np.searchsorted(item, fresh_item, side="right")
        names = {
            name: _inserted(getattr(self, name), rows, behind, getattr(fresh, name)) for name in ("annotator", "label")
        }
        numbers = {
            name: np.insert(getattr(self, name)[rows], behind, getattr(fresh, name)) for name in ("time", "duration")
        }
        keys = pa.concat_arrays([self.items.filter(pa.array(stays)), fresh.items])
        order = np.empty(len(keys), np.int64)
        order[old_items], order[fresh_items] = np.arange(len(old_items)), len(old_items) + np.arange(len(fresh_items))
        return Answers(keys.take(pa.array(order)), positions, np.insert(item, behind, fresh_item), **names, **numbers)


class AnswerStore(Leased):
    """Read access to the pulled answers."""

    def keep_answers(self, lease: Lease, questions: Iterable[str]) -> int:
        """Bring the snapshots of these questions up to date. Return the number written."""
        written = 0
        for question in questions:
            revision, found, is_kept = self._read(lease.project, question)
            if is_kept:
                continue
            content = found.packed()
            row = {"project": lease.project, "name": _name(question), "revision": revision, "content": content}
            if len(content) <= LARGEST:
                with self._fenced(lease) as connection:
                    self.database.upsert(connection, snapshot, [row])
                written += 1
        return written

    def answers(self, project: str, question: str) -> Answers:
        """Return the live answers to a question as codes, with all live items."""
        return self._read(project, question)[1]

    def annotations(self, project: str, question: str) -> pa.Table:
        """Return live answers: item, annotator (or null), label, time, duration.

        Time is that of the version, in seconds since the epoch. Rows follow the order of `items`, and within an item
        run from the oldest to the newest answer.
        """
        return self.answers(project, question).table()

    def labels(
        self, project: str, question: Question, names: Mapping[str, str], items: CheckedNames | None = None
    ) -> Annotations:
        """Return the answers to a question, with annotators shown under these names.

        `items` are those of another question. Raises BadInput if they have changed in the meantime or if no items are
        stored, and BadAnnotations as `Annotations.from_codes` does.
        """
        found = self.answers(project, question.name)
        if not len(found.items):
            raise BadInput(f"project {project!r}: no items stored; run `hitl pull` first, or add items on the platform")
        if items is not None and not found.items.equals(items.column):
            raise BadInput(f"project {project!r}: items came or went while it was read; try again")
        return Annotations.from_codes(
            items or CheckedNames.unchecked(found.items),  # unique, as part of the primary key
            found.item,
            _renamed(found.annotator, names),
            found.label,
            classes=question.classes,
            options=question.options,
            time=found.time,
            duration=found.duration,
        )

    def key_column(self, project: str) -> pa.Array:
        """Return the keys of the live items, in the order of `items`."""
        return _one(self._live_items(project, None).column("item"))

    def _read(self, project: str, question: str) -> tuple[int, Answers, bool]:
        """Return the revision, the answers at this revision or later, and True if the snapshot was complete."""
        of_question = sa.and_(snapshot.c.project == project, snapshot.c.name == _name(question))
        changed = sa.select(item.c.item, item.c.position).where(item.c.project == project)
        with self.database.snapshot() as connection:
            current = sa.select(projects.c.revision).where(projects.c.project == project)
            revision = int(connection.execute(current).scalar() or 0)
            kept = connection.execute(sa.select(snapshot.c.revision, snapshot.c.content).where(of_question)).first()
            if kept is None:
                return revision, self._from_rows(project, question, None), False
            newer = connection.execute(changed.where(item.c.revision > kept.revision)).all()
        found = Answers.unpacked(bytes(kept.content))
        if len(newer) * FEW > len(found.items):
            return revision, self._from_rows(project, question, None), False
        if newer:
            fresh = self._from_rows(project, question, [row.item for row in newer])
            found = found.with_changes(np.array([row.position for row in newer], np.int64), fresh)
        return revision, found, not newer

    def _live_items(self, project: str, keys: Collection[str] | None) -> pa.Table:
        """Return position and item of all live items, or only of `keys`."""
        query: sa.Select[Any] = sa.select(item.c.position, item.c.item)
        query = query.where(item.c.project == project, item.c.deleted.is_(sa.false()))
        query = query if keys is None else self.database.looked_up(query, item.c.item, keys)
        return self.database.table(query.order_by(item.c.position))

    def _from_rows(self, project: str, question: str, keys: Collection[str] | None) -> Answers:
        """Read the answers from the rows, for all items or only for `keys`."""
        items = self._live_items(project, keys)
        columns = [annotation.c[name] for name in ("item", "annotator", "label", "time", "duration")]
        query: sa.Select[Any] = sa.select(*columns).where(
            annotation.c.project == project,
            annotation.c.question == question,
            annotation.c.kind == "answer",
            annotation.c.deleted.is_(sa.false()),
        )
        query = query if keys is None else self.database.looked_up(query, annotation.c.item, keys)
        query = query.order_by(annotation.c.annotation)
        rows = self.database.table(query)
        if rows.column("time").null_count:  # some versions are not times, so order by the versions themselves
            rows = self.database.table(query.add_columns(annotation.c.version))
        place = pc.index_in(rows.column("item"), value_set=_one(items.column("item")))
        if place.null_count:  # deleted items, and items that arrived after `items` was read
            rows, place = rows.filter(place.is_valid()), place.drop_null()
        code = np.concatenate([np.empty(0, np.int32), *map(np.asarray, place.chunks)]).astype(np.int32)
        time, duration = (_floats(rows.column(name)) for name in ("time", "duration"))
        age = pc.rank(rows.column("version"), tiebreaker="dense") if "version" in rows.column_names else time
        order = np.lexsort((np.asarray(age), code))
        annotator, label = (_coded(rows.column(name)).take(pa.array(order)) for name in ("annotator", "label"))
        positions = np.asarray(items.column("position"), np.int64)
        keys_column = _one(items.column("item"))
        return Answers(keys_column, positions, code[order], annotator, label, time[order], duration[order])


def _name(question: str) -> str:
    return f"answers {question}"


def _floats(column: pa.ChunkedArray) -> npt.NDArray[np.float64]:
    return np.asarray(column.to_numpy(zero_copy_only=False), np.float64)


def _coded(column: pa.ChunkedArray) -> pa.DictionaryArray:
    return _one(column).dictionary_encode()


def _narrow(column: pa.DictionaryArray) -> pa.DictionaryArray:
    """Return the same names with codes in the smallest integer type that fits."""
    codes = column.indices.cast(pa.from_numpy_dtype(np.min_scalar_type(-len(column.dictionary) - 1)))
    return pa.DictionaryArray.from_arrays(codes, column.dictionary)


def _inserted(
    old: pa.DictionaryArray, rows: npt.NDArray[np.bool_], at: Places, fresh: pa.DictionaryArray
) -> pa.DictionaryArray:
    """Return the selected rows of `old` with `fresh` inserted before the rows `at`."""
    new = fresh.dictionary.filter(pc.invert(pc.is_in(fresh.dictionary, value_set=old.dictionary)))
    names = pa.concat_arrays([old.dictionary, new])
    place = np.append(np.asarray(pc.index_in(fresh.dictionary, value_set=names)), -1).astype(np.int32)
    codes = place[np.asarray(fresh.indices.fill_null(len(fresh.dictionary)))]
    kept = np.asarray(old.indices.cast(pa.int32()).fill_null(-1))[rows]
    both = np.insert(kept, at, codes)
    return pa.DictionaryArray.from_arrays(pa.array(both, mask=both < 0), names)


def _one(column: pa.ChunkedArray) -> pa.Array:
    """Combine all chunks into one array with one dictionary."""
    return pa.concat_arrays(
        [*column.unify_dictionaries().chunks, pa.array([], column.type)][: max(column.num_chunks, 1)]
    )


def _renamed(column: pa.DictionaryArray, names: Mapping[str, str]) -> pa.DictionaryArray:
    """Rename the values of a dictionary column; two values with the same new name are merged."""
    coded = pa.array([names.get(name, name) for name in column.dictionary.to_pylist()], pa.string()).dictionary_encode()
    return pa.DictionaryArray.from_arrays(coded.indices.take(column.indices), coded.dictionary)
