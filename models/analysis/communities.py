"""Communities of annotators who decide alike (Simpson 2011, section 4; Psorakis 2011).

Similarity of two annotators (eq. 24 of Simpson, with distances corrected for noise):

    V[k, m] = exp(-sharpness D_km)      D_km^2 = mean_j  H^2(pi_k[j], pi_m[j]) / (resolution^2 + (e_kj + e_mj) / 2)

H^2 = 1 - sum_l sqrt(pi_k[j, l] pi_m[j, l]) is the squared Hellinger distance of two rows, and e_kj = 1 - sum_l (E sqrt
pi_k[j, l])^2 is the part of it that a row's posterior uncertainty explains. The prior shared by all annotators is
subtracted first because it would make them look alike.

Communities are the columns of a Bayesian non-negative factorization of V with half-normal priors, whose precisions
shrink superfluous columns to nothing (Psorakis 2011, after Tan & Fevotte 2009):

    V[k, m] ~ Poisson(sum_g W[k, g] H[g, m])    W[k, g], H[g, m] ~ HalfNormal(1 / beta_g)    beta_g ~ Gamma(a, b)

    maximize  sum_km (V log WH - WH)
              + sum_g [ (K + a - 1) log beta_g - beta_g (b + sum_k W_kg^2 / 2 + sum_m H_gm^2 / 2) ]

    W <- 2 C / (S + sqrt(S^2 + 4 beta C))      C = W * ((V / WH) H^T),  S_g = sum_m H_gm      and H likewise
    beta_g <- (K + a - 1) / (b + (sum_k W_kg^2 + sum_m H_gm^2) / 2)

The update of W is the exact maximum of the usual bound (Lee & Seung 2001), so the objective never falls. Memberships
are the rows of W normalized to 1. Communities are learned from the MOST_LEARNED annotators with most labels. The others
are added with the learned factor and beta held.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Self

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln
from threadpoolctl import threadpool_limits

from hitl.annotations import Floats, Ints
from hitl.consensus import AnnotatorReport
from hitl.models.numerics.checks import check_settings, require_between, require_one_of

SHARE = 0.2
"""Smallest membership that is reported."""

MOST_LEARNED, BLOCK = 200, 2_000
"""Maximum number of annotators from whom communities are learned; number of other annotators added at a time."""

MOST, LEAST_MEMBERS = 20, 2
"""Number of communities to start with; minimum number of annotators whose main community each is in the end."""

SHAPE, RATE = 5.0, 2.0
"""a and b of the precisions' prior."""

STARTS, EVERY, MOST_ITERATIONS, TOLERANCE = 3, 10, 1000, 1e-6
"""Number of random starts; iterations between checks of the objective; maximum iterations per start; relative gain
between checks below which a start has converged.
"""

FLOOR = 1e-30
"""Small number that keeps divisors and arguments of logarithms above 0."""

NOTHING = 1e-8
"""A column that adds less than this to every similarity is set to 0, where it stays."""

Rows = tuple[Floats, Floats]
"""Square roots of confusion matrices (K, J, L), and their noise e (K, J)."""


@dataclass(frozen=True, eq=False)
class Communities:
    """Groups of annotators who decide alike.

    Attributes:
        membership: (K, G) membership of each annotator in each community, largest community first; rows sum to 1, NaN
            for annotators who are not placed (those with too few labels, for example).
        prototype: (G, J, L) confusion matrix typical of each community; rows sum to 1.
        learned: codes of the annotators from whom communities were learned.
        similarity: (len(learned), len(learned)) V among these, in (0, 1].
    """

    membership: Floats
    prototype: Floats
    learned: Ints
    similarity: Floats

    def __len__(self) -> int:
        """Return G, the number of communities."""
        return self.prototype.shape[0]

    @property
    def main(self) -> Ints:
        """(K,) main community of each annotator, -1 for annotators who are not placed."""
        if not len(self):
            return np.full(len(self.membership), -1, np.int32)
        placed = np.isfinite(self.membership[:, 0])
        return np.where(placed, np.nan_to_num(self.membership).argmax(axis=1), -1).astype(np.int32)

    @property
    def sizes(self) -> npt.NDArray[np.int64]:
        """(G,) number of annotators whose main community each is."""
        main = self.main
        return np.bincount(main[main >= 0], minlength=len(self))

    def of(self, annotator: int) -> list[tuple[int, float]]:
        """Return (community, membership) of an annotator, largest first: the main one and all of at least SHARE."""
        row = self.membership[annotator]
        if not len(self) or np.isnan(row[0]):
            return []
        order = np.argsort(-row, kind="stable")
        return [(int(g), float(row[g])) for rank, g in enumerate(order) if rank == 0 or row[g] >= SHARE]


@dataclass(frozen=True, slots=True)
class CommunityModel:
    """Finds communities.

    Attributes:
        least_labels: minimum number of labels of an annotator who is placed, divided by the number of classes, >= 0.
        resolution: Hellinger distance of two rows below which they count as alike, > 0.
        sharpness: rate at which similarity falls with distance, > 0.
        compares: "labels" compares annotators by their own labels, corrected for noise; "matrices" by the confusion
            matrices of the fit.
    """

    least_labels: float = 10.0
    resolution: float = 0.2
    sharpness: float = 3.0
    compares: str = "labels"

    def __post_init__(self) -> None:
        check_settings(self, least_labels=partial(require_between, low=-1e-9))
        require_one_of("compares", self.compares, ("labels", "matrices"))

    @classmethod
    def paper(cls) -> Self:
        """Return the settings of Simpson et al. 2011 as printed (section 4).

        V = exp(-H) (eq. 24) with H the Hellinger distance of two confusion matrices of the fit, and every annotator
        with a label is placed. The paper does not say how to combine the rows of a matrix: here H^2 = mean_j H_j^2. As
        all similarities then lie between exp(-1) and 1, shrinkage leaves one group.
        """
        return cls(least_labels=0.0, resolution=1.0, sharpness=1.0, compares="matrices")

    def fit(self, people: AnnotatorReport, leave_out: npt.NDArray[np.bool_] | None = None) -> Communities:
        """Find the communities among the annotators of a fit; those marked in `leave_out` (K,) are not placed."""
        placed = people.labels >= max(1.0, self.least_labels * len(people.classes))
        if leave_out is not None:
            placed &= ~leave_out
        order = np.argsort(-people.labels, kind="stable")
        order = order[placed[order]]
        learned, joining = np.sort(order[:MOST_LEARNED]), order[MOST_LEARNED:]
        counts_kjl = people.concentration
        if people.prior is not None:
            counts_kjl = np.maximum(counts_kjl - people.prior, 0.0)
        root_kjl, noise_kj = rows_of(counts_kjl)
        if self.compares == "matrices":
            root_kjl, noise_kj = np.sqrt(people.confusion), np.zeros_like(noise_kj)
        rows = root_kjl[learned], noise_kj[learned]
        v_kk = self.similarity(rows, rows)
        with threadpool_limits(1, user_api="blas"):  # on a busy machine threads of small products wait for each other
            learned_kg, precision_g = factorize(v_kk)
        weight_kg = np.full((len(people.names), len(precision_g)), np.nan)
        weight_kg[learned] = learned_kg
        for first in range(0, len(joining), BLOCK):
            block = joining[first : first + BLOCK]
            v_km = self.similarity(rows, (root_kjl[block], noise_kj[block]))
            other_gm: Floats = np.full((len(precision_g), len(block)), float(learned_kg.mean()))
            for _ in range(100):
                other_gm = ascend(v_km, learned_kg, other_gm, precision_g)
            weight_kg[block] = other_gm.T
        membership_kg = memberships(weight_kg)
        prototype_gjl = prototypes(membership_kg, counts_kjl, people.concentration)
        return Communities(membership_kg, prototype_gjl, learned.astype(np.int32), v_kk)

    def similarity(self, one: Rows, other: Rows) -> Floats:
        """Return V (K', K''), in (0, 1], between two sets of annotators."""
        (root_kjl, noise_kj), (roots_kjl, noises_kj) = one, other
        square = np.zeros((len(noise_kj), len(noises_kj)))
        for j in range(noise_kj.shape[1]):
            apart = np.maximum(1 - root_kjl[:, j] @ roots_kjl[:, j].T, 0)
            square += apart / (self.resolution**2 + (noise_kj[:, j, None] + noises_kj[None, :, j]) / 2)
        return np.asarray(np.exp(-self.sharpness * np.sqrt(square / max(1, noise_kj.shape[1]))))


def rows_of(counts_kjl: Floats) -> Rows:
    """Return square roots of mean confusion matrices, and the noise of their rows, from counts under Perks' prior."""
    a_kjl = counts_kjl + 1 / counts_kjl.shape[2]
    total_kj1 = a_kjl.sum(axis=2, keepdims=True)
    log_root_kjl = gammaln(a_kjl + 0.5) - gammaln(a_kjl) + gammaln(total_kj1) - gammaln(total_kj1 + 0.5)
    return np.sqrt(a_kjl / total_kj1), 1 - np.exp(2 * log_root_kjl).sum(axis=2)


def factorize(v_kk: Floats) -> tuple[Floats, Floats]:
    """Return (K, G) weights and (G,) precisions of the best of several random starts."""
    rng = np.random.default_rng(0)
    columns = min(MOST, len(v_kk))
    best: tuple[float, Floats, Floats] = (-np.inf, np.zeros((len(v_kk), columns)), np.zeros(columns))
    for _ in range(STARTS if columns else 0):
        weight_kg, other_gk = random_start(v_kk, columns, rng)
        precision_g, last, reached = precisions(weight_kg, other_gk), -np.inf, -np.inf
        for _ in range(MOST_ITERATIONS // EVERY):
            for _ in range(EVERY):
                other_gk = ascend(v_kk, weight_kg, other_gk, precision_g)
                weight_kg = np.ascontiguousarray(ascend(v_kk, other_gk.T, weight_kg.T, precision_g).T)  # V = V^T
                precision_g = precisions(weight_kg, other_gk)
            gone = weight_kg.max(axis=0) * other_gk.max(axis=1) < NOTHING
            weight_kg[:, gone], other_gk[gone] = 0.0, 0.0
            precision_g = precisions(weight_kg, other_gk)
            last, reached = reached, objective(v_kk, weight_kg, other_gk, precision_g)
            if reached - last < TOLERANCE * abs(reached):
                break
        if reached > best[0]:
            best = reached, weight_kg, precision_g
    return best[1:]


def random_start(v_kk: Floats, columns: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Draw positive factors whose product has the mean of V."""
    size = 2 * np.sqrt(v_kk.mean() / columns)
    return size * rng.random((len(v_kk), columns)), size * rng.random((columns, len(v_kk)))


def ascend(v_km: Floats, weight_kg: Floats, other_gm: Floats, precision_g: Floats) -> Floats:
    """Return (G, M) the next H of V ~ W H, the maximum of the bound that touches the objective at the current H."""
    c_gm = other_gm * (weight_kg.T @ (v_km / (weight_kg @ other_gm + FLOOR)))
    s_g1 = weight_kg.sum(axis=0)[:, None]
    root = s_g1 + np.sqrt(s_g1**2 + 4 * precision_g[:, None] * c_gm)
    return np.asarray(2 * c_gm / np.maximum(root, FLOOR))


def precisions(weight_kg: Floats, other_gk: Floats) -> Floats:
    """Return (G,) the precisions that maximize the objective."""
    square_g = np.sum(weight_kg**2, axis=0) + np.sum(other_gk**2, axis=1)
    return np.asarray((len(weight_kg) + SHAPE - 1) / (RATE + square_g / 2))


def objective(v_kk: Floats, weight_kg: Floats, other_gk: Floats, precision_g: Floats) -> float:
    """Return the log posterior up to a constant, in nats."""
    square_g = np.sum(weight_kg**2, axis=0) + np.sum(other_gk**2, axis=1)
    prior_g = (len(weight_kg) + SHAPE - 1) * np.log(precision_g) - precision_g * (RATE + square_g / 2)
    mean_kk = weight_kg @ other_gk + FLOOR
    return float(np.sum(v_kk * np.log(mean_kk) - mean_kk) + prior_g.sum())


def memberships(weight_kg: Floats) -> Floats:
    """Return (K, G) normalized weights of the communities with enough members, largest first."""
    placed = np.flatnonzero(np.isfinite(weight_kg).all(axis=1)) if weight_kg.shape[1] else np.zeros(0, int)
    if not placed.size:
        return np.full((len(weight_kg), 0), np.nan)
    weight = weight_kg[placed]
    keep = np.arange(weight.shape[1])
    while True:  # drop communities with too few members, the smallest first; their annotators move to others
        size = np.bincount(weight[:, keep].argmax(axis=1), minlength=len(keep))
        if size.min() >= LEAST_MEMBERS or len(keep) == 1:
            break
        keep = np.delete(keep, size.argmin())
    keep = keep[np.argsort(-size, kind="stable")]
    membership_kg = np.full((len(weight_kg), len(keep)), np.nan)
    chosen = weight[:, keep] + FLOOR
    membership_kg[placed] = chosen / chosen.sum(axis=1, keepdims=True)
    return membership_kg


def prototypes(membership_kg: Floats, counts_kjl: Floats, concentration_kjl: Floats) -> Floats:
    """Return (G, J, L) mean confusion matrices of the members.

    Annotators are weighted by the square of their membership, rows by how well they are known. The matrices include
    the prior. Without the crowd's prior, a row could lose its errors if the annotator's own prior expects fewer.
    """
    weight_kg = np.nan_to_num(membership_kg) ** 2
    total_kj = counts_kjl.sum(axis=2) + FLOOR
    known_kj = total_kj / (total_kj + counts_kjl.shape[2])
    mean_kjl = concentration_kjl / concentration_kjl.sum(axis=2, keepdims=True)
    sum_gjl = np.einsum("kg,kj,kjl->gjl", weight_kg, known_kj, mean_kjl, optimize=True)
    return np.asarray(sum_gjl / np.maximum(sum_gjl.sum(axis=2, keepdims=True), np.finfo(np.float64).tiny))
