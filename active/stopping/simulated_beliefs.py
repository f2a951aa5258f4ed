"""Beliefs that answers move as they would move a consensus, without fitting anything.

ln q0_n  gains  ln pi_k[., l]  with every answer l of annotator k           the posterior under independence
q_n      as the design effect of the consensus tempers it                    as sure as the combiner would be
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hitl.annotations import Floats
from hitl.consensus import Consensus
from hitl.design_effect import DesignEffect
from hitl.evidence import Evidence
from hitl.models.dependence.design_effect import Independent, predicted, separation_of_classes

Rows = npt.NDArray[np.intp]
TINY = 1e-300


class Belief:
    """Beliefs about n items in D draws, and the truth of each draw.

    Attributes:
        truth_dn: (D, n) class codes, drawn from the beliefs.
        labels_dn: (D, n) labels so far.
        confidence_dn: (D, n) probability of the most probable class.
    """

    def __init__(
        self,
        effect: DesignEffect,
        log_q0_nj: Floats,
        labels_n: Rows,
        predicted_n: npt.NDArray[np.bool_],
        rho_n: Floats,
        pi_kjl: Floats,
        draws: int,
    ) -> None:
        self.effect, self.predicted_n = effect, predicted_n
        self.log_q0_dnj = np.repeat(log_q0_nj[None], draws, axis=0)
        self.labels_dn = np.repeat(labels_n[None], draws, axis=0)
        self.rho_dn = np.repeat(rho_n[None], draws, axis=0)
        self.log_pi_klj = np.log(np.maximum(pi_kjl, TINY)).transpose(0, 2, 1)
        self.delta_kjj = separation_of_classes(pi_kjl)
        self.confidence_dn = np.empty(self.labels_dn.shape)
        self.truth_dn = np.empty(self.labels_dn.shape, dtype=np.intp)

    def begin(self, rng: np.random.Generator) -> None:
        """Draw the truths, and set the confidence."""
        q_nj = self.probabilities(np.zeros(self.labels_dn.shape[1], np.intp), np.arange(self.labels_dn.shape[1]))
        self.confidence_dn[:] = q_nj.max(axis=1)
        chance = np.cumsum(q_nj, axis=1)
        u_dn = rng.random(self.labels_dn.shape)
        self.truth_dn[:] = (u_dn[:, :, None] * chance[None, :, -1:] > chance[None]).sum(axis=2)

    def update(self, d: Rows, n: Rows, k: Rows, label: Rows) -> None:
        """One answer of crew member k about item n in draw d, for each of these.

        Its separation is that of the two classes that are most probable with the answer; they may be others later.
        """
        log_q0 = self.log_q0_dnj[d, n] + self.log_pi_klj[k, label]
        two = np.argpartition(log_q0, -2, axis=1)[:, -2:]
        delta = self.delta_kjj[k, two[:, 0], two[:, 1]]
        self.log_q0_dnj[d, n] = log_q0
        self.labels_dn[d, n], self.rho_dn[d, n] = self.effect.after_answer(
            self.labels_dn[d, n], self.rho_dn[d, n], delta
        )
        self.confidence_dn[d, n] = self.probabilities(d, n).max(axis=1)

    def probabilities(self, d: Rows, n: Rows) -> Floats:
        """(., J) beliefs about these items."""
        return self.effect.temper(self.log_q0_dnj[d, n], self.labels_dn[d, n], self.predicted_n[n], self.rho_dn[d, n])


def belief_of(
    evidence: Evidence, consensus: Consensus, rows: Rows, pi_kjl: Floats, draws: int, rng: np.random.Generator
) -> Belief:
    """The beliefs of a consensus about these items, ready for answers of annotators with matrices `pi_kjl`."""
    annotations, effect = evidence.annotations, consensus.design_effect
    known = Independent(
        annotations,
        np.log(np.maximum(consensus.probabilities, TINY)),
        consensus.annotators.confusion,
        predicted(evidence),
    )
    labels_n, rho_n = annotations.labels_per_item[rows].astype(np.intp), known.rho_sum(effect)[rows]
    log_q0_nj = effect.untemper(consensus.probabilities[rows], labels_n, known.predicted_n[rows], rho_n)
    belief = Belief(effect, log_q0_nj, labels_n, known.predicted_n[rows], rho_n, pi_kjl, draws)
    belief.begin(rng)
    return belief
