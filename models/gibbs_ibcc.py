"""Bayesian classifier combination by Gibbs sampling (Kim & Ghahramani 2012, sections 2.2 and 3.1): IBCC and EBCC.

    p ~ Dir(nu)    t_n ~ Cat(p)    alpha_kjl ~ Exp(mean lambda_jl)    pi_kj ~ Dir(alpha_kj)
    l_nk | t_n = j ~ Cat(pi_kj)                                                              (IBCC, eqs. 2-10)

    d_n ~ Beta(beta_1, beta_2)    s_n ~ Bernoulli(d_n)
    l_nk | t_n = j ~ Cat(pi_kj) where s_n = 1 (hard), else Cat(E_j)                          (EBCC, eqs. 14-16)

lambda is larger on the diagonal (8 against 1 in the paper): annotators are expected to be better than random. Every
annotator has their own alpha, so this prior stays broad: exponential in the weight of each cell.

E is fixed and the same for every annotator: 1 - epsilon on the diagonal, the rest spread evenly. So an item on which
all agree is probably easy, and confusion on hard items is learned from hard items only. Eq. 19 as printed also counts
the easy ones; only those with s_n = 1 may add to the counts of pi.

Each d_n has a single s_n, and therefore integrates out: s_n ~ Bernoulli(h), h = beta_1 / (beta_1 + beta_2).
(t_n, s_n) are drawn together (see `sampling`).

The paper's beta = (0.5, 0.5) is h = 0.5 (`EBCC.paper()`). With eq. 19 corrected that is worse than IBCC on the paper's
own data: so many unanimous items are called easy that the hard ones mislead about who is right where two contradict
two. h = 0.8 is better than IBCC there (docs/benchmarks/satellite.txt). Elsewhere it hardly matters: error on the
paper's DNA .056 at 0.5 and .054 at 0.8, IBCC .054; mean accuracy on 11 crowds .800, .802, .803.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from hitl.annotations import Annotations
from hitl.consensus import Consensus
from hitl.evidence import Evidence
from hitl.models.annotators.confusion import on_the_diagonal
from hitl.models.inference import warm_start
from hitl.models.numerics.checks import check_settings
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


@dataclass(frozen=True, slots=True, kw_only=True)
class EBCC(GibbsChains):
    """Bayesian classifier combination with easy and hard items, by several Gibbs chains.

    The result's `difficulty` is the probability that an item is hard. Its confusion matrices are over all items, easy
    and hard in the estimated proportion of each class.

    Attributes:
        epsilon: chance of a wrong answer on an easy item, in (0, 1).
        hard: prior probability that an item is hard, in (0, 1).

    The others as in `GibbsChains`; `diagonal` and `off` are of answers on hard items.

    Example:
        >>> from hitl import Annotations, Evidence, models
        >>> evidence = Evidence(Annotations.from_matrix([[0, 0, 1], [1, 1, -1], [1, 1, 0]]))
        >>> models.EBCC(draws=200).fit(evidence).labels.tolist()
        [0, 1, 1]
    """

    epsilon: float = 0.01
    hard: float = 0.8

    def __post_init__(self) -> None:
        GibbsChains.__post_init__(self)
        check_settings(self)

    @classmethod
    def paper(cls) -> Self:
        """Return the settings of Kim & Ghahramani 2012 (section 4).

        beta = (0.5, 0.5), so that half of the items are expected to be hard (eq. 16); epsilon = 0.01 (the paper also
        uses
        0.003); lambda = 8 on the diagonal and 1 off it (eq. 4); nu = 1 (eq. 9). Labels of easy items do not count
        for the matrices, unlike in eq. 19 as printed. The paper runs one chain of 50,000 draws and keeps every
        hundredth after 10,000. The length of the chains stays hitl's, which draw from the same posterior.
        """
        return cls(diagonal=8.0, off=1.0, share_smoothing=1.0, epsilon=0.01, hard=0.5)

    def prior(self, annotations: Annotations) -> gibbs.Prior:
        """Return the prior of IBCC on hard items."""
        hard = all_hard(annotations, self.diagonal, self.off, self.share_smoothing)
        wrong = self.epsilon / (annotations.n_options - 1)
        easy_jl = on_the_diagonal(annotations.n_classes, annotations.n_options, 1 - self.epsilon, wrong)
        return hard._replace(easy_jl=easy_jl, hard=self.hard)
