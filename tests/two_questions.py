"""A platform that asks two questions about each item: all agree about the tone, and at most two about the stars."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from hitl.connectors.catalog import CONNECTORS
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
from hitl.settings import SourceSettings

STARS = tuple("12345")
STAMP = "2026-01-01T00:00:00+00:00"
SETTINGS = """name = "reviews"
store = "sqlite:///hitl.db"
[source]
kind = "two-questions"
{source}
[budget]
open_questions = 6
[crew]
annotators = [{crew}]
{more}"""


class TwoQuestions(Connector):
    """Everybody has answered `answered` of the items; `gold` have a known tone, `stars` says whether that is asked.

    If the platform `hides` the stars of bad items, all agree about the others, and only cyd has given any to item 1.
    """

    class Settings(SourceSettings):
        kind: str = "two-questions"
        people: tuple[str, ...] = ("ann", "bob", "cyd")
        items: int = 40
        answered: int = 40
        gold: int = 0
        stars: bool = True
        hides: bool = False

    @classmethod
    def open(cls, settings: Any, folder: Path) -> TwoQuestions:
        return cls(settings)

    def __init__(self, settings: Settings) -> None:
        self._is = settings

    def questions(self) -> tuple[Question, ...]:
        stars = Question("stars", STARS, STARS, conditional=self._is.hides)
        asked = Question("tone", ("good", "bad"), ("good", "bad")), stars
        return asked[: 1 + self._is.stars]

    def pull(self, cursor: Cursor | None) -> Iterator[Page]:
        keys = [str(n) for n in range(self._is.items)]
        rows: list[AnnotationRow] = []
        for n, key in enumerate(keys):
            tone = ("good", "bad")[n % 2]
            for who in self._is.people if n < self._is.answered else ():
                like = "ann" if who == "bob" and n % 2 else who
                said = {"tone": tone, "stars": str(Random(key if self._is.hides else key + like).randint(1, 5))}
                seen = not self._is.hides or tone == "good" or (key, who) == ("1", "cyd")
                rows += (
                    AnnotationRow(f"{key} {who}", key, asked.name, who, said[asked.name], "answer", STAMP, STAMP)
                    for asked in self.questions()
                    if seen or asked.name == "tone"
                )
            if n < self._is.gold:
                rows.append(AnnotationRow(f"{key} gold", key, "tone", None, tone, "gold", STAMP, STAMP))
        people = tuple(AnnotatorRow(who, who) for who in self._is.people)
        items = tuple(ItemRow(key, {"text": f"review {key}"}, STAMP) for key in keys)
        yield Page({"n": len(rows)}, items, tuple(rows), annotators=people, live=frozenset(keys))

    def push(self, operations: Iterable[Operation]) -> Iterator[Receipt]:
        yield from (Receipt(operation, 0) for operation in operations)

    def check(self) -> list[Check]:
        return []


def written(folder: Path, patch: pytest.MonkeyPatch, source: str = "", crew: str = "", more: str = "") -> Path:
    """The hitl.toml of such a project, and the connector where hitl finds it."""
    patch.setitem(CONNECTORS.own, "two-questions", f"{__name__}:TwoQuestions")  # type: ignore[arg-type]
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "hitl.toml"
    config.write_text(SETTINGS.format(source=source, crew=crew, more=more))
    return config
