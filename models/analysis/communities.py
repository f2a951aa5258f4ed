"""Communities of annotators who decide alike (Simpson 2011, section 4; Psorakis 2011).

Similarity of two annotators (eq. 24 of Simpson, with distances corrected for noise):

    V[k, m] = exp(-sharpness D_km)      D_km^2 = mean_j  H^2(pi_k[j], pi_m[j]) / (resolution^2 + (e_kj + e_mj) / 2)

H^2 = 1 - sum_l sqrt(pi_k[j, l] pi_m[j, l]) is the squared Hellinger distance of two rows, and e_kj = 1 - sum_l (E sqrt
pi_k[j, l])^2 the part of it that a row's posterior uncertainty explains, so that annotators with few labels are not
separated by chance. The prior that all annotators share is removed first, so that it draws no one together. With
exp(-H) as printed (`CommunityModel.paper()`) all similarities lie between exp(-1) and 1, and shrinkage finds one group.

Communities are the columns of a Bayesian non-negative factorization of V with half-normal priors, whose precisions
shrink superfluous columns to nothing (Psorakis 2011, after Tan & Fevotte 2009):

    V[k, m] ~ Poisson(sum_g W[k, g] H[g, m])    W[k, g], H[g, m] ~ HalfNormal(1 / beta_g)    beta_g ~ Gamma(a, b)

    maximize  sum_km (V log WH - WH)
              + sum_g [ (K + a - 1) log beta_g - beta_g (b + sum_k W_kg^2 / 2 + sum_m H_gm^2 / 2) ]

    W <- 2 C / (S + sqrt(S^2 + 4 beta C))      C = W * ((V / WH) H^T),  S_g = sum_m H_gm      and H likewise
    beta_g <- (K + a - 1) / (b + (sum_k W_kg^2 + sum_m H_gm^2) / 2)

The first is the exact maximum of the usual bound (Lee & Seung 2001), so the objective never falls; the paper's
W <- C / (S + beta W) has the same fixed points but no such proof. The best of several random starts wins. Memberships
are the rows of W normalized to 1 and may overlap: an annotator between two kinds has shares in both. Annotators beyond
the first `most_people` join with W and beta held, so that no cost grows with the square of all annotators.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln
from threadpoolctl import threadpool_limits

from hitl.annotations import Floats, Ints
from hitl.consensus import AnnotatorReport
from hitl.models.numerics.checks import require_between, require_counts, require_one_of, require_positive

SHARE = 0.2
"""Smallest membership that is reported."""

FLOOR = 1e-30
"""Smallest product of factors."""

NOTHING = 1e-8
"""A column that adds less than this to every similarity is set to 0, a fixed point."""

EVERY = 10
"""Iterations between two computations of the objective."""

Rows = tuple[Floats, Floats]
"""Square roots of confusion matrices (K, J, L), and e (K, J)."""

BLOCK = 2_000
"""Annotators who join in one step."""


@dataclass(frozen=True, eq=False)
class Communities:
    """Groups of annotators who decide alike.

    Attributes:
        membership: (K, G) share of each community in each annotator, largest community first; rows sum to 1, NaN for
            annotators with too few labels.
        prototype: (G, J, L) confusion matrix typical of each community; rows sum to 1.
        learned: codes of the annotators from whom communities were learned.
        similarity: (len(learned), len(learned)) V among these, in (0, 1].
        objective: log posterior after every tenth iteration of the best start (nats).
        converged: True if the gain of that start fell below the tolerance.
    """

    membership: Floats
    prototype: Floats
    learned: Ints
    similarity: Floats
    objective: tuple[float, ...] = ()
    converged: bool = True

    def __len__(self) -> int:
        """Return G, the number of communities."""
        return self.prototype.shape[0]

    @property
    def main(self) -> Ints:
        """(K,) main community of each annotator, -1 with too few labels."""
        if not len(self):
            return np.full(len(self.membership), -1, np.int32)
        known = np.isfinite(self.membership[:, 0])
        return np.where(known, np.nan_to_num(self.membership).argmax(axis=1), -1).astype(np.int32)

    @property
    def sizes(self) -> npt.NDArray[np.int64]:
        """(G,) annotators whose main community it is."""
        main = self.main
        return np.bincount(main[main >= 0], minlength=len(self))

    def of(self, annotator: int) -> list[tuple[int, float]]:
        """Return the communities of an annotator with the share of each, at least SHARE (the main one in any case)."""
        row = self.membership[annotator]
        if not len(self) or np.isnan(row[0]):
            return []
        order = np.argsort(-row, kind="stable")
        return [(int(g), float(row[g])) for rank, g in enumerate(order) if rank == 0 or row[g] >= SHARE]


@dataclass(frozen=True, eq=False)
class Factors:
    """Factorization: weights (K, G), their precisions (G,), and the objective after every tenth iteration."""

    weight_kg: Floats
    other_gk: Floats
    precision_g: Floats
    objective: tuple[float, ...]
    converged: bool


@dataclass(frozen=True, slots=True)
class CommunityModel:
    """Finds communities.

    Attributes:
        least_labels: labels per class, on average, that an annotator needs to be placed, >= 0.
        most_people: annotators (those with most labels) from whom communities are learned, > 0; the rest join.
        most: communities to start with, > 0; shrinkage removes superfluous ones.
        least_members: annotators whose main community it must be, > 0.
        resolution: Hellinger distance of two rows below which they count as alike, > 0.
        sharpness: rate at which similarity falls with distance, > 0.
        shape, rate: a and b of the precisions' prior, > 0.
        starts: random starts, > 0, drawn from `seed`.
        tolerance: relative gain of ten iterations below which a start has converged, > 0.
        max_iterations: iterations of each start, > 0.
        compares: "labels" compares annotators by their own labels, corrected for noise; "matrices" by the confusion
            matrices of the fit.
    """

    least_labels: float = 10.0
    most_people: int = 200
    most: int = 20
    least_members: int = 2
    resolution: float = 0.2
    sharpness: float = 3.0
    shape: float = 5.0
    rate: float = 2.0
    starts: int = 3
    seed: int = 0
    tolerance: float = 1e-6
    max_iterations: int = 1000
    compares: str = "labels"

    def __post_init__(self) -> None:
        require_between("least_labels", self.least_labels, -1e-9)
        require_positive(self, "least_members", "resolution", "sharpness", "shape", "rate", "tolerance")
        require_counts(self, "most_people", "most", "starts", "max_iterations")
        require_one_of("compares", self.compares, ("labels", "matrices"))

    @classmethod
    def paper(cls) -> Self:
        """Return the settings of Simpson et al. 2011 as printed (section 4).

        V = exp(-H) (eq. 24) with H the Hellinger distance of two confusion matrices of the fit, and every annotator
        with a label is placed. They do not say how to combine the rows of a matrix: here H^2 = mean_j H_j^2, as if all
        classes were equally common. The factorization is that of Psorakis 2011, whom they cite, in either case. It
        finds one group, since no two annotators can be far apart. `most_people` stays 200 (they had 1,705), because the
        time of a fit grows with its square.
        """
        return cls(least_labels=0.0, resolution=1.0, sharpness=1.0, compares="matrices")

    def fit(self, people: AnnotatorReport, leave_out: npt.NDArray[np.bool_] | None = None) -> Communities:
        """Find the communities among the annotators of a fit; those of `leave_out` (K,) are not placed."""
        placed = people.labels >= max(1.0, self.least_labels * len(people.classes))
        if leave_out is not None:
            placed &= ~leave_out
        order = np.argsort(-people.labels, kind="stable")
        order = order[placed[order]]
        learned, joining = np.sort(order[: self.most_people]), order[self.most_people :]
        counts_kjl = own_counts(people)
        root_kjl, noise_kj = rows_of(counts_kjl)
        if self.compares == "matrices":
            root_kjl, noise_kj = np.sqrt(people.confusion), np.zeros_like(noise_kj)
        rows = root_kjl[learned], noise_kj[learned]
        v_kk = self.similarity(rows, rows)
        with threadpool_limits(1, user_api="blas"):  # on a busy machine threads of small products wait for each other
            factors = self.factorise(v_kk)
        weight_kg = np.full((len(people.names), len(factors.precision_g)), np.nan)
        weight_kg[learned] = factors.weight_kg
        for first in range(0, len(joining), BLOCK):
            block = joining[first : first + BLOCK]
            v_km = self.similarity(rows, (root_kjl[block], noise_kj[block]))
            weight_kg[block] = self.join(v_km, factors).T
        membership_kg = self._memberships(weight_kg)
        prototype_gjl = _prototypes(membership_kg, counts_kjl, people.concentration)
        return Communities(
            membership_kg, prototype_gjl, learned.astype(np.int32), v_kk, factors.objective, factors.converged
        )

    def similarity(self, one: Rows, other: Rows) -> Floats:
        """Return (K', K'') V, in (0, 1], of annotators with these rows."""
        (root_kjl, noise_kj), (roots_kjl, noises_kj) = one, other
        square = np.zeros((len(noise_kj), len(noises_kj)))
        for j in range(noise_kj.shape[1]):
            apart = np.maximum(1 - root_kjl[:, j] @ roots_kjl[:, j].T, 0)
            square += apart / (self.resolution**2 + (noise_kj[:, j, None] + noises_kj[None, :, j]) / 2)
        similar: Floats = np.exp(-self.sharpness * np.sqrt(square / max(1, noise_kj.shape[1])))
        return similar

    def factorise(self, v_kk: Floats) -> Factors:
        """Return the best of several starts."""
        rng = np.random.default_rng(self.seed)
        columns = min(self.most, len(v_kk))
        if not columns:
            return Factors(np.zeros((0, 0)), np.zeros((0, 0)), np.zeros(0), (), True)
        starts = [self._climb(v_kk, *random_start(v_kk, columns, rng)) for _ in range(self.starts)]
        return max(starts, key=lambda factors: factors.objective[-1])

    def _climb(self, v_kk: Floats, weight_kg: Floats, other_gk: Floats) -> Factors:
        precision_g = self.precisions(weight_kg, other_gk)
        trace: list[float] = []
        converged = False
        while not converged and len(trace) * EVERY < self.max_iterations:
            for _ in range(EVERY):
                other_gk = ascend(v_kk, weight_kg, other_gk, precision_g)
                weight_kg = np.ascontiguousarray(ascend(v_kk, other_gk.T, weight_kg.T, precision_g).T)  # V = V^T
                precision_g = self.precisions(weight_kg, other_gk)
            gone = weight_kg.max(axis=0) * other_gk.max(axis=1) < NOTHING
            weight_kg[:, gone], other_gk[gone] = 0.0, 0.0
            precision_g = self.precisions(weight_kg, other_gk)
            trace.append(self.objective(v_kk, weight_kg, other_gk, precision_g))
            converged = len(trace) > 1 and trace[-1] - trace[-2] < self.tolerance * abs(trace[-1])
        return Factors(weight_kg, other_gk, precision_g, tuple(trace), converged)

    def precisions(self, weight_kg: Floats, other_gk: Floats) -> Floats:
        """Return (G,) the precisions that maximize the objective."""
        square_g = np.sum(weight_kg**2, axis=0) + np.sum(other_gk**2, axis=1)
        precision: Floats = (len(weight_kg) + self.shape - 1) / (self.rate + square_g / 2)
        return precision

    def objective(self, v_kk: Floats, weight_kg: Floats, other_gk: Floats, precision_g: Floats) -> float:
        """Return the log posterior up to a constant, in nats."""
        square_g = np.sum(weight_kg**2, axis=0) + np.sum(other_gk**2, axis=1)
        prior = (len(weight_kg) + self.shape - 1) * np.log(precision_g) - precision_g * (self.rate + square_g / 2)
        mean_kk = weight_kg @ other_gk + FLOOR
        return float(np.sum(v_kk * np.log(mean_kk) - mean_kk) + prior.sum())

    def join(self, v_km: Floats, factors: Factors, iterations: int = 100) -> Floats:
        """Return (G, M) weights of M annotators with similarities `v_km` to those the factors were learned from."""
        start = float(factors.weight_kg.mean()) if factors.weight_kg.size else 0.0
        other_gm: Floats = np.full((len(factors.precision_g), v_km.shape[1]), start)
        for _ in range(iterations):
            other_gm = ascend(v_km, factors.weight_kg, other_gm, factors.precision_g)
        return other_gm

    def _memberships(self, weight_kg: Floats) -> Floats:
        """Return (K, G) normalized weights of the communities with enough members, largest first."""
        placed = np.flatnonzero(np.isfinite(weight_kg).all(axis=1)) if weight_kg.shape[1] else np.zeros(0, int)
        if not placed.size:
            return np.full((len(weight_kg), 0), np.nan)
        weight = weight_kg[placed]
        keep = np.arange(weight.shape[1])
        # Drop communities with too few members, the smallest first; their annotators move to others.
        while True:
            size = np.bincount(weight[:, keep].argmax(axis=1), minlength=len(keep))
            if size.min() >= self.least_members or len(keep) == 1:
                break
            keep = np.delete(keep, size.argmin())
        keep = keep[np.argsort(-size, kind="stable")]
        membership_kg = np.full((len(weight_kg), len(keep)), np.nan)
        chosen = weight[:, keep] + FLOOR
        membership_kg[placed] = chosen / chosen.sum(axis=1, keepdims=True)
        return membership_kg


def rows_of(counts_kjl: Floats) -> Rows:
    """Return square roots of mean confusion matrices, and the noise of their rows, from counts under Perks' prior."""
    a_kjl = counts_kjl + 1 / counts_kjl.shape[2]
    total_kj1 = a_kjl.sum(axis=2, keepdims=True)
    log_root_kjl = gammaln(a_kjl + 0.5) - gammaln(a_kjl) + gammaln(total_kj1) - gammaln(total_kj1 + 0.5)
    return np.sqrt(a_kjl / total_kj1), 1 - np.exp(2 * log_root_kjl).sum(axis=2)


def ascend(v_km: Floats, weight_kg: Floats, other_gm: Floats, precision_g: Floats) -> Floats:
    """Return (G, M) the next H of V ~ W H: the maximum of the bound that touches the objective at `other_gm`."""
    c_gm = other_gm * (weight_kg.T @ (v_km / (weight_kg @ other_gm + FLOOR)))
    s_g1 = weight_kg.sum(axis=0)[:, None]
    root = s_g1 + np.sqrt(s_g1**2 + 4 * precision_g[:, None] * c_gm)
    following: Floats = 2 * c_gm / np.maximum(root, FLOOR)
    return following


def random_start(v_kk: Floats, columns: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Draw positive factors whose product has the mean of V."""
    size = 2 * np.sqrt(v_kk.mean() / columns)
    return size * rng.random((len(v_kk), columns)), size * rng.random((columns, len(v_kk)))


def own_counts(people: AnnotatorReport) -> Floats:
    """Return (K, J, L) label counts: the posterior without the prior that all annotators share."""
    return people.concentration if people.prior is None else np.maximum(people.concentration - people.prior, 0.0)


def _prototypes(membership_kg: Floats, counts_kjl: Floats, concentration_kjl: Floats) -> Floats:
    """Return (G, J, L) mean confusion matrices of the members, from the fit.

    Annotators are weighted by the square of their membership, rows by how well they are known. Counts without the
    crowd's prior would not do: a method with a separate expectation for each annotator (`hierarchical-dawid-skene`) may
    have fewer errors in a row than that prior.
    """
    weight_kg = np.nan_to_num(membership_kg) ** 2
    total_kj = counts_kjl.sum(axis=2) + FLOOR
    known_kj = total_kj / (total_kj + counts_kjl.shape[2])
    mean_kjl = concentration_kjl / concentration_kjl.sum(axis=2, keepdims=True)
    sum_gjl = np.einsum("kg,kj,kjl->gjl", weight_kg, known_kj, mean_kjl, optimize=True)
    prototype: Floats = sum_gjl / np.maximum(sum_gjl.sum(axis=2, keepdims=True), np.finfo(np.float64).tiny)
    return prototype
