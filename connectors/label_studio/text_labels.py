"""Read and write spans marked in texts: `<Labels>` on `<Text>`, one region of a result list per label of a span.

    {"from_name": "ner", "to_name": "text", "type": "labels", "value": {"start": 0, "end": 3, "labels": ["PER"]}}

Offsets count characters (code points) from 0, and the end is exclusive. An annotation without regions means that there
is nothing to mark. In the consensus, a region's score is the probability of the span.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hitl.connectors.label_studio.answers import Answers, NotUnderstood, results_of
from hitl.errors import BadSettings
from hitl.parts import spans_as_label, spans_in
from hitl.platform import Question

TYPE = "labels"


@dataclass(frozen=True, slots=True)
class TextLabels:
    """A control to mark parts of a text.

    Attributes:
        name, target: the control and the text it labels (from_name and to_name of results).
        field: the field of a task's data that holds the text.
        choices: the classes of spans.
    """

    name: str
    target: str
    field: str
    choices: tuple[str, ...]

    @property
    def questions(self) -> tuple[Question, ...]:
        """Questions about every item: one, about its parts."""
        return (Question(self.name, self.choices, self.choices, "spans", self.field),)

    def read(self, result: object) -> Answers:
        """Return the spans in an annotation's result. Raises NotUnderstood if a region is not a span of the text."""
        own = results_of(self.name, result)
        return {self.name: spans_as_label([span for item in own for span in self._spans(item)])}

    def write(
        self, labels: Mapping[str, str], distributions: Mapping[str, Mapping[str, float]] | None = None
    ) -> list[dict[str, Any]]:
        """Return regions for these spans; `distributions` has the probability of each, by its one-span label.

        Raises BadSettings for an invalid span.
        """
        if not labels:
            return []
        unknown = [name for name in labels if name != self.name]
        try:
            spans = spans_in(labels.get(self.name, ""))
        except (TypeError, ValueError):
            unknown, spans = [self.name], []
        kinds = [kind for *_, kind in spans if kind not in self.choices]
        if unknown or kinds:
            raise BadSettings(f"{(unknown + kinds)[0]!r}: {labels!r} is no answer to control {self.name!r}")
        sure = (distributions or {}).get(self.name, {})
        return [self._region(*span, sure.get(spans_as_label([span]))) for span in spans]

    def read_prediction(self, result: object, score: object) -> dict[str, dict[str, float]]:
        """Return nothing: a model's spans are not combined with those of annotators yet."""
        return {}

    def _spans(self, item: Mapping[str, Any]) -> list[tuple[int, int, str]]:
        value = item.get("value")
        if item.get("type") != TYPE or not isinstance(value, dict):
            raise NotUnderstood(f"{item.get('type')!r} is no answer to the control {self.name!r}")
        start, end, labels = (value.get(name) for name in ("start", "end", "labels"))
        if not (_is_whole(start) and _is_whole(end) and 0 <= start < end):  # type: ignore[operator]
            raise NotUnderstood(f"{start!r} to {end!r} is no part of a text")
        for label in labels or ():
            if label not in self.choices:
                raise NotUnderstood(f"{label!r} is not among the labels of {self.name!r}")
        return [(int(start), int(end), label) for label in labels or ()]  # type: ignore[arg-type]

    def _region(self, start: int, end: int, kind: str, probability: float | None) -> dict[str, Any]:
        region = {
            "id": f"{start}-{end}-{self.choices.index(kind)}",
            "from_name": self.name,
            "to_name": self.target,
            "type": TYPE,
            "value": {"start": start, "end": end, "labels": [kind]},
        }
        return region if probability is None else region | {"score": probability}


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
