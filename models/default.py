"""The default combiner: picks by what the evidence holds.

    model probabilities   P+L-EM (calibrated models x confusion matrices), its confidence corrected for shared errors
    people only           VB-IBCC with a shared prior, anchored at the votes, its confidence corrected for dependence

Three things make VB-IBCC fit for any crowd (docs/decisions.md has figures):

    shared prior   who gave few labels is judged by the crowd
    anchor         people who agree teach too, so no class drifts away from those who vote for it; and a single label,
                   which nothing confirms, teaches nothing
    correction     people err together: many alike answers are worth less than they seem
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from hitl.annotations import Floats
from hitl.consensus import Consensus, Correction
from hitl.errors import BadEvidence
from hitl.evidence import Evidence
from hitl.models.annotators.confusion import right_answers
from hitl.models.combiner import used
from hitl.models.dependence import dependence, shared_errors
from hitl.models.inference.warm_start import require_same_classes
from hitl.models.numerics.checks import require_between
from hitl.models.numerics.clamping import clamp
from hitl.models.pl_em import PLEM
from hitl.models.vb_ibcc import VBIBCC

ANCHOR, ANCHOR_OF_TWO = 0.4, 0.2
"""Weight of the votes in what teaches; with two classes there is no third that could be taken over."""

SMALLEST = 1e-300
STRENGTH = 4.0
"""Pseudo-counts of a confusion row that expects `accuracy`."""


@dataclass(frozen=True, slots=True)
class DefaultCombiner:
    """P+L-EM where there are model probabilities, else a corrected VB-IBCC.

    `accuracy` is expected of people, in (0, 1); below 1 / L it is held there: nobody is expected to mislead.
    """

    uses: ClassVar[frozenset[str]] = frozenset({"probabilities", "truth"})

    accuracy: float = 0.75

    def __post_init__(self) -> None:
        require_between("accuracy", self.accuracy, 0, 1)

    def fit(self, evidence: Evidence, *, start: Consensus | None = None) -> Consensus:
        """Fit the combiner that suits the evidence."""
        evidence = used(self, evidence)
        if evidence.probabilities:
            raw = self._with_models.fit(evidence, start=start)
            log_q0_nj = self._untold(raw, evidence)
            strength = shared_errors.learned(evidence, log_q0_nj, shared_errors.caution_of(raw))
            return _named(_tempered(raw, evidence, log_q0_nj, strength))
        raw = self._people_only(evidence).fit(evidence, start=start)
        correction = dependence.estimated(evidence, raw.annotators.concentration, raw.class_shares)
        judged = _corrected(evidence, raw, raw.annotators.concentration, correction)
        answers = right_answers(evidence.annotations, judged.probabilities)
        return _named(replace(judged, annotators=replace(raw.annotators, answers=answers)))

    def apply(self, consensus: Consensus, evidence: Evidence) -> Consensus:
        """Judge other items with what was learned."""
        if consensus.correction is None or bool(consensus.temperatures) != bool(evidence.probabilities):
            raise BadEvidence(
                "not learned by the default combiner from the same kind of evidence: "
                + ("with" if evidence.probabilities else "without")
                + " model probabilities (rows of NaN where a model is silent); apply the method that learned it"
            )
        require_same_classes(consensus, evidence)
        if evidence.probabilities:
            return _tempered(consensus, evidence, self._untold(consensus, evidence), consensus.correction.strength)
        alpha_kjl = self._people_only(evidence).concentration(consensus, evidence.annotations)
        return _corrected(evidence, consensus, alpha_kjl, consensus.correction)

    def _untold(self, learned: Consensus, evidence: Evidence) -> Floats:
        """(N, J) log beliefs as if no truth were known."""
        asked = replace(evidence, truth=None)
        log_q_nj: Floats = np.log(np.maximum(self._with_models.apply(learned, asked).probabilities, SMALLEST))
        return log_q_nj

    @property
    def _with_models(self) -> PLEM:
        return PLEM(accuracy=self.accuracy)

    def _people_only(self, evidence: Evidence) -> VBIBCC:
        annotations = evidence.annotations
        wrong = STRENGTH * (1 - self.accuracy) / (annotations.n_options - 1)
        anchor = ANCHOR if annotations.n_classes > 2 else ANCHOR_OF_TWO
        return VBIBCC(diagonal=STRENGTH * self.accuracy, off=wrong, anchor=anchor, least_labels=2)


def _tempered(learned: Consensus, evidence: Evidence, log_q0_nj: Floats, strength: float) -> Consensus:
    q_nj = shared_errors.tempered(evidence, log_q0_nj, strength, shared_errors.caution_of(learned))
    judged = learned.judging(evidence.annotations.items, clamp(q_nj, evidence))
    return replace(judged, correction=Correction(strength, np.zeros(q_nj.shape[1])))


def _corrected(evidence: Evidence, raw: Consensus, alpha_kjl: Floats, correction: Correction) -> Consensus:
    q_nj = dependence.corrected(evidence.annotations, alpha_kjl, raw.class_shares, correction)
    judged = raw.judging(evidence.annotations.items, clamp(q_nj, evidence))
    return replace(judged, correction=correction)


def _named(found: Consensus) -> Consensus:
    """The same, under the default's name: the method it chose, asked for by name, finds something else."""
    settings = {"method": found.fit.method, **found.fit.settings}
    return replace(found, fit=replace(found.fit, method="default", settings=settings))
