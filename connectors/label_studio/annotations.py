"""Read the annotations of a task: who answered what, what cannot be read and why, and what was repaired.

An annotation with a part that cannot be read is a skip as a whole, with a note that says why. An empty answer would say
that there is nothing to mark.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from hitl.connectors.label_studio.config import Form
from hitl.connectors.label_studio.controls import Answers, NotUnderstood
from hitl.kinds.kind import kind_of
from hitl.parts import LARGEST
from hitl.platform import AnnotationKind

FIELDS = ("annotations", "result", "completed_by", "was_cancelled", "ground_truth")
"""Fields of a task and its annotations that are needed to read them, in addition to `data`."""

Json = Mapping[str, Any]


@dataclass(frozen=True)
class Reading:
    """Content of one annotation.

    Attributes:
        row: the annotation as Label Studio returns it.
        answers: question -> label; empty for a skip.
        note: why it cannot be read, or how it was repaired; None if it was read as it is.
    """

    row: Json
    answers: Answers = field(default_factory=dict)
    note: str | None = None

    @property
    def annotator(self) -> str | None:
        """Key of the annotator, or None if the annotation has none."""
        by = self.row.get("completed_by")
        by = by.get("id") if isinstance(by, dict) else by
        return None if by is None else str(by)

    @property
    def is_gold(self) -> bool:
        """True for ground truth."""
        return bool(self.row.get("ground_truth"))

    @property
    def seconds(self) -> float | None:
        """Time the answer took, or None if it is unknown."""
        time = self.row.get("lead_time")
        return float(time) if isinstance(time, int | float) and 0 <= time < LARGEST else None

    def kind(self, question: str) -> AnnotationKind:
        """Return what the annotation is for this question."""
        return "skip" if self.answers.get(question) is None else "gold" if self.is_gold else "answer"


def read_annotations(form: Form, task: Json) -> list[Reading]:
    """Read all annotations of a task, and check them against its data and one another."""
    data = task["data"]
    readings = [_read(form, row, data) for row in task.get("annotations") or ()]
    for question in form.questions:
        if question.field:
            answers = [reading.answers.get(question.name) for reading in readings]
            whys = kind_of(question).unusable(answers, data.get(question.field))
            readings = [
                reading if why is None else replace(reading, answers={}, note=why)
                for reading, why in zip(readings, whys, strict=True)
            ]
    return readings


def _read(form: Form, row: Json, data: Json) -> Reading:
    if row.get("was_cancelled"):
        return Reading(row)
    try:
        answers, repairs = form.read_and_repair(row["result"], data)
    except NotUnderstood as error:
        return Reading(row, note="\n".join((str(error), error.fix)).strip())
    return Reading(row, answers, "; ".join(repairs) or None)


def submitted(task: Json) -> int:
    """Count the annotations that Label Studio compares with the overlap: all but skips, repeats included."""
    return sum(not annotation.get("was_cancelled") for annotation in task.get("annotations") or ())


def count_answers(readings: Iterable[Reading]) -> int:
    """Count the annotators with a readable answer, without ground truth.

    Annotations without a user, for instance of a deleted user, count individually, as in the evidence.
    """
    answers = [one for one in readings if not one.is_gold and any(label is not None for label in one.answers.values())]
    users = [one.annotator for one in answers]
    return len({*users} - {None}) + users.count(None)
