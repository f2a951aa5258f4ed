"""Update beliefs by simulated answers as a consensus would, without a fit.

ln q0_n  gains  ln pi_k[., l]  with every answer l of annotator k           the posterior under independence
q_n      tempered by the design effect of the consensus                      as sure as the combiner would be
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hitl.annotations import Floats
from hitl.consensus import Consensus
from hitl.evidence import Evidence
from hitl.tables.shared_errors import given

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
        self, evidence: Evidence, consensus: Consensus, rows: Rows, pi_kjl: Floats, draws: int, rng: np.random.Generator
    ) -> None:
        """Start from the beliefs about the items `rows`, ready for answers by the matrices `pi_kjl` (K, J, L)."""
        labels_n = evidence.annotations.labels_per_item[rows].astype(np.intp)
        self.effect, self.predicted_n = consensus.design_effect, evidence.predicted[rows]
        log_q0_nj = self.effect.untemper(consensus.probabilities[rows], labels_n, self.predicted_n)
        self.log_q0_dnj = np.repeat(log_q0_nj[None], draws, axis=0)
        self.labels_dn = np.repeat(labels_n[None], draws, axis=0)
        self.pi_kjl = pi_kjl
        q_nj = self.probabilities(np.zeros(len(rows), np.intp), np.arange(len(rows)))
        self.confidence_dn = np.repeat(q_nj.max(axis=1)[None], draws, axis=0)
        chance = np.cumsum(q_nj, axis=1)
        u_dn = rng.random(self.labels_dn.shape)
        self.truth_dn = (u_dn[:, :, None] * chance[None, :, -1:] > chance[None]).sum(axis=2)

    def update(self, d: Rows, n: Rows, k: Rows, label: Rows) -> None:
        """Add one answer of crew member k about item n in draw d, for each of these."""
        self.log_q0_dnj[d, n] += np.log(np.maximum(given(self.pi_kjl, k, label), TINY))
        self.labels_dn[d, n] += 1
        self.confidence_dn[d, n] = self.probabilities(d, n).max(axis=1)

    def update_many(self, d: Rows, n: Rows, k: Rows, count_ml: Rows) -> None:
        """Add answers of each kind (m, L) of crew member k about item n in draw d, for each of these."""
        for label in range(count_ml.shape[1]):
            said = given(self.pi_kjl, k, np.full(len(k), label))
            self.log_q0_dnj[d, n] += count_ml[:, label, None] * np.log(np.maximum(said, TINY))
        self.labels_dn[d, n] += count_ml.sum(axis=1)
        self.confidence_dn[d, n] = self.probabilities(d, n).max(axis=1)

    def probabilities(self, d: Rows, n: Rows) -> Floats:
        """Return (., J) beliefs about these items."""
        return self.effect.temper(self.log_q0_dnj[d, n], self.labels_dn[d, n], self.predicted_n[n])
