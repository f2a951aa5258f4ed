"""Annotator model with one confusion matrix per annotator, pi[k, j, l] = p(annotator k answers l | true class j).

Each row has a Dirichlet prior given by pseudo-counts b[j, l] = alpha[j, l] - 1 >= 0, so that the posterior mode is

    pi[k, j, l] = (N[k, j, l] + b[j, l]) / sum_l (N[k, j, l] + b[j, l]).

Every entry gets the same "-1"; subtracting it on the diagonal alone would silently add one to all the rest.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from numba import prange

from hitl.annotations import Annotations, Floats, Names
from hitl.consensus import AnnotatorReport, Consensus
from hitl.models.inference.engine import Additive
from hitl.models.numerics import kernels
from hitl.models.numerics.compiled import compiled, inlined, threaded
from hitl.models.numerics.kernels import threads_for
from hitl.models.numerics.votes import smoothed


@dataclass(frozen=True, eq=False)
class Confusion:
    """Confusion matrices at their posterior mode; `pseudo_jl` > 0."""

    pseudo_jl: Floats
    log_pi_klj: Floats

    @classmethod
    def unlearned(cls, pseudo_jl: Floats, n_annotators: int) -> Self:
        """Build all annotators at the prior's mode."""
        return cls(pseudo_jl, np.zeros((n_annotators, *pseudo_jl.T.shape))).learn(
            np.zeros((n_annotators, *pseudo_jl.T.shape))
        )

    def learn(self, counts_klj: Floats) -> Self:
        """Return the posterior mode of every row."""
        log_pi_klj = posterior_mode(counts_klj, self.pseudo_jl)
        return replace(self, log_pi_klj=np.log(log_pi_klj, out=log_pi_klj))

    def log_density(self) -> float:
        """Return the log Dirichlet density of all rows of all annotators, up to a constant."""
        return float(np.sum(self.log_pi_klj.sum(axis=0) * self.pseudo_jl.T))


def even_pseudo_counts(n_classes: int, n_options: int, smoothing: float) -> Floats:
    """Return (J, L) the same pseudo-count everywhere."""
    return np.full((n_classes, n_options), smoothing)


def on_the_diagonal(n_classes: int, n_options: int, right: float, wrong: float) -> Floats:
    """Return (J, L) pseudo-counts: `right` on the diagonal, `wrong` elsewhere."""
    value_jl = np.full((n_classes, n_options), float(wrong))
    np.fill_diagonal(value_jl, right)
    return value_jl


def accurate_pseudo_counts(n_classes: int, n_options: int, accuracy: float, off: float = 0.1) -> Floats:
    """Return (J, L) pseudo-counts `off` off the diagonal and, on it, the value that puts the prior's mode at
    `accuracy`.

    Kerrigan 2021, section 4: the diagonal of the mode is the expected accuracy a in (0, 1); the diagonal
    pseudo-count is off * (L - 1) * a / (1 - a).
    """
    return on_the_diagonal(n_classes, n_options, off * (n_options - 1) * accuracy / (1 - accuracy), off)


def over_options(values_klj: Floats) -> Floats:
    """Return (K, J) sums over options. Inner loops are short: einsum takes a quarter of the time of .sum(axis=1)."""
    sums: Floats = np.einsum("klj->kj", values_klj)
    return sums


def posterior_mode(counts_klj: Floats, pseudo_jl: Floats) -> Floats:
    """Return (K, L, J) maximum a posteriori confusion matrices, whose sum over l is 1; needs pseudo-counts > 0."""
    mode_klj = np.empty(counts_klj.shape)
    loop = _mode_threaded if threads_for(counts_klj.size) > 1 else _mode
    loop(counts_klj, np.ascontiguousarray(pseudo_jl.T), mode_klj)
    return mode_klj


@inlined
def _mode_of(counts: Any, pseudo: Any, total: Any, mode: Any) -> None:
    total[:] = 0.0
    for option in range(counts.shape[0]):
        for j in range(counts.shape[1]):
            mode[option, j] = counts[option, j] + pseudo[option, j]
            total[j] += mode[option, j]
    for option in range(counts.shape[0]):
        for j in range(counts.shape[1]):
            mode[option, j] /= total[j]


@compiled
def _mode(counts: Any, pseudo: Any, mode: Any) -> None:
    total = np.empty(counts.shape[2])
    for k in range(counts.shape[0]):
        _mode_of(counts[k], pseudo, total, mode[k])


@threaded
def _mode_threaded(counts: Any, pseudo: Any, mode: Any) -> None:
    for k in prange(counts.shape[0]):
        _mode_of(counts[k], pseudo, np.empty(counts.shape[2]), mode[k])


def report(annotations: Annotations, counts_klj: Floats, pseudo_jl: Floats, share_j: Floats) -> AnnotatorReport:
    """Report annotators as Dirichlet(counts + pseudo-counts), whose mean is the matrix used.

    The posterior under the mode's prior has one more in every cell. With many options that uniform part would
    drown the evidence of annotators with hundreds of labels (L = 50: an accuracy of 1 reported as 0.33).
    """
    pi_kjl = np.ascontiguousarray(posterior_mode(counts_klj, pseudo_jl).transpose(0, 2, 1))
    return report_of(annotations, (counts_klj + pseudo_jl.T).transpose(0, 2, 1), share_j, pi_kjl=pi_kjl)


@dataclass(frozen=True, eq=False)
class VotesCounted(Additive):
    """Counts for a report of annotators when beliefs come without an error model; they add up over shards.

    Attributes:
        counts_klj: (K, L, J) labels weighted by the beliefs.
        belief_j, items: sum of the beliefs, and number of items.
        answers_k3: (K, 3) right and wrong answers, and the variance of that number.
        labels_k: (K,) labels.
    """

    counts_klj: Floats
    belief_j: Floats
    items: int
    answers_k3: Floats
    labels_k: npt.NDArray[np.int64]

    @classmethod
    def of(cls, annotations: Annotations, q_nj: Floats) -> Self:
        """Count labels by these beliefs (N, J)."""
        counts_klj, answers_k3 = kernels.counts(annotations, q_nj), _answers_beside_labels(annotations, q_nj)
        return cls(counts_klj, q_nj.sum(axis=0), len(q_nj), answers_k3, annotations.labels_per_annotator)

    def report(self, annotations: Annotations) -> AnnotatorReport:
        """Report how often each annotator agrees.

        The matrices follow the beliefs. The accuracy compares each answer with the item's other labels: vote fractions
        are not chances, and an annotator who is always right among votes of three to one would be scored as right in 3
        of 4 cases.
        """
        pseudo_jl = even_pseudo_counts(annotations.n_classes, annotations.n_options, 0.01)
        found = report(annotations, self.counts_klj, pseudo_jl, smoothed(self.belief_j, self.items))
        return replace(found, answers=self.answers_k3, labels=self.labels_k)


def report_of_votes(annotations: Annotations, q_nj: Floats) -> AnnotatorReport:
    """Report how often each annotator agrees with beliefs (N, J) from no confusion model; see `VotesCounted`."""
    return VotesCounted.of(annotations, q_nj).report(annotations)


def _answers_beside_labels(annotations: Annotations, q_nj: Floats) -> Floats:
    """Return (K, 3) right and wrong answers by the most probable class (ties share), and the variance of that number.

    A lone answer does not count toward itself unless the truth is known.
    """
    top_nj = (q_nj >= q_nj.max(axis=1, keepdims=True) - 1e-12).astype(float)
    top_nj /= top_nj.sum(axis=1, keepdims=True)
    judged_n = (annotations.labels_per_item >= 2) | (q_nj.max(axis=1) >= 1)
    rows = (annotations.label < annotations.n_classes) & judged_n[annotations.item]
    who, right = annotations.annotator[rows], top_nj[annotations.item[rows], annotations.label[rows]]
    return np.column_stack(
        [np.bincount(who, weights, annotations.n_annotators) for weights in (right, 1 - right, right * (1 - right))]
    )


def report_of(
    annotations: Annotations,
    alpha_kjl: Floats,
    share_j: Floats,
    *,
    pi_kjl: Floats | None = None,
    **learned: Floats | None,
) -> AnnotatorReport:
    """Build a report of Dirichlet(alpha) rows and other fields `learned`; the matrices are their means unless given."""
    alpha_kjl = np.ascontiguousarray(alpha_kjl)
    return AnnotatorReport(
        names=annotations.annotators,
        classes=annotations.classes,
        options=annotations.options,
        concentration=alpha_kjl,
        confusion=alpha_kjl / alpha_kjl.sum(axis=2, keepdims=True) if pi_kjl is None else pi_kjl,
        labels=annotations.labels_per_annotator,
        shares=share_j,
        **learned,
    )


def confusion_from(consensus: Consensus, annotations: Annotations, pseudo_jl: Floats) -> Floats:
    """Return (K, L, J) confusion matrices of a consensus, for these annotators and codes.

    New annotators get the mode of the prior; so do all if the classes differ. Options are matched by
    name: a new one gets the prior's chance, and rows are renormalized.
    """
    unknown = pseudo_jl / pseudo_jl.sum(axis=1, keepdims=True)
    pi_kjl = matched(consensus.annotators, consensus.annotators.confusion, unknown, annotations)
    pi_kjl /= pi_kjl.sum(axis=2, keepdims=True)
    return np.ascontiguousarray(pi_kjl.transpose(0, 2, 1))


def matched(learned: AnnotatorReport, value_kjl: Floats, unmet_jl: Floats, annotations: Annotations) -> Floats:
    """Return (K, J, L) learned values for these annotators and options; new annotators get `unmet_jl`."""
    value = np.repeat(unmet_jl[None], annotations.n_annotators, axis=0)
    if learned.classes == annotations.classes:
        place = {name: k for k, name in enumerate(learned.names)}
        column = {name: option for option, name in enumerate(learned.options)}
        shared = [option for option, name in enumerate(annotations.options) if name in column]
        source = [column[annotations.options[option]] for option in shared]
        for k, name in enumerate(annotations.annotators):
            if name in place:
                value[k][:, shared] = value_kjl[place[name]][:, source]
    return value


def judged_by(learned: AnnotatorReport, annotations: Annotations) -> npt.NDArray[np.bool_]:
    """Return (N,) True for items labeled by an annotator that an earlier fit has met.

    For other items its beliefs are uniform, and no iteration could move them.
    """
    met = {name for name, m in zip(learned.names, learned.labels, strict=True) if m > 0}
    met_k = np.array([name in met for name in annotations.annotators], dtype=bool)
    return np.bincount(annotations.item, met_k[annotations.annotator], annotations.n_items) > 0


def same_codes(learned: AnnotatorReport, classes: Names, options: Names) -> bool:
    """Return True if a fit used the same class and option codes."""
    return learned.classes == classes and learned.options == options
