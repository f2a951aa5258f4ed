"""Fields on graphs: against enumeration, Dawid-Skene, and the truth that made the labels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from scipy.special import logsumexp, softmax

from hitl import Annotations, Evidence
from hitl.annotations import Floats, Ints
from hitl.errors import BadEvidence, BadSettings
from hitl.models import NetworkDawidSkene, NetworkIBCC
from hitl.models.numerics.potts import APPROXIMATIONS, Graph, Heard
from hitl.models.priors.graph_field import QUICKEST, SWEEPS_ALONE, FieldCounts, GraphField, Step

METHODS = (NetworkDawidSkene(), NetworkIBCC())
J = 3


def linked(n_items: int, pairs: list[tuple[int, int]], weights: list[float] | None = None) -> sparse.csr_array:
    """A symmetric matrix of these edges."""
    rows, columns = np.array(pairs).T
    half = sparse.coo_array((weights or np.ones(len(pairs)), (rows, columns)), shape=(n_items, n_items))
    return sparse.csr_array(half + half.T)


TREE = linked(6, [(0, 1), (1, 2), (1, 3), (4, 5)], [1.0, 0.5, 2.0, 1.5])


def random_graph(n_items: int, n_edges: int, rng: np.random.Generator) -> sparse.csr_array:
    pairs = {tuple(sorted(rng.choice(n_items, 2, replace=False))) for _ in range(n_edges)}
    return linked(n_items, sorted(pairs), list(rng.uniform(0.5, 2, size=len(pairs))))


def grid(side: int) -> sparse.csr_array:
    at = np.arange(side * side).reshape(side, side)
    pairs = [*zip(at[:, :-1].ravel(), at[:, 1:].ravel(), strict=True)]
    pairs += [*zip(at[:-1].ravel(), at[1:].ravel(), strict=True)]
    return linked(side * side, pairs)


def patches(side: int, seed: int, labels_an_item: float = 2.0) -> tuple[Evidence, Ints]:
    """A grid of items in patches of three classes; eight annotators, right in .35 to .8 of the cases."""
    rng = np.random.default_rng(seed)
    centres, kind = rng.uniform(0, side, size=(9, 2)), np.arange(9) % J
    places = np.stack(np.meshgrid(np.arange(side), np.arange(side), indexing="ij"), axis=-1).reshape(-1, 2)
    truth = kind[((places[:, None] - centres) ** 2).sum(axis=2).argmin(axis=1)].astype(np.int32)
    accuracy = rng.uniform(0.35, 0.8, size=8)
    said = np.where(rng.random((side**2, 8)) < accuracy, truth[:, None], rng.integers(J, size=(side**2, 8)))
    said[rng.random(said.shape) > labels_an_item / 8] = -1
    annotations = Annotations.from_matrix(said, classes=list(range(J)))
    return Evidence(annotations, graph=grid(side)), truth


def log_joint(adjacency: sparse.csr_array, strength_j: Floats, share_j: Floats, message_nj: Floats) -> dict[Any, float]:
    """z -> log p(z) + its messages, up to a constant, by plain loops."""
    edges = sparse.coo_array(sparse.triu(adjacency, 1))
    found = {}
    for z in product(range(len(share_j)), repeat=len(message_nj)):
        alike = sum(
            w * strength_j[z[n]] for n, m, w in zip(edges.row, edges.col, edges.data, strict=True) if z[n] == z[m]
        )
        own = sum(np.log(share_j[c]) + message_nj[n, c] for n, c in enumerate(z))
        found[z] = float(own + alike)
    return found


STRENGTH, SHARES = np.array([0.8, 0.3, 1.2]), np.array([0.2, 0.3, 0.5])


def test_belief_propagation_is_exact_on_trees_and_its_evidence_is_that_of_each_item_given_all_others() -> None:
    rng = np.random.default_rng(2)
    field = GraphField(Graph.of(TREE), STRENGTH, SHARES, approximation="belief-propagation", sweeps=SWEEPS_ALONE)
    for known in ({}, {0: 1}, {2: 0, 4: 2}):
        message_nj = rng.normal(scale=1.5, size=(6, J))
        for n, j in known.items():
            message_nj[n, np.arange(J) != j] = -np.inf
        with np.errstate(divide="ignore"):
            joint = log_joint(TREE, STRENGTH, SHARES, message_nj)
        weight, truths = np.array(list(joint.values())), np.array(list(joint))
        p = np.exp(weight - logsumexp(weight))
        found = field.posterior(message_nj.copy(), np.ones(6, bool))
        np.testing.assert_allclose(found.q_nj, np.einsum("z,znj->nj", p, np.eye(J)[truths]), atol=1e-7)
        without = [
            logsumexp(weight) - logsumexp(list(log_joint(TREE, STRENGTH, SHARES, silent(message_nj, n)).values()))
            for n in range(6)
        ]
        assert found.log_evidence == pytest.approx(sum(without), abs=1e-6)


def silent(message_nj: Floats, item: int) -> Floats:
    """The messages without those of one item."""
    return np.where(np.arange(len(message_nj))[:, None] == item, 0.0, message_nj)


def test_belief_propagation_on_a_path_is_what_hmmlearn_says_of_the_chain() -> None:
    """A field of even shares on a path is a Markov chain that stays with probability e^s / (e^s + J - 1)."""
    hmm = pytest.importorskip("hmmlearn.hmm", reason="hmmlearn is an oracle of the test extra")
    rng = np.random.default_rng(21)
    n, strength = 60, 1.3
    emitted, seen = rng.dirichlet(np.ones(5), size=J), rng.integers(5, size=n)
    step_ij = np.exp(strength * np.eye(J))
    model = hmm.CategoricalHMM(J, implementation="scaling")
    model.startprob_, model.transmat_ = np.full(J, 1 / J), step_ij / step_ij.sum(axis=1, keepdims=True)
    model.emissionprob_ = emitted
    rows = np.arange(n - 1)
    path = sparse.coo_array((np.ones(n - 1), (rows, rows + 1)), shape=(n, n))
    graph = Graph.of(path + path.T)
    message_nj, log_share_j = np.log(emitted[:, seen].T), np.log(np.full(J, 1 / J))
    begin, settle = APPROXIMATIONS["belief-propagation"]
    begun = begin(graph, np.full((n, J), 1 / J))
    heard = settle(message_nj, log_share_j, graph, np.full(J, strength), begun, 400)
    q_nj = softmax(message_nj + log_share_j + heard.field_nj, axis=1)
    np.testing.assert_allclose(q_nj, model.predict_proba(seen[:, None]), atol=1e-5)


def test_mean_field_ends_where_no_belief_nearby_has_a_higher_bound() -> None:
    rng = np.random.default_rng(3)
    adjacency = random_graph(12, 20, rng)
    message_nj, q_nj, bounds = rng.normal(size=(12, J)), np.full((12, J), 1 / J), []

    def bound(q_nj: Floats) -> float:
        alike = float((STRENGTH * q_nj * (adjacency @ q_nj)).sum()) / 4
        return float((q_nj * (message_nj + np.log(SHARES) - np.log(q_nj))).sum()) + alike

    graph = Graph.of(adjacency)
    begin, settle = APPROXIMATIONS["mean-field"]
    begun = begin(graph, q_nj)
    for _ in range(60):
        q_nj = begun[0]
        bounds.append(bound(q_nj))
        begun = settle(message_nj, np.log(SHARES), graph, STRENGTH / 2, begun, 1).begun
    assert (np.diff(bounds) > -1e-9).all()
    for _ in range(200):
        nearby_nj = q_nj * np.exp(rng.normal(scale=0.01, size=q_nj.shape))
        nearby_nj /= nearby_nj.sum(axis=1, keepdims=True)
        assert bound(nearby_nj) <= bounds[-1] + 1e-9


def test_iterated_modes_end_where_no_item_alone_would_change() -> None:
    rng = np.random.default_rng(4)
    for _ in range(20):
        adjacency = random_graph(20, 40, rng)
        message_nj = rng.normal(size=(20, J))
        begin, settle = APPROXIMATIONS["icm"]
        graph = Graph.of(adjacency)
        found = settle(message_nj, np.log(SHARES), graph, STRENGTH, begin(graph, rng.random((20, J))), 100)
        np.testing.assert_allclose(found.field_nj, STRENGTH * (adjacency @ found.begun), atol=1e-12)
        best_n = (message_nj + np.log(SHARES) + found.field_nj).argmax(axis=1)
        np.testing.assert_array_equal(best_n, found.begun.argmax(axis=1))


@pytest.mark.parametrize("approximation", APPROXIMATIONS)
def test_a_step_learns_what_makes_the_beliefs_likelier_given_what_the_neighbours_say(approximation: str) -> None:
    """Its gradient is that of finite differences, and steps end where no shares and strengths nearby are better."""
    rng = np.random.default_rng(15)
    graph, message_nj = Graph.of(random_graph(60, 120, rng)), rng.normal(scale=2, size=(60, J))
    field = GraphField(graph, STRENGTH, SHARES, 1e-9, approximation=approximation, sweeps=3)
    found, settle = field.posterior(message_nj.copy(), np.ones(60, bool)), APPROXIMATIONS[approximation][1]

    def likelihood(strength_j: Floats, share_j: Floats) -> float:
        heard = settle(message_nj, np.log(share_j), graph, strength_j, found.statistics.begun, 0)
        log_p_nj = np.log(share_j) + heard.field_nj
        return float((found.q_nj * (log_p_nj - logsumexp(log_p_nj, axis=1, keepdims=True))).sum())

    for j in range(J):
        up, down = (likelihood(STRENGTH + sign * 1e-5 * np.eye(J)[j], SHARES) for sign in (1, -1))
        assert found.statistics.gradient_j[j] == pytest.approx((up - down) / 2e-5, abs=1e-4)
    for _ in range(300):
        heard = settle(message_nj, np.log(field.share_j), graph, field.strength_j, found.statistics.begun, 0)
        field = field.learn(counts_of(found.q_nj, field, heard))
    best = likelihood(field.strength_j, field.share_j)
    for _ in range(200):
        nearby_j = field.share_j * np.exp(rng.normal(scale=0.01, size=J))
        strength_j = np.maximum(field.strength_j + rng.normal(scale=0.01, size=J), 0)
        assert likelihood(strength_j, nearby_j / nearby_j.sum()) <= best + 1e-7


def counts_of(q_nj: Floats, field: GraphField, heard: Heard) -> FieldCounts:
    """What a field learns from these beliefs, by NumPy."""
    p_nj, slope_nj = softmax(np.log(field.share_j) + heard.field_nj, axis=1), heard.slope_nj
    gradient_j, curvature_j = (slope_nj * (q_nj - p_nj)).sum(axis=0), (slope_nj**2 * p_nj * (1 - p_nj)).sum(axis=0)
    return FieldCounts(q_nj.sum(axis=0), p_nj.sum(axis=0), gradient_j, curvature_j)


def test_steps_of_strengths_leave_out_what_the_next_would_repeat() -> None:
    half_j, left = np.array([0.2, -0.1, 0.05]), 0.6
    begun_j = np.ones(J)
    after_j = begun_j + half_j
    assert Step(begun_j, half_j).times(after_j, left * half_j) == pytest.approx(1 / (1 - left)), "ends at the goal"
    assert Step(begun_j, half_j).times(after_j, 0.99 * half_j) == QUICKEST
    assert Step(begun_j, half_j).times(after_j, 1.5 * half_j) == QUICKEST, "further away than before"
    assert Step(begun_j, half_j).times(after_j, -0.5 * half_j) == 1
    assert Step(begun_j, half_j).times(begun_j, half_j) == 1, "it did not move"


def test_neighbours_that_would_swap_for_ever_do_not() -> None:
    graph, flat_nj, half_j, one_j = Graph.of(linked(2, [(0, 1)])), np.zeros((2, 2)), np.log([0.5, 0.5]), np.ones(2)
    for sweeps in (100, 101):
        z_nj = APPROXIMATIONS["icm"][1](flat_nj, half_j, graph, one_j, np.eye(2), sweeps).begun
        np.testing.assert_array_equal(z_nj, np.eye(2)[::-1])
    begin, settle = APPROXIMATIONS["mean-field"]
    q_nj, _ = settle(flat_nj, half_j, graph, one_j, begin(graph, np.eye(2)), 200).begun
    np.testing.assert_allclose(q_nj, 0.5, atol=1e-3)


@pytest.mark.parametrize("made", [NetworkDawidSkene, NetworkIBCC])
def test_a_graph_that_says_nothing_is_left_out(made: Callable[..., Any]) -> None:
    evidence, _ = patches(30, 9, labels_an_item=4)
    order = np.random.default_rng(10).permutation(900)
    mixed = replace(evidence, graph=evidence.graph[order][:, order])
    found = made().fit(mixed)
    assert found.parameters["strength"].max() < 0.3
    alone = made(strength=0).fit(mixed)
    assert (found.codes == alone.codes).mean() > 0.98


@pytest.mark.parametrize("method", METHODS, ids=lambda one: type(one).__name__)
def test_known_truth_reaches_the_neighbours(method: NetworkDawidSkene) -> None:
    evidence, truth = patches(30, 12, labels_an_item=0.4)
    learned = method.fit(evidence)
    known = np.arange(900) % 3 == 0
    knowing = method.apply(learned, replace(evidence, truth=np.where(known, truth, -1).astype(np.int32)))
    before, after = ((found.codes == truth)[~known].mean() for found in (learned, knowing))
    assert after > before + 0.02
    np.testing.assert_array_equal(knowing.codes[known], truth[known])


def test_what_it_cannot_use_is_refused() -> None:
    evidence, _ = patches(5, 14)
    with pytest.raises(BadEvidence, match=r"network-dawid-skene needs a graph of the items"):
        NetworkDawidSkene().fit(Evidence(evidence.annotations))
    with pytest.raises(BadSettings, match=r"approximation is 'exact'; expected .*mean-field"):
        NetworkDawidSkene(approximation="exact")
    with pytest.raises(BadSettings, match=r"strength is -1; expected a number above 0"):
        NetworkIBCC(strength=-1)
    with pytest.raises(BadSettings, match=r"approximation is \['icm'\]"):
        NetworkIBCC(approximation=["icm"])  # type: ignore[arg-type]
