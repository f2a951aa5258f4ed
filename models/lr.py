"""LR, multinomial logistic regression (Kerrigan, Smyth & Steyvers 2021, appendix F).

    p(z_n = j | labels, models)  =  softmax_j( b_j  +  sum_m V_m[j, :] x_nm  +  U[j, :] c_n  +  sum_k U_k[j, :] c_nk )

x_nm: log probabilities of model m minus their mean, 0 if it abstains. c_n, c_nk: number of times that item n got each
option, from all annotators and from annotator k. With V_m = I / T_m and U[:, l] = log pi[:, l] this is P+L (eq. 16). So
LR is P+L with full matrices of weights, and needs more items with ground truth. scikit-learn fits it to these items:

    minimize  - sum_n log p(z_n)  -  s sum_i log p(z_i)  +  |V, U|^2 / (2 C)          i: pseudo-items

Each model, and the annotators together, have one pseudo-item per class. There the model, or one annotator, gives that
class and all others abstain. These items show which way the weights should point, and keep a class possible if no known
item is of it. Plain LR (s near 0) gets all items of such classes wrong: a third of all items if ten items are known and
there are ten classes.

If annotators are alike, c_n is sufficient. Weights of their own, U_k, are J x L more parameters per annotator. They pay
off if an annotator has hundreds of labels on items with ground truth, and are off by default.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from hitl.annotations import Annotations, Floats, Name, Names
from hitl.consensus import Consensus
from hitl.crew import EXPECTED_ACCURACY
from hitl.errors import BadEvidence, MissingExtra
from hitl.evidence import Evidence
from hitl.models.annotators import confusion
from hitl.models.calibration.calibrator import floored_log
from hitl.models.combiner import concluded, used
from hitl.models.inference.warm_start import require_same_classes
from hitl.models.numerics import kernels
from hitl.models.numerics.checks import check_settings
from hitl.models.numerics.clamping import clamp, known_truth
from hitl.models.pl import predicts
from hitl.models.priors.shares import Shares

INTERCEPT, ANSWERS, MODEL, ANNOTATOR = "intercept", "weights of answers", "weights of model ", "weights of annotator "
"""Names of consensus parameters: b (J,), U (J, L), V_m (J, J) with the model's name, U_k (J, L) with the code k."""


@dataclass(frozen=True, slots=True)
class LR:
    """Multinomial logistic regression on log probabilities and labels; needs the extra `sklearn` (scikit-learn).

    Attributes:
        strength: C, the inverse strength of the penalty on weights, > 0.
        pseudo_items: weight s of each pseudo-item, > 0.
        own_weights: number of labels on items with ground truth from which an annotator gets weights of their own;
            None: never.
        tolerance: the fit stops when no component of the gradient exceeds this, in nats per item.

    Example:
        >>> from hitl import Annotations, Evidence, models
        >>> annotations, net = Annotations.from_matrix([[0], [1], [1]]), [[0.9, 0.1], [0.2, 0.8], [0.3, 0.7]]
        >>> evidence = Evidence(annotations, {"net": net}, truth=[0, 1, -1])
        >>> models.LR().fit(evidence).labels.tolist()
        [0, 1, 1]
    """

    uses: ClassVar[frozenset[str]] = frozenset({"probabilities", "truth"})
    needs: ClassVar[frozenset[str]] = uses

    strength: float = 1.0
    pseudo_items: float = 1.0
    own_weights: int | None = None
    tolerance: float = 1e-6
    max_iterations: int = 200

    def __post_init__(self) -> None:
        check_settings(self)

    def fit(self, evidence: Evidence, *, start: Consensus | None = None) -> Consensus:
        """Learn from ground truth, then predict all items.

        Raise BadEvidence without a model or ground truth, MissingExtra without scikit-learn.
        """
        evidence = used(self, evidence)
        began = time.perf_counter()
        annotations, known = evidence.annotations, evidence.known
        truth_nj = known_truth(evidence)
        assert evidence.truth is not None
        share_j = Shares.even(annotations.n_classes, 1.0).learn(kernels.totals(truth_nj, known)).share_j
        blocks = features(evidence, annotations.options, self._own(evidence))
        known_blocks = {name: block[known] for name, block in blocks.items()}
        weights, converged = self._regression(known_blocks, evidence.truth[known], annotations.n_classes)
        q_nj = _judged(evidence, blocks, weights, share_j)
        counts_klj = kernels.counts(annotations, truth_nj, known)  # reports show annotators' answers, not their weights
        pseudo_jl = confusion.accurate_pseudo_counts(annotations.n_classes, annotations.n_options, EXPECTED_ACCURACY)
        people = confusion.report(annotations, counts_klj, pseudo_jl, share_j)
        return concluded(self, began, evidence, q_nj, people, converged=converged, parameters=weights)

    def apply(self, consensus: Consensus, evidence: Evidence) -> Consensus:
        """Predict other items with the learned parameters; new models and options carry no information."""
        require_same_classes(consensus, evidence)
        if "intercept" not in consensus.parameters:
            raise BadEvidence("not learned by LR; apply the method that learned it")
        names = consensus.annotators.names
        codes = [key.removeprefix(ANNOTATOR) for key in consensus.parameters if key.startswith(ANNOTATOR)]
        own = {f"{ANNOTATOR}{code}": names[int(code)] for code in codes}
        blocks = features(evidence, consensus.annotators.options, own)
        q_nj = _judged(evidence, blocks, consensus.parameters, consensus.class_shares)
        return consensus.judging(evidence.annotations.items, q_nj)

    def _own(self, evidence: Evidence) -> dict[str, Name]:
        """Return parameter name -> annotator, for annotators with weights of their own."""
        annotations = evidence.annotations
        if self.own_weights is None:
            return {}
        labels_k = np.bincount(
            annotations.annotator[evidence.known[annotations.item]], minlength=annotations.n_annotators
        )
        return {f"{ANNOTATOR}{k}": annotations.annotators[k] for k in np.flatnonzero(labels_k >= self.own_weights)}

    def _regression(
        self, blocks: Mapping[str, Floats], truth_n: npt.NDArray[np.integer], n_classes: int
    ) -> tuple[dict[str, Floats], bool]:
        """Return the parameters that minimize the objective, and True if the fit converged."""
        try:
            from sklearn.exceptions import ConvergenceWarning
            from sklearn.linear_model import LogisticRegression
        except ImportError:
            raise MissingExtra("LR needs scikit-learn: pip install 'hitl-toolkit[sklearn]'") from None
        pseudo = [_pseudo_items(blocks, source, n_classes) for source in blocks if not source.startswith(ANNOTATOR)]
        x = np.vstack([np.hstack(list(blocks.values())), *pseudo])
        y = np.concatenate([truth_n, np.tile(np.arange(n_classes), len(pseudo))])
        weight = np.concatenate([np.ones(len(truth_n)), np.full(len(pseudo) * n_classes, self.pseudo_items)])
        # With two classes scikit-learn fits one row of weights w. The two rows -w/2 and w/2 have half its squared norm,
        # so C is doubled.
        strength = self.strength * (2 if n_classes == 2 else 1)
        model = LogisticRegression(C=strength, solver="newton-cg", tol=self.tolerance, max_iter=self.max_iterations)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(x, y, sample_weight=weight)
        rows_jf, intercept_j = model.coef_, model.intercept_
        if n_classes == 2:
            rows_jf, intercept_j = np.vstack((-rows_jf, rows_jf)) / 2, np.append(-intercept_j, intercept_j) / 2
        ends = np.cumsum([block.shape[1] for block in blocks.values()])[:-1]
        found = dict(zip(blocks, np.split(rows_jf, ends, axis=1), strict=True))
        return {INTERCEPT: intercept_j - intercept_j.mean(), **found}, bool(model.n_iter_.max() < self.max_iterations)


def features(evidence: Evidence, options: Names, own: Mapping[str, Name]) -> dict[str, Floats]:
    """Return parameter name -> (N, F) inputs that its weights multiply.

    There is a block per model, one for the answers of all annotators, and one per annotator in `own`.
    """
    annotations = evidence.annotations
    column = {name: place for place, name in enumerate(options)}
    place_l = np.array([column.get(name, -1) for name in annotations.options])
    found = {f"{MODEL}{name}": centred(p_nj) for name, p_nj in evidence.probabilities.items()}
    found[ANSWERS] = _answers(annotations, place_l, len(options), np.ones(len(annotations), dtype=bool))
    for parameter, name in own.items():
        theirs = np.array([person == name for person in annotations.annotators], dtype=bool)[annotations.annotator]
        found[parameter] = _answers(annotations, place_l, len(options), theirs)
    return found


def centred(probability_nj: Floats) -> Floats:
    """Return (N, J) log probabilities minus the mean of each row; 0 where the model abstains."""
    predicted_n = predicts(probability_nj)
    log_p_nj = floored_log(np.where(predicted_n[:, None], probability_nj, 1.0))
    log_p_nj -= log_p_nj.mean(axis=1, keepdims=True)
    return log_p_nj


def _answers(
    annotations: Annotations, place_l: npt.NDArray[np.intp], n_options: int, among: npt.NDArray[np.bool_]
) -> Floats:
    """Return (N, L) counts of each option over the annotations in `among`.

    `place_l` (L',): column of each option of the annotations, -1 for an option that is not counted.
    """
    place = place_l[annotations.label]
    rows = among & (place >= 0)
    cell = annotations.item[rows].astype(np.int64) * n_options + place[rows]
    return np.bincount(cell, minlength=annotations.n_items * n_options).reshape(-1, n_options).astype(np.float64)


def _pseudo_items(blocks: Mapping[str, Floats], source: str, n_classes: int) -> Floats:
    """Return (J, F) inputs of a pseudo-item per class, where `source` gives that class and all others abstain."""
    sizes = {name: block.shape[1] for name, block in blocks.items()}
    said: dict[str, Floats] = {name: np.zeros((n_classes, size)) for name, size in sizes.items()}
    if source == ANSWERS:
        said[source] = np.eye(n_classes, sizes[source])
    else:
        pseudo_jl = confusion.accurate_pseudo_counts(n_classes, n_classes, EXPECTED_ACCURACY)
        said[source] = centred(pseudo_jl / pseudo_jl.sum(axis=1, keepdims=True))
    return np.hstack(list(said.values()))


def _judged(evidence: Evidence, blocks: Mapping[str, Floats], weights: Mapping[str, Floats], share_j: Floats) -> Floats:
    """Return (N, J) beliefs; an item without labels and predictions gets the class shares."""
    annotations = evidence.annotations
    logit_nj = np.tile(weights[INTERCEPT], (annotations.n_items, 1))
    for name, block in blocks.items():
        if name in weights:
            logit_nj += block @ weights[name].T
    logit_nj[(annotations.labels_per_item == 0) & ~evidence.predicted] = np.log(share_j)
    q_nj, _ = kernels.beliefs(logit_nj, np.zeros((1, annotations.n_classes)))
    return clamp(q_nj, evidence)
