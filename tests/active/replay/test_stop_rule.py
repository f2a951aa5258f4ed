"""Where a project would have ended in a replay: at the step where the rule says so, with what was true there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hitl import score
from hitl.active.pool_state import PoolState
from hitl.active.replay.answers import RecordedAnswers
from hitl.active.replay.experiments import Recording, run_trials
from hitl.active.replay.replay import GOLD_LABELS, Replay, StopRule, Track
from hitl.active.stopping import rules
from hitl.annotations import Annotations
from hitl.crew import Budget, Crew
from hitl.errors import BadEvidence
from hitl.evidence import Evidence
from hitl.models.default import DefaultCombiner

BUDGET = Budget(open_questions=200, target_confidence=1.0, min_labels=0, max_labels=2**31 - 1)


def recorded(anonymous: bool = False, labels: int = 9) -> Evidence:
    rng = np.random.default_rng(4)
    truth = rng.integers(3, size=200).astype(np.int32)
    said = np.where(rng.random((200, labels)) < 0.8, truth[:, None], rng.integers(3, size=(200, labels)))
    if not anonymous:
        return Evidence(Annotations.from_matrix(said), truth=truth)
    item, people = np.repeat(np.arange(200), labels), np.zeros(said.size, int)
    names = tuple(range(200)), ("people",), (0, 1, 2), (0, 1, 2)
    return Evidence(Annotations(item, people, said.ravel(), *names, anonymous=0), truth=truth)


def replayed(stop: StopRule | None, evidence: Evidence, seed: int = 0) -> Track:
    return run_trials(Recording(evidence), {"gain": Replay(DefaultCombiner(), budget=BUDGET, stop=stop)}, 1, seed)[
        "gain"
    ][0]


@pytest.mark.parametrize("gold", [0, 40])
def test_it_stops_at_the_first_step_at_which_the_rule_says_so(gold: int) -> None:
    """By the same steps, judged one after the other."""
    evidence, rule = recorded(), StopRule(0.8, gold)
    track = replayed(rule, evidence)
    assert track.stopped is not None
    step = int(np.flatnonzero(track.labels == track.stopped.labels)[0])
    assert track.stopped.believed >= 0.9
    known_share = gold / 200
    assert track.stopped.accuracy >= known_share
    if not gold:
        assert track.stopped.accuracy == pytest.approx(track.accuracy[step])
    assert step > 0
    assert track.labels[-1] > track.stopped.labels  # it goes on after it


def test_without_a_rule_nothing_is_noted_and_nothing_changes() -> None:
    evidence = recorded()
    bare, ruled = replayed(None, evidence), replayed(StopRule(0.8), evidence)
    assert bare.stopped is None
    np.testing.assert_array_equal(bare.labels, ruled.labels)
    np.testing.assert_array_equal(bare.accuracy, ruled.accuracy)


def test_a_target_out_of_reach_is_never_reached() -> None:
    assert replayed(StopRule(0.9999), recorded()).stopped is None


def test_items_of_known_truth_are_drawn_from_those_that_have_one_and_answered() -> None:
    evidence = recorded()
    half = replace(evidence, truth=np.where(np.arange(200) < 100, evidence.truth, -1))
    rng, rule = np.random.default_rng(0), StopRule(0.9, 30)
    gold_truth = rule.draw_gold(half, rng)
    assert gold_truth is not None
    assert (gold_truth >= 0).sum() == 30
    assert (np.flatnonzero(gold_truth >= 0) < 100).all()
    np.testing.assert_array_equal(gold_truth[gold_truth >= 0], evidence.truth[gold_truth >= 0])
    answers = RecordedAnswers(half.annotations, rng)
    rule.label_gold(gold_truth, answers, answers.crew(Crew()), rng)
    np.testing.assert_array_equal(answers.revealed().labels_per_item, np.where(gold_truth >= 0, GOLD_LABELS, 0))
    with pytest.raises(BadEvidence, match="100 gold items asked for, and 100 items have ground truth"):
        StopRule(0.9, 100).draw_gold(half, rng)
    assert rule.draw_gold(replace(half), np.random.default_rng(1)).tolist() != gold_truth.tolist()


def test_people_without_names_answer_too() -> None:
    evidence, rng, rule = recorded(anonymous=True), np.random.default_rng(0), StopRule(0.9, 10)
    gold_truth, answers = rule.draw_gold(evidence, rng), RecordedAnswers(evidence.annotations, rng)
    rule.label_gold(gold_truth, answers, answers.crew(Crew()), rng)
    assert answers.spent == 10 * GOLD_LABELS


def test_what_is_true_counts_known_items_as_right_and_scores_the_others() -> None:
    evidence = recorded()
    gold_truth = np.where(np.arange(200) < 50, evidence.truth, -1)
    seen = replace(evidence, truth=gold_truth)
    consensus = DefaultCombiner().fit(seen)
    found = StopRule(0.01, 50).stopped(PoolState.of([(seen, consensus)], Budget()), evidence, 1800)
    expected = rules.expected_accuracy([(seen, consensus)])
    right = score.accuracy(consensus.probabilities[50:], evidence.truth[50:])
    assert found is not None
    assert found.accuracy == pytest.approx(0.25 + 0.75 * right)
    assert (found.labels, found.believed) == (1800, expected.accuracy)


def test_audits_at_the_stop_prove_what_is_true_after_corrections() -> None:
    """All labels audited: every error is found. None audited: nothing is proven, and nothing is corrected."""
    evidence = recorded()
    consensus = DefaultCombiner().fit(replace(evidence, truth=None))
    pool = PoolState.of([(replace(evidence, truth=None), consensus)], Budget())
    wrong = int((consensus.codes != evidence.truth).sum())
    assert wrong > 0
    whole, none = (StopRule(0.01, audits=most).stopped(pool, evidence, 1800) for most in (200, 0))
    assert whole is not None and none is not None  # noqa: PT018 - for mypy
    assert (none.audited, none.proven, none.corrected) == (0, False, pytest.approx(1 - wrong / 200))
    assert whole.proven
    assert whole.corrected >= none.corrected
    strict = StopRule(0.8, audits=200).stopped(pool, evidence, 1800)
    assert strict is None or strict.proven == (strict.corrected >= 0.8)
