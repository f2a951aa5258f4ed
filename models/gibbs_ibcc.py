"""Independent Bayesian classifier combination by Gibbs sampling (Kim & Ghahramani 2012, section 2.2).

    p ~ Dir(nu)    t_n ~ Cat(p)    alpha_kjl ~ Exp(mean lambda_jl)    pi_kj ~ Dir(alpha_kj)
    l_nk | t_n = j ~ Cat(pi_kj)                                                              (eqs. 2-10)

lambda is larger on the diagonal (8 against 1 in the paper), which says that annotators are better than random. Every
annotator has an alpha of their own, so this prior stays broad: exponential in the weight of each cell.

The draws are made in `sampling` and averaged in `posterior`.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import ClassVar

from hitl.consensus import Consensus
from hitl.evidence import Evidence
from hitl.models.combiner import used
from hitl.models.inference import warm_start
from hitl.models.numerics.checks import require_between
from hitl.models.sampling import posterior
from hitl.models.sampling.chains import Chains


@dataclass(frozen=True, slots=True, kw_only=True)
class GibbsIBCC(Chains):
    """Bayesian classifier combination by several Gibbs chains.

    Attributes:
        diagonal, off: prior mean of the Dirichlet parameter of a right and of each other answer, > 0.
        share_smoothing: pseudo-items of each class, > 0.

    Those of the chains as in `Chains`.

    Example:
        >>> from hitl import Annotations, Evidence
        >>> from hitl.models import GibbsIBCC
        >>> evidence = Evidence(Annotations.from_matrix([[0, 0, 1], [1, 1, -1], [1, 1, 0]]))
        >>> GibbsIBCC(draws=200).fit(evidence).labels.tolist()
        [0, 1, 1]
    """

    uses: ClassVar[frozenset[str]] = frozenset({"truth"})

    diagonal: float = 8.0
    off: float = 1.0
    share_smoothing: float = 1.0

    def __post_init__(self) -> None:
        Chains.__post_init__(self)
        for setting in ("diagonal", "off", "share_smoothing"):
            require_between(setting, getattr(self, setting), 0, posterior.LARGEST)

    def fit(self, evidence: Evidence, *, start: Consensus | None = None) -> Consensus:
        """Sample from the votes, or from what `start` learned. `fit.converged` tells whether the chains have mixed."""
        evidence = used(self, evidence)
        began = time.perf_counter()
        annotations = evidence.annotations
        prior = posterior.all_hard(annotations, self.diagonal, self.off, self.share_smoothing)
        found = posterior.sampled(evidence, prior, start, self)
        return found.consensus(annotations, "gibbs-ibcc", asdict(self), time.perf_counter() - began)

    def apply(self, consensus: Consensus, evidence: Evidence) -> Consensus:
        """Judge other items, by the same or new annotators, with the posterior means of what was learned."""
        annotations = evidence.annotations
        prior = posterior.all_hard(annotations, self.diagonal, self.off, self.share_smoothing)
        q_nj = warm_start.judged(consensus, evidence, prior.mean_jl)
        return consensus.judging(annotations.items, q_nj)
