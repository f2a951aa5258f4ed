"""The objective of every method that climbs one never falls, whatever the crowd looks like."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hitl.models import PLEM, VBIBCC, DawidSkene, HierarchicalDawidSkene, OneCoin, TwoCoin, VBIBCCWithModels
from tests import oracles

METHODS: dict[str, Any] = {
    "dawid-skene": DawidSkene(max_iterations=60),
    "dawid-skene, expected accuracy": DawidSkene(accuracy=0.75, max_iterations=60),
    "one coin": OneCoin(max_iterations=60),
    "two coins": TwoCoin(max_iterations=60),
    "vb-ibcc": VBIBCC(tolerance=1e-12, max_iterations=80),
    "vb-ibcc of the paper": VBIBCC(shared=False, tolerance=1e-12, max_iterations=80),
    "vb-ibcc with models": VBIBCCWithModels(tolerance=1e-12, max_iterations=40),
    "pl-em": PLEM(max_iterations=30),
    "hierarchical": HierarchicalDawidSkene(),
}
some = st.sampled_from


@pytest.mark.parametrize("name", METHODS)
@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    n_classes=st.integers(2, 4),
    extra=st.integers(0, 2),
    shape=st.fixed_dictionaries(
        {
            "unlabeled": st.integers(0, 3),
            "pool": some([0, 0, 8]),
            "known": some([0.0, 0.3, 1.0]),
            "accuracy": some([(0.1, 0.5), (0.5, 0.95)]),
            "models": st.integers(1, 3),
            "abstaining": some([0.0, 0.4, 1.0]),
        }
    ),
)
def test_the_objective_never_falls(name: str, seed: int, n_classes: int, extra: int, shape: dict[str, Any]) -> None:
    method, rng = METHODS[name], np.random.default_rng(seed)
    evidence, _ = oracles.crowd(rng, 12, 4, n_classes, n_classes + extra, asked=0.5, **shape)
    if "probabilities" not in method.uses:
        evidence = replace(evidence, probabilities={})
    consensus = method.fit(evidence)
    trace = np.array(consensus.fit.objective)
    assert np.isfinite(trace).all()
    assert (np.diff(trace) >= -1e-9 * np.maximum(1, np.abs(trace[:-1]))).all()
    np.testing.assert_allclose(consensus.probabilities.sum(axis=1), 1)
    assert (consensus.codes[evidence.known] == evidence.truth[evidence.known]).all()
    assert (consensus.confidence[evidence.known] == 1).all()
    prior_jl = consensus.annotators.prior
    if name == "vb-ibcc":
        diagonal_j = np.diag(prior_jl[:, :n_classes])
        assert (prior_jl <= diagonal_j[:, None] * (1 + 1e-12)).all(), "an option above the diagonal"
