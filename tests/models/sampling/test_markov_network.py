"""The Markov network between annotators: tables, statistics, slopes and Hamiltonian steps against plain enumeration."""

from __future__ import annotations

import numpy as np
import pytest

from hitl.models.sampling import hamiltonian, markov_network
from hitl.models.sampling.hamiltonian import Metric
from hitl.models.sampling.markov_network import Graph
from tests import network_oracles
from tests.network_oracles import Pair, all_pairs
from tests.oracles import Floats

pytestmark = pytest.mark.journey  # of tests.compile_kernels.LONG
SHAPES = [
    (1, 2, []),
    (2, 3, all_pairs(2)),
    (3, 2, all_pairs(3)),
    (4, 3, [(0, 1), (1, 2), (0, 3)]),
    (5, 2, all_pairs(5)),
]
"""Annotators, options, couplings."""


def graph_of(n_options: int, pairs: list[Pair]) -> Graph:
    first, second = np.array(pairs, np.int64).reshape(-1, 2).T
    return Graph(n_options, np.ascontiguousarray(first), np.ascontiguousarray(second))


class Case:
    """A network of two classes with random parameters and random counts of complete answers."""

    def __init__(self, size: int, n_options: int, pairs: list[Pair], seed: int = 0, scale: float = 1.0) -> None:
        rng = np.random.default_rng(seed)
        self.pairs, self.shape = pairs, (2, size, n_options)
        self.graph = graph_of(n_options, pairs)
        self.theta = scale * rng.normal(size=2 * size * n_options + len(pairs))
        self.mean = rng.normal(size=self.theta.size) * (np.arange(self.theta.size) < 2 * size * n_options)
        self.sd = (1.3, 0.7)
        self.precision = np.where(np.arange(self.theta.size) < 2 * size * n_options, self.sd[0], self.sd[1]) ** -2.0
        self.counts = rng.integers(0, 4, size=(2, n_options**size)).astype(float)
        self.table = np.empty_like(self.counts)
        self.answers, self.total = self.statistics(self.counts), self.counts.sum(axis=1)

    def __str__(self) -> str:
        return f"{self.shape[1]} annotators, {self.shape[2]} options, {len(self.pairs)} couplings"

    def parts(self, theta: Floats) -> tuple[Floats, Floats]:
        split = int(np.prod(self.shape))
        return theta[:split].reshape(self.shape), theta[split:]

    def statistics(self, counts_jt: Floats) -> Floats:
        said, agreed = np.empty((2, self.shape[1] * self.shape[2])), np.zeros(len(self.pairs))
        for j in range(2):
            of_class = np.empty(len(self.pairs))
            markov_network.statistics(self.graph, counts_jt[j], said[j], of_class)
            agreed += of_class
        return np.concatenate((said.ravel(), agreed))

    @property
    def target(self) -> markov_network.Target:
        return markov_network.Target(self.graph, self.answers, self.total, self.mean, self.precision)

    def density(self, theta: Floats) -> tuple[float, Floats]:
        slope = np.empty_like(theta)
        value = markov_network.log_density(self.target, theta, self.table, slope)
        return value, slope

    def plain(self, theta: Floats) -> float:
        v, w = self.parts(theta)
        return network_oracles.log_posterior(v, w, self.pairs, self.counts, self.parts(self.mean)[0], *self.sd)

    def metric(self) -> tuple[Metric, Floats]:
        """The root of the curvature at theta, and the curvature as one matrix."""
        width, n_pairs = self.shape[1] * self.shape[2], len(self.pairs)
        self.density(self.theta)
        curvature, root = (
            Metric(np.empty((2, width, width)), np.empty((2, width, n_pairs)), np.empty((n_pairs, n_pairs)))
            for _ in range(2)
        )
        markov_network.curvature(self.graph, self.total, self.precision, self.table, curvature)
        hamiltonian.take_root(curvature, root)
        whole = np.zeros((2 * width + n_pairs,) * 2)
        for j, rows in enumerate((slice(0, width), slice(width, 2 * width))):
            whole[rows, rows] = curvature.block_jdd[j]
            whole[rows, 2 * width :] = curvature.cross_jdp[j]
            whole[2 * width :, rows] = curvature.cross_jdp[j].T
        whole[2 * width :, 2 * width :] = curvature.square_pp
        return root, whole


def cases() -> list[Case]:
    return [Case(*shape, seed=seed) for seed, shape in enumerate(SHAPES)]


# -- the partition function --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "n_options", "pairs"), SHAPES)
def test_the_table_and_its_normaliser_are_those_of_all_answers(size: int, n_options: int, pairs: list[Pair]) -> None:
    case = Case(size, n_options, pairs, scale=2.0)
    v, w = case.parts(case.theta)
    for j in range(2):
        log_z = markov_network.fill(case.graph, v[j].ravel(), w, case.table[j])
        expected, log_expected = network_oracles.log_table(v[j], w, pairs)
        np.testing.assert_allclose(case.table[j], np.exp(expected), atol=1e-14)
        assert log_z == pytest.approx(log_expected, abs=1e-12)


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


@pytest.mark.parametrize("case", cases(), ids=str)
def test_slopes_and_curvature_are_the_derivatives(case: Case) -> None:
    step = 1e-5 * np.eye(case.theta.size)
    slope = [(case.plain(case.theta + e) - case.plain(case.theta - e)) / 2e-5 for e in step]
    np.testing.assert_allclose(case.density(case.theta)[1], slope, atol=1e-5)
    bend = [(case.density(case.theta - e)[1] - case.density(case.theta + e)[1]) / 2e-5 for e in step]
    np.testing.assert_allclose(case.metric()[1], bend, atol=1e-5)


# -- Hamiltonian steps ---------------------------------------------------------------------------------------------


def moved(
    case: Case, root: Metric, size: float, leaps: int, theta: Floats, momentum: Floats
) -> tuple[float, Floats, Floats]:
    theta, momentum, table = theta.copy(), momentum.copy(), np.empty_like(case.table)
    gain = hamiltonian.leapfrog(root, size, leaps, case.target, theta, table, momentum)
    return gain, theta, momentum


@pytest.mark.parametrize("case", cases(), ids=str)
def test_the_metropolis_ratio_is_that_of_the_enumerated_posterior(case: Case) -> None:
    root, _ = case.metric()
    momentum = np.random.default_rng(4).normal(size=case.theta.size)
    gain, there, after = moved(case, root, 0.4, 3, case.theta, momentum)
    expected = case.plain(there) - case.plain(case.theta) - 0.5 * (after @ after - momentum @ momentum)
    assert gain == pytest.approx(expected, abs=1e-9)


def test_the_leapfrog_goes_back_the_way_it_came_keeps_volume_and_is_exact_in_the_limit() -> None:
    case = Case(2, 2, all_pairs(2), seed=5)
    root, _ = case.metric()
    size = case.theta.size
    momentum = np.random.default_rng(6).normal(size=size)
    _, there, after = moved(case, root, 0.5, 4, case.theta, momentum)
    _, back, before = moved(case, root, 0.5, 4, there, -after)
    np.testing.assert_allclose(back, case.theta, atol=1e-10)
    np.testing.assert_allclose(-before, momentum, atol=1e-10)
    columns = []
    for e in 1e-6 * np.eye(2 * size):
        ends = [
            np.concatenate(moved(case, root, 0.5, 4, case.theta + sign * e[:size], momentum + sign * e[size:])[1:])
            for sign in (1, -1)
        ]
        columns.append((ends[0] - ends[1]) / 2e-6)
    assert np.linalg.det(np.array(columns)) == pytest.approx(1, abs=1e-6)
    errors = [moved(case, root, 0.2 / 2**k, 5 * 2**k, case.theta, momentum)[0] for k in range(3)]
    assert abs(errors[1]) < 0.3 * abs(errors[0])
    assert abs(errors[2]) < 0.3 * abs(errors[1])
