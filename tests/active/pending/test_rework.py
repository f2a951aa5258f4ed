"""Items that were sent back: asked first, until they are answered anew (tests/store/test_rework.py says when)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hitl import Evidence, Plan
from hitl.active.pending.rework import with_rework
from hitl.models import DawidSkene
from hitl.plan import Ask, Rework

ROWS = [("a", "al", "x", 10.0), ("a", "bo", "y", 20.0), ("b", "al", "y", 30.0), ("b", "bo", "y", 40.0)]
BACK = Rework("a", "al", 100.0, "the title", "lea")


def evidence() -> Evidence:
    columns = zip(*ROWS, strict=True)
    return Evidence.from_tables(dict(zip(("item", "annotator", "label", "time"), columns, strict=True)), time="time")


def plan_of(known: Evidence, *back: Rework, before: Plan | None = None) -> Plan:
    return with_rework(before or Plan(), back, {"q": known}, {"q": DawidSkene().fit(known)})


def test_it_comes_first_once_and_says_who_sent_it_back() -> None:
    other, same = Ask("b", "al", 0.5, 0.9, "in doubt"), Ask("a", "al", 0.5, 0.9, "in doubt")
    plan = plan_of(evidence(), BACK, before=Plan(asks=(other, same)))
    assert [(ask.item, ask.annotator, ask.why) for ask in plan.asks] == [
        ("a", "al", "sent back by lea: the title"),
        ("b", "al", "in doubt"),
    ]
    assert plan.asks[0].sent_back
    assert plan.asks[0].since == 100.0


def test_an_answer_ends_it() -> None:
    assert plan_of(evidence(), replace(BACK, answered=True)).asks == ()


def test_an_expert_who_has_not_labeled_it_is_asked() -> None:
    (ask,) = plan_of(evidence(), Rework("a", "eve", 100.0, by="lea")).asks
    assert ask.why == "sent back by lea"


def test_an_item_that_is_gone_is_left_out() -> None:
    assert plan_of(evidence(), Rework("z", "al", 100.0)).asks == ()


def test_the_chance_to_be_right_is_the_annotators_own_or_the_crowds() -> None:
    known = evidence()
    report = DawidSkene().fit(known).annotators
    own, new = plan_of(known, BACK, Rework("b", "eve", 100.0)).asks
    assert own.right == pytest.approx(report.accuracy[report.names.index("al")])
    assert new.right == pytest.approx(np.mean(report.accuracy))
