"""The contract of connectors: pages travel from a labeling platform to the store, operations back.

    Connector.pull(cursor) -> pages        rows keyed by the platform's own ids, and the cursor behind them
    Connector.push(operations) -> receipts   each says how something should be: the same twice changes nothing more

A page carries, for each of its items, all annotations the item has now: an annotation that is stored but no
longer on the page was deleted on the platform.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from functools import cached_property
from operator import add
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, overload

from hitl.errors import Refused

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from hitl.annotations import Names

Cursor = Mapping[str, Any]
"""Place where a pull stopped: JSON values, understood by the connector that made it."""

AnnotationKind = Literal["answer", "skip", "gold"]


@dataclass(frozen=True, slots=True)
class Question:
    """One thing asked of every item.

    A project with a single-choice control has one; a multi-label control has one yes/no question per class; a control
    that marks parts of an item has one.

    Attributes:
        name: unique in the project, stable (for instance "sentiment" or "topics=sports").
        classes: true classes; options: all legal answers, classes first. Of parts: what a part can be.
        kind: kind of answer, a name in `hitl.kinds.KINDS`: "choices" (one of the options), "spans" of a text,
            "time_spans" of a recording, "boxes" or "masks" on an image.
        field: the field of an item's data whose parts are marked.
    """

    name: str
    classes: Names
    options: Names
    kind: str = "choices"
    field: str = ""


YES, NO = "yes", "no"
"""The classes of a question that a multiple choice asks of each of its classes."""


@dataclass(frozen=True, slots=True)
class ItemRow:
    """An item as the platform holds it: `data` is what annotators see, `labels_wanted` how many of them (0: not told).

    `version` is ISO 8601 or anything else in an order; "" where the platform keeps none: the store then gives one, and
    what the platform says now is the newest. `key` is the platform's id. `ref` is the user's own id, by which
    `add_items` made the item; None where the platform keeps none, or where the two are the same.
    """

    key: str
    data: Mapping[str, Any]
    version: str
    labels_wanted: int = 0
    closed: bool = False
    ref: str | None = None


def id_in(data: Mapping[str, Any], field: str) -> str | None:
    """Return the own id in a field of an item's data as text (7 is "7"), None if it holds no text or whole number.

    Example:
        >>> id_in({"ref": 7, "text": "a"}, "ref"), id_in({"text": "a"}, "ref")
        ('7', None)
    """
    value = data.get(field)
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # a table with a gap has its whole numbers as 7.0
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    return str(value).strip() or None


@dataclass(frozen=True, slots=True)
class AnnotatorRow:
    """A person: the platform's key and the name we show (an email address, say)."""

    key: str
    name: str


@dataclass(frozen=True, slots=True)
class AnnotationRow:
    """One answer to one question (label None for a skip), of an annotation that may answer several.

    `key` is the platform's id of the annotation; `version` and `created` are ISO 8601 UTC, or "" as of an `ItemRow`;
    `annotator` is an AnnotatorRow key or None; `duration` seconds. `suggested`: it began as a suggestion, if told.
    """

    key: str
    item: str
    question: str
    annotator: str | None
    label: str | None
    kind: AnnotationKind
    version: str
    created: str
    duration: float | None = None
    suggested: bool | None = None


@dataclass(frozen=True, slots=True)
class PredictionRow:
    """A model's class probabilities for one item and question: class -> probability, sums to 1."""

    item: str
    question: str
    model: str
    probabilities: Mapping[str, float]


Row = TypeVar("Row")


class ColumnRows(Sequence[Row]):
    """Rows of a page that are kept in columns, as there may be millions; a row is made when it is looked at.

    Args:
        row: makes a row of the values of the columns, by name.
        columns: gives the columns of the rows of some items, by their places on the page (None: of all), in the order
            of the items. `data` and `probabilities` are JSON text.
        count: how many rows there are.
    """

    def __init__(self, row: Callable[..., Row], columns: Callable[[Any], pa.Table], count: int) -> None:
        self._row, self.columns, self._count = row, columns, count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Row]:
        return iter(self.of(None))

    @overload
    def __getitem__(self, place: int) -> Row: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[Row]: ...

    def __getitem__(self, place: int | slice) -> Row | Sequence[Row]:
        return self.of(None)[place]

    def of(self, items: Any) -> tuple[Row, ...]:
        """Return the rows of some items, by their places on the page."""
        return tuple(self._row(**values) for values in self.columns(items).to_pylist())


@dataclass(frozen=True)
class Page:
    """A part of what the platform holds, saved in one transaction with the cursor behind it.

    Attributes:
        cursor: where to go on after this page.
        items, annotations, predictions, annotators: rows; of every item *all* annotations and model predictions.
        live: keys of all items that exist now, or None when the page does not tell; stored items outside it
            were deleted on the platform.
        problems: rows that could not be understood, in words ("task 7: two choices on a single-choice control").
        total: how many items there are in all, for a progress bar, or None.
        partial: rows may be missing that the platform has; nothing stored is taken for deleted.
        latest: what the page says stands, also where a version is earlier than the stored one: the connector reads
            pages in the order in which it gives them, and its platform's clock may go back.
        digests: of a page with all items in `ColumnRows`: the keys of the items, and of each a digest (uint64) of all
            that the page says of it. An item is compared row by row only where its digest has changed.
    """

    cursor: Cursor
    items: Sequence[ItemRow] = ()
    annotations: Sequence[AnnotationRow] = ()
    predictions: Sequence[PredictionRow] = ()
    annotators: Sequence[AnnotatorRow] = ()
    live: frozenset[str] | None = None
    problems: tuple[str, ...] = ()
    total: int | None = None
    partial: bool = False
    latest: bool = False
    digests: tuple[pa.Array, npt.NDArray[np.uint64]] | None = None


@dataclass(frozen=True, slots=True)
class PullSummary:
    """Counts of a pull, or of a page of it: rows, rows that differed from the stored ones, rows gone, problems, pages.

    A pull without any page says that nothing there has changed, the questions included. `fixed`: items that the
    platform had changed without a later time, so that only a comparison has found them.
    """

    items: int = 0
    annotations: int = 0
    changed: int = 0
    deleted: int = 0
    problems: tuple[str, ...] = ()
    pages: int = 0
    fixed: int = 0

    def __add__(self, other: PullSummary) -> PullSummary:
        return PullSummary(*map(add, astuple(self), astuple(other)))


OperationKind = Literal["consensus", "order", "assign", "labels_wanted", "add_items", "gold"]


@dataclass(frozen=True)
class Operation:
    """A state that something on the platform should have. A later operation with the same (kind, key) replaces it.

    kind, key and payload (JSON values; item and annotator are platform keys):

        consensus      {"questions": {question: [{"item", "label", "confidence", "probabilities": {class: p}}]}}
                       of items whose parts are marked "parts": [{"label", "confidence", ...}] in place of "label" and
                       "probabilities"; beside them stand the places (`hitl.parts.Part.place`)
        order          {"items": [item, ...], "by": mark}  the first is served first; the mark is that of the store
        assign         {"items": [item, ...]}              key = annotator; empty: nothing to do for them
        labels_wanted  {"items": {item: n}}                n > answers so far: open; else: closed
        add_items      {"items": [{"key", "data"}, ...]}   key = batch name; items known by our own keys
        gold           {"questions": {question: {item: label}}}   known truth, shown as such

    The key is "" where nothing else is said.
    """

    kind: OperationKind
    key: str
    payload: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def digest(self) -> str:
        """Hex digest of kind, key and payload: equal operations have equal digests."""
        text = json.dumps([self.kind, self.key, self.payload], sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Receipt:
    """The platform is as the operation says. `changed` counts what had to be changed (0: it already was)."""

    operation: Operation
    changed: int
    detail: str = ""


Progress = Callable[[str, int, int | None], None]
"""Called with (what, done, total or None) during long work."""


def silent(what: str, done: int, total: int | None) -> None:
    """A Progress that shows nothing."""


@dataclass(frozen=True)
class Check:
    """One line of `hitl doctor`: what was looked at, whether it is fine, and how to fix it if not."""

    name: str
    ok: bool
    detail: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class HeldItem:
    """An item that is stored: its version and the keys of its annotations."""

    version: str
    annotations: frozenset[str]


class Held(Protocol):
    """Live rows of a project in the store, for a connector to compare with its platform."""

    def count(self, until: str | None = None, without: Collection[str] = ()) -> tuple[int, int]:
        """Count items, without some and with versions up to this, and their annotations."""
        ...

    def latest(self, until: str) -> str | None:
        """Return the latest version of an item up to this one, or None."""
        ...

    def stored(self, keys: Collection[str] | None = None) -> Mapping[str, HeldItem]:
        """Return those of the items that are stored; default: all."""
        ...


@dataclass(frozen=True, slots=True)
class SeenAnswer:
    """An annotation's answer to a question: as in `AnnotationRow`, without times."""

    key: str
    question: str
    annotator: str | None
    label: str | None
    kind: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All evidence at one time.

    Attributes:
        answers: item -> its answers; every item is there.
        data: item -> what annotators see of it.
        predictions: (item, question, model) -> class probabilities.
    """

    answers: Mapping[str, frozenset[SeenAnswer]]
    data: Mapping[str, Mapping[str, Any]]
    predictions: Mapping[tuple[str, str, str], Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference between platform and store: what it is, which one, and why."""

    what: str
    key: str
    why: str


@dataclass(frozen=True, slots=True)
class Pages:
    """Name of an annotator (as in `AnnotatorRow`) -> address of the page, and what to know there, in a sentence."""

    links: Mapping[str, str] = field(default_factory=dict)
    advice: str = ""


class Connector(ABC):
    """A labeling platform or a folder of files: evidence is pulled from it, plans are pushed to it.

    Four methods are required. The others have defaults for a platform that cannot do what they ask for.
    """

    @abstractmethod
    def questions(self) -> tuple[Question, ...]:
        """Return what the project asks of every item. Raises Refused for what is not supported."""

    @abstractmethod
    def pull(self, cursor: Cursor | None) -> Iterator[Page]:
        """Read everything (cursor None) or what changed since the cursor; resumable after each page."""

    @abstractmethod
    def push(self, operations: Iterable[Operation]) -> Iterator[Receipt]:
        """Make the platform as each operation says, verify it, and give a receipt; in the order given."""

    @abstractmethod
    def check(self) -> list[Check]:
        """Return the lines of `hitl doctor`: connection, rights, configuration."""

    @property
    def place(self) -> str | None:
        """Address and project, or a path: no other place is taken for this one. None: it cannot be told."""
        return None

    def is_at(self, place: str) -> bool:
        """Return True if a stored `place` is this one."""
        return self.place in (None, place)

    def annotators(self) -> tuple[AnnotatorRow, ...] | None:
        """Return everyone who can be asked, those too who have not answered yet; None if the platform cannot tell."""
        return None

    def workplaces(self) -> Pages:
        """Return the page where each annotator finds their questions; annotators without a page are left out."""
        return Pages()

    def marks(self) -> frozenset[str]:
        """Return `by` (see `Operation`) of the orders that the platform carries, to notice those of other stores."""
        return frozenset()

    def serves(self, address: str) -> bool:
        """Return True if the platform serves the file at an address in an item's data, to those who have its token."""
        return False

    def fetch(self, address: str) -> bytes:
        """Return the content of a file that the platform serves. Raises Refused and Unreachable."""
        raise Refused(f"{address}: not a file of this platform")

    def recall(self, cursor: Cursor | None) -> None:  # noqa: B027 - a default
        """Take note of where the last pull stopped.

        Until the next pull, `questions` include what the stored rows say, and a pull from the beginning doubts mass
        deletions since then.
        """

    def accept_deletions(self) -> None:  # noqa: B027 - a default
        """Take rows that are gone for deleted, however many they are."""

    def compare(self, cursor: Cursor, held: Held) -> Iterator[Page]:
        """Read what a pull missed because it goes by time; called with what is stored when a pull has ended."""
        return iter(())

    @property
    def lease_seconds(self) -> float:
        """The shortest lease within which each request ends."""
        return 0.0

    def fence(self, may_write: Callable[[], float] | None) -> None:  # noqa: B027 - a default
        """Call `may_write` before every write: it raises, or gives the seconds left for writing. None: no fence."""

    def snapshot(self, progress: Progress = silent) -> Snapshot:
        """Read all evidence without the code that pulls, if there is another way; by default pull all of it."""
        answers: dict[str, set[SeenAnswer]] = {}
        data: dict[str, Mapping[str, Any]] = {}
        predictions: dict[tuple[str, str, str], Mapping[str, float]] = {}
        for page in self.pull(None):
            for item in page.items:
                answers.setdefault(item.key, set())
                data[item.key] = item.data
            for row in page.annotations:
                answer = SeenAnswer(row.key, row.question, row.annotator, row.label, row.kind)
                answers.setdefault(row.item, set()).add(answer)
            predictions |= {(row.item, row.question, row.model): row.probabilities for row in page.predictions}
            progress("audit", len(answers), page.total)
        return Snapshot({item: frozenset(rows) for item, rows in answers.items()}, data, predictions)

    def departures(self, operations: Sequence[Operation], progress: Progress = silent) -> Iterable[Difference] | None:
        """Find where the platform is not as these operations say, and what of ours none of them says.

        None: what was pushed cannot be read back.
        """
        return None

    def verify(self, operations: Iterable[Operation]) -> Iterator[Receipt]:
        """Push, but compare what is there as a whole, which takes longer, and fix it where it differs."""
        return self.push(operations)
