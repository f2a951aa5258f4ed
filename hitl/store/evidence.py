"""Read pulled data other than answers (items, annotators, ground truth, skips, predictions), and count all of it.

Live items and annotations are those that are not marked as deleted.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import sqlalchemy as sa

from hitl.platform import HeldItem, SeenAnswer, Snapshot
from hitl.store.answers import AnswerStore
from hitl.store.database import Database
from hitl.store.schema import NO_ANSWER, NOTED, SERVED, annotation, annotator, item, prediction
from hitl.store.versions import sortable

MOST_NOTES, PLACES = 100, 5
"""Maximum number of different notes that are read, and of annotations listed for each."""


@dataclass(frozen=True)
class Note:
    """Annotations that cannot be read for the same reason, or that were repaired in the same way.

    Attributes:
        why: the reason, or the repair.
        fix: what to do about it, or "".
        is_skip: True if they cannot be read and count as skips.
        count: number of annotations.
        places: items and annotations, at most `PLACES`.
    """

    why: str
    fix: str
    is_skip: bool
    count: int
    places: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        if not self.is_skip:
            return f"{self.where}: repaired: {self.why}"
        it, counts = ("it", "it counts as a skip") if self.count == 1 else ("them", "they count as skips")
        fix = self.fix or f"fix or delete {it} on the platform"
        return f"{self.where}: {self.why}; {counts} and the question is not asked again: {fix}"

    @property
    def where(self) -> str:
        """The annotations, in words."""
        places = "; ".join(f"task {item}, annotation {key}" for item, key in self.places)
        more = f"; and {self.count - len(self.places):,} more" if self.count > len(self.places) else ""
        return places if self.count == 1 else f"{self.count:,} annotations ({places}{more})"


class EvidenceStore(AnswerStore):
    """Pulled data as tables, with items in the order in which they were first seen."""

    def items(self, project: str) -> pa.Table:
        """Return live items: item, data (JSON text), labels_wanted, closed, ref (the user's own id, or null)."""
        columns = (item.c.item, item.c.data, item.c.labels_wanted, item.c.closed, item.c.ref)
        return self.database.table(_live_items(project, *columns).order_by(item.c.position))

    def data_of(self, project: str, key: str) -> str | None:
        """Return the data of one item (JSON text), or None if there is no such item."""
        text: str | None = self.database.scalar(
            sa.select(item.c.data).where(item.c.project == project, item.c.item == key)
        )
        return text

    def served(self, project: str) -> dict[str, tuple[int, bool]]:
        """Return item -> (labels wanted, True if closed) for live items whose labels wanted the platform reports."""
        query = _live_items(project, item.c.item, item.c.labels_wanted, item.c.closed)
        rows = self.database.rows(query.where(sa.literal_column(f"{item.name}.{SERVED}")))
        return {row.item: (row.labels_wanted, bool(row.closed)) for row in rows}

    def annotators(self, project: str) -> pa.Table:
        """Return all annotators the platform has named, sorted by key: key, name."""
        columns = (annotator.c.annotator.label("key"), annotator.c.name)
        query = sa.select(*columns).where(annotator.c.project == project)
        return self.database.table(query.order_by(annotator.c.annotator))

    def gold(self, project: str, question: str) -> pa.Table:
        """Return the latest ground truth per live item: item, label."""
        newest = (annotation.c.version.desc(), annotation.c.annotation.desc())
        rank = sa.func.row_number().over(partition_by=annotation.c.item, order_by=newest).label("rank")
        truth = (
            _live(project, "gold", annotation.c.item, annotation.c.label, item.c.position, rank)
            .where(annotation.c.question == question, annotation.c.label.is_not(None))
            .subquery()
        )
        query = sa.select(truth.c.item, truth.c.label).where(truth.c.rank == 1)
        return self.database.table(query.order_by(truth.c.position))

    def skips(self, project: str) -> pa.Table:
        """Return one row per live item and annotator who skipped it: item, annotator."""
        query = _live(project, "skip", annotation.c.item, annotation.c.annotator)
        query = query.group_by(item.c.position, annotation.c.item, annotation.c.annotator)
        return self.database.table(query.order_by(item.c.position, annotation.c.annotator))

    def notes(self, project: str) -> list[Note]:
        """Return why live annotations cannot be read, or how they were repaired, most frequent first."""
        is_skip = (annotation.c.kind == "skip").label("is_skip")
        columns = (annotation.c.note, is_skip, annotation.c.item, annotation.c.annotation)
        live = _live_annotations(project, *columns).where(sa.literal_column(f"{annotation.name}.{NOTED}"))
        noted = live.distinct().subquery()
        group = (noted.c.note, noted.c.is_skip)
        order = (sa.func.length(noted.c.annotation), noted.c.annotation)
        rank = sa.func.row_number().over(partition_by=group, order_by=order).label("rank")
        count = sa.func.count().over(partition_by=group).label("count")
        ranked = sa.select(*noted.c, rank, count).subquery()
        few = sa.select(ranked).where(ranked.c.rank <= PLACES)
        few = few.order_by(ranked.c.is_skip.desc(), ranked.c.count.desc(), ranked.c.note, ranked.c.rank)
        places: dict[tuple[str, bool, int], list[tuple[str, str]]] = {}
        for row in self.database.rows(few.limit(MOST_NOTES * PLACES)):
            places.setdefault((row.note, bool(row.is_skip), row.count), []).append((row.item, row.annotation))
        return [
            Note(why, fix, skip, number, tuple(where))
            for (note, skip, number), where in places.items()
            for why, _, fix in [note.partition("\n")]
        ]

    def predictions(self, project: str, question: str) -> dict[str, pa.Table]:
        """Return model -> predictions for live items: item, p_<class>, ...; 0 for a class without a prediction."""
        query = _predicted(project, prediction.c.model, prediction.c.item, prediction.c.probabilities)
        query = query.where(prediction.c.question == question).order_by(prediction.c.model, item.c.position)
        by_model: dict[str, list[tuple[str, dict[str, float]]]] = {}
        columns = self.database.table(query).columns
        for model, key, text in zip(*(column.to_pylist() for column in columns), strict=True):
            by_model.setdefault(model, []).append((key, json.loads(text)))
        return {model: _probabilities(rows) for model, rows in by_model.items()}

    def held(self, project: str) -> HeldItems:
        """Return the live items and annotations of a project for a connector to compare."""
        return HeldItems(self.database, project)

    # -- counts ------------------------------------------------------------------------------------------------

    def counts(self, project: str) -> dict[str, int]:
        """Return the counts of live data, under these keys.

        items: items, answered or not.
        annotations: annotations as the platform counts them. One may answer several questions or repeat an answer.
        labels: answers, one per annotator, item and question, as in `hitl.Annotations`.
        annotators: annotators whom the platform has named.
        annotators_with_labels: annotators who have labeled.
        skips: annotations that answer no question.
        gold: items with ground truth.
        predictions: predictions, one per model, item and question.
        """
        count = sa.func.count
        asked = [self.answers(project, question) for question in self._answered(project)]
        labels, people = zip(*(each.count() for each in asked), strict=True) if asked else ((), ())
        queries = {
            "skips": _live(project, "skip", count(annotation.c.annotation.distinct())).where(_says_nothing(project)),
            "gold": _live(project, "gold", count(annotation.c.item.distinct())),
            "predictions": sa.select(count()).select_from(_predicted(project, prediction.c.item).subquery()),
        }
        return {
            "items": int(self.database.scalar(_live_items(project, count()))),
            "annotations": self._annotations(project, asked),
            "labels": sum(labels),
            "annotators": int(self.database.scalar(sa.select(count()).where(annotator.c.project == project))),
            "annotators_with_labels": len(set[str]().union(*people)),
            **{name: int(self.database.scalar(query)) for name, query in queries.items()},
        }

    def annotation_count(self, project: str) -> int:
        """Return the number of annotations, as `counts` does, but faster."""
        return self._annotations(project, [self.answers(project, each) for each in self._answered(project)])

    def suggested(self, project: str) -> tuple[int, int]:
        """Return the number of annotations with a reported origin, and of those that began as a suggestion."""
        count = sa.func.count(annotation.c.annotation.distinct())
        reported = _live(project, "answer", count).where(annotation.c.suggested.is_not(None))
        began = reported.where(annotation.c.suggested.is_(sa.true()))
        return int(self.database.scalar(reported)), int(self.database.scalar(began))

    def suggestions_seen(self, project: str) -> pa.Table:
        """Return the annotations that began as a suggestion: item, annotator, time (see `annotations`)."""
        columns = (annotation.c.item, annotation.c.annotator, annotation.c.time)
        return self.database.table(
            _live(project, "answer", *columns).where(annotation.c.suggested.is_(sa.true())).distinct()
        )

    def _annotations(self, project: str, asked: list[Any]) -> int:
        """Count annotations. An annotation that answers several questions counts once."""
        if len(asked) == 1:
            return len(asked[0].rows)
        return int(self.database.scalar(_live(project, "answer", sa.func.count(annotation.c.annotation.distinct()))))

    def _answered(self, project: str) -> Iterator[str]:
        """Yield the questions that have annotations, with one index lookup per question."""
        first = sa.select(sa.func.min(annotation.c.question)).where(annotation.c.project == project)
        question = self.database.scalar(first)
        while question is not None:
            yield question
            question = self.database.scalar(first.where(annotation.c.question > question))


class HeldItems:
    """The live items and annotations of a project. Implements `hitl.platform.Held`."""

    def __init__(self, database: Database, project: str) -> None:
        self._database = database
        self._project = project

    def count(self, until: str | None = None, without: Collection[str] = ()) -> tuple[int, int]:
        """Return the number of items and of their annotations. Leave out `without` and item versions after `until`."""
        old = [] if until is None else [item.c.version <= sortable(until)]
        if without:
            old.append(sa.not_(self._database.among(item.c.item, [*without])))
        tasks = _live_items(self._project, sa.func.count()).where(*old)
        answers = _live_annotations(self._project, sa.func.count(annotation.c.annotation.distinct())).where(*old)
        return int(self._database.scalar(tasks)), int(self._database.scalar(answers))

    def latest(self, until: str) -> str | None:
        """Return the newest item version that is not after `until`, or None."""
        newest = _live_items(self._project, sa.func.max(item.c.version)).where(item.c.version <= sortable(until))
        version = self._database.scalar(newest)
        return None if version is None else str(version)

    def stored(self, keys: Collection[str] | None = None) -> dict[str, HeldItem]:
        """Return the stored items among `keys` (default: all)."""
        wanted = sa.true() if keys is None else self._database.among(item.c.item, [*keys])
        of: dict[str, set[str]] = {}
        pairs = _live_annotations(self._project, annotation.c.item, annotation.c.annotation).where(wanted).distinct()
        for key, name in self._database.rows(pairs):
            of.setdefault(key, set()).add(name)
        versions = self._database.rows(_live_items(self._project, item.c.item, item.c.version).where(wanted))
        return {key: HeldItem(version, frozenset(of.get(key, ()))) for key, version in versions}

    def snapshot(self) -> Snapshot:
        """Return all live data."""
        rows = self._database.rows(_live_items(self._project, item.c.item, item.c.data))
        data = {key: json.loads(text) for key, text in rows}
        of: dict[str, set[SeenAnswer]] = {key: set() for key in data}
        names = ("annotation", "question", "annotator", "label", "kind")
        answers = _live_annotations(self._project, annotation.c.item, *(annotation.c[name] for name in names))
        for key, *values in self._database.rows(answers):
            of[key].add(SeenAnswer(*values))
        columns = [prediction.c[name] for name in ("item", "question", "model", "probabilities")]
        rows = self._database.rows(sa.select(*columns).where(prediction.c.project == self._project))
        predicted = {(key, question, model): json.loads(text) for key, question, model, text in rows if key in of}
        return Snapshot({key: frozenset(answers) for key, answers in of.items()}, data, predicted)


def _live_items(project: str, *columns: Any) -> sa.Select[Any]:
    return sa.select(*columns).select_from(item).where(item.c.project == project, item.c.deleted.is_(sa.false()))


def _live_annotations(project: str, *columns: Any) -> sa.Select[Any]:
    """Select live annotations of live items."""
    of_item = sa.and_(annotation.c.project == item.c.project, annotation.c.item == item.c.item)
    query = sa.select(*columns).select_from(annotation.join(item, of_item)).where(annotation.c.project == project)
    return query.where(annotation.c.deleted.is_(sa.false()), item.c.deleted.is_(sa.false()))


def _live(project: str, kind: str, *columns: Any) -> sa.Select[Any]:
    """Select live annotations of one kind on live items. Rare kinds use their own index."""
    query = _live_annotations(project, *columns).where(annotation.c.kind == kind)
    return query if kind == "answer" else query.where(sa.literal_column(f"{annotation.name}.{NO_ANSWER}"))


def _says_nothing(project: str) -> sa.ColumnElement[bool]:
    """Return a condition for annotations that answer no question.

    An annotation that answers only some of the questions is not a skip.
    """
    other = annotation.alias("other")
    same = [other.c[name] == annotation.c[name] for name in ("item", "annotation")]
    answers = sa.select(other.c.item).where(
        other.c.project == project, *same, other.c.kind != "skip", other.c.deleted.is_(sa.false())
    )
    return ~answers.correlate(annotation).exists()


def _predicted(project: str, *columns: Any) -> sa.Select[Any]:
    """Select predictions for live items."""
    of_item = sa.and_(item.c.project == prediction.c.project, item.c.item == prediction.c.item)
    joined = sa.select(*columns).select_from(prediction.join(item, of_item))
    return joined.where(prediction.c.project == project, item.c.deleted.is_(sa.false()))


def _probabilities(rows: list[tuple[str, dict[str, float]]]) -> pa.Table:
    columns = {"item": pa.array([key for key, _ in rows], pa.string())}
    for name in dict.fromkeys(name for _, shares in rows for name in shares):
        columns[f"p_{name}"] = pa.array([shares.get(name, 0.0) for _, shares in rows], pa.float64())
    return pa.table(columns)
