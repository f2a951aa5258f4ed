"""Estimates from items drawn at random: unbiased over all draws there are, and intervals that hold what is true."""

from __future__ import annotations

import json
from itertools import combinations, product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from hitl.evidence import Evidence
from hitl.models.analysis.audited_agreement import audited_agreement, estimate

AGREES = np.array([1.0, 0.0, 1.0, 0.5, 1.0, 0.0])


def test_the_share_is_right_on_average_over_all_draws_of_two_plans() -> None:
    """Two of six items in one plan, and one of the last three in the next, when the others waited: 15 x 3 draws."""
    shares = []
    for first, second in product(combinations(range(6), 2), range(3, 6)):
        rows = [*first, second]
        shares.append(estimate(AGREES[rows], np.array([2 / 6, 2 / 6, 1 / 3])).share)
        uneven = estimate(AGREES[rows], np.array([2 / 6, 2 / 6, 1 / 5]))  # as if from five items
        assert uneven.effective == pytest.approx((3 + 3 + 5) ** 2 / (9 + 9 + 25))
    assert np.mean(shares) == pytest.approx((AGREES.sum() + AGREES[3:].sum()) / 9, abs=1e-12)


@pytest.mark.parametrize("truth", [0.7, 0.97])
def test_intervals_hold_the_share_of_all_items(truth: float) -> None:
    """Thirty plans of one to four audits of 600 items less up to half of them: 500 projects."""
    rng = np.random.default_rng(int(truth * 100))
    held = []
    for _ in range(200):
        agrees = (rng.random(600) < truth).astype(float)
        values, probability, total, there = [], [], 0.0, 0
        for _ in range(30):
            frame = rng.permutation(600)[: rng.integers(300, 601)]
            drawn = rng.choice(frame, rng.integers(1, 5), replace=False)
            values += agrees[drawn].tolist()
            probability += [len(drawn) / len(frame)] * len(drawn)
            total, there = total + agrees[frame].sum(), there + len(frame)
        found = estimate(np.array(values), np.array(probability))
        held.append(found.low <= total / there <= found.high)
    assert 0.91 <= np.mean(held) <= 0.99


def test_without_answers_nothing_is_known() -> None:
    found = estimate(np.zeros(0), np.zeros(0), drawn=3)
    assert (found.drawn, found.answered, found.effective) == (3, 0, 0.0)
    assert np.isnan([found.share, found.low, found.high]).all()


def ask(item: str, annotator: str | None, probability: float | None, **more: Any) -> dict[str, Any]:
    labels = json.dumps(more.pop("labels", {"q": "cat"}))
    kept = {"audit": True, "done": False, "since": 1.0, "labels": labels, **more}
    return {"item": item, "annotator": annotator, "probability": probability, **kept}


def evidence_of(*rows: tuple[str, str, str]) -> Evidence:
    columns = dict(zip(("item", "annotator", "label"), map(list, zip(*rows, strict=True)), strict=True))
    return Evidence.from_tables(columns, items=tuple("abcdef"), classes=("cat", "dog"), options=("cat", "dog", "?"))


def test_answers_are_joined_with_what_was_asked() -> None:
    known = evidence_of(
        ("a", "ann", "cat"), ("a", "bob", "dog"), ("b", "bob", "dog"), ("c", "ann", "?"), ("d", "ann", "dog")
    )
    second = evidence_of(("a", "ann", "dog"), ("f", "bob", "cat"))
    asks = [
        ask("a", "ann", 0.5, labels={"q": "cat", "r": "cat"}),  # half of its questions
        ask("b", "bob", 0.9, since=0.5),
        ask("b", "bob", 0.25, since=2.0),  # asked again: this one counts; 0
        ask("c", "ann", 0.5),  # unsure: 0
        ask("d", "ann", 0.1, labels={"q": "dog"}),  # 1
        ask("e", "ann", 0.1),  # not answered
        ask("f", "ann", 0.1),  # answered by another
        ask("a", "bob", 1.0, audit=False),
        ask("a", "bob", None),
        ask("a", None, 0.5),
        ask("gone", "ann", 0.5),
        ask("d", "nobody", 0.5),
    ]
    found = audited_agreement(pa.Table.from_pylist(asks), {"q": known, "r": second})
    assert (found.drawn, found.answered) == (8, 4)
    assert found.share == pytest.approx((0.5 / 0.5 + 1 / 0.1) / (2 + 4 + 2 + 10))
    empty = pa.Table.from_pylist(asks).slice(0, 0)
    assert audited_agreement(empty, {"q": known}).drawn == 0
