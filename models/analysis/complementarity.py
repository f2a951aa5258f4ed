"""What annotators and model are right about: each alone, and both together, by one account of the truth.

    annotators alone   the default combiner on the labels, no probabilities
    model alone    the calibrated pool: what was learned, applied without any label
    both           the consensus

An item of known truth is judged by what was learned without its truth: the known items are parted, and each part is
judged by fits that did not see its truth. What is right is either measured, on items of known truth, or expected:
right_n = q[n, label], the chance by the consensus. The consensus believes itself, so the expected accuracy of both is
its own confidence, and what agrees with it is flattered; where there is truth, go by that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
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
from hitl.models.combiner import Applicable, ApplicableCombiner, Combiner, name_of
from hitl.models.default import DefaultCombiner
from hitl.models.numerics import kernels
from hitl.models.registry import COMBINERS, combiner_of

if TYPE_CHECKING:
    import pandas as pd

WHO = ("model", "people", "both")

LEAST_KNOWN = 10
"""Items of known truth below which nothing is measured."""


LEAST_CHANCE = 1e-12
"""No answer is thought less likely than this."""


@dataclass(frozen=True, eq=False)
class Judgements:
    """What is thought of each item, and by whom.

    Attributes:
        model, people, both: (N, J) probabilities of the class by the model alone, annotators alone, and both.
        log_likelihood: (N, J) of the item's labels, by the confusion matrices that `both` has learned.
        compared: (N,) items with a label, on which a model predicts, and of which no judge knew the truth.
    """

    model: Floats
    people: Floats
    both: Floats
    log_likelihood: Floats
    compared: npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Judges:
    """Who judges; known truth is hidden in `folds` parts.

    `both` is the method behind the consensus, with its settings (None: found by its name); it must use the models and
    judge unseen items.
    """

    both: ApplicableCombiner | None = None
    people: Combiner = field(default_factory=DefaultCombiner)
    folds: int = 5
    seed: int = 0

    def judge(self, evidence: Evidence, consensus: Consensus) -> Judgements:
        """Judge every item; those of known truth without it, where there are LEAST_KNOWN (else not compared).

        Raises BadEvidence where the method behind the consensus does not judge by the models.
        """
        both = self.both or _method_of(consensus)
        if "probabilities" not in both.uses:
            raise BadEvidence(f"{name_of(both)!r} does not use models' probabilities; combine with pl-em or pl")
        model_nj = _model_alone(both, consensus, evidence)
        people_nj = self.people.fit(_annotators_alone(evidence)).probabilities.copy()
        both_nj = consensus.probabilities.copy()
        labels_nj = _log_likelihood(consensus, evidence)
        compared = evidence.predicted & (evidence.annotations.labels_per_item > 0)
        if evidence.known.sum() < LEAST_KNOWN:
            return Judgements(model_nj, people_nj, both_nj, labels_nj, compared & ~evidence.known)
        for part in self._parts(evidence):
            unseen = _without_truth(evidence, part)
            learned = both.fit(unseen)
            both_nj[part] = learned.probabilities[part]
            labels_nj[part] = _log_likelihood(learned, unseen)[part]
            model_nj[part] = _model_alone(both, learned, unseen)[part]
            people_nj[part] = self.people.fit(_annotators_alone(unseen)).probabilities[part]
        return Judgements(model_nj, people_nj, both_nj, labels_nj, compared)

    def _parts(self, evidence: Evidence) -> Sequence[npt.NDArray[np.intp]]:
        known = np.random.default_rng(self.seed).permutation(np.flatnonzero(evidence.known))
        return np.array_split(known, max(2, min(self.folds, known.size)))


def _annotators_alone(evidence: Evidence) -> Evidence:
    return Evidence(evidence.annotations, truth=evidence.truth)


def _method_of(consensus: Consensus) -> ApplicableCombiner:
    if consensus.fit.method in COMBINERS:
        method = combiner_of(consensus.fit)
        if isinstance(method, Applicable):
            return method
    raise BadEvidence(f"what {consensus.fit.method!r} learns cannot be applied to the models alone; use pl-em or pl")


def _model_alone(method: ApplicableCombiner, learned: Consensus, evidence: Evidence) -> Floats:
    """(N, J) what was learned, applied without any label."""
    nothing = evidence.annotations.select(np.zeros(len(evidence.annotations), dtype=bool))
    alone = method.apply(learned, replace(evidence, annotations=nothing, truth=None))
    return alone.probabilities.copy()


def _log_likelihood(learned: Consensus, evidence: Evidence) -> Floats:
    """(N, J) log of prod_k pi[k, j, l_nk]; an annotator who was not met is right as often as P+L expects."""
    annotations = evidence.annotations
    unmet_jl = accurate_pseudo_counts(annotations.n_classes, annotations.n_options, EXPECTED_ACCURACY)
    pi_klj = confusion_from(learned, annotations, unmet_jl)
    return kernels.messages(annotations, np.log(np.maximum(pi_klj, LEAST_CHANCE)))


def _without_truth(evidence: Evidence, items: npt.NDArray[np.intp]) -> Evidence:
    assert evidence.truth is not None
    truth = evidence.truth.copy()
    truth[items] = -1
    return replace(evidence, truth=truth)


@dataclass(frozen=True, eq=False)
class Comparison:
    """What the model, annotators and both make of the same N items, and the (expected) truth of these.

    Attributes:
        model, people, both: (N,) the code of each one's label.
        confidence: (N,) of the model alone, in [0, 1].
        truth: (N, J) rows sum to 1: one-hot where measured.
    """

    model: Ints
    people: Ints
    both: Ints
    confidence: Floats
    truth: Floats

    @classmethod
    def of(cls, judged: Judgements, truth_nj: Floats, items: npt.NDArray[np.intp]) -> Comparison:
        """Over these items."""
        model, people, both = (most_probable(q_nj[items]) for q_nj in (judged.model, judged.people, judged.both))
        return cls(model, people, both, judged.model[items].max(axis=1), truth_nj[items])

    def right(self, who: str) -> Floats:
        """(N,) how right the label of the model, annotators or both is, in [0, 1]."""
        right: Floats = self.truth[np.arange(len(self.truth)), getattr(self, who)]
        return right

    def overall(self) -> pd.DataFrame:
        """One row: accuracies over all items, what annotators add to the model, and the model to them."""
        return self._table([(np.ones(len(self.truth)), {who: self.right(who) for who in WHO})])

    def by_class(self, classes: Names) -> pd.DataFrame:
        """One row a true class, named in the column `class`: of its (expected) items, how many each gets right."""
        groups = []
        for j in range(len(classes)):
            right = {who: self.truth[:, j] * (getattr(self, who) == j) for who in WHO}
            groups.append((self.truth[:, j], right))
        frame = self._table(groups)
        frame.insert(0, "class", list(classes))
        return frame

    def by_confidence(self, most: int = 10) -> pd.DataFrame:
        """At most `most` rows of about equally many items, by rising confidence of the model (from, to, mean)."""
        groups, ends = [], []
        for rows in equal_mass(self.confidence, most):
            inside = np.zeros(len(self.confidence))
            inside[rows] = 1.0
            groups.append((inside, {who: inside * self.right(who) for who in WHO}))
            found = self.confidence[rows]
            ends.append((found.min(), found.max(), found.mean()))
        frame = self._table(groups)
        for place, name in enumerate(("from", "to", "confidence")):
            frame.insert(place, name, [end[place] for end in ends])
        return frame

    def _table(self, groups: Sequence[tuple[Floats, dict[str, Floats]]]) -> pd.DataFrame:
        """A row a group, given for each item its weight in the group and how much of that each gets right."""
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
            found, low, high = difference(won, lost, total)
            columns |= {name: found, f"{name}_low": low, f"{name}_high": high}
        return pd.DataFrame(columns)


def most_probable(q_nj: Floats) -> Ints:
    """(N,) code of the most probable class, the first of equals."""
    codes: Ints = (q_nj >= q_nj.max(axis=1, keepdims=True) - TIE).argmax(axis=1).astype(np.int32)
    return codes


def equal_mass(values: Floats, most: int) -> list[npt.NDArray[np.intp]]:
    """Rows of at most `most` groups of about equally many items, by rising value; equal values stay together."""
    if not len(values):
        return []
    wanted = int(np.clip(len(values) // 20, 1, most))
    inner = np.unique(np.quantile(values, np.linspace(0, 1, wanted + 1)[1:-1]))
    group = np.searchsorted(inner, values, side="left")
    return [np.flatnonzero(group == g) for g in np.unique(group)]


def reliability(confidence_n: Floats, right_n: Floats, most: int = 10) -> pd.DataFrame:
    """Mean confidence and accuracy with its interval in groups of similar confidence: confidence, items, right..."""
    import pandas as pd

    groups = equal_mass(confidence_n, most)
    total = np.array([float(len(rows)) for rows in groups])
    right = np.array([right_n[rows].sum() for rows in groups])
    low, high = wilson(right, total)
    confidence = [float(confidence_n[rows].mean()) for rows in groups]
    columns = {"confidence": confidence, "items": total, "accuracy": right / total, "low": low, "high": high}
    return pd.DataFrame(columns)
