"""How much is stored. Labels are counted in the blocks of `packed`: by rows five million of them take half a minute."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import sqlalchemy as sa

from hitl.store.packed import live
from hitl.store.schema import annotation, annotator, item, prediction
from hitl.store.settled.settling import Settling


@dataclass
class _Counted:
    """Answers to one question: all of them, one of each annotator and item, and who gave them."""

    answers: int = 0
    labels: int = 0
    annotators: set[str] = field(default_factory=set)

    def add(self, block: pa.Table) -> None:
        """Count those of a block."""
        for listed in block.column("answers").chunks:
            given = listed.flatten().field("annotator")
            item_m = np.repeat(np.arange(len(listed)), np.diff(listed.offsets.to_numpy()))
            named_m = np.asarray(given.is_valid())
            who_m = np.asarray(given.indices.fill_null(0))[named_m]
            pairs = np.unique(item_m[named_m] * max(len(given.dictionary), 1) + who_m)
            self.answers += len(given)
            self.labels += len(pairs) + given.null_count
            self.annotators.update(given.dictionary.take(pa.array(np.unique(who_m))).to_pylist())


class Counts(Settling):
    """Counts of what was pulled."""

    def counts(self, project: str) -> dict[str, int]:
        """Of live items: the items; labels, skips, items of known truth, predictions; annotators.

        labels: answers, one for each annotator, item and question, as `hitl.Annotations` has them. annotations: what
        the platform calls so, which may answer several questions, or one again. annotators: everyone the platform has
        named; annotators_with_labels: those of them who have labeled. A prediction is that of one model for one item
        and question. A skip is an annotation that answers no question.
        """
        count = sa.func.count
        asked = [self._counted(project, question) for question in self._answered(project)]
        queries = {
            "items": sa.select(count()).where(item.c.project == project, item.c.deleted.is_(sa.false())),
            "annotators": sa.select(count()).where(annotator.c.project == project),
            "skips": live(project, "skip", count(annotation.c.annotation.distinct())).where(_says_nothing(project)),
            "gold": live(project, "gold", count(annotation.c.item.distinct())),
            "predictions": sa.select(count()).select_from(of_models(project).subquery()),
        }
        with self.database.read() as connection:
            found = {name: int(connection.execute(query).scalar_one()) for name, query in queries.items()}
        return {
            "items": found.pop("items"),
            "annotations": asked[0].answers if len(asked) == 1 else self._annotations(project),
            "labels": sum(one.labels for one in asked),
            "annotators": found.pop("annotators"),
            "annotators_with_labels": len(set[str]().union(*(one.annotators for one in asked))),
            **found,
        }

    def annotation_count(self, project: str) -> int:
        """How many annotations there are, as `counts` has them, in less of its time."""
        asked = list(self._answered(project))
        return self._counted(project, asked[0]).answers if len(asked) == 1 else self._annotations(project)

    def suggested(self, project: str) -> tuple[int, int]:
        """Annotations whose platform says how they began, and those of them that began as a suggestion."""
        count = sa.func.count(annotation.c.annotation.distinct())
        told = live(project, "answer", count).where(annotation.c.suggested.is_not(None))
        with self.database.read() as connection:
            all_, of_them = (
                int(connection.execute(query).scalar_one())
                for query in (told, told.where(annotation.c.suggested.is_(sa.true())))
            )
        return all_, of_them

    def _annotations(self, project: str) -> int:
        """By rows: one that answers several questions is one."""
        return int(self.database.scalar(live(project, "answer", sa.func.count(annotation.c.annotation.distinct()))))

    def _counted(self, project: str, question: str) -> _Counted:
        counted = _Counted()
        for block in self._whole(project, question):
            counted.add(block)
        return counted

    def _answered(self, project: str) -> Iterator[str]:
        """The questions that any annotation is about, each looked up by the index."""
        first = sa.select(sa.func.min(annotation.c.question)).where(annotation.c.project == project)
        question = self.database.scalar(first)
        while question is not None:
            yield question
            question = self.database.scalar(first.where(annotation.c.question > question))


def _says_nothing(project: str) -> sa.ColumnElement[bool]:
    """Of an annotation that answers some questions and leaves others open, or hides them, a skip is no skip."""
    other = annotation.alias("other")
    same = [other.c[name] == annotation.c[name] for name in ("item", "annotation")]
    said = sa.select(other.c.item).where(
        other.c.project == project, *same, other.c.kind != "skip", other.c.deleted.is_(sa.false())
    )
    return ~said.exists()


def of_models(project: str, *columns: sa.Column[object]) -> sa.Select[tuple[object, ...]]:
    """Predictions for items that exist now."""
    return (
        sa.select(*(columns or (prediction.c.item,)))
        .select_from(prediction)
        .join(item, sa.and_(item.c.project == prediction.c.project, item.c.item == prediction.c.item))
        .where(prediction.c.project == project, item.c.deleted.is_(sa.false()))
    )
