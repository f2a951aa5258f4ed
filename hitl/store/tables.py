"""The bulk queries: what was pulled, as Arrow columns. Items in the order in which they were first seen."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import sqlalchemy as sa

from hitl.store.database import Database
from hitl.store.schema import annotation, annotator, item, prediction

ITEMS = pa.schema([("item", pa.string()), ("data", pa.string()), ("labels_wanted", pa.int64()), ("closed", pa.bool_())])
ANNOTATORS = pa.schema([("key", pa.string()), ("name", pa.string())])
ANNOTATIONS = pa.schema(
    [
        ("item", pa.string()),
        ("annotator", pa.string()),
        ("label", pa.string()),
        ("time", pa.float64()),
        ("duration", pa.float64()),
    ]
)
GOLD = pa.schema([("item", pa.string()), ("label", pa.string())])
SKIPS = pa.schema([("item", pa.string()), ("annotator", pa.string())])
_PREDICTIONS = pa.schema([("model", pa.string()), ("item", pa.string()), ("probabilities", pa.string())])


def items(database: Database, project: str) -> pa.Table:
    """Live items."""
    query = (
        sa.select(item.c.item, item.c.data, item.c.labels_wanted, item.c.closed)
        .where(item.c.project == project, item.c.deleted.is_(sa.false()))
        .order_by(item.c.position)
    )
    return database.table(query, ITEMS)


def annotators(database: Database, project: str) -> pa.Table:
    """Everyone the platform has named."""
    query = (
        sa.select(annotator.c.annotator, annotator.c.name)
        .where(annotator.c.project == project)
        .order_by(annotator.c.annotator)
    )
    return database.table(query, ANNOTATORS)


def answers(database: Database, project: str, question: str) -> pa.Table:
    """Live answers to one question, those of one item from the oldest to the newest."""
    columns = [annotation.c[name] for name in ANNOTATIONS.names]
    query = _live(project, "answer", *columns).where(annotation.c.question == question)
    order = (item.c.position, annotation.c.version, annotation.c.annotation)
    return database.table(query.order_by(*order), ANNOTATIONS)


def gold(database: Database, project: str, question: str) -> pa.Table:
    """The latest known truth of each item."""
    newest = (annotation.c.version.desc(), annotation.c.annotation.desc())
    rank = sa.func.row_number().over(partition_by=annotation.c.item, order_by=newest).label("rank")
    known = (
        _live(project, "gold", annotation.c.item, annotation.c.label, item.c.position, rank)
        .where(annotation.c.question == question, annotation.c.label.is_not(None))
        .subquery()
    )
    query = sa.select(known.c.item, known.c.label).where(known.c.rank == 1).order_by(known.c.position)
    return database.table(query, GOLD)


def skips(database: Database, project: str) -> pa.Table:
    """Who passed over which item, each pair once."""
    query = _live(project, "skip", annotation.c.item, annotation.c.annotator)
    query = query.group_by(item.c.position, annotation.c.item, annotation.c.annotator)
    return database.table(query.order_by(item.c.position, annotation.c.annotator), SKIPS)


def predictions(database: Database, project: str, question: str) -> dict[str, pa.Table]:
    """For each model: item, p_<class>, ...; a class that a prediction does not name has probability 0."""
    query = (
        sa.select(prediction.c.model, prediction.c.item, prediction.c.probabilities)
        .join(item, sa.and_(item.c.project == prediction.c.project, item.c.item == prediction.c.item))
        .where(prediction.c.project == project, prediction.c.question == question, item.c.deleted.is_(sa.false()))
        .order_by(prediction.c.model, item.c.position)
    )
    found = database.table(query, _PREDICTIONS)
    by_model: dict[str, list[tuple[str, dict[str, float]]]] = {}
    for model, key, packed in zip(*(column.to_pylist() for column in found.columns), strict=True):
        by_model.setdefault(model, []).append((key, json.loads(packed)))
    return {model: _probabilities(rows) for model, rows in by_model.items()}


def counts(connection: sa.Connection, project: str) -> dict[str, int]:
    """Live items; annotators; answers and skips (an annotation counts once, whatever it answers); items with gold."""
    live = sa.select(sa.func.count()).where(item.c.project == project, item.c.deleted.is_(sa.false()))
    people = sa.select(sa.func.count()).where(annotator.c.project == project)
    queries = {
        "items": live,
        "annotations": _live(project, "answer", sa.func.count(annotation.c.annotation.distinct())),
        "annotators": people,
        "skips": _live(project, "skip", sa.func.count(annotation.c.annotation.distinct())),
        "gold": _live(project, "gold", sa.func.count(annotation.c.item.distinct())),
    }
    return {name: int(connection.execute(query).scalar_one()) for name, query in queries.items()}


def _live(project: str, kind: str, *columns: Any) -> sa.Select[Any]:
    """Annotations of one kind that exist now, of items that exist now."""
    return (
        sa.select(*columns)
        .select_from(annotation)
        .join(item, sa.and_(item.c.project == annotation.c.project, item.c.item == annotation.c.item))
        .where(
            annotation.c.project == project,
            annotation.c.kind == kind,
            annotation.c.deleted.is_(sa.false()),
            item.c.deleted.is_(sa.false()),
        )
    )


def _probabilities(rows: list[tuple[str, dict[str, float]]]) -> pa.Table:
    classes = dict.fromkeys(name for _, known in rows for name in known)
    columns = {"item": pa.array([key for key, _ in rows], pa.string())}
    for name in classes:
        columns[f"p_{name}"] = pa.array([known.get(name, 0.0) for _, known in rows], pa.float64())
    return pa.table(columns)
