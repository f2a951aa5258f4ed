"""DBCC: the fit is the exact posterior, by weighing draws from the prior; people who copy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hitl.evidence import Evidence
from hitl.models.dawid_skene import DawidSkene
from hitl.models.dbcc import DBCC
from hitl.models.sampling import network_layout
from hitl.models.vb_ibcc import VBIBCC
from tests.network_models import (
    FOUR,
    accuracies,
    assert_clearly_better,
    check_posterior,
    copied,
    some_crowd,
)

pytestmark = pytest.mark.journey  # of tests.compile_kernels.LONG
SMALL = DBCC(accuracy=0.7, answer_sd=1.2, coupling_sd=1.5, share_smoothing=0.8, burn_in=200, draws=6000, thin=1)


@pytest.mark.parametrize("shape", FOUR.values(), ids=FOUR)
def test_the_fit_is_the_exact_posterior_of_four_items(shape: dict[str, Any]) -> None:
    """By weighing 150,000 draws from the prior with the enumerated likelihood."""
    evidence = some_crowd(9, n_items=4, **shape)
    check_posterior(evidence, SMALL, 1.0, (1.2, 1.5, 1.0))


def test_people_of_several_networks_are_reported_in_their_own_order() -> None:
    annotations = some_crowd(20, n_items=5, n_annotators=4, asked=1.0).annotations
    apart = (annotations.item < 3) == np.isin(annotations.annotator, [0, 2])
    evidence = Evidence(annotations.select(apart))
    assert [group.tolist() for group in network_layout.groups(evidence, 4096, 0)[0]] == [[0, 2], [1, 3]]
    check_posterior(evidence, SMALL, 1.0, (1.2, 1.5, 1.0))
    mixing = SMALL.fit(evidence).fit.mixing
    assert mixing is not None
    assert {name for name in mixing.rhat if "coupling" in name} == {"coupling of k0 and k2", "coupling of k1 and k3"}


# -- people who copy -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [2, 3])
def test_with_thirty_known_items_it_sees_through_copies_that_fool_ibcc(n_classes: int) -> None:
    found = accuracies(DBCC(draws=300, thin=1), n_classes, known=30)
    for combiner in (DawidSkene(), VBIBCC(), VBIBCC(shared=False)):
        assert_clearly_better(found, accuracies(combiner, n_classes, known=30))


def test_dependence_is_the_correlation_of_errors() -> None:
    evidence, truth = copied(0, 3, known=60)
    people = DBCC(draws=300, thin=1).fit(evidence).annotators
    a = evidence.annotations
    wrong = (a.label.reshape(600, 6) != truth[:, None]).astype(float)
    assert people.dependence is not None
    expected = np.corrcoef(wrong.T)
    np.testing.assert_allclose(people.dependence[:3, :3], expected[:3, :3], atol=0.06)
    assert np.abs(people.dependence[:3, 3:]).max() < 0.25
    np.testing.assert_array_equal(np.diag(people.dependence), 1)
    np.testing.assert_allclose(people.dependence, people.dependence.T)
    np.testing.assert_allclose(people.accuracy, 1 - wrong.mean(axis=0), atol=0.06)
