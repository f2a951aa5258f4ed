"""Bradley-Terry model with ties (Davidson 1970), annotators who sometimes guess, and intervals by Laplace.

    d = s_left - s_right            p(left), p(right), p(tie)  ∝  e^(d/2), e^(-d/2), e^t
    annotator k                     p(answer) = r_k p(answer | d) + (1 - r_k) g(answer)
    s_i, t ~ N(0, scale^2)          r_k ~ Beta(a, b), in log odds u_k

g is a guess: a tie as often as there are ties, otherwise left or right. Without ties in the data t is -inf, and with
one annotator r is 1: Bradley-Terry. Davidson's ties rather than Rao and Kupper's, because the model is an exponential
family: without guesses the log likelihood is concave, and a tie counts as half a win of each side.

The fit is the maximum of the log posterior of (s, t, u), where strengths sum to 0; its covariance is the inverse
Hessian on that space. γ, the chance that an answer was no guess, gives all derivatives of log p(answer):

    in (d, t): γ a,  γ A + γ (1 - γ) a a'        in u: γ - r,  γ (1 - γ) - r (1 - r)        mixed: γ (1 - γ) a

with a and A the derivatives of log p(answer | d): for d, a = x - E x and A = -Var x with x = 1/2, -1/2, 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.special import expit, log_expit, logit, logsumexp
from scipy.stats import norm

from hitl.annotations import Floats, Ints
from hitl.models.preferences.comparisons import Comparisons

DRAWS = 4_000
"""Draws of the strengths behind intervals of ranks."""

STEPS = 200


@dataclass(frozen=True, eq=False)
class Ranking:
    """Strengths of N items and reliability of K annotators.

    Attributes:
        strengths: (N,) log odds to win, with mean 0: an item that is 1 stronger wins e times as often as it loses.
        covariance: (N, N) of the strengths.
        tie: log weight t of a tie, -inf if there was none.
        tie_share: share of ties among the comparisons, which guesses have too.
        reliability: (K,) chance r_k that an answer is no guess; 1 for a single annotator, whom nothing checks.
        converged: True if the maximum was reached.
    """

    strengths: Floats
    covariance: Floats
    tie: float
    tie_share: float
    reliability: Floats
    converged: bool

    @property
    def order(self) -> Ints:
        """(N,) codes of the items, the strongest first."""
        return np.argsort(-self.strengths, kind="stable").astype(np.int32)

    def interval(self, level: float = 0.95) -> Floats:
        """Return (2, N) ends of the intervals of the strengths."""
        half = norm.ppf((1 + level) / 2) * np.sqrt(np.diag(self.covariance))
        return np.array([self.strengths - half, self.strengths + half])

    def wins(self, difference: Floats) -> Floats:
        """Return the chance to win against an item that is weaker by `difference`; it rises with the difference."""
        return np.asarray(np.exp(log_outcomes(difference, self.tie)[0]))

    def ranks(self, rng: np.random.Generator, level: float = 0.95) -> tuple[Floats, Ints]:
        """Return (N,) chances to be the best, and (2, N) ends of the intervals of the ranks, from 1."""
        values, vectors = np.linalg.eigh(self.covariance)
        noise = rng.standard_normal((DRAWS, len(values))) * np.sqrt(np.maximum(values, 0))
        drawn = self.strengths + noise @ vectors.T
        rank = np.argsort(np.argsort(-drawn, axis=1), axis=1) + 1
        ends = np.quantile(rank, [(1 - level) / 2, (1 + level) / 2], axis=0, method="inverted_cdf")
        return (rank == 1).mean(axis=0), ends.astype(np.int32)


@dataclass(frozen=True, slots=True)
class Davidson:
    """Settings of the model.

    Attributes:
        scale: standard deviation of strengths a priori; inf for maximum likelihood, which exists only if each group
            of items has won against the others and lost (Ford 1957).
        reliability: (a, b) of the prior of reliabilities; (1, 1) is even.
    """

    scale: float = 3.0
    reliability: tuple[float, float] = (1.0, 1.0)

    def fit(self, comparisons: Comparisons) -> Ranking:
        """Find the most likely strengths and reliabilities, and how far they are known."""
        posterior = Posterior(self, comparisons)
        x, converged = _maximize(posterior)
        covariance = np.linalg.inv(-posterior.derivatives(x)[1])
        n, st = posterior.n, posterior.st
        s_cov = covariance[:n, :n]
        s_cov = s_cov - s_cov.mean(axis=0) - s_cov.mean(axis=1)[:, None] + s_cov.mean()
        tie = float(x[n]) if st > n else -np.inf
        reliability = expit(x[st:]) if posterior.people else np.ones(1)
        return Ranking(x[:n] - x[:n].mean(), s_cov, tie, posterior.tie_share, reliability, converged)


class Posterior:
    """Log posterior of x = (s, t if there are ties, u if there are several annotators), and its derivatives."""

    def __init__(self, settings: Davidson, given: Comparisons) -> None:
        self.given, self.settings = given, settings
        self.answer = np.array([2, 0, 1])[given.outcome]  # left, right, tie; -1 is the last
        self.tie_share = float(np.average(given.outcome == 0, weights=given.weight))
        self.n, self.people = len(given.items), len(given.annotators) if len(given.annotators) > 1 else 0
        self.st = self.n + int(self.tie_share > 0)
        self.log_guess = np.log(np.maximum(guesses(self.tie_share), 1e-300))[self.answer]
        self.start = np.zeros(self.st + self.people)
        self.start[self.st :] = logit(settings.reliability[0] / sum(settings.reliability))

    def value(self, x: Floats) -> float:
        """Return the log posterior, up to a constant."""
        _, log_p, u = self._rows(x)
        likelihood = np.logaddexp(log_expit(u) + log_p, log_expit(-u) + self.log_guess)
        (a, b), s, people = self.settings.reliability, x[: self.st], x[self.st :]
        prior = (a * log_expit(people) + b * log_expit(-people)).sum() - self.settings.scale**-2 * s @ s / 2
        return float(self.given.weight @ likelihood + prior - x[: self.n].sum() ** 2 / 2)

    def derivatives(self, x: Floats) -> tuple[Floats, Floats]:
        """Return the gradient (P,) and the Hessian (P, P) of `value`."""
        p, log_p, u = self._rows(x)
        weight, r, known = self.given.weight, expit(u), expit(u + log_p - self.log_guess)  # known: γ
        mean, doubt = (p[0] - p[1]) / 2, known * (1 - known)
        a_d, a_t = np.array([0.5, -0.5, 0.0])[self.answer] - mean, (self.answer == 2) - p[2]
        dd = doubt * a_d**2 - known * ((p[0] + p[1]) / 4 - mean**2)
        tt = doubt * a_t**2 - known * p[2] * (1 - p[2])
        dt = doubt * a_d * a_t + known * mean * p[2]
        by_left, by_right, n, st = self.given.left, self.given.right, self.n, self.st

        def by_item(entries: Floats) -> Floats:
            return np.asarray(np.bincount(by_left, entries, n) - np.bincount(by_right, entries, n))

        def by_person(entries: Floats, rows: Ints | int = 0, count: int = 1) -> Floats:
            at = rows * self.people + self.given.annotator
            return np.asarray(np.bincount(at, weight * entries, count * self.people).reshape(count, -1))

        gradient, hessian = np.zeros(len(x)), np.zeros((len(x), len(x)))
        gradient[:n] = by_item(weight * known * a_d)
        between = np.bincount(by_left * n + by_right, weight * dd, n * n).reshape(n, n)
        between += between.T
        hessian[:n, :n] = np.diag(between.sum(axis=0)) - between
        if st > n:
            gradient[n], hessian[n, n] = weight @ (known * a_t), weight @ tt
            hessian[:n, n] = hessian[n, :n] = by_item(weight * dt)
        if self.people:
            gradient[st:] = by_person(known - r)
            hessian[st:, st:] = np.diag(by_person(doubt - r * (1 - r))[0])
            hessian[:n, st:] = by_person(doubt * a_d, by_left, n) - by_person(doubt * a_d, by_right, n)
            hessian[n:st, st:] = by_person(doubt * a_t)
            hessian[st:, :st] = hessian[:st, st:].T
        precision, (a, b), reliability = self.settings.scale**-2, self.settings.reliability, expit(x[st:])
        gradient[:st] -= precision * x[:st]
        gradient[:n] -= x[:n].sum()  # holds the sum of the strengths at 0, which nothing else decides
        gradient[st:] += a - (a + b) * reliability
        hessian[np.diag_indices(st)] -= precision
        hessian[:n, :n] -= 1.0
        hessian[range(st, len(x)), range(st, len(x))] -= (a + b) * reliability * (1 - reliability)
        return gradient, hessian

    def _rows(self, x: Floats) -> tuple[Floats, Floats, Floats]:
        """Return (3, M) chances of the answers without a guess, (M,) the log of the one given, and (M,) u."""
        log_p = log_outcomes(x[self.given.left] - x[self.given.right], x[self.n] if self.st > self.n else -np.inf)
        rows = np.arange(len(self.answer))
        u = x[self.st :][self.given.annotator] if self.people else np.full(len(rows), np.inf)
        return np.exp(log_p), log_p[self.answer, rows], u


def _maximize(posterior: Posterior) -> tuple[Floats, bool]:
    """Return where the log posterior is highest, by damped steps of Newton, and True if the last step was below 1e-9.

    With guesses it is not concave: the damping makes each step one upwards.
    """
    x, damping = posterior.start, 0.0
    for _ in range(STEPS):
        gradient, hessian = posterior.derivatives(x)
        try:
            step = cho_solve(cho_factor(damping * np.eye(len(x)) - hessian), gradient)
            before = posterior.value(x)
            rises = posterior.value(x + step) >= before - 1e-12 * (1_000 + abs(before))  # but for rounding
        except LinAlgError:
            rises = False
        if not rises:
            damping = max(10 * damping, 0.1)
            continue
        x, damping = x + step, damping / 10 if damping > 0.01 else 0.0
        if np.abs(step).max() < 1e-9:
            return x, True
    return x, False


def log_outcomes(d: Floats, t: Floats | float) -> Floats:
    """Return (3, ...) log chances that the left item wins, the right one, or neither, by their difference d."""
    scores = np.stack([d / 2, -d / 2, np.broadcast_to(t, np.shape(d))])
    return np.asarray(scores - logsumexp(scores, axis=0))


def guesses(tie_share: float) -> Floats:
    """Return (3,) chances of the same answers from someone who guesses."""
    return np.array([(1 - tie_share) / 2, (1 - tie_share) / 2, tie_share])
