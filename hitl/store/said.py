"""What is stored of a few items: who says what of them, and what models predict; in the time of these items."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass

import sqlalchemy as sa

from hitl.store.lease import Leased
from hitl.store.packed import live
from hitl.store.schema import annotation, item, prediction


@dataclass(frozen=True, slots=True)
class Answer:
    """A live answer, or known truth (`kind`), of an item to a question; annotator is the platform's key or None."""

    question: str
    item: str
    annotator: str | None
    label: str | None
    kind: str


class Said(Leased):
    """What was pulled, of a few items."""

    def said_of(self, project: str, items: Collection[str]) -> list[Answer]:
        """Answers and known truth of these items, where they are live; each from the oldest to the newest."""
        columns = [annotation.c[name] for name in ("question", "item", "annotator", "label", "kind")]
        wanted = self.database.among(annotation.c.item, list(items))
        found: list[Answer] = []
        for kind in ("answer", "gold"):
            query = live(project, kind, *columns).where(wanted)
            rows = self.database.rows(query.order_by(annotation.c.version, annotation.c.annotation))
            found += [Answer(*row) for row in rows]
        return found

    def predicted_of(self, project: str, items: Collection[str]) -> dict[tuple[str, str, str], dict[str, float]]:
        """(question, model, item) -> class -> probability, as the platform has them, of live items among these."""
        columns = [prediction.c[name] for name in ("question", "model", "item", "probabilities")]
        same = sa.and_(item.c.project == prediction.c.project, item.c.item == prediction.c.item)
        mine = sa.and_(prediction.c.project == project, item.c.deleted.is_(sa.false()))
        wanted = self.database.among(prediction.c.item, list(items))
        query = sa.select(*columns).select_from(prediction.join(item, same)).where(mine, wanted)
        return {(question, model, key): json.loads(p) for question, model, key, p in self.database.rows(query)}
