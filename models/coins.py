"""Coins: annotators who are right with one chance (one coin), or with one per class (two coins), by EM.

    z_n ~ Cat(p)      l_nk = z_n with chance a_kj if z_n = j, else any other class with equal chance

    one coin    a_kj = a_k for all classes j                                a_k  ~ Beta(r + 1, w + 1)
    two coins   a_kj free; for two classes sensitivity and specificity      a_kj ~ Beta(r + 1, w + 1)

    M   a_kj = (R_kj + r) / (R_kj + W_kj + r + w)      R, W expected numbers of right and of wrong answers, which the
                                                       one coin adds up over the classes
    E   as in Dawid-Skene

(One coin: the form of Zhang et al. 2016, "Spectral methods meet EM"; two coins: Raykar et al. 2010, one accuracy per
class if there are more than two.) An answer that is no class ("unsure") carries no information: an annotator gives it
with the same chance whatever the class, so it counts neither for nor against them. The prior expects annotators to be
right. Without it, or from a start other than the votes, all roles may swap: every annotator wrong, all labels
reversed.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from hitl.annotations import Annotations, Floats
from hitl.consensus import Consensus
from hitl.crew import EXPECTED_ACCURACY
from hitl.evidence import Evidence
from hitl.models.annotators.coins import Coins
from hitl.models.combiner import used
from hitl.models.inference import em, warm_start
from hitl.models.numerics.checks import check_settings
from hitl.models.priors.shares import Shares


@dataclass(frozen=True, slots=True)
class OneCoin:
    """One accuracy per annotator.

    Attributes:
        accuracy: its expected value, in (0, 1).
        strength: number of answers that this expectation is worth, > 0.
        share_smoothing: pseudo-items of each class, > 0.
        least_labels: labels an item needs to count (all items are predicted).
        tolerance: EM stops at an iteration that gains less, in nats per item.

    Example:
        >>> from hitl import Annotations, Evidence, models
        >>> evidence = Evidence(Annotations.from_matrix([[0, 0, 1], [1, 1, -1], [1, 1, 0]]))
        >>> models.OneCoin().fit(evidence).labels.tolist()
        [0, 1, 1]
    """

    uses: ClassVar[frozenset[str]] = frozenset({"truth"})
    one: ClassVar[bool] = True
    """True if an annotator has one coin for all classes."""

    accuracy: float = EXPECTED_ACCURACY
    strength: float = 9.0
    share_smoothing: float = 1.0
    least_labels: int = 1
    tolerance: float = 1e-7
    max_iterations: int = 1000

    def __post_init__(self) -> None:
        check_settings(self)

    def fit(self, evidence: Evidence, *, start: Consensus | None = None) -> Consensus:
        """Run EM from the votes, or from `start`."""
        evidence = used(self, evidence)
        began = time.perf_counter()
        annotations = evidence.annotations
        found = em.run_em(
            evidence,
            Shares.even(annotations.n_classes, self.share_smoothing),
            self._unlearned(annotations.n_annotators, annotations),
            warm_start.first_beliefs(evidence, start, self._unmet(annotations)),
            tolerance=self.tolerance,
            max_iterations=self.max_iterations,
            least_labels=self.least_labels,
        )
        coins = found.annotators.learn(found.counts_klj)
        people = coins.report(annotations, found.counts_klj, found.prior.share_j)
        return em.concluded(self, began, evidence, found, people)

    def apply(self, consensus: Consensus, evidence: Evidence) -> Consensus:
        """Predict other items with the learned parameters; new annotators follow the prior."""
        return warm_start.applied(consensus, evidence, self._unmet(evidence.annotations))

    def _unlearned(self, n_annotators: int, annotations: Annotations) -> Coins:
        right = self.strength * self.accuracy
        size = n_annotators, annotations.n_options, annotations.n_classes
        return Coins.unlearned(size, self.one, right, self.strength - right)

    def _unmet(self, annotations: Annotations) -> Floats:
        """Return (J, L) expected rows of a new annotator."""
        return np.asarray(np.exp(self._unlearned(1, annotations).log_pi_klj[0]).T)


@dataclass(frozen=True, slots=True)
class TwoCoin(OneCoin):
    """One accuracy per class and annotator: for two classes sensitivity and specificity.

    Settings as in `OneCoin`; `strength` is in answers per class.

    Example:
        >>> from hitl import Annotations, Evidence, models
        >>> evidence = Evidence(Annotations.from_matrix([[0, 0, 1], [1, 1, -1], [1, 1, 0]]))
        >>> models.TwoCoin().fit(evidence).labels.tolist()
        [0, 1, 1]
    """

    one: ClassVar[bool] = False
