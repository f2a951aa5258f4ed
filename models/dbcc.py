"""Dependent Bayesian classifier combination (Kim & Ghahramani 2012, 3.2 and 3.3): annotators who copy or fail alike.

    p ~ Dir(nu)    t_n ~ Cat(p)    V_kjl ~ N(mu_jl, answer_sd^2)    W_kk' ~ N(0, coupling_sd^2)
    p(answers of all | t_n = j) = exp( sum_k V_kj,l_nk + sum_{k<k'} W_kk' [l_nk = l_nk'] ) / Z_j     (eqs. 21, 24, 25)

If W_kk' > 0, annotators k and k' agree more often than the class explains. Several such annotators together count for
little more than one. The partition function Z is exact if the joint answers of all annotators who share items number
at most `exact_states`. Otherwise annotators are divided into groups of at most `group_states` joint answers, by
agreement beyond chance, and W is 0 between groups (see `network_layout`). Annotators who did not answer an item are
summed out, not ignored, so an annotator's confusion matrix does not depend on who else answered. The pool of annotators
without ids is independent of all others.

`accuracy` sets mu as in eq. 32. Without it mu is 0, as in eq. 24, and only known items distinguish the classes. The
likelihood hardly does: the same answers are explained equally well if three annotators copy and are wrong, or if they
are right and three others fail alike. With only a handful of annotators, all connected, supply truth for some items, as
the paper does, or use EDBCC, whose easy items show the difference. The paper's standard deviation of 3 makes it worse:
with so wide a prior, W explains agreement that the classes should explain. So `coupling_sd` is smaller by default.

EDBCC adds easy items:

    s_n ~ Bernoulli(hard)    U_jl ~ N(mu_jl, easy_sd^2)
    answers of item n | t_n = j ~ DBCC's networks where s_n = 1, else each label ~ Cat(softmax U_j)      (eqs. 29-33)

U is the same for every annotator: on easy items nearly all are right, independently of each other. So an item on which
all agree is probably easy, and dependence is learned from hard items. In the paper s_n ~ Bernoulli(d_n) and
d_n ~ Beta(beta_1, beta_2). As each d_n governs a single s_n, it integrates out: `hard` = beta_1 / (beta_1 + beta_2),
0.5 in the paper.

The paper lets U vary widely (easy_sd 3) and anchors it by known items. Without known items, easy items must stay easy,
or the two kinds of items lose their meaning (on `rte` accuracy fell to 0.5). So easy_sd is small here, which keeps
softmax(U) near `easy_accuracy`, like EBCC's fixed matrix. Easy items then show which explanation of the answers is
true. With a few hundred items, copying is usually detected without any known item. Where this fails (few items, or
copies of very poor answers), the chains usually disagree.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from hitl.models.sampling.network_posterior import Expected, NetworkChains


@dataclass(frozen=True, slots=True, kw_only=True)
class DBCC(NetworkChains):
    """Bayesian classifier combination with dependent annotators, by several chains; settings as in `NetworkChains`.

    The result's `annotators.dependence` is the correlation of two annotators' errors given the class. The result does
    not store the networks, so there is no `apply`. A fit takes seconds for a thousand labels by a few annotators, half
    a minute for hundreds of annotators or dozens of options.

    Example:
        >>> from hitl import Annotations, Evidence, models
        >>> evidence = Evidence(Annotations.from_matrix([[0, 0, 1], [1, 1, -1], [1, 1, 0]]))
        >>> models.DBCC(draws=200, burn_in=50).fit(evidence).labels.tolist()
        [0, 1, 1]
    """

    @classmethod
    def paper(cls) -> Self:
        """Return the settings of Kim & Ghahramani 2012 (sections 3.2 and 4). Supply truth for some items, as they do.

        V and W ~ N(0, 3^2) (eqs. 24, 25), with one W per pair of annotators as in eq. 21 (eq. 25 prints one per pair of
        answers as well). nu = 1 (eq. 9). Nothing in this prior distinguishes the classes, so ground truth must do it.
        The paper runs one chain of at least 100,000 Metropolis draws and keeps every hundredth after the first 10,000.
        The chains of hitl keep their own length, and draw from the same posterior.
        """
        return cls(accuracy=None, answer_sd=3.0, coupling_sd=3.0, share_smoothing=1.0)

    def expected(self) -> Expected:
        """Return the priors, in which every item is hard."""
        return Expected(self.accuracy, self.answer_sd, self.coupling_sd)


@dataclass(frozen=True, slots=True, kw_only=True)
class EDBCC(NetworkChains):
    """Bayesian classifier combination with dependent annotators and with easy and hard items, by several chains.

    The result's `difficulty` is the probability that an item is hard, and `annotators.dependence` the correlation of
    two annotators' errors given the class. Dependence and confusion matrices describe easy and hard items together, in
    the proportion estimated for each class. As for DBCC, there is no `apply`.

    Attributes:
        hard: prior probability that an item is hard, in (0, 1).
        easy_accuracy: expected probability of a right answer on an easy item, in (0, 1).
        easy_sd: prior standard deviation of U, > 0.

    Other settings are as in `NetworkChains`; `accuracy` is the accuracy on hard items.

    Example:
        >>> from hitl import Annotations, Evidence, models
        >>> evidence = Evidence(Annotations.from_matrix([[0, 0, 1], [1, 1, -1], [1, 1, 0]]))
        >>> models.EDBCC(draws=200, burn_in=50).fit(evidence).labels.tolist()
        [0, 1, 1]
    """

    hard: float = 0.5
    easy_accuracy: float = 0.99
    easy_sd: float = 0.1
    coupling_sd: float = 1.0

    @classmethod
    def paper(cls) -> Self:
        """Return the settings of Kim & Ghahramani 2012 (sections 3.3 and 4). Supply truth for some items, as they do.

        V ~ N(mu_v, 3^2) with mu_v for p_v = 0.85, and U ~ N(mu_u, 3^2) with mu_u for p_u = 0.99 (eqs. 32, 33).
        W ~ N(0, 3^2) (eq. 25). beta = (0.5, 0.5), so that half of the items are expected to be hard (eq. 16). nu = 1
        (eq. 9). The paper runs one chain of at least 100,000 Metropolis draws and keeps every hundredth after the first
        10,000. The chains of hitl keep their own length, and draw from the same posterior.
        """
        return cls(
            accuracy=0.85,
            answer_sd=3.0,
            coupling_sd=3.0,
            share_smoothing=1.0,
            hard=0.5,
            easy_accuracy=0.99,
            easy_sd=3.0,
        )

    def expected(self) -> Expected:
        """Return the priors for hard and for easy items."""
        return Expected(self.accuracy, self.answer_sd, self.coupling_sd, self.hard, self.easy_accuracy, self.easy_sd)
