"""What is stored of a project, in numbers and by item, for a connector to compare with what its platform has."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

import sqlalchemy as sa

from hitl.platform import HeldItem, SeenAnswer, Snapshot
from hitl.store.database import Database
from hitl.store.lease import Leased
from hitl.store.pages import sortable
from hitl.store.schema import annotation, item, prediction


class HeldItems:
    """The live items and annotations of a project: a `hitl.platform.Held`."""

    def __init__(self, database: Database, project: str) -> None:
        self._database = database
        self._project = project

    def count(self, until: str | None = None, without: Collection[str] = ()) -> tuple[int, int]:
        """How many items there are, and how many annotations these have: without some, with versions up to this."""
        old = [] if until is None else [item.c.version <= sortable(until)]
        if without:
            old.append(sa.not_(self._database.among(item.c.item, list(without))))
        tasks = self._live(sa.func.count()).where(*old)
        answers = self._annotated(sa.func.count(annotation.c.annotation.distinct())).where(*old)
        return int(self._database.scalar(tasks)), int(self._database.scalar(answers))

    def latest(self, until: str) -> str | None:
        """The latest version of an item up to this one; None where there is none."""
        found = self._database.scalar(self._live(sa.func.max(item.c.version)).where(item.c.version <= sortable(until)))
        return None if found is None else str(found)

    def stored(self, keys: Collection[str] | None = None) -> dict[str, HeldItem]:
        """Those of the items that are stored; default: all."""
        wanted = sa.true() if keys is None else self._database.among(item.c.item, list(keys))
        of: dict[str, set[str]] = {}
        pairs = self._annotated(annotation.c.item, annotation.c.annotation).where(wanted).distinct()
        for key, name in self._database.rows(pairs):
            of.setdefault(key, set()).add(name)
        versions = self._live(item.c.item, item.c.version).where(wanted)
        return {key: HeldItem(version, frozenset(of.get(key, ()))) for key, version in self._database.rows(versions)}

    def snapshot(self) -> Snapshot:
        """All live evidence."""
        data = {key: json.loads(text) for key, text in self._database.rows(self._live(item.c.item, item.c.data))}
        of: dict[str, set[SeenAnswer]] = {key: set() for key in data}
        names = ("annotation", "question", "annotator", "label", "kind")
        answers = self._annotated(annotation.c.item, *(annotation.c[name] for name in names))
        for key, *said in self._database.rows(answers):
            of[key].add(SeenAnswer(*said))
        columns = [prediction.c[name] for name in ("item", "question", "model", "probabilities")]
        found = self._database.rows(sa.select(*columns).where(prediction.c.project == self._project))
        predicted = {(key, question, model): json.loads(p) for key, question, model, p in found if key in of}
        return Snapshot({key: frozenset(said) for key, said in of.items()}, data, predicted)

    def _live(self, *columns: Any) -> sa.Select[Any]:
        mine = sa.and_(item.c.project == self._project, item.c.deleted.is_(sa.false()))
        return sa.select(*columns).select_from(item).where(mine)

    def _annotated(self, *columns: Any) -> sa.Select[Any]:
        """Live annotations of live items."""
        same = sa.and_(item.c.project == annotation.c.project, item.c.item == annotation.c.item)
        mine = sa.and_(item.c.project == self._project, item.c.deleted.is_(sa.false()))
        joined = sa.select(*columns).select_from(annotation.join(item, same))
        return joined.where(mine, annotation.c.deleted.is_(sa.false()))


class Compared(Leased):
    """What is stored, to be compared."""

    def held(self, project: str) -> HeldItems:
        """The live items and annotations of a project."""
        return HeldItems(self.database, project)
