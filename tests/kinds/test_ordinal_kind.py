"""Ratings as a store has them: the classes are in order, whatever method combines them."""

from __future__ import annotations

import numpy as np

from hitl.kinds.kind import StoredAnswers, kind_of
from hitl.models import DefaultCombiner, MajorityVote, Ordinal
from hitl.models.inference.sample import Sample
from hitl.platform import Question
from tests.bench.honesty.scales import scale
from tests.kinds.stored import combined

STARS = ("1", "2", "3", "4", "5")


def test_answers_about_stars_are_in_order() -> None:
    annotations = scale("biased", seed=5, items=60).annotations
    table = annotations.table()
    empty = table.slice(0, 0).select(["item", "label"])
    stored = StoredAnswers(
        Question("stars", STARS, STARS, "ordinal"), {}, lambda: table, lambda: table, lambda: empty, lambda: annotations
    )
    evidence = kind_of(stored.question).evidence(stored)["stars"]
    found = combined(evidence, DefaultCombiner())
    np.testing.assert_allclose(found.probabilities, Ordinal().fit(evidence).probabilities)
    assert found.ordered
    assert combined(evidence, MajorityVote()).ordered


def test_a_sample_of_ratings_is_in_order() -> None:
    """Dependence is measured on a sample that is fitted again, and has to be fitted in the same way."""
    evidence = scale("five", seed=6, items=40)
    q_nj = np.full((40, 5), 0.2)
    for labels in (evidence.annotations, evidence.annotations.as_ordered()):
        sample = Sample.of(evidence, lambda _: q_nj)
        assert sample.evidence(labels).annotations.ordered == labels.ordered
