"""Recorded annotators as a labeling platform: asked by name, they give the answer they gave in 2008.

`rte` (Snow et al. 2008): does the text entail the hypothesis? 800 pairs, 164 annotators, 8,000 answers, and the truth.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator
from pathlib import Path

from hitl.annotations import Annotations
from hitl.crew import Crew
from hitl.evidence import Evidence
from hitl.platform import (
    AnnotationRow,
    AnnotatorRow,
    Check,
    Connector,
    Cursor,
    ItemRow,
    Operation,
    Page,
    Question,
    Receipt,
)
from hitl.tables.files import read_table

FOLDER = Path(__file__).parent / "data" / "rte"
QUESTION = "entails"
ANSWERS = {"0": "no", "1": "yes"}


def rte() -> Evidence:
    """All recorded answers and the truth, with answers "no" and "yes" and annotators "person-7"."""
    table = read_table(FOLDER / "annotations.csv")
    truth = read_table(FOLDER / "truth.csv")
    columns = {
        "item": table.column("item"),
        "annotator": [f"person-{number}" for number in table.column("annotator").to_pylist()],
        "label": [ANSWERS[label] for label in table.column("label").to_pylist()],
    }
    known = {"item": truth.column("item"), "label": [ANSWERS[label] for label in truth.column("label").to_pylist()]}
    return Evidence.from_tables(columns, truth=known)


def texts() -> dict[str, dict[str, str]]:
    """Item -> {"text", "hypothesis"}, as the annotators saw them."""
    rows = read_table(FOLDER / "texts.csv.gz").to_pylist()
    return {row["item"]: {key: html.unescape(row[key]) for key in ("text", "hypothesis")} for row in rows}


class RecordedPeople(Connector):
    """A labeling platform whose annotators answer, as soon as they are asked, what was recorded."""

    def __init__(self, recorded: Annotations, shown: dict[str, dict[str, str]]) -> None:
        self._recorded = recorded
        self._shown = shown
        names = recorded.annotators
        self._answers = {
            (str(recorded.items[n]), str(names[k])): str(recorded.options[label])
            for n, k, label in zip(recorded.item, recorded.annotator, recorded.label, strict=True)
        }
        self._given: list[AnnotationRow] = []

    @property
    def spent(self) -> int:
        """Answers given so far."""
        return len(self._given)

    def crew(self) -> Crew:
        """All annotators, each for the items they know."""
        known: dict[str, set[str]] = {str(name): set() for name in self._recorded.annotators}
        for item, person in self._answers:
            known[person].add(item)
        return Crew(self._recorded.annotators, only={name: frozenset(items) for name, items in known.items()})

    def questions(self) -> tuple[Question, ...]:
        """Does the text entail the hypothesis?"""
        classes = self._recorded.classes
        return (Question(QUESTION, classes, classes),)

    def pull(self, cursor: Cursor | None) -> Iterator[Page]:
        """Items first, then the answers given since the cursor."""
        seen = int(cursor["answers"]) if cursor else 0
        fresh = self._given[seen:]
        touched = {row.item for row in fresh}
        items = [str(name) for name in self._recorded.items] if cursor is None else sorted(touched)
        yield Page(
            cursor={"answers": len(self._given)},
            items=tuple(ItemRow(key, self._shown.get(key, {}), "2008-01-01T00:00:00+00:00") for key in items),
            annotations=tuple(row for row in self._given if row.item in touched),
            annotators=tuple(AnnotatorRow(str(n), str(n)) for n in self._recorded.annotators) if cursor is None else (),
            total=len(items),
        )

    def push(self, operations: Iterable[Operation]) -> Iterator[Receipt]:
        """An annotator who is assigned an item answers it, once."""
        given = {(row.item, row.annotator) for row in self._given}
        for operation in operations:
            person = operation.key
            asked = operation.payload["items"] if operation.kind == "assign" else []
            fresh = [item for item in asked if (item, person) in self._answers and (item, person) not in given]
            self._given += [self._answer(item, person) for item in fresh]
            yield Receipt(operation, len(fresh))

    def check(self) -> list[Check]:
        """Recorded annotators are always there."""
        return [Check("people", True, f"{self._recorded.n_annotators} recorded")]

    def _answer(self, item: str, person: str) -> AnnotationRow:
        when = f"2008-01-01T00:00:00.{self.spent:06d}+00:00"
        return AnnotationRow(
            f"{item}/{person}", item, QUESTION, person, self._answers[item, person], "answer", when, when
        )
