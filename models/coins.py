"""Coin models: an annotator is right with one probability (one coin), or with one per class (two coins).

    p(l_nk = j | z_n = j)              =  s_k a_kj                    s_k: chance that annotator k answers with a class
    p(l_nk = another class | z_n = j)  =  s_k (1 - a_kj) / (J - 1)
    p(l_nk = an option that is no class)  is the same for every j, so such an answer carries no information

    a_kj = (R_kj + r) / (R_kj + W_kj + r + w)             R, W: expected numbers of right and wrong answers

    one coin    a_kj = a_k for all classes j                                a_k  ~ Beta(r + 1, w + 1)
    two coins   a_kj free; for two classes sensitivity and specificity      a_kj ~ Beta(r + 1, w + 1)

The one-coin model is from Zhang et al. 2016 ("Spectral methods meet EM"), the two-coin model from Raykar et al. 2010,
with one accuracy per class if there are more than two. The prior expects annotators to be right more often than not.
Without it, or from a start other than the votes, EM may end with every annotator wrong and all labels reversed.

`OneCoin` and `TwoCoin` are fitted by EM, with class shares as the prior of the truth. `SP` (Kerrigan, Smyth & Steyvers
2021, section 4) is P+L with one coin per annotator, fitted to items with ground truth, so R_k and W_k are counts. Its
prior weighs as much as a confusion row of the paper's P+L for ten classes (3.6 answers). SP needs fewer items than P+L,
but cannot express that an annotator mistakes cats for dogs.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Self

import numpy as np

from hitl.annotations import Annotations, Floats
from hitl.consensus import AnnotatorReport, Consensus
from hitl.crew import EXPECTED_ACCURACY
from hitl.evidence import Evidence
from hitl.models.annotators.confusion import report_of
from hitl.models.calibration.temperature import LogTemperature
from hitl.models.combiner import concluded, used, used_shards
from hitl.models.inference import em, uncompared, warm_start
from hitl.models.inference.engine import Shards
from hitl.models.numerics import kernels
from hitl.models.numerics.checks import check_settings
from hitl.models.numerics.clamping import known_truth
from hitl.models.pl import calibrated_prior
from hitl.models.priors.shares import Shares

PASS = 0.1
"""Pseudo-count of each option that is no class, and one of all classes together."""


@dataclass(frozen=True, eq=False)
class Coins:
    """Coins of all annotators at their posterior mode.

    Attributes:
        one: True if an annotator has one coin for all classes.
        right, wrong: prior pseudo-counts r and w, > 0.
        accuracy_kj: (K, J) probability that an answer naming a class is right, in (0, 1).
        said_ko: (K, 1 + L - J) probability of answering with a class, and of each other option; rows sum to 1.
    """

    one: bool
    right: float
    wrong: float
    accuracy_kj: Floats
    said_ko: Floats

    @classmethod
    def unlearned(
        cls, annotations: Annotations, n_annotators: int, one: bool, accuracy: float, strength: float
    ) -> Coins:
        """Build coins at the mode of a prior that expects this accuracy, with the weight of `strength` answers."""
        right, size = strength * accuracy, (n_annotators, annotations.n_options, annotations.n_classes)
        return cls(one, right, strength - right, np.zeros(0), np.zeros(0)).learn(np.zeros(size))

    @property
    def first_jl(self) -> Floats:
        """(J, L) confusion matrix of the first annotator."""
        return np.asarray(np.exp(self.log_pi_klj[0]).T)

    @property
    def log_pi_klj(self) -> Floats:
        """(K, L, J) log probability of each answer."""
        n_annotators, n_classes = self.accuracy_kj.shape
        log_pi = np.empty((n_annotators, n_classes + self.said_ko.shape[1] - 1, n_classes))
        log_pi[:, :n_classes] = np.log1p(-self.accuracy_kj[:, None]) - np.log(n_classes - 1)
        j = np.arange(n_classes)
        log_pi[:, j, j] = np.log(self.accuracy_kj)
        log_pi[:, :n_classes] += np.log(self.said_ko[:, 0])[:, None, None]
        log_pi[:, n_classes:] = np.log(self.said_ko[:, 1:])[:, :, None]
        return log_pi

    def learn(self, counts_klj: Floats) -> Self:
        """Return coins at their posterior mode, given expected counts (K, L, J)."""
        n_classes = counts_klj.shape[2]
        right_kj, wrong_kj = tosses(counts_klj)
        passes_ko = counts_klj[:, n_classes:].sum(axis=2)
        said_ko = np.column_stack(((right_kj + wrong_kj).sum(axis=1), passes_ko)) + PASS
        if self.one:
            for toss_kj in (right_kj, wrong_kj):
                toss_kj[:] = toss_kj.sum(axis=1, keepdims=True)
        accuracy_kj = (right_kj + self.right) / (right_kj + wrong_kj + self.right + self.wrong)
        return replace(self, accuracy_kj=accuracy_kj, said_ko=said_ko / said_ko.sum(axis=1, keepdims=True))

    def log_density(self) -> float:
        """Return the log density of the parameters, up to a constant."""
        coin = self.accuracy_kj[:, :1] if self.one else self.accuracy_kj
        beta = self.right * np.log(coin).sum() + self.wrong * np.log1p(-coin).sum()
        return float(beta + PASS * np.log(self.said_ko).sum())

    def report(self, annotations: Annotations, counts_klj: Floats, share_j: Floats) -> AnnotatorReport:
        """Report the annotators.

        A confusion row has the weight of the answers to its coin, prior included. With one coin, these answers are
        divided among the rows by class share, so that the reported accuracy is as uncertain as the coin.
        """
        pi_kjl = np.exp(self.log_pi_klj).transpose(0, 2, 1)
        seen_kj = counts_klj.sum(axis=1)
        if self.one:
            seen_kj = (seen_kj.sum(axis=1, keepdims=True) + self.right + self.wrong) * share_j
        else:
            seen_kj = seen_kj + self.right + self.wrong
        mean_kjl = np.ascontiguousarray(pi_kjl / pi_kjl.sum(axis=2, keepdims=True))
        return report_of(annotations, seen_kj[:, :, None] * pi_kjl, share_j, pi_kjl=mean_kjl)


def tosses(counts_klj: Floats) -> tuple[Floats, Floats]:
    """Return (K, J) right and (K, J) wrong answers to items of each class; options that are no class are neither."""
    classes = counts_klj[:, : counts_klj.shape[2]]
    right_kj = np.einsum("kjj->kj", classes).copy()
    return right_kj, np.maximum(classes.sum(axis=1) - right_kj, 0.0)


@dataclass(frozen=True, slots=True)
class OneCoin:
    """One accuracy per annotator.

    Attributes:
        accuracy: expected accuracy of the annotators, in (0, 1).
        strength: weight of that expectation, in answers, > 0.
        share_smoothing: number of pseudo-items per class, > 0.
        least_labels: minimum number of labels of an item to learn from it, unless its truth is known.
        tolerance: EM stops when an iteration gains less than this, in nats per item.

    Example:
        >>> from hitl import Annotations, Evidence, models
        >>> evidence = Evidence(Annotations.from_matrix([[0, 0, 1], [1, 1, -1], [1, 1, 0]]))
        >>> models.OneCoin().fit(evidence).labels.tolist()
        [0, 1, 1]
    """

    uses: ClassVar[frozenset[str]] = frozenset({"truth"})
    fits_shards: ClassVar[bool] = True
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

    def fit(self, evidence: Evidence | Shards, *, start: Consensus | None = None) -> Consensus:
        """Run EM from the votes, or from `start`."""
        shards = used_shards(self, evidence)
        began = time.perf_counter()
        annotations = shards.annotations
        found = uncompared.run_em(
            shards,
            Shares.even(annotations.n_classes, self.share_smoothing),
            self._unlearned(annotations.n_annotators, annotations),
            partial(warm_start.first_beliefs, start=start, unmet_jl=self._unlearned(1, annotations).first_jl),
            tolerance=self.tolerance,
            max_iterations=self.max_iterations,
            least_labels=self.least_labels,
        )
        coins = found.annotators.learn(found.counts_klj)
        people = coins.report(annotations, found.counts_klj, found.prior.share_j)
        return em.concluded(self, began, shards, found, people)

    def apply(self, consensus: Consensus, evidence: Evidence) -> Consensus:
        """Predict other items with the learned parameters; new annotators follow the prior."""
        return warm_start.applied(consensus, evidence, self._unlearned(1, evidence.annotations).first_jl)

    def _unlearned(self, n_annotators: int, annotations: Annotations) -> Coins:
        return Coins.unlearned(annotations, n_annotators, self.one, self.accuracy, self.strength)


@dataclass(frozen=True, slots=True)
class TwoCoin(OneCoin):
    """One accuracy per class and annotator; with two classes these are sensitivity and specificity.

    Settings as in `OneCoin`; `strength` is in answers per class.

    Example:
        >>> from hitl import Annotations, Evidence, models
        >>> evidence = Evidence(Annotations.from_matrix([[0, 0, 1], [1, 1, -1], [1, 1, 0]]))
        >>> models.TwoCoin().fit(evidence).labels.tolist()
        [0, 1, 1]
    """

    one: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class SP:
    """P+L with one accuracy per annotator, by supervised maximum a posteriori.

    Attributes:
        accuracy: expected accuracy of the annotators, the prior's mode, in (0, 1).
        strength: weight of that expectation, in answers, > 0.
        temperature: prior of each model's log temperature.

    Example:
        >>> from hitl import Annotations, Evidence, models
        >>> annotations, net = Annotations.from_matrix([[0], [1], [1]]), [[0.9, 0.1], [0.2, 0.8], [0.3, 0.7]]
        >>> evidence = Evidence(annotations, {"net": net}, truth=[0, 1, -1])
        >>> models.SP().fit(evidence).labels.tolist()
        [0, 1, 1]
    """

    uses: ClassVar[frozenset[str]] = frozenset({"probabilities", "truth"})
    needs: ClassVar[frozenset[str]] = uses

    accuracy: float = EXPECTED_ACCURACY
    strength: float = 3.6
    temperature: LogTemperature = LogTemperature()

    def __post_init__(self) -> None:
        check_settings(self)

    def fit(self, evidence: Evidence, *, start: Consensus | None = None) -> Consensus:
        """Learn from the items with known truth, then predict all items. Raise BadEvidence without a model or truth."""
        evidence = used(self, evidence)
        began = time.perf_counter()
        annotations, known, truth_nj = evidence.annotations, evidence.known, known_truth(evidence)
        pool = calibrated_prior(self, evidence)
        pool = pool.fitted_to(pool.likelihood(truth_nj, known), kernels.totals(truth_nj, known))
        counts_klj = kernels.counts(annotations, truth_nj, known)
        people = self._unlearned(annotations.n_annotators, annotations).learn(counts_klj)
        q_nj = em.expectation(evidence, pool, people.log_pi_klj).q_nj
        report = people.report(annotations, counts_klj, pool.reported_shares(q_nj))
        return concluded(
            self, began, evidence, q_nj, report, temperatures=pool.temperatures, parameters=pool.parameters
        )

    def apply(self, consensus: Consensus, evidence: Evidence) -> Consensus:
        """Predict other items with the learned parameters; new annotators and models get the prior's mode."""
        prior = calibrated_prior(self, evidence, consensus)
        unmet_jl = self._unlearned(1, evidence.annotations).first_jl
        return warm_start.applied_under(prior, consensus, evidence, unmet_jl)

    def _unlearned(self, n_annotators: int, annotations: Annotations) -> Coins:
        return Coins.unlearned(annotations, n_annotators, True, self.accuracy, self.strength)
