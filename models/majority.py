"""Votes: the majority vote, and the weighted majority and weighted sum of Littlestone & Warmuth 1994.

    majority    p[n, j] = (votes for j + s/J) / (votes + s)
    weighted    p[n, j] ∝ sum over labels (n, k, j) of w_k  +  s/J    w_k ∝ beta ^ (mistakes of k in `horizon` labels)

The truth prior is flat. Options that are no class are neither votes nor mistakes. The smoothing s is a Dirichlet prior
worth s votes in total: an unlabeled item gets uniform probabilities, and a single vote does not make an item certain.

Every annotator begins with the same weight, and each mistake multiplies it by beta in (0, 1). In Littlestone & Warmuth
the truth is revealed after each item, and every expert labels every item. Here

- a mistake is an answer that differs from the ground truth or, if the truth is unknown, from the weighted majority of
  the OTHER annotators of the item. An answer among k tied classes is a mistake by 1 - 1/k, and an answer without others
  does not count. The vote is repeated `rounds` times with the latest weights, over all items at once, so their order
  does not matter. Weights need not converge because near ties may flip forever, but after a few rounds almost nothing
  changes;
- mistakes count as a rate, m_k / n_k times `horizon`, because annotators label different numbers of items. Otherwise
  those with the fewest answers would weigh most. Rates are shrunk toward the crowd's as if every annotator had
  `shrinkage` more labels at the crowd's rate.

`WeightedMajority.paper()` does neither: it counts the number of mistakes on items with ground truth alone.

`WeightedSum`, a baseline of Simpson et al. 2011, grades mistakes. The loss of an answer is the share of the others'
weight on other classes (0 or 1 if the truth is known), and w_k ∝ beta ^ (mean loss of k x `horizon`). Littlestone &
Warmuth's algorithm for numeric predictions multiplies a weight by a factor between beta^loss and 1 - (1 - beta) loss;
here it is beta^loss. An annotator who is outvoted narrowly loses little.

Weights are scaled to a mean of 1 over the labels, so that s is in votes as in the majority vote. A class's share of the
weight is the probability with which Littlestone & Warmuth's randomized algorithm picks it.

In the reports, confusion matrices count labels by the beliefs. Accuracies instead compare each answer with the item's
most probable class, because vote fractions are not calibrated: an annotator who always agrees with majorities of three
to one would be scored as right 3 times in 4.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from hitl.annotations import Annotations, Floats
from hitl.consensus import AnnotatorReport, Consensus
from hitl.evidence import Evidence
from hitl.models.annotators import confusion
from hitl.models.combiner import concluded, used_shards
from hitl.models.inference.em import Beliefs
from hitl.models.inference.engine import Shards, Sums
from hitl.models.inference.warm_start import require_learned, require_same_classes
from hitl.models.numerics import kernels
from hitl.models.numerics.checks import at_least_0, check_settings
from hitl.models.numerics.clamping import clamp, known_truth
from hitl.models.numerics.votes import smoothed, voted

ROWS = 500_000
"""Number of labels whose losses are computed at a time, to bound memory."""

LEAST_LOG_WEIGHT = -600.0
"""Log of the smallest weight relative to the largest; exp of it is still above 0."""

WEIGHTS = "weights"
"""Name of the consensus parameter with the (K,) weights of the annotators."""

Loss = Callable[[Floats, npt.NDArray[np.intp]], Floats]
"""(R, J) weights of the others on each class, with positive row sums, and (R,) answers -> (R,) losses in [0, 1]."""


@dataclass(frozen=True, slots=True)
class MajorityVote:
    """Majority vote; `smoothing` > 0 is a number of votes that is spread evenly over the classes of each item.

    Example:
        >>> from hitl import Annotations, Evidence, models
        >>> evidence = Evidence(Annotations.from_matrix([[0, 0, 1], [1, 1, -1], [1, 1, 0]]))
        >>> models.MajorityVote().fit(evidence).labels.tolist()
        [0, 1, 1]
    """

    tables: ClassVar[int] = 4
    beliefs: ClassVar[int] = 3
    uses: ClassVar[frozenset[str]] = frozenset({"truth"})
    fits_shards: ClassVar[bool] = True

    smoothing: float = 1.0

    def __post_init__(self) -> None:
        check_settings(self)

    def fit(self, evidence: Evidence | Shards, *, start: Consensus | None = None) -> Consensus:
        """Count votes; `start` is ignored."""
        shards = used_shards(self, evidence)
        began = time.perf_counter()
        return voted_consensus(self, began, shards, self._beliefs)

    def apply(self, consensus: Consensus, evidence: Evidence) -> Consensus:
        """Count the votes on other items."""
        require_same_classes(consensus, evidence)
        return consensus.judging(evidence.annotations.items, self._beliefs(evidence))

    def _beliefs(self, evidence: Evidence) -> Floats:
        """Return (N, J) smoothed vote fractions; ground truth stays one-hot."""
        return voted(evidence, self.smoothing)


def outvoted(others_rj: Floats, label_r: npt.NDArray[np.intp]) -> Floats:
    """Return (R,) losses: 1 if the majority of the others differs from the answer, 1 - 1/k if it is one of k tied."""
    top_rj = others_rj >= others_rj.max(axis=1, keepdims=True) * (1 - 1e-9)
    return np.asarray(1 - top_rj[np.arange(label_r.size), label_r] / top_rj.sum(axis=1))


def contradicted(others_rj: Floats, label_r: npt.NDArray[np.intp]) -> Floats:
    """Return (R,) losses: the share of the others' weight on classes other than the answer."""
    return np.asarray(1 - others_rj[np.arange(label_r.size), label_r] / others_rj.sum(axis=1))


@dataclass(frozen=True, slots=True)
class _WeightedVotes:
    """Votes weighted by losses; each method defines its loss."""

    uses: ClassVar[frozenset[str]] = frozenset({"truth"})
    fits_shards: ClassVar[bool] = True
    loss: ClassVar[Any]  # a `Loss`

    beta: float = 0.5
    horizon: float | None = 5.0
    shrinkage: float = 5.0
    smoothing: float = 1.0
    rounds: int = 5
    learn_from: str = "others"

    def __post_init__(self) -> None:
        check_settings(self, smoothing=at_least_0)

    def fit(self, evidence: Evidence | Shards, *, start: Consensus | None = None) -> Consensus:
        """Update equal weights in `rounds` votes, then vote for the result; `start` is ignored."""
        shards = used_shards(self, evidence)
        began = time.perf_counter()
        weight_k: Floats = np.ones(shards.annotations.n_annotators)
        for _ in range(self.rounds):
            work = partial(losses, weight_k=weight_k, loss=self.loss, learn_from=self.learn_from)
            weight_k = scaled(self._weights(*shards.total(work)), shards.size.labels_k)
        beliefs = partial(self._beliefs, weight_k=weight_k)
        return voted_consensus(self, began, shards, beliefs, parameters={WEIGHTS: weight_k})

    def apply(self, consensus: Consensus, evidence: Evidence) -> Consensus:
        """Vote on other items with the learned weights; new annotators have weight 1."""
        require_same_classes(consensus, evidence)
        require_learned(consensus, WEIGHTS)
        learned = dict(zip(consensus.annotators.names, consensus.parameters[WEIGHTS].tolist(), strict=True))
        weight_k = np.array([learned.get(name, 1.0) for name in evidence.annotations.annotators])
        return consensus.judging(evidence.annotations.items, self._beliefs(evidence, weight_k))

    def _beliefs(self, evidence: Evidence, weight_k: Floats) -> Floats:
        """Return (N, J) smoothed shares of the weight; ground truth stays one-hot."""
        raised = weighted_votes(evidence.annotations, weight_k) + self.smoothing / evidence.annotations.n_classes
        raised[raised.sum(axis=1) == 0] = 1.0  # no labels and no smoothing
        return clamp(raised / raised.sum(axis=1, keepdims=True), evidence)

    def _weights(self, lost_k: Floats, counted_k: Floats) -> Floats:
        """Return (K,) weights, up to a constant factor, from total losses (K,) and numbers of answers (K,)."""
        if self.horizon is not None:
            return np.asarray(self.beta ** (self.horizon * shrunk(lost_k, counted_k, self.shrinkage)))
        more_k = lost_k - lost_k.min(initial=np.inf)  # if everyone made hundreds of mistakes, all would underflow
        return np.asarray(np.exp(np.maximum(np.log(self.beta) * more_k, LEAST_LOG_WEIGHT)))


@dataclass(frozen=True, slots=True)
class WeightedMajority(_WeightedVotes):
    """Votes weighted by how seldom annotators were outvoted.

    Attributes:
        beta: factor by which a mistake multiplies a weight, in (0, 1).
        horizon: number of labels to which the mistake rate is scaled, > 0; None: count mistakes, without shrinkage.
        shrinkage: number of labels at the crowd's mistake rate that are added to each annotator, > 0.
        smoothing: number of votes spread evenly over the classes of each item, >= 0.
        rounds: number of times mistakes are counted, each time against the vote with the current weights.
        learn_from: "others" to compare answers on items of unknown truth with the vote of the others; "truth" to count
            mistakes only on items with ground truth.

    Example:
        >>> from hitl import Annotations, Evidence, models
        >>> evidence = Evidence(Annotations.from_matrix([[0, 0, 1], [1, 1, -1], [1, 1, 0]]))
        >>> models.WeightedMajority().fit(evidence).labels.tolist()
        [0, 1, 1]
    """

    loss: ClassVar[Any] = staticmethod(outvoted)

    @classmethod
    def paper(cls) -> Self:
        """Return the settings of Littlestone & Warmuth 1994; without ground truth this is the majority vote.

        Each mistake on an item of known truth multiplies the annotator's weight by beta. The probability of a class is
        then its share of the weight, as in their randomized algorithm. They leave beta in [0, 1) open; it stays 0.5.
        Simpson et al. 2011 use the method but print no settings.
        """
        return cls(horizon=None, smoothing=0.0, rounds=1, learn_from="truth")


@dataclass(frozen=True, slots=True)
class WeightedSum(_WeightedVotes):
    """Votes weighted by how little an annotator's answers are contradicted; settings as in `WeightedMajority`.

    Example:
        >>> from hitl import Annotations, Evidence, models
        >>> evidence = Evidence(Annotations.from_matrix([[0, 0, 1], [1, 1, -1], [1, 1, 0]]))
        >>> models.WeightedSum().fit(evidence).labels.tolist()
        [0, 1, 1]
    """

    loss: ClassVar[Any] = staticmethod(contradicted)


def weighted_votes(annotations: Annotations, weight_k: Floats) -> Floats:
    """Return (N, J) the total weight of the annotators who answered each class."""
    n, j = annotations.n_items, annotations.n_classes
    row = np.flatnonzero(annotations.label < j)
    cell = annotations.item[row].astype(np.int64) * j + annotations.label[row]
    return np.asarray(np.bincount(cell, weight_k[annotations.annotator[row]], n * j).reshape(n, j).astype(np.float64))


def shrunk(lost_k: Floats, counted_k: Floats, shrinkage: float) -> Floats:
    """Return (K,) mean losses after adding `shrinkage` labels with the overall mean loss to each annotator."""
    overall = lost_k.sum() / max(1.0, counted_k.sum())
    return np.asarray((lost_k + shrinkage * overall) / (counted_k + shrinkage))


def losses(evidence: Evidence, weight_k: Floats, loss: Loss, learn_from: str) -> Sums:
    """Return (K,) sum of the losses of each annotator's answers, and (K,) number of these answers."""
    annotations = evidence.annotations
    assert evidence.truth is not None
    vote_nj = weighted_votes(annotations, weight_k)
    truth_nj = known_truth(evidence)
    lost_k, counted_k = np.zeros_like(weight_k), np.zeros_like(weight_k)
    for first in range(0, len(annotations), ROWS):
        rows = slice(first, first + ROWS)
        item, annotator, label = (x[rows] for x in (annotations.item, annotations.annotator, annotations.label))
        is_class = label < annotations.n_classes
        item, annotator, answer = item[is_class], annotator[is_class], label[is_class].astype(np.intp)
        others_rj = vote_nj[item]
        others_rj[np.arange(answer.size), answer] -= weight_k[annotator]
        # What rounding leaves of the annotator's own weight is no vote.
        others_rj[np.abs(others_rj) < 1e-9 * weight_k[annotator, None]] = 0.0
        known = evidence.known[item]
        others_rj[known] = truth_nj[item[known]]
        judged: npt.NDArray[np.bool_] = known if learn_from == "truth" else others_rj.sum(axis=1) > 0
        lost_k += np.bincount(annotator[judged], loss(others_rj[judged], answer[judged]), weight_k.size)
        counted_k += np.bincount(annotator[judged], minlength=weight_k.size)
    return Sums((lost_k, counted_k))


def scaled(weight_k: Floats, labels_k: npt.NDArray[Any]) -> Floats:
    """Return (K,) weights scaled to a mean of 1 over all labels; `labels_k` (K,) are numbers of labels."""
    mean = weight_k @ labels_k / max(1, labels_k.sum())
    return weight_k / mean if mean > 0 else weight_k


def voted_consensus(method: Any, began: float, shards: Shards, beliefs: Beliefs, **learned: Any) -> Consensus:
    """Return the consensus with these beliefs; arguments as in `combiner.concluded`."""
    beliefs = shards.once(beliefs)
    people = _report(shards.annotations, shards.total(partial(_counted_in, beliefs=beliefs)))
    q_nj = np.empty((0, shards.annotations.n_classes)) if shards.table is None else beliefs(shards.table)
    return concluded(method, began, shards, q_nj, people, **learned)


def report_of_votes(annotations: Annotations, q_nj: Floats) -> AnnotatorReport:
    """Report how often each annotator agrees with beliefs (N, J) of a method without confusion matrices."""
    return _report(annotations, _counted(annotations, q_nj))


def _report(annotations: Annotations, counted: Sums) -> AnnotatorReport:
    counts_klj, belief_j, items, answers_k3, labels_k = counted
    pseudo_jl = confusion.even_pseudo_counts(annotations.n_classes, annotations.n_options, 0.01)
    found = confusion.report(annotations, counts_klj, pseudo_jl, smoothed(belief_j, items))
    return replace(found, answers=answers_k3, labels=labels_k)


def _counted_in(evidence: Evidence, beliefs: Beliefs) -> Sums:
    return _counted(evidence.annotations, beliefs(evidence))


def _counted(annotations: Annotations, q_nj: Floats) -> Sums:
    """Return label counts (K, L, J), sums of beliefs (J,), number of items, answers (K, 3), and labels (K,)."""
    counts_klj, answers_k3 = kernels.counts(annotations, q_nj), _answers_beside_labels(annotations, q_nj)
    return Sums((counts_klj, q_nj.sum(axis=0), len(q_nj), answers_k3, annotations.labels_per_annotator))


def _answers_beside_labels(annotations: Annotations, q_nj: Floats) -> Floats:
    """Return (K, 3) numbers of right and of wrong answers by the most probable class, and the variance of both.

    Tied classes share. Items with a single label count only if their truth is known: the label would agree with itself.
    """
    top_nj = (q_nj >= q_nj.max(axis=1, keepdims=True) - 1e-12).astype(float)
    top_nj /= top_nj.sum(axis=1, keepdims=True)
    judged_n = (annotations.labels_per_item >= 2) | (q_nj.max(axis=1) >= 1)
    rows = (annotations.label < annotations.n_classes) & judged_n[annotations.item]
    who, right = annotations.annotator[rows], top_nj[annotations.item[rows], annotations.label[rows]]
    return np.column_stack(
        [np.bincount(who, weights, annotations.n_annotators) for weights in (right, 1 - right, right * (1 - right))]
    )
