"""Read the answers to a question as integer codes, from a snapshot and the rows that have changed since.

The rows are the source of truth. A snapshot holds the answers to one question as of one revision of the project. Each
page with changes raises the revision and stores it with the changed items (`hitl.store.pages`). Readers load the
snapshot, then read only the rows of items with a newer revision.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
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
from hitl.tables.columns import as_stream, tables_in

COLUMNS = ("annotator", "label", "time", "duration")
"""Columns of an answer, besides its item."""

LARGEST = 500_000_000
"""Maximum size of a stored snapshot, in bytes. Databases limit a value to about 1 GB."""

FEW = 10
"""If more than 1 / `FEW` of the items have changed since the snapshot, all rows are read instead."""


@dataclass(frozen=True, eq=False)
class Answers:
    """Answers to a question, without deleted items and answers.

    Attributes:
        items: (N,) all items, answered or not, in the order in which they were first seen. Columns: item (the key) and
            position, which rises from row to row.
        rows: (M,) answers, sorted by item as in `items`, then from oldest to newest. Columns: position of the item;
            annotator (may be null) and label, both dictionary-encoded; time of the version, in seconds since the epoch;
            duration, the seconds that the answer took. Time and duration are null if unknown.
    """

    items: pa.Table
    rows: pa.Table

    @property
    def keys(self) -> pa.Array:
        """(N,) keys of the items."""
        return _one(self.items.column("item"))

    @property
    def item(self) -> npt.NDArray[np.int32]:
        """(M,) index of each answer's item in `items`."""
        items, rows = (table.column("position").to_numpy() for table in (self.items, self.rows))
        return np.asarray(np.searchsorted(items, rows), np.int32)

    def table(self) -> pa.Table:
        """Return one row per answer: item, annotator, label (text), time, duration (numbers)."""
        names = {name: self.rows.column(name).cast(pa.string()) for name in ("annotator", "label")}
        numbers = {name: self.rows.column(name) for name in ("time", "duration")}
        return pa.table({"item": self.keys.take(pa.array(self.item))} | names | numbers)

    def count(self) -> tuple[int, set[str]]:
        """Return the number of labels and the names of the annotators.

        Several answers by one annotator to an item count as one label. Answers without an annotator count one by one.
        """
        annotator = _one(self.rows.column("annotator"))
        known = np.asarray(annotator.is_valid())
        who = np.asarray(annotator.indices.fill_null(0))[known]
        pairs = np.unique(self.item[known].astype(np.int64) * max(len(annotator.dictionary), 1) + who)
        names = annotator.dictionary.take(pa.array(np.unique(who))).to_pylist()
        return len(pairs) + int((~known).sum()), set(names)

    def packed(self) -> bytes:
        """Serialize to two Arrow streams: the items, then the answers."""
        return as_stream(self.items, self.rows)


class AnswerStore(Leased):
    """Pulled answers to questions, and their snapshots."""

    def keep_answers(self, lease: Lease, questions: Iterable[str]) -> int:
        """Bring the snapshots of these questions up to date. Return the number written.

        A snapshot of more than `LARGEST` bytes is not written.
        """
        written = 0
        for question in questions:
            revision, answers, is_kept = self._read(lease.project, question)
            content = b"" if is_kept else answers.packed()
            if is_kept or len(content) > LARGEST:
                continue
            row = {"project": lease.project, "name": _name(question), "revision": revision, "content": content}
            with self._fenced(lease) as connection:
                self.database.upsert(connection, snapshot, [row])
            written += 1
        return written

    def answers(self, project: str, question: str) -> Answers:
        """Return the answers to a question as codes, together with all items."""
        return self._read(project, question)[1]

    def annotations(self, project: str, question: str) -> pa.Table:
        """Return the answers that are not deleted: item, annotator (or null), label, time, duration.

        Time is the time of the version, in seconds since the epoch. Rows are sorted as `items` are, and within an item
        from oldest to newest.
        """
        return self.answers(project, question).table()

    def no_items(self, project: str) -> BadInput:
        """Return the error that no items are stored, and what to do before or after the first pull."""
        query = sa.select(projects.c.source).where(projects.c.project == project, projects.c.cursor.is_not(None))
        source = self.database.scalar(query)
        if source is None:
            return BadInput(
                f"project {project!r}: no items stored; run `hitl pull` first, or add items on the platform"
            )
        return BadInput(
            f"project {project!r}: no items stored; the last pull found none in {json.loads(source)}. Add items there "
            "(a table that has only a header needs rows), then `hitl run`"
        )

    def labels(
        self, project: str, question: Question, names: Mapping[str, str], items: CheckedNames | None = None
    ) -> Annotations:
        """Return the answers to a question as `Annotations`.

        `names`: annotator's key -> name to use. `items`: the project's items, if already read for another question, so
        that both share them. Raises BadInput if they differ from the stored items or if no items are stored, and
        BadAnnotations as `Annotations.from_codes` does.
        """
        answers = self.answers(project, question.name)
        if not len(answers.keys):
            raise self.no_items(project)
        if items is not None and not answers.keys.equals(items.column):
            raise BadInput(f"project {project!r}: items changed while they were read; try again")
        annotator, label, time, duration = (_one(answers.rows.column(name)) for name in COLUMNS)
        return Annotations.from_codes(
            items or CheckedNames.unchecked(answers.keys),  # keys are unique: part of the primary key
            answers.item,
            _renamed(annotator, names),
            label,
            classes=question.classes,
            options=question.options,
            time=time.to_numpy(zero_copy_only=False),
            duration=duration.to_numpy(zero_copy_only=False),
        )

    def key_column(self, project: str) -> pa.Array:
        """Return the keys of all items that are not deleted, in the order in which they were first seen."""
        return _one(self._live_items(project, None).column("item"))

    def _read(self, project: str, question: str) -> tuple[int, Answers, bool]:
        """Return the revision, the answers at this revision or later, and True if the snapshot is up to date."""
        of_question = sa.and_(snapshot.c.project == project, snapshot.c.name == _name(question))
        of_items = sa.select(item.c.item, item.c.position).where(item.c.project == project)
        with self.database.read() as connection:
            current = sa.select(projects.c.revision).where(projects.c.project == project)
            revision = int(connection.execute(current).scalar() or 0)
            kept = connection.execute(sa.select(snapshot.c.revision, snapshot.c.content).where(of_question)).first()
            if kept is None:
                return revision, self._from_rows(project, question, None), False
            newer = connection.execute(of_items.where(item.c.revision > kept.revision)).all()
        answers = Answers(*tables_in(bytes(kept.content)))
        if len(newer) * FEW > len(answers.items):
            return revision, self._from_rows(project, question, None), False
        if newer:
            fresh = self._from_rows(project, question, [row.item for row in newer])
            changed = np.array([row.position for row in newer], np.int64)
            answers = Answers(_merged(answers.items, changed, fresh.items), _merged(answers.rows, changed, fresh.rows))
        return revision, answers, not newer

    def _live_items(self, project: str, keys: Sequence[str] | None) -> pa.Table:
        """Return position and key of all items that are not deleted, or only of those among `keys`."""
        query = sa.select(item.c.position, item.c.item).where(item.c.project == project, item.c.deleted.is_(sa.false()))
        query = query if keys is None else query.where(self.database.among(item.c.item, keys))
        return self.database.table(query.order_by(item.c.position))

    def _from_rows(self, project: str, question: str, keys: Sequence[str] | None) -> Answers:
        """Read the answers from the rows, for all items or only for `keys`."""
        items = self._live_items(project, keys)
        columns = [annotation.c[name] for name in ("item", *COLUMNS)]
        query: sa.Select[Any] = sa.select(*columns).where(
            annotation.c.project == project,
            annotation.c.question == question,
            annotation.c.kind == "answer",
            annotation.c.deleted.is_(sa.false()),
        )
        if keys is None:
            query = query.order_by(annotation.c.annotation)
        else:  # sorted below, because with ORDER BY SQLite would scan all rows
            query = query.add_columns(annotation.c.annotation).where(self.database.among(annotation.c.item, keys))
        rows = self.database.table(query)
        if rows.column("time").null_count:  # some versions are not times, so order by the versions themselves
            rows = self.database.table(query.add_columns(annotation.c.version))
        rows = rows if keys is None else rows.sort_by("annotation")
        code = _one(pc.index_in(rows.column("item"), value_set=_one(items.column("item"))))
        if code.null_count:  # deleted items, and items that arrived after `items` was read
            rows, code = rows.filter(code.is_valid()), code.drop_null()
        age = pc.rank(rows.column("version" if "version" in rows.column_names else "time"), tiebreaker="dense")
        order = pa.array(np.lexsort((np.asarray(age), np.asarray(code))))
        found = {name: _one(rows.column(name)).take(order) for name in COLUMNS}
        found |= {name: found[name].dictionary_encode() for name in ("annotator", "label")}
        return Answers(items, pa.table({"position": items.column("position").take(code.take(order))} | found))


def _name(question: str) -> str:
    return f"answers {question}"


def _merged(old: pa.Table, changed: npt.NDArray[np.int64], fresh: pa.Table) -> pa.Table:
    """Replace the rows at the `changed` positions with those in `fresh`. Both tables are sorted by position."""
    position = old.column("position").to_numpy()
    stays = np.flatnonzero(~np.isin(position, changed))
    at = np.searchsorted(position[stays], fresh.column("position").to_numpy(), side="right")
    order = np.insert(stays, at, len(old) + np.arange(len(fresh)))
    return pa.concat_tables([old, fresh]).unify_dictionaries().combine_chunks().take(pa.array(order))


def _one(column: pa.ChunkedArray) -> pa.Array:
    """Combine all chunks into one array with one dictionary."""
    return column.unify_dictionaries().combine_chunks()


def _renamed(column: pa.DictionaryArray, names: Mapping[str, str]) -> pa.DictionaryArray:
    """Rename the values of a dictionary column; two values with the same new name are merged."""
    coded = pa.array([names.get(name, name) for name in column.dictionary.to_pylist()], pa.string()).dictionary_encode()
    return pa.DictionaryArray.from_arrays(coded.indices.take(column.indices), coded.dictionary)
