"""The bulk queries: what was pulled, as Arrow columns. Items in the order in which they were first seen."""

from __future__ import annotations

import json

import pyarrow as pa
import sqlalchemy as sa

from hitl.store.packed import live
from hitl.store.schema import SERVED, annotation, annotator, item, prediction
from hitl.store.settled.counts import Counts, of_models


class Pulled(Counts):
    """What was pulled, as tables."""

    def items(self, project: str) -> pa.Table:
        """Live items in the order first seen: item, data (JSON text), labels_wanted, closed, ref (own id or null)."""
        query = (
            sa.select(item.c.item, item.c.data, item.c.labels_wanted, item.c.closed, item.c.ref)
            .where(item.c.project == project, item.c.deleted.is_(sa.false()))
            .order_by(item.c.position)
        )
        return self.database.table(query)

    def data_of(self, project: str, key: str) -> str | None:
        """The data of one item (JSON text); None where there is no such item."""
        query = sa.select(item.c.data).where(item.c.project == project, item.c.item == key)
        found: str | None = self.database.scalar(query)
        return found

    def served(self, project: str) -> dict[str, tuple[int, bool]]:
        """For how many annotators in all a live item is open, and whether it is closed, where the platform says."""
        query = sa.select(item.c.item, item.c.labels_wanted, item.c.closed).where(
            item.c.project == project, item.c.deleted.is_(sa.false()), sa.literal_column(f"{item.name}.{SERVED}")
        )
        with self.database.read() as connection:
            return {row.item: (row.labels_wanted, bool(row.closed)) for row in connection.execute(query)}

    def annotators(self, project: str) -> pa.Table:
        """Everyone the platform has named, by key: key, name."""
        query = (
            sa.select(annotator.c.annotator.label("key"), annotator.c.name)
            .where(annotator.c.project == project)
            .order_by(annotator.c.annotator)
        )
        return self.database.table(query)

    def gold(self, project: str, question: str) -> pa.Table:
        """The latest known truth of each live item: item, label."""
        newest = (annotation.c.version.desc(), annotation.c.annotation.desc())
        rank = sa.func.row_number().over(partition_by=annotation.c.item, order_by=newest).label("rank")
        known = (
            live(project, "gold", annotation.c.item, annotation.c.label, item.c.position, rank)
            .where(annotation.c.question == question, annotation.c.label.is_not(None))
            .subquery()
        )
        query = sa.select(known.c.item, known.c.label).where(known.c.rank == 1).order_by(known.c.position)
        return self.database.table(query)

    def skips(self, project: str) -> pa.Table:
        """Who passed over which live item, each pair once: item, annotator."""
        query = live(project, "skip", annotation.c.item, annotation.c.annotator)
        query = query.group_by(item.c.position, annotation.c.item, annotation.c.annotator)
        return self.database.table(query.order_by(item.c.position, annotation.c.annotator))

    def predictions(self, project: str, question: str) -> dict[str, pa.Table]:
        """For each model a table of live items: item, p_<class>, ...; p is 0 where a prediction does not name it."""
        query = (
            of_models(project, prediction.c.model, prediction.c.item, prediction.c.probabilities)
            .where(prediction.c.question == question)
            .order_by(prediction.c.model, item.c.position)
        )
        found = self.database.table(query)
        by_model: dict[str, list[tuple[str, dict[str, float]]]] = {}
        for model, key, packed in zip(*(column.to_pylist() for column in found.columns), strict=True):
            by_model.setdefault(model, []).append((key, json.loads(packed)))
        return {model: _probabilities(rows) for model, rows in by_model.items()}


def _probabilities(rows: list[tuple[str, dict[str, float]]]) -> pa.Table:
    classes = dict.fromkeys(name for _, known in rows for name in known)
    columns = {"item": pa.array([key for key, _ in rows], pa.string())}
    for name in classes:
        columns[f"p_{name}"] = pa.array([known.get(name, 0.0) for _, known in rows], pa.float64())
    return pa.table(columns)
