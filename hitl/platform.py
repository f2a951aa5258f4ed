"""The contract of connectors: pages in, operations out. Long because a connector can be written from this page alone.

    Connector.pull(cursor) -> pages          rows keyed by the platform's own ids, and the cursor after them
    Connector.push(operations) -> receipts   each operation describes a state, so repeating it changes nothing

A page contains, for each of its items, all annotations the item has now. A stored annotation that is missing from the
page was deleted on the platform.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from functools import cached_property
from operator import add
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from hitl.errors import Refused

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from hitl.annotations import Names

Cursor = Mapping[str, Any]
"""Position where a pull stopped, as JSON values that only the connector interprets."""

AnnotationKind = Literal["answer", "skip", "gold"]


@dataclass(frozen=True, slots=True)
class Question:
    """A question asked about every item. A multi-label control has one yes/no question per class.

    Attributes:
        name: name, unique in the project and stable (for instance "sentiment" or "topics=sports").
        classes: possible true classes. If parts are marked: possible labels of a part.
        options: all valid answers, the classes first.
        kind: kind of answer, a name in `hitl.kinds.KINDS`.
        field: field of an item's data in which parts are marked; "" if none are.
        conditional: True if annotators see the question only after some answers to others.
    """

    name: str
    classes: Names
    options: Names
    kind: str = "choices"
    field: str = ""
    conditional: bool = False


YES, NO = "yes", "no"
"""Classes of the yes/no question about each class of a multiple choice."""


@dataclass(frozen=True, slots=True)
class ItemRow:
    """An item on the platform.

    Attributes:
        key: the platform's id.
        data: fields shown to annotators.
        version: ISO 8601 or any other sortable text. "" if the platform has no versions; the store then assigns one and
            treats the platform's current data as newest.
        labels_wanted: number of annotators who should answer; 0 if unknown.
        closed: True if the platform no longer serves the item to annotators.
        ref: the user's own id under which `add_items` created the item; None if the platform does not store it, or if
            it is the key.
    """

    key: str
    data: Mapping[str, Any]
    version: str
    labels_wanted: int = 0
    closed: bool = False
    ref: str | None = None


def id_in(data: Mapping[str, Any], field: str) -> str | None:
    """Return the user's own id from a field of an item's data, as text ("7" for 7).

    Return None unless the value is non-empty text or a whole number.
    """
    from hitl.tables.columns import plain_name

    value = data.get(field)
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # a column with missing values reads whole numbers as 7.0
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    return plain_name(str(value).strip()) or None


@dataclass(frozen=True, slots=True)
class AnnotatorRow:
    """An annotator: the platform's key, and the name to show (such as an email address).

    `named`: False if the platform has no name for them any more, so that a stored name stays.
    """

    key: str
    name: str
    named: bool = True


@dataclass(frozen=True, slots=True)
class AnnotationRow:
    """One answer to one question. An annotation that answers several questions has a row for each.

    Attributes:
        key: the platform's id of the annotation.
        item, annotator: keys as in `ItemRow` and `AnnotatorRow`; the annotator is None if unknown.
        question: name of the question.
        label: the answer; None for a skip.
        kind: "answer", "skip" or "gold" (ground truth).
        version, created: ISO 8601 in UTC; "" as in `ItemRow`.
        duration: seconds the answer took, or None if unknown.
        suggested: True if the answer began as a suggestion; None if the platform does not report this.
        note: why the annotation cannot be read and is a skip, or how the answer was repaired; None: read as it is. What
            to do about it may follow on a line of its own.
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
    note: str | None = None


@dataclass(frozen=True, slots=True)
class PredictionRow:
    """A model's class probabilities for one item and question: class -> probability, sums to 1."""

    item: str
    question: str
    model: str
    probabilities: Mapping[str, float]


Row = TypeVar("Row")


class ColumnRows(Sequence[Row]):
    """Rows of a page stored as columns, because there may be millions. A row is created on access.

    `row` creates a row from its values, by name. `columns` takes positions of items on the page (None: all) and returns
    a table of their rows, in the order of the items; `data` and `probabilities` are JSON text. `count`: number of rows.
    """

    def __init__(self, row: Callable[..., Row], columns: Callable[[Any], pa.Table], count: int) -> None:
        self._row, self.columns, self._count = row, columns, count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Row]:
        return iter(self.of(None))

    def __getitem__(self, place: Any) -> Any:
        return self.of(None)[place]

    def of(self, items: Any) -> tuple[Row, ...]:
        """Return the rows of the items at these positions on the page; None: of all items."""
        return tuple(self._row(**values) for values in self.columns(items).to_pylist())


@dataclass(frozen=True)
class Page:
    """A part of the platform's data, saved in one transaction with the cursor after it.

    Attributes:
        cursor: where to continue after this page.
        items: rows of items.
        annotations, predictions: *all* annotations and model predictions of these items.
        annotators: rows of annotators.
        live: keys of all items that exist now, or None if unknown. Stored items that are not listed were deleted on the
            platform.
        problems: rows that could not be read, in words ("task 7: two choices on a single-choice control").
        total: number of items that the pull will read, for a progress bar; None if unknown.
        partial: True if rows may be missing on the page, so that no stored row counts as deleted.
        latest: True if the page replaces stored rows even if they have a later version, because the connector yields
            pages in the order read and the platform's clock may go back.
        digests: keys of the items, and for each a digest (uint64) of everything about it on the page. Only items with a
            changed digest are compared row by row. Only for pages of `ColumnRows`.
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
    """Counts of a pull, or of one page.

    Attributes:
        items, annotations: number of rows read.
        changed: number of rows that differed from the stored ones, other than in what a push of our own changes.
        deleted: number of rows deleted.
        problems: rows that could not be read, in words.
        pages: number of pages. 0 means that nothing has changed, including the questions.
        fixed: number of items that the platform had changed without a later time, found only by comparison.
    """

    items: int = 0
    annotations: int = 0
    changed: int = 0
    deleted: int = 0
    problems: tuple[str, ...] = ()
    pages: int = 0
    fixed: int = 0

    def __add__(self, other: PullSummary) -> PullSummary:
        total = PullSummary(*map(add, astuple(self), astuple(other)))
        return replace(total, problems=tuple(dict.fromkeys(total.problems)))


OperationKind = Literal["consensus", "order", "assign", "labels_wanted", "add_items", "gold"]
SUBJECTS: Mapping[OperationKind, str] = {
    "consensus": "consensus",
    "order": "order of the items",
    "assign": "questions",
    "labels_wanted": "labels wanted",
    "add_items": "items",
    "gold": "ground truth",
}
"""Subject of each kind of operation, for messages."""


@dataclass(frozen=True)
class Operation:
    """A desired state on the platform. A later operation with the same (kind, key) replaces it.

    kind, key and payload (JSON values; item and annotator are platform keys):

        consensus      {"questions": {question: [{"item", "label", "confidence", "probabilities": {class: p}}]}}
                       items whose parts are marked have "parts": [{"label", "confidence", ...}] instead of "label" and
                       "probabilities", each with its place (`hitl.parts.Part.place`)
        order          {"items": [item, ...], "by": mark}  serving order; the mark identifies the store
        assign         {"items": [item, ...]}              key = annotator; empty: no questions for them
        labels_wanted  {"items": {item: n}}                n: total answers wanted; an item that has them is closed
        add_items      {"items": [{"key", "data"}, ...]}   key = batch name; the items' keys are the user's own ids
        gold           {"questions": {question: {item: label}}}   ground truth, shown as such

    The key is "" unless stated otherwise.
    """

    kind: OperationKind
    key: str
    payload: Mapping[str, Any] = field(default_factory=dict)

    @property
    def subject(self) -> str:
        """Subject of the operation, for messages: "questions of ann"."""
        return SUBJECTS[self.kind] + (f" of {self.key}" if self.key else "")

    @cached_property
    def digest(self) -> str:
        """Hex digest of kind, key and payload: equal operations have equal digests."""
        text = json.dumps([self.kind, self.key, self.payload], sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Receipt:
    """Confirmation that the platform matches an operation. `changed`: number of changes made; 0: it already matched."""

    operation: Operation
    changed: int
    detail: str = ""


Progress = Callable[[str, int, int | None], None]
"""Callback for long work: name of the step, number done, and total number or None."""


def silent(what: str, done: int, total: int | None) -> None:
    """Ignore progress."""


@dataclass(frozen=True)
class Check:
    """One line of `hitl doctor`: what was checked, its result, and how to fix it if it failed.

    `warns`: nothing is broken, but the detail matters. `stops`: further checks need what failed.
    """

    name: str
    ok: bool
    detail: str
    fix: str = ""
    warns: bool = False
    stops: bool = False


@dataclass(frozen=True, slots=True)
class HeldItem:
    """A stored item: its version and the keys of its annotations."""

    version: str
    annotations: frozenset[str]


class Held(Protocol):
    """Live rows of a project in the store, for a connector to compare with its platform."""

    def count(self, until: str | None = None, without: Collection[str] = ()) -> tuple[int, int]:
        """Return the number of items, excluding `without` and versions after `until`, and of their annotations."""
        ...

    def latest(self, until: str) -> str | None:
        """Return the latest version of any item up to `until`, or None."""
        ...

    def stored(self, keys: Collection[str] | None = None) -> Mapping[str, HeldItem]:
        """Return key -> stored item, for these keys (default: all)."""
        ...


@dataclass(frozen=True, slots=True)
class SeenAnswer:
    """An answer to one question, for audits: an `AnnotationRow` without item and times."""

    key: str
    question: str
    annotator: str | None
    label: str | None
    kind: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All data of a project at one time.

    Attributes:
        answers: item -> its answers; contains every item.
        data: item -> data shown to annotators.
        predictions: (item, question, model) -> class probabilities.
    """

    answers: Mapping[str, frozenset[SeenAnswer]]
    data: Mapping[str, Mapping[str, Any]]
    predictions: Mapping[tuple[str, str, str], Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference between platform and store: kind and key of the row or operation, and a description."""

    what: str
    key: str
    why: str


@dataclass(frozen=True, slots=True)
class Pages:
    """Pages where annotators answer.

    Attributes:
        links: name of an annotator (as in `AnnotatorRow`) -> URL of their page.
        advice: a sentence about how to use these pages, or "".
        title: title of the project on the platform, or "".
    """

    links: Mapping[str, str] = field(default_factory=dict)
    advice: str = ""
    title: str = ""


class Connector(ABC):
    """A labeling platform or a folder of files, from which data is pulled and to which plans are pushed.

    Four methods are required. The others have defaults for platforms without the feature.
    """

    @abstractmethod
    def questions(self) -> tuple[Question, ...]:
        """Return the questions the project asks about every item. Raises Refused if they are not supported."""

    @abstractmethod
    def pull(self, cursor: Cursor | None) -> Iterator[Page]:
        """Yield everything (cursor None) or the changes since the cursor. A pull can resume after each page."""

    @abstractmethod
    def push(self, operations: Iterable[Operation]) -> Iterator[Receipt]:
        """Apply each operation to the platform, verify it, and yield a receipt, in the order given."""

    @abstractmethod
    def check(self) -> Iterable[Check]:
        """Return the lines of `hitl doctor`: connection, permissions, configuration."""

    @property
    def place(self) -> str | None:
        """Text that identifies where data is pulled from: an address and a project, or a path. None: unknown."""
        return None

    def is_at(self, place: str) -> bool:
        """Return True if the stored `place` is the place of this connector, or if the latter is unknown."""
        return self.place in (None, place)

    def annotators(self) -> tuple[AnnotatorRow, ...] | None:
        """Return everyone who can be asked, including those without answers; None if the platform cannot list them."""
        return None

    def workplaces(self) -> Pages:
        """Return the page where each annotator finds their questions. Annotators without a page are left out."""
        return Pages()

    def marks(self) -> frozenset[str]:
        """Return the marks ("by" in `Operation`) of all orders on the platform, to detect orders of other stores."""
        return frozenset()

    def serves(self, address: str) -> bool:
        """Return True if `address`, a URL in an item's data, is a file that this platform serves (see `fetch`)."""
        return False

    def fetch(self, address: str) -> bytes:
        """Return the content of a file served by the platform. Raises Refused and Unreachable."""
        raise Refused(f"{address}: not a file of this platform")

    def recall(self, cursor: Cursor | None) -> None:  # noqa: B027 - a default
        """Set where the last pull stopped, for connectors that remember what they read.

        Until the next pull, `questions` then includes classes read earlier, and a pull of everything does not at once
        accept that many rows have disappeared.
        """

    def accept_deletions(self) -> None:  # noqa: B027 - a default
        """Treat missing rows as deleted in the next pull, however many there are."""

    def compare(self, cursor: Cursor, held: Held) -> Iterator[Page]:
        """Yield changes that a pull by time missed. Called after a pull; `held` is the stored data."""
        return iter(())

    @property
    def lease_seconds(self) -> float:
        """Upper limit of the duration of a request, in seconds; leases must not be shorter."""
        return 0.0

    def fence(self, may_write: Callable[[], float] | None) -> None:  # noqa: B027 - a default
        """Call `may_write` before every write from now on; None: no more.

        It raises if writing is no longer allowed, else returns for how many seconds it is.
        """

    def snapshot(self, progress: Progress = silent) -> Snapshot:
        """Read all data, without the code of `pull` if the platform offers a second way. The default uses `pull`."""
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
        """Find where the platform differs from these operations, and objects of hitl that no operation covers.

        Return None if pushed operations cannot be read back.
        """
        return None

    def verify(self, operations: Iterable[Operation]) -> Iterator[Receipt]:
        """Push, but compare the full content on the platform first, which takes longer, and fix differences."""
        return self.push(operations)
