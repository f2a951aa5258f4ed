"""A consensus that follows the labels, its confidence corrected for errors that annotators share.

    q_n  proportional to  exp(b + ln q0_n / T_n)        q0_n the belief under independence, T_n by the labels of n

What is followed is q0 (`IncrementalEM`). The effect itself (rho, the shift b) is learned from all items at once: it is
that of the last consensus, and estimated anew with the next.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from hitl.annotations import Annotations, Floats, Name
from hitl.consensus import Consensus
from hitl.design_effect import SMALLEST
from hitl.evidence import Evidence
from hitl.models.inference.incremental import IncrementalEM
from hitl.models.inference.mutable_annotations import Codes

Correct = Callable[[Consensus, Evidence], Consensus]


class Corrected:
    """Follows labels one by one, as `IncrementalEM` does, and says how sure they are together.

    Attributes:
        followed: the beliefs under independence.
    """

    def __init__(self, consensus: Consensus, followed: IncrementalEM, correct: Correct) -> None:
        """From a corrected consensus; `correct` corrects one that is not, given its evidence."""
        self.followed = followed
        self._correct = correct
        self._raw: Consensus | None = None
        self._corrected = consensus

    def label(self, item: Name, annotator: Name, label: Name) -> None:
        """An annotator labels an item, or labels it anew; items and annotators not met join."""
        self.followed.label(item, annotator, label)

    def withdraw(self, item: Name, annotator: Name, label: Name | None = None) -> None:
        """An annotator takes a label back."""
        self.followed.withdraw(item, annotator, label)

    def change(self, given: Evidence | None = None, withdrawn: Annotations | None = None) -> None:
        """Take in many changes at once."""
        self.followed.change(given, withdrawn)

    def belief(self, item: Name) -> Floats:
        """(J,) what is believed of an item now, at once. Raises BadEvidence for one not met."""
        self.followed.belief(item)  # is it met?
        belief: Floats = self._tempered(np.array([self.followed.labels.find_item(item)]))[0]
        return belief

    def snapshot(self) -> Consensus:
        """What is believed so far, in no iteration: items that had no turn yet may be behind."""
        raw = self.followed.snapshot()
        beliefs = self._tempered(np.arange(self.followed.labels.n_items))
        fit = replace(self._corrected.fit, objective=(), converged=False)
        return replace(raw, probabilities=beliefs, design_effect=self._corrected.design_effect, fit=fit)

    def _tempered(self, items: Codes) -> Floats:
        """(rows, J) beliefs of these items; known truths as they are."""
        inner = self.followed
        q0_nj, known = inner.q_nj[items], inner.truth[items] >= 0
        predicted = np.zeros(len(items), dtype=bool)
        for rows in inner.prior.predictions.values():
            predicted |= ~np.isnan(rows[items, 0])
        log_q0_nj = np.log(np.maximum(q0_nj, SMALLEST))
        tempered_nj = self._corrected.design_effect.temper(log_q0_nj, inner.labels.size[items], predicted)
        return np.where(known[:, None], q0_nj, tempered_nj)

    def consensus(self) -> Consensus:
        """What all labels say together, in a few iterations over everything; at once where nothing has changed."""
        raw = self.followed.consensus()
        if raw is not self._raw:
            self._raw, self._corrected = raw, self._correct(raw, self.evidence())
        return self._corrected

    def evidence(self) -> Evidence:
        """The labels, truths and predictions as they are now."""
        return self.followed.evidence()
