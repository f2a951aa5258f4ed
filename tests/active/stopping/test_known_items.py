"""Errors of known items are to the expected ones as those of the open items are, and not flattered by their truth."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hitl.active.stopping import known_items
from hitl.annotations import Annotations, Ints
from hitl.evidence import Evidence
from hitl.models.default import DefaultCombiner

KNOWN, ITEMS, PEOPLE, LABELS, CLASSES = 60, 200, 30, 4, 3


def project(seed: int) -> tuple[Evidence, Ints]:
    """Independent annotators of many kinds, 60 of 200 items known; and the truth of all."""
    rng = np.random.default_rng(seed)
    truth, accuracy = rng.integers(CLASSES, size=ITEMS), rng.uniform(0.4, 0.9, PEOPLE)
    matrix = np.full((ITEMS, PEOPLE), -1)
    for item in range(ITEMS):
        for annotator in rng.choice(PEOPLE, LABELS, replace=False):
            right = rng.random() < accuracy[annotator]
            matrix[item, annotator] = (truth[item] + (0 if right else rng.integers(1, CLASSES))) % CLASSES
    known = np.where(np.arange(ITEMS) < KNOWN, truth, -1)
    return Evidence(Annotations.from_matrix(matrix, classes=tuple(range(CLASSES))), truth=known), truth


def told(evidence: Evidence, rows: int) -> Evidence:
    """The same with the truth of the first `rows` items alone."""
    assert evidence.truth is not None
    return replace(evidence, truth=np.where(np.arange(ITEMS) < rows, evidence.truth, -1))


def test_known_items_have_as_many_errors_for_each_expected_as_open_ones() -> None:
    """Ten projects, by a fit that knows none of these truths. A fit that knows them finds .70 of what it should."""
    of_known, of_open = np.zeros(2), np.zeros(2)
    for seed in range(10):
        evidence, truth = project(seed)
        consensus, blind = DefaultCombiner().fit(evidence), DefaultCombiner().fit(told(evidence, 0))
        check = known_items.checked(evidence, consensus)
        assert check.rows.tolist() == list(range(KNOWN))
        assert check.why == ""
        np.testing.assert_allclose(check.beliefs_nj, blind.probabilities[:KNOWN])
        of_known += check.wrong, check.expected_wrong
        rows = ~evidence.known
        of_open += (blind.codes[rows] != truth[rows]).sum(), (1 - blind.confidence[rows]).sum()
    assert abs(np.log((of_known[0] / of_known[1]) / (of_open[0] / of_open[1]))) < 0.15


def test_known_items_whose_truth_is_wrong_are_not_judged_by_it() -> None:
    """Truth that says of every item another class is found wrong nearly always: nothing of it comes from itself."""
    evidence, truth = project(1)
    false = np.where(evidence.known, (truth + 1) % CLASSES, -1)
    evidence = replace(evidence, truth=np.where(np.arange(ITEMS) < KNOWN // 2, false, evidence.truth))
    assert known_items.checked(evidence, DefaultCombiner().fit(evidence)).wrong > 0.8 * KNOWN // 2


def test_beyond_the_most_that_check_known_items_teach(monkeypatch: pytest.MonkeyPatch) -> None:
    evidence, _ = project(2)
    monkeypatch.setattr(known_items, "MOST_CHECKED", 25)
    check = known_items.checked(evidence, DefaultCombiner().fit(evidence))
    assert check.rows.size == 25
    truth = evidence.truth.copy() if evidence.truth is not None else np.zeros(0)
    truth[check.rows] = -1
    taught = DefaultCombiner().fit(replace(evidence, truth=truth))
    np.testing.assert_allclose(check.beliefs_nj, taught.probabilities[check.rows])


def test_known_items_keep_as_many_labels_as_the_others_of_their_rank() -> None:
    """Four known items of 5, 5, 5 and 2 labels among others of 1, 1, 2 and 4: the more doubtful keep more."""
    labels = [5, 5, 5, 2, 1, 4, 2, 1]
    matrix = [[0] * count + [-1] * (5 - count) for count in labels]
    evidence = Evidence(Annotations.from_matrix(matrix, classes=(0, 1)), truth=[0, 0, 0, 0, -1, -1, -1, -1])
    doubt_n = np.array([0.1, 0.4, 0.2, 0.3])
    thinned = known_items._with_labels_of_others(evidence, np.arange(4), doubt_n)
    assert not thinned.known.any()
    assert thinned.annotations.labels_per_item.tolist() == [1, 4, 2, 1, 1, 4, 2, 1]
    again = known_items._with_labels_of_others(evidence, np.arange(4), doubt_n)
    assert again.annotations.annotator.tolist() == thinned.annotations.annotator.tolist()


def test_what_a_target_is_checked_by_is_judged_as_if_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    evidence, _ = project(3)
    consensus = DefaultCombiner().fit(evidence)
    check = known_items.checked(evidence, consensus)
    unknown, believed = known_items.as_if_unknown(evidence, consensus, check)
    assert not unknown.known.any()
    np.testing.assert_array_equal(believed.probabilities[:KNOWN], check.beliefs_nj)
    np.testing.assert_array_equal(believed.probabilities[KNOWN:], consensus.probabilities[KNOWN:])
    monkeypatch.setattr(known_items, "MOST_CHECKED", 25)
    assert known_items.as_if_unknown(evidence, consensus, known_items.Checked())[0].known.sum() == KNOWN - 25
    few = told(evidence, known_items.LEAST_KNOWN - 1)
    assert known_items.as_if_unknown(few, consensus, known_items.Checked()) == (few, consensus)
