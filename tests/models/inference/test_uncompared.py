"""Labels that nothing can be compared with count for their class, and never against it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hitl.annotations import Annotations
from hitl.evidence import Evidence
from hitl.models import VBIBCC, DawidSkene, OneCoin, TwoCoin
from hitl.models.inference import warm_start
from hitl.models.inference.engine import Shards
from hitl.testing.crowds import part, single_labels

BY_EM = pytest.mark.parametrize("method", [DawidSkene(), OneCoin(), TwoCoin(), VBIBCC(), VBIBCC.paper()], ids=repr)


@BY_EM
@pytest.mark.parametrize(("shared", "agreeing"), [(1, 1), (1, 0), (2, 2), (2, 0), (5, 3), (5, 0)])
def test_few_shared_items_do_not_turn_the_single_labels(method: Any, shared: int, agreeing: int) -> None:
    """Dawid–Skene read 40 of 60 single labels as other classes, after two annotators had agreed on one item."""
    single = np.full((60, 2), -1)
    single[:30, 0] = single[30:, 1] = np.arange(30) % 3
    both = np.arange(shared) % 3
    matrix = np.vstack((single, np.column_stack((both, (both + (np.arange(shared) >= agreeing)) % 3))))
    found = method.fit(Evidence(Annotations.from_matrix(matrix, classes=range(3))))
    np.testing.assert_array_equal(found.codes[:60], single.max(axis=1))


@BY_EM
def test_shards_and_new_items_are_answered_alike(method: Any) -> None:
    evidence = Evidence(single_labels(np.random.default_rng(1), 60, 4, habits=0.3))
    whole = method.fit(evidence)
    np.testing.assert_array_equal(method.apply(whole, evidence).codes, evidence.annotations.label)
    np.testing.assert_allclose(whole.class_shares.sum(), 1)
    if getattr(method, "fits_shards", False):
        learned = method.fit(Shards([part(evidence, 0, 25), part(evidence, 25, 60)]))
        np.testing.assert_array_equal(method.apply(learned, evidence).codes, evidence.annotations.label)


def test_votes_are_a_fixed_point_of_exact_em() -> None:
    """The likelihood of single labels has a ridge; iterations begin on it, and only pseudo-counts move them along."""
    evidence = Evidence(single_labels(np.random.default_rng(2), 50, 1, habits=1.0))
    method = DawidSkene(smoothing=1e-12, share_smoothing=1e-12)
    votes = warm_start.first_beliefs(evidence, None, np.ones((3, 3)))
    np.testing.assert_allclose(method.fit(evidence).probabilities, votes, atol=1e-9)


@BY_EM
def test_a_contrarian_is_still_read_the_other_way_round(method: Any) -> None:
    """Where labels can be compared, evidence decides: three of four annotators agree, the fourth swaps two classes."""
    rng = np.random.default_rng(3)
    truth = rng.integers(2, size=300)
    right = rng.random((300, 3)) < 0.9
    answers = np.column_stack((np.where(right, truth[:, None], 1 - truth[:, None]), 1 - truth))
    answers[250:, :3] = -1
    found = method.fit(Evidence(Annotations.from_matrix(answers)))
    assert (found.codes[250:] == truth[250:]).mean() > 0.9
