"""Dependent Bayesian classifier combination (Kim & Ghahramani 2012, 3.2 and 3.3): annotators who copy, fail alike.

    p ~ Dir(nu)    t_n ~ Cat(p)    V_kjl ~ N(mu_jl, answer_sd^2)    W_kk' ~ N(0, coupling_sd^2)
    p(answers of all | t_n = j) = exp( sum_k V_kj,l_nk + sum_{k<k'} W_kk' [l_nk = l_nk'] ) / Z_j     (eqs. 21, 24, 25)

W > 0: two annotators agree more often than the class explains. Several of them then count for little more than one. The
partition function Z is exact as long as the answers of all annotators who share items can be enumerated
(`exact_states`). Beyond that, annotators who agree most beyond chance are grouped (`group_states`), and W is 0 between
groups (see `network_layout`). Annotators who did not answer an item are summed out, not ignored, so an annotator's
confusion matrix does not depend on which others answered. The pool of annotators without ids depends on no annotator.

`accuracy` sets mu as in eq. 32; without it mu is the zero mean of eq. 24, and only known items tell the classes apart.
The likelihood hardly does: three annotators who copy and are wrong, or who are right while three others fail alike,
explain the same answers equally well. With few annotators (a handful, all connected) give truth for some items, as the
paper does, or use EDBCC, whose easy items tell the difference. The paper's sd of 3 makes this worse: with W so free the
network explains what the classes should, so `coupling_sd` is small.

EDBCC adds easy items:

    s_n ~ Bernoulli(hard)    U_jl ~ N(mu_jl, easy_sd^2)
    answers of item n | t_n = j ~ DBCC's networks where s_n = 1, else each label ~ Cat(softmax U_j)      (eqs. 29-33)

U is the same for every annotator: on easy items nearly all are right, independently of each other. So an item on which
all agree is probably easy, and dependence is learned from hard items. Each d_n of the paper has a single s_n, and
therefore integrates out: `hard` = beta_1 / (beta_1 + beta_2), 0.5 in the paper.

The paper lets U vary widely (easy_sd 3) and anchors it by known items. Without any, easy items must stay easy, or the
two kinds of items lose their meaning (on `rte` accuracy fell to 0.5). So easy_sd is small here, which keeps softmax(U)
near `easy_accuracy`, like EBCC's fixed matrix. Then easy items show which explanation of the answers is true: with some
hundreds of items, no known item is usually needed to detect annotators who copy. If it fails (few items, copies of
very poor answers) the chains usually disagree.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from hitl.models.sampling.network_posterior import Expected, NetworkChains


@dataclass(frozen=True, slots=True, kw_only=True)
class DBCC(NetworkChains):
    """Bayesian classifier combination with dependent annotators, by several chains; settings as in `NetworkChains`.

    The result's `annotators.dependence` is the correlation of two annotators' errors given the class. It does not
    store the networks, so there is no `apply`. A fit takes seconds on a thousand labels of a few annotators, half
    a minute with hundreds of annotators or dozens of options.

    Example:
        >>> from hitl import Annotations, Evidence, models
        >>> evidence = Evidence(Annotations.from_matrix([[0, 0, 1], [1, 1, -1], [1, 1, 0]]))
        >>> models.DBCC(draws=200, burn_in=50).fit(evidence).labels.tolist()
        [0, 1, 1]
    """

    @classmethod
    def paper(cls) -> Self:
        """Return the settings of Kim & Ghahramani 2012 (sections 3.2 and 4). Give truth for some items, as they do.

        V and W ~ N(0, 3^2) (eqs. 24, 25) with one W per pair of annotators, as in eq. 21 (eq. 25 prints one per
        pair of answers as well); nu = 1 (eq. 9). Without known truth nothing in this prior tells the classes apart.
        The paper runs one chain of 100,000 draws or more by Metropolis steps and keeps every hundredth after 10,000.
        The length of the chains stays hitl's, which draw from the same posterior.
        """
        return cls(accuracy=None, answer_sd=3.0, coupling_sd=3.0, share_smoothing=1.0)

    def expected(self) -> Expected:
        """Return expectations with every item hard."""
        return Expected(self.accuracy, self.answer_sd, self.coupling_sd)


@dataclass(frozen=True, slots=True, kw_only=True)
class EDBCC(NetworkChains):
    """Bayesian classifier combination with dependent annotators and with easy and hard items, by several chains.

    The result's `difficulty` is the probability that an item is hard, `annotators.dependence` the correlation of two
    annotators' errors given the class. Both this and the confusion matrices are over all items, easy and hard in the
    estimated proportion of each class. There is no `apply`, as for DBCC.

    Attributes:
        hard: prior probability that an item is hard, in (0, 1).
        easy_accuracy: expected chance of a right answer on an easy item, in (0, 1).
        easy_sd: prior standard deviation of U, > 0.

    The others as in `NetworkChains`; `accuracy` is that on hard items.

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
        """Return the settings of Kim & Ghahramani 2012 (sections 3.3 and 4). Give truth for some items, as they do.

        V ~ N(mu_v, 3^2) with mu_v of p_v = 0.85, U ~ N(mu_u, 3^2) with mu_u of p_u = 0.99 (eqs. 32, 33), W ~ N(0, 3^2)
        (eq. 25), beta = (0.5, 0.5), so that half of the items are expected to be hard (eq. 16), nu = 1 (eq. 9). The
        paper runs one chain of 100,000 draws or more by Metropolis steps and keeps every hundredth after 10,000. The
        length of the chains stays hitl's, which draw from the same posterior.
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
        """Return expectations on hard and on easy items."""
        return Expected(self.accuracy, self.answer_sd, self.coupling_sd, self.hard, self.easy_accuracy, self.easy_sd)
