"""Accuracy on recorded crowds: the published figures, or at least as much as was noted."""

from __future__ import annotations

from typing import Any

import pytest

from hitl import score
from hitl.models.registry import combiner
from tests.reference_data import crowd, without_truth

FIGURES: dict[tuple[str, str], tuple[float, float]] = {
    ("majority", "bluebirds"): (0.7593, 0.012),  # ties: published figures break them at random, here they share
    ("majority", "rte"): (0.8975, 0.012),
    ("majority", "sentence_polarity"): (0.8868, 0.012),
    ("majority", "face_sentiment"): (0.6267, 0.012),
    ("weighted-majority", "rte"): (0.925, 0.005),
    ("weighted-sum", "music_genre"): (0.80, 0.02),
    ("dawid-skene", "bluebirds"): (0.898, 0.003),
    ("dawid-skene", "rte"): (0.9275, 0.003),
    ("dawid-skene", "sentence_polarity"): (0.915, 0.003),
    ("one-coin", "rte"): (0.925, 0.005),
    ("one-coin", "music_genre"): (0.80, 0.015),
    ("two-coin", "bluebirds"): (0.88, 0.015),
    ("two-coin", "rte"): (0.93, 0.005),
}
"""Method and set -> accuracy, and how far it may be off."""


@pytest.mark.parametrize(("method", "name"), FIGURES)
def test_accuracy(method: str, name: str) -> None:
    evidence = crowd(name)
    known, truth = evidence.known, evidence.truth
    found: Any = combiner(method).fit(without_truth(evidence)).probabilities[known]
    accuracy, off = FIGURES[method, name]
    assert score.accuracy(found, truth[known]) == pytest.approx(accuracy, abs=off)
