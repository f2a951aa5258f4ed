"""Contract of truth priors, a chain of the tests too: messages in, beliefs, log evidence and statistics out.

A prior is compared with enumeration: each of the J**N truths of a few items has weight exp(log p(z) + its messages).
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, is_dataclass, replace
from functools import partial
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from scipy.special import digamma, logsumexp

import hitl.models.priors
from hitl.annotations import Floats
from hitl.models.calibration.temperature import LogTemperature
from hitl.models.numerics.potts import Graph
from hitl.models.priors import Mask, TruthPrior
from hitl.models.priors.apparent_classes import ApparentClasses
from hitl.models.priors.calibrated import Calibrated
from hitl.models.priors.covariance import CovarianceModule
from hitl.models.priors.gp import GaussianProcess
from hitl.models.priors.graph_field import SWEEPS_ALONE, GraphField
from hitl.models.priors.markov_chain import DirichletChain, MarkovChain, Sequences
from hitl.models.priors.shares import DirichletShares, Fixed, Shares
from hitl.models.priors.variational_gp import Inputs, VariationalGP
from hitl.testing.crowds import crowd
from tests.models.priors.chains import ToyChain

N, J = 5, 3


@dataclass(frozen=True)
class PriorCase:
    """A prior over N items with J classes, with what the contract needs to check it.

    Attributes:
        log_joint: z (N class codes) -> log p(z), up to a constant; None: not known.
        part: rows -> the same prior over these items alone; None if its items depend on each other.
    """

    prior: TruthPrior
    n_items: int
    n_classes: int
    log_joint: Callable[[tuple[int, ...]], float] | None = None
    part: Callable[[Any], TruthPrior] | None = None

    def messages(self, seed: int = 0, known: Mapping[int, int] | None = None) -> Floats:
        """Return (N, J) messages. They are -inf for all other classes of an item with known truth (item -> class)."""
        message_nj: Floats = np.random.default_rng(seed).normal(scale=1.5, size=(self.n_items, self.n_classes))
        for n, j in (known or {}).items():
            message_nj[n, np.arange(self.n_classes) != j] = -np.inf
        return message_nj

    @property
    def all_count(self) -> Mask:
        """(N,) mask that is True everywhere: every item counts."""
        return np.ones(self.n_items, dtype=np.bool_)


def factored(prior: Any, part: Any) -> PriorCase:
    """A prior whose items are independent: its joint is the sum of its log priors."""
    log_p_nj = np.broadcast_to(prior.log_prior(), (N, J))
    return PriorCase(prior, N, J, lambda z: float(log_p_nj[np.arange(N), list(z)].sum()), part)


def cases() -> dict[str, PriorCase]:
    rng = np.random.default_rng(0)
    shares, dirichlet = Shares(rng.dirichlet(np.ones(J)), 0.3), DirichletShares(rng.uniform(1, 5, size=J), 0.7)
    fixed = Fixed(np.log(rng.dirichlet(np.ones(J), size=N)))
    evidence, _ = crowd(rng, N, 4, J, models=2, abstaining=0.2)
    pool = Calibrated.from_evidence(evidence, LogTemperature())
    places = np.array([[7, 0], [7, 4], [2, 1], [2, 0], [2, 9]])  # two sequences, one of them not in order
    p_rj = np.random.default_rng(1).dirichlet(np.ones(J), size=1 + J)
    markov = MarkovChain(Sequences(places), p_rj[0], p_rj[1:], 0.3)
    bayesian = DirichletChain(Sequences(places), 5 * p_rj, 0.7)

    def transitions(log_p_rj: Any, z: tuple[int, ...]) -> float:
        follow = [(0, 1), (3, 2), (2, 4)]
        return float(log_p_rj[0, [z[0], z[3]]].sum() + sum(log_p_rj[1 + z[a], z[b]] for a, b in follow))

    def chain_case(prior: Any, log_p_rj: Any) -> PriorCase:
        def part(rows: Any) -> Any:
            return replace(prior, sequences=Sequences(places[rows]))

        return PriorCase(prior, N, J, partial(transitions, log_p_rj), part)

    chain = ToyChain(rng.dirichlet(np.ones(J)), rng.dirichlet(np.ones(J), size=J))

    inputs = Inputs.standardised(rng.normal(size=(N, 2)))
    variational = VariationalGP.unlearned(inputs, CovarianceModule(2, False), J, 3, "cpu", rng).paced(False, 0.0)
    process = replace(GaussianProcess.unlearned(rng.normal(size=(N, 2)), ard=False), sweeps=200)

    links = sparse.csr_array(
        np.array([[0, 1, 0, 0, 0], [1, 0, 0, 0, 0], [0, 0, 0, 2, 0], [0, 0, 2, 0, 1], [0, 0, 0, 1, 0]])
    )
    strength_j, share_j = np.array([0.7, 0.2, 1.1]), rng.dirichlet(np.ones(J))
    potts = GraphField(Graph.of(links), strength_j, share_j, 0.3, True, "belief-propagation", SWEEPS_ALONE)

    def steps(z: tuple[int, ...]) -> float:
        return float(np.log(chain.start_j[z[0]]) + sum(np.log(chain.step_ij[a, b]) for a, b in pairwise(z)))

    return {
        "Shares": factored(shares, lambda rows: shares),
        "DirichletShares": factored(dirichlet, lambda rows: dirichlet),
        "Fixed": factored(fixed, lambda rows: replace(fixed, log_p_nj=fixed.log_p_nj[rows])),
        "Calibrated": factored(pool, None),
        # Its beliefs are those of a bound: see test_variational_gp for how near they are to enumeration.
        "VariationalGP": PriorCase(variational, N, J, None, variational.over),
        # Its evidence is a pseudo-likelihood: see test_networks for what it is on a tree.
        "GraphField": PriorCase(potts, N, J, None, lambda rows: replace(potts, graph=Graph.of(links[rows][:, rows]))),
        # Known truth is known of the true class: see test_misleading_items for enumeration.
        "ApparentClasses": PriorCase(
            ApparentClasses(shares, shares.share_j, 0.8),
            N,
            J,
            None,
            lambda rows: ApparentClasses(shares, shares.share_j, 0.8),
        ),
        "MarkovChain": chain_case(markov, np.log(p_rj)),
        "DirichletChain": chain_case(bayesian, digamma(bayesian.nu_rj) - digamma(bayesian.nu_rj.sum(axis=1))[:, None]),
        "ToyChain": PriorCase(chain, N, J, steps),
        "GaussianProcess": PriorCase(process, N, 2),
    }


CASES = cases()


def test_every_prior_has_a_case() -> None:
    """Found by looking: what has `posterior` and `learn`."""
    found = set()
    for entry in pkgutil.iter_modules(hitl.models.priors.__path__, "hitl.models.priors."):
        for name, value in vars(importlib.import_module(entry.name)).items():
            if is_dataclass(value) and value.__module__ == entry.name and hasattr(value, "learn"):
                found.add(name)
    assert found - {"FollowedPool"} <= set(CASES)


every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


@every_case
def test_beliefs_are_distributions(case: PriorCase) -> None:
    posterior = case.prior.posterior(case.messages(), case.all_count)
    assert posterior.q_nj.shape == (case.n_items, case.n_classes)
    assert (posterior.q_nj >= 0).all()
    np.testing.assert_allclose(posterior.q_nj.sum(axis=1), 1, atol=1e-9)
    assert np.isfinite(posterior.log_evidence)
    assert np.isfinite(case.prior.log_density())


@every_case
def test_known_truth_is_certain(case: PriorCase) -> None:
    last = case.n_classes - 1
    q_nj = case.prior.posterior(case.messages(1, {0: last}), case.all_count).q_nj
    np.testing.assert_array_equal(q_nj[0], np.eye(case.n_classes)[last])


@every_case
def test_beliefs_are_those_of_enumeration(case: PriorCase) -> None:
    if case.log_joint is None:
        pytest.skip("its log joint is not given")
    before = None
    for known in ({}, {0: 0}, {0: case.n_classes - 1, case.n_items - 1: 0}):
        message_nj = case.messages(2, known)
        truths = list(product(range(case.n_classes), repeat=case.n_items))
        rows = np.arange(case.n_items)
        weight = np.array([case.log_joint(z) + message_nj[rows, list(z)].sum() for z in truths])
        log_evidence = float(logsumexp(weight))
        one_hot = np.eye(case.n_classes)[np.array(truths)]
        expected = np.einsum("t,tnj->nj", np.exp(weight - log_evidence), one_hot)
        posterior = case.prior.posterior(message_nj.copy(), case.all_count)
        np.testing.assert_allclose(posterior.q_nj, expected, atol=1e-9)
        # The joint may lack a constant, but it must be the same for all messages.
        before = posterior.log_evidence - log_evidence if before is None else before
        np.testing.assert_allclose(posterior.log_evidence - log_evidence, before, atol=1e-8)


@every_case
def test_what_does_not_count_is_judged_and_not_learned_from(case: PriorCase) -> None:
    if case.part is None:
        pytest.skip("its items depend on each other")
    counted_n = np.arange(case.n_items) > 0
    message_nj = case.messages(3)
    other_nj = message_nj.copy()
    other_nj[0] = message_nj[0, ::-1] + 1
    one, other = (case.prior.posterior(given.copy(), counted_n) for given in (message_nj, other_nj))
    assert np.abs(one.q_nj[0] - other.q_nj[0]).max() > 1e-6
    np.testing.assert_allclose(one.log_evidence, other.log_evidence, atol=1e-10)
    _same_prior(case, case.prior.learn(one.statistics), case.prior.learn(other.statistics))


@every_case
def test_statistics_of_two_shards_add_up(case: PriorCase) -> None:
    if case.part is None:
        pytest.skip("its items depend on each other")
    message_nj, half = case.messages(4), case.n_items // 2
    whole = case.prior.posterior(message_nj.copy(), case.all_count)
    shards = [
        case.part(rows).posterior(message_nj[rows].copy(), case.all_count[rows])
        for rows in (slice(0, half), slice(half, None))
    ]
    np.testing.assert_allclose(np.concatenate([shard.q_nj for shard in shards]), whole.q_nj, atol=1e-10)
    np.testing.assert_allclose(sum(shard.log_evidence for shard in shards), whole.log_evidence, atol=1e-8)
    added = case.prior.learn(shards[0].statistics + shards[1].statistics)
    _same_prior(case, added, case.prior.learn(whole.statistics))


@every_case
def test_the_order_of_the_items_does_not_matter(case: PriorCase) -> None:
    if case.part is None:
        pytest.skip("its items depend on each other")
    order = np.random.default_rng(5).permutation(case.n_items)
    message_nj = case.messages(5)
    plain = case.prior.posterior(message_nj.copy(), case.all_count)
    moved = case.part(order).posterior(message_nj[order], case.all_count)
    np.testing.assert_allclose(moved.q_nj, plain.q_nj[order], atol=1e-10)
    np.testing.assert_allclose(moved.log_evidence, plain.log_evidence, atol=1e-8)


@every_case
def test_learning_never_lowers_the_objective(case: PriorCase) -> None:
    prior, message_nj = case.prior, case.messages(6, {0: 0})
    last = -np.inf
    for _ in range(8):
        posterior = prior.posterior(message_nj.copy(), case.all_count)
        objective = posterior.log_evidence + prior.log_density()
        assert objective >= last - 1e-8, f"{objective} after {last}"
        last, prior = objective, prior.learn(posterior.statistics)


def _same_prior(case: PriorCase, one: TruthPrior, other: TruthPrior) -> None:
    """Raise AssertionError unless two priors give the same beliefs."""
    first, second = (prior.posterior(case.messages(7), case.all_count) for prior in (one, other))
    np.testing.assert_allclose(first.q_nj, second.q_nj, atol=1e-9)
    np.testing.assert_allclose(one.log_density(), other.log_density(), atol=1e-8)
