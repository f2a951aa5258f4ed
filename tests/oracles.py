"""The same mathematics again, in plain loops and by enumeration: what the tests compare the program with.

Nothing here is fast and nothing shares code with the program.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import chain, combinations, product

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma, gammaln, logsumexp

from hitl.annotations import Annotations
from hitl.evidence import Evidence
from hitl.testing.crowds import crowd as crowd
from hitl.testing.crowds import names as names
from hitl.testing.crowds import predictions as predictions
from hitl.testing.crowds import reordered as reordered

Floats = NDArray[np.float64]


# -- the hot loops -------------------------------------------------------------------------------------------


def messages(annotations: Annotations, log_pi_kjl: Floats) -> Floats:
    out = np.zeros((annotations.n_items, annotations.n_classes))
    for n, k, l in zip(annotations.item, annotations.annotator, annotations.label, strict=True):  # noqa: E741
        for j in range(annotations.n_classes):
            out[n, j] += log_pi_kjl[k, j, l]
    return out


def counts(annotations: Annotations, q_nj: Floats) -> Floats:
    """(K, J, L)."""
    out = np.zeros((annotations.n_annotators, annotations.n_classes, annotations.n_options))
    for n, k, l in zip(annotations.item, annotations.annotator, annotations.label, strict=True):  # noqa: E741
        for j in range(annotations.n_classes):
            out[k, j, l] += q_nj[n, j]
    return out


# -- the model -----------------------------------------------------------------------------------------------


def pool(
    evidence: Evidence,
    temperature: Mapping[str, float],
    share_j: Floats,
    floor: float = 1e-12,
    correlation: Floats | None = None,
) -> Floats:
    """(N, J) log p(z_n = j): the log-linear pool of eq. 3, item by item; models that err alike, or as `correlation`."""
    names = list(temperature)
    n_items, n_classes = evidence.annotations.n_items, evidence.annotations.n_classes
    out = np.empty((n_items, n_classes))
    for n in range(n_items):
        speaking = [m for m in temperature if not np.isnan(evidence.probabilities[m][n]).any()]
        if not speaking:
            out[n] = np.log(share_j)
            continue
        logits = np.zeros(n_classes)
        worth = 1.0
        if correlation is not None:
            rows = [names.index(m) for m in speaking]
            v = np.array([1 / temperature[m] for m in speaking])
            worth = v.sum() ** 2 / (v @ correlation[rows][:, rows] @ v)
        for m in speaking:
            logits += worth / (temperature[m] * len(speaking)) * np.log(np.maximum(evidence.probabilities[m][n], floor))
        out[n] = logits - logsumexp(logits)
    return out


def log_joint(evidence: Evidence, log_prior_nj: Floats, log_pi_kjl: Floats, z: tuple[int, ...]) -> float:
    """log p(z, labels): one term an item, one a label."""
    annotations = evidence.annotations
    total = sum(log_prior_nj[n, j] for n, j in enumerate(z))
    for n, k, l in zip(annotations.item, annotations.annotator, annotations.label, strict=True):  # noqa: E741
        total += log_pi_kjl[k, z[n], l]
    return float(total)


def enumerate_truths(evidence: Evidence, log_prior_nj: Floats, log_pi_kjl: Floats) -> tuple[Floats, float]:
    """(N, J) posterior and the log evidence, from all J**N truths that agree with the known ones."""
    n_items, n_classes = evidence.annotations.n_items, evidence.annotations.n_classes
    allowed = [range(n_classes) if t < 0 else [int(t)] for t in evidence.truth]
    truths = list(product(*allowed))
    weights = np.array([log_joint(evidence, log_prior_nj, log_pi_kjl, z) for z in truths])
    log_evidence = logsumexp(weights)
    q_nj = np.zeros((n_items, n_classes))
    for z, weight in zip(truths, np.exp(weights - log_evidence), strict=True):
        for n, j in enumerate(z):
            q_nj[n, j] += weight
    return q_nj, float(log_evidence)


def confusion_objective(evidence: Evidence, q_nj: Floats, pi_kjl: Floats, pseudo_jl: Floats) -> float:
    """Expected log likelihood of the labels + log Dirichlet density (up to a constant)."""
    total = float((pseudo_jl[None] * np.log(pi_kjl)).sum())
    annotations = evidence.annotations
    for n, k, l in zip(annotations.item, annotations.annotator, annotations.label, strict=True):  # noqa: E741
        total += float(q_nj[n] @ np.log(pi_kjl[k, :, l]))
    return total


def temperature_objective(
    evidence: Evidence,
    q_nj: Floats,
    temperature: dict[str, float],
    mean: float,
    sd: float,
    *,
    informative_n: NDArray[np.bool_],
) -> float:
    """log N(log T) + sum_n E log p(z_n), over informative, predicted items."""
    log_p = pool(evidence, temperature, np.full(evidence.annotations.n_classes, 1.0))
    total = 0.0
    for n in np.flatnonzero(informative_n):
        if all(np.isnan(p[n]).any() for p in evidence.probabilities.values()):
            continue
        total += float(q_nj[n] @ log_p[n])
    for t in temperature.values():
        total -= 0.5 * ((np.log(t) - mean) / sd) ** 2
    return total


def beaten_by_a_neighbour(
    objective: Callable[[Floats], float], rows: Floats, rng: np.random.Generator, trials: int = 40, slack: float = 1e-9
) -> str | None:
    """None when no nearby point on the simplex (last axis of `rows`) is better; else by how much one is."""
    best = objective(rows)
    for trial in range(trials):
        size = 10.0 ** -rng.uniform(0.5, 4)
        moved = rows * np.exp(size * rng.normal(size=rows.shape))
        moved /= moved.sum(axis=-1, keepdims=True)
        if objective(moved) > best + slack:
            return f"trial {trial}, size {size:.2g}: {objective(moved)} > {best}"
    return None


# -- variational Bayes ---------------------------------------------------------------------------------------


def log_beta(alpha: Floats) -> float:
    """Sum over all rows (last axis) of ln B."""
    return float((gammaln(alpha).sum(axis=-1) - gammaln(alpha.sum(axis=-1))).sum())


def raised_prior(a_jl: Floats, n_kjl: Floats, a0_jl: Floats) -> Floats:
    """One of Minka's sweeps for a Dirichlet prior of all rows j, with Gamma(a0 + 1, 1) on each parameter."""
    raised_jl = np.empty_like(a_jl)
    for j, a in enumerate(a_jl):
        gain = a0_jl[j] + a * (digamma(n_kjl[:, j] + a) - digamma(a)).sum(axis=0)
        cost = 1 + (digamma(n_kjl[:, j].sum(axis=1) + a.sum()) - digamma(a.sum())).sum()
        raised_jl[j] = largest_at(gain, j) / cost
    return raised_jl


def largest_at(gain: Floats, j: int) -> Floats:
    """The x with x[j] the largest that maximises sum(gain ln x - x): every set that could be tied is tried."""
    others = [option for option in range(len(gain)) if option != j]
    tried = []
    for chosen in chain.from_iterable(combinations(others, size) for size in range(len(gain))):
        x, tied = gain.copy(), [j, *chosen]
        x[tied] = gain[tied].mean()
        if (x <= x[j] * (1 + 1e-12)).all():
            tried.append(((gain * np.log(x) - x).sum(), x))
    return max(tried, key=lambda entry: entry[0])[1]
