"""P+L-EM (Kerrigan, Smyth & Steyvers 2021, appendix I): P+L without truth.

    E   q_nj ∝ p_T(z_n = j | models) prod_k pi[k, j, l_nk]                                        (eq. 3)
    M   pi[k, j, l] ∝ sum_{n: l_nk = l} q_nj + b_jl                                               (eq. 28)
        T = argmax of the expected log likelihood of the pool + anchored log prior                (eq. 26)

The first E-step trusts the prior: everybody is right with probability `accuracy`, every model as over-confident
as networks tend to be. Items with known truth are clamped and anchor the temperatures (see `priors.calibrated`).
Items nobody labeled teach nothing and are judged by the calibrated models alone.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass

import numpy as np

from hitl.consensus import Consensus, Fit
from hitl.evidence import Evidence
from hitl.models import confusion, em
from hitl.models.calibration.temperature import LogTemperature
from hitl.models.checks import require_between, require_whole
from hitl.models.incremental import IncrementalEM, Rule
from hitl.models.pl import PL, calibrated_prior, judged
from hitl.models.updating import better, cautious, goes_on, iterations
from hitl.models.warm_start import require_same_classes


@dataclass(frozen=True, slots=True)
class PLEM:
    """P+L by expectation-maximisation; settings as in `PL`.

    `tolerance`: an iteration that gains less, in nats an item, is the last.
    """

    accuracy: float = 0.75
    off: float = 0.1
    temperature: LogTemperature = LogTemperature()
    tolerance: float = 1e-6
    max_iterations: int = 200

    def __post_init__(self) -> None:
        require_between("accuracy", self.accuracy, 0, 1)
        require_between("off", self.off, 0)
        require_between("tolerance", self.tolerance, 0)
        require_whole("max_iterations", self.max_iterations, 1)

    def fit(self, evidence: Evidence, *, start: Consensus | None = None) -> Consensus:
        """EM from the prior's modes, or from what `start` learned. Raises BadEvidence without a model."""
        return self._fitted(evidence, start, self.max_iterations)

    def _fitted(self, evidence: Evidence, start: Consensus | None, max_iterations: int) -> Consensus:
        began = time.perf_counter()
        pseudo_jl = self._supervised.pseudo_counts(evidence.annotations)
        usable = start if start is not None and start.classes == evidence.annotations.classes else None
        prior = calibrated_prior(evidence, self.temperature, "P+L-EM", usable)
        people = confusion.Confusion.unlearned(pseudo_jl, evidence.annotations.n_annotators)
        log_pi_klj = people.log_pi_klj
        if usable is not None:
            log_pi_klj = np.log(confusion.confusion_from(usable, evidence.annotations, pseudo_jl))
        q_nj, _ = em.expectation(evidence, prior, log_pi_klj)
        if max_iterations < self.max_iterations:  # an update: the temperatures are learned once
            prior = prior.learn(q_nj, em.informative(evidence, 1)).holding()
            q_nj, _ = em.expectation(evidence, prior, log_pi_klj)
        estimate = em.maximise(evidence, prior, people, q_nj, tolerance=self.tolerance, max_iterations=max_iterations)
        seconds = time.perf_counter() - began
        fit = Fit("pl-em", asdict(self), estimate.objective, estimate.converged, seconds)
        return judged(evidence, estimate.prior, estimate.counts_klj, pseudo_jl, estimate.q_nj, fit)

    def apply(self, consensus: Consensus, evidence: Evidence) -> Consensus:
        """Judge other items with what was learned."""
        return self._supervised.apply(consensus, evidence)

    def update(self, consensus: Consensus, evidence: Evidence) -> Consensus:
        """What `consensus` becomes with what is known now, in a few iterations; see `Updatable`."""
        if not goes_on(consensus, evidence):
            return self.fit(evidence)
        return better(self._again(cautious(consensus), evidence), self._again(None, evidence))

    def follow(self, consensus: Consensus, evidence: Evidence) -> IncrementalEM:
        """Follow the labels one by one, beginning with those of `evidence`; see `Followable`."""
        require_same_classes(consensus, evidence)
        q_nj = self.apply(consensus, evidence).probabilities
        return IncrementalEM(consensus, evidence, q_nj, self._rule, self._again, self.fit)

    def _again(self, consensus: Consensus | None, evidence: Evidence) -> Consensus:
        return self._fitted(evidence, consensus, iterations(self.max_iterations))

    def _rule(self, consensus: Consensus, evidence: Evidence) -> Rule:
        models = calibrated_prior(evidence, self.temperature, "P+L-EM", consensus)
        pseudo_jl = self._supervised.pseudo_counts(evidence.annotations)
        return Rule(pseudo_jl, models.shares.smoothing, models=models)

    @property
    def _supervised(self) -> PL:
        return PL(self.accuracy, self.off, self.temperature)
