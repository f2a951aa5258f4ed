"""Bayesian classifier combination by enumeration: every truth and difficulty of a few items, alpha by quadrature.

Also draws from the model itself, for joint-distribution tests (Geweke 2004). Nothing shares code with the samplers.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
from scipy.special import gammaln

from hitl.evidence import Evidence
from tests.oracles import Floats


class RowEvidence:
    """E over alpha_l ~ Exp(mean_l) of the Dirichlet-multinomial chance of a sequence of labels with counts n.

    Trapezoidal rule over log alpha, whose error falls exponentially with the step (both ends decay).
    """

    def __init__(self, mean_l: Floats, most: int) -> None:
        u = np.arange(-26.0, 4.6, 0.45)
        alpha = np.exp(u)[:, None] * mean_l  # grid, option
        weight = 0.45 * np.exp(u - np.exp(u))
        grown = gammaln(alpha[None] + np.arange(most + 3)[:, None, None]) - gammaln(alpha)
        self.factor = weight[None, :, None] * np.exp(grown)  # count, grid, option
        total = np.zeros((len(u),) * len(mean_l))
        for option in range(len(mean_l)):
            shape = [1] * len(mean_l)
            shape[option] = len(u)
            total = total + alpha[:, option].reshape(shape)
        self.shrunk = [np.exp(gammaln(total) - gammaln(total + size)) for size in range(most + 3)]
        self.known: dict[tuple[int, ...], float] = {}

    def __call__(self, counts: tuple[int, ...]) -> float:
        if counts not in self.known:
            value = self.shrunk[sum(counts)]
            for option in reversed(range(len(counts))):
                value = value @ self.factor[counts[option], :, option]
            self.known[counts] = float(value)
        return self.known[counts]


@dataclass
class Exact:
    """Posterior probabilities and moments; `square_kjl` is E x^2 of the matrices x of which `mean_kjl` is the mean."""

    q_nj: Floats
    hard_n: Floats
    share_j: Floats
    mean_kjl: Floats
    square_kjl: Floats


def enumerate_posterior(
    evidence: Evidence, mean_jl: Floats, smoothing: float, hard: float = 1.0, easy_jl: Floats | None = None
) -> Exact:
    """The exact posterior, alpha, pi and p integrated out, over all (t, s) that agree with the known truths."""
    a = evidence.annotations
    n_items, n_classes, n_people = a.n_items, a.n_classes, a.n_annotators
    easy_jl = np.ones_like(mean_jl) if easy_jl is None else easy_jl
    rows = [RowEvidence(mean_l, len(a)) for mean_l in mean_jl]
    truths = product(*[range(n_classes) if t < 0 else [int(t)] for t in evidence.truth])
    levels = list(product((True, False), repeat=n_items)) if hard < 1 else [(True,) * n_items]
    out = Exact(
        np.zeros((n_items, n_classes)),
        np.zeros(n_items),
        np.zeros(n_classes),
        np.zeros((n_people, *mean_jl.shape)),
        np.zeros((n_people, *mean_jl.shape)),
    )
    informative = np.flatnonzero((a.labels_per_item > 0) | (evidence.truth >= 0))
    total = 0.0
    for t, s in product(truths, levels):
        counts = np.zeros((n_people, *mean_jl.shape), dtype=int)
        weight = np.prod([hard if is_hard else 1 - hard for is_hard in s])
        for n, k, l in zip(a.item, a.annotator, a.label, strict=True):  # noqa: E741
            if s[n]:
                counts[k, t[n], l] += 1
            else:
                weight *= easy_jl[t[n], l]
        for j in range(n_classes):  # p(t) = Dirichlet-multinomial
            for already in range(t.count(j)):
                weight *= smoothing + already
        for k, j in product(range(n_people), range(n_classes)):
            weight *= rows[j](tuple(counts[k, j]))
        total += weight
        out.hard_n += weight * np.array(s)
        for n, j in enumerate(t):
            out.q_nj[n, j] += weight
        items_j = np.array([t.count(j) for j in range(n_classes)])
        out.share_j += weight * (items_j + smoothing) / (n_items + n_classes * smoothing)
        for k, j, option in np.ndindex(out.mean_kjl.shape):
            once, twice = (raised(counts[k, j], option, by) for by in (1, 2))
            here = rows[j](tuple(counts[k, j]))
            mean, square = rows[j](once) / here, rows[j](twice) / here
            easy_items = sum(t[n] == j and not s[n] for n in informative)
            share = (easy_items + 1 - hard) / (sum(t[n] == j for n in informative) + 1)
            fixed = share * easy_jl[j, option]
            out.mean_kjl[k, j, option] += weight * (fixed + (1 - share) * mean)
            out.square_kjl[k, j, option] += weight * (
                fixed**2 + 2 * fixed * (1 - share) * mean + (1 - share) ** 2 * square
            )
    return Exact(*(part / total for part in (out.q_nj, out.hard_n, out.share_j, out.mean_kjl, out.square_kjl)))


def raised(counts: Floats, option: int, by: int) -> tuple[int, ...]:
    return tuple(int(n) + (by if o == option else 0) for o, n in enumerate(counts))


# -- draws from the model --------------------------------------------------------------------------------------


def matched_variance(concentration: Floats) -> Floats:
    """(K, J) sum over a row of the variances of a Dirichlet."""
    total = concentration.sum(axis=2)
    mean = concentration / total[..., None]
    return (mean * (1 - mean)).sum(axis=2) / (total + 1)
