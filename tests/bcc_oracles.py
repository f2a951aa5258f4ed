"""Bayesian classifier combination by enumeration: every truth and difficulty of a few items, alpha by quadrature.

Also draws from the model itself, for joint-distribution tests (Geweke 2004). Nothing shares code with the samplers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import numpy as np
from scipy.special import gammaln

from hitl.annotations import Annotations
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


@dataclass
class World:
    """Everything the model speaks of, drawn once."""

    share_j: Floats
    alpha_kjl: Floats
    log_pi_kjl: Floats
    truth_n: np.ndarray
    hard_n: np.ndarray
    label_m: np.ndarray


def draw_world(
    rng: np.random.Generator,
    table: Annotations,
    mean_jl: Floats,
    smoothing: float,
    hard: float = 1.0,
    easy_jl: Floats | None = None,
) -> World:
    """Parameters, truths and labels, who labels what being as in `table`."""
    share = rng.dirichlet(np.full(len(mean_jl), smoothing))
    alpha = rng.exponential(mean_jl, size=(table.n_annotators, *mean_jl.shape))
    log_gamma = np.log(rng.gamma(alpha + 1)) - rng.exponential(size=alpha.shape) / alpha
    log_pi = log_gamma - np.logaddexp.reduce(log_gamma, axis=2, keepdims=True)
    truth = rng.choice(len(mean_jl), p=share, size=table.n_items)
    is_hard = rng.random(table.n_items) < hard
    return World(share, alpha, log_pi, truth, is_hard, draw_labels(rng, table, log_pi, truth, is_hard, easy_jl))


def draw_labels(
    rng: np.random.Generator,
    table: Annotations,
    log_pi_kjl: Floats,
    truth_n: np.ndarray,
    hard_n: np.ndarray,
    easy_jl: Floats | None,
) -> np.ndarray:
    """(M,) labels given truths and matrices."""
    chance = np.exp(log_pi_kjl[table.annotator, truth_n[table.item]])
    if easy_jl is not None:
        chance = np.where(hard_n[table.item, None], chance, easy_jl[truth_n[table.item]])
    drawn = (rng.random((len(chance), 1)) > chance.cumsum(axis=1)).sum(axis=1)
    return np.minimum(drawn, chance.shape[1] - 1)


def redraw_labels(
    rng: np.random.Generator,
    table: Annotations,
    smoothing: float,
    alpha_klj: Floats,
    truth_n: np.ndarray,
    hard_n: np.ndarray,
    easy_jl: Floats | None = None,
) -> World:
    """New labels given (t, s, alpha), with the pi and p that a sampler has summed out drawn anew."""
    alpha = alpha_klj.transpose(0, 2, 1)
    log_gamma = np.log(rng.gamma(alpha + 1)) - rng.exponential(size=alpha.shape) / alpha
    log_pi = log_gamma - np.logaddexp.reduce(log_gamma, axis=2, keepdims=True)
    share = rng.dirichlet(smoothing + np.bincount(truth_n, minlength=alpha.shape[1]))
    return World(share, alpha, log_pi, truth_n, hard_n, draw_labels(rng, table, log_pi, truth_n, hard_n, easy_jl))


def features(world: World, table: Annotations) -> list[float]:
    """Quantities whose distributions a joint-distribution test compares."""
    t, pi, label = world.truth_n, np.exp(world.log_pi_kjl), world.label_m
    first = t == 0
    right = label == t[table.item]
    return [
        world.share_j[0],
        world.share_j[0] ** 2,
        first.mean(),
        first.mean() * world.share_j[0],
        np.log(world.alpha_kjl[0, 0, 0]),
        np.log(world.alpha_kjl[0, 1, 0]),
        np.log(world.alpha_kjl).mean(),
        world.alpha_kjl.mean(),
        np.log(world.alpha_kjl[0, 0, 0]) * pi[0, 0, 0],
        pi[0, 0, 0],
        pi[0, 1, 0] ** 2,
        pi[:, :, -1].mean(),
        right.mean(),
        right.mean() ** 2,
        pi[0, 0, 0] * right.mean(),
        (label == 0).mean(),
        world.hard_n.mean(),
        world.hard_n.mean() * right.mean(),
        world.hard_n.mean() * pi[0, 0, 0],
    ]


def z_scores(independent: Floats, dependent: Floats, effective: Callable[[Floats], float]) -> Floats:
    """How many standard errors the means of two sets of draws (draws, features) are apart; 0 for constants."""
    gap = independent.mean(axis=0) - dependent.mean(axis=0)
    size = np.array([effective(column[None]) for column in dependent.T])
    error = np.sqrt(independent.var(axis=0) / len(independent) + dependent.var(axis=0) / size)
    return np.divide(gap, error, out=np.zeros_like(gap), where=error > 0)
