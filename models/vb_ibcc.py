"""VB-IBCC (Simpson et al. 2011): Dirichlet class shares x Dirichlet confusion rows, by variational Bayes.

    z_n ~ Cat(p)      l_nk | z_n = j ~ Cat(pi_kj)      p ~ Dir(nu_0)      pi_kj ~ Dir(a_j)

    q(z_n = j) ∝ exp( E ln p_j + sum over labels of n of E ln pi_kjl )                                (eq. 7)
    q(p) = Dir(nu_0 + N),   q(pi_kj) = Dir(a_j + N_kj)                                                (eqs. 17, 22)

What rises is the bound on the log evidence,

    sum_n ln sum_j exp(...)  -  KL(q(p) || p(p))  -  sum_kj KL(q(pi_kj) || p(pi_kj | a_j))  +  ln p(a),

with the log joint of the known class in place of the normaliser where the truth is known. The rows' prior a is
learned from all annotators together (see `dirichlet`) unless `shared` is off.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, replace

import numpy as np

from hitl.annotations import Annotations, Floats
from hitl.consensus import Consensus, Fit
from hitl.errors import BadEvidence
from hitl.evidence import Evidence
from hitl.models import confusion, dirichlet, em
from hitl.models.checks import require_between
from hitl.models.dirichlet import DirichletConfusion
from hitl.models.majority import MajorityVote
from hitl.models.priors.dirichlet import DirichletShares
from hitl.models.priors.shares import Shares


@dataclass(frozen=True, slots=True)
class VBIBCC:
    """Variational Bayesian classifier combination.

    Attributes:
        diagonal, off: pseudo-counts of a right and of each other answer in a confusion row, > 0; where `shared`, the
            mode of their hyper-prior.
        shared: learn the rows' prior from all annotators (empirical Bayes).
        share_smoothing: pseudo-items of each class, > 0.
        least_labels: labels an item needs to teach (all items are judged).
        tolerance: an iteration that gains less, in nats an item, is the last.
    """

    diagonal: float = 2.0
    off: float = 1.0
    shared: bool = True
    share_smoothing: float = 1.0
    least_labels: int = 1
    tolerance: float = 1e-6
    max_iterations: int = 500

    def __post_init__(self) -> None:
        for setting in ("diagonal", "off", "share_smoothing", "tolerance", "max_iterations"):
            require_between(setting, getattr(self, setting), 0)
        require_between("least_labels", self.least_labels, 0)

    def fit(self, evidence: Evidence, *, start: Consensus | None = None) -> Consensus:
        """Raise the bound from the votes, or from what `start` learned."""
        began = time.perf_counter()
        annotations = evidence.annotations
        estimate = em.maximise(
            evidence,
            DirichletShares.even(annotations.n_classes, self.share_smoothing),
            self._people(annotations, start),
            self._start(evidence, start),
            tolerance=self.tolerance,
            max_iterations=self.max_iterations,
            least_labels=self.least_labels,
        )
        share_j = estimate.prior.share_j
        people = dirichlet.report(annotations, replace(estimate.people, counts_klj=estimate.counts_klj), share_j)
        seconds = time.perf_counter() - began
        fit = Fit("vb-ibcc", asdict(self), estimate.objective, estimate.converged, seconds)
        return Consensus(annotations.items, annotations.classes, estimate.q_nj, people, share_j, fit=fit)

    def apply(self, consensus: Consensus, evidence: Evidence) -> Consensus:
        """Judge other items, by the same or new people, with what was learned."""
        annotations = evidence.annotations
        if consensus.classes != annotations.classes:
            raise BadEvidence(f"learned for classes {consensus.classes}; the evidence has {annotations.classes}")
        return replace(
            consensus, items=annotations.items, probabilities=self._beliefs(consensus, evidence), difficulty=None
        )

    def _hyper(self, annotations: Annotations) -> Floats:
        hyper_jl = np.full((annotations.n_classes, annotations.n_options), self.off)
        np.fill_diagonal(hyper_jl, self.diagonal)
        return hyper_jl

    def _people(self, annotations: Annotations, start: Consensus | None) -> DirichletConfusion:
        people = DirichletConfusion.unlearned(self._hyper(annotations), annotations.n_annotators, self.shared)
        if start is None or not self.shared or start.annotators.prior is None:
            return people
        known = confusion.same_codes(start.annotators, annotations.classes, annotations.options)
        return replace(people, prior_jl=start.annotators.prior) if known else people

    def _start(self, evidence: Evidence, start: Consensus | None) -> Floats:
        annotations = evidence.annotations
        votes_nj = MajorityVote().fit(evidence).probabilities
        if start is None or not confusion.same_codes(start.annotators, annotations.classes, annotations.options):
            return votes_nj
        judged_n = confusion.judged_by(start.annotators, annotations)
        return np.where(judged_n[:, None], self._beliefs(start, evidence), votes_nj)

    def _beliefs(self, learned: Consensus, evidence: Evidence) -> Floats:
        log_pi = dirichlet.learned_log_pi(learned.annotators, self._hyper(evidence.annotations), evidence.annotations)
        q_nj, _ = em.expectation(evidence, Shares(learned.class_shares), log_pi)
        return q_nj
