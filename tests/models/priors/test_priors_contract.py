"""Every truth prior passes the contract of `hitl.testing.priors`, a chain of the tests too."""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import is_dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from scipy.special import digamma

import hitl.models.priors
from hitl.models.calibration.temperature import LogTemperature
from hitl.models.numerics.graph import Graph
from hitl.models.priors.apparent_classes import ApparentClasses
from hitl.models.priors.calibrated import Calibrated
from hitl.models.priors.covariance import CovarianceModule
from hitl.models.priors.dirichlet_chain import DirichletChain
from hitl.models.priors.gp import GaussianProcess
from hitl.models.priors.graph_field import SWEEPS_ALONE, GraphField
from hitl.models.priors.markov_chain import MarkovChain, Sequences
from hitl.models.priors.shares import DirichletShares, Fixed, Shares
from hitl.models.priors.variational_gp import Inputs, VariationalGP
from hitl.testing.contract import DoesNotApply
from hitl.testing.crowds import crowd
from hitl.testing.priors import FACTS, PriorCase
from tests.models.priors.chains import ToyChain

N, J = 5, 3
EXEMPT: dict[tuple[str, str], str] = {}
"""(prior, fact) -> why it does not hold."""


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


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("fact", FACTS)
def test_contract(name: str, fact: str) -> None:
    if (name, fact) in EXEMPT:
        pytest.skip(EXEMPT[name, fact])
    try:
        FACTS[fact](CASES[name])
    except DoesNotApply as reason:
        pytest.skip(str(reason))
