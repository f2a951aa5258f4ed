"""How the benchmark of stops counts, on steps and replays that are made up."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hitl.active import Replay, StopRule
from hitl.active.replay.replay import Track
from hitl.active.stopping.rules import Expected
from hitl.annotations import Annotations
from hitl.crew import Budget
from hitl.evidence import Evidence
from hitl.models import DefaultCombiner
from hitl.testing import crowd
from tests.bench.honesty.crowds import part
from tests.bench.honesty.finished import annotators, compared, to_done
from tests.bench.honesty.stops import Row, Step, Watched, bars, ended, judged, summary

WRONG = np.arange(100) < 20


def step(labels: int, reaches: float, accuracy: float, others: float) -> Step:
    """Labels believed to reach a target; of 100, 20 are wrong where the accuracy is .80; the doubt says nothing."""
    wrong = np.arange(100) >= round(100 * accuracy)
    return Step(labels, Expected(1 - (1 - reaches) / 2, 100), accuracy, others, np.full(100, 0.1), wrong)


STEPS = [
    step(0, 0.5, 0.50, 0.50),
    step(10, 0.89, 0.92, 0.91),  # there, and lost again
    step(20, 0.96, 0.89, 0.88),
    step(30, 0.97, 0.93, 0.92),
    step(40, 0.98, 0.94, 0.93),
]


def test_a_stop_is_the_first_step_that_is_believed_to_reach_the_target() -> None:
    row = ended(STEPS, 0.90)
    assert (row["labels"], row["believed"], row["true"]) == (20, 0.98, 0.89)
    assert ended(STEPS[:2], 0.95)["labels"] is None


def test_what_is_proven_there_is_true_after_corrections() -> None:
    row = ended(STEPS, 0.90)
    assert row["proven"]
    assert 11 <= row["audits"] <= 100
    assert not row["false"]
    none = ended([replace(STEPS[2], wrong=WRONG)], 0.90)
    assert not none["proven"] or not none["false"]


def test_the_oracle_stops_where_the_target_is_not_lost_again() -> None:
    assert ended(STEPS, 0.90)["oracle"] == 30  # at 10 it was there, and lost again
    assert ended(STEPS, 0.50)["oracle"] == 0
    assert ended(STEPS, 0.93)["oracle"] == 40
    assert ended(STEPS, 0.95)["oracle"] is None


def rows() -> list[Row]:
    found = []
    for name, steps in (("one", STEPS), ("other", STEPS[:2])):
        for target in (0.80, 0.90, 0.95):
            found.append({"kind": "real", "group": name, "set": name, "seed": 0, "gold": 30} | ended(steps, target))
    return found


def test_runs_are_counted() -> None:
    found = summary(judged(rows()))
    assert (found["runs"], found["stopped"], found["below"]) == (6, 4, 2)
    assert found["short"] == pytest.approx(0.06)
    assert (found["reachable"], found["never"]) == (4, 1)  # .80 and .90 on each
    assert found["ratio"] == pytest.approx((1 + 20 / 30 + 1) / 3)


def test_a_bar_fails_where_too_much_is_falsely_proven() -> None:
    held = {what: ok for what, _, ok in bars(judged(rows()))}
    name = "30 gold items, real crowds: at most 5% of the stops (+ 2 standard errors) falsely proven"
    assert held[name]
    assert held["30 gold items: at most 1.6 x the labels of the oracle, in the median where both stop"]
    lies = [row | {"proven": True, "false": True} if row["labels"] else row for row in rows()]
    assert not {what: ok for what, _, ok in bars(judged(lies))}[name]


@pytest.mark.journey
def test_one_watched_replay_stops_where_replays_with_each_target_do() -> None:
    evidence, _ = crowd(np.random.default_rng(0), n_items=80, n_annotators=6, accuracy=(0.75, 0.95), known=1.0)
    budget = Budget(40, 1.0, min_labels=0, max_labels=100)
    rule = Watched(0.95, gold=25)
    Replay(DefaultCombiner(), budget=budget, stop=rule).run(evidence, 1)
    stops = 0
    for target in (0.5, 0.7, 0.8):
        there = Replay(DefaultCombiner(), budget=budget, stop=StopRule(target, gold=25)).run(evidence, 1).stopped
        row = ended(rule.steps, target)
        if there is None:
            assert row["labels"] is None
            continue
        stops += 1
        assert (row["labels"], row["believed"]) == (there.labels, there.believed)
        assert row["true"] == pytest.approx(there.accuracy)
    assert stops >= 2


def test_a_part_keeps_the_labels_of_its_items_and_their_truth() -> None:
    annotations = Annotations.from_matrix([[0, 1, -1], [1, -1, -1], [-1, -1, 0], [-1, -1, -1]], classes=["x", "y"])
    whole = Evidence(annotations, truth=np.array([1, -1, 0, 1], dtype=np.int32))
    some = part(whole, np.array([2, 0]))
    assert some.truth is not None
    assert dict(zip(some.annotations.items, some.truth.tolist(), strict=True)) == {0: 1, 2: 0}
    frame = some.annotations.frame()
    said = {tuple(map(str, row)) for row in frame[["item", "annotator", "label"]].itertuples(index=False)}
    assert said == {("0", "0", "x"), ("0", "1", "y"), ("2", "2", "x")}


def track(labels: list[int], accuracy: list[float]) -> Track:
    counts = np.array(labels, dtype=np.int64)
    return Track(counts, counts.astype(float), np.array(accuracy), counts)


def test_labels_to_equal_accuracy() -> None:
    ours = track([0, 100, 200, 300], [0.5, 0.94, 0.92, 0.97])
    theirs = track([0, 100, 150], [0.5, 0.90, 0.93])
    on = track([0, 100, 150, 250], [0.5, 0.90, 0.93, 0.98])
    row = compared(ours, theirs, on)
    assert (row["equal accuracy"], row["our to equal"], row["their to equal"]) == (0.93, 300, 150)
    assert (row["our labels"], row["their labels"], row["asked on"]) == (300, 150, 250)
    never = compared(ours, theirs, theirs)
    assert never["asked on"] is None
    where = {"theirs": "VB-IBCC", "cell": "a"}
    mean = to_done([where | {"seed": 0} | row, where | {"seed": 1} | never]).loc[("VB-IBCC", "a")]
    assert mean["ratio"] == mean["ratio, sound"] == pytest.approx(2.0)
    assert mean["ratio asked on"] == pytest.approx((300 / 250 + 1) / 2)
    assert (mean["gets there"], mean["sound"], mean["alike"]) == (0.5, 1, 0)
    assert np.isnan(mean["ratio at done"])  # .97 and .93 are not within a point
    lost = compared(ours, track([0, 80], [0.5, 0.6]), on)
    assert np.isnan(to_done([where | {"seed": 0} | lost]).loc[("VB-IBCC", "a"), "ratio, sound"])


def test_independent_annotators_err_evenly() -> None:
    people = annotators("J=4 N=200 accuracy=0.75", np.random.default_rng(0))
    right_kj = np.diagonal(people.confusion, axis1=1, axis2=2)
    wrong_kjl = people.confusion[:, ~np.eye(4, dtype=bool)]
    np.testing.assert_allclose(wrong_kjl, np.repeat((1 - right_kj[:, :1]) / 3, 12, axis=1))
    assert abs(right_kj.mean() - 0.75) < 0.1
