"""EDBCC: class and difficulty together, the whole posterior, and copies seen through without a known item."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hitl.models.dawid_skene import DawidSkene
from hitl.models.dbcc import DBCC, EDBCC
from hitl.models.sampling import network_chain
from hitl.models.vb_ibcc import VBIBCC
from tests import oracles
from tests.network_models import (
    FOUR,
    Model,
    accuracies,
    assert_clearly_better,
    check_posterior,
    check_truths,
    some_crowd,
)

SMALL = EDBCC(
    hard=0.4,
    easy_accuracy=0.9,
    easy_sd=0.6,
    accuracy=0.7,
    answer_sd=1.2,
    coupling_sd=1.5,
    share_smoothing=0.8,
    burn_in=200,
    draws=6000,
    thin=1,
)


@pytest.mark.parametrize("shape", FOUR.values(), ids=FOUR)
def test_class_and_difficulty_are_drawn_from_their_enumerated_chances(shape: dict[str, Any]) -> None:
    check_truths(Model(some_crowd(1, **shape), hard=0.3, seed=1))


def test_labels_of_easy_items_teach_what_easy_means_and_nothing_else() -> None:
    model = Model(some_crowd(2, n_options=3, pool=4), hard=0.5, seed=2)
    state, layout = model.state, model.layout
    state.seen_suj[:], state.items_sj[:] = 0, 0
    truth = np.arange(6) % 2
    for n, i in enumerate(layout.distinct_n):
        network_chain.count_item(layout.items, i, truth[n], 1, state.seen_suj, state.items_sj)
    network_chain.complete(np.random.default_rng(0), layout.networks, layout.patterns, state)
    easy = layout.networks.table_start[-2]
    assert state.counts[:easy].sum() == 0
    expected = np.zeros((2, 3))
    a = model.evidence.annotations
    np.add.at(expected, (truth[a.item], a.label), 1)
    np.testing.assert_array_equal(state.counts[easy:].reshape(2, 3), expected)


@pytest.mark.parametrize("shape", FOUR.values(), ids=FOUR)
def test_the_fit_is_the_exact_posterior_of_four_items(shape: dict[str, Any]) -> None:
    check_posterior(some_crowd(9, n_items=4, **shape), SMALL, 0.4, (1.2, 1.5, 0.6))


def test_where_nearly_all_items_are_hard_it_is_dbcc() -> None:
    evidence, _ = oracles.crowd(np.random.default_rng(3), 60, 4, 2, known=0.3)
    found, plain = EDBCC(hard=1 - 1e-9, coupling_sd=0.5, draws=1500).fit(evidence), DBCC(draws=1500).fit(evidence)
    np.testing.assert_allclose(found.probabilities, plain.probabilities, atol=0.03)
    np.testing.assert_allclose(found.difficulty, 1, atol=1e-6)


# -- people who copy -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("known", [0, 30])
def test_it_sees_through_copies_that_fool_ibcc(n_classes: int, known: int) -> None:
    found = accuracies(EDBCC(draws=300, thin=1), n_classes, known)
    for combiner in (DawidSkene(), VBIBCC(), VBIBCC(shared=False)):
        assert_clearly_better(found, accuracies(combiner, n_classes, known))
