"""Choose the strength of the field of masks: the one that best predicts held-out annotators.

    score(strength) = sum over folds of annotators of ln p(their labels | labels of all others, strength)

The pseudo-likelihood, by which the fields on other graphs learn, fails here: an annotator's errors are adjacent
too, so neighbors would be found alike where the truth is not, and the field would be far too strong. Another annotator
does not share these errors. The labels of the others, spread by the field, are then the prior of the held-out label
of each pixel; the confusion rows of the held-out annotators are estimated from these beliefs.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from hitl.annotations import Floats
from hitl.kinds.label_patterns import BREADTHS, LabelPatterns
from hitl.kinds.pixel_field import PixelField
from hitl.models.numerics import kernels

STRENGTHS = (0.0, 0.5, 1.0, 2.0, 4.0)
"""Strengths to try. Between two of them little changes."""

FOLDS = 5
"""Number of folds; annotators of one fold are held out together."""

SWEEPS_HELD_OUT = 30
"""Maximum number of half steps from the votes of the others."""

SAMPLE = 2**20
"""Minimum number of pixels of the images on which strengths are tried, if there are as many."""


def sample(pixels_i: npt.NDArray[np.int64]) -> list[int]:
    """Select evenly spaced images with `SAMPLE` pixels together, or all; given the pixels of each."""
    number = int(np.ceil(SAMPLE / pixels_i.mean()))
    if number >= len(pixels_i):
        return list(range(len(pixels_i)))
    return [int(i) for i in np.linspace(0, len(pixels_i) - 1, number).round()]


def score(field: PixelField, log_pi_klj: Floats, hyper_jl: Floats) -> float:
    """Return the log probability of all labels, those of a fold given all others, in nats.

    `log_pi_klj` (2 K, L, J) was learned with the field; `hyper_jl` (J, L) are pseudo-counts of held-out rows.
    """
    patterns = field.patterns
    field = replace(field, q=np.zeros(patterns.belief_i[-1], dtype=np.float32))
    own_nj = np.log(field.share_bj)[patterns.thin_p]
    folds = min(FOLDS, len(patterns.names))
    return sum(_held_out(field, log_pi_klj, hyper_jl, own_nj, fold, folds) for fold in range(folds))


def _held_out(field: PixelField, log_pi_klj: Floats, hyper_jl: Floats, own_nj: Floats, fold: int, folds: int) -> float:
    patterns = field.patterns
    annotations = patterns.annotations
    held_k = np.tile(np.arange(len(patterns.names)) % folds == fold, BREADTHS)
    rest_nj = kernels.messages(annotations, np.where(held_k[:, None, None], 0.0, log_pi_klj))
    _begin(field, held_k)
    field.settle(own_nj, rest_nj, SWEEPS_HELD_OUT if field.strength else 1)
    _, believed_nj, _ = field.judged(own_nj + rest_nj, np.zeros_like(own_nj))
    counts_klj = kernels.counts(annotations, believed_nj) + hyper_jl.T
    pi_klj = counts_klj / counts_klj.sum(axis=1, keepdims=True)
    label_nj = kernels.messages(annotations, np.where(held_k[:, None, None], np.log(pi_klj), 0.0))
    return field.judged(own_nj + rest_nj, label_nj)[2]


def _begin(field: PixelField, held_k: npt.NDArray[np.bool_]) -> None:
    """Start half steps at the votes of annotators who are not held out."""
    patterns: LabelPatterns = field.patterns
    annotations = patterns.annotations
    classes = annotations.n_classes
    votes_nj = kernels.messages(annotations, np.where(held_k[:, None, None], 0.0, np.eye(classes)))
    votes_nj += 1 / classes
    share_nj = votes_nj / votes_nj.sum(axis=1, keepdims=True)
    field.statistics(share_nj * patterns.pixels_p[:, None], np.ones(len(share_nj), dtype=bool))
