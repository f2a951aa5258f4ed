"""SP (Kerrigan, Smyth & Steyvers 2021, section 4): P+L with a single parameter for each annotator.

    p(z_n = j | labels, models)  ∝  p_T(z_n = j | models)  prod_k pi[k, j, l_nk]
    pi[k, j, j] = a_k        pi[k, j, l] = (1 - a_k) / (J - 1)        a_k ~ Beta(r + 1, w + 1)

fitted where the truth is known: temperatures as in P+L, and a_k = (R_k + r) / (R_k + W_k + r + w) from the numbers of
right and of wrong answers, the mode of its posterior. The prior has the weight of one row of P+L's. It learns from
fewer items than P+L, but learns less: it cannot express that cats are mistaken for dogs. An answer that is no class
carries no information.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from hitl.annotations import Annotations, Floats
from hitl.consensus import Consensus
from hitl.crew import EXPECTED_ACCURACY
from hitl.evidence import Evidence
from hitl.models.annotators.coins import Coins
from hitl.models.calibration.temperature import LogTemperature
from hitl.models.combiner import concluded, used
from hitl.models.inference import em
from hitl.models.inference.warm_start import applied_under
from hitl.models.numerics import kernels
from hitl.models.numerics.checks import check_settings
from hitl.models.numerics.clamping import known_truth
from hitl.models.pl import calibrated_prior


@dataclass(frozen=True, slots=True)
class SP:
    """P+L with one accuracy per annotator, by supervised maximum a posteriori.

    Attributes:
        accuracy: expected accuracy of the annotators in (0, 1): the prior's mode.
        strength: number of answers that this expectation is worth, > 0.
        temperature: prior of each model's log temperature.

    Example:
        >>> from hitl import Annotations, Evidence, models
        >>> annotations, net = Annotations.from_matrix([[0], [1], [1]]), [[0.9, 0.1], [0.2, 0.8], [0.3, 0.7]]
        >>> evidence = Evidence(annotations, {"net": net}, truth=[0, 1, -1])
        >>> models.SP().fit(evidence).labels.tolist()
        [0, 1, 1]
    """

    uses: ClassVar[frozenset[str]] = frozenset({"probabilities", "truth"})
    needs: ClassVar[frozenset[str]] = uses

    accuracy: float = EXPECTED_ACCURACY
    strength: float = 3.6
    temperature: LogTemperature = LogTemperature()

    def __post_init__(self) -> None:
        check_settings(self)

    def fit(self, evidence: Evidence, *, start: Consensus | None = None) -> Consensus:
        """Learn from the items with known truth, then predict all. Raise BadEvidence without model or truth."""
        evidence = used(self, evidence)
        began = time.perf_counter()
        annotations, known, truth_nj = evidence.annotations, evidence.known, known_truth(evidence)
        pool = calibrated_prior(self, evidence)
        pool = pool.fitted_to(pool.likelihood(truth_nj, known), kernels.totals(truth_nj, known))
        counts_klj = kernels.counts(annotations, truth_nj, known)
        people = self._unlearned(annotations.n_annotators, annotations).learn(counts_klj)
        q_nj = em.expectation(evidence, pool, people.log_pi_klj).q_nj
        report = people.report(annotations, counts_klj, pool.reported_shares(q_nj))
        return concluded(
            self, began, evidence, q_nj, report, temperatures=pool.temperatures, parameters=pool.parameters
        )

    def apply(self, consensus: Consensus, evidence: Evidence) -> Consensus:
        """Predict other items with the learned parameters; new annotators and models get the prior's mode."""
        prior = calibrated_prior(self, evidence, consensus)
        return applied_under(prior, consensus, evidence, self._unmet(evidence.annotations))

    def _unlearned(self, n_annotators: int, annotations: Annotations) -> Coins:
        right = self.strength * self.accuracy
        size = n_annotators, annotations.n_options, annotations.n_classes
        return Coins.unlearned(size, True, right, self.strength - right)

    def _unmet(self, annotations: Annotations) -> Floats:
        """Return (J, L) confusion matrix of a new annotator."""
        return np.asarray(np.exp(self._unlearned(1, annotations).log_pi_klj[0]).T)
