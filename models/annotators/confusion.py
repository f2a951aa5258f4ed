"""Annotator model with one confusion matrix per annotator, pi[k, j, l] = p(annotator k answers l | true class j).

Each row has a Dirichlet prior given by pseudo-counts b[j, l] = alpha[j, l] - 1 >= 0, so that the posterior mode is

    pi[k, j, l] = (N[k, j, l] + b[j, l]) / sum_l (N[k, j, l] + b[j, l]).

The 1 is subtracted in every cell. Subtracting it only on the diagonal would silently add 1 to all other pseudo-counts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from hitl.annotations import Annotations, Floats, Names
from hitl.consensus import AnnotatorReport, Consensus


@dataclass(frozen=True, eq=False)
class Confusion:
    """Confusion matrices at their posterior mode.

    `pseudo_klj` > 0: pseudo-counts (L, J) shared by all annotators, or (K, L, J) of each annotator.
    """

    pseudo_klj: Floats
    log_pi_klj: Floats

    @classmethod
    def unlearned(cls, pseudo_jl: Floats, n_annotators: int) -> Self:
        """Build all annotators at the mode of a shared prior."""
        return cls(pseudo_jl.T, np.empty(0)).learn(np.zeros((n_annotators, *pseudo_jl.T.shape)))

    @classmethod
    def expected(cls, pseudo_klj: Floats) -> Self:
        """Build each annotator at the mode of their own prior."""
        return cls(pseudo_klj, np.empty(0)).learn(np.zeros(()))

    def learn(self, counts_klj: Floats) -> Self:
        log_pi_klj = posterior_mode(counts_klj, self.pseudo_klj.swapaxes(-2, -1))
        return replace(self, log_pi_klj=np.log(log_pi_klj, out=log_pi_klj))

    def log_density(self) -> float:
        pseudo_klj = np.broadcast_to(self.pseudo_klj, self.log_pi_klj.shape)
        return float(np.einsum("klj,klj->", pseudo_klj, self.log_pi_klj))


@dataclass(frozen=True, eq=False)
class PointRows:
    """Annotator model with confusion rows at their posterior mode, under pseudo-counts (J, L)."""

    pseudo_jl: Floats

    def at_start(self, annotations: Annotations, start: Consensus | None) -> Confusion:
        """Return unlearned rows; the first iteration learns them from the beliefs of `start`."""
        return Confusion.unlearned(self.pseudo_jl, annotations.n_annotators)

    def log_pi(self, learned: Consensus, annotations: Annotations) -> Floats:
        """Return (K, L, J) learned log confusion rows."""
        return np.log(confusion_from(learned, annotations, self.pseudo_jl))

    def report(self, annotations: Annotations, found: Any, share_j: Floats) -> AnnotatorReport:
        """Report expected counts and confusion rows."""
        return report(annotations, found.counts_klj, self.pseudo_jl, share_j)


def even_pseudo_counts(n_classes: int, n_options: int, smoothing: float) -> Floats:
    """Return (J, L) pseudo-counts that all equal `smoothing`."""
    return np.full((n_classes, n_options), smoothing)


def on_the_diagonal(n_classes: int, n_options: int, right: float, wrong: float) -> Floats:
    """Return (J, L) pseudo-counts: `right` on the diagonal, `wrong` elsewhere."""
    value_jl = np.full((n_classes, n_options), float(wrong))
    np.fill_diagonal(value_jl, right)
    return value_jl


def accurate_pseudo_counts(n_classes: int, n_options: int, accuracy: float, off: float = 0.1) -> Floats:
    """Return (J, L) pseudo-counts of a prior whose mode has this accuracy a, in (0, 1), on the diagonal.

    They are `off` off the diagonal and off * (L - 1) * a / (1 - a) on it (Kerrigan 2021, section 4).
    """
    return on_the_diagonal(n_classes, n_options, off * (n_options - 1) * accuracy / (1 - accuracy), off)


def over_options(values_klj: Floats) -> Floats:
    """Return (K, J) sums over options. The axes are short, so einsum takes a quarter of the time of .sum(axis=1)."""
    return np.asarray(np.einsum("klj->kj", values_klj))


def posterior_mode(counts_klj: Floats, pseudo_jl: Floats) -> Floats:
    """Return (K, L, J) maximum a posteriori confusion matrices, which sum to 1 over l.

    `pseudo_jl` > 0: pseudo-counts (J, L) shared by all annotators, or (K, J, L) of each annotator.
    """
    mode_klj: Floats = counts_klj + pseudo_jl.swapaxes(-2, -1)
    mode_klj /= over_options(mode_klj)[:, None]
    return mode_klj


def report(annotations: Annotations, counts_klj: Floats, pseudo_jl: Floats, share_j: Floats) -> AnnotatorReport:
    """Report annotators as Dirichlet(counts + pseudo-counts), whose mean is the matrix used.

    The exact posterior has 1 more in every cell. With many options this would outweigh the evidence of annotators with
    hundreds of labels (L = 50: an accuracy of 1 would be reported as 0.33).
    """
    pi_kjl = np.ascontiguousarray(posterior_mode(counts_klj, pseudo_jl).transpose(0, 2, 1))
    return report_of(annotations, (counts_klj + pseudo_jl.T).transpose(0, 2, 1), share_j, pi_kjl=pi_kjl)


def report_of(
    annotations: Annotations,
    alpha_kjl: Floats,
    share_j: Floats,
    *,
    pi_kjl: Floats | None = None,
    **learned: Floats | None,
) -> AnnotatorReport:
    """Build a report of annotators with Dirichlet(alpha) rows.

    Args:
        alpha_kjl: (K, J, L) Dirichlet parameters.
        share_j: (J,) class shares.
        pi_kjl: (K, J, L) confusion matrices; default: the means of the rows.
        learned: other fields of the report.
    """
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
    """Return (K, L, J) confusion matrices of a consensus, for the annotators and codes of these annotations.

    New annotators get the mode of the prior, and so do all annotators if the classes differ. Options are matched by
    name. A new option gets its probability from the prior, and rows are renormalized.
    """
    unknown = pseudo_jl / pseudo_jl.sum(axis=1, keepdims=True)
    pi_kjl = matched(consensus.annotators, consensus.annotators.confusion, unknown, annotations)
    pi_kjl /= pi_kjl.sum(axis=2, keepdims=True)
    return np.ascontiguousarray(pi_kjl.transpose(0, 2, 1))


def matched(learned: AnnotatorReport, value_kjl: Floats, unmet_jl: Floats, annotations: Annotations) -> Floats:
    """Return (K, J, L) learned values for the annotators and options of these annotations, else `unmet_jl` (J, L)."""
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


def crowd_rows(learned: AnnotatorReport, annotations: Annotations, unmet_jl: Floats) -> Floats:
    """Return (J, L) confusion rows averaged over the learned annotators, weighted by their labels.

    If there are no labels, or options other than those of the annotations, return `unmet_jl` (J, L).
    """
    if not learned.labels.any() or learned.options != annotations.options:
        return unmet_jl
    return np.asarray(np.einsum("k,kjl->jl", learned.labels / learned.labels.sum(), learned.confusion))


def labeled_by_known(learned: AnnotatorReport, annotations: Annotations) -> npt.NDArray[np.bool_]:
    """Return (N,) True for items labeled by an annotator who had labels in an earlier fit.

    For other items that fit would give uniform beliefs, which no iteration could change.
    """
    met = {name for name, m in zip(learned.names, learned.labels, strict=True) if m > 0}
    met_k = np.array([name in met for name in annotations.annotators], dtype=bool)
    return np.bincount(annotations.item, met_k[annotations.annotator], annotations.n_items) > 0


def same_codes(learned: AnnotatorReport, classes: Names, options: Names) -> bool:
    """Return True if a fit used the same class and option codes."""
    return learned.classes == classes and learned.options == options
