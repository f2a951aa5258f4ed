"""How many answers each item should get, beside the same said an item at a time; random plans."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest

from hitl.annotations import Name
from hitl.evidence import Evidence
from hitl.operations import _labels_wanted
from hitl.plan import Activity, Ask, Done, Expired, Plan

ITEMS = tuple(range(12))
PEOPLE = ("ann", "bob", "cid")


def plainly(plan: Plan, labels: Mapping[Name, int], known: set[Name]) -> dict[str, int]:
    """The oracle: an item at a time."""
    wanted = {str(item): labels[item] for item in ITEMS if plan.stop is not None and item not in known}
    closed = {done.item for done in plan.done} - known
    wanted |= {str(item): labels[item] for item in closed}
    for item in dict.fromkeys(ask.item for ask in plan.asks):
        wanted[str(item)] = labels[item]
        mine = [ask.annotator for ask in plan.asks if ask.item == item]
        if item not in closed:  # those who may still have it open
            absent = {person.annotator for person in plan.people if person.away}
            absent |= {one.annotator for one in plan.expired if one.item == item}
            wanted[str(item)] += len(absent - {mine[0]})
        wanted[str(item)] += len(mine)
    return wanted


@pytest.mark.parametrize("seed", range(30))
def test_each_item_gets_what_the_plan_says(seed: int) -> None:
    dice = random.Random(seed)
    rows = [(item, who) for item in ITEMS for who in PEOPLE if dice.random() < 0.5] or [(0, "ann")]
    known = {item for item in ITEMS if dice.random() < 0.3}
    said = Evidence.from_tables(
        {"item": [n for n, _ in rows], "annotator": [who for _, who in rows], "label": ["x"] * len(rows)},
        {},
        {"item": sorted(known), "label": ["x"] * len(known)} if known else None,
        items=ITEMS,
        classes=("x", "y"),
    )
    asked = [(item, who) for item in ITEMS for who in dice.sample((*PEOPLE, None), dice.choice((0, 0, 1, 2)))]
    asks = tuple(Ask(item, who, 0.0, 0.5, "") for item, who in asked)
    plan = Plan(
        asks,
        tuple(Done(item, ("x",), 0.9, "") for item in ITEMS if item in known or dice.random() < 0.4),
        stop=dice.choice((None, None, "done")),
        expired=tuple(Expired(item, dice.choice(PEOPLE), 0.0) for item in dice.sample(ITEMS, 4)),
        people=(Activity("cid", 0, 0.0, away=dice.random() < 0.5),),
    )
    labels = dict(zip(ITEMS, said.annotations.labels_per_item.tolist(), strict=True))
    assert _labels_wanted(plan, {"q": said}).payload["items"] == plainly(plan, labels, known)
