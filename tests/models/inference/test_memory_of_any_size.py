"""Whatever the numbers of items, annotators and classes, a fit stays near its estimate, or an error says what fits."""

from __future__ import annotations

import re
import tracemalloc
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from scipy import sparse

from hitl.annotations import Annotations
from hitl.errors import BadEvidence
from hitl.evidence import Evidence
from hitl.models.combiner import memory_of
from hitl.models.methods import COMBINERS
from hitl.models.registry import combiner
from hitl.tables.limits import Limits, readable, within
from hitl.testing.crowds import restricted_to_uses, sample
from tests.models.inference.test_memory import CHEAP, many_classes

PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
DENSE = 200_000
"""Probabilities, of items times classes, that a test has room for."""


def peak_of(fit: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        fit()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def everything(annotations: Annotations, n_models: int) -> Evidence:
    """Evidence of every kind, of which only the probabilities are large."""
    n, j = annotations.n_items, annotations.n_classes
    return Evidence(
        annotations,
        {f"m{number}": np.full((n, j), 1 / j) for number in range(n_models)},
        features=np.zeros((n, 2)),
        truth=np.arange(n) % j,
        sequence=np.stack((np.zeros(n, int), np.arange(n)), axis=1),
        graph=sparse.csr_array((n, n)),
    )


@settings(max_examples=60, phases=PHASES)
@given(
    name=st.sampled_from(list(COMBINERS.own)),
    n_items=st.integers(1_000, 5_000),
    n_annotators=st.integers(3, 5_000),
    n_classes=st.integers(2, 20_000),
    n_models=st.integers(1, 3),
    share=st.floats(0.01, 0.99),
)
def test_a_fit_beyond_the_limit_is_refused_before_it_begins(
    name: str, n_items: int, n_annotators: int, n_classes: int, n_models: int, share: float
) -> None:
    method = combiner(name)
    if "probabilities" in getattr(method, "needs", ()):
        n_classes = min(n_classes, max(2, DENSE // n_items))
    n_models = n_models if n_items * n_classes <= DENSE else 0
    evidence = restricted_to_uses(method, everything(many_classes(n_items, n_annotators, n_classes), n_models))
    limit = int(share * memory_of(method, evidence))

    def refused() -> None:
        with within(Limits(memory=limit)), pytest.raises(BadEvidence) as error:
            method.fit(evidence)
        match = re.fullmatch(
            rf"{name} would take (.+) of memory for {n_items:,} items, {n_annotators:,} annotators and {n_classes:,} "
            rf"classes; expected at most {re.escape(readable(limit))} \(limits\.memory, or what is available\); "
            r"(?:(\S+) takes (.+)|no method takes less: merge rare classes)",
            str(error.value),
        )
        assert match, error.value
        assert match[1] == readable(memory_of(method, evidence))
        if match[2]:
            other = memory_of(combiner(match[2]), evidence)
            assert match[3] == readable(other)
            assert other <= limit

    refused()  # loads what is loaded once
    assert peak_of(refused) < 2_000_000


@cache
def compiled(name: str) -> None:
    method = combiner(name, **CHEAP.get(name, {}))
    method.fit(sample(method, n_items=30)[0])


@pytest.mark.journey
@settings(max_examples=60, phases=PHASES)
@given(
    name=st.sampled_from(list(COMBINERS.own)),
    n_items=st.integers(30, 300),
    n_annotators=st.integers(2, 40),
    n_classes=st.integers(2, 25),
    n_models=st.integers(1, 4),
    asked=st.floats(0.2, 1.0),
)
def test_a_fit_within_the_limit_stays_near_its_estimate(
    name: str, n_items: int, n_annotators: int, n_classes: int, n_models: int, asked: float
) -> None:
    compiled(name)
    method = combiner(name, **CHEAP.get(name, {}))
    shape = {"n_annotators": n_annotators, "n_classes": n_classes, "models": n_models, "asked": asked}
    evidence, _ = sample(method, n_items=n_items, **shape)
    estimate = memory_of(method, evidence)
    with within(Limits(memory=estimate)):
        peak = peak_of(lambda: method.fit(evidence))
    assert peak < 1.5 * estimate + 2_000_000, f"{peak:,} of {estimate:,}"
