"""VB-IBCC with models: Dirichlet confusion rows, and a pool of calibrated models as the prior of each item.

    p(z_n = j)  ∝  exp( sum_m w_nm ln p_m[n, j] )        as in P+L-EM (Kerrigan 2021, eq. 3), held
    pi_kj       ~  Dir(a_j)                               as in VB-IBCC (Simpson 2011), a learned from all annotators

    q(z_n = j)  ∝  exp( ln p(z_n = j) + sum over labels of n of E ln pi_kjl )        q(pi_kj) = Dir(a_j + N_kj)

No paper has this combination. Unlike P+L-EM it models the uncertainty of each annotator's matrix, and estimates
annotators with few labels from the crowd. The models' weights are estimated first, without truth, and held
(`unsupervised_pool`).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, ClassVar

from hitl.annotations import Annotations
from hitl.consensus import Consensus
from hitl.evidence import Evidence
from hitl.models.annotators.confusion import on_the_diagonal
from hitl.models.annotators.dirichlet_confusion import DirichletRows
from hitl.models.calibration.temperature import LogTemperature
from hitl.models.combiner import used
from hitl.models.inference import em
from hitl.models.inference.model_pool import unsupervised
from hitl.models.numerics.checks import check_settings
from hitl.models.pl import calibrated_prior


@dataclass(frozen=True, slots=True)
class VBIBCCWithModels:
    """Variational Bayesian classifier combination with model probabilities.

    Attributes:
        diagonal, off: pseudo-counts of a right and of each other answer in a confusion row, > 0: the mode of their
            hyperprior.
        temperature: prior of each model's log temperature.
        tolerance: iterations stop when one gains less, in nats per item.

    Example:
        >>> import numpy as np, hitl
        >>> from hitl.models import VBIBCCWithModels
        >>> annotations = hitl.Annotations.from_matrix(np.array([[0, 0], [1, 1], [1, -1]]))
        >>> evidence = hitl.Evidence(annotations, {"net": np.array([[0.9, 0.1], [0.2, 0.8], [0.3, 0.7]])})
        >>> VBIBCCWithModels().fit(evidence).labels.tolist()
        [0, 1, 1]
    """

    uses: ClassVar[frozenset[str]] = frozenset({"probabilities", "truth"})
    needs: ClassVar[frozenset[str]] = frozenset({"probabilities"})

    diagonal: float = 2.0
    off: float = 1.0
    temperature: LogTemperature = LogTemperature(0.45)
    tolerance: float = 1e-6
    max_iterations: int = 500

    def __post_init__(self) -> None:
        check_settings(self)

    def fit(self, evidence: Evidence, *, start: Consensus | None = None) -> Consensus:
        """Maximize the bound, starting from models and evenly erring annotators. Raise BadEvidence without a model."""
        evidence = used(self, evidence)
        began = time.perf_counter()
        annotations = evidence.annotations
        pool, q_nj = unsupervised(evidence, self.temperature)
        kind = self._kind(annotations)
        if start is not None and start.classes == annotations.classes:
            q_nj = em.expectation(evidence, pool, kind.log_pi(start, annotations)).q_nj
        limits: dict[str, Any] = {"tolerance": self.tolerance, "max_iterations": self.max_iterations}
        found = em.run_em(evidence, pool, kind.at_start(annotations, start), q_nj, **limits)
        report = kind.report(annotations, found, found.prior.reported_shares(found.q_nj))
        kept = {"temperatures": pool.temperatures, "parameters": pool.parameters}
        return em.concluded(self, began, evidence, found, report, **kept)

    def apply(self, consensus: Consensus, evidence: Evidence) -> Consensus:
        """Predict other items, by the same or new annotators, with the learned parameters."""
        pool = calibrated_prior(self, evidence, consensus)
        log_pi_klj = self._kind(evidence.annotations).log_pi(consensus, evidence.annotations)
        return consensus.judging(evidence.annotations.items, em.expectation(evidence, pool, log_pi_klj).q_nj)

    def _kind(self, annotations: Annotations) -> DirichletRows:
        return DirichletRows(on_the_diagonal(annotations.n_classes, annotations.n_options, self.diagonal, self.off))
