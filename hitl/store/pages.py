"""Save a page: rows, deletions, problems and the cursor, within the caller's transaction.

Two versions of the same item are compared as follows:

- An item and everything a page holds about it (annotations, predictions) form one snapshot, as old as the item's
  version. A snapshot older than the stored one is ignored as a whole. It can neither restore what was deleted since,
  nor delete what was added since.
- A snapshot without a version counts as the newest, because the platform has no versions. Its rows get the store's
  time as their version, or the version of the stored row if that is later, so that a wrong clock cannot make a newer
  answer look older. A row equal to the stored one keeps its version.
- A page marked `Page.latest` is newer than all pages before it, whatever its versions.
- In a newer or equally old snapshot, each row replaces the stored one unless the stored one has a newer version. Stored
  annotations and predictions of the item that are missing from the snapshot were deleted on the platform. A page that
  is `partial` deletes nothing.
- `Page.live` and annotators' names have no version. Pages are saved in the order of the pull, by the one holder of the
  lease, so the last page wins.

Deleted items and annotations stay for a time (`Store.forget`) as marked rows with their version, so that old
pages cannot restore them. An item that appears again is live again, with its annotations.

A page is compared with the stored rows before anything is written. A page without news writes no rows.

A page of millions of rows carries a digest per item (`Page.digests`). The digests of the last such page are stored, so
only items with a different digest are compared, and new items are inserted column by column.

Each page that changes what a run reads raises the project's revision and stores it with the changed items.
`hitl.store.answers` uses it to find the items that its snapshots lack. An item that differs only in how the platform
serves it (`_SERVED`) is saved without raising it, because a push of our own changes that.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa

from hitl.formatting import masked
from hitl.platform import ColumnRows, Page, PullSummary
from hitl.store.database import Database
from hitl.store.lease import Lease
from hitl.store.schema import annotation, annotator, item, prediction, project, snapshot
from hitl.store.versions import fixed_width, parse_time, sortable
from hitl.tables.columns import as_stream, tables_in

MAX_PROBLEMS = 100
"""Maximum number of problems stored per pull."""

_MAX_PROBLEM_LENGTH = 500

DIGESTS = "digests"
"""Name of the snapshot that holds the item digests."""

_COLUMNS_AT_ONCE, _ROWS_AT_ONCE = 50_000, 1_000
"""Maximum number of items inserted at a time, and of items compared at a time."""

_SERVED = {"version", "labels_wanted", "closed"}
"""Columns of an item that say how the platform serves it. No run reads them, except to repeat a push."""

Row = dict[str, Any]
Key = tuple[str, ...]


def save(database: Database, connection: sa.Connection, lease: Lease, page: Page) -> PullSummary:
    """Save a page. The caller must have passed the fence in the same transaction."""
    saver = _Saver(database, connection, lease.project, page.latest)
    if page.digests is None:
        saver.forget_digests()
        saver.rows(page)
    else:
        saver.columns(page, *page.digests)
    saver.annotators(page)
    saver.live(page)
    changed = max(saver.changed - saver.served, 0)
    if changed or saver.deleted:
        saver.note_revision()
    _save_cursor(connection, lease, page)
    return PullSummary(len(page.items), len(page.annotations), changed, saver.deleted, page.problems, pages=1)


class _Saver:
    """Saves one page step by step and counts the changes."""

    def __init__(self, database: Database, connection: sa.Connection, name: str, latest: bool) -> None:
        self._database = database
        self._connection = connection
        self._project = name
        self._latest = latest
        self.changed = self.deleted = self.served = 0  # served: changed items that differ only in how they are served
        one = sa.select(item.c.item).where(item.c.project == name).limit(1)
        self._was_empty = connection.execute(one).first() is None
        self._touched: set[str] = set()
        """Stored items that may have changed."""
        revision = sa.select(project.c.revision).where(project.c.project == name)
        self._revision = 1 + int(connection.execute(revision).scalar() or 0)
        self._at = float(connection.execute(sa.select(database.now())).scalar_one())
        self._now = fixed_width(datetime.fromtimestamp(self._at, UTC))

    def rows(self, page: Page) -> None:
        """Compare the rows of a page with the stored ones, and save those that differ."""
        fresh = self.items(page)
        self.annotations(page, fresh)
        self.predictions(page, fresh)

    def columns(self, page: Page, keys: pa.Array, digests: npt.NDArray[np.uint64]) -> None:
        """Save items whose digest differs from the stored one. `keys`, `digests`: all items of the page."""
        named, stored = self._digests()
        place = np.asarray(pc.fill_null(pc.index_in(keys, value_set=named), -1))
        same = (place >= 0) & (np.append(stored, np.uint64(0))[place] == digests)
        rest = np.flatnonzero(~same)
        if page.partial:  # keep the digests of items that are not on the page
            stays = np.ones(len(named), bool)
            stays[place[rest][place[rest] >= 0]] = False
            self._keep_digests(named.filter(pa.array(stays)), stored[stays])
        elif len(rest) or len(named) != len(keys):
            self._keep_digests(keys, digests)
        of_rest = keys.take(pa.array(rest))
        is_new = ~np.asarray(pc.is_in(of_rest, value_set=self._stored_keys(of_rest)))
        new, position = rest[is_new], self._next_position() + np.arange(is_new.sum())
        order = np.asarray(pc.sort_indices(keys.take(pa.array(new))))  # sorted inserts append to the index
        for start in range(0, len(new), _COLUMNS_AT_ONCE):
            chosen = order[start : start + _COLUMNS_AT_ONCE]
            self._insert(page, new[chosen], position[chosen])
        for start in range(0, int((~is_new).sum()), _ROWS_AT_ONCE):
            self.rows(_of_items(page, rest[~is_new][start : start + _ROWS_AT_ONCE]))

    def forget_digests(self) -> None:
        """Delete the digests of an earlier page, which no longer match the stored rows."""
        gone = sa.delete(snapshot).where(snapshot.c.project == self._project, snapshot.c.name == DIGESTS)
        self._connection.execute(gone)

    def _digests(self) -> tuple[pa.Array, npt.NDArray[np.uint64]]:
        query = sa.select(snapshot.c.content).where(snapshot.c.project == self._project, snapshot.c.name == DIGESTS)
        content = self._connection.execute(query).scalar()
        if content is None:
            return pa.array([], pa.string()), np.empty(0, np.uint64)
        keys, digests = (column.combine_chunks() for column in tables_in(bytes(content))[0].columns)
        return keys, np.asarray(digests)

    def _keep_digests(self, keys: pa.Array, digests: npt.NDArray[np.uint64]) -> None:
        content = as_stream(pa.table({"item": keys, "digest": digests}))
        row = {"project": self._project, "name": DIGESTS, "revision": self._revision, "content": content}
        self._database.upsert(self._connection, snapshot, [row])

    def _stored_keys(self, keys: pa.Array) -> pa.Array:
        """Return the keys that are stored, deleted or not."""
        if self._was_empty:
            return pa.array([], pa.string())
        named = self._database.among(item.c.item, keys.to_pylist())
        query = sa.select(item.c.item).where(item.c.project == self._project, named)
        return pa.array([*self._connection.execute(query).scalars()], pa.string())

    def _insert(self, page: Page, places: npt.NDArray[np.intp], position: npt.NDArray[np.integer[Any]]) -> None:
        """Insert new items with their annotations and predictions."""
        items, annotations, predictions = (
            rows.columns(places)
            for rows in (page.items, page.annotations, page.predictions)
            if isinstance(rows, ColumnRows)
        )
        of_project, version = {"project": self._project}, {"version": self._now}
        given: dict[str, Any] = {"labels_wanted": 0, "closed": False, "ref": None, "deleted": False, "deleted_at": None}
        columns = {"item": items.column("key"), "data": items.column("data"), "position": pa.array(position)}
        self._bulk(item, columns, of_project | version | given | {"revision": self._revision})
        annotations = annotations.sort_by("key").rename_columns({"key": "annotation"})
        columns = {name: annotations.column(name) for name in annotations.column_names}
        given = dict.fromkeys(("suggested", "note", "deleted_at")) | {"time": self._at, "created": self._now}
        self._bulk(annotation, columns, of_project | version | given | {"deleted": False})
        columns = {name: predictions.column(name) for name in predictions.column_names}
        self._bulk(prediction, columns, of_project)

    def _bulk(self, table: sa.Table, columns: Mapping[str, Any], constants: Mapping[str, Any]) -> None:
        self.changed += self._database.insert_columns(self._connection, table, columns, constants)

    def note_revision(self) -> None:
        """Raise the project's revision and store it with the changed items."""
        mine = project.c.project == self._project
        self._connection.execute(sa.update(project).where(mine).values(revision=self._revision))
        if self._revision & (self._revision - 1) == 0:  # after 1, 2, 4, ... pages
            self._database.analyse(self._connection)
        if self._touched:
            named = self._database.among(item.c.item, sorted(self._touched))
            changed = sa.update(item).where(item.c.project == self._project, named)
            self._connection.execute(changed.values(revision=self._revision))

    def items(self, page: Page) -> frozenset[str]:
        """Save the items. Return the keys of those that are not older than the stored ones."""
        rows = _newest(
            item,
            (
                {
                    "item": row.key,
                    "data": json.dumps(row.data),
                    "version": sortable(row.version),
                    "labels_wanted": row.labels_wanted,
                    "closed": row.closed,
                    "deleted": False,
                    "ref": row.ref,
                    "deleted_at": None,
                }
                for row in page.items
                if page.live is None or row.key in page.live
            ),
        )
        stored = self._stored(item, item.c.item, [key for (key,) in rows])
        for key, row in rows.items():
            before = stored.get(key)
            row["position"] = None if before is None else before["position"]
            row["revision"] = self._revision if before is None else before["revision"]
            self._give_version(row, before)
        fresh = {key: row for key, row in rows.items() if self._latest or not _older(row, stored.get(key))}
        position = self._next_position()
        for key, row in fresh.items():
            if key not in stored:
                row["position"] = position
                position += 1
        for key in fresh.keys() & stored.keys():
            differing = {name for name, value in fresh[key].items() if value != stored[key][name]}
            self.served += set() < differing <= _SERVED
        self._upsert(item, fresh, stored)
        return frozenset(key for (key,) in fresh)

    def annotations(self, page: Page, fresh: frozenset[str]) -> None:
        """Save the annotations of fresh items, and mark stored ones that the page lacks as deleted."""
        stale = {row.key for row in page.items} - fresh
        rows = _newest(annotation, (_annotation(row) for row in page.annotations if row.item not in stale))
        stored = self._stored(annotation, annotation.c.item, fresh)
        for key, row in rows.items():
            self._give_version(row, stored.get(key))
        self._upsert(annotation, rows, stored)
        if not page.partial:
            gone = [key for key, row in stored.items() if key not in rows and not row["deleted"]]
            self.deleted += self._mark_deleted(annotation, gone, stored)

    def predictions(self, page: Page, fresh: frozenset[str]) -> None:
        """Replace the predictions of fresh items."""
        rows = _newest(
            prediction,
            (
                {
                    "item": row.item,
                    "question": row.question,
                    "model": row.model,
                    "probabilities": json.dumps({name: float(p) for name, p in row.probabilities.items()}),
                }
                for row in page.predictions
                if row.item in fresh
            ),
        )
        stored = self._stored(prediction, prediction.c.item, fresh)
        self._upsert(prediction, rows, stored)
        if not page.partial:
            self.deleted += self._each(prediction, sa.delete(prediction), [key for key in stored if key not in rows])

    def annotators(self, page: Page) -> None:
        stored = self._stored(annotator, annotator.c.annotator, [row.key for row in page.annotators])
        rows = ({"annotator": a.key, "name": a.name} for a in page.annotators if a.named or (a.key,) not in stored)
        self._upsert(annotator, _newest(annotator, rows), stored)

    def live(self, page: Page) -> None:
        """Mark stored items that are not in `page.live` as deleted, and deleted ones that are in it as live again."""
        if page.live is None or self._was_empty:
            return
        query = sa.select(item.c.item, item.c.deleted).where(item.c.project == self._project)
        marks = self._connection.execute(query).all()
        if not page.partial:
            gone = [(key,) for key, deleted in marks if not deleted and key not in page.live]
            self.deleted += self._mark_deleted(item, gone, {(key,): {"item": key} for (key,) in gone})
        back = [(key,) for key, deleted in marks if deleted and key in page.live]
        self._touched.update(key for (key,) in back)
        self.changed += self._each(item, sa.update(item).values(deleted=False, deleted_at=None), back)

    # -- statements ----------------------------------------------------------------------------------------

    def _stored(self, table: sa.Table, column: sa.Column[Any], keys: Iterable[str]) -> dict[Key, Row]:
        query = sa.select(table).where(table.c.project == self._project, self._database.among(column, [*keys]))
        rows = [dict(row) for row in self._connection.execute(query).mappings()]
        return {tuple(row[name] for name in _key_of(table)): row for row in rows}

    def _upsert(self, table: sa.Table, rows: Mapping[Key, Row], stored: Mapping[Key, Row]) -> None:
        """Write the rows that differ from the stored ones, unless a newer version is stored."""
        news = [
            {**row, "project": self._project}
            for key, row in rows.items()
            if key not in stored or _differs(row, stored[key])
        ]
        self._touch(table, news, stored)
        # The database compares again, because a row may be stored under another item and so be missing from `stored`.
        self.changed += self._database.upsert(self._connection, table, news, versions=not self._latest)

    def _touch(self, table: sa.Table, news: Sequence[Row], stored: Mapping[Key, Row]) -> None:
        """Record the items of rows to be written, and any other items the rows are stored under."""
        self._touched.update(row["item"] for row in news if "item" in row)
        others: dict[str, list[str]] = {}
        for row in news if table is annotation else ():
            if (row["question"], row["annotation"]) not in stored:
                others.setdefault(row["question"], []).append(row["annotation"])
        for question, keys in others.items():
            mine = sa.and_(annotation.c.project == self._project, annotation.c.question == question)
            query = sa.select(annotation.c.item).where(mine, self._database.among(annotation.c.annotation, keys))
            self._touched.update(self._connection.execute(query).scalars())

    def _mark_deleted(self, table: sa.Table, keys: Sequence[Key], stored: Mapping[Key, Row]) -> int:
        self._touched.update(stored[key]["item"] for key in keys)
        return self._each(table, sa.update(table).values(deleted=True, deleted_at=self._at), keys)

    def _give_version(self, row: Row, stored: Row | None) -> None:
        """Set version, time and first-seen time of a row from a platform without versions."""
        if row["version"]:
            return
        given = [name for name in ("version", "created", "time") if name in row]
        if stored is not None and not _differs({k: v for k, v in row.items() if k not in given}, stored):
            row.update({name: stored[name] for name in given})
            return
        row["version"] = self._now if stored is None else max(self._now, stored["version"])
        if "created" in row:
            when = parse_time(row["version"])
            row["time"] = when.timestamp() if when else self._at
            row["created"] = row["version"] if stored is None else stored["created"]

    def _each(self, table: sa.Table, statement: sa.Update | sa.Delete, keys: Sequence[Key]) -> int:
        """Run the statement for the stored row of each key. Return the number of keys."""
        if keys:
            mine = [table.c[name] == sa.bindparam(f"key_{name}") for name in _key_of(table)]
            values = [{f"key_{name}": part for name, part in zip(_key_of(table), key, strict=True)} for key in keys]
            self._connection.execute(statement.where(table.c.project == self._project, *mine), values)
        return len(keys)

    def _next_position(self) -> int:
        query = sa.select(sa.func.max(item.c.position)).where(item.c.project == self._project)
        last = self._connection.execute(query).scalar()
        return 0 if last is None else int(last) + 1


def _save_cursor(connection: sa.Connection, lease: Lease, page: Page) -> None:
    """Save the cursor, and add the page's problems to those of earlier pages of the pull (same lease)."""
    query = sa.select(project.c.problems, project.c.problems_epoch).where(project.c.project == lease.project)
    row = connection.execute(query).one()
    old = json.loads(row.problems) if row.problems_epoch == lease.epoch else []
    problems = [*dict.fromkeys([*old, *(masked(text)[:_MAX_PROBLEM_LENGTH] for text in page.problems)])][:MAX_PROBLEMS]
    values = {"problems": json.dumps(problems), "problems_epoch": lease.epoch, "cursor": json.dumps(dict(page.cursor))}
    connection.execute(sa.update(project).where(project.c.project == lease.project).values(values))


def _of_items(page: Page, places: npt.NDArray[np.intp]) -> Page:
    """Return a page with only these items, as rows."""
    rows = {name: getattr(page, name).of(places) for name in ("items", "annotations", "predictions")}
    return replace(page, **rows, live=None, digests=None)


# -- rows --------------------------------------------------------------------------------------------------


def _key_of(table: sa.Table) -> list[str]:
    return [column.name for column in table.primary_key if column.name != "project"]


def _annotation(row: Any) -> Row:
    when = parse_time(row.version)
    return {
        "question": row.question,
        "annotation": row.key,
        "item": row.item,
        "annotator": row.annotator,
        "label": row.label,
        "kind": row.kind,
        "version": fixed_width(when) if when else sortable(row.version),
        "time": when.timestamp() if when else None,
        "created": row.created,
        "duration": row.duration,
        "suggested": row.suggested,
        "note": None if row.note is None else masked(row.note)[:_MAX_PROBLEM_LENGTH],
        "deleted": False,
        "deleted_at": None,
    }


def _newest(table: sa.Table, rows: Iterable[Row]) -> dict[Key, Row]:
    """Index rows by key. Of rows with the same key the newest wins, and among equally old ones the last."""
    names = _key_of(table)
    newest: dict[Key, Row] = {}
    for row in rows:
        key = tuple(row[name] for name in names)
        if not _older(row, newest.get(key)):
            newest[key] = row
    return newest


def _older(row: Row, other: Row | None) -> bool:
    return other is not None and "version" in row and bool(row["version"] < other["version"])


def _differs(row: Row, stored: Row) -> bool:
    return any(stored[name] != value for name, value in row.items())
