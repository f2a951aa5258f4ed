"""P+L-EM (Kerrigan, Smyth & Steyvers 2021, appendix I): models' probabilities and annotators' labels, by EM.

    z_n              true class of item n          l_nk   label of annotator k about item n
    p_T(z_n = j)     the pool of models, each with a temperature (eq. 3)
    pi[k, j, l]      confusion matrix of annotator k, with pseudo-counts b_jl
    q_nj             (N, J) beliefs: probability that item n is of class j

    E   q_nj ∝ p_T(z_n = j | models) prod_k pi[k, j, l_nk]                                        (eq. 3)
    M   pi[k, j, l] ∝ sum_{n: l_nk = l} q_nj + b_jl                                               (eq. 28)

Two things differ from the paper. The temperatures are estimated before, by comparing the models with annotators who
err evenly (`inference.unsupervised_pool`), and then kept: in the paper's M-step (eq. 26) they drift the further the
more items there are, and a model with its classes permuted becomes the truth. And an item with one or two labels enters
the confusion matrices once, with its first beliefs: later on it would only agree with itself.

Known truth is evidence, and corrects the temperatures. An item without labels does not enter the estimates; its beliefs
are those of the pool.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

import numpy as np

from hitl.annotations import Floats
from hitl.consensus import Consensus
from hitl.evidence import Evidence
from hitl.models.annotators import confusion
from hitl.models.calibration.temperature import LogTemperature
from hitl.models.combiner import used
from hitl.models.inference import em
from hitl.models.inference.incremental import IncrementalEM, Rule
from hitl.models.inference.unsupervised_pool import unsupervised
from hitl.models.inference.warm_start import better, cautious, goes_on, iterations, require_same_classes
from hitl.models.numerics import kernels
from hitl.models.numerics.checks import require_counts, require_positive
from hitl.models.pl import PL, calibrated_prior
from hitl.models.priors.followed import FollowedPool

ENOUGH_LABELS = 3
"""Labels from which an item's annotators outvote a wrong one. With fewer it enters the matrices once."""


@dataclass(frozen=True, slots=True)
class PLEM(PL):
    """P+L by expectation-maximisation, for models and annotators, with or without known truth.

    Attributes:
        tolerance: EM stops where an iteration raises the log posterior by less than this, in nats an item; > 0.
        max_iterations: most iterations, >= 1.

    The others as in `PL`.

    Example:
        >>> from hitl import Annotations, Evidence
        >>> from hitl.models import PLEM
        >>> annotations, net = Annotations.from_matrix([[0], [1], [1]]), [[0.9, 0.1], [0.2, 0.8], [0.3, 0.7]]
        >>> evidence = Evidence(annotations, {"net": net})
        >>> PLEM().fit(evidence).labels.tolist()
        [0, 1, 1]
    """

    needs: ClassVar[frozenset[str]] = frozenset({"probabilities"})

    temperature: LogTemperature = LogTemperature(0.45)
    tolerance: float = 1e-6
    max_iterations: int = 200

    def __post_init__(self) -> None:
        PL.__post_init__(self)
        require_positive(self, "tolerance")
        require_counts(self, "max_iterations")

    def fit(self, evidence: Evidence, *, start: Consensus | None = None) -> Consensus:
        """EM from the prior's modes, or from what `start` learned. Raises BadEvidence without a model."""
        evidence = used(self, evidence)
        return self._fitted(evidence, start, self.max_iterations)

    def _fitted(self, evidence: Evidence, start: Consensus | None, max_iterations: int) -> Consensus:
        began = time.perf_counter()
        annotations = evidence.annotations
        pseudo_jl = self.pseudo_counts(annotations)
        pool, q_nj = unsupervised(evidence, calibrated_prior(self, evidence))
        few = ~evidence.known & (annotations.labels_per_item < ENOUGH_LABELS)
        people = EnteredOnce.unlearned(pseudo_jl, annotations.n_annotators).once(kernels.counts(annotations, q_nj, few))
        if start is not None and start.classes == annotations.classes:
            log_pi_klj = np.log(confusion.confusion_from(start, annotations, pseudo_jl))
            q_nj = em.expectation(evidence, pool, log_pi_klj).q_nj
        found = em.maximise(
            evidence,
            pool,
            people,
            q_nj,
            tolerance=self.tolerance,
            max_iterations=max_iterations,
            least_labels=ENOUGH_LABELS,
        )
        counts_klj, pool = found.counts_klj + people.once_klj, found.prior
        report = confusion.report(annotations, counts_klj, pseudo_jl, pool.reported_shares(found.q_nj))
        return em.concluded(
            self, began, evidence, found, report, temperatures=pool.temperatures, parameters=pool.parameters
        )

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
        pool = calibrated_prior(self, evidence, consensus)
        pseudo_jl = self.pseudo_counts(evidence.annotations)
        return Rule(pseudo_jl, pool.shares.smoothing, prior=lambda known: FollowedPool(pool, dict(known.probabilities)))


@dataclass(frozen=True, eq=False)
class EnteredOnce(confusion.Confusion):
    """Confusion matrices that some labels enter once: `once_klj` (K, L, J) counts beside the others."""

    once_klj: Floats = field(default_factory=lambda: np.zeros(()))

    def once(self, once_klj: Floats) -> Self:
        """The same, with these counts beside the others."""
        return replace(self, once_klj=once_klj).learn(np.zeros_like(once_klj))

    def learn(self, counts_klj: Floats) -> Self:
        """Posterior mode of every row."""
        return super().learn(counts_klj + self.once_klj)

    def log_density(self) -> float:
        """Log density of all rows given what entered once, up to a constant."""
        return super().log_density() + float(np.sum(self.once_klj * self.log_pi_klj))
