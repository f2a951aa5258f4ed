"""Replays side by side: delays, skips and people who come and go; several seeds; what was spent to reach a target."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
import pytest
from scipy.sparse import csr_array

from hitl.active.policy import ExpectedGain, Policy
from hitl.active.replay.answers import AnswerQueue, RecordedAnswers, ResponseModel, cost_of
from hitl.active.replay.baselines import Evenly, Randomly
from hitl.active.replay.experiments import (
    Recording,
    Simulation,
    band,
    one_trial,
    reordered,
    run_trials,
    spent_to_reach,
)
from hitl.active.replay.replay import Replay, Track
from hitl.active.replay.simulated_annotators import Group
from hitl.active.stopping.rules import Judged
from hitl.annotations import ANONYMOUS, Annotations, Name
from hitl.crew import Budget, Crew
from hitl.errors import BadEvidence, BadSettings
from hitl.evidence import Evidence
from hitl.models.default import DefaultCombiner
from hitl.models.majority import MajorityVote
from hitl.plan import Ask, Plan

ALL = 2**31 - 1


def recorded(n: int = 40, k: int = 5, seed: int = 0) -> Evidence:
    """All labels of k people, right 8 times of 10."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(2, size=n).astype(np.int32)
    wrong = rng.random((n, k)) < 0.2
    return Evidence(Annotations.from_matrix(np.where(wrong, 1 - truth[:, None], truth[:, None])), truth=truth)


def everything(labels: int = 20) -> Budget:
    return Budget(open_questions=labels, target_confidence=1.0, min_labels=ALL, max_labels=ALL)


@dataclass
class Watch:
    """A policy that keeps what it was shown."""

    policy: Policy = field(default_factory=Evenly)
    crews: list[Crew] = field(default_factory=list)
    plans: list[Plan] = field(default_factory=list)
    answered: list[Annotations] = field(default_factory=list)

    def plan(self, questions: Sequence[Judged], crew: Crew, budget: Budget) -> Plan:
        self.crews.append(crew)
        self.answered.append(questions[0][0].annotations)
        self.plans.append(self.policy.plan(questions, crew, budget))
        return self.plans[-1]


def said(annotations: Annotations) -> set[tuple[Name, Name]]:
    people, items = annotations.annotators, annotations.items
    codes = zip(annotations.annotator.tolist(), annotations.item.tolist(), strict=True)
    return {(people[k], items[n]) for k, n in codes}


# -- one replay ----------------------------------------------------------------------------------------------------


def test_what_is_asked_and_not_answered_is_outstanding_until_it_comes() -> None:
    """In every round: asked = answered + outstanding + skipped, and nothing is asked while it is outstanding."""
    watch, evidence = Watch(), recorded()
    replay = Replay(MajorityVote(), watch, everything(), responses=ResponseModel(delay=1.5, skip=0.2))
    result = replay.run(evidence, np.random.default_rng(3))
    asked: list[tuple[Name, Name]] = []
    for crew, plan, answered in zip(watch.crews, watch.plans, watch.answered, strict=True):
        waiting = set(crew.asked)
        assert len(waiting) == len(crew.asked)
        done = said(answered)
        assert set(asked) == waiting | done | crew.never
        assert not waiting & (done | crew.never)
        new = [(ask.annotator, ask.item) for ask in plan.asks if ask.annotator is not None]
        assert not {item for _, item in new} & {item for _, item in waiting}
        assert list(crew.asked) == [pair for pair in asked if pair in waiting]  # in the order of asking
        asked += new
    late = [set(one.asked) & set(two.asked) for one, two in pairwise(watch.crews)]
    assert any(late)
    everyone = {(k, n) for k in range(5) for n in range(40)}
    assert said(result.evidence.annotations) | watch.crews[-1].never == everyone
    assert 0.1 < len(watch.crews[-1].never) / 200 < 0.3


def test_delays_have_their_mean_and_answers_overtake_each_other() -> None:
    queue, n = AnswerQueue(ResponseModel(delay=3.0), Crew(("ann",)), np.random.default_rng(0)), 2000
    queue.hand_out([(item, "ann") for item in range(n)], 0)
    arrived = [(round_, item) for round_ in range(60) for item, _ in queue.arrived(round_)]
    order = [item for _, item in arrived]
    whole = 1 / math.expm1(1 / 3.0)  # of the floor of an exponential
    assert abs(np.mean([round_ for round_, _ in arrived]) - whole) < 5 * 3.0 / math.sqrt(n)
    assert sorted(order) == list(range(n))
    assert order != sorted(order)
    assert queue.outstanding == 0


def test_without_delay_everything_is_there_before_the_next_plan() -> None:
    watch = Watch()
    Replay(MajorityVote(), watch, everything()).run(recorded(), np.random.default_rng(0))
    assert all(crew is watch.crews[0] for crew in watch.crews)
    assert [len(one) for one in watch.answered] == [*range(0, 200, 20), 200]


def test_capacity_counts_what_is_outstanding() -> None:
    watch = Watch()
    crew = Crew(default_capacity=3, capacity={0: 1})
    replay = Replay(MajorityVote(), watch, everything(), crew=crew, responses=ResponseModel(delay=2.0))
    replay.run(recorded(), np.random.default_rng(0))
    for seen, plan in zip(watch.crews, watch.plans, strict=True):
        load = Counter(who for who, _ in seen.asked) + Counter(ask.annotator for ask in plan.asks)
        assert all(load[k] <= (1 if k == 0 else 3) for k in range(5))
    assert any(crew.asked for crew in watch.crews)


def test_people_are_asked_only_while_they_are_there() -> None:
    watch = Watch()
    responses = ResponseModel(delay=1.0, joins={1: 4, 2: 6, 4: math.inf})
    result = Replay(MajorityVote(), watch, everything(), responses=responses, most_rounds=40).run(
        recorded(), np.random.default_rng(0)
    )
    assert {who for who, _ in said(result.evidence.annotations)} == {0, 1, 2, 3}
    assert [crew.names for crew in watch.crews[3:7:3]] == [(0, 3), (0, 1, 2, 3)]
    for crew, plan in zip(watch.crews, watch.plans, strict=True):
        assert {ask.annotator for ask in plan.asks} <= set(crew.names)


def test_the_end_is_where_nothing_more_can_come() -> None:
    @dataclass(frozen=True)
    class Stubborn:
        """Asks the same again and again, also what cannot be had."""

        def plan(self, questions: Sequence[Judged], crew: Crew, budget: Budget) -> Plan:
            return Plan(tuple(Ask(n, k, 0.0, 0.0, "") for n in range(2) for k in range(3)))

    sparse = Evidence(Annotations.from_matrix([[0, -1, 1], [1, 0, -1]]), truth=np.array([0, 1], np.int32))
    for responses in (
        ResponseModel(),
        ResponseModel(delay=2.0),
        ResponseModel(skip=0.5),
    ):
        result = Replay(MajorityVote(), Stubborn(), everything(), responses=responses).run(
            sparse, np.random.default_rng(0)
        )
        assert len(result.evidence.annotations) <= 4
        assert responses.skip or len(result.evidence.annotations) == 4
    limited = Replay(MajorityVote(), Evenly(), everything(), most_rounds=3).run(recorded(), np.random.default_rng(0))
    assert limited.labels.tolist() == [0, 20, 40, 60]
    assert limited.rounds.tolist() == [0, 1, 2, 3]


def test_most_labels_counts_what_is_still_to_come() -> None:
    replay = Replay(MajorityVote(), Evenly(), everything(), most_labels=70, responses=ResponseModel(delay=2.0))
    assert replay.run(recorded(), np.random.default_rng(0)).labels[-1] == 70


def test_an_exhausted_pool_ends_and_spreads_over_what_is_left() -> None:
    item = np.repeat(np.arange(3, dtype=np.int32), [1, 5, 9])
    zeros = np.zeros(15, np.int32)
    pool = Annotations(item, zeros, zeros, ("a", "b", "c"), (ANONYMOUS,), (0, 1), (0, 1), anonymous=0)
    evidence = Evidence(pool, truth=np.zeros(3, np.int32))
    for responses in (ResponseModel(), ResponseModel(delay=1.0), ResponseModel(skip=0.3)):
        watch = Watch()
        result = Replay(MajorityVote(), watch, everything(3), responses=responses).run(
            evidence, np.random.default_rng(0)
        )
        assert len(result.evidence.annotations) == 15
    assert {ask.annotator for plan in watch.plans for ask in plan.asks} == {None}


def test_cost_is_counted_beside_labels() -> None:
    evidence = recorded()
    crew = Crew(cost={0: 2.5, 3: 4.0}, default_cost=0.5)
    result = Replay(MajorityVote(), Randomly(), everything(), crew=crew).run(evidence, np.random.default_rng(0))
    assert result.cost[0] == 0
    assert result.cost[-1] == 40 * (2.5 + 4.0 + 3 * 0.5)
    answered = result.evidence.annotations
    assert cost_of(answered, crew) == sum(crew.cost_of(name) for name, _ in said(answered))
    assert result.to_reach(0.0) == (0, 0.0)
    assert result.to_reach(1.01) is None
    step = int(np.flatnonzero(result.accuracy < 0.9)[-1]) + 1
    assert result.to_reach(0.9) == (result.labels[step], result.cost[step])
    pool = replace(evidence.annotations, annotators=(ANONYMOUS, 1, 2, 3, 4), anonymous=0)
    assert cost_of(pool, crew) == 40 * (4.0 + 4 * 0.5)


def test_habits_that_cannot_be_are_refused() -> None:
    for wrong in ({"delay": -1.0}, {"skip": 1.0}):
        with pytest.raises(BadSettings, match=rf"responses\.{next(iter(wrong))}"):
            ResponseModel(**wrong)  # type: ignore[arg-type]


# -- baselines -----------------------------------------------------------------------------------------------------


def test_evenly_gives_every_item_its_turn_and_everybody_their_capacity() -> None:
    evidence, crew = recorded(), Crew(default_capacity=4)
    watch = Watch()
    Replay(MajorityVote(), watch, everything(), crew=crew).run(evidence, np.random.default_rng(0))
    for answered, plan in zip(watch.answered, watch.plans, strict=True):
        # Each item has as many as any other, or the last of the people who may have it are busy.
        assert np.ptp(answered.labels_per_item) <= 2
        assert len({ask.item for ask in plan.asks}) == len(plan.asks)
        assert max(Counter(ask.annotator for ask in plan.asks).values(), default=0) <= 4
    assert np.ptp(watch.answered[2].labels_per_item) == 0


def test_baselines_heed_limits_and_money_and_differ_by_seed_only() -> None:
    evidence = recorded()
    consensus = MajorityVote().fit(evidence)
    crew = Crew(tuple(range(5)), never=frozenset({(1, "x"), (0, 3)}), cost={4: 50.0})
    none = replace(evidence, annotations=evidence.annotations.select(np.zeros(200, bool)), truth=None)
    for baseline in (Evenly(seed=1), Randomly(seed=1)):
        plan = baseline.plan([(none, consensus)], crew, replace(everything(), cost=8.0))
        assert plan == baseline.plan([(none, consensus)], crew, replace(everything(), cost=8.0))
        assert plan != replace(baseline, seed=2).plan([(none, consensus)], crew, replace(everything(), cost=8.0))
        assert len(plan.asks) == 8
        assert all(ask.annotator != 4 for ask in plan.asks)
        assert baseline.plan([(evidence, consensus)], crew, everything()).asks == ()  # all answered
    full = Evenly().plan([(none, consensus)], crew, replace(everything(100), min_labels=1, max_labels=1))
    assert len(full.asks) == 40
    assert (3, 0) not in {(ask.item, ask.annotator) for ask in full.asks}
    told = replace(none, truth=np.where(np.arange(40) < 30, 0, -1).astype(np.int32))
    assert {ask.item for ask in Randomly().plan([(told, consensus)], crew, everything(100)).asks} == set(range(30, 40))


# -- many replays --------------------------------------------------------------------------------------------------


def replays() -> dict[str, Replay]:
    policies = {"gain": ExpectedGain(), "even": Evenly()}
    return {name: Replay(MajorityVote(), one, everything()) for name, one in policies.items()}


def same(one: dict[str, tuple[Track, ...]], other: dict[str, tuple[Track, ...]]) -> bool:
    return all(
        np.array_equal(getattr(a, key), getattr(b, key))
        for name in one
        for a, b in zip(one[name], other[name], strict=True)
        for key in ("labels", "cost", "accuracy", "done")
    )


def test_results_do_not_depend_on_workers_seeds_or_company() -> None:
    source = Simulation(recorded(), (Group("good", 4), Group("random", 2, joins=2)), 0.2)
    chosen = {
        name: replace(one, most_labels=100, responses=ResponseModel(delay=1.0)) for name, one in replays().items()
    }
    seen: list[tuple[int, int]] = []
    tracks = run_trials(source, chosen, seeds=3, seed=4, on_done=lambda done, of: seen.append((done, of)))
    assert seen == [(n, 6) for n in range(1, 7)]
    assert list(tracks) == ["gain", "even"]
    assert same(tracks, run_trials(source, chosen, seeds=3, seed=4, workers=2))
    with ThreadPoolExecutor(1) as executor:
        assert same(tracks, run_trials(source, chosen, seeds=3, seed=4, executor=executor))
    alone = run_trials(source, {"even": chosen["even"]}, seeds=1, seed=4)
    assert same(alone, {"even": tracks["even"][:1]})
    assert not same(tracks, run_trials(source, chosen, seeds=3, seed=5))
    first, second, _ = tracks["gain"]
    assert not np.array_equal(first.accuracy, second.accuracy)


@pytest.mark.journey
def test_an_error_in_a_worker_is_the_error() -> None:
    blind = Recording(Evidence(Annotations.from_matrix([[0, 1]])))
    with pytest.raises(BadEvidence, match="no item has ground truth"):
        run_trials(blind, replays(), seeds=1, workers=2)


def test_another_order_changes_nothing_but_ties() -> None:
    evidence = recorded(k=12)
    rng = np.random.default_rng(1)
    graph = csr_array(np.triu(rng.random((40, 40)) < 0.1, 1).astype(float))
    full = replace(
        evidence,
        probabilities={"net": rng.dirichlet([1, 1], 40)},
        features=rng.random((40, 2)),
        sequence=np.stack([np.zeros(40, int), np.arange(40)], axis=1),
        graph=graph + graph.T,
    )
    moved = reordered(full, rng)
    assert moved.annotations.items != full.annotations.items
    place = {name: n for n, name in enumerate(moved.annotations.items)}
    back = np.array([place[name] for name in full.annotations.items])
    assert {tuple(row.values()) for row in moved.annotations.table().to_pylist()} == {
        tuple(row.values()) for row in full.annotations.table().to_pylist()
    }
    assert full.truth is not None
    assert moved.truth is not None
    assert moved.features is not None
    assert moved.sequence is not None
    np.testing.assert_array_equal(moved.truth[back], full.truth)
    np.testing.assert_array_equal(moved.features[back], full.features)
    np.testing.assert_array_equal(moved.sequence[back], full.sequence)
    np.testing.assert_allclose(moved.probabilities["net"][back], full.probabilities["net"])
    np.testing.assert_array_equal(moved.graph.toarray()[np.ix_(back, back)], full.graph.toarray())
    names = (ANONYMOUS, *range(1, 12))
    pool = replace(evidence, annotations=replace(evidence.annotations, annotators=names, anonymous=0))
    people = reordered(pool, rng).annotations
    assert people.anonymous is not None
    assert people.annotators[people.anonymous] == ANONYMOUS


def track(labels: list[int], accuracy: list[float], price: float = 1.0) -> Track:
    spent = np.array(labels)
    return Track(spent, spent * price, np.array(accuracy), np.zeros(len(labels), int))


def test_a_band_holds_what_was_reached_until_the_next_step() -> None:
    """Oracle: a plain loop over points and tracks."""
    tracks = [track([0, 10, 30], [0.5, 0.7, 0.9]), track([0, 20], [0.5, 0.8]), track([0, 15, 40], [0.4, 0.6, 1.0])]
    found = band(tracks)
    assert found.x[-1] == 40
    for p, x in enumerate(found.x):
        values = [max((n, a) for n, a in zip(t.labels, t.accuracy, strict=True) if n <= x + 1e-9)[1] for t in tracks]
        assert found.middle[p] == sorted(values)[1]
        assert (found.low[p], found.high[p]) == (min(values), max(values))
    costly = band([track([0, 10], [0.5, 0.7], 3.0)], over_cost=True)
    assert costly.x[-1] == 30
    assert costly.middle[-1] == 0.7
    many = band([track([0, 10], [0.5, 0.5 + n / 100]) for n in range(11)])
    assert (many.low[-1], many.high[-1]) == (pytest.approx(0.51), pytest.approx(0.59))


def test_what_was_spent_is_the_median_and_its_ends() -> None:
    tracks = [track([0, 10, 30], [0.5, 0.95, 0.9], 2.0), track([0, 20], [0.5, 0.9], 2.0), track([0, 9], [0.5, 0.6])]
    spent = spent_to_reach(tracks, 0.9)
    assert spent.labels == (20, 10, math.inf)
    assert spent.cost == (40, 20, math.inf)
    assert spent.reached == 2
    assert spent_to_reach(tracks, 0.93).labels == (math.inf, math.inf, math.inf)


def test_a_recording_plays_the_same_people_to_every_strategy() -> None:
    """An anonymous pool answers in the same order whoever asks."""
    answers = [RecordedAnswers(recorded().annotations, np.random.default_rng(7)) for _ in range(2)]
    for one in answers:
        one.reveal([(n, None) for n in range(40)])
    np.testing.assert_array_equal(answers[0].revealed().annotator, answers[1].revealed().annotator)
    full = one_trial(Recording(recorded()), replays()["even"], np.random.SeedSequence(1))
    assert full.labels[-1] == 200


def unlabeled(items: int, classes: str) -> Evidence:
    nobody, truth = np.zeros(0, np.int32), np.random.default_rng(0).integers(len(classes), size=items)
    annotations = Annotations(nobody, nobody, nobody, tuple(range(items)), (), tuple(classes), tuple(classes))
    return Evidence(annotations, truth=truth.astype(np.int32))


def test_by_gain_per_cost_a_cheap_language_model_is_asked_first_and_people_where_it_may_be_wrong() -> None:
    model, crowd = Group("good", 1, (0.8, 0.8), cost=0.02), Group("good", 10, (0.7, 0.85))
    budget, watch, spent = Budget(40, 1.0, max_labels=ALL), Watch(ExpectedGain()), (200.0, 400.0, 700.0)

    def accuracy(policy: Policy, *people: Group) -> np.ndarray:
        strategy = {"gain": Replay(DefaultCombiner(), policy, budget, most_labels=1200)}
        one = run_trials(Simulation(unlabeled(400, "abc"), people), strategy, seeds=1)["gain"][0]
        return np.interp(spent, one.cost, one.accuracy)

    both = accuracy(watch, model, crowd, Group("good", 2, (0.97, 0.97), cost=4.0))
    first = [ask.annotator for plan in watch.plans[:10] for ask in plan.asks]
    assert Counter(first) == {watch.crews[0].names[0]: 400}
    assert (both > accuracy(ExpectedGain(), crowd)).all()
    assert (both >= accuracy(ExpectedGain(), model)).all()


@pytest.mark.parametrize("seed", range(3))
def test_more_labels_make_more_labels_right_where_the_policy_doubts_one_class_and_never_checks_the_other(
    seed: int,
) -> None:
    """Then a class whose labels are all trusted may look overlooked, and twice the labels left fewer right."""
    items = unlabeled(1000, "ab")
    replay = Replay(DefaultCombiner(), budget=Budget(67, 1.0, max_labels=ALL), most_labels=2000)
    people = (Group("good", 20, accuracy=(0.7, 0.9)),)
    track = run_trials(Simulation(items, people), {"gain": replay}, seeds=1, seed=seed, workers=1)["gain"][0]
    one, two = np.interp([1000, 2000], track.labels, track.accuracy)
    assert two > one + 0.04
