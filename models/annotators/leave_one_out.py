"""Beliefs about an item that leave out the annotator's own label.

    q[m, j]  ∝  p(z_n = j) prod over the other labels of item n of pi[k', j, l']        for annotation m = (n, k, l)

with the prior and the confusion matrices of a fit. A consensus that includes an annotator's own labels overestimates
their accuracy, the more so the fewer labels an item has. These beliefs do not. Ground truth is used as it is. One
approximation remains: the others' matrices were learned with the annotator's labels in the table.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hitl.annotations import Annotations, Floats
from hitl.consensus import Consensus
from hitl.evidence import Evidence
from hitl.models.numerics import kernels
from hitl.models.priors.calibrated import learned_prior

FLOOR = 1e-6
"""Smallest chance of an answer, so that no single label decides forever."""


class Others:
    """Beliefs about items from the other annotators' labels, for any rows of the annotations.

    Evidence and consensus must have the same items, annotators and codes. Building it takes one pass over the labels.
    """

    def __init__(self, evidence: Evidence, consensus: Consensus) -> None:
        self._annotations = evidence.annotations
        self._truth = evidence.truth
        confusion_kjl = np.maximum(consensus.annotators.confusion, FLOOR)
        self._log_pi_klj = np.log(np.ascontiguousarray(confusion_kjl.transpose(0, 2, 1)))
        self._logits_nj = (
            kernels.messages(self._annotations, self._log_pi_klj) + learned_prior(consensus, evidence).log_prior()
        )

    def beliefs(self, rows: npt.NDArray[np.intp]) -> Floats:
        """Return (len(rows), J) beliefs of the others about the items of these annotations; rows sum to 1."""
        annotations = self._annotations
        n, k, said = annotations.item[rows], annotations.annotator[rows], annotations.label[rows]
        q_mj: Floats = self._logits_nj[n] - self._log_pi_klj[k, said]
        q_mj -= q_mj.max(axis=1, keepdims=True)
        np.exp(q_mj, out=q_mj)
        q_mj /= q_mj.sum(axis=1, keepdims=True)
        assert self._truth is not None
        known = np.flatnonzero(self._truth[n] >= 0)
        q_mj[known] = 0.0
        q_mj[known, self._truth[n[known]]] = 1.0
        return q_mj


def counts_by_others(evidence: Evidence, q_nj: Floats, among_n: npt.NDArray[np.bool_], log_pi_klj: Floats) -> Floats:
    """Return (K, L, J) expected counts that score each label by q_nj / pi[k, j, l], the belief without it.

    Rodrigues 2014, section 3.3 (in eqs. 8 and 10): otherwise an annotator whose labels shape the consensus agrees with
    it, looks accurate, and is asked again and again. Ground truth is used as it is. Pass it to `em.run_em`.
    """
    annotations = evidence.annotations
    counts_klj = np.zeros((annotations.n_annotators, annotations.n_options, annotations.n_classes))
    rows = np.flatnonzero(among_n[annotations.item])
    k, said = annotations.annotator[rows], annotations.label[rows]
    with np.errstate(divide="ignore"):
        log_q_mj = np.log(q_nj[annotations.item[rows]]) - log_pi_klj[k, said]
    log_q_mj -= log_q_mj.max(axis=1, keepdims=True)
    q_mj = np.exp(log_q_mj)
    np.add.at(counts_klj, (k, said), q_mj / q_mj.sum(axis=1, keepdims=True))
    return counts_klj


def some_rows(annotations: Annotations, most_labels: int) -> npt.NDArray[np.intp]:
    """Choose at most `most_labels` rows per annotator, evenly spread in time (in item order without times).

    They are sorted by annotator, then time. Rows of the pool of annotators without ids are left out.
    """
    time = annotations.time if annotations.time is not None else np.zeros(len(annotations))
    order = np.lexsort((annotations.item, time, annotations.annotator))
    start, _ = annotations.by_annotator
    many_k = np.diff(start)
    many = many_k[annotations.annotator[order]]
    rank = np.arange(len(order)) - start[annotations.annotator[order]]
    kept = np.minimum(many, most_labels)
    keep = (rank * kept) // np.maximum(many, 1) != ((rank - 1) * kept) // np.maximum(many, 1)
    if annotations.anonymous is not None:
        keep &= annotations.annotator[order] != annotations.anonymous
    return np.asarray(order[keep])
