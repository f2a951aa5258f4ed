"""Simulated people answer as their confusion matrices say, always the same, and err where others err."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import ndtr, ndtri
from scipy.stats import chi2, norm

from hitl.active.replay.baselines import Evenly
from hitl.active.replay.experiments import Simulation, one_trial
from hitl.active.replay.replay import Replay
from hitl.active.replay.simulated_annotators import (
    KINDS,
    Group,
    Kind,
    SimulatedAnswers,
    SimulatedCrew,
    confusion_matrix,
)
from hitl.annotations import Annotations, Floats, Ints
from hitl.crew import Budget, Crew
from hitl.errors import BadEvidence, BadSettings
from hitl.evidence import Evidence
from hitl.models.majority import MajorityVote

CLASSES = ("ant", "bee", "cat")


def crew(correlation: float = 0.0, seed: int = 0) -> SimulatedCrew:
    groups = [Group("good", 2, (0.5, 0.9)), Group("random", 1), Group("constant", 1), Group("adversary", 1, (0.8, 0.8))]
    return SimulatedCrew.draw([*groups, Group("expert", 1, (0.9, 0.9))], 3, np.random.default_rng(seed), correlation)


def simulated(people: SimulatedCrew, n: int, seed: int = 1) -> tuple[SimulatedAnswers, Ints]:
    truth = (np.arange(n) % 3).astype(np.int32)
    return SimulatedAnswers(people, truth, tuple(range(n)), CLASSES, seed), truth


def everything(answers: SimulatedAnswers, people: SimulatedCrew, n: int) -> Ints:
    """(N, K) all answers."""
    answers.reveal([(item, name) for item in range(n) for name in people.names])
    return answers.revealed().label.reshape(n, len(people.names))


@pytest.mark.parametrize("correlation", [0.0, 0.6])
def test_a_long_simulation_has_the_confusion_matrices_it_was_given(correlation: float) -> None:
    """Whatever the correlation: each row of counts is multinomial, so its chi-square is no outlier."""
    people, n = crew(correlation), 3000
    answers, truth = simulated(people, n)
    said_nk = everything(answers, people, n)
    for k, pi_jl in enumerate(people.confusion):
        for j, pi_l in enumerate(pi_jl):
            seen = np.bincount(said_nk[truth == j, k], minlength=3)
            expected = pi_l * (truth == j).sum()
            assert (seen[pi_l == 0] == 0).all()
            possible = pi_l > 0
            distance = ((seen - expected)[possible] ** 2 / expected[possible]).sum()
            assert distance <= chi2.ppf(1 - 1e-4, max(possible.sum() - 1, 1)) + 1e-9, (people.names[k], j, seen)


def test_errors_of_two_people_coincide_as_often_as_the_correlation_says() -> None:
    """Oracle: P(both wrong) = integral over t of the product of both chances given t, by quadrature."""
    c, a, b, n = 0.5, 0.8, 0.7, 4000
    matrices = np.stack([confusion_matrix("good", value, 3, 0) for value in (a, b)])
    people = SimulatedCrew(("ann", "bob"), matrices, c)
    answers, truth = simulated(people, n)
    wrong_nk = everything(answers, people, n) != truth[:, None]

    def both(t: float) -> float:
        given = [1 - ndtr((ndtri(accuracy) - math.sqrt(c) * t) / math.sqrt(1 - c)) for accuracy in (a, b)]
        return float(norm.pdf(t) * given[0] * given[1])

    expected = quad(both, -8, 8)[0]
    assert expected > 1.5 * (1 - a) * (1 - b)
    assert abs(wrong_nk.all(axis=1).mean() - expected) < 4 * math.sqrt(expected * (1 - expected) / n)


@pytest.mark.parametrize("c", [0.0, 0.8])
def test_the_wrong_say_the_same_as_often_as_the_correlation_says(c: float) -> None:
    """Oracle: the chance that both give the item's first wrong option, or both its second, by quadrature over t."""
    people, n = SimulatedCrew(("ann", "bob"), np.stack([confusion_matrix("good", 0.5, 3, 0)] * 2), c), 4000
    answers, truth = simulated(people, n)
    said_nk = everything(answers, people, n)
    wrong = said_nk[:, 0] != truth
    same = (said_nk[:, 0] == said_nk[:, 1]) & wrong

    def both(t: float) -> float:
        ends = ndtr((ndtri(np.array([0.5, 0.75])) - math.sqrt(c) * t) / math.sqrt(1 - c))
        return float(norm.pdf(t) * (np.diff(ends, append=1.0) ** 2).sum())

    expected = quad(both, -8, 8)[0]
    assert c or math.isclose(expected, 2 * 0.25**2)
    assert abs(same.mean() - expected) < 4 * math.sqrt(expected * (1 - expected) / n)
    # The last stretch holds most coincidences; which option that is differs by item.
    which = np.bincount(said_nk[same & (truth == 0), 0], minlength=3)
    assert abs(which[1] / which.sum() - 0.5) < 4 * 0.5 / math.sqrt(which.sum())


def test_the_same_seed_gives_the_same_answers_in_any_order_and_another_seed_others() -> None:
    people = crew(0.3)
    pairs = [(item, name) for item in range(60) for name in people.names]
    tables = []
    for seed, order in ((1, 1), (1, 2), (2, 1)):
        answers, _ = simulated(people, 60, seed)
        for row in np.random.default_rng(order).permutation(len(pairs)):
            assert answers.reveal([pairs[row], pairs[row]]) == 1
        assert answers.reveal(pairs) == 0
        assert answers.spent == len(pairs)
        tables.append(answers.revealed().label)
    np.testing.assert_array_equal(tables[0], tables[1])
    assert (tables[0] != tables[2]).mean() > 0.2


def test_an_answer_does_not_depend_on_who_else_is_there() -> None:
    people = crew(0.3)
    few = replace(people, names=people.names[:2], confusion=people.confusion[:2])
    alone, together = simulated(few, 40)[0], simulated(people, 40)[0]
    assert [alone.answer(n, 1) for n in range(40)] == [together.answer(n, 1) for n in range(40)]


def row(kind: Kind, j: int, rank: int = 0) -> Floats:
    return np.asarray(confusion_matrix(kind, 0.7, 4, rank)[j])


def test_the_kinds_are_what_they_are_called() -> None:
    np.testing.assert_allclose(row("good", 1), [0.1, 0.7, 0.1, 0.1])
    np.testing.assert_allclose(row("random", 1), 0.25)
    np.testing.assert_allclose(row("constant", 1, rank=6), [0, 0, 1, 0])
    np.testing.assert_allclose(row("adversary", 1), [0.7 / 3, 0.3, 0.7 / 3, 0.7 / 3])
    np.testing.assert_allclose(row("expert", 1, rank=1), [0.1, 0.7, 0.1, 0.1])
    np.testing.assert_allclose(row("expert", 2, rank=1), 0.25)
    for kind in KINDS:
        np.testing.assert_allclose(confusion_matrix(kind, 0.7, 4, 3).sum(axis=1), 1)


def test_groups_bring_their_accuracy_costs_and_times() -> None:
    groups = [Group("good", 30, (0.6, 0.7), cost=3.0), Group("good", 5, (0.9, 0.9), joins=4)]
    people = SimulatedCrew.draw(groups, 3, np.random.default_rng(0))
    right = people.confusion[:, 0, 0]
    assert ((right[:30] >= 0.6) & (right[:30] <= 0.7)).all()
    assert np.ptp(right[:30]) > 0.05
    np.testing.assert_allclose(right[30:], 0.9)
    assert [people.crew.cost_of(people.names[k]) for k in (0, 30)] == [3.0, 1.0]
    assert people.joins == dict.fromkeys(people.names[30:], 4)
    answers = SimulatedAnswers(people, np.zeros(2, np.int32), (0, 1), CLASSES, 0)
    assert answers.crew(Crew()).names == people.names
    assert answers.crew(Crew(cost={people.names[0]: 9.0})).cost_of(people.names[0]) == 9.0
    with pytest.raises(BadEvidence, match="'eve' of the crew is not among the simulated annotators"):
        answers.crew(Crew(("eve",)))


@pytest.mark.filterwarnings("ignore:majority ignores the features")
def test_newcomers_answer_only_after_they_have_come() -> None:
    """The replay asks nobody before they join; features and models of the items stay."""
    annotations = Annotations.from_matrix(np.full((30, 1), -1), classes=CLASSES)
    truth = (np.arange(30) % 3).astype(np.int32)
    groups = (Group("good", 2, (0.9, 0.9)), Group("good", 3, (0.9, 0.9), joins=3))
    seen: dict[int, set[str]] = {}

    class Watched(Evenly):
        def plan(self, questions, crew, budget):  # type: ignore[no-untyped-def]
            plan = super().plan(questions, crew, budget)
            seen.setdefault(len(seen), set()).update(str(ask.annotator) for ask in plan.asks)
            assert questions[0][0].features is not None
            return plan

    evidence = Evidence(annotations, features=np.ones((30, 2)), truth=truth)
    replay = Replay(
        MajorityVote(), Watched(), Budget(open_questions=10, target_confidence=1.0, min_labels=50, max_labels=50)
    )
    track = one_trial(Simulation(evidence, groups), replay, np.random.SeedSequence(0))
    early = set().union(*(seen[r] for r in range(3)))
    late = set().union(*(seen[r] for r in seen if r >= 3))
    assert early == {"good-0", "good-1"}
    assert late >= {"good-2", "good-3", "good-4"}
    assert track.labels[-1] == 5 * 30


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(BadSettings, match=r"group.kind is 'lazy'"):
        Group("lazy", 3)  # type: ignore[arg-type]
    with pytest.raises(BadSettings, match=r"group.people is 0"):
        Group("good", 0)
    with pytest.raises(BadSettings, match=r"group.accuracy is \(0.9, 0.7\)"):
        Group("good", 1, (0.9, 0.7))
    with pytest.raises(BadSettings, match=r"correlation is 1.0"):
        replace(crew(), correlation=1.0)
    blind = Evidence(Annotations.from_matrix([[0, 1]]))
    with pytest.raises(BadEvidence, match="item 0 has no truth"):
        one_trial(Simulation(blind, (Group("good", 1),)), Replay(MajorityVote()), np.random.SeedSequence(0))
