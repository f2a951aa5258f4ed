"""Accuracy of annotators and model, alone and together, measured by known or estimated truth.

    annotators alone   the default combiner on the labels, without probabilities
    model alone        the calibrated pool, applied without any label
    both               the consensus

Items of known truth are split into parts, and each part is predicted by fits that did not see its truth. right_n, the
probability that the label of item n is right, is 0 or 1 on these items, or expected from the consensus: q[n, label].

Deferral: a share s of the items, those of which the model is most certain, skips annotators. accuracy(s) is the mean
over all items of right_model for items that skip and right_both for the rest. Items of equal confidence skip together.
Within such a group the curve is that of a random choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from hitl.annotations import Floats, Ints, Names
from hitl.consensus import TIE, Consensus
from hitl.crew import EXPECTED_ACCURACY
from hitl.errors import BadEvidence
from hitl.evidence import Evidence
from hitl.models.analysis.proportions import difference, wilson
from hitl.models.annotators.confusion import accurate_pseudo_counts, confusion_from
from hitl.models.combiner import Applicable, ApplicableCombiner, name_of, seen_by
from hitl.models.default import DefaultCombiner
from hitl.models.methods import COMBINERS
from hitl.models.numerics import kernels
from hitl.models.registry import combiner_of

if TYPE_CHECKING:
    import pandas as pd

WHO = ("model", "people", "both")

LEAST_KNOWN = 10
"""Minimum number of items with ground truth for measuring accuracy."""

FOLDS = 5
"""Number of parts into which the items with ground truth are split."""

LEAST_CHANCE = 1e-12
"""Smallest probability of an answer."""

POINTS = 101
"""Number of shares in a deferral curve: 0, 1 %, ..., 100 %."""


@dataclass(frozen=True, eq=False)
class Judgements:
    """Class probabilities of each item, by each predictor.

    Attributes:
        model, people, both: (N, J) probabilities by the model alone, annotators alone, and both.
        log_likelihood: (N, J) log likelihood of the item's labels, by the confusion matrices that `both` has learned.
        compared: (N,) True for items with a label and a model prediction that were predicted without their truth.
    """

    model: Floats
    people: Floats
    both: Floats
    log_likelihood: Floats
    compared: npt.NDArray[np.bool_]


def judge(evidence: Evidence, consensus: Consensus) -> Judgements:
    """Predict every item, and items with ground truth without their truth.

    With fewer than LEAST_KNOWN items of known truth, their truth is used, and they are not compared. Raise BadEvidence
    if the method behind the consensus does not use models or has no `apply`.
    """
    both = _method_of(consensus)
    if "probabilities" not in both.uses:
        raise BadEvidence(f"{name_of(both)!r} does not use models' probabilities; combine with pl-em or pl")
    judged = _judge(both, consensus, evidence)
    if evidence.known.sum() < LEAST_KNOWN:
        return replace(judged, compared=judged.compared & ~evidence.known)
    assert evidence.truth is not None
    known = np.random.default_rng(0).permutation(np.flatnonzero(evidence.known))
    for part in np.array_split(known, FOLDS):
        truth = evidence.truth.copy()
        truth[part] = -1
        unseen = replace(seen_by(both, evidence), truth=truth)
        other = _judge(both, both.fit(unseen), unseen)
        for name in ("model", "people", "both", "log_likelihood"):
            getattr(judged, name)[part] = getattr(other, name)[part]
    return judged


def by_models_alone(evidence: Evidence, consensus: Consensus) -> Floats:
    """Return (N, J) class probabilities by the calibrated pool of all models, on which no ground truth has had a part.

    If the evidence has ground truth, the default combiner is fitted without it, else the consensus is applied.
    """
    if evidence.known.any():
        evidence = Evidence(evidence.annotations, evidence.probabilities)
        consensus = DefaultCombiner().fit(evidence)
    return _alone(_method_of(consensus), consensus, evidence).probabilities


def _alone(both: ApplicableCombiner, learned: Consensus, evidence: Evidence) -> Consensus:
    """Predict every item by its models, with what was learned, as if it had no labels and no ground truth."""
    no_labels = evidence.annotations.select(np.zeros(len(evidence.annotations), dtype=bool))
    return both.apply(learned, replace(evidence, annotations=no_labels, truth=None))


def _method_of(consensus: Consensus) -> ApplicableCombiner:
    if consensus.fit.method in COMBINERS:
        method = combiner_of(consensus.fit)
        if isinstance(method, Applicable):
            return method
    raise BadEvidence(f"what {consensus.fit.method!r} learns cannot be applied to the models alone; use pl-em or pl")


def _judge(both: ApplicableCombiner, learned: Consensus, evidence: Evidence) -> Judgements:
    """Predict every item with the learned parameters, in arrays that may be changed."""
    annotations = evidence.annotations
    model = _alone(both, learned, evidence)
    people = DefaultCombiner().fit(Evidence(annotations, truth=evidence.truth))
    # An annotator unseen by the fit is right as often as P+L expects.
    unseen_jl = accurate_pseudo_counts(annotations.n_classes, annotations.n_options, EXPECTED_ACCURACY)
    pi_klj = confusion_from(learned, annotations, unseen_jl)
    likelihood_nj = kernels.messages(annotations, np.log(np.maximum(pi_klj, LEAST_CHANCE)))
    model_nj, people_nj, both_nj = (result.probabilities.copy() for result in (model, people, learned))
    compared = evidence.predicted & (annotations.labels_per_item > 0)
    return Judgements(model_nj, people_nj, both_nj, likelihood_nj, compared)


@dataclass(frozen=True, eq=False)
class Comparison:
    """Labels of the same N items by the model, annotators and both, and their (expected) truth.

    Attributes:
        model, people, both: (N,) codes of the labels.
        confidence: (N,) confidence of the model alone, in [0, 1].
        truth: (N, J) probabilities of the true class; rows sum to 1, one-hot where measured.
    """

    model: Ints
    people: Ints
    both: Ints
    confidence: Floats
    truth: Floats

    @classmethod
    def of(cls, judged: Judgements, truth_nj: Floats, items: npt.NDArray[np.intp]) -> Comparison:
        """Compare the judgements of these items."""
        model, people, both = (most_probable(q_nj[items]) for q_nj in (judged.model, judged.people, judged.both))
        return cls(model, people, both, judged.model[items].max(axis=1), truth_nj[items])

    def right(self, who: str) -> Floats:
        """Return (N,) probabilities that the labels of the model, annotators or both are right."""
        return np.asarray(self.truth[np.arange(len(self.truth)), getattr(self, who)])

    def overall(self) -> pd.DataFrame:
        """Return one row: accuracies over all items, what annotators add to the model, and what the model adds."""
        return self._table([(np.ones(len(self.truth)), {who: self.right(who) for who in WHO})])

    def by_class(self, classes: Names) -> pd.DataFrame:
        """Return one row per true class, named in the column `class`: (expected) number of items, and accuracies."""
        groups = []
        for j in range(len(classes)):
            right = {who: self.truth[:, j] * (getattr(self, who) == j) for who in WHO}
            groups.append((self.truth[:, j], right))
        frame = self._table(groups)
        frame.insert(0, "class", list(classes))
        return frame

    def by_confidence(self, most: int = 10) -> pd.DataFrame:
        """Return at most `most` rows of about equally many items, by rising confidence of the model."""
        groups, ends = [], []
        for rows in equal_mass(self.confidence, most):
            inside = np.zeros(len(self.confidence))
            inside[rows] = 1.0
            groups.append((inside, {who: inside * self.right(who) for who in WHO}))
            confidence = self.confidence[rows]
            ends.append((confidence.min(), confidence.max(), confidence.mean()))
        frame = self._table(groups)
        for place, name in enumerate(("from", "to", "confidence")):
            frame.insert(place, name, [end[place] for end in ends])
        return frame

    def _table(self, groups: Sequence[tuple[Floats, dict[str, Floats]]]) -> pd.DataFrame:
        """Return one row of accuracies and gains per group.

        A group has (N,) weights of the items, and for each predictor (N,) how much of the weight it gets right.
        """
        import pandas as pd

        total = np.array([weight.sum() for weight, _ in groups])
        columns = {"items": total}
        for who in WHO:
            right = np.array([rights[who].sum() for _, rights in groups])
            low, high = wilson(right, total)
            share = np.divide(right, total, out=np.full(len(total), np.nan), where=total > 0)
            columns |= {who: share, f"{who}_low": low, f"{who}_high": high}
        for name, before in (("people_add", "model"), ("model_adds", "people")):
            differs = getattr(self, before) != self.both
            won = np.array([rights["both"][differs].sum() for _, rights in groups])
            lost = np.array([rights[before][differs].sum() for _, rights in groups])
            gain, low, high = difference(won, lost, total)
            columns |= {name: gain, f"{name}_low": low, f"{name}_high": high}
        return pd.DataFrame(columns)


def most_probable(q_nj: Floats) -> Ints:
    """Return (N,) the code of the most probable class; ties go to the first."""
    return np.asarray((q_nj >= q_nj.max(axis=1, keepdims=True) - TIE).argmax(axis=1), dtype=np.int32)


def equal_mass(values: Floats, most: int) -> list[npt.NDArray[np.intp]]:
    """Split rows into at most `most` groups of about equal size, by rising value; equal values stay together."""
    if not len(values):
        return []
    wanted = int(np.clip(len(values) // 20, 1, most))
    inner = np.unique(np.quantile(values, np.linspace(0, 1, wanted + 1)[1:-1]))
    group = np.searchsorted(inner, values, side="left")
    return [np.flatnonzero(group == g) for g in np.unique(group)]


def reliability(confidence_n: Floats, right_n: Floats, most: int = 10) -> pd.DataFrame:
    """Return mean confidence, number of items, and accuracy with its interval, per group of similar confidence."""
    import pandas as pd

    groups = equal_mass(confidence_n, most)
    total = np.array([float(len(rows)) for rows in groups])
    right = np.array([right_n[rows].sum() for rows in groups])
    low, high = wilson(right, total)
    confidence = [float(confidence_n[rows].mean()) for rows in groups]
    columns = {"confidence": confidence, "items": total, "accuracy": right / total, "low": low, "high": high}
    return pd.DataFrame(columns)


def deferral_curve(confidence_n: Floats, alone_n: Floats, both_n: Floats, points: int = POINTS) -> pd.DataFrame:
    """Return accuracy by the share of items that skip annotators, most certain first.

    Args:
        confidence_n: (N,) confidence of the model.
        alone_n, both_n: (N,) probabilities that the label of the model alone, and with annotators, is right.
        points: number of shares.

    Columns: share that skips, their lowest confidence, accuracy of all items (low, high), and `skipped`, the accuracy
    of the items that skip.
    """
    import pandas as pd

    n = len(confidence_n)
    order, ends = _most_certain_first(confidence_n)
    model = np.append(0.0, np.cumsum(alone_n[order]))[ends]
    people = both_n.sum() - np.append(0.0, np.cumsum(both_n[order]))[ends]
    share: Floats = np.linspace(0.0, 1.0, points, dtype=np.float64)
    by_model = np.interp(share * n, ends, model)
    right = by_model + np.interp(share * n, ends, people)
    low, high = wilson(np.clip(right, 0, n), np.full(points, n))
    with np.errstate(divide="ignore", invalid="ignore"):
        accuracy, skipped = right / n, by_model / (share * n)
    least = np.append(np.nan, confidence_n[order])[np.ceil(share * n - 1e-9).astype(int)]
    columns = {"share": share, "confidence": least, "accuracy": accuracy, "low": low, "high": high, "skipped": skipped}
    return pd.DataFrame(columns)


def _most_certain_first(confidence_n: Floats) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Return items by falling confidence, and the positions where confidence changes, with 0 and N."""
    order = np.argsort(-confidence_n, kind="stable")
    falls = np.flatnonzero(np.diff(confidence_n[order]) < 0) + 1
    return order, np.unique(np.concatenate(([0], falls, [len(order)])))
