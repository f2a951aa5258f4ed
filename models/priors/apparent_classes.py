"""Prior for misleading items: annotators answer about an item's apparent class, which need not be its true class.

    p(y_n | z_n)  =  clear [y_n = z_n]  +  (1 - clear) share[y_n]                     y_n the apparent class of n

Annotators see y_n alone, so all of them err together on a misleading item, and ten who agree prove no more than one.
How often items mislead is learned from a prior over the true classes z of related items, because neighbors predict z_n
and not y_n. `ApparentClasses` is the prior over y: its messages and beliefs are about y, and annotators are scored
against y. Only `truths` returns beliefs about z.

    m_n[j]   = ln( clear exp L_n[j] + (1 - clear) sum_y share[y] exp L_n[y] )        message of labels L_n about z_n = j
    q_n[z]   = the inner prior's beliefs given m                                     `truths`
    q_n[y]   = exp L_n[y] ( clear q_n[z=y] exp -m_n[y] + (1 - clear) share[y] sum_z q_n[z] exp -m_n[z] )

share[y] are the class shares, so that p(y) = p(z) if nothing else is known. Hence without neighbors `clear` changes no
likelihood, and only its prior, Beta(2, 1), moves it, slowly toward 1. Items with ground truth count as clear.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Generic, Self, TypeVar

import numpy as np

from hitl.annotations import Floats
from hitl.models.inference.engine import Additive
from hitl.models.numerics import kernels
from hitl.models.priors import Mask, Posterior, TruthPrior

P = TypeVar("P", bound=TruthPrior)


@dataclass(frozen=True, eq=False)
class Seen(Additive):
    """Statistics of true and apparent classes.

    Attributes:
        inner: statistics of the prior over true classes.
        seen_j: (J,) expected number of items whose apparent class is j.
        clear: expected number of items, among those without ground truth, whose apparent class is the true one.
        items: number of items that count and have no ground truth.
    """

    inner: Any
    seen_j: Floats
    clear: float
    items: float


@dataclass(frozen=True, eq=False)
class ApparentClasses(Generic[P]):
    """Prior over the apparent classes of items.

    Attributes:
        prior: prior over the true classes.
        share_j: (J,) shares of the apparent classes of misleading items; they sum to 1.
        clear: probability that an item does not mislead, in (0, 1]; 1 gives the posterior of `prior` itself.
        learned: True if `clear` and the shares are learned.
    """

    prior: P
    share_j: Floats
    clear: float = 1.0
    learned: bool = False

    def posterior(self, message_nj: Floats, counted_n: Mask) -> Posterior:
        if self.clear == 1:
            found = self.prior.posterior(message_nj, counted_n)
            items = float(counted_n.sum())
            return replace(
                found, statistics=Seen(found.statistics, kernels.totals(found.q_nj, counted_n), items, items)
            )
        looks = _Looks.of(message_nj, self.clear, self.share_j)
        found = self.prior.posterior(looks.told_nj(), counted_n)
        by_nj = found.q_nj / looks.mixed_nj
        q_nj = looks.seems_nj * (self.clear * by_nj + (1 - self.clear) * self.share_j * by_nj.sum(axis=1)[:, None])
        q_nj /= q_nj.sum(axis=1, keepdims=True)
        clear_n = self.clear * np.einsum("nj,nj->n", looks.seems_nj, by_nj)
        q_nj[looks.known_n] = found.q_nj[looks.known_n]
        among_n = counted_n & ~looks.known_n
        seen = Seen(
            found.statistics, kernels.totals(q_nj, among_n), float(clear_n[among_n].sum()), float(among_n.sum())
        )
        return Posterior(q_nj, found.log_evidence, seen)

    def truths(self, message_nj: Floats) -> Floats:
        """Return (N, J) beliefs about the true classes; all items count."""
        if self.clear < 1:
            message_nj = _Looks.of(message_nj, self.clear, self.share_j).told_nj()
        return self.prior.posterior(message_nj, np.ones(len(message_nj), dtype=bool)).q_nj

    def statistics(self, q_nj: Floats, counted_n: Mask) -> Seen:
        items = float(counted_n.sum())
        seen_j = kernels.totals(q_nj, counted_n)
        return Seen(self.prior.statistics(q_nj, counted_n), seen_j, self.clear * items, items)

    def learn(self, statistics: Seen) -> Self:
        inner = self.prior.learn(statistics.inner)
        if not self.learned:
            return replace(self, prior=inner)
        share_j = (statistics.seen_j + 1) / (statistics.seen_j + 1).sum()
        return replace(self, prior=inner, share_j=share_j, clear=(statistics.clear + 1) / (statistics.items + 1))

    def log_density(self) -> float:
        own = float(np.log(self.clear) + np.log(self.share_j).sum()) if self.learned else 0.0
        return self.prior.log_density() + own


@dataclass(frozen=True, eq=False)
class _Looks:
    """Likelihoods relative to each item's largest: exp L of apparent classes (`seems_nj`), exp m of true (`mixed_nj`).

    `known_n` marks items with ground truth, whose apparent class is the true one: their messages remain as they are.
    """

    message_nj: Floats
    seems_nj: Floats
    mixed_nj: Floats
    known_n: Mask

    @classmethod
    def of(cls, message_nj: Floats, clear: float, share_j: Floats) -> Self:
        seems_nj = np.exp(message_nj - message_nj.max(axis=1, keepdims=True))
        mixed_nj = clear * seems_nj + (1 - clear) * (seems_nj @ share_j)[:, None]
        return cls(message_nj, seems_nj, mixed_nj, np.asarray(np.isneginf(message_nj).any(axis=1)))

    def told_nj(self) -> Floats:
        """Return (N, J) messages m about true classes."""
        told_nj = self.message_nj.max(axis=1, keepdims=True) + np.log(self.mixed_nj)
        return np.where(self.known_n[:, None], self.message_nj, told_nj)
