"""How many more labels it takes: beliefs as the combiner moves them, exact cases, and what a replay then needs."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hitl.active.pending.outstanding import next_plan
from hitl.active.policy import ExpectedGain
from hitl.active.pool_state import PoolState
from hitl.active.stopping import forecast as forecasts
from hitl.active.stopping import rules
from hitl.active.stopping.forecast import Belief, Forecast, forecast
from hitl.active.stopping.rules import Judged
from hitl.annotations import Annotations, Floats
from hitl.crew import Budget, Crew
from hitl.evidence import Evidence
from hitl.models.coins import OneCoin
from hitl.models.combiner import Combiner
from hitl.models.dawid_skene import DawidSkene
from hitl.models.default import DefaultCombiner
from tests.active.stopping.test_rules import believed, two


def crowd(seed: int, n_items: int = 60, people: int = 6, classes: int = 3, seen: float = 0.5) -> tuple[Any, Any]:
    """(N, K) what everybody would answer, and what they did."""
    rng = np.random.default_rng(seed)
    truth, skill = rng.integers(classes, size=n_items), rng.uniform(0.6, 0.95, size=people)
    wrong = (truth[:, None] + rng.integers(1, classes, size=(n_items, people))) % classes
    would = np.where(rng.random((n_items, people)) < skill, truth[:, None], wrong)
    return would, np.where(rng.random((n_items, people)) < seen, would, -1)


def probabilities(seed: int, n_items: int = 60, classes: int = 3) -> Floats:
    p = np.random.default_rng(seed).dirichlet(np.full(classes, 0.6), size=n_items)
    p[::7] = np.nan
    return p


# -- beliefs -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("model", "classes"), [(False, 2), (True, 3), (False, 3)])
def test_an_answer_moves_a_belief_as_it_moves_the_consensus(model: bool, classes: int) -> None:
    """The combiner judges the same evidence with one answer more, with what it had learned."""
    would, did = crowd(1, classes=classes)
    names = tuple(range(classes))
    did[:3] = -1  # nobody has seen these
    given = {"net": probabilities(1)} if model else {}
    evidence = Evidence(Annotations.from_matrix(did, classes=names), given)
    combiner = DefaultCombiner()
    consensus = combiner.fit(evidence)
    rows = np.arange(0, 60)
    pi = consensus.annotators.concentration
    pi = pi / pi.sum(axis=2, keepdims=True) if not model else consensus.annotators.confusion
    belief = Belief(evidence, consensus, rows, pi, 2, np.random.default_rng(0))
    assert np.allclose(belief.confidence_dn, consensus.confidence, atol=1e-9)
    for _ in range(2):  # two answers more, one after the other
        free = [(n, np.flatnonzero(did[n] < 0)[0]) for n in rows if (did[n] < 0).any()]
        for n, k in free:
            did[n, k] = would[n, k]
        items, people = np.array(free).T
        belief.update(np.ones(items.size, int), items, people, would[items, people])
        again = combiner.apply(consensus, Evidence(Annotations.from_matrix(did, classes=names), given))
        close = np.isclose(belief.confidence_dn[1], again.confidence, atol=1e-6)
        assert close.all() if model or classes == 2 else close.mean() > 0.85  # the two best classes may have changed
        assert np.allclose(belief.confidence_dn[1], again.confidence, atol=0.05)
        assert np.array_equal(belief.labels_dn[1], again_labels(did))
    assert np.allclose(belief.confidence_dn[0], consensus.confidence, atol=1e-9)  # the other draw heard nothing


def again_labels(did: Any) -> Any:
    return (did >= 0).sum(axis=1)


# -- exact cases ---------------------------------------------------------------------------------------------


def test_perfect_people_need_one_label_an_item() -> None:
    pi = np.array([[[0.999, 0.001], [0.001, 0.999]]])
    question = believed(two(np.array([0.5, 0.6, 0.7, 0.99])), [[-1, 0], [-1, 0], [-1, 0], [-1, 0]], np.repeat(pi, 2, 0))
    ahead = forecast([question], Crew((0,), cost={0: 2.5}), Budget(max_labels=9))
    assert ahead.labels == pytest.approx(3, abs=0.2)
    assert ahead.cost == pytest.approx(2.5 * ahead.labels)
    assert ahead.unfinished == pytest.approx(0, abs=0.2)


def useless(items: int = 6) -> Judged:
    flat = np.full((3, 2, 2), 0.5)
    return believed(two(np.full(items, 0.6)), [[0, -1, -1]] * items, flat)


def test_useless_people_go_on_to_the_label_limit_or_to_the_last_of_them() -> None:
    budget = Budget(max_labels=3)
    sure = replace(useless()[1], annotators=replace(useless()[1].annotators, concentration=np.full((3, 2, 2), 1e6)))
    question = (useless()[0], sure)
    ahead = forecast([question], Crew((0, 1, 2)), budget)
    assert (ahead.labels, ahead.unfinished) == (12, 6)  # two more each
    assert "6 items will stay below the target" in str(ahead)
    assert "One item will stay below the target" in str(replace(ahead, unfinished=1.2))
    assert forecast([question], Crew((0, 1)), budget).labels == 6  # person 0 has answered everything
    assert forecast([question], Crew((0, 1, 2), {1: 0}), budget).labels == 6
    one = Crew((0, 1, 2), only={1: frozenset({0, 1}), 2: frozenset()}, never=frozenset({(1, 1)}))
    assert forecast([question], one, budget).labels == 1
    skilled = Crew((0, 1, 2), skills={1: frozenset({"de"})}, needs={0: frozenset({"de"}), 1: frozenset({"fr"})})
    assert forecast([question], skilled, budget).labels == 1 + 4 * 2
    assert forecast([question], Crew(), budget).labels == 12  # anyone
    matrix = [[0, 1, -1], [0, -1, -1], [-1, -1, -1]] * 2
    uneven = Evidence(Annotations.from_matrix(matrix, classes=(0, 1)))
    assert forecast([(uneven, sure)], Crew(), budget).labels == 2 * (1 + 2 + 3)


def test_the_expected_number_of_labels_is_that_of_the_random_walk() -> None:
    """One kind of annotator right with p: an item is done when one answer leads by two; geometric in pairs."""
    p = 0.7
    pi = np.array([[[p, 1 - p], [1 - p, p]]])
    question = believed(two(np.full(200, 0.5)), [[-1]] * 199 + [[0]], pi)
    rows = question[0].annotations
    assert rows.n_annotators == 1
    target = p**2 / (p**2 + (1 - p) ** 2) - 1e-6
    ahead = forecast([question], Crew(), Budget(target_confidence=target, max_labels=99), draws=50)
    ends = p**2 + (1 - p) ** 2  # a pair of answers that agree ends it
    assert ahead.labels == pytest.approx(200 * 2 / ends, rel=0.02)
    assert ahead.accuracy == pytest.approx(target, abs=0.01)


def test_a_project_that_is_done_needs_nothing() -> None:
    question = believed(two(np.full(300, 0.9)), np.zeros((300, 3), int).tolist())
    none = forecast([question], Crew(), Budget(target_confidence=0.85))
    assert (none.labels, none.high, none.cost, none.reached) == (0, 0, 0, 1)
    there = forecast([question], Crew(), Budget(target_confidence=0.99, target_accuracy=0.7))
    assert (there.labels, there.reached) == (0, 1)


def test_a_target_that_cannot_be_reached_is_told() -> None:
    question = believed(two(np.full(100, 0.6)))
    ahead = forecast([question], Crew(), Budget(target_confidence=0.99, max_labels=2, target_accuracy=0.97))
    assert ahead.reached == 0
    assert ahead.labels == pytest.approx(100)
    assert "100 items will stay below the target" in str(ahead)
    assert not Forecast(0, 0, 0, 0, 0, 0, 0.9).too_early
    near = Forecast(1234.4, 1000, 1500, 2000, 1, 2, 0.97, 0.97)
    assert str(near) == "About 1,234 answers to go (1,000 to 1,500) to reach 97.0 %, cost 2,000."
    assert str(replace(near, cost=near.labels)) == "About 1,234 answers to go (1,000 to 1,500) to reach 97.0 %."


def test_many_items_are_forecast_from_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    confidence = np.random.default_rng(0).uniform(0.5, 1, size=4000)
    question = believed(two(confidence))
    small = forecast([question], Crew(), Budget(target_accuracy=0.95, target_confidence=0.99))
    monkeypatch.setattr(forecasts, "SAMPLE", 4000)
    whole = forecast([question], Crew(), Budget(target_accuracy=0.95, target_confidence=0.99))
    assert small.labels == pytest.approx(whole.labels, rel=0.1)
    assert small.accuracy == pytest.approx(whole.accuracy, abs=0.005)


def test_an_item_with_several_questions_goes_on_until_all_are_sure() -> None:
    pi = np.array([[[0.8, 0.2], [0.2, 0.8]]])
    sure = believed(two(np.full(100, 0.97)), None, pi)
    unsure = believed(two(np.full(100, 0.6)), None, pi)
    alone = forecast([unsure], Crew(), Budget()).labels
    assert forecast([sure, unsure], Crew(), Budget()).labels >= alone
    assert forecast([unsure, unsure], Crew(), Budget()).labels > alone * 1.1


def test_it_says_what_it_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    would, did = crowd(3, n_items=200, seen=0.2)
    evidence = Evidence(Annotations.from_matrix(did, classes=(0, 1, 2)))
    early = forecast([(evidence, DefaultCombiner().fit(evidence))], Crew(), Budget())
    assert early.caution is not None
    assert "hardly know yet" in early.caution
    assert early.too_early
    assert str(early).startswith("It's too early to forecast the number of answers to go.")
    assert not re.search(r"about|\d %|\(", str(early))
    evidence = Evidence(Annotations.from_matrix(would[:, :4], classes=(0, 1, 2)))
    untold = forecast([(evidence, DefaultCombiner().fit(evidence))], Crew(), Budget(target_confidence=0.999))
    assert untold.caution is not None
    assert "gold items" in untold.caution
    plain = forecast([(evidence, DawidSkene().fit(evidence))], Crew(), Budget(target_confidence=0.999))
    assert plain.caution is None
    assert early.high / early.low > untold.high / untold.low > plain.high / plain.low
    monkeypatch.setattr(PoolState, "expected", rules.Expected(0.9, 100, 20.0, 5.0))
    doubtful = forecast([(evidence, DawidSkene().fit(evidence))], Crew(), Budget(target_confidence=0.999))
    assert doubtful.caution is not None
    assert "20 of 100 gold items would be wrong where 5 were expected" in doubtful.caution


# -- what a replay then needs --------------------------------------------------------------------------------


def replayed(combiner: Combiner, seed: int, budget: Budget, n_items: int = 700) -> list[tuple[int, Forecast]]:
    """(labels so far, forecast) at every step of a run; the last is its end. 60 items of known truth come first."""
    rng = np.random.default_rng(seed)
    truth, skill = rng.integers(2, size=n_items), rng.uniform(0.6, 0.95, size=10)
    would = np.where(rng.random((n_items, 10)) < skill, truth[:, None], 1 - truth[:, None])
    said = np.full((n_items, 10), -1)
    said[:60] = would[:60]
    known = np.where(np.arange(n_items) < 60, truth, -1)
    crew = Crew(tuple(range(10)), default_capacity=budget.open_questions // 5)
    steps = []
    while True:
        evidence = Evidence(Annotations.from_matrix(said, classes=(0, 1)), truth=known)
        question = (evidence, combiner.fit(evidence))
        steps.append((int((said[60:] >= 0).sum()), forecast([question], crew, budget)))
        plan = next_plan(ExpectedGain(), [question], crew, budget)
        if not plan.asks:
            return steps
        for ask in plan.asks:
            said[ask.item, ask.annotator] = would[ask.item, ask.annotator]


@pytest.mark.journey
@pytest.mark.parametrize(
    ("combiner", "budget"),
    [
        (DefaultCombiner(), Budget(open_questions=250, target_confidence=0.97, max_labels=5)),
        (OneCoin(), Budget(open_questions=160, target_confidence=0.99, target_accuracy=0.93)),
    ],
)
def test_a_third_into_the_run_it_is_right_to_a_quarter(combiner: Combiner, budget: Budget) -> None:
    ratios = []
    for seed in range(4):
        steps = replayed(combiner, seed, budget)
        total = steps[-1][0]
        spent, ahead = min(steps, key=lambda step: abs(step[0] - 0.3 * total))
        ratios.append(ahead.labels / (total - spent))
        assert ahead.low <= total - spent <= ahead.high
    near = 0.25 if budget.target_accuracy is None else 0.5  # a gold item more that is wrong holds up the stop
    assert np.median(np.abs(np.array(ratios) - 1)) < near
    assert sum(abs(ratio - 1) < near for ratio in ratios) >= 3


def test_a_limit_of_any_size_is_soon_played() -> None:
    """Whoever comes says nothing of the truth, so that each item takes as many as the limit allows: it never ended."""
    question = useless()
    for most in (100, 12_345, 2**31 - 1):
        ahead = forecast([question], Crew(), Budget(max_labels=most))
        assert (ahead.labels, ahead.unfinished) == (6 * (most - 1), 6)
