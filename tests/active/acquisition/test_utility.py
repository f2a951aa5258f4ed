"""The utility of each pair of item and annotator, by enumeration."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax

from hitl.active.acquisition.expected_gain import exploration, labels_of, utility
from hitl.active.acquisition.value_of_information import crew_confusion, err_evenly
from hitl.active.pool_state import PoolState
from hitl.active.stopping import rules
from hitl.crew import Budget, Crew
from hitl.design_effect import DesignEffect
from hitl.evidence import Evidence
from hitl.models import PLEM, DefaultCombiner
from hitl.models.dependence.design_effect import beliefs_for_gain, residual_temperature
from tests.active.test_policy import judged, one_answer
from tests.pools_of_models import simulated


@given(st.integers(0, 10_000), st.floats(0, 2))
def test_values_are_gains_of_the_open_questions_times_the_exploration(seed: int, information: float) -> None:
    rng = np.random.default_rng(seed)
    questions = [judged(rng, 6, 4, 3), judged(rng, 6, 4, 2)]
    crew = Crew((0, 3, "new"))
    pool = PoolState.of(questions, Budget(target_confidence=0.7, min_labels=0, max_labels=99))
    matrices = [crew_confusion(consensus, crew) for _, consensus in questions]
    able = np.array([1.0, 4.0, 6.0])
    value = utility(pool, matrices, information).times(exploration(labels_of(pool, crew), able, 0.7))
    rows = np.array([5, 0, 2])
    found = value.values(rows)
    for r, n in enumerate(rows.tolist()):
        for k, name in enumerate(crew.names):
            parts = [
                one_answer(consensus.probabilities[n], pi[k], information)
                for (_, consensus), pi, state in zip(questions, matrices, pool.states, strict=True)
                if state[n] == rules.OPEN
            ]
            labels = np.mean([0 if name == "new" else c.annotators.labels[name] for _, c in questions])  # type: ignore[call-overload]
            reach = (labels + able[k]) / max(given + able[of] for of, given in enumerate(labels_of(pool, crew)))
            assert np.isclose(found[r, k], sum(parts) * (1 + 0.7 * np.sqrt(reach / (1 + labels))))
    assert (found.max(axis=1) <= value.bound(rows) + 1e-12).all()


def test_where_nothing_is_known_labels_come_in_proportion_to_what_each_can_give() -> None:
    """The next question to whom exploration counts most, again and again, as if all answers were worth the same."""
    able_k = np.array([400.0, 200.0, 100.0, 40.0])
    given_k = np.zeros(4)
    for _ in range(300):
        given_k[np.argmax(exploration(given_k, able_k - given_k, 1.0))] += 1
    assert np.abs((given_k + 1) / able_k - (given_k + 1).sum() / able_k.sum()).max() < 0.02


def test_beside_models_gains_are_by_beliefs_that_take_answers_at_their_word() -> None:
    evidence, consensus = judged(np.random.default_rng(3))
    assert beliefs_for_gain(evidence, consensus) is consensus.probabilities
    beside = Evidence(evidence.annotations, {"model": consensus.probabilities})
    bare = consensus.probabilities
    effect = DesignEffect(0.5)
    labels_n, everything = evidence.annotations.labels_per_item, np.ones(len(bare), bool)
    tempered = effect.temper(np.log(bare), labels_n, everything)
    corrected = replace(consensus, probabilities=tempered, design_effect=effect)
    assert not np.allclose(tempered, bare)
    assert np.allclose(beliefs_for_gain(beside, corrected), bare)


def test_beside_models_gains_are_by_models_that_are_as_sure_as_they_are_alone() -> None:
    """What nobody was asked about would be hidden by models that are held against people who err with them."""
    evidence, _ = simulated(22, 60, models=3, right=0.85)
    few = evidence.annotations.select(evidence.annotations.item < 40)
    beside = Evidence(few, evidence.probabilities)
    plain, corrected = PLEM(accuracy=0.8).fit(beside), DefaultCombiner(0.8).fit(beside)
    caution = residual_temperature(plain)
    assert caution > 1.1
    alone = plain.probabilities ** (1 / caution)
    alone /= alone.sum(axis=1, keepdims=True)
    found = beliefs_for_gain(beside, plain)
    assert np.allclose(found[40:], alone[40:])
    voice_nj = np.zeros((60, 5))
    voice_nj[few.item] += np.log(plain.annotators.confusion[0].T[few.label])
    models_nj = np.log(plain.probabilities) - voice_nj
    assert np.allclose(found, softmax(models_nj / caution + voice_nj, axis=1))
    labels_n, spoken_n = few.labels_per_item, beside.predicted
    untempered = softmax(corrected.design_effect.untemper(corrected.probabilities, labels_n, spoken_n), axis=1)
    same = corrected.judging(corrected.items, untempered)
    assert np.allclose(beliefs_for_gain(beside, same), beliefs_for_gain(beside, corrected), atol=1e-3)


def test_who_errs_evenly_is_as_often_right_and_as_often_says_what_is_no_class() -> None:
    pi_jl = np.array([[0.9, 0.04, 0.01, 0.05], [0.3, 0.6, 0.0, 0.1], [0.1, 0.1, 0.8, 0.0]])
    right, unsure = (0.9 + 0.6 + 0.8) / 3, 0.05
    wrong = (1 - right - unsure) / 2
    expected = [[right, wrong, wrong, unsure], [wrong, right, wrong, unsure], [wrong, wrong, right, unsure]]
    assert np.allclose(err_evenly(pi_jl), expected)
