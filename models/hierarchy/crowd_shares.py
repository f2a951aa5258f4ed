"""Class shares averaged over explanations of the votes, as if all annotators were one.

With few labels per item, two explanations trade off: a class is frequent and recognized well, or rare and its answers
are often errors. Between them lies a ridge on which labels are nearly equally likely. So shares are not maximized but
averaged over points of the ridge, weighted by their evidence:

    p_t   ∝  p^(1 - t)          from the shares p of a first fit (t = 0) to even shares (t = 1), and beyond p (t < 0)
    p*    learned by EM from the best of these, if enough items have three votes

    shares  =  sum_s exp(evidence_s) p_s / sum_s exp(evidence_s)        over all p_t and p*

At each point EM learns the crowd's rows pi, with the shares held fixed. Its evidence is

    sum_n  ln [ sum_j p_j prod_m pi_j,l_nm ] / (1 + RHO m_n)  +  ln p(h)

Labels of one item are not independent, so an item's log evidence is divided by a design effect. h are the recalls
of the classes, h_j ~ Beta(g c, g (1 - c)), averaged over g in `STRENGTHS` and c ~ Beta(7.5, 2.5).

Rows of single annotators would take chance for skill, by more nats than separate the points.
"""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln, logsumexp, softmax
from scipy.stats import beta

from hitl.annotations import Floats
from hitl.models.hierarchy.skills import recalled
from hitl.models.numerics import kernels

POINTS = (0.0, -0.35, 0.2, 0.4, 0.6, 0.8, 1.0)
"""Values of t."""

LEAST_SHARE = 0.003
"""Smallest share p that is raised to a power."""

RHO = 0.2
STRENGTHS: Floats = np.array([4.0, 8.0, 16.0, 32.0])
RECALL, STRENGTH = 0.75, 8.0
"""Mean of c, and g, of the prior of the recalls that EM learns."""

DECIDED = 0.1
"""Minimum share of items with three votes for shares to be learned freely. With fewer, a class may swallow another one:
with 1.2 labels per item of cifar10n one of ten classes vanished, and accuracy fell from .82 to .76.
"""

ITERATIONS, AT_REST = 100, 1e-4
"""Stopping rule of EM: maximum iterations, and the gain in nats. The limit matters: on a ridge EM creeps, and what 500
iterations find there is further from the truth on public crowds (accuracy .836 for .840).
"""

CELLS, FEWEST = 20_000_000, 1000
"""Maximum number of products of one iteration, which limits the items, and minimum number of items. If the
number of classes leaves fewer, the shares of the first fit are kept.
"""

_C: Floats = (np.arange(40) + 0.5) / 40
_LOG_P_C: Floats = beta.logpdf(_C, 7.5, 2.5) - logsumexp(beta.logpdf(_C, 7.5, 2.5))


def averaged_shares(votes_nl: Floats, q_nj: Floats, share_j: Floats) -> Floats:
    """Return (J,) averaged shares from votes (n, L), first beliefs (n, J) and the shares (J,) of a first fit."""
    most = CELLS // (votes_nl.shape[1] * share_j.size)
    if most < min(FEWEST, len(votes_nl)):
        return share_j
    votes_nl, q_nj = votes_nl[:most], q_nj[:most]
    votes_pl, pattern_n, size_p = np.unique(votes_nl, axis=0, return_inverse=True, return_counts=True)
    items_p = size_p.astype(np.float64)
    q_pj = np.zeros((len(votes_pl), share_j.size))
    np.add.at(q_pj, pattern_n.ravel(), q_nj)
    q_pj /= items_p[:, None]
    base_j = np.maximum(share_j, LEAST_SHARE)
    found = []
    for t in POINTS:
        p_j = base_j ** (1 - t)
        found.append(_fitted(votes_pl, items_p, q_pj, p_j / p_j.sum(), learn=False))
    if items_p[votes_pl.sum(axis=1) >= 3].sum() >= DECIDED * items_p.sum():
        best = max(found, key=lambda one: one[2])
        found.append(_fitted(votes_pl, items_p, best[1], best[0], learn=True))
    return np.asarray(softmax([evidence for _, _, evidence in found]) @ [p_j for p_j, _, _ in found])


def _fitted(
    votes_pl: Floats, items_p: Floats, q_pj: Floats, share_j: Floats, *, learn: bool
) -> tuple[Floats, Floats, float]:
    """Return shares (J,), beliefs (P, J) and log evidence after EM over patterns of votes, from first beliefs."""
    weak_p = 1 / (1 + RHO * votes_pl.sum(axis=1))
    last = -np.inf
    for _ in range(ITERATIONS):
        rows_lj = recalled((votes_pl * items_p[:, None]).T @ q_pj, RECALL, STRENGTH)
        if learn:
            share_j = (items_p @ q_pj + 1 / share_j.size) / (items_p.sum() + 1)
        q_pj, log_z_p = kernels.beliefs(votes_pl @ np.log(rows_lj), np.log(share_j))
        found = float(items_p @ log_z_p)
        if abs(found - last) < AT_REST:
            break
        last = found
    recall_j = rows_lj[: share_j.size].diagonal()
    return share_j, q_pj, float((items_p * weak_p) @ log_z_p) + _log_density(recall_j)


def _log_density(recall_j: Floats) -> float:
    """Return the log density of the recalls (J,), averaged over strengths and the crowd's recall c."""
    h_j = np.clip(recall_j, 1e-4, 1 - 1e-4)[:, None, None]
    a, b = STRENGTHS[:, None] * _C, STRENGTHS[:, None] * (1 - _C)
    log_p_j = (a - 1) * np.log(h_j) + (b - 1) * np.log1p(-h_j) - gammaln(a) - gammaln(b) + gammaln(a + b)
    return float(logsumexp(log_p_j.sum(axis=0) + _LOG_P_C) - np.log(STRENGTHS.size))
