"""Short ways to write rows, pages and records in the store's tests."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from hitl.consensus import AnnotatorReport, Consensus, Fit
from hitl.plan import Ask, Done, Plan
from hitl.platform import (
    AnnotationKind,
    AnnotationRow,
    AnnotatorRow,
    ItemRow,
    Operation,
    Page,
    PredictionRow,
)
from hitl.store import CycleRecord, Lease, Store
from hitl.store import lease as leases


def at(second: int) -> str:
    """A version: the later second is the newer."""
    return f"2024-05-01T12:00:{second:02d}Z"


def item(key: str, second: int = 0, **more: Any) -> ItemRow:
    return ItemRow(key, more.pop("data", {"text": f"text of {key}"}), at(second), **more)


def said(
    key: str,
    item: str,
    label: str | None = "yes",
    second: int = 0,
    *,
    who: str | None = "ann",
    kind: AnnotationKind = "answer",
    question: str = "q",
    duration: float | None = None,
) -> AnnotationRow:
    return AnnotationRow(key, item, question, who, label, kind, at(second), at(0), duration)


def predicted(item: str, model: str, question: str = "q", **probabilities: float) -> PredictionRow:
    return PredictionRow(item, question, model, probabilities)


def page(number: int = 1, *rows: Any, live: Iterable[str] | None = None, problems: Iterable[str] = ()) -> Page:
    """A page with the cursor {"page": number} and rows of any kind."""

    def of(kind: type) -> tuple[Any, ...]:
        return tuple(row for row in rows if isinstance(row, kind))

    return Page(
        {"page": number},
        of(ItemRow),
        of(AnnotationRow),
        of(PredictionRow),
        of(AnnotatorRow),
        None if live is None else frozenset(live),
        tuple(problems),
    )


def consensus(shift: float = 0.0) -> Consensus:
    """Two items, two classes, one annotator."""
    confusion = np.array([[[0.75, 0.25], [0.125, 0.875]]])
    shares = np.array([0.5, 0.5])
    people = AnnotatorReport(
        ("ann",), ("no", "yes"), ("no", "yes"), confusion * 8, confusion, np.array([2], dtype=np.int64), shares
    )
    probabilities = np.array([[0.25 + shift, 0.75 - shift], [0.5, 0.5]])
    return Consensus(
        ("1", "2"), ("no", "yes"), probabilities, people, shares, {"m": 1.5}, Fit("test", {}, (-2.0, -1.0))
    )


PLAN = Plan((Ask("2", "ann", 0.5, 0.75, "unsure"),), (Done("1", ("yes",), 0.75, "confident"),), 1)


def order(*items: str) -> Operation:
    return Operation("order", "", {"items": list(items)})


def assign(annotator: str, *items: str) -> Operation:
    return Operation("assign", annotator, {"items": list(items)})


def record(*operations: Operation, metrics: Mapping[str, Any] | None = None, **results: Consensus) -> CycleRecord:
    return CycleRecord(results, PLAN, operations, metrics or {})


@contextmanager
def unrenewed(store: Store, project: str = "p", *, seconds: float = 0.05, owner: str | None = None) -> Iterator[Lease]:
    """A lease that nobody renews and nobody gives back, as of a process that is stopped."""
    lease = leases.acquire(store.database, project, seconds, owner or leases.owner_of(os.getpid(), seconds))
    try:
        yield lease
    finally:
        leases._held.discard(lease.owner)
