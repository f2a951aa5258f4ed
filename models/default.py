"""The default combiner: picks by what the evidence holds.

    model probabilities   P+L-EM (calibrated models x confusion matrices), its confidence corrected for shared errors
    annotators only       VB-IBCC with a shared prior, anchored at the votes, its confidence corrected for dependence

Three things make VB-IBCC fit for any crowd (docs/decisions.md has figures):

    shared prior   who gave few labels is judged by the crowd
    anchor         agreeing votes count beside the beliefs, so that no class drifts away from its voters; a single
                   label, which nothing confirms, does not count
    correction     annotators err together: many alike answers are worth less than they seem
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from hitl.consensus import Consensus
from hitl.crew import EXPECTED_ACCURACY, EXPECTED_LABELS
from hitl.design_effect import SMALLEST, DesignEffect
from hitl.errors import BadEvidence
from hitl.evidence import Evidence
from hitl.models.annotators.confusion import right_answers
from hitl.models.combiner import used
from hitl.models.dependence.design_effect import (
    Independent,
    beside_models,
    independent,
    of_annotators,
    residual_temperature,
)
from hitl.models.inference.warm_start import require_same_classes
from hitl.models.numerics.checks import require_chances
from hitl.models.numerics.clamping import clamp
from hitl.models.pl_em import PLEM
from hitl.models.vb_ibcc import VBIBCC

ANCHOR, ANCHOR_OF_TWO = 0.4, 0.2
"""Weight of the votes in what is learned from; with two classes there is no third that could be taken over."""


@dataclass(frozen=True, slots=True)
class DefaultCombiner:
    """P+L-EM where there are model probabilities, else a corrected VB-IBCC.

    `accuracy` is expected of annotators, in (0, 1); below 1 / L it is held there: no annotator is expected to mislead.

    Example:
        >>> from hitl import Annotations, Evidence
        >>> from hitl.models import DefaultCombiner
        >>> annotations = Annotations.from_matrix([[0, 0, 1], [1, 1, -1], [1, 1, 0]], classes=["cat", "dog"])
        >>> consensus = DefaultCombiner().fit(Evidence(annotations))
        >>> consensus.frame()[["item", "label"]].values.tolist()
        [[0, 'cat'], [1, 'dog'], [2, 'dog']]
    """

    uses: ClassVar[frozenset[str]] = frozenset({"probabilities", "truth"})

    accuracy: float = EXPECTED_ACCURACY

    def __post_init__(self) -> None:
        require_chances(self, "accuracy")

    def fit(self, evidence: Evidence, *, start: Consensus | None = None) -> Consensus:
        """Fit the combiner that suits the evidence."""
        evidence = used(self, evidence)
        if evidence.probabilities:
            raw = self._with_models.fit(evidence, start=start)
            known = self._beside_models(raw, evidence)
            effect = beside_models(evidence, known.log_q0_nj, residual_temperature(raw))
            return _named(_tempered(raw, evidence, known, effect))
        raw = self._without_models(evidence).fit(evidence, start=start)
        alpha_kjl = raw.annotators.concentration
        effect = of_annotators(evidence, alpha_kjl, raw.class_shares)
        known = independent(evidence.annotations, alpha_kjl, raw.class_shares)
        judged = _tempered(raw, evidence, known, effect)
        answers = right_answers(evidence.annotations, judged.probabilities)
        return _named(replace(judged, annotators=replace(raw.annotators, answers=answers)))

    def apply(self, consensus: Consensus, evidence: Evidence) -> Consensus:
        """Judge other items with what was learned."""
        used = "pl-em" if evidence.probabilities else "vb-ibcc"
        if consensus.fit.method != "default" or consensus.fit.settings.get("method") != used:
            raise BadEvidence(
                "not learned by the default combiner from the same kind of evidence: "
                + ("with" if evidence.probabilities else "without")
                + " model probabilities (rows of NaN where a model abstains); apply the method that learned it"
            )
        require_same_classes(consensus, evidence)
        if evidence.probabilities:
            known = self._beside_models(consensus, evidence)
        else:
            alpha_kjl = self._without_models(evidence).concentration(consensus, evidence.annotations)
            known = independent(evidence.annotations, alpha_kjl, consensus.class_shares)
        return _tempered(consensus, evidence, known, consensus.design_effect)

    def _beside_models(self, learned: Consensus, evidence: Evidence) -> Independent:
        """The posterior under independence as if no truth were known."""
        applied = self._with_models.apply(learned, replace(evidence, truth=None)).probabilities
        log_q0_nj = np.log(np.maximum(applied, SMALLEST))
        return Independent(evidence.annotations, log_q0_nj, None, evidence.predicted)

    @property
    def _with_models(self) -> PLEM:
        return PLEM(accuracy=self.accuracy)

    def _without_models(self, evidence: Evidence) -> VBIBCC:
        annotations = evidence.annotations
        wrong = EXPECTED_LABELS * (1 - self.accuracy) / (annotations.n_options - 1)
        anchor = ANCHOR if annotations.n_classes > 2 else ANCHOR_OF_TWO
        return VBIBCC(diagonal=EXPECTED_LABELS * self.accuracy, off=wrong, anchor=anchor, least_labels=2)


def _tempered(learned: Consensus, evidence: Evidence, known: Independent, effect: DesignEffect) -> Consensus:
    judged = learned.judging(evidence.annotations.items, clamp(known.tempered(effect), evidence))
    return replace(judged, design_effect=effect)


def _named(found: Consensus) -> Consensus:
    """The same, under the default's name: the method it chose, asked for by name, finds something else."""
    settings = {"method": found.fit.method, **found.fit.settings}
    return replace(found, fit=replace(found.fit, method="default", settings=settings))
