"""Prior of confusion rows if the classes are ordered: answers err towards neighbors, and annotators differ in two ways.

An annotator perceives an item of class j with a normal error, and answers with the class whose thresholds it falls
between (an ordered probit):

    crowd    shape_jl   =  Phi((l + 1/2 - j) / s) - Phi((l - 1/2 - j) / s)      s: scale of the crowd's errors, in
                           classes, with a prior of `CROWD` labels at the expected accuracy
             mu_jl         Dirichlet about shape_j, with the strength G of the recalls' prior (`skills`)
             t_jl       =  Phi^-1(mu_j0 + ... + mu_jl), the crowd's thresholds
    person   nu_kj      :  thresholds (t_jl - b_k) / s_k       b_k ~ N(0, v_b), ln s_k ~ N(0, v_s)
    row      pi_kj      ~  Dirichlet(R nu_kj)

b_k > 0: the annotator rates higher than the crowd; s_k > 1: less precisely. Both are integrated over a grid, so a
person with a few labels is close to the crowd. v_b and v_s are posterior modes given all persons and `PERSONS` more
whose bias and log scale have a standard deviation of `USUAL`. Options that are no class have the crowd's frequencies.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from scipy.special import ndtr, ndtri

from hitl.annotations import Annotations, Floats
from hitl.models.hierarchy.skills import CROWD, ROWS, USUAL_ALIKE, Skills, dirichlet_multinomial, strength

GRID: Floats = np.array([(b, s) for b in np.linspace(-2, 2, 17) for s in np.linspace(-np.log(4), np.log(4), 9)]).T
"""(2, G) a person's bias, in standard deviations of the crowd's errors, and ln s_k."""

MOST_CLASSES = 100
"""Number of classes above which the grid would take too much memory, and rows are learned as without an order."""

PERSONS, USUAL = 4.0, 0.5

LEAST = 1e-6
"""Minimum probability of an answer."""

WITHIN, MOST_STEPS = 1e-3, 10
"""Learning the variances ends when the log prior changes by less, or after this number of steps."""


def grid_bytes(annotations: Annotations) -> int:
    """Estimate the bytes that the grid takes at its peak; 0 if it is not used."""
    if not annotations.ordered or annotations.n_classes > MOST_CLASSES:
        return 0
    return 8 * GRID.shape[1] * (5 * annotations.n_classes**2 + 3 * annotations.n_annotators)


def learn_ordered(counts_klj: Floats, expected: float, recalls: float | None = ROWS) -> Skills:
    """Learn skills for ordered classes, from the arguments of `Skills.learned`."""
    options, classes = counts_klj.shape[1:]
    counts_lj = counts_klj.sum(axis=0)
    shape_lj = _shape(counts_lj[:classes], expected)
    if recalls is None:
        likelihood = dirichlet_multinomial(shape_lj[None], counts_lj[None, :classes])
        recalls = strength(likelihood, USUAL_ALIKE)
    crowd_lj = recalls * shape_lj + counts_lj[:classes]
    np.fill_diagonal(crowd_lj, crowd_lj.max(axis=0))
    crowd_lj /= crowd_lj.sum(axis=0)
    rows_glj = _moved(crowd_lj)
    weight_kg = _persons(counts_klj[:, :classes], rows_glj)
    mean_klj = np.empty_like(counts_klj)
    mean_klj[:, :classes] = np.tensordot(weight_kg, rows_glj, axes=1)
    other_lj = (counts_lj[classes:] + 1) / (counts_lj.sum(axis=0) + options)  # one more of each option
    mean_klj[:, :classes] *= 1 - other_lj.sum(axis=0)
    mean_klj[:, classes:] = other_lj
    rows = strength(dirichlet_multinomial(mean_klj, counts_klj))
    crowd_lj = np.concatenate((crowd_lj * (1 - other_lj.sum(axis=0)), other_lj))
    mean_klj *= rows
    return Skills(rows * crowd_lj.T, mean_klj)


def _shape(counts_lj: Floats, expected: float) -> Floats:
    """Return (J, J) the crowd's chances of answers l for each class j if its errors have one scale."""
    shapes_glj = _shapes(len(counts_lj))
    accuracy_g = np.einsum("gjj->g", shapes_glj) / len(counts_lj)
    usual_lj = shapes_glj[np.abs(accuracy_g - expected).argmin()]
    counts_lj = counts_lj + CROWD / len(counts_lj) * usual_lj
    log_g = np.tensordot(np.log(shapes_glj), counts_lj)
    weight_g = np.exp(log_g - log_g.max())
    mean_lj: Floats = np.tensordot(weight_g / weight_g.sum(), shapes_glj, axes=1)
    return mean_lj


@cache
def _shapes(classes: int) -> Floats:
    """Return (G, J, J) the crowd's chances of answers for a grid of scales."""
    edge_jl = np.arange(classes - 1) + 0.5 - np.arange(classes)[:, None]
    rows_gjl = _between(edge_jl / np.geomspace(0.15, classes, 40)[:, None, None])
    return np.ascontiguousarray(rows_gjl.swapaxes(1, 2))


def _moved(crowd_lj: Floats) -> Floats:
    """Return (G, J, J) the crowd's rows with the thresholds of each bias and scale of the grid."""
    shift_g, log_scale_g = GRID
    threshold_jl = ndtri(np.clip(crowd_lj.T.cumsum(axis=1)[:, :-1], LEAST, 1 - LEAST))
    rows_gjl = _between((threshold_jl - shift_g[:, None, None]) / np.exp(log_scale_g)[:, None, None])
    return np.ascontiguousarray(rows_gjl.swapaxes(1, 2))


def _persons(counts_klj: Floats, rows_glj: Floats) -> Floats:
    """Return (K, G) probabilities of each bias and scale, given expected counts (K, J, J) of answers."""
    log_kg = np.tensordot(counts_klj, np.log(rows_glj), axes=((1, 2), (1, 2)))
    variance_2, log_prior_g = np.full(2, USUAL**2), np.full(len(rows_glj), -np.inf)
    for _ in range(MOST_STEPS):
        before_g, log_prior_g = log_prior_g, -(GRID**2 / variance_2[:, None]).sum(axis=0) / 2
        log_prior_g -= np.logaddexp.reduce(log_prior_g)
        weight_kg = log_kg + log_prior_g
        weight_kg = np.exp(weight_kg - weight_kg.max(axis=1, keepdims=True))
        weight_kg /= weight_kg.sum(axis=1, keepdims=True)
        if np.abs(log_prior_g - before_g).max() < WITHIN:
            break
        variance_2 = (GRID**2 @ weight_kg.sum(axis=0) + PERSONS * USUAL**2) / (len(weight_kg) + PERSONS)
    return np.asarray(weight_kg)


def _between(threshold: Floats) -> Floats:
    """Return chances (..., J) that a normal error falls between neighboring thresholds (..., J - 1)."""
    up_to = ndtr(threshold)
    ends = np.zeros_like(up_to[..., :1])
    rows = np.maximum(np.diff(np.concatenate((ends, up_to, ends + 1), axis=-1), axis=-1), LEAST)
    return np.asarray(rows / rows.sum(axis=-1, keepdims=True))
