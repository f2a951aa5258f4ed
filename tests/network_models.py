"""Networks of annotators as DBCC and EDBCC see them, with random parameters, and the checks that both must pass."""

from __future__ import annotations

from typing import Any

import numpy as np

from hitl.annotations import Annotations
from hitl.evidence import Evidence
from hitl.models.sampling import network_chain, network_groups, network_layout, network_posterior
from hitl.models.sampling.network_chain import Prior, State
from hitl.models.sampling.network_layout import Layout
from hitl.models.sampling.network_posterior import Expected
from tests import network_oracles, oracles
from tests.network_oracles import Drawn, all_pairs
from tests.oracles import Floats

FOUR: dict[str, dict[str, Any]] = {
    "plain": {},
    "two known truths": {"known": 0.5},
    "everything known": {"known": 1.0},
    "options beyond the classes": {"n_options": 3},
    "an anonymous pool": {"pool": 4},
    "items without labels": {"unlabeled": 1, "known": 0.3},
}


class Model:
    """Evidence as chains see it, with random parameters; `drawn` are the same parameters for the oracles."""

    def __init__(
        self, evidence: Evidence, hard: float = 1.0, exact_states: int = 4096, seed: int = 0, like: Model | None = None
    ) -> None:
        rng = np.random.default_rng(seed)
        self.evidence, self.hard = evidence, hard
        self.shared = network_groups.groups(evidence, exact_states, 0) if like is None else like.shared
        groups, shared_kk = self.shared
        self.groups = [group.tolist() for group in groups]
        self.pairs = [
            [(a, b) for a, b in all_pairs(len(group)) if shared_kk[group[a], group[b]]] for group in self.groups
        ]
        self.layout: Layout = network_layout.layout(evidence, groups, shared_kk, easy=hard < 1)
        self.prior: Prior = network_posterior.prior_of(self.layout.networks, Expected(0.7, 1.1, 0.9, hard), 0.8)
        self.state: State = network_chain.blank_state(self.layout, self.prior)
        self.state.theta_x[:] = rng.normal(size=self.state.theta_x.size)
        self.state.log_share_j[:] = np.log(rng.dirichlet(np.ones(evidence.annotations.n_classes)))
        network_chain.fill_tables(self.layout.networks, self.state.theta_x, self.state.tables)
        self.weigh()

    def weigh(self) -> None:
        networks = self.layout.networks
        network_chain.weigh_patterns(
            self.layout.patterns, networks.n_options, self.state.tables, self.hard, self.state.log_suj
        )

    def parameters(self, g: int) -> tuple[Floats, Floats]:
        """V (J, S, L) and W (P,) of a network."""
        start = self.layout.networks.theta_start
        theta, pairs = self.state.theta_x[start[g] : start[g + 1]], len(self.pairs[g]) if g < len(self.groups) else 0
        v = theta[: theta.size - pairs]
        return v.reshape(self.evidence.annotations.n_classes, -1, self.layout.networks.n_options), theta[v.size :]

    @property
    def drawn(self) -> Drawn:
        tables, couplings = [], []
        for g, pairs in enumerate(self.pairs):
            v, w = self.parameters(g)
            tables.append(np.exp([[network_oracles.log_table(v_sl, w, pairs)[0] for v_sl in v]]))
            couplings.append(w[None])
        easy = np.ones((1, *self.parameters(0)[0][:, 0].shape))
        if self.hard < 1:
            easy = network_oracles.softmax(self.parameters(len(self.groups))[0][:, 0])[None]
        return Drawn(np.exp(self.state.log_share_j)[None], couplings, tables, easy)

    def joint(self, n: int) -> Floats:
        """(2, J) p(class, hard or easy | labels and truth of item n)."""
        hard, easy = network_oracles.item_likelihood(self.evidence, n, self.groups, self.drawn)
        joint = np.stack((self.hard * hard[0], (1 - self.hard) * easy[0])) * np.exp(self.state.log_share_j)
        known = self.evidence.truth[n]
        if known >= 0:
            joint[:, np.arange(joint.shape[1]) != known] = 0
        return joint / joint.sum()


def some_crowd(seed: int, n_items: int = 6, n_annotators: int = 3, **shape: Any) -> Evidence:
    shape = {"n_classes": 2, "asked": 0.7} | shape
    return oracles.crowd(np.random.default_rng(seed), n_items, n_annotators, **shape)[0]


def check_truths(model: Model) -> None:
    """Weights against enumeration, drawn truths against weights, counts against drawn truths."""
    state, items = model.state, model.layout.items
    rng, turns = np.random.default_rng(2), 400
    seen = np.zeros_like(state.items_sj)
    for _ in range(turns):
        network_chain.draw_truths(rng, items, model.hard, state)
        seen += state.items_sj
        for s, j in np.ndindex(state.items_sj.shape):
            assert state.items_sj[s, j] <= items.weight_i.sum()
        assert state.items_sj.sum() == items.weight_i.sum()
    expected = np.zeros_like(seen)
    for n, i in enumerate(model.layout.distinct_n):
        a = model.evidence.annotations
        if i < 0:
            assert a.labels_per_item[n] == 0
            assert model.evidence.truth[n] < 0
            continue
        np.testing.assert_allclose(state.weight_ic[i].reshape(2, -1), model.joint(n), atol=1e-12)
        expected += model.joint(n)
    np.testing.assert_allclose(seen / turns, expected, atol=5 * np.sqrt(len(model.layout.distinct_n) / 4 / turns))


def check_posterior(evidence: Evidence, combiner: Any, hard: float, sd: tuple[float, float, float]) -> None:
    a, rng = evidence.annotations, np.random.default_rng(10)
    groups, shared_kk = network_groups.groups(evidence, combiner.exact_states, combiner.group_states)
    codes = [group.tolist() for group in groups]
    pairs = [[(x, y) for x, y in all_pairs(len(group)) if shared_kk[group[x], group[y]]] for group in codes]
    mean = np.eye(a.n_classes, a.n_options) * np.log(0.7 * (a.n_options - 1) / 0.3)
    easy = np.eye(a.n_classes, a.n_options) * np.log(0.9 * (a.n_options - 1) / 0.1)
    drawn = network_oracles.draw_prior(rng, 150_000, codes, pairs, a.n_options, mean, easy, sd, 0.8)
    exact = network_oracles.weighed_prior(rng, evidence, codes, drawn, hard)
    assert exact.effective > 3000
    found = combiner.fit(evidence)
    assert found.fit.converged
    people = found.annotators
    np.testing.assert_allclose(found.probabilities, exact.q_nj, atol=0.02)
    np.testing.assert_allclose(found.class_shares, exact.share_j, atol=0.02)
    np.testing.assert_allclose(people.confusion, exact.mean_kjl, atol=0.025)
    variance = people.confusion * (1 - people.confusion) / (people.concentration.sum(axis=2, keepdims=True) + 1)
    expected = (exact.square_kjl - exact.mean_kjl**2).sum(axis=2)
    np.testing.assert_allclose(variance.sum(axis=2), expected, atol=0.012)
    assert people.dependence is not None
    np.testing.assert_allclose(people.dependence, exact.correlation_kk, atol=0.05)
    if hard < 1:
        np.testing.assert_allclose(found.difficulty, exact.hard_n, atol=0.02)


def copied(seed: int, n_classes: int, known: int = 0, n_items: int = 600) -> tuple[Evidence, np.ndarray]:
    """Three annotators copy one answer that is right 6 times in 10 (97 copies in 100 exact), three others are right
    8 times in 10, each by themselves.
    """
    rng = np.random.default_rng(seed)
    truth = rng.integers(n_classes, size=n_items)

    def answers(accuracy: float, people: int) -> np.ndarray:
        wrong = (truth[:, None] + rng.integers(1, n_classes, size=(n_items, people))) % n_classes
        return np.where(rng.random((n_items, people)) < accuracy, truth[:, None], wrong)

    source = answers(0.6, 1)
    slips = rng.random((n_items, 3)) < 0.03
    copies = np.where(slips, rng.integers(n_classes, size=(n_items, 3)), source)
    annotations = Annotations.from_matrix(np.column_stack((copies, answers(0.8, 3))), range(n_classes))
    return Evidence(annotations, truth=np.where(np.arange(n_items) < known, truth, -1)), truth


def accuracies(combiner: Any, n_classes: int, known: int, seeds: int = 5) -> Floats:
    """Share of the other items that are right, for each seed."""
    found = []
    for seed in range(seeds):
        evidence, truth = copied(seed, n_classes, known)
        right = combiner.fit(evidence).labels == truth
        found.append(right[~evidence.known].mean())
    return np.array(found)


def assert_clearly_better(found: Floats, other: Floats) -> None:
    gain = found - other
    assert gain.min() > 0.1, (found, other)
    assert gain.mean() > 0.15
    assert gain.mean() > 6 * gain.std(ddof=1) / np.sqrt(len(gain))
