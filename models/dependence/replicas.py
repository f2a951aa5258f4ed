"""Measure how far annotators err together, against tables replicated from the refitted model.

A fit explains part of the dependence between labels as skill, so correlated errors alone prove nothing. What the fit
leaves unexplained shows when it is repeated: answers are drawn from the fitted model, which has no dependence, for the
same items and annotators; the model is fitted to them in the same way; and in both tables the same is measured, over
pairs of labels of one item:

    wrong     correlation of being wrong, beyond each annotator's rate
    alike     chance that another label is the same error, given that one is an error

    H0  independent: no excess over the replicas
    H1  together: an excess |N(0, WRONG^2)| of the first or |N(0, ALIKE^2)| of the second, or with probability
        UNTRACED none, since a fit may explain all of it

An excess is measured with a standard error s over the items; if the true one is d, it is N(d, s^2 + NEGLIGIBLE^2).
With B the Bayes factors of H1 against H0 by the two measures, and U that of uneven errors (`uneven_errors`) between
LEAST_FACTOR and MOST_FACTOR, the probability P that annotators err together has the odds

    odds(BEFOREHAND) U (UNTRACED + (1 - UNTRACED) (B_wrong + B_alike) / 2)

and e, the excess that is expected if they do, is the posterior mean of the excess of `wrong`, times the share of the
second term in the bracket. If nothing can be measured, B = 1 and e = (1 - UNTRACED) WRONG sqrt(2 / pi).

Items with fewer than LEAST_LABELS labels do not show it: two labels are spent on the class and on whether they differ.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy.special import expit, logit, softmax
from scipy.stats import norm

from hitl.annotations import Annotations, Floats
from hitl.evidence import Evidence
from hitl.models.annotators.mean_rows import messages
from hitl.models.inference.sample import Sample
from hitl.models.numerics.clamping import clamp

BEFOREHAND = 0.9
"""Probability that annotators err together, before anything is measured."""

LEAST_LABELS, LEAST_ITEMS, MOST_ITEMS = 4, 30, 3000
"""Minimum number of labels of an item, and minimum and maximum number of items that are measured."""

REPLICAS = 2

WRONG, ALIKE, UNTRACED = 0.09, 0.05, 0.15
"""Standard deviations of the excesses, and probability that there is none, if annotators err together."""

NEGLIGIBLE = 0.004
"""Standard deviation of excesses without any shared error, because no model is exact."""

LEAST_FACTOR, MOST_FACTOR = 0.05, 2.0
"""Limits of the Bayes factor of uneven errors: one crowd in twenty with shared errors has even ones, and every second
crowd of independent annotators is uneven."""

Refit = Callable[[Evidence, Floats], tuple[Floats, Floats]]
"""A table and first beliefs (N, J) -> Dirichlet parameters (K, J, L) and beliefs (N, J) of a fit."""

_HALF: Floats = norm.ppf(0.5 + (np.arange(400) + 0.5) / 800)


@dataclass(frozen=True, slots=True)
class Dependence:
    """Probability that annotators err together, and the excess of their correlation.

    Attributes:
        chance: probability that they do, in [0, 1].
        excess: expected excess of the correlation of being wrong if they do, >= 0.
    """

    chance: float
    excess: float = (1 - UNTRACED) * WRONG * float(np.sqrt(2 / np.pi))


@dataclass(frozen=True, slots=True)
class Excess:
    """Excess of a measure over its mean in the replicas, and its standard error."""

    value: float
    error: float

    def factor(self, scale: float) -> tuple[float, float]:
        """Return the Bayes factor of an excess of |N(0, scale^2)|, and its expected size."""
        sd = np.hypot(self.error, NEGLIGIBLE)
        log_ratio = norm.logpdf(self.value, scale * _HALF, sd) - norm.logpdf(self.value, 0.0, sd)
        ratio = np.exp(np.minimum(log_ratio, 500.0))
        return float(ratio.mean()), float(scale * (ratio @ _HALF) / ratio.sum())


def dependence(log_uneven: float, measured: tuple[Excess, Excess] | None) -> Dependence:
    """Combine the log Bayes factor of uneven errors with the excesses, if they could be measured."""
    log_odds = float(logit(BEFOREHAND)) + float(np.clip(log_uneven, np.log(LEAST_FACTOR), np.log(MOST_FACTOR)))
    if measured is None:
        return Dependence(float(expit(log_odds)))
    (wrong, excess), (alike, _) = measured[0].factor(WRONG), measured[1].factor(ALIKE)
    traced = (1 - UNTRACED) * (wrong + alike) / 2
    return Dependence(float(expit(log_odds + np.log(UNTRACED + traced))), excess * traced / (UNTRACED + traced))


def excesses(sample: Sample, annotations: Annotations, share_j: Floats, refit: Refit) -> tuple[Excess, Excess] | None:
    """Measure the excesses of `wrong` and `alike`; None if too few items have enough labels.

    Args:
        sample: items of the crowd, with beliefs.
        annotations: labels of the crowd, for its classes and options.
        share_j: (J,) class shares.
        refit: function that fits a table.
    """
    rows = np.flatnonzero(sample.labels_n >= LEAST_LABELS)[:MOST_ITEMS]
    if annotations.anonymous is not None or len(rows) < LEAST_ITEMS:
        return None
    some = sample.among(rows)
    table = some.evidence(annotations)
    alpha_kjl, q_nj = refit(table, some.q_nj)
    rng = np.random.default_rng(0)
    drawn = [replicated(table, alpha_kjl, q_nj, share_j, refit, rng) for _ in range(REPLICAS)]
    return _excess(errors_wrong(table, q_nj), [errors_wrong(*one) for one in drawn]), _excess(
        errors_alike(table, q_nj), [errors_alike(*one) for one in drawn]
    )


def replicated(
    table: Evidence, alpha_kjl: Floats, q_nj: Floats, share_j: Floats, refit: Refit, rng: np.random.Generator
) -> tuple[Evidence, Floats]:
    """Draw truths from beliefs and answers from mean rows; return the table and its beliefs after a refit."""
    annotations = table.annotations
    truth_n = _drawn(q_nj, rng)
    label_m = _drawn(alpha_kjl[annotations.annotator, truth_n[annotations.item]], rng)
    replica = replace(table, annotations=replace(annotations, label=label_m.astype(np.int32)))
    first_nj = softmax(messages(replica.annotations, alpha_kjl) + np.log(share_j), axis=1)
    return replica, refit(replica, clamp(first_nj, replica))[1]


def _drawn(weight: Floats, rng: np.random.Generator) -> npt.NDArray[np.intp]:
    """Draw one column per row (n, C), with probability proportional to the weights."""
    up_to = weight.cumsum(axis=1)
    return np.asarray((rng.random((len(weight), 1)) * up_to[:, -1:] > up_to).sum(axis=1))


Pairs = tuple[Floats, Floats]
"""Numerators and denominators (N,) of items, whose sums are divided."""


def errors_wrong(table: Evidence, q_nj: Floats) -> Pairs:
    """Return sums over pairs of labels of an item: products of excess errors, and of standard deviations."""
    annotations = table.annotations
    wrong_m, of_class_m = _wrong(annotations, q_nj)
    labels_k = np.bincount(annotations.annotator, of_class_m, annotations.n_annotators)
    rate_k = np.bincount(annotations.annotator, wrong_m, annotations.n_annotators) / np.maximum(labels_k, 1)
    rate_m = rate_k[annotations.annotator]
    beyond_m, sd_m = of_class_m * (wrong_m - rate_m), of_class_m * np.sqrt(rate_m * (1 - rate_m))
    return _pairs(annotations, beyond_m), _pairs(annotations, sd_m)


def errors_alike(table: Evidence, q_nj: Floats) -> Pairs:
    """Return sums over ordered pairs of labels of an item: chances of the same error, and of an error of the first."""
    annotations = table.annotations
    wrong_m, of_class_m = _wrong(annotations, q_nj)
    shape = annotations.n_items, annotations.n_options
    cell_m = annotations.item * shape[1] + annotations.label
    count_nl = np.bincount(cell_m, minlength=shape[0] * shape[1]).reshape(shape)
    same_nl = count_nl[:, : annotations.n_classes].astype(np.float64)
    same_n: Floats = (same_nl * (same_nl - 1) * (1 - q_nj) ** 2).sum(axis=1)
    labels_n = np.bincount(annotations.item, of_class_m, annotations.n_items)
    errors_n = np.bincount(annotations.item, wrong_m, annotations.n_items)
    return same_n, np.asarray((labels_n - 1) * errors_n, dtype=np.float64)


def _wrong(annotations: Annotations, q_nj: Floats) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Return (M,) chances that labels are wrong, 0 for answers that are no class, and (M,) True for classes."""
    of_class_m = annotations.label < annotations.n_classes
    believed_m = q_nj[annotations.item, np.minimum(annotations.label, annotations.n_classes - 1)]
    return np.where(of_class_m, 1 - believed_m, 0.0), of_class_m


def _pairs(annotations: Annotations, value_m: Floats) -> Floats:
    """Return (N,) sums of products over the ordered pairs of labels of each item."""
    total_n, squares_n = (np.bincount(annotations.item, v, annotations.n_items) for v in (value_m, value_m**2))
    return np.asarray(total_n**2 - squares_n)


def _excess(found: Pairs, drawn: list[Pairs]) -> Excess:
    (value, error), others = _ratio(found), np.array([_ratio(one) for one in drawn])
    mean, of_mean = others[:, 0].mean(), np.sqrt((others[:, 1] ** 2).mean() / len(others))
    return Excess(value - float(mean), float(np.hypot(error, of_mean)))


def _ratio(pairs: Pairs) -> tuple[float, float]:
    """Return the ratio of two sums over items, and its standard error (linearized)."""
    above_n, below_n = pairs
    below = max(float(below_n.sum()), np.finfo(float).tiny)
    ratio = float(above_n.sum()) / below
    return ratio, float(np.sqrt(((above_n - ratio * below_n) ** 2).sum())) / below
