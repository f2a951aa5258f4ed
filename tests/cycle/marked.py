"""Projects of annotators who mark parts of items: in a folder of tables, and on a platform of the tests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hitl.connectors.tables import TablesSettings
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
from hitl.settings import Settings

CREW = ("ann", "bob", "cyd", "dee")
TIME = "2026-11-01T10:00:00Z"


def settings(crew: Sequence[str] = CREW, **changes: Any) -> Settings:
    budget = {"open_questions": 4, "target_confidence": 0.97}
    people = {"annotators": crew, "capacity": 4}
    return Settings(name="p", source=TablesSettings(path="."), budget=budget, crew=people, **changes)  # type: ignore[arg-type]


def write_config(path: Path, tables: str = "t", crew: Sequence[str] = CREW) -> None:
    """The hitl.toml of a project whose tables are in a folder."""
    names = ", ".join(f'"{who}"' for who in crew)
    (path / "hitl.toml").write_text(
        f'name = "p"\n[source]\nkind = "tables"\npath = "{tables}"\n[crew]\nannotators = [{names}]\ncapacity = 4\n'
        "[budget]\nopen_questions = 4\n"
    )


class Platform(Connector):
    """Items (key -> what is marked) with answers to one question (item -> annotator -> label).

    It remembers known truth, and what was pushed.
    """

    def __init__(
        self, question: Question, items: Mapping[str, str], answers: Mapping[str, Mapping[str, str]] | None = None
    ) -> None:
        self.question, self.items, self.answers = question, items, answers or {}
        self.gold: dict[str, str] = {}
        self.pushed: list[Operation] = []

    def questions(self) -> tuple[Question, ...]:
        return (self.question,)

    def pull(self, cursor: Cursor | None) -> Iterator[Page]:
        name = self.question.name
        items = tuple(ItemRow(item, {self.question.field: value}, "1") for item, value in self.items.items())
        said = [(item, who, label) for item, own in self.answers.items() for who, label in own.items()]
        rows = [AnnotationRow(item + who, item, name, who, label, "answer", "1", TIME) for item, who, label in said]
        rows += [AnnotationRow(f"{n}gold", n, name, "ann", label, "gold", "1", TIME) for n, label in self.gold.items()]
        people = tuple(AnnotatorRow(who, who) for who in dict.fromkeys(["ann", *(who for _, who, _ in said)]))
        yield Page({"at": 1}, items, rows, annotators=people, live=frozenset(self.items))

    def push(self, operations: Iterable[Operation]) -> Iterator[Receipt]:
        for operation in operations:
            self.pushed.append(operation)
            if operation.kind == "gold":
                self.gold |= operation.payload["questions"][self.question.name]
            yield Receipt(operation, 1)

    def check(self) -> list[Check]:
        return []
