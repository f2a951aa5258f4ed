"""Random small crowds as a snapshot has them, without a store."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from hitl.annotations import Annotations
from hitl.connectors.tables import TablesSettings
from hitl.evidence import Evidence
from hitl.models import DawidSkene, MajorityVote
from hitl.plan import Done, Plan
from hitl.report.contents import QuestionPage
from hitl.service.web.snapshot import QuestionView, Snapshot
from hitl.settings import Settings

CLASSES = ("cat", "dog", "a cow")
METHODS = {"majority": MajorityVote(), "dawid-skene": DawidSkene()}


@st.composite
def crowds(draw: st.DrawFn, method: str = "majority", most: int = 8) -> Snapshot:
    """Up to 8 items of 4 annotators with gaps, known truth here and there, some items done, beliefs that moved."""
    n, k = draw(st.integers(1, most)), draw(st.integers(1, 4))
    j = draw(st.integers(2, 3))
    labels = draw(st.lists(st.lists(st.integers(-1, j - 1), min_size=k, max_size=k), min_size=n, max_size=n))
    if all(label < 0 for row in labels for label in row):
        labels[0][0] = 0
    truth = draw(st.lists(st.sampled_from([-1, -1, -1, *range(j)]), min_size=n, max_size=n))
    changed = draw(st.lists(st.sampled_from([0.0, 0.05, 0.1, 0.100001, 0.7]), min_size=n, max_size=n))
    done = draw(st.lists(st.booleans(), min_size=n, max_size=n))
    times = draw(st.booleans())
    return snapshot(labels, truth, changed, done, CLASSES[:j], method, times=times)


def snapshot(
    labels_nk: list[list[int]],
    truth: list[int] | None = None,
    changed: list[float] | None = None,
    done: list[bool] | None = None,
    classes: tuple[str, ...] = CLASSES[:2],
    method: str = "majority",
    times: bool = False,
) -> Snapshot:
    """The snapshot of these labels, -1 where there is none."""
    rows = [(row, who) for row, given in enumerate(labels_nk) for who, label in enumerate(given) if label >= 0]
    items = tuple(f"item-{row}" for row in range(len(labels_nk)))
    annotations = Annotations(
        np.array([row for row, _ in rows], np.int32),
        np.array([who for _, who in rows], np.int32),
        np.array([labels_nk[row][who] for row, who in rows], np.int32),
        items,
        tuple(f"ann-{who}" for who in range(len(labels_nk[0]))),
        classes,
        classes,
        time=np.arange(len(rows), dtype=float) if times else None,
    )
    j, rank = len(classes), np.arange(len(items))[:, None]
    net = np.where(rank % 4 == 3, np.nan, np.where(np.arange(j) == rank % j, 0.8, 0.2 / (j - 1)))
    evidence = Evidence(annotations, truth=None if truth is None else np.array(truth, np.int32))
    consensus = METHODS[method].fit(evidence)
    evidence = replace(evidence, probabilities={"net": net})  # beside it: these methods read no model
    known = np.full(len(items), -1) if truth is None else np.array(truth)
    moved = np.zeros(len(items)) if changed is None else np.array(changed)
    view = QuestionView(QuestionPage("label", evidence, consensus), known, moved)
    finished = [items[row] for row in range(len(items)) if done and done[row]]
    plan = Plan((), tuple(Done(item, ("cat",), 0.9, "sure") for item in finished), len(rows))
    texts = pa.array([f"Text {row % 3}" for row in range(len(items))], pa.large_string())
    settings: Any = Settings(name="p", source=TablesSettings(path="."), budget={"open_questions": 6})  # type: ignore[arg-type]
    return Snapshot(settings, 1, {"label": view}, items, pa.array(items), texts, plan, ())
