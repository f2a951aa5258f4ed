"""Markov chains of true classes, for tokens of a sentence or frames of a video (Traganitis & Giannakis 2019, sec. 4).

    z_1 ~ Cat(first)        z_t | z_{t-1} = i ~ Cat(step[i])                                              (eq. 3)

Items are positions in sequences; the chain is the same for all sequences. Beliefs are exact, by forward and backward
passes, so the ground truth of an item reaches its neighbors. The chain learns from the expected first classes
and the expected transitions, which add up over sequences.

An item that does not count has a flat message in these passes. Its own message changes only its own beliefs.

With Dirichlet posteriors, first, step_i ~ Dir(nu_0) and q(step_i) = Dir(nu_0 + expected steps from i), the passes use
exp E ln p in place of probabilities. These values sum to less than 1. The log evidence of the passes is then the part
of the evidence bound that contains the true classes (Beal 2003, section 3.4).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
import numpy.typing as npt

from hitl.annotations import Floats
from hitl.models.inference.engine import Additive
from hitl.models.numerics.forward_backward import Indices, forward_backward
from hitl.models.numerics.special import digamma
from hitl.models.priors import Mask, Posterior
from hitl.models.priors.shares import log_beta

NEVER = -40.0
"""Log probability of a forbidden transition, which the Dirichlets leave out. Finite: known truth may break the rule."""


@dataclass(frozen=True, eq=False)
class Sequences:
    """Order of the items. `place_n2` (N, 2): the sequence of each item, and its position in the sequence."""

    place_n2: npt.NDArray[np.int64]

    @cached_property
    def rows(self) -> Indices:
        """(N,) items sorted by sequence and position."""
        return np.asarray(np.lexsort((self.place_n2[:, 1], self.place_n2[:, 0])))

    @cached_property
    def start(self) -> Indices:
        """(S + 1,) index in `rows` at which each of the S sequences begins, and N."""
        ordered = self.place_n2[self.rows, 0]
        return np.concatenate(([0], np.flatnonzero(np.diff(ordered)) + 1, [len(ordered)]))

    @cached_property
    def follows(self) -> Mask:
        """(N - 1,) True where the next item in `rows` is in the same sequence."""
        return np.asarray(np.diff(self.place_n2[self.rows, 0]) == 0)


@dataclass(frozen=True, eq=False)
class Transitions(Additive):
    """Expected numbers of first classes (J,), and of transitions from class i to class j (J, J)."""

    first_j: Floats
    pairs_ij: Floats


@dataclass(frozen=True, eq=False)
class MarkovChain:
    """Chain whose probabilities are at their posterior mode.

    Attributes:
        sequences: order of the items.
        first_j: (J,) probabilities of the first class.
        step_ij: (J, J) probabilities of class j after class i; rows sum to 1.
        smoothing: pseudo-count of each first class and each transition, > 0.
    """

    sequences: Sequences
    first_j: Floats
    step_ij: Floats
    smoothing: float = 0.01

    @classmethod
    def even(cls, sequences: Sequences, n_classes: int, smoothing: float = 0.01) -> Self:
        """Build the uniform chain: all first classes and transitions are equally likely."""
        return cls(
            sequences, np.full(n_classes, 1 / n_classes), np.full((n_classes, n_classes), 1 / n_classes), smoothing
        )

    @property
    def mean_rj(self) -> Floats:
        """(1 + J, J) probabilities of first classes, and of transitions from each class."""
        return np.vstack((self.first_j, self.step_ij))

    def posterior(self, message_nj: Floats, counted_n: Mask) -> Posterior:
        return chained(self.sequences, message_nj, counted_n, self.first_j, self.step_ij)

    def statistics(self, q_nj: Floats, counted_n: Mask) -> Transitions:
        return independent(self.sequences, q_nj, counted_n)

    def learn(self, statistics: Transitions) -> Self:
        """Return the posterior mode, (expected + smoothing) / total, of first classes and each row of transitions."""
        first_j, step_ij = statistics.first_j + self.smoothing, statistics.pairs_ij + self.smoothing
        return replace(self, first_j=first_j / first_j.sum(), step_ij=step_ij / step_ij.sum(axis=1, keepdims=True))

    def log_density(self) -> float:
        return self.smoothing * float(np.log(self.first_j).sum() + np.log(self.step_ij).sum())


@dataclass(frozen=True, eq=False)
class DirichletChain:
    """Dirichlet posteriors of a chain.

    Attributes:
        sequences: order of the items.
        nu_rj: (1 + J, J) Dirichlet parameters: of the first class, then of the transitions from each class.
        smoothing: prior pseudo-count of each allowed first class and transition, > 0.
        allowed_rj: (1 + J, J) True for allowed first classes and transitions; None: all.
    """

    sequences: Sequences
    nu_rj: Floats
    smoothing: float = 1.0
    allowed_rj: npt.NDArray[np.bool_] | None = None

    @classmethod
    def even(
        cls,
        sequences: Sequences,
        n_classes: int,
        smoothing: float = 1.0,
        allowed_rj: npt.NDArray[np.bool_] | None = None,
    ) -> Self:
        """Build the chain before any data, whose posterior is the prior."""
        allowed = np.ones((1 + n_classes, n_classes), dtype=bool) if allowed_rj is None else allowed_rj
        return cls(sequences, np.where(allowed, smoothing, 0.0), smoothing, allowed_rj)

    @property
    def mean_rj(self) -> Floats:
        """(1 + J, J) posterior mean probabilities of first classes, and of transitions from each class."""
        return np.asarray(self.nu_rj / self.nu_rj.sum(axis=1, keepdims=True))

    def posterior(self, message_nj: Floats, counted_n: Mask) -> Posterior:
        p_rj = np.exp(self._expected_log())
        return chained(self.sequences, message_nj, counted_n, p_rj[0], p_rj[1:])

    def statistics(self, q_nj: Floats, counted_n: Mask) -> Transitions:
        return independent(self.sequences, q_nj, counted_n)

    def learn(self, statistics: Transitions) -> Self:
        counted_rj = self.smoothing + np.vstack((statistics.first_j, statistics.pairs_ij))
        return replace(
            self, nu_rj=counted_rj if self.allowed_rj is None else np.where(self.allowed_rj, counted_rj, 0.0)
        )

    def log_density(self) -> float:
        rows = zip(self.nu_rj, self._expected_log(), strict=True)
        return sum(self._row_density(nu_j[nu_j > 0], expected_j[nu_j > 0]) for nu_j, expected_j in rows)

    def _row_density(self, nu_j: Floats, expected_j: Floats) -> float:
        prior_j = np.full_like(nu_j, self.smoothing)
        return float(log_beta(nu_j) - log_beta(prior_j) - (nu_j - prior_j) @ expected_j)

    def _expected_log(self) -> Floats:
        there = self.nu_rj > 0
        total = digamma(self.nu_rj.sum(axis=1, keepdims=True))
        return np.asarray(np.where(there, digamma(np.where(there, self.nu_rj, 1.0)) - total, NEVER))


def chained(sequences: Sequences, message_nj: Floats, counted_n: Mask, first_j: Floats, step_ij: Floats) -> Posterior:
    """Return the posterior of chains; probabilities of first classes and transitions need not be normalized."""
    counts = counted_n.all()
    heard_nj = message_nj if counts else np.where(counted_n[:, None], message_nj, 0.0)
    found = forward_backward(heard_nj, sequences.rows, sequences.start, first_j, step_ij)
    q_nj = found.q_nj
    if not counts:
        own_nj = message_nj[~counted_n]
        q_nj[~counted_n] *= np.exp(own_nj - own_nj.max(axis=1, keepdims=True))
        q_nj[~counted_n] /= q_nj[~counted_n].sum(axis=1, keepdims=True)
    return Posterior(q_nj, float(found.log_z_s.sum()), Transitions(found.first_j, found.pairs_ij))


def independent(sequences: Sequences, q_nj: Floats, counted_n: Mask) -> Transitions:
    """Return expected first classes, and transitions between items that count, treating items as independent."""
    rows, follows = sequences.rows, sequences.follows
    ordered_nj, counted = q_nj[rows], counted_n[rows]
    pairs = follows & counted[:-1] & counted[1:]
    first = sequences.start[:-1][counted[sequences.start[:-1]]]
    return Transitions(ordered_nj[first].sum(axis=0), ordered_nj[:-1][pairs].T @ ordered_nj[1:][pairs])
