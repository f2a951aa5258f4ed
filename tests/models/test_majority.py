"""Majority vote: figures on real crowds, and the smoothing by hand."""

from __future__ import annotations

import numpy as np

from hitl.annotations import Annotations
from hitl.evidence import Evidence
from hitl.models.majority import MajorityVote

VOTES = Annotations.from_matrix(np.array([[0, 0, 1], [1, -1, -1], [-1, -1, -1], [2, 2, 2]]))


def test_probabilities_are_smoothed_vote_fractions() -> None:
    consensus = MajorityVote().fit(Evidence(VOTES))
    third = 1 / 3
    expected = [
        [(2 + third) / 4, (1 + third) / 4, third / 4],
        [third / 2, (1 + third) / 2, third / 2],
        [third] * 3,
        [third / 4, third / 4, (3 + third) / 4],
    ]
    np.testing.assert_allclose(consensus.probabilities, expected)
    np.testing.assert_allclose(consensus.class_shares, np.mean([*expected, [third] * 3], axis=0))
    assert consensus.fit.converged
    assert consensus.fit.iterations == 0


def test_everybody_is_reported_by_agreement_with_the_vote() -> None:
    people = MajorityVote(smoothing=1e-9).fit(Evidence(VOTES)).annotators
    # Annotator 2 said 1 where two of three said 0, and 2 with everybody else.
    np.testing.assert_allclose(people.confusion[2, 2], np.array([0.01, 0.01, 1.01]) / 1.03, atol=1e-6)
    np.testing.assert_allclose(people.confusion[2, 0], np.array([0.01, 2 / 3 + 0.01, 0.01]) / (2 / 3 + 0.03), atol=1e-6)
