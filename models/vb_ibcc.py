"""VB-IBCC (Simpson et al. 2011): Dirichlet class shares and Dirichlet confusion rows, by variational Bayes.

    z_n ~ Cat(p)      l_nk | z_n = j ~ Cat(pi_kj)      p ~ Dir(nu_0)      pi_kj ~ Dir(a_j)

    q(z_n = j) ∝ exp( E ln p_j + sum over labels of n of E ln pi_kjl )                                (eq. 7)
    q(p) = Dir(nu_0 + N),   q(pi_kj) = Dir(a_j + N_kj)                                                (eqs. 17, 22)

These maximize the bound on the log evidence,

    sum_n ln sum_j exp(...)  -  KL(q(p) || p(p))  -  sum_kj KL(q(pi_kj) || p(pi_kj | a_j))  +  ln p(a),

where the log joint of the known class replaces the first term of items with ground truth. Unless `shared` is off, the
rows' prior a is learned from all annotators together (`annotators.dirichlet_confusion`). The paper has a fixed prior
and begins at the prior's expectations: `VBIBCC.paper()`. Steps near the optimum use momentum (`inference.loop`), which
leaves the fixed points unchanged.

`VBIBCCWithModels` uses a pool of calibrated models as the prior of each item, like P+L-EM (Kerrigan 2021, eq. 3). The
combination is not from a paper. Unlike P+L-EM it models the uncertainty of each annotator's matrix, and estimates
annotators with few labels from the crowd. The models' weights are first estimated without truth, and then held
(`inference.unsupervised_pool`).
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Self

from hitl.annotations import Annotations, Floats
from hitl.consensus import Consensus
from hitl.evidence import Evidence
from hitl.models.annotators import confusion, dirichlet_confusion
from hitl.models.annotators.dirichlet_confusion import DirichletConfusion, DirichletRows
from hitl.models.calibration.temperature import LogTemperature
from hitl.models.combiner import used, used_shards
from hitl.models.inference import em, uncompared, warm_start, working_set
from hitl.models.inference.engine import Shards
from hitl.models.inference.model_pool import unsupervised
from hitl.models.inference.warm_start import require_same_classes
from hitl.models.numerics.checks import check_settings
from hitl.models.numerics.votes import voted
from hitl.models.pl import calibrated_prior
from hitl.models.priors.calibrated import learned_prior
from hitl.models.priors.shares import DirichletShares


@dataclass(frozen=True, slots=True)
class VBIBCC:
    """Variational Bayesian classifier combination.

    Attributes:
        diagonal, off: pseudo-counts of the right answer and of each other answer in a confusion row, > 0; if `shared`,
            the mode of their hyperprior.
        shared: True to learn the rows' prior from all annotators (empirical Bayes).
        share_smoothing: number of pseudo-items per class, > 0.
        least_labels: minimum number of labels of an item to learn from it, unless its truth is known.
        tolerance: iterations stop when one gains less than this, in nats per item.
        begin: first beliefs: "votes" for vote fractions, "prior" for beliefs by E ln p and E ln pi under the prior.

    Example:
        >>> from hitl import Annotations, Evidence, models
        >>> evidence = Evidence(Annotations.from_matrix([[0, 0, 1], [1, 1, -1], [1, 1, 0]]))
        >>> models.VBIBCC().fit(evidence).labels.tolist()
        [0, 1, 1]
    """

    tables: ClassVar[int] = 14
    uses: ClassVar[frozenset[str]] = frozenset({"truth"})
    fits_shards: ClassVar[bool] = True

    diagonal: float = 2.0
    off: float = 1.0
    shared: bool = True
    share_smoothing: float = 1.0
    least_labels: int = 1
    tolerance: float = 1e-6
    max_iterations: int = 500
    begin: str = "votes"

    def __post_init__(self) -> None:
        check_settings(self)

    @classmethod
    def paper(cls) -> Self:
        """Return the settings of Simpson et al. 2011.

        The prior of each confusion row is a point value alpha_0, which is not learned (section 1.1), and iterations
        begin at the prior's expectations (section 2, after eq. 23, which also allows a random start). The paper prints
        no values of alpha_0 and nu_0: they stay 2 for the right answer, 1 for each other answer and 1 for each class.
        The sum of eq. 8 is over items with labels; in the paper all items have labels.
        """
        return cls(shared=False, begin="prior")

    def fit(self, evidence: Evidence | Shards, *, start: Consensus | None = None) -> Consensus:
        """Maximize the bound, starting from the votes or from `start`."""
        shards = used_shards(self, evidence)
        began = time.perf_counter()
        found = uncompared.run_em(
            shards,
            *self._parts(shards, start),
            partial(self._start, start=start),
            tolerance=self.tolerance,
            max_iterations=self.max_iterations,
            least_labels=self.least_labels,
        )
        report = dirichlet_confusion.report(shards.annotations, found.annotators, found.prior.share_j)
        return em.concluded(self, began, shards, found, report)

    def apply(self, consensus: Consensus, evidence: Evidence) -> Consensus:
        """Predict other items, labeled by the same or new annotators, with the learned parameters."""
        require_same_classes(consensus, evidence)
        return consensus.judging(evidence.annotations.items, self._beliefs(consensus, evidence))

    def concentration(self, consensus: Consensus, annotations: Annotations) -> Floats:
        """Return (K, J, L) learned Dirichlet parameters of these annotators; new ones get the shared prior."""
        return dirichlet_confusion.learned_concentration(consensus.annotators, self.hyper(annotations), annotations)

    def hyper(self, annotations: Annotations) -> Floats:
        """Return (J, L) pseudo-counts of a confusion row, the mode of their hyperprior."""
        return confusion.on_the_diagonal(annotations.n_classes, annotations.n_options, self.diagonal, self.off)

    def kind(self, annotations: Annotations) -> DirichletRows:
        """Return the annotator model."""
        return DirichletRows(self.hyper(annotations), self.shared)

    def _parts(self, shards: Shards, start: Consensus | None) -> tuple[DirichletShares, DirichletConfusion]:
        annotations, labels = shards.annotations, shards.size.labels
        prior = DirichletShares.even(annotations.n_classes, self.share_smoothing)
        people = self.kind(annotations).at_start(annotations, start)
        people = replace(people, newton=working_set.pays(labels, people.counts_klj.size, prior))
        return prior, people

    def _start(self, evidence: Evidence, start: Consensus | None) -> Floats:
        first_nj = voted(evidence) if self.begin == "votes" else self._expected(evidence)
        return warm_start.begin(evidence, start, partial(self._beliefs, evidence=evidence), first_nj)

    def _expected(self, evidence: Evidence) -> Floats:
        """Return beliefs by eq. 7 with shares and matrices at the prior."""
        annotations = evidence.annotations
        prior = DirichletShares.even(annotations.n_classes, self.share_smoothing)
        return em.expectation(evidence, prior, self.kind(annotations).at_start(annotations, None).log_pi_klj).q_nj

    def _beliefs(self, learned: Consensus, evidence: Evidence) -> Floats:
        """Return beliefs by the posteriors of the confusion matrices, or by point estimates from another method.

        The pseudo-counts of a point estimate are no posterior: by E ln pi an answer not seen yet would be impossible.
        """
        if learned.annotators.prior is None:
            return warm_start.applied(learned, evidence, self.hyper(evidence.annotations)).probabilities
        log_pi_klj = self.kind(evidence.annotations).log_pi(learned, evidence.annotations)
        return em.expectation(evidence, learned_prior(learned, evidence), log_pi_klj).q_nj


@dataclass(frozen=True, slots=True)
class VBIBCCWithModels:
    """Variational Bayesian classifier combination with model probabilities.

    Attributes:
        diagonal, off: pseudo-counts of the right answer and of each other answer in a confusion row, > 0: the mode of
            their hyperprior.
        temperature: prior of each model's log temperature.
        tolerance: iterations stop when one gains less than this, in nats per item.

    Example:
        >>> import numpy as np, hitl
        >>> from hitl.models import VBIBCCWithModels
        >>> annotations = hitl.Annotations.from_matrix(np.array([[0, 0], [1, 1], [1, -1]]))
        >>> evidence = hitl.Evidence(annotations, {"net": np.array([[0.9, 0.1], [0.2, 0.8], [0.3, 0.7]])})
        >>> VBIBCCWithModels().fit(evidence).labels.tolist()
        [0, 1, 1]
    """

    tables: ClassVar[int] = 14
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
        """Maximize the bound from the unsupervised pool or from `start`. Raise BadEvidence without a model."""
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
        """Predict other items, labeled by the same or new annotators, with the learned parameters."""
        pool = calibrated_prior(self, evidence, consensus)
        log_pi_klj = self._kind(evidence.annotations).log_pi(consensus, evidence.annotations)
        return consensus.judging(evidence.annotations.items, em.expectation(evidence, pool, log_pi_klj).q_nj)

    def _kind(self, annotations: Annotations) -> DirichletRows:
        return DirichletRows(
            confusion.on_the_diagonal(annotations.n_classes, annotations.n_options, self.diagonal, self.off)
        )
