"""Dependent Bayesian classifier combination (Kim & Ghahramani 2012, section 3.2): annotators who copy or fail alike.

    p ~ Dir(nu)    t_n ~ Cat(p)    V_kjl ~ N(mu_jl, answer_sd^2)    W_kk' ~ N(0, coupling_sd^2)
    p(answers of all | t_n = j) = exp( sum_k V_kj,l_nk + sum_{k<k'} W_kk' [l_nk = l_nk'] ) / Z_j     (eqs. 21, 24, 25)

W > 0: two annotators agree more often than the class explains. Several of them then count for little more than one. The
partition function Z is exact as long as the answers of all annotators who share items can be enumerated
(`exact_states`). Beyond that, annotators who agree most beyond chance are grouped (`group_states`), and W is 0 between
groups (see `network_groups`). Annotators who did not answer an item are summed out, not ignored, so an annotator's
confusion matrix does not depend on which others answered. The pool of annotators without ids depends on no annotator.

`accuracy` sets mu as in eq. 32; without it mu is the zero mean of eq. 24, and only known items tell the classes apart.
The likelihood hardly does: three annotators who copy and are wrong, or who are right while three others fail alike,
explain the same answers equally well. With few annotators (a handful, all connected) give truth for some items, as the
paper does, or use EDBCC, whose easy items tell the difference. The paper's sd of 3 makes this worse: with W so free the
network explains what the classes should, so `coupling_sd` is small.
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
