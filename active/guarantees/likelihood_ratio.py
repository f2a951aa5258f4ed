"""Likelihood ratio of what is believed about wrong labels against the nearest null, for one audit after another.

The labels are in S strata. An audit draws stratum s with chance w_s, and one of the N_s labels left in it at random.
The null says that at least R of the labels left are wrong. A bet says that the share b_s of each stratum is, fewer than
R in all. The null's shares theta_s nearest to the bet, in expected log likelihood, satisfy

    w_s (theta_s - b_s) / (theta_s (1 - theta_s)) = eta N_s,      sum_s N_s theta_s = R                            (1)

for one eta >= 0, so theta_s is a root of a quadratic. The wealth of the bet is multiplied by

    b_s / theta_s  if the label is wrong,      (1 - b_s) / (1 - theta_s)  if it is right                          (2)

If M labels left are wrong, wherever they are, the mean of the factor is 1 - eta (M - R): at most 1 under the null. So
the wealth exceeds 1 / alpha with probability at most alpha at any time (Ville), and nothing is assumed of the belief.
With one stratum and one bet this is the ALPHA supermartingale of election audits (Stark 2023); the nearest null is the
reverse information projection of Grünwald, de Heide & Koolen (2024).

Arrays: S strata, B bets, T draws, C components of the belief about the shares.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hitl.annotations import Floats
from hitl.models.numerics.compiled import compiled

Ints = npt.NDArray[np.int64]

ODDS = np.array([0.05, 0.2, 0.5, 1.0, 2.0])
"""Factors by which the odds of the belief may be wrong."""

LEVELS = np.array([0.05, 0.3, 0.7])
"""Shares of wrong labels, relative to the promised one, that may be the same in all strata."""

WEIGHTS = np.array([0.3, 0.15, 0.15, 0.15, 0.1, 0.15])
"""Weights of the bets: the belief as it is; the belief scaled to SCALED of R; SAME of R in equal shares."""

SCALED, SAME, CAP = np.array([0.15, 0.4, 0.7]), np.array([0.2, 0.55]), 0.97
ROUNDS = 60


@compiled
def nearest_null(bet_s: Floats, chance_s: Floats, left_s: Ints, total: float) -> Floats:
    """Return the shares theta_s of (1), whose sum over the labels left is `total` or the least bit less.

    `total` must be above the bet's own and at most the number of labels left.
    """
    low, high = 0.0, 1.0 / left_s.sum()
    for _ in range(200):
        if _total(bet_s, chance_s, left_s, high) >= total:
            break
        low, high = high, 4 * high
    for _ in range(ROUNDS):
        middle = 0.5 * (low + high)
        if _total(bet_s, chance_s, left_s, middle) <= total:
            low = middle
        else:
            high = middle
    theta_s = np.empty(len(bet_s))
    for s in range(len(bet_s)):
        theta_s[s] = _share(bet_s[s], chance_s[s], low * left_s[s])
    return theta_s


@compiled
def _share(bet: float, chance: float, pull: float) -> float:
    """Solve (1) for theta in [bet, 1], in the form that loses no digits. `pull` is eta N_s."""
    if chance <= 0.0:
        return 1.0
    root = np.sqrt((chance - pull) ** 2 + 4.0 * pull * chance * bet)
    if pull <= chance:
        return float(min(2.0 * chance * bet / (chance - pull + root), 1.0)) if root > 0 else 1.0
    return float(min((pull - chance + root) / (2.0 * pull), 1.0))


@compiled
def _total(bet_s: Floats, chance_s: Floats, left_s: Ints, eta: float) -> float:
    total = 0.0
    for s in range(len(bet_s)):
        if left_s[s] > 0:
            total += left_s[s] * _share(bet_s[s], chance_s[s], eta * left_s[s])
    return total


@compiled
def components(belief_s: Floats, promised: float) -> Floats:
    """Return (C, S) shares of wrong labels that the audits choose among: the belief, its odds changed, or one share."""
    mu_cs = np.empty((len(ODDS) + len(LEVELS), len(belief_s)))
    for s in range(len(belief_s)):
        odds = belief_s[s] / (1.0 - belief_s[s])
        for c in range(len(ODDS)):
            mu_cs[c, s] = ODDS[c] * odds / (1.0 + ODDS[c] * odds)
        for c in range(len(LEVELS)):
            mu_cs[len(ODDS) + c, s] = LEVELS[c] * promised
    return mu_cs


@compiled
def expected_shares(mu_cs: Floats, log_weight_c: Floats, audited_s: Ints, wrong_s: Ints) -> Floats:
    """Return (S,) posterior means: component c is Beta(1, (1 - mu) / mu), with mean mu."""
    weight_c = np.exp(log_weight_c - log_weight_c.max())
    share_s = np.zeros(mu_cs.shape[1])
    for s in range(mu_cs.shape[1]):
        for c in range(mu_cs.shape[0]):
            share_s[s] += weight_c[c] * (1.0 + wrong_s[s]) / (1.0 / mu_cs[c, s] + audited_s[s])
    share_s /= weight_c.sum()
    return share_s


@compiled
def bets(share_s: Floats, left_s: Ints, total: float) -> Floats:
    """Return (B, S) bets, each with fewer than `total` wrong labels among those left."""
    n_left = left_s.sum()
    bet_bs = np.empty((len(WEIGHTS), len(share_s)))
    expected = 0.0
    for s in range(len(share_s)):
        expected += left_s[s] * share_s[s]
    for b in range(len(WEIGHTS)):
        if b <= len(SCALED):
            factor = 1.0 if b == 0 else SCALED[b - 1] * total / expected
            if b == 0 and expected > CAP * total:
                factor = CAP * total / expected
            sum_ = 0.0
            for s in range(len(share_s)):
                bet_bs[b, s] = min(factor * share_s[s], 0.999)
                sum_ += left_s[s] * bet_bs[b, s]
            if sum_ > CAP * total:  # only after the minimum above
                bet_bs[b] *= CAP * total / sum_
        else:
            bet_bs[b, :] = min(SAME[b - 1 - len(SCALED)] * total / n_left, 0.999)
    return bet_bs


@compiled
def advance(
    first: int,
    stratum_t: Ints,
    wrong_t: Ints,
    chance_ts: Floats,
    mu_cs: Floats,
    log_weight_c: Floats,
    left_s: Ints,
    audited_s: Ints,
    wrong_s: Ints,
    log_wealth_b: Floats,
    needed: int,
    mended: bool,
) -> Floats:
    """Add draws from number `first` on to the state (log weights, counts, wealth) in place.

    `needed` is the number of wrong labels from which the promise is broken. If found errors are `mended`, it counts
    those left when the audit stops, else those found too. A draw of a stratum whose chance is 0 belongs to another
    claim and changes nothing.

    Returns:
        (T - first,) log of the wealth after each draw; inf once the null is impossible, -inf once it is certain.
    """
    path = np.empty(len(stratum_t) - first)
    for t in range(first, len(stratum_t)):
        s = stratum_t[t]
        if chance_ts[t, s] > 0:
            n_left, total = left_s.sum(), float(needed if mended else needed - wrong_s.sum())
            if 0 < total <= n_left:
                chance_s = np.where(left_s > 0, chance_ts[t], 0.0)
                chance_s /= chance_s.sum()
                share_s = expected_shares(mu_cs, log_weight_c, audited_s, wrong_s)
                bet_bs = bets(share_s, left_s, total)
                for b in range(len(WEIGHTS)):
                    theta = nearest_null(bet_bs[b], chance_s, left_s, total)[s]
                    if wrong_t[t]:
                        log_wealth_b[b] += np.log(bet_bs[b, s] / theta)
                    else:
                        log_wealth_b[b] += np.log((1.0 - bet_bs[b, s]) / max(1.0 - theta, 1e-300))
            for c in range(len(log_weight_c)):
                predicted = (1.0 + wrong_s[s]) / (1.0 / mu_cs[c, s] + audited_s[s])
                log_weight_c[c] += np.log(predicted if wrong_t[t] else 1.0 - predicted)
            left_s[s] -= 1
            audited_s[s] += 1
            wrong_s[s] += wrong_t[t]
        n_left, still = left_s.sum(), needed if mended else needed - wrong_s.sum()
        if still <= 0:
            path[t - first] = -np.inf
        elif still > n_left:
            path[t - first] = np.inf
        else:
            top = log_wealth_b.max()
            path[t - first] = top + np.log((WEIGHTS * np.exp(log_wealth_b - top)).sum())
    return path


@compiled
def growth_chances(
    share_s: Floats, left_s: Ints, total: float, mended: bool, needed_evidence: float, uniform: float
) -> Floats:
    """Return (S,) chances of the strata that let the wealth grow fastest where the null hides best.

    theta_s(kappa) >= share_s has the divergence kappa from the expected share, the same in all strata, with
    sum_s N_s theta_s(kappa) = `total`. The chances are proportional to N_s theta_s (1 - theta_s) / (theta_s - share_s),
    mixed with the part `uniform` of equal chances for all labels left. A stratum that is cheaper to mend, label by
    label, than to prove around gets the other part instead. `needed_evidence` is the log wealth to reach.
    """
    n_left = float(left_s.sum())
    expected = 0.0
    for s in range(len(share_s)):
        expected += left_s[s] * share_s[s]
    b_s = np.minimum(share_s * min(1.0, 0.8 * total / expected), 0.999)
    chance_s = np.zeros(len(share_s))
    if mended:
        gap = max(total - expected, 0.0)
        dearest = gap * gap / (n_left * needed_evidence)
        for s in range(len(share_s)):
            if left_s[s] > 0 and share_s[s] > dearest:
                chance_s[s] = left_s[s] * share_s[s]
    if chance_s.sum() == 0:
        low, high = 0.0, 50.0
        for _ in range(ROUNDS):
            middle = 0.5 * (low + high)
            sum_ = 0.0
            for s in range(len(share_s)):
                sum_ += left_s[s] * _further(b_s[s], middle)
            if sum_ <= total:
                low = middle
            else:
                high = middle
        for s in range(len(share_s)):
            theta = max(_further(b_s[s], low), b_s[s] + 1e-12)
            chance_s[s] = left_s[s] * theta * (1.0 - theta) / (theta - b_s[s])
    sum_, part = chance_s.sum(), uniform if chance_s.sum() > 0 else 1.0
    for s in range(len(share_s)):
        chance_s[s] = part * left_s[s] / n_left + ((1.0 - part) * chance_s[s] / sum_ if sum_ > 0 else 0.0)
    return chance_s


@compiled
def _further(share: float, divergence: float) -> float:
    """Return theta >= share whose Kullback-Leibler divergence KL(share || theta) is `divergence`."""
    low, high = share, 1.0
    for _ in range(ROUNDS):
        middle = 0.5 * (low + high)
        if middle >= 1.0:
            return middle
        apart = (1.0 - share) * np.log((1.0 - share) / (1.0 - middle))
        if share > 0:
            apart += share * np.log(share / middle)
        if apart <= divergence:
            low = middle
        else:
            high = middle
    return low
