"""An export of another tool as its importer sees it, and the answers that the importer finds in it."""

from __future__ import annotations

import re
import warnings
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from hitl.errors import BadTable, HitlError
from hitl.formatting import counted, listed
from hitl.parts import Place
from hitl.tables.times import parse_time

Span = tuple[Place, Place, str]
"""Start, end and label."""

_COMPLETE: set[str] = set()
"""Shapes of times that have a year, a month and a day (`parse_time`)."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer of one annotator to one question about one item.

    Attributes:
        annotator: None if the export does not say who answered.
        choices: chosen labels.
        several: True if the question allows several choices, even if this answer has fewer.
        spans: spans that the annotator marked, or None if the question is about the whole item.
        text: text in which the spans are; None for recordings.
        time: anything that `seconds` reads.
        known: True for ground truth, which is not an annotator's answer.
        ordered: True if the question is a rating, whose classes are in order.
        judge: True if the annotator is a model, whose answers are predictions.
    """

    item: str
    question: str
    annotator: str | None
    choices: tuple[str, ...] = ()
    several: bool = False
    spans: tuple[Span, ...] | None = None
    text: str | None = None
    time: object = None
    duration: object = None
    known: bool = False
    ordered: bool = False
    judge: bool = False


@dataclass(frozen=True, slots=True)
class Record:
    """A record of an export: a JSON object, a row of a table, or an XML element.

    Attributes:
        fields: its content.
        place: returns its location, for messages.
        source: name of the file without its suffix, which for some tools is the annotator.
    """

    fields: Mapping[str, Any]
    place: Callable[[], str]
    source: str


@dataclass(eq=False)
class Export:
    """Content of an export file.

    Attributes:
        path: the file.
        kind: "json", "table" or "xml".
        records: returns an iterator over the records, from the beginning.
        question: question that the user chose, or None.
        item: field that the user chose to name the items, or None for the importer's own.
        item_field: field in which the importer found the names of the items, if not its usual one.
        skipped: what was left out -> how often.
        problems: messages about unreadable records, as keys.
        repaired: what was repaired -> in how many answers.
    """

    path: Path
    kind: str
    records: Callable[[], Iterator[Record]]
    question: str | None = None
    item: str | None = None
    item_field: str | None = None
    skipped: Counter[str] = field(default_factory=Counter)
    problems: dict[str, None] = field(default_factory=dict)
    repaired: Counter[str] = field(default_factory=Counter)

    def cannot_read(self, message: str) -> None:
        """Count a record that cannot be read, once, and keep the message about it."""
        if message not in self.problems:
            self.skipped["unreadable record"] += 1
            self.problems[message] = None

    def wants(self, question: str) -> bool:
        """Return True unless the user chose another question. "topic=sports" is a question about "topic"."""
        return self.question is None or self.question == question or self.question.startswith(f"{question}=")

    def item_of(self, fields: Mapping[str, Any], otherwise: object) -> str:
        """Return the name of the item: `otherwise`, or the field that the user chose, at the top or one level below."""
        value = otherwise
        if self.item is not None:
            inner = [each for each in fields.values() if isinstance(each, Mapping)]
            place = next((each for each in (fields, *inner) if self.item in each), None)
            if place is None:
                raise BadTable(f"{self.path}: no field {self.item!r} (--item); found {listed(list(fields))}")
            value = place[self.item]
        if value is None or value == "" or isinstance(value, dict | list):
            raise ValueError("it has no item")
        return str(value)

    def left_out(self) -> str:
        """Describe what was left out or repaired: "; skipped: 2 cancelled annotations, 1 draft"."""
        skipped = ", ".join(counted(number, *what.split("|")) for what, number in self.skipped.items() if number)
        repaired = ", ".join(f"{counted(number, 'answer')} ({what})" for what, number in self.repaired.items())
        return (f"; skipped: {skipped}" if skipped else "") + (f"; repaired: {repaired}" if repaired else "")

    @contextmanager
    def part(self, record: Record, name: str = "") -> Iterator[None]:
        """Skip what cannot be read within the block: count it, and keep a message that names its location."""
        try:
            yield
        except HitlError:
            raise
        except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError) as error:
            reason = f"no {error}" if isinstance(error, KeyError) else str(error)
            self.cannot_read(f"{record.place()}{name and f', {name}'}: {reason[:200]}")


class Importer(Protocol):
    """Reads the exports of one tool.

    Attributes:
        title: the tool and its format.
        items, annotators: what a count of items and annotators is about, and the fields that name them.
    """

    title: str
    items: tuple[str, str]
    annotators: tuple[str, str]

    def matches(self, kind: str, names: frozenset[str], first: Sequence[Mapping[str, Any]]) -> bool:
        """Return True if an export of this `kind`, with these names of fields and first records, is the tool's."""
        ...

    def answers(self, export: Export) -> Iterator[Answer]:
        """Yield the answers. Count in `export.skipped` what is none."""
        ...


class Tool(ABC):
    """Importer that recognizes the records of a tool by their fields, and reads one after the other.

    Attributes:
        title, items, annotators: as `Importer` has them.
        kind: kind of its files, or None for JSON and tables.
        fields: patterns of the fields that its records have, one field each.
    """

    title: str
    items: tuple[str, str]
    annotators: tuple[str, str]
    kind: str | None = "json"
    fields: tuple[str, ...] = ()

    def matches(self, kind: str, names: frozenset[str], first: Sequence[Mapping[str, Any]]) -> bool:
        """Return True for files of this kind whose records have these fields."""
        has = (any(re.fullmatch(field, name) for name in names) for field in self.fields)
        return self.kind in (None, kind) and all(has)

    def survey(self, export: Export) -> None:  # noqa: B027 - most tools learn nothing
        """Learn from all records what `read` needs to know, such as which questions allow several choices."""

    @abstractmethod
    def read(self, export: Export, record: Record) -> Iterable[Answer]:
        """Return the answers of a record."""

    def answers(self, export: Export) -> Iterator[Answer]:
        """Yield the answers of all records, without those that cannot be read."""
        self.survey(export)
        for record in export.records():
            with export.part(record):
                yield from self.read(export, record)


def text_of(value: object) -> str | None:
    """Return a name as text, or None if it is missing. Raise ValueError for a list or an object."""
    if value is None or value == "":
        return None
    if isinstance(value, dict | list):
        raise ValueError(f"{str(value)[:40]!r} is not a name")
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return {True: "true", False: "false"}.get(value, str(value)) if isinstance(value, bool) else str(value)


def choices_of(value: object) -> tuple[str, ...]:
    """Return an answer as choices: one value, or a list of them. Raise ValueError for anything else."""
    values = value if isinstance(value, list | tuple) else [value]
    return tuple(text for each in values if (text := text_of(each)) is not None)


def is_true(value: object) -> bool:
    """Return True for true, "true", "yes" and 1 as tools write them."""
    return str(value).strip().lower() in ("true", "yes", "1", "1.0", "t", "x")


def seconds(value: object) -> float | None:
    """Return a time as seconds since the epoch, or None if it is missing or in an unknown format.

    In 3/1/2026 the month comes first, as Appen and Mechanical Turk write it.
    """
    if isinstance(value, datetime):
        return value.replace(tzinfo=value.tzinfo or UTC).timestamp()
    try:
        number = float(str(value))
        return number / 1000 if number > 1e11 else number if number == number else None
    except ValueError:
        pass
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # an unknown time zone
        try:
            return parse_time(str(value or ""), False, _COMPLETE)
        except (ValueError, OverflowError, Warning):
            return None


def number_of(value: object) -> float | None:
    """Return a duration as a number, or None if it is missing or not a number."""
    try:
        number = float(str(value))
    except ValueError:
        return None
    return number if 0 <= number < float("inf") else None


def answer_columns(export: Export, item: str, candidates: Iterable[str], named: Iterable[str] = ()) -> list[str]:
    """Return the columns of a table that hold answers: `named`, or those that differ within an item.

    Raise BadTable if no column does, so that the user chooses.
    """
    columns = list(candidates)
    if export.question is not None:
        chosen = [name for name in columns if export.wants(name)]
        if not chosen:
            raise BadTable(f"{export.path}: no column {export.question!r} (--question); found {listed(columns)}")
        return chosen
    first: dict[str, Mapping[str, Any]] = {}
    differing: set[str] = set(named)
    if not differing:
        for record in export.records():
            fields = record.fields
            earlier = first.setdefault(str(fields.get(item)), fields)
            differing |= {name for name in columns if fields.get(name) != earlier.get(name)}
    if not differing and len(columns) != 1:
        raise BadTable(
            f"{export.path}: which column holds the answers? None of them differs between the annotators of an item. "
            f"Choose one with --question: {listed(columns)}"
        )
    return [name for name in columns if name in differing] or columns
