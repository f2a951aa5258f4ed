"""Beliefs that answers move as they would move a consensus, without fitting anything.

    ln q0_n  gains  ln pi_k[., l]  with every answer l of k                     the posterior under independence
    q_n  ∝  exp( ln q0_n / T_n + b )                                            as sure as the combiner would be

T_n grows with the labels of the item: by `hitl.models.dependence.dependence` where people alone were combined,
T = 1 + (m - 1) mean rho, by `shared_errors` beside models; it is 1 for combiners that take answers at their word.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.special import log_softmax

from hitl.annotations import Floats
from hitl.consensus import Consensus
from hitl.evidence import Evidence
from hitl.models.dependence import dependence, shared_errors
from hitl.models.numerics.kernels import messages

Rows = npt.NDArray[np.intp]
TINY = 1e-300


class Belief:
    """Beliefs about n items in D draws, and the truth of each draw.

    Attributes:
        truth_dn: (D, n) class codes, drawn from the beliefs.
        labels_dn: (D, n) labels so far.
        confidence_dn: (D, n) probability of the most probable class.
    """

    def __init__(self, log_q0_nj: Floats, labels_n: Rows, log_pi_klj: Floats, draws: int) -> None:
        self.log_q0_dnj = np.repeat(log_q0_nj[None], draws, axis=0)
        self.labels_dn = np.repeat(labels_n[None], draws, axis=0)
        self.log_pi_klj = log_pi_klj
        self.confidence_dn = np.empty(self.labels_dn.shape)
        self.truth_dn = np.empty(self.labels_dn.shape, dtype=np.intp)

    def begin(self, rng: np.random.Generator) -> None:
        """Draw the truths, and set the confidence."""
        q_nj = self.probabilities(np.zeros(self.labels_dn.shape[1], np.intp), np.arange(self.labels_dn.shape[1]))
        self.confidence_dn[:] = q_nj.max(axis=1)
        chance = np.cumsum(q_nj, axis=1)
        u_dn = rng.random(self.labels_dn.shape)
        self.truth_dn[:] = (u_dn[:, :, None] * chance[None, :, -1:] > chance[None]).sum(axis=2)

    def update(self, d: Rows, n: Rows, k: Rows, said: Rows) -> None:
        """One answer `said` of crew member k about item n in draw d, for each of these."""
        self.log_q0_dnj[d, n] += self.log_pi_klj[k, said]
        self._remember(d, n, k)
        self.labels_dn[d, n] += 1
        self.confidence_dn[d, n] = self.probabilities(d, n).max(axis=1)

    def probabilities(self, d: Rows, n: Rows) -> Floats:
        """(., J) beliefs about these items."""
        logits = self.log_q0_dnj[d, n] / self._temperature(d, n)[:, None] + self._shift(d, n)
        p: Floats = np.exp(log_softmax(logits, axis=1))
        return p

    def _remember(self, d: Rows, n: Rows, k: Rows) -> None:
        """What else an answer of k leaves behind."""

    def _temperature(self, d: Rows, n: Rows) -> Floats:
        return np.ones(d.size)

    def _shift(self, d: Rows, n: Rows) -> Floats | float:
        return 0.0


class _Dependent(Belief):
    """As `dependence` tempers people: rho of each answer by how far its annotator tells the two best classes apart.

    They are the two best when the answer is given; with more than two classes they may be others later.
    """

    def __init__(
        self,
        log_q0_nj: Floats,
        labels_n: Rows,
        log_pi_klj: Floats,
        draws: int,
        rho_n: Floats,
        rho_kjj: Floats,
        b_j: Floats,
    ) -> None:
        super().__init__(log_q0_nj, labels_n, log_pi_klj, draws)
        self.rho_dn, self.rho_kjj, self.b_j = np.repeat(rho_n[None], draws, axis=0), rho_kjj, b_j

    def _remember(self, d: Rows, n: Rows, k: Rows) -> None:
        two = np.argpartition(self.log_q0_dnj[d, n], -2, axis=1)[:, -2:]
        self.rho_dn[d, n] += self.rho_kjj[k, two[:, 0], two[:, 1]]

    def _temperature(self, d: Rows, n: Rows) -> Floats:
        m = self.labels_dn[d, n]
        t: Floats = 1 + np.maximum(m - 1, 0) * self.rho_dn[d, n] / np.maximum(m, 1)
        return t

    def _shift(self, d: Rows, n: Rows) -> Floats:
        return np.where((self.labels_dn[d, n] > 0)[:, None], self.b_j, 0.0)


class _BesideModels(Belief):
    """As `shared_errors` tempers people and models together."""

    def __init__(
        self,
        log_q0_nj: Floats,
        labels_n: Rows,
        log_pi_klj: Floats,
        draws: int,
        spoken_n: Floats,
        rho: float,
        caution: float,
    ) -> None:
        super().__init__(log_q0_nj, labels_n, log_pi_klj, draws)
        self.spoken_n, self.rho, self.caution = spoken_n, rho, caution

    def _temperature(self, d: Rows, n: Rows) -> Floats:
        m = self.labels_dn[d, n]
        beside: Floats = np.where(self.spoken_n[n], self.caution + self.rho * m, 1 + self.rho * np.maximum(m - 1, 0))
        return beside


def belief_of(
    evidence: Evidence, consensus: Consensus, rows: Rows, pi_kjl: Floats, draws: int, rng: np.random.Generator
) -> Belief:
    """The beliefs of a consensus about these items, ready for answers of people with matrices `pi_kjl`."""
    labels_n = evidence.annotations.labels_per_item[rows].astype(np.intp)
    log_pi_klj = np.log(np.maximum(pi_kjl, TINY)).transpose(0, 2, 1)
    q_nj = np.log(np.maximum(consensus.probabilities[rows], TINY))
    correction = consensus.correction
    belief: Belief
    if correction is None:
        belief = Belief(q_nj, labels_n, log_pi_klj, draws)
    elif consensus.temperatures:
        caution, rho = shared_errors.caution_of(consensus), correction.strength
        t_n = shared_errors.temperatures(evidence, rho, caution)[rows]
        spoken_n = np.any([~np.isnan(p[rows, 0]) for p in evidence.probabilities.values()], axis=0)
        belief = _BesideModels(q_nj * t_n[:, None], labels_n, log_pi_klj, draws, spoken_n, rho, caution)
    else:
        rho_n, log_q0_nj = _of_people(evidence, consensus, correction.strength)
        kept = (log_q0_nj[rows], labels_n, log_pi_klj, draws)
        belief = _Dependent(*kept, rho_n[rows], _rho(pi_kjl, correction.strength), correction.shift)
    belief.begin(rng)
    return belief


def _of_people(evidence: Evidence, consensus: Consensus, strength: float) -> tuple[Floats, Floats]:
    """(N,) sum of rho over the labels of each item, and (N, J) log posterior under independence."""
    annotations, alpha_kjl = evidence.annotations, consensus.annotators.concentration
    pi_kjl = alpha_kjl / alpha_kjl.sum(axis=2, keepdims=True)
    log_pi_klj = np.ascontiguousarray(np.log(np.maximum(pi_kjl, TINY)).transpose(0, 2, 1))
    log_q0_nj = messages(annotations, log_pi_klj) + np.log(np.maximum(consensus.class_shares, TINY))
    delta_m = dependence.separations(annotations, log_q0_nj, pi_kjl)
    rho_m = strength * delta_m / (1 + strength * delta_m)
    return np.bincount(annotations.item, rho_m, annotations.n_items).astype(np.float64), log_q0_nj


def _rho(pi_kjl: Floats, strength: float) -> Floats:
    """(K, J, J) rho of an answer of k where these two classes are the most probable."""
    log_pi = np.log(np.maximum(pi_kjl, 1e-12))
    cross = np.einsum("kal,kbl->kab", pi_kjl, log_pi)
    own = np.einsum("kal,kal->ka", pi_kjl, log_pi)
    delta = (own[:, :, None] + own[:, None, :] - cross - cross.transpose(0, 2, 1)) / 4
    rho: Floats = strength * delta / (1 + strength * delta)
    return rho
