"""Contract of a truth prior: messages in, beliefs, log evidence and statistics out (see hitl.models.priors).

A prior is compared with enumeration: each of the J**N truths of a few items has weight exp(log p(z) + its messages).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from scipy.special import logsumexp

from hitl.annotations import Floats
from hitl.models.priors import Mask, TruthPrior
from hitl.testing.contract import DoesNotApply, Fact, add_to, check

FACTS: dict[str, Fact[Any]] = {}
"""Fact in words -> a function that checks a `PriorCase`."""

fact = add_to(FACTS)


@dataclass(frozen=True)
class PriorCase:
    """A prior over a few items (at most 7), with what the contract needs to check it.

    Attributes:
        prior: for N items.
        n_items, n_classes: N and J.
        log_joint: z (N class codes) -> log p(z), up to a constant; None: not known.
        part: rows -> the same prior over these items alone; None if its items depend on each other.

    Example:
        >>> import numpy as np
        >>> from hitl.models.priors.shares import Fixed
        >>> from hitl.testing import PriorCase
        >>> PriorCase(Fixed(np.log([[0.5, 0.5], [0.9, 0.1]])), n_items=2, n_classes=2).messages().shape
        (2, 2)
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


def check_prior(case: PriorCase, exempt: Mapping[str, str] | None = None) -> None:
    """Raise AssertionError, which names the fact, unless this prior meets the contract.

    `exempt`: fact -> the reason why it does not hold for this prior.

    Example:
        >>> import numpy as np
        >>> from hitl.models.priors.shares import Shares
        >>> from hitl.testing import PriorCase, check_prior
        >>> prior = Shares(np.array([0.2, 0.3, 0.5]))
        >>> joint = lambda z: float(np.log(prior.share_j[list(z)]).sum())
        >>> check_prior(PriorCase(prior, 4, 3, joint, part=lambda rows: prior))
    """
    check(FACTS, case, exempt or {})


@fact
def beliefs_are_distributions(case: PriorCase) -> None:
    """Check that rows (N, J) sum to 1, and that the log evidence is finite."""
    posterior = case.prior.posterior(case.messages(), case.all_count)
    assert posterior.q_nj.shape == (case.n_items, case.n_classes)
    assert (posterior.q_nj >= 0).all()
    np.testing.assert_allclose(posterior.q_nj.sum(axis=1), 1, atol=1e-9)
    assert np.isfinite(posterior.log_evidence)
    assert np.isfinite(case.prior.log_density())


@fact
def known_truth_is_certain(case: PriorCase) -> None:
    """Check that an item with a single possible class has that class."""
    last = case.n_classes - 1
    q_nj = case.prior.posterior(case.messages(1, {0: last}), case.all_count).q_nj
    np.testing.assert_array_equal(q_nj[0], np.eye(case.n_classes)[last])


@fact
def beliefs_are_those_of_enumeration(case: PriorCase) -> None:
    """Check beliefs with and without known truth, which also affects the items that depend on it."""
    if case.log_joint is None:
        raise DoesNotApply("its log joint is not given")
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


@fact
def what_does_not_count_is_judged_and_not_learned_from(case: PriorCase) -> None:
    """Check that messages of an item that does not count change neither log evidence nor the learned prior."""
    if case.part is None:
        raise DoesNotApply("its items depend on each other")
    counted_n = np.arange(case.n_items) > 0
    message_nj = case.messages(3)
    other_nj = message_nj.copy()
    other_nj[0] = message_nj[0, ::-1] + 1
    one, other = (case.prior.posterior(given.copy(), counted_n) for given in (message_nj, other_nj))
    assert np.abs(one.q_nj[0] - other.q_nj[0]).max() > 1e-6
    np.testing.assert_allclose(one.log_evidence, other.log_evidence, atol=1e-10)
    _same_prior(case, case.prior.learn(one.statistics), case.prior.learn(other.statistics))


@fact
def statistics_of_two_shards_add_up(case: PriorCase) -> None:
    """Check that adding the statistics of two shards of independent items gives those of all items."""
    if case.part is None:
        raise DoesNotApply("its items depend on each other")
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


@fact
def the_order_of_the_items_does_not_matter(case: PriorCase) -> None:
    """Check that items in another order have the same beliefs in that order."""
    if case.part is None:
        raise DoesNotApply("its items depend on each other")
    order = np.random.default_rng(5).permutation(case.n_items)
    message_nj = case.messages(5)
    plain = case.prior.posterior(message_nj.copy(), case.all_count)
    moved = case.part(order).posterior(message_nj[order], case.all_count)
    np.testing.assert_allclose(moved.q_nj, plain.q_nj[order], atol=1e-10)
    np.testing.assert_allclose(moved.log_evidence, plain.log_evidence, atol=1e-8)


@fact
def learning_never_lowers_the_objective(case: PriorCase) -> None:
    """Check that log evidence + log density never falls over turns of expectation and learning."""
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
