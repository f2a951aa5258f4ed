"""What is stored of a few items: who says what of them, and what models predict; in the time of these items."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass

import sqlalchemy as sa

from hitl.store.lease import Leased
from hitl.store.schema import annotation, prediction


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
        """Live answers and known truth of these items, which are live themselves; from the oldest to the newest."""
        columns = [annotation.c[name] for name in ("question", "item", "annotator", "label", "kind")]
        counts = sa.and_(annotation.c.deleted.is_(sa.false()), annotation.c.kind.in_(("answer", "gold")))
        query = sa.select(*columns).where(annotation.c.project == project, counts)
        query = query.order_by(annotation.c.version, annotation.c.annotation)
        return [Answer(*row) for row in self.database.rows(self.database.looked_up(query, annotation.c.item, items))]

    def predicted_of(self, project: str, items: Collection[str]) -> dict[tuple[str, str, str], dict[str, float]]:
        """(question, model, item) -> class -> probability, as the platform has them, of these items."""
        columns = [prediction.c[name] for name in ("question", "model", "item", "probabilities")]
        wanted = sa.and_(prediction.c.project == project, self.database.among(prediction.c.item, list(items)))
        rows = self.database.rows(sa.select(*columns).where(wanted))
        return {(question, model, key): json.loads(p) for question, model, key, p in rows}
