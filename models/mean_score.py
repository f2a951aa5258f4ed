"""Mean score: answers as numbers on a line (Simpson et al. 2011: -1, 1, 3 for "no", "perhaps", "surely").

    m_n = mean score of the M_n labels of item n            c_j = score of class j
    p[n, j] ∝ exp( - (m_n - c_j)^2 / (2 (b + v / M_n)) )

The class whose score is nearest to the mean wins, so thresholds are halfway between neighboring classes. This is the
posterior under a flat prior over classes, if items scatter about their class's score with variance b and labels about
their item with variance v. v is estimated from the labels within items, with a prior worth one label: a quarter of the
mean squared gap between neighboring class scores. b is the mean squared distance of m_n from the score of the known,
else of the nearest class, minus what v / M_n explains. Items without labels get uniform probabilities. Labels of items
with ground truth also change the class scores, where the score set for a class counts as one label.

Use it for ordered classes only. Options without a score, such as "unsure", do not count.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from hitl.annotations import Annotations, Floats, Name
from hitl.consensus import Consensus, Fit
from hitl.errors import BadEvidence, BadSettings
from hitl.evidence import Evidence
from hitl.models.combiner import used
from hitl.models.majority import report_of_votes
from hitl.models.numerics import kernels
from hitl.models.numerics.clamping import clamp


@dataclass(frozen=True, slots=True)
class MeanScore:
    """Class whose score is nearest to the mean score of the answers.

    Attributes:
        scores: option name -> score, for all classes and for other options that should count. None: the names as
            numbers if all class names are numbers, else 0, 1, ... for the classes in their order.

    Example:
        >>> from hitl import Annotations, Evidence, models
        >>> stars = Annotations.from_matrix([[0, 1, 2], [2, 2, 1]], classes=[1, 2, 3])
        >>> models.MeanScore().fit(Evidence(stars)).frame().label.tolist()
        [2, 3]
    """

    uses: ClassVar[frozenset[str]] = frozenset({"truth"})

    scores: Mapping[Name, float] | None = None

    def __post_init__(self) -> None:
        if self.scores is None:
            return
        if not isinstance(self.scores, Mapping):
            raise BadSettings(f"setting scores is {self.scores!r}; expected a number for each class")
        for name, value in self.scores.items():
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                raise BadSettings(f"setting scores: the score of {name!r} is {value!r}; expected a number")

    def fit(self, evidence: Evidence, *, start: Consensus | None = None) -> Consensus:
        """Predict the class nearest to each item's mean score.

        Raise BadEvidence if `scores` has no score for a class, or a name that is no option.
        """
        evidence = used(self, evidence)
        began = time.perf_counter()
        annotations = evidence.annotations
        score_l = option_scores(annotations, self.scores)
        labels_n, mean_n = mean_scores(annotations, score_l)
        score_j = class_scores(evidence, score_l)
        distance_nj = (mean_n[:, None] - score_j) ** 2
        within, between = variances(evidence, score_l, score_j)
        precision_n = labels_n / np.maximum(labels_n * between + within, 1e-300)
        q_nj, _ = kernels.beliefs(-precision_n[:, None] * distance_nj / 2, np.zeros(annotations.n_classes))
        q_nj = clamp(q_nj, evidence)
        people = report_of_votes(annotations, q_nj)
        settings = {"scores": None if self.scores is None else {str(k): v for k, v in self.scores.items()}}
        fit = Fit("mean-score", settings, seconds=time.perf_counter() - began)
        found = Consensus(annotations.items, annotations.classes, q_nj, people, people.shares, fit=fit)
        return replace(found, ordered=annotations.ordered)


def option_scores(annotations: Annotations, scores: Mapping[Name, float] | None) -> Floats:
    """Return (L,) the score of each option, NaN for one that does not count."""
    if scores is None:
        by_name = [as_number(name) for name in annotations.options]
        if np.isfinite(by_name[: annotations.n_classes]).all():
            return np.array(by_name)
        by_place = np.full(annotations.n_options, np.nan)
        by_place[: annotations.n_classes] = np.arange(annotations.n_classes)
        return by_place
    given = {str(name): float(value) for name, value in scores.items()}
    unknown = set(given) - {str(name) for name in annotations.options}
    missing = [name for name in annotations.classes if str(name) not in given]
    if unknown or missing:
        raise BadEvidence(
            f"scores name {sorted(given)}; expected each of the classes {annotations.classes}, "
            f"and no other names than the options {annotations.options}"
        )
    return np.array([given.get(str(name), np.nan) for name in annotations.options])


def mean_scores(annotations: Annotations, score_l: Floats) -> tuple[Floats, Floats]:
    """Return (N,) the number of labels with a score, and (N,) their mean score; 0 without such labels."""
    score_m = score_l[annotations.label]
    counts = np.isfinite(score_m)
    item = annotations.item[counts]
    labels_n = np.bincount(item, minlength=annotations.n_items).astype(np.float64)
    return labels_n, np.bincount(item, score_m[counts], annotations.n_items) / np.maximum(labels_n, 1)


def class_scores(evidence: Evidence, score_l: Floats) -> Floats:
    """Return (J,) the score of each class: the mean of its score in `score_l` and the labels of its known items."""
    annotations = evidence.annotations
    assert evidence.truth is not None
    truth_m, score_m = evidence.truth[annotations.item], score_l[annotations.label]
    known = (truth_m >= 0) & np.isfinite(score_m)
    n_classes = annotations.n_classes
    total = score_l[:n_classes] + np.bincount(truth_m[known], score_m[known], n_classes)
    return np.asarray(total / (1 + np.bincount(truth_m[known], minlength=n_classes)))


def variances(evidence: Evidence, score_l: Floats, score_j: Floats) -> tuple[float, float]:
    """Return v, the variance of the labels of an item, and b, that of the items of a class (known, else nearest)."""
    annotations = evidence.annotations
    assert evidence.truth is not None
    labels_n, mean_n = mean_scores(annotations, score_l)
    apart_m = (score_l[annotations.label] - mean_n[annotations.item]) ** 2
    gap = max(float(np.mean(np.diff(np.sort(score_j)) ** 2)), 1e-12)
    within = (float(np.nansum(apart_m)) + gap / 4) / (1 + float(np.maximum(labels_n - 1, 0).sum()))
    distance_nj = (mean_n[:, None] - score_j) ** 2
    to_truth = np.take_along_axis(distance_nj, np.maximum(evidence.truth, 0)[:, None], axis=1)[:, 0]
    squares = np.where(evidence.known, to_truth, distance_nj.min(axis=1))[labels_n > 0]
    excess = squares - within / labels_n[labels_n > 0]
    return within, max(0.0, float(excess.mean())) if excess.size else 0.0


def as_number(name: Name) -> float:
    """Return a name as a number; NaN if it is none."""
    try:
        value = float(name)
    except ValueError:
        return math.nan
    return value if math.isfinite(value) else math.nan
