"""Independent Bayesian classifier combination by Gibbs sampling (Kim & Ghahramani 2012, section 2.2).

    p ~ Dir(nu)    t_n ~ Cat(p)    alpha_kjl ~ Exp(mean lambda_jl)    pi_kj ~ Dir(alpha_kj)
    l_nk | t_n = j ~ Cat(pi_kj)                                                              (eqs. 2-10)

lambda is larger on the diagonal (8 against 1 in the paper): annotators are expected to be better than random. Every
annotator has their own alpha, so this prior stays broad: exponential in the weight of each cell.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from hitl.annotations import Annotations
from hitl.consensus import Consensus
from hitl.evidence import Evidence
from hitl.models.inference import warm_start
from hitl.models.sampling import gibbs
from hitl.models.sampling.posterior import GibbsChains, all_hard


@dataclass(frozen=True, slots=True, kw_only=True)
class GibbsIBCC(GibbsChains):
    """Bayesian classifier combination by several Gibbs chains; settings as in `GibbsChains`.

    Example:
        >>> from hitl import Annotations, Evidence, models
        >>> evidence = Evidence(Annotations.from_matrix([[0, 0, 1], [1, 1, -1], [1, 1, 0]]))
        >>> models.GibbsIBCC(draws=200).fit(evidence).labels.tolist()
        [0, 1, 1]
    """

    @classmethod
    def paper(cls) -> Self:
        """Return the settings of Kim & Ghahramani 2012 (section 4), which are the default.

        lambda = 8 on the diagonal and 1 off it (eq. 4); nu = 1 (eq. 9). The paper runs one chain of 50,000 draws and
        keeps every hundredth after 10,000. The length of the chains stays hitl's, which draw from the same posterior.
        """
        return cls(diagonal=8.0, off=1.0, share_smoothing=1.0)

    def prior(self, annotations: Annotations) -> gibbs.Prior:
        """Return a prior in which every item is hard."""
        return all_hard(annotations, self.diagonal, self.off, self.share_smoothing)

    def apply(self, consensus: Consensus, evidence: Evidence) -> Consensus:
        """Estimate other items, by the same or new annotators, with the posterior means."""
        return warm_start.applied(consensus, evidence, self.prior(evidence.annotations).mean_jl)
