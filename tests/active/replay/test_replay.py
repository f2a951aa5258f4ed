"""Replay gives recorded answers only, each once, and spends what it says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hitl.active.replay.answers import RecordedAnswers
from hitl.active.replay.replay import Replay, accuracy_of, spread_evenly
from hitl.annotations import Annotations
from hitl.crew import Budget, Crew
from hitl.demo.recorded import rte
from hitl.errors import BadEvidence
from hitl.evidence import Evidence
from hitl.models.default import DefaultCombiner
from hitl.models.majority import MajorityVote
from tests.bench import bench_replay_cifar10h
from tests.reference_data import folder


def test_answers_of_named_people_are_theirs_and_given_once() -> None:
    annotations = Annotations.from_matrix([[0, 1], [-1, 1]])
    answers = RecordedAnswers(annotations, np.random.default_rng(0))
    crew = answers.crew(Crew())
    assert crew.only == {0: frozenset({0}), 1: frozenset({0, 1})}
    assert answers.reveal([(0, 1), (1, 0)]) == 1  # person 0 never labeled item 1
    assert answers.reveal([(0, 1)]) == 0
    assert answers.revealed().table().to_pylist() == [{"item": 0, "annotator": 1, "label": 1}]


def test_an_anonymous_pool_gives_each_label_once_in_the_order_of_the_seed() -> None:
    codes = np.array([0, 1, 1, 0, 1], np.int32)
    item = np.array([0, 0, 0, 1, 1], np.int32)
    annotations = Annotations(item, np.zeros(5, np.int32), codes, ("a", "b"), ("people",), (0, 1), (0, 1), anonymous=0)
    firsts = set()
    for seed in range(20):
        answers = RecordedAnswers(annotations, np.random.default_rng(seed))
        assert answers.reveal([("a", None)]) == 1
        firsts.add(int(answers.revealed().label[0]))
        assert answers.reveal([("a", None)] * 5 + [("b", None)]) == 3
        assert sorted(answers.revealed().label.tolist()) == sorted([0, 1, 1, int(answers.revealed().label[-1])])
    assert firsts == {0, 1}


def test_replay_on_rte_beats_majority_vote_with_about_half_the_labels() -> None:
    recorded = rte()
    steps: list[tuple[int, float]] = []
    replay = Replay(DefaultCombiner(), budget=Budget(open_questions=100, target_confidence=0.9))
    result = replay.run(recorded, np.random.default_rng(0), lambda labels, accuracy: steps.append((labels, accuracy)))
    everything = accuracy_of(MajorityVote().fit(Evidence(recorded.annotations)), recorded)
    assert result.labels[0] == 0
    assert (np.diff(result.labels) > 0).all()
    assert steps == list(zip(result.labels.tolist(), result.accuracy.tolist(), strict=True))
    assert result.labels[-1] == len(result.evidence.annotations) < 0.55 * len(recorded.annotations)
    assert result.accuracy[-1] > everything + 0.015
    assert not result.evidence.known.any()


def test_replay_stops_at_the_last_label_allowed() -> None:
    replay = Replay(DefaultCombiner(), budget=Budget(open_questions=150), most_labels=400)
    result = replay.run(rte(), np.random.default_rng(0))
    assert result.labels.tolist() == [0, 150, 300, 400]


def test_spreading_evenly_gives_every_item_its_turn() -> None:
    recorded = rte()
    full = accuracy_of(MajorityVote().fit(Evidence(recorded.annotations)), recorded)
    accuracy = spread_evenly(recorded, MajorityVote(), [0, 800, 8000], np.random.default_rng(0))
    assert accuracy[0] == 0.5
    assert 0.68 < accuracy[1] < 0.78  # one label an item: a single label is right 73 % of the time
    assert accuracy[2] == full


def test_labels_to_reach_counts_from_where_it_is_not_lost_again() -> None:
    recorded = rte()
    result = Replay(DefaultCombiner(), budget=Budget(open_questions=150), most_labels=300).run(
        recorded, np.random.default_rng(0)
    )
    accuracy = np.array([0.5, 0.9, 0.8, 0.9])
    changed = replace(result, labels=np.arange(4), cost=2.0 * np.arange(4), accuracy=accuracy)
    assert changed.to_reach(0.85) == (3, 6)
    assert changed.to_reach(0.5) == (0, 0)
    assert changed.to_reach(0.95) is None


def test_replay_needs_some_truth_to_score() -> None:
    with pytest.raises(BadEvidence, match="no item has ground truth"):
        Replay(MajorityVote()).run(Evidence(Annotations.from_matrix([[0, 1]])), np.random.default_rng(0))


def test_cifar10h_reaches_985_and_990_within_the_bars() -> None:
    """Bars of the issue: 98.5 % with 6,000 human labels and 99.0 % with 14,000."""
    folder("cifar10h")
    result = bench_replay_cifar10h.run(bench_replay_cifar10h.recorded(), seed=0, most_labels=15_000, batch=500)
    for target, most_labels in ((0.985, 6_000), (0.99, 14_000)):
        reached = result.to_reach(target)
        assert reached is not None
        assert reached[0] <= most_labels


def test_the_published_file_is_read_as_it_is(tmp_path: Path) -> None:
    """A row is truth, 10 counts, 10 probabilities; no header."""
    rows = np.zeros((2, 21))
    rows[:, 0] = [3, 8]
    rows[0, 1:11][[3, 5]] = [2, 1]
    rows[1, 1:11][8] = 1
    rows[:, 11:] = 0.05
    rows[:, 11] = 0.55
    np.savetxt(tmp_path / "resnet-110.csv", rows, delimiter=",")
    evidence = bench_replay_cifar10h.recorded(file=tmp_path / "resnet-110.csv")
    said = [(row["item"], row["label"]) for row in evidence.annotations.table().to_pylist()]
    assert said == [(0, 3), (0, 3), (0, 5), (1, 8)]
    assert evidence.truth is not None
    assert evidence.truth.tolist() == [3, 8]
    np.testing.assert_allclose(evidence.probabilities["resnet-110"][0], [0.55, *[0.05] * 9])
