"""`Plan`: what to ask next and whom, and which items are done with what label. It is data.

It can be printed, compared, dry-run, stored as JSON and pushed later; `asks` are in the order in which they
should be served.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from operator import eq
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import pyarrow as pa

from hitl.annotations import Name
from hitl.errors import BadTable
from hitl.formatting import OneLineRepr, counted
from hitl.tables.files import atomic, write_table

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pandas as pd

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Ask:
    """One question: this item, to this annotator (None: to anyone).

    Attributes:
        item, annotator: what is asked, and whom.
        gain: what the policy expects of the answer (`ExpectedGain`: right labels, and a share of the information in
            nats).
        right: the chance that the answer is right.
        why: in words.
        since: when it was first asked (seconds since the epoch), 0 where the time is not kept.
        check: the item's truth was known when it was asked, and the answer is to tell how good the annotator is (a
            gold question); the item is done already.
        seconds: how long the answer is expected to take, 0 where that is unknown.
        probability: the chance, in (0, 1], with which this item came into this plan, given all that was known before
            the plan was made; None where that is not known. 1 where nothing is drawn: what was chosen for its value
            would be chosen again, and says nothing about the items that were not. Where items are drawn it is their
            inclusion probability, by which answers are weighted (`hitl.models.analysis.audited_agreement`).
        audit: the item was drawn at random from all that might be asked about, done or open, and the answer is to tell
            how good the labels are.
        sent_back: somebody has sent the item back to the annotator; if they have labeled it before, their new answer
            takes the place of the old one.
    """

    item: Name
    annotator: Name | None
    gain: float
    right: float
    why: str
    since: float = 0.0
    check: bool = False
    seconds: float = 0.0
    probability: float | None = 1.0
    audit: bool = False
    sent_back: bool = False


@dataclass(frozen=True, slots=True)
class Rework:
    """An item that was sent back: this annotator is to look at it, again or as an expert.

    Attributes:
        item, annotator: as in `Ask`.
        since: when it was sent back (seconds since the epoch); an answer from later is what was asked for.
        note: what to look at; by: who sent it back.
    """

    item: Name
    annotator: Name
    since: float
    note: str = ""
    by: str = ""


@dataclass(frozen=True, slots=True)
class Done:
    """One finished item: its label (for several questions an item, a label each, in order) and the reason."""

    item: Name
    labels: tuple[Name, ...]
    confidence: float
    why: str


class DoneItems(Sequence[Done]):
    """Finished items in columns, as there may be a million; a `Done` is made of one that is looked at.

    It equals any sequence of the same items.

    Attributes:
        items: M names.
        labels: of each item its label of each question.
        confidence: M numbers in [0, 1].
        why: M reasons.
        rows: where the items stand among those that the plan is about; None where that is not known.
    """

    __slots__ = ("confidence", "items", "labels", "rows", "why")

    def __init__(
        self,
        items: Sequence[Name],
        labels: Sequence[tuple[Name, ...]],
        confidence: Sequence[float],
        why: Sequence[str],
        rows: npt.NDArray[np.int64] | None = None,
    ) -> None:
        self.items = items
        self.labels = labels
        self.confidence = confidence
        self.why = why
        self.rows = rows

    @classmethod
    def of(cls, done: Sequence[Done]) -> DoneItems:
        """Convert to columns."""
        if isinstance(done, DoneItems):
            return done
        item, labels, confidence, why = (
            [getattr(one, name) for one in done] for name in ("item", "labels", "confidence", "why")
        )
        return cls(item, labels, confidence, why)

    def __len__(self) -> int:
        return len(self.items)

    @overload
    def __getitem__(self, place: int) -> Done: ...

    @overload
    def __getitem__(self, place: slice) -> DoneItems: ...

    def __getitem__(self, place: int | slice) -> Done | DoneItems:
        if isinstance(place, slice):
            return DoneItems(self.items[place], self.labels[place], self.confidence[place], self.why[place])
        return Done(self.items[place], self.labels[place], self.confidence[place], self.why[place])

    def __iter__(self) -> Iterator[Done]:
        return map(Done, self.items, self.labels, self.confidence, self.why)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(eq, self, other))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))


@dataclass(frozen=True, slots=True)
class Expired:
    """A question that was never answered: asked at `since` (seconds since the epoch), given up later."""

    item: Name
    annotator: Name
    since: float


@dataclass(frozen=True, slots=True)
class Activity:
    """Last activity of an annotator.

    Attributes:
        annotator: who.
        answers: what they had answered or skipped when a plan was last made.
        last_active: when a plan first saw that number rise to it (seconds since the epoch; 0: never).
        away: whether their questions expired since, and they answered or skipped nothing.
        unanswered: since when they have had questions and answered none, of which others did some (0: none were).
    """

    annotator: Name
    answers: int
    last_active: float
    away: bool = False
    unanswered: float = 0.0


@dataclass(frozen=True, repr=False)
class Plan(OneLineRepr):
    """Next questions, and the finished items.

    Attributes:
        asks: questions in serving order, first to be served first; an item may stand here once for each
            annotator asked.
        done: finished items; any sequence of `Done` can be given, and `DoneItems` are kept.
        open_items: how many items are not done (asked now or later).
        stop: why the project is done and nothing is asked any more; None while it goes on.
        expired: questions given up for want of an answer, whose items are still open.
        people: when the crew was last active; kept for the next plan (`hitl.active.pending.outstanding`).

    Example:
        >>> from hitl import Plan
        >>> from hitl.plan import Ask
        >>> plan = Plan((Ask("item 7", "ann", gain=0.3, right=0.9, why="least sure"),), (), 12)
        >>> plan.annotators, plan.asks_of("ann")[0].item
        (('ann',), 'item 7')
    """

    asks: tuple[Ask, ...] = ()
    done: Sequence[Done] = ()
    open_items: int = 0
    stop: str | None = None
    expired: tuple[Expired, ...] = ()
    people: tuple[Activity, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "done", DoneItems.of(self.done))

    def asks_of(self, annotator: Name | None) -> tuple[Ask, ...]:
        """The questions for one annotator (None: those for anyone), in serving order."""
        return tuple(ask for ask in self.asks if ask.annotator == annotator)

    @property
    def done_share(self) -> float:
        """Share of the items that are done, in [0, 1]; NaN without any."""
        total = len(self.done) + self.open_items
        return len(self.done) / total if total else float("nan")

    @property
    def annotators(self) -> tuple[Name, ...]:
        """The annotators asked by name, in order of their first question."""
        return tuple(dict.fromkeys(ask.annotator for ask in self.asks if ask.annotator is not None))

    def __str__(self) -> str:
        whom = counted(len(self.annotators), "annotator") if self.annotators else "anyone"
        asked = f"done: {self.stop}" if self.stop else f"{counted(len(self.asks), 'question')} for {whom}"
        if not (self.asks or self.stop):
            asked = "no questions"
        return f"{asked}; {counted(len(self.done), 'item')} done, {self.open_items} open"

    def table(self) -> pa.Table:
        """Arrow table of the questions: priority (1 first), item, annotator and the other fields of `Ask` but since."""
        rows = [{"priority": rank, **asdict(ask)} for rank, ask in enumerate(self.asks, start=1)]
        for row in rows:
            row["item"] = str(row["item"])
            row["annotator"] = None if row["annotator"] is None else str(row["annotator"])
            row["seconds"] = row["seconds"] or None
        return pa.Table.from_pylist(rows, schema=_ASK_SCHEMA)

    def frame(self) -> pd.DataFrame:
        """The questions as a pandas DataFrame."""
        frame: pd.DataFrame = self.table().to_pandas()
        return frame

    def done_table(self) -> pa.Table:
        """Arrow table of the finished items: item, label, confidence, why."""
        done = DoneItems.of(self.done)
        columns = {
            "item": list(map(str, done.items)),
            "label": [",".join(map(str, labels)) for labels in done.labels],
            "confidence": list(done.confidence),
            "why": done.why,
        }
        return pa.table(columns, schema=_DONE_SCHEMA)

    def write(self, path: str | Path) -> None:
        """Write the questions as CSV, JSON Lines or Parquet."""
        write_table(path, self.table())

    def to_json(self) -> str:
        """The plan as one JSON object that starts with its version."""
        done = [{"item": d.item, "labels": d.labels, "confidence": d.confidence, "why": d.why} for d in self.done]
        data = {"format": FORMAT, "asks": list(map(_as_dict, self.asks)), "done": done}  # they may be a million
        data |= {"open_items": self.open_items, "stop": self.stop}
        data |= {"expired": list(map(_as_dict, self.expired)), "people": list(map(_as_dict, self.people))}
        return json.dumps(data, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str, where: str = "plan") -> Plan:
        """Read the result of `to_json`. Raises BadTable for another version or other JSON."""
        try:
            data: dict[str, Any] = json.loads(text)
            if data["format"] != FORMAT:
                raise BadTable(f"{where}: saved as format {data['format']}; this version of hitl reads {FORMAT}")
            asks = tuple(Ask(**row) for row in data["asks"])
            done = tuple(Done(**{**row, "labels": tuple(row["labels"])}) for row in data["done"])
            expired = tuple(Expired(**row) for row in data["expired"])
            people = tuple(Activity(**row) for row in data["people"])
            return cls(asks, done, data["open_items"], data["stop"], expired, people)
        except (KeyError, TypeError, ValueError) as error:
            raise BadTable(f"{where}: not a saved plan: {error}") from None

    def save(self, path: str | Path) -> None:
        """Save as a JSON file; `Plan.load` gives it back."""
        with atomic(path) as handle:
            handle.write(self.to_json().encode())

    @classmethod
    def load(cls, path: str | Path) -> Plan:
        """Load what `save` wrote."""
        try:
            return cls.from_json(Path(path).read_text(encoding="utf-8"), where=str(path))
        except OSError as error:
            raise BadTable(f"{path}: {error.strerror}") from None
        except UnicodeDecodeError as error:
            raise BadTable(f"{path}: not a saved plan: {error}") from None


def _as_dict(row: Ask | Expired | Activity) -> dict[str, Any]:
    """Convert like `asdict`, without copying every value."""
    return {name: getattr(row, name) for name in row.__slots__}


_ASK_SCHEMA = pa.schema(
    [
        ("priority", pa.int64()),
        ("item", pa.string()),
        ("annotator", pa.string()),
        ("gain", pa.float64()),
        ("right", pa.float64()),
        ("why", pa.string()),
        ("check", pa.bool_()),
        ("seconds", pa.float64()),
        ("probability", pa.float64()),
        ("audit", pa.bool_()),
    ]
)
_DONE_SCHEMA = pa.schema(
    [("item", pa.string()), ("label", pa.string()), ("confidence", pa.float64()), ("why", pa.string())]
)
