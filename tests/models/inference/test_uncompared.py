"""Labels that nothing can be compared with count for their class, and never against it."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hitl.annotations import Annotations
from hitl.evidence import Evidence
from hitl.models import VBIBCC, DawidSkene, OneCoin, TwoCoin
from hitl.models.annotators import confusion
from hitl.models.inference import em, warm_start
from hitl.models.inference.engine import Shards
from hitl.models.methods import COMBINERS
from hitl.models.priors.shares import Shares
from hitl.models.registry import combiner
from hitl.testing.crowds import crowd, part, single_labels

FAST = [n for n in COMBINERS.own if not getattr(COMBINERS.load(n), "needs", None) and not n.endswith("bcc")] + [
    "vb-ibcc"
]
BY_EM = pytest.mark.parametrize("method", [DawidSkene(), OneCoin(), TwoCoin(), VBIBCC(), VBIBCC.paper()], ids=repr)


@pytest.mark.parametrize("name", FAST)
@given(
    seed=st.integers(0, 10**6),
    n_items=st.integers(1, 40),
    n_annotators=st.integers(1, 12),
    n_classes=st.integers(2, 4),
    habits=st.sampled_from([0.1, 1.0, 10.0]),
)
def test_one_label_per_item_is_its_answer(name: str, seed: int, habits: float, **sizes: int) -> None:
    annotations = single_labels(np.random.default_rng(seed), habits=habits, **sizes)
    found = combiner(name).fit(Evidence(annotations))
    own = found.probabilities[np.arange(len(annotations)), annotations.label]
    assert (own >= found.probabilities.max(axis=1) - 1e-9).all()


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


@pytest.mark.parametrize("least_labels", [1, 2])
def test_compared_labels_are_fitted_as_ever(least_labels: int) -> None:
    evidence, _ = crowd(np.random.default_rng(4), 80, 5, asked=0.5, known=0.1)
    method = DawidSkene(least_labels=least_labels)
    annotations = evidence.annotations
    assert (annotations.labels_per_item == 1).any()
    pseudo_jl = confusion.even_pseudo_counts(3, 3, method.smoothing)
    plain = em.run_em(
        evidence,
        Shares.even(3, method.share_smoothing),
        confusion.Confusion.unlearned(pseudo_jl, annotations.n_annotators),
        partial(warm_start.first_beliefs, start=None, unmet_jl=pseudo_jl),
        tolerance=method.tolerance,
        max_iterations=method.max_iterations,
        least_labels=least_labels,
    )
    np.testing.assert_array_equal(method.fit(evidence).probabilities, plain.q_nj)
