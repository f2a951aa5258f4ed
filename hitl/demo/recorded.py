"""A simulated labeling platform, where annotators repeat the answers they gave in 2008.

The answers are the data set `rte` (Snow et al. 2008): does the text entail the hypothesis? It has 800 pairs, 164
annotators, 8,000 answers, and the truth.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator
from pathlib import Path

from hitl.annotations import Annotations, Name
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
from hitl.tables.read import read_table

FOLDER = Path(__file__).parent / "data" / "rte"
QUESTION = "entails"
ANSWERS = {"0": "no", "1": "yes"}


def rte() -> Evidence:
    """Read all recorded answers ("no", "yes"), their annotators ("person-7"), and the truth."""
    table, truth = read_table(FOLDER / "annotations.csv"), read_table(FOLDER / "truth.csv")
    columns = {
        "item": table.column("item"),
        "annotator": [f"person-{number}" for number in table.column("annotator").to_pylist()],
        "label": [ANSWERS[label] for label in table.column("label").to_pylist()],
    }
    labels = [ANSWERS[label] for label in truth.column("label").to_pylist()]
    return Evidence.from_tables(columns, truth={"item": truth.column("item"), "label": labels})


def texts() -> dict[str, dict[str, str]]:
    """Read item -> {"text", "hypothesis"}, as shown to the annotators."""
    rows = read_table(FOLDER / "texts.csv.gz").to_pylist()
    return {row["item"]: {key: html.unescape(row[key]) for key in ("text", "hypothesis")} for row in rows}


class RecordedPeople(Connector):
    """A labeling platform whose annotators give the recorded answers as soon as they are asked."""

    def __init__(self, recorded: Annotations, item_texts: dict[str, dict[str, str]]) -> None:
        self._recorded, self._texts = recorded, item_texts
        rows = recorded.table().to_pylist()
        self._answers = {(str(row["item"]), str(row["annotator"])): str(row["label"]) for row in rows}
        self._given: list[AnnotationRow] = []

    @property
    def spent(self) -> int:
        """Number of answers given so far."""
        return len(self._given)

    def crew(self) -> Crew:
        """Return all annotators, each limited to the items they answered in 2008."""
        names = self._recorded.annotators
        only: dict[Name, frozenset[Name]] = {
            name: frozenset(item for item, person in self._answers if person == name) for name in names
        }
        return Crew(names, only=only)

    def questions(self) -> tuple[Question, ...]:
        """Return the only question: does the text entail the hypothesis?"""
        classes = self._recorded.classes
        return (Question(QUESTION, classes, classes),)

    def pull(self, cursor: Cursor | None) -> Iterator[Page]:
        """Yield one page: all items at first, later the items answered since the cursor; with all their answers."""
        new = self._given[int(cursor["answers"]) if cursor else 0 :]
        changed = {row.item for row in new}
        items = [str(name) for name in self._recorded.items] if cursor is None else sorted(changed)
        people = self._recorded.annotators if cursor is None else ()
        yield Page(
            cursor={"answers": len(self._given)},
            items=tuple(ItemRow(key, self._texts.get(key, {}), "2008-01-01T00:00:00+00:00") for key in items),
            annotations=tuple(row for row in self._given if row.item in changed),
            annotators=tuple(AnnotatorRow(str(name), str(name)) for name in people),
            total=len(items),
        )

    def push(self, operations: Iterable[Operation]) -> Iterator[Receipt]:
        """Answer each annotator's assigned items as recorded, and each item only once."""
        for operation in operations:
            person, before = operation.key, len(self._given)
            given = {row.item for row in self._given if row.annotator == person}
            for item in operation.payload["items"] if operation.kind == "assign" else []:
                if (item, person) in self._answers and item not in given:
                    when = f"2008-01-01T00:00:00.{len(self._given):06d}+00:00"
                    answer = self._answers[item, person]
                    row = AnnotationRow(f"{item}/{person}", item, QUESTION, person, answer, "answer", when, when)
                    self._given.append(row)
            yield Receipt(operation, len(self._given) - before)

    def check(self) -> list[Check]:
        """Return one check, which always passes."""
        return [Check("people", True, f"{self._recorded.n_annotators} recorded")]
