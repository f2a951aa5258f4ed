"""Errors of known items are to the expected ones as those of the open items are, and not flattered by their truth."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

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


def test_known_items_have_as_many_errors_for_each_expected_as_open_ones() -> None:
    """Ten projects. Judged by matrices that were learned with their truth, it is .70 in place of .96."""
    of_known, of_open = np.zeros(2), np.zeros(2)
    for seed in range(10):
        evidence, truth = project(seed)
        consensus = DefaultCombiner().fit(evidence)
        checked, wrong, foreseen, why = known_items.checked(evidence, consensus)
        assert (checked, why) == (KNOWN, "")
        of_known += wrong, foreseen
        rows = ~evidence.known
        of_open += (consensus.labels[rows] != truth[rows]).sum(), (1 - consensus.confidence[rows]).sum()
    assert abs(np.log((of_known[0] / of_known[1]) / (of_open[0] / of_open[1]))) < 0.15


def test_the_same_evidence_is_checked_the_same_way() -> None:
    evidence, _ = project(0)
    consensus = DefaultCombiner().fit(evidence)
    assert known_items.checked(evidence, consensus) == known_items.checked(evidence, consensus)


def test_a_half_whose_truth_is_wrong_is_not_judged_by_itself() -> None:
    """Truth that says of every item another class is found wrong nearly always: nothing of it comes from itself."""
    evidence, truth = project(1)
    told = np.where(evidence.known, (truth + 1) % CLASSES, -1)
    wrong_half = np.where(np.arange(ITEMS) < KNOWN // 2, told, np.where(evidence.known, truth, -1))
    evidence = replace(evidence, truth=wrong_half)
    _, wrong, _, _ = known_items.checked(evidence, DefaultCombiner().fit(evidence))
    assert wrong > 0.8 * KNOWN // 2
