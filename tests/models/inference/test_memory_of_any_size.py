"""Whatever the numbers of items, annotators and classes: a fit beyond the limit is refused, and the error says why."""

from __future__ import annotations

import re
import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from scipy import sparse

from hitl.annotations import Annotations
from hitl.errors import BadEvidence
from hitl.evidence import Evidence
from hitl.models.combiner import memory_of
from hitl.models.registry import COMBINERS, combiner
from hitl.tables.limits import Limits, readable, within
from hitl.testing.crowds import restricted_to_uses
from tests.models.inference.test_memory import many_classes

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
