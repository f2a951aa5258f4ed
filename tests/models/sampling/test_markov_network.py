"""The Markov network between annotators with strong couplings, against plain enumeration."""

from __future__ import annotations

import numpy as np
import pytest

from hitl.models.sampling import markov_network
from hitl.models.sampling.markov_network import Graph
from tests import network_oracles
from tests.network_oracles import Pair, all_pairs

pytestmark = pytest.mark.journey  # of tests.compile_kernels.LONG


def graph_of(n_options: int, pairs: list[Pair]) -> Graph:
    first, second = np.array(pairs, np.int64).reshape(-1, 2).T
    return Graph(n_options, np.ascontiguousarray(first), np.ascontiguousarray(second))


@pytest.mark.parametrize("coupling", [-60.0, 60.0])
def test_strong_couplings_and_many_annotators_neither_overflow_nor_vanish(coupling: float) -> None:
    """66 couplings of 60 are far beyond the largest double."""
    pairs, rng = all_pairs(12), np.random.default_rng(0)
    v = 30 * rng.normal(size=(12, 2))
    table = np.empty(2**12)
    log_z = markov_network.fill(graph_of(2, pairs), v.ravel(), np.full(66, coupling), table)
    _, log_expected = network_oracles.log_table(v, np.full(66, coupling), pairs)
    assert log_z == pytest.approx(log_expected, rel=1e-12)
    assert table.sum() == pytest.approx(1)
