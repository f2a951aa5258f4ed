"""The protocol of a kind of answer, the registry of kinds, and code shared by all kinds that mark parts.

Policies, stopping rules and figures need one label per item and annotator. If answers mark parts, that label is the
annotator's answer about one part of the item: the part about which annotators agree least.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hitl.annotations import Annotations, Name, Names
from hitl.errors import BadInput, BadSettings
from hitl.platform import NO, YES
from hitl.registry import Registry
from hitl.tables.encode import ANONYMOUS

if TYPE_CHECKING:
    from hitl.consensus import Consensus
    from hitl.evidence import Evidence
    from hitl.models.combiner import Combiner
    from hitl.parts import Part
    from hitl.platform import Question

KINDS = Registry(
    "hitl.kinds",
    "kind of answer",
    {
        "choices": "hitl.kinds.choices:Choices",
        "ordinal": "hitl.kinds.choices:Ordinal",
        "spans": "hitl.kinds.spans:TextSpans",
        "time_spans": "hitl.kinds.spans:TimeSpans",
        "boxes": "hitl.kinds.boxes:Boxes",
        "masks": "hitl.kinds.masks:Masks",
    },
)

NOTHING = "(nothing)"
"""Class of marks that are no part, and of an item without parts."""

DIGITS = 6
"""Decimals of a probability sent to the platform."""

Marked = Mapping[str, Any]
"""One part of an answer: its "label", and its place as in `hitl.parts.Part`."""

Place = Callable[[int], str]
"""Row number -> description of its location, for messages."""


class Judged(NamedTuple):
    """Question with the evidence about its items and the resulting consensus."""

    question: str
    evidence: Evidence
    consensus: Consensus


@dataclass(frozen=True)
class StoredAnswers:
    """Stored answers to one question. Each table is a function that reads it on demand.

    Attributes:
        question: the question.
        names: annotator's key -> name to show.
        items: table of item, data (JSON text), ...
        answers: table of item, annotator, label, time, duration.
        gold: table of item, label (the ground truth).
        annotations: answers that are one of the options; None for a kind with parts.
        predictions: model -> table of item, p_<class>, ...
    """

    question: Question
    names: Mapping[str, str]
    items: Callable[[], pa.Table]
    answers: Callable[[], pa.Table]
    gold: Callable[[], pa.Table]
    annotations: Callable[[], Annotations] | None = None
    predictions: Callable[[], Mapping[str, pa.Table]] = dict[str, pa.Table]

    def by_annotator(self) -> Iterator[tuple[Name, Name, str, float, float]]:
        """Yield item, annotator, label, time and duration (NaN if unknown) of each answer.

        The annotator is the name to show, or ANONYMOUS if the answer has none.
        """
        for row in self.answers().to_pylist():
            who = self.names.get(row["annotator"], row["annotator"]) or ANONYMOUS
            time, duration = (float("nan") if row[name] is None else float(row[name]) for name in ("time", "duration"))
            yield row["item"], who, row["label"], time, duration

    def known(self) -> dict[Name, str]:
        """Return item -> ground truth."""
        gold = self.gold()
        return dict(zip(gold.column("item").to_pylist(), gold.column("label").to_pylist(), strict=True))


class Kind(Protocol):
    """Reader, combiner and writer of one kind of answer."""

    of_parts: ClassVar[bool]
    """True if an answer marks parts of the item."""

    def read(self, answer: str) -> list[Marked]:
        """Read a stored label. Raise ValueError, KeyError or TypeError for a label of another kind."""
        ...

    def write(self, parts: Iterable[Marked]) -> str:
        """Write the label that encodes these parts."""
        ...

    def unusable(self, answers: Sequence[str | None], data: object) -> list[str | None]:
        """Return for each answer to one item why it cannot be used, or None.

        `answers`: all answers and ground truth of the item, None for a skip. `data`: the field whose parts are marked.
        """
        ...

    def evidence(self, stored: StoredAnswers) -> dict[str, Evidence]:
        """Build the evidence of a question: layer -> evidence. Classes whose parts may overlap are in different layers.

        The first layer has the name of the question. Raise BadInput for an answer that cannot be read.
        """
        ...

    def consensus(self, evidence: Evidence, method: Combiner) -> Consensus:
        """Combine the answers with a method for items."""
        ...

    def rows(self, layers: Sequence[Judged]) -> list[dict[str, Any]]:
        """Return the rows of the operation `consensus` (`hitl.platform.Operation`), for items with any evidence."""
        ...

    def table(self, layers: Sequence[Judged], names: Mapping[str, str]) -> pa.Table:
        """Return the consensus to export. Kinds with parts leave out items whose marks have changed since the fit.

        `names`: item's key -> the user's own id.
        """
        ...

    def answers(self, evidence: Evidence, names: Mapping[str, str]) -> pa.Table:
        """Return the answers to export. Raise BadSettings if this kind cannot export them."""
        ...

    def truth(self, table: pa.Table, question: Question, where: str, place_of: Place) -> dict[str, str]:
        """Read ground truth from a table. Return item -> label.

        `where` names the table in messages, `place_of` its rows. Raise BadTable for an invalid row, BadSettings if this
        kind cannot be read from tables.
        """
        ...


class _Answered(Protocol):
    @property
    def kind(self) -> str: ...


def kind_of(about: _Answered) -> Kind:
    """Return the kind of answer of a question, evidence or consensus. Raise BadSettings for an unknown one."""
    return _kind(about.kind)


@cache
def _kind(name: str) -> Kind:
    kind: Kind = KINDS.load(name)()
    return kind


def layers_by_question(evidence: Mapping[str, Evidence], results: Mapping[str, Consensus]) -> dict[str, list[Judged]]:
    """Group the results by question. A question with parts may have several layers."""
    layers: dict[str, list[Judged]] = {}
    for name, consensus in results.items():
        parts = evidence[name].parts
        layers.setdefault(name if parts is None else parts.question.name, []).append(
            Judged(name, evidence[name], consensus)
        )
    return layers


def by_control(evidence: Mapping[str, Evidence], results: Mapping[str, Consensus]) -> dict[str, list[Judged]]:
    """Group the results by what annotators answer at once: layers of parts, and the classes of a multiple choice."""
    layers = layers_by_question(evidence, results)
    controls = multiple_choices({question: own[0].consensus.classes for question, own in layers.items()})
    control_of = {question: control for control, of in controls.items() if len(of) > 1 for question in of.values()}
    groups: dict[str, list[Judged]] = {}
    for question, own in layers.items():
        groups.setdefault(control_of.get(question, question), []).extend(own)
    return groups


def multiple_choices(classes_of: Mapping[str, Names]) -> dict[str, dict[str, str]]:
    """Return control -> class -> question, for the multiple choices among some questions (name -> classes).

    Example:
        >>> multiple_choices({"topics=art": ("no", "yes"), "topics=law": ("no", "yes"), "mood": ("good", "bad")})
        {'topics': {'art': 'topics=art', 'law': 'topics=law'}}
    """
    controls: dict[str, dict[str, str]] = {}
    for question, classes in classes_of.items():
        control, joined, name = question.partition("=")
        if joined and {str(one) for one in classes} == {YES, NO}:
            controls.setdefault(control, {})[name] = question
    return controls


def answers_per_item(evidence: Mapping[str, Evidence]) -> npt.NDArray[np.int64]:
    """Return (N,) numbers of annotators who answered at least one question about each item."""
    first, *others = evidence.values()
    if not others:
        return first.annotations.labels_per_item
    code: dict[Name, int] = {}
    pairs = []
    for known in evidence.values():
        said = known.annotations
        own = np.array([code.setdefault(name, len(code)) for name in said.annotators], dtype=np.int64)
        pairs.append(np.stack([said.item.astype(np.int64), own[said.annotator]]))
    item = np.unique(np.concatenate(pairs, axis=1), axis=1)[0]
    return np.bincount(item, minlength=first.annotations.n_items)


def with_hidden(evidence: Mapping[str, Evidence], questions: Iterable[Question]) -> dict[str, Evidence]:
    """Mark the items whose annotators mostly did not see a conditional question. Their number decides, as by a vote."""
    conditional = {question.name for question in questions if question.conditional}
    if not conditional:
        return dict(evidence)
    asked_n = answers_per_item(evidence)

    def hidden(name: str, one: Evidence) -> npt.NDArray[np.bool_] | None:
        question = name if one.parts is None else one.parts.question.name
        return (2 * one.annotations.labels_per_item < asked_n) & ~one.known if question in conditional else None

    return {name: replace(one, hidden=hidden(name, one)) for name, one in evidence.items()}


def item_columns(keys: Sequence[Name], names: Mapping[str, str]) -> dict[str, pa.Array]:
    """Return the columns that name items in an export: "item", the user's ids, and "task", the keys, if they differ."""
    own = {"item": pa.array([names.get(str(key), str(key)) for key in keys], pa.string())}
    if all(key == name for key, name in names.items()):
        return own
    return own | {"task": pa.array(map(str, keys), pa.string())}


def is_answered(evidence: Evidence) -> npt.NDArray[np.bool_]:
    """Return (N,) True for items with an answer or ground truth."""
    return (evidence.annotations.labels_per_item > 0) | evidence.known


class PartsKind(ABC):
    """Base of all kinds that mark parts. Each kind adds `read`, `write`, `evidence` and `consensus`."""

    of_parts: ClassVar[bool] = True
    noun: ClassVar[str] = "parts"
    item_column: ClassVar[str] = "item"
    columns: ClassVar[Mapping[str, pa.DataType | None]] = {}
    """Columns of the exported consensus after the item, with their types.

    None: the type in `TYPES` or, if it has none, the type of the values: text or numbers.
    """

    @abstractmethod
    def read(self, answer: str) -> list[Marked]: ...

    def read_stored(self, item: Name, answer: str) -> list[Marked]:
        """Read the answer to an item. Raise BadInput for a label of another kind."""
        try:
            return self.read(answer)
        except (KeyError, TypeError, ValueError):
            raise BadInput(
                f"item {item}: a stored answer says no {self.noun}; was another control of this name there before? "
                "`hitl pull --full` reads all answers again"
            ) from None

    def unusable(self, answers: Sequence[str | None], data: object) -> list[str | None]:
        return [None if answer is None else self.why_unusable(answer, data) for answer in answers]

    def why_unusable(self, answer: str, data: object) -> str | None:
        """Return why this answer cannot be used, whatever the others are, or None."""
        return None

    def shown(self, part: Part) -> dict[str, Any]:
        """Return a part as it is sent to the platform."""
        return {"label": str(part.label), "confidence": round(part.probability, DIGITS), **part.place}

    def ordered(self, parts: list[Part]) -> list[Part]:
        """Sort the parts of one item."""
        return parts

    def rows(self, layers: Sequence[Judged]) -> list[dict[str, Any]]:
        """Return each item that has an answer or ground truth, with its parts.

        The confidence of an item is that of its least certain layer.
        """
        evidence, parts = layers[0].evidence, self._parts_by_item(layers)
        confidence_n = np.min([one.consensus.confidence for one in layers], axis=0)
        items = evidence.annotations.items
        return [
            {
                "item": str(items[n]),
                "confidence": round(float(confidence_n[n]), DIGITS),
                "parts": [self.shown(part) for part in parts.get(items[n], ())],
            }
            for n in np.flatnonzero(is_answered(evidence)).tolist()
        ]

    def table(self, layers: Sequence[Judged], names: Mapping[str, str]) -> pa.Table:
        """Return one row per part, and one row without a part for each item without parts."""
        _, evidence, result = layers[0]
        judged = {*result.items} - self.changed(evidence, [one.consensus for one in layers])
        items = [evidence.annotations.items[n] for n in np.flatnonzero(is_answered(evidence)).tolist()]
        parts = self._parts_by_item(layers)
        own = [(names.get(str(item), str(item)), parts.get(item, ())) for item in items if item in judged]
        return self.part_table(own, pa.string())

    def part_table(self, items: Iterable[tuple[Name, Sequence[Part]]], item_type: pa.DataType) -> pa.Table:
        """Return a table of items with their parts. `item_type` is the type of the items' names."""
        rows = [(item, {} if part is None else _cells(part)) for item, parts in items for part in parts or (None,)]
        values = {name: [cells.get(name) for _, cells in rows] for name in self.columns}
        types = {name: kind or TYPES.get(name) for name, kind in self.columns.items()}
        as_values = places_type([value for name, kind in types.items() if kind is None for value in values[name]])
        columns = {self.item_column: pa.array([item for item, _ in rows], item_type)}
        for name, kind in types.items():
            kind = kind or as_values
            columns[name] = pa.array(map(_text, values[name]) if pa.types.is_string(kind) else values[name], kind)
        return pa.table(columns)

    def answers(self, evidence: Evidence, names: Mapping[str, str]) -> pa.Table:
        """Raise BadSettings, because the platform exports such answers."""
        raise BadSettings(f"export: --annotations does not write {self.noun}; the platform exports them")

    def truth(self, table: pa.Table, question: Question, where: str, place_of: Place) -> dict[str, str]:
        """Raise BadSettings, because such ground truth is not read from tables."""
        raise BadSettings(
            f"{question.name}: known {self.noun} are not read from a table; mark an annotation as ground truth there"
        )

    def changed(self, evidence: Evidence, results: Sequence[Consensus]) -> set[Name]:
        """Return the items that were first marked after the fit. `evidence` may be newer than the results.

        At the fit they were unanswered: their probabilities are the class shares, and they have no parts.
        """
        labels, result = evidence.annotations, results[0]
        marked = {labels.items[n] for n in np.unique(labels.item[labels.label > 0]).tolist()}  # class 0 is nothing
        unanswered_n = np.isclose(result.probabilities, result.class_shares).all(axis=1)
        marked -= {part.item for part in result.parts}
        return marked.intersection(result.items[n] for n in np.flatnonzero(unanswered_n))

    def _parts_by_item(self, layers: Sequence[Judged]) -> dict[Name, list[Part]]:
        parts: dict[Name, list[Part]] = {}
        for part in (part for one in layers for part in one.consensus.parts if part.found):
            parts.setdefault(part.item, []).append(part)
        return {item: self.ordered(own) for item, own in parts.items()}


TYPES = {"label": pa.string(), "confidence": pa.float64(), "marked": pa.int64(), "answers": pa.int64()}
"""Types of columns that kinds share."""


def places_type(values: Iterable[Any]) -> pa.DataType:
    """Return the type of a column of values: text if any is text, else floats if any is a float, else integers."""
    types = {type(value) for value in values if value is not None}
    return pa.string() if str in types else pa.float64() if float in types else pa.int64()


def _text(value: Any) -> str | None:
    return None if value is None else json.dumps(value) if isinstance(value, list | tuple) else str(value)


def _cells(part: Part) -> dict[str, Any]:
    own = {"label": part.label, "confidence": part.probability, "marked": part.marked, "answers": part.answers}
    return own | dict(part.place)
