"""Moment matching (Traganitis & Giannakis 2019, section 3.2): class shares and confusion matrices without a likelihood.

    mu_k    = E[e(l_k)]                       = Pi_k' p                                                 (eq. 13)
    S_km    = E[e(l_k) e(l_m)']               = Pi_k' diag(p) Pi_m                                      (eq. 14)
    Psi_kmr = E[e(l_k) o e(l_m) o e(l_r)]     = sum_j p_j Pi_k[j] o Pi_m[j] o Pi_r[j]                   (eq. 16)

Pi_k is the J x L confusion matrix of annotator k, e(l) the one-hot answer, p the class shares, and o the outer product.
The third-order moment Psi of three annotators is a PARAFAC model with factors on simplices. If the matrices have full
rank, its decomposition is unique up to the order of the classes. So the matrices are estimated (eq. 17) in two steps.

1.  Take some triples of annotators who have labeled enough items in common (`moment_triples.triples`). Decompose the
    tensor of each triple by tensorly's constrained_parafac from a diagonal start, bring all decompositions into the
    same order of classes, and average them, weighted by items. If an annotator is in no triple, also split all
    annotators at random into three groups, several times (`moment_triples.groups`), and decompose the tensor of the
    groups, which uses nearly all items. Annotators in no triple start with the mean matrix of their groups.
2.  Sweep `rounds` times over the means and cross-moments of all annotators. Given the matrices of the others, Pi_k
    minimizes, over matrices with rows on the simplex,

        n_k |mu_k - Pi_k' p|^2  +  sum_m n_km |S_km - Pi_k' diag(p) Pi_m|^2,

    where n_k is the number of labels of annotator k, and n_km the number of items that both k and m have labeled.
    Passes over the labels give the coefficients (`moment_equations`), so no K x K table is needed.

The order of the classes is chosen on the assumption that annotators are better than random overall. Moments are
computed on items of unknown truth, where the n_k labels of annotator k count as n_k p_j Pi_k[j] answers about class j.
Labels of items of known truth are counted and added. Items are then predicted as in Dawid–Skene (eq. 18). If no tensor
has enough items, labels are counted by vote shares instead.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from scipy.optimize import linear_sum_assignment

from hitl.annotations import Annotations, Floats
from hitl.consensus import Consensus
from hitl.crew import EXPECTED_ACCURACY
from hitl.errors import MissingExtra
from hitl.evidence import Evidence
from hitl.models.annotators import confusion
from hitl.models.combiner import concluded, used
from hitl.models.inference import em, moment_triples, warm_start
from hitl.models.inference.moment_triples import Codes
from hitl.models.numerics import kernels
from hitl.models.numerics.checks import check_settings
from hitl.models.numerics.clamping import known_truth
from hitl.models.numerics.votes import voted
from hitl.models.priors.shares import Shares

TOGETHER = 10
"""Minimum number of items per class with labels from all three groups; a split with fewer is skipped."""

DAMPING = 0.5
"""Weight of the new matrices in a sweep. It is below 1 because all annotators are updated at once."""


@dataclass(frozen=True, eq=False)
class Part:
    """Decomposition of one tensor.

    Attributes:
        members: codes of the annotators in each of the three sources.
        pi_sjl: (3, J, L) confusion matrices of the sources.
        share_j: (J,) class shares.
        converged: True if the decomposition reached its tolerance.
        items: number of items in the moment.
    """

    members: tuple[Codes, ...]
    pi_sjl: Floats
    share_j: Floats
    converged: bool
    items: int

    @property
    def of_annotators(self) -> bool:
        """True if each source is one annotator."""
        return all(len(members) == 1 for members in self.members)

    def aligned(self, reference_sjl: Floats) -> Part:
        """Reorder the classes to agree best with reference matrices (3, J, L) of the sources."""
        agreement = np.einsum("sil,sjl->ij", self.pi_sjl, reference_sjl)
        found, place = linear_sum_assignment(agreement, maximize=True)
        order = found[np.argsort(place)]
        return replace(self, pi_sjl=self.pi_sjl[:, order], share_j=self.share_j[order])


@dataclass(frozen=True, slots=True)
class MomentMatching:
    """Moment matching; needs the extra `moments` (tensorly).

    Attributes:
        triples: maximum number of triples of annotators to decompose, >= 0.
        least_shared: minimum number of items per class that all three annotators of a triple have labeled, >= 1.
        groupings: number of random splits into three groups, used if an annotator is in no triple, >= 0.
        rounds: number of sweeps over means and cross-moments, >= 0; few sweeps regularize.
        accuracy: expected accuracy of annotators, in (0, 1).
        strength: weight of that expectation, in labels per class, > 0.
        share_smoothing: number of pseudo-items per class, > 0.
        tolerance: a decomposition stops when an iteration lowers its relative error by less than this, > 0.
        max_iterations: maximum number of iterations of a decomposition, >= 1.
        seed: seed of the random choices of triples and groups.

    Example:
        >>> from hitl import Annotations, Evidence, models
        >>> evidence = Evidence(Annotations.from_matrix([[0, 0, 1], [1, 1, -1], [1, 1, 0]]))
        >>> models.MomentMatching().fit(evidence).labels.tolist()
        [0, 1, 1]
    """

    beliefs: ClassVar[int] = 14
    uses: ClassVar[frozenset[str]] = frozenset({"truth"})

    triples: int = 10
    least_shared: int = 50
    groupings: int = 5
    rounds: int = 5
    accuracy: float = EXPECTED_ACCURACY
    strength: float = 10.0
    share_smoothing: float = 1.0
    tolerance: float = 1e-6
    max_iterations: int = 300
    seed: int = 0

    def __post_init__(self) -> None:
        check_settings(self)

    def fit(self, evidence: Evidence, *, start: Consensus | None = None) -> Consensus:
        """Match the moments; `start` is ignored. Raise MissingExtra without tensorly."""
        evidence = used(self, evidence)
        began = time.perf_counter()
        _tensorly()  # fail at once, even without a tensor to decompose
        annotations = evidence.annotations
        counts_klj, share_j, converged = self._learned(evidence)
        pseudo_jl = self._pseudo_counts(annotations)
        report = confusion.report(annotations, counts_klj, pseudo_jl, share_j)
        log_pi_klj = np.log(confusion.posterior_mode(counts_klj, pseudo_jl))
        q_nj = em.expectation(evidence, Shares(share_j), log_pi_klj).q_nj
        return concluded(self, began, evidence, q_nj, report, converged=converged)

    def apply(self, consensus: Consensus, evidence: Evidence) -> Consensus:
        """Predict other items with the learned parameters; new annotators get the prior."""
        return warm_start.applied(consensus, evidence, self._pseudo_counts(evidence.annotations))

    def _pseudo_counts(self, annotations: Annotations) -> Floats:
        off = self.strength * (1 - self.accuracy) / (annotations.n_options - 1)
        return confusion.accurate_pseudo_counts(annotations.n_classes, annotations.n_options, self.accuracy, off)

    def _learned(self, evidence: Evidence) -> tuple[Floats, Floats, bool]:
        """Return expected counts of answers (K, L, J), class shares (J,), and True if all decompositions converged."""
        annotations = evidence.annotations
        unknown = annotations.select(~evidence.known[annotations.item])
        parts = self._parts(unknown)
        if parts:
            share_j = np.average([part.share_j for part in parts], axis=0, weights=[part.items for part in parts])
            pi_kjl = matched(unknown, average(parts, unknown.n_annotators), share_j, self.rounds)
            answers_k = unknown.labels_per_annotator
            answers_klj = (answers_k[:, None, None] * share_j[:, None] * pi_kjl).transpose(0, 2, 1)
            known_nj = known_truth(evidence)
            items_j = share_j * (~evidence.known).sum()
        else:
            answers_klj, items_j = np.zeros(()), np.zeros(annotations.n_classes)
            known_nj = voted(evidence)
        raised = items_j + known_nj.sum(axis=0) + self.share_smoothing
        counts_klj = answers_klj + kernels.counts(annotations, known_nj)
        return counts_klj, raised / raised.sum(), all(part.converged for part in parts)

    def _parts(self, annotations: Annotations) -> list[Part]:
        """Decompose the tensors of triples of annotators and, if an annotator is in no triple, of random groups."""
        least = self.least_shared * annotations.n_classes
        parts = []
        for three in moment_triples.triples(annotations, least, self.triples, self.seed):
            one_each = tuple(np.array([k]) for k in three)
            parts.append(self._part(annotations, one_each, *moment_triples.triple_moment(annotations, three)))
        placed = {int(members[0]) for part in parts for members in part.members}
        rng = np.random.default_rng(self.seed)
        for _ in range(self.groupings if placed < set(np.flatnonzero(annotations.labels_per_annotator)) else 0):
            group_k = moment_triples.groups(annotations, rng)
            moment, items = moment_triples.group_moment(annotations, group_k)
            if items >= TOGETHER * annotations.n_classes:
                members = tuple(np.flatnonzero(group_k == group) for group in range(3))
                parts.append(self._part(annotations, members, moment, items))
        return in_one_order(parts, annotations.n_annotators)

    def _part(self, annotations: Annotations, members: tuple[Codes, ...], moment: Floats, items: int) -> Part:
        found = decompose(moment, annotations.n_classes, self.tolerance, self.max_iterations)
        return Part(members, *found, items)


def matched(annotations: Annotations, pi_kjl: Floats, share_j: Floats, rounds: int) -> Floats:
    """Return (K, J, L) confusion matrices after `rounds` sweeps over means and cross-moments."""
    for _ in range(rounds):
        best_kjl = simplex_least_squares(*moment_equations(annotations, pi_kjl, share_j), pi_kjl)
        pi_kjl = (1 - DAMPING) * pi_kjl + DAMPING * best_kjl
    return pi_kjl


def moment_equations(annotations: Annotations, pi_kjl: Floats, share_j: Floats) -> tuple[Floats, Floats]:
    """Return A (K, J, J) and B (K, J, L) of the objective tr X'AX - 2 tr X'B that each new matrix X minimizes.

    A_k = n_k p p' + sum_m n_km D Pi_m Pi_m' D    B_k = n_k p mu_k' + sum_m n_km D Pi_m S_km'    D = diag(p)

    The sums over other annotators m are computed item by item: the sum over all its answers minus the annotator's own.
    """
    joint_kjl = share_j[:, None] * pi_kjl
    answers_k = annotations.labels_per_annotator
    cell = annotations.annotator.astype(np.int64) * annotations.n_options + annotations.label
    answers_kl = np.bincount(cell, minlength=answers_k.size * annotations.n_options).reshape(answers_k.size, -1)

    def of_others(value_klj: Floats) -> Floats:
        all_klj = kernels.counts(annotations, kernels.messages(annotations, value_klj))
        return np.asarray(all_klj - answers_kl[:, :, None] * value_klj)

    linear_kjl = of_others(np.ascontiguousarray(joint_kjl.transpose(0, 2, 1))).transpose(0, 2, 1)
    linear_kjl = linear_kjl + answers_kl[:, None, :] * share_j[:, None]
    quadratic_kji = answers_k[:, None, None] * np.outer(share_j, share_j)
    square_kji = joint_kjl @ joint_kjl.transpose(0, 2, 1)
    for j, row_ki in enumerate(square_kji.transpose(1, 0, 2)):
        whatever_said = np.repeat(row_ki[:, None], annotations.n_options, axis=1)
        quadratic_kji[:, j] += of_others(whatever_said).sum(axis=1)
    return quadratic_kji, linear_kjl


def simplex_least_squares(
    quadratic_kji: Floats, linear_kjl: Floats, start_kjl: Floats, iterations: int = 200, tolerance: float = 1e-7
) -> Floats:
    """Minimize tr X'AX - 2 tr X'B over (K, J, L) matrices with rows on the simplex, by accelerated projected steps."""
    steepest = np.maximum(np.linalg.eigvalsh(quadratic_kji)[:, -1], 1e-12)[:, None, None]
    now = ahead = start_kjl
    speed = 1.0
    for _ in range(iterations):
        moved = on_simplex(ahead - (quadratic_kji @ ahead - linear_kjl) / steepest)
        faster = (1 + np.sqrt(1 + 4 * speed**2)) / 2
        ahead = moved + (speed - 1) / faster * (moved - now)
        change = np.abs(moved - now).max(initial=0.0)
        now, speed = moved, faster
        if change < tolerance:
            break
    return now


def on_simplex(values: Floats) -> Floats:
    """Project onto the simplex along the last axis."""
    falling = -np.sort(-values, axis=-1)
    surplus = (np.cumsum(falling, axis=-1) - 1) / np.arange(1, values.shape[-1] + 1)
    last = (falling > surplus).sum(axis=-1, keepdims=True) - 1
    return np.asarray(np.maximum(values - np.take_along_axis(surplus, last, axis=-1), 0.0))


def decompose(moment: Floats, n_classes: int, tolerance: float, max_iterations: int) -> tuple[Floats, Floats, bool]:
    """Decompose a third-order moment (L, L, L).

    Return the confusion matrices of the three sources (3, J, L), the class shares (J,), and True if the decomposition
    converged. All sources start with the same matrix, in which an answer is right with probability 0.7.
    """
    cp_tensor, constrained_parafac = _tensorly()
    options = moment.shape[0]
    start_jl = confusion.on_the_diagonal(n_classes, options, 0.7, 0.3 / (options - 1))
    start = cp_tensor((None, [start_jl.T.copy(), start_jl.T.copy(), start_jl.T / n_classes]))
    found, errors = constrained_parafac(
        moment,
        n_classes,
        init=start,
        n_iter_max=max_iterations,
        n_iter_max_inner=5,
        tol_outer=tolerance,
        simplex={0: 1, 1: 1},
        non_negative={2: True},
        return_errors=True,
    )
    factors = np.maximum(np.stack([np.asarray(factor).T for factor in found.factors]), 0) + 1e-12
    share_j = factors[2].sum(axis=1)
    return factors / factors.sum(axis=2, keepdims=True), share_j / share_j.sum(), len(errors) < max_iterations


def _tensorly() -> tuple[Any, Any]:
    try:
        from tensorly.cp_tensor import CPTensor
        from tensorly.decomposition import constrained_parafac
    except ImportError:
        raise MissingExtra("moment matching needs tensorly: pip install 'hitl-toolkit[moments]'") from None
    return CPTensor, constrained_parafac


def in_one_order(parts: Sequence[Part], n_annotators: int) -> list[Part]:
    """Bring the classes of all decompositions into the same order.

    Each decomposition is first ordered as if its annotators were better than random, then to agree best with the
    average over all. The second step corrects decompositions whose annotators are worse than random.
    """
    if not parts:
        return []
    right = np.stack([np.eye(parts[0].pi_sjl.shape[1], parts[0].pi_sjl.shape[2])] * 3)
    together = average([part.aligned(right) for part in parts], n_annotators)
    return [part.aligned(np.stack([together[members].mean(axis=0) for members in part.members])) for part in parts]


def average(parts: Sequence[Part], n_annotators: int) -> Floats:
    """Return (K, J, L) the mean confusion matrix of each annotator over the decompositions, weighted by items.

    Decompositions of groups count only for annotators in no triple. Annotators in no decomposition get uniform rows.
    """
    _, n_classes, options = parts[0].pi_sjl.shape
    average_kjl = np.full((n_annotators, n_classes, options), 1 / options)
    for alone in (False, True):
        total_kjl, items_k = np.zeros_like(average_kjl), np.zeros(n_annotators)
        for part in parts:
            for members, pi_jl in zip(part.members, part.pi_sjl, strict=True):
                if part.of_annotators is alone:
                    total_kjl[members] += part.items * pi_jl
                    items_k[members] += part.items
        found = items_k > 0
        average_kjl[found] = total_kjl[found] / items_k[found, None, None]
    return average_kjl
