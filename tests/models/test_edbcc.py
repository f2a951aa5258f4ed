"""EDBCC: the fit is the exact posterior, by weighing draws from the prior; copies seen through without gold items."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hitl.models.dawid_skene import DawidSkene
from hitl.models.dbcc import DBCC, EDBCC
from hitl.models.vb_ibcc import VBIBCC
from tests import oracles
from tests.network_models import (
    FOUR,
    accuracies,
    assert_clearly_better,
    check_posterior,
    some_crowd,
)

pytestmark = pytest.mark.journey  # of tests.compile_kernels.LONG
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
