"""`Plan`: the next questions and their annotators, and the done items with their labels.

A plan is plain data, which can be printed, compared, stored as JSON, and pushed later.
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
from hitl.tables.write import write_table

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pandas as pd

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Ask:
    """One question: an item for an annotator (None: for anyone).

    Attributes:
        item: item to label.
        annotator: annotator to ask.
        gain: expected gain of the answer (`ExpectedGain`: right labels, plus a share of the information in nats).
        right: probability that the answer is right, in [0, 1].
        why: reason for the question, in words.
        since: when the question was first asked (seconds since the epoch); 0 if times are not recorded.
        check: True for a gold question, which measures the annotator: the item's truth was known when it was asked, and
            the item is already done.
        seconds: expected time to answer, in seconds; 0 if unknown.
        probability: inclusion probability of the item, in (0, 1], given everything known before the plan was made. Its
            inverse weights the answer (`hitl.models.analysis.audited_agreement`). 1 if items are not drawn at random;
            None if unknown.
        audit: True if the item was drawn at random from all eligible items, done or open, to measure the quality of the
            labels.
        sent_back: True if a user sent the item back to the annotator; the new answer replaces the old one.
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
    """An item sent back to an annotator, to check their own answer or as an expert.

    Attributes:
        item, annotator: as in `Ask`.
        since: when it was sent back (seconds since the epoch).
        note: what to check.
        by: user who sent it back.
        answered: True if they have answered it since, skipped it, or marked its ground truth.
    """

    item: Name
    annotator: Name
    since: float
    note: str = ""
    by: str = ""
    answered: bool = False


@dataclass(frozen=True, slots=True)
class Done:
    """A done item: its labels (one per question, in order), its confidence, and why it is done."""

    item: Name
    labels: tuple[Name, ...]
    confidence: float
    why: str


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class DoneItems(Sequence[Done]):
    """Done items as columns, because there may be a million. A `Done` is created on access.

    It equals any sequence of equal `Done`.

    Attributes:
        items: names of the M done items.
        labels: M tuples of labels, one label per question.
        confidence: M numbers in [0, 1].
        why: M reasons.
        rows: (M,) row numbers of the items in the evidence; None if unknown.
    """

    items: Sequence[Name]
    labels: Sequence[tuple[Name, ...]]
    confidence: Sequence[float]
    why: Sequence[str]
    rows: npt.NDArray[np.int64] | None = None

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
    """A question that was asked at `since` (seconds since the epoch), not answered in time, and dropped."""

    item: Name
    annotator: Name
    since: float


@dataclass(frozen=True, slots=True)
class Activity:
    """Last activity of an annotator.

    Attributes:
        annotator: name of the annotator.
        answers: number of answers and skips when the last plan was made.
        last_active: when a plan last found more answers or skips than the plan before it (seconds since the epoch; 0:
            never).
        away: True if a question expired after they were last active, or would have if others had not answered it.
        unanswered: when they were asked the first question after they were last active that was settled without their
            answer (seconds since the epoch; 0: none).
    """

    annotator: Name
    answers: int
    last_active: float
    away: bool = False
    unanswered: float = 0.0


@dataclass(frozen=True, repr=False)
class Plan(OneLineRepr):
    """Next questions, and done items.

    Attributes:
        asks: questions in serving order. An item appears once per annotator asked.
        done: done items: any sequence of `Done`, converted to `DoneItems`.
        open_items: number of items that are not done.
        stop: why the project is done and nothing is asked any more; None while it continues.
        expired: expired questions whose items are still open.
        people: last activity of the annotators, for the next plan (`hitl.active.pending.outstanding`).

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
        """Return the questions for one annotator (None: for anyone), in serving order."""
        return tuple(ask for ask in self.asks if ask.annotator == annotator)

    @property
    def done_share(self) -> float:
        """Share of items that are done, in [0, 1]; NaN if there are no items."""
        total = len(self.done) + self.open_items
        return len(self.done) / total if total else float("nan")

    @property
    def annotators(self) -> tuple[Name, ...]:
        """Annotators asked by name, in order of their first question."""
        return tuple(dict.fromkeys(ask.annotator for ask in self.asks if ask.annotator is not None))

    def __str__(self) -> str:
        whom = counted(len(self.annotators), "annotator") if self.annotators else "anyone"
        asked = f"no more questions ({self.stop})" if self.stop else f"{counted(len(self.asks), 'question')} for {whom}"
        if not (self.asks or self.stop):
            asked = "no questions"
        return f"{asked}; {counted(len(self.done), 'item')} done, {self.open_items} open"

    def table(self) -> pa.Table:
        """Return an Arrow table of the questions: priority (1 first), and the fields of `Ask`.

        The fields since and sent_back are left out. An annotator of null means anyone, seconds of null unknown.
        """
        rows = [{"priority": rank, **asdict(ask)} for rank, ask in enumerate(self.asks, start=1)]
        for row in rows:
            row["item"] = str(row["item"])
            row["annotator"] = None if row["annotator"] is None else str(row["annotator"])
            row["seconds"] = row["seconds"] or None
        return pa.Table.from_pylist(rows, schema=_ASK_SCHEMA)

    def frame(self) -> pd.DataFrame:
        """Return the questions as a pandas DataFrame."""
        frame: pd.DataFrame = self.table().to_pandas()
        return frame

    def write(self, path: str | Path) -> None:
        """Write the questions as CSV, JSON Lines or Parquet."""
        write_table(path, self.table())

    def to_json(self) -> str:
        """Return the plan as one JSON object with a version."""
        data = {"format": FORMAT, "asks": list(map(_as_dict, self.asks)), "done": list(map(_as_dict, self.done))}
        data |= {"open_items": self.open_items, "stop": self.stop}
        data |= {"expired": list(map(_as_dict, self.expired)), "people": list(map(_as_dict, self.people))}
        return json.dumps(data, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str, where: str = "plan") -> Plan:
        """Read the output of `to_json`. Raises BadTable for another version or other JSON."""
        try:
            data: dict[str, Any] = json.loads(text)
            if data["format"] != FORMAT:
                raise BadTable(f"{where}: saved as format {data['format']}; this version of hitl reads {FORMAT}")
            asks = tuple(Ask(**row) for row in data["asks"])
            done = tuple(Done(**{**row, "labels": tuple(row["labels"])}) for row in data["done"])
            expired = tuple(Expired(**row) for row in data["expired"])
            people = tuple(Activity(**row) for row in data["people"])
            return cls(asks, done, data["open_items"], data["stop"], expired, people)
        except BadTable:
            raise
        except (KeyError, TypeError, ValueError) as error:
            raise BadTable(f"{where}: not a saved plan: {error}") from None


def _as_dict(row: Ask | Done | Expired | Activity) -> dict[str, Any]:
    """Convert like `asdict`, but without copying every value, because there may be a million rows."""
    return {name: getattr(row, name) for name in row.__slots__}


_ASK_SCHEMA = pa.schema(
    {"priority": pa.int64(), **dict.fromkeys(("item", "annotator"), pa.string())}
    | {"gain": pa.float64(), "right": pa.float64(), "why": pa.string(), "check": pa.bool_()}
    | {"seconds": pa.float64(), "probability": pa.float64(), "audit": pa.bool_()}
)
