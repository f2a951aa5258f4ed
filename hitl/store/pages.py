"""Saving a page: rows, deletions, problems and the cursor, within one transaction of the caller.

What of two pictures of the same item is the newer:

- An item and all that a page says of it (annotations, predictions) are one picture, as old as the item's version. A
  picture older than the stored one is ignored as a whole: it cannot bring back what was deleted since, nor delete
  what came since.
- A picture without a version is the newest: the platform keeps none. Its rows get the time of the store, or that of
  the stored row where this one is later, so that no clock can make a later answer the older one. A row that says what
  is stored keeps its version.
- A page that is the latest (`Page.latest`) says itself that it is newer than all before it, whatever its versions.
- In a newer or equally old picture each row replaces the stored one unless that has a newer version. Stored
  annotations of the item that the picture lacks were deleted on the platform; so were predictions. A page that is
  `partial` deletes nothing.
- `live` and the names of annotators have no version. Pages are saved in the order of the pull, by the one holder of
  the lease, so the last page is right.

Deleted items and annotations stay for a time (`hitl.store.retention`) as marked rows, with their version, which keeps
old pages from reviving them; an item that appears again is alive again, with the annotations it had.

The page is compared with what is stored before anything is written: a page that says nothing new writes no rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from operator import itemgetter
from typing import Any

import sqlalchemy as sa

from hitl.formatting import shown_names
from hitl.platform import Page, PullSummary
from hitl.store import packed
from hitl.store.database import Database
from hitl.store.lease import Lease
from hitl.store.schema import annotation, annotator, item, prediction, project, rework

MAX_PROBLEMS = 100
"""How many problems of a pull are kept."""

_MAX_PROBLEM_LENGTH = 500

Row = dict[str, Any]
Key = tuple[str, ...]


def save(database: Database, connection: sa.Connection, lease: Lease, page: Page) -> PullSummary:
    """Save a page; the caller has passed the fence in the same transaction."""
    saver = _Saver(database, connection, lease.project, page.latest)
    fresh = saver.items(page)
    saver.annotations(page, fresh)
    saver.predictions(page, fresh)
    saver.annotators(page)
    saver.live(page)
    saver.note_packed()
    _save_cursor(connection, lease, page)
    if saver.changed or saver.deleted:
        one_more = sa.func.coalesce(project.c.revision, 0) + 1
        connection.execute(sa.update(project).where(project.c.project == lease.project).values(revision=one_more))
    problems = tuple(page.problems)
    return PullSummary(len(page.items), len(page.annotations), saver.changed, saver.deleted, problems, pages=1)


class _Saver:
    """The steps of one page, counting what they change."""

    def __init__(self, database: Database, connection: sa.Connection, name: str, latest: bool) -> None:
        self._database = database
        self._connection = connection
        self._project = name
        self._latest = latest
        self.changed = 0
        self.deleted = 0
        self._touched: set[str] = set()
        """Items of which something may have changed."""
        self._packed = packed.are_there(connection, name)
        self._at = float(connection.execute(sa.select(database.now())).scalar_one())
        self._now = _fixed_width(datetime.fromtimestamp(self._at, UTC))

    def items(self, page: Page) -> frozenset[str]:
        """Save the items; gives the keys of those whose picture is not older than the stored one."""
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
            self._give_version(row, before)
        fresh = {key: row for key, row in rows.items() if self._latest or not _older(row, stored.get(key))}
        position = self._next_position()
        for key, row in fresh.items():
            if key not in stored:
                row["position"] = position
                position += 1
        self._upsert(item, fresh, stored)
        return frozenset(key for (key,) in fresh)

    def annotations(self, page: Page, fresh: frozenset[str]) -> None:
        """Save the annotations of fresh pictures and mark those that the pictures lack as deleted."""
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
        """Replace the predictions of fresh pictures."""
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
        """Save the annotators; the last name wins."""
        rows = _newest(annotator, ({"annotator": row.key, "name": row.name} for row in page.annotators))
        stored = self._stored(annotator, annotator.c.annotator, [key for (key,) in rows])
        sent = sa.select(rework).where(rework.c.project == self._project)
        back = [dict(row) for row in self._connection.execute(sent).mappings()] if rows else []
        before = self._shown_names() if back else {}
        self._upsert(annotator, rows, stored)
        if back:
            after = self._shown_names()
            self._follow(back, {name: after[key] for key, name in before.items()})

    def _shown_names(self) -> dict[str, str]:
        query = sa.select(annotator.c.annotator, annotator.c.name).where(annotator.c.project == self._project)
        return shown_names({row.annotator: row.name for row in self._connection.execute(query)})

    def _follow(self, back: Sequence[Row], names: Mapping[str, str]) -> None:
        """What was sent back to annotators goes on to them under the names that they are shown by now."""
        moved = [row | {"annotator": names.get(row["annotator"], row["annotator"])} for row in back]
        if moved != back:
            self._connection.execute(sa.delete(rework).where(rework.c.project == self._project))
            once = {(row["item"], row["annotator"]): row for row in moved}  # two may have become one
            self._database.upsert(self._connection, rework, [*once.values()])

    def live(self, page: Page) -> None:
        """Mark items outside `live` deleted, and those inside alive."""
        if page.live is None:
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
        """The stored rows whose column is one of the keys."""
        mine = sa.select(table).where(table.c.project == self._project)
        found = self._connection.execute(self._database.looked_up(mine, column, [*keys])).all()
        names = [column.name for column in table.c]
        rows = [dict(zip(names, row, strict=True)) for row in found]
        key = itemgetter(*_key_of(table))
        return {(name,) if isinstance(name := key(row), str) else name: row for row in rows}

    def _upsert(self, table: sa.Table, rows: Mapping[Key, Row], stored: Mapping[Key, Row]) -> None:
        """Write the rows that differ from the stored ones, unless a newer version is stored."""
        news = [
            {**row, "project": self._project}
            for key, row in rows.items()
            if key not in stored or _differs(row, stored[key])
        ]
        self._touch(table, news, stored)
        # The database compares again: a row may be stored under another item, and so not be in `stored`.
        self.changed += self._database.upsert(self._connection, table, news, versions=not self._latest)

    def _touch(self, table: sa.Table, news: Sequence[Row], stored: Mapping[Key, Row]) -> None:
        """Note the items of rows that will be written, and those under which they may be stored already."""
        if not self._packed or "item" not in table.c:
            return
        self._touched.update(row["item"] for row in news)
        others: dict[str, list[str]] = {}
        for row in news if table is annotation else ():
            if (row["question"], row["annotation"]) not in stored:
                others.setdefault(row["question"], []).append(row["annotation"])
        for question, keys in others.items():
            mine = sa.and_(annotation.c.project == self._project, annotation.c.question == question)
            query = sa.select(annotation.c.item).where(mine, self._database.among(annotation.c.annotation, keys))
            self._touched.update(self._connection.execute(query).scalars())

    def note_packed(self) -> None:
        """Note with the blocks the items of which something may have changed."""
        if self._packed and self._touched:
            packed.note(self._database, self._connection, self._project, self._touched)

    def _mark_deleted(self, table: sa.Table, keys: Sequence[Key], stored: Mapping[Key, Row]) -> int:
        self._touched.update(stored[key]["item"] for key in keys)
        return self._each(table, sa.update(table).values(deleted=True, deleted_at=self._at), keys)

    def _give_version(self, row: Row, stored: Row | None) -> None:
        """A version for a row of a platform that keeps none, and when it was first seen."""
        if row["version"]:
            return
        given = [name for name in ("version", "created", "time") if name in row]
        if stored is not None and not _differs({k: v for k, v in row.items() if k not in given}, stored):
            row.update({name: stored[name] for name in given})
            return
        row["version"] = self._now if stored is None else max(self._now, stored["version"])
        if "created" in row:
            when = _parse_time(row["version"])
            row["time"] = when.timestamp() if when else self._at
            row["created"] = row["version"] if stored is None else stored["created"]

    def _each(self, table: sa.Table, statement: sa.Update | sa.Delete, keys: Sequence[Key]) -> int:
        """Run the statement for the stored row of each key; gives how many."""
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
    """Where the pull stands; its problems are added to those of the same pull, that is of the same lease."""
    query = sa.select(project.c.problems, project.c.problems_epoch).where(project.c.project == lease.project)
    row = connection.execute(query).one()
    before = json.loads(row.problems) if row.problems_epoch == lease.epoch else []
    problems = [*before, *(text[:_MAX_PROBLEM_LENGTH] for text in page.problems)][:MAX_PROBLEMS]
    values = {"problems": json.dumps(problems), "problems_epoch": lease.epoch, "cursor": json.dumps(dict(page.cursor))}
    connection.execute(sa.update(project).where(project.c.project == lease.project).values(values))


# -- rows --------------------------------------------------------------------------------------------------


def _key_of(table: sa.Table) -> list[str]:
    """The columns that name a row of a project."""
    return [column.name for column in table.primary_key if column.name != "project"]


def _annotation(row: Any) -> Row:
    when = _parse_time(row.version)
    return {
        "question": row.question,
        "annotation": row.key,
        "item": row.item,
        "annotator": row.annotator,
        "label": row.label,
        "kind": row.kind,
        "version": _fixed_width(when) if when else sortable(row.version),
        "time": when.timestamp() if when else None,
        "created": row.created,
        "duration": row.duration,
        "suggested": row.suggested,
        "deleted": False,
        "deleted_at": None,
    }


def _newest(table: sa.Table, rows: Iterable[Row]) -> dict[Key, Row]:
    """By key; of two rows with the same key the newer, of equally old ones the last."""
    names = _key_of(table)
    found: dict[Any, Row] = {}
    key_of = itemgetter(*names)
    for row in rows:
        key = key_of(row)
        if not _older(row, found.get(key)):
            found[key] = row
    return found if len(names) > 1 else {(key,): row for key, row in found.items()}


def _older(row: Row, other: Row | None) -> bool:
    return other is not None and "version" in row and bool(row["version"] < other["version"])


def _differs(row: Row, stored: Row) -> bool:
    return any(stored[name] != value for name, value in row.items())


def sortable(version: str) -> str:
    """The version as text whose order is that of the versions: times by time, whole numbers by size.

    ISO 8601 text is not in order by itself: "12:00:00.5Z" comes before "12:00:00Z" byte by byte.
    """
    if version.isascii() and version.isdigit():
        return version.zfill(20)
    when = _parse_time(version)
    return _fixed_width(when) if when else version


@lru_cache(1024)  # a platform without versions says "" of all rows, and the store one time of a page
def _parse_time(text: str) -> datetime | None:
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        return None
    return when if when.tzinfo else when.replace(tzinfo=UTC)


def _fixed_width(when: datetime) -> str:
    return when.astimezone(UTC).isoformat(timespec="microseconds")
