"""Coins: annotators who are right with one chance (one coin), or with one for each class (two coins), by EM.

    z_n ~ Cat(p)      l_nk = z_n with chance a_kj where z_n = j, else any other class, all alike

    one coin    a_kj = a_k for all classes j                                a_k  ~ Beta(r + 1, w + 1)
    two coins   a_kj free; for two classes sensitivity and specificity      a_kj ~ Beta(r + 1, w + 1)

    M   a_kj = (R_kj + r) / (R_kj + W_kj + r + w)      R, W expected numbers of right and of wrong answers, which the
                                                       one coin adds up over the classes
    E   as in Dawid-Skene

(One coin: the form of Zhang et al. 2016, "Spectral methods meet EM"; two coins: Raykar et al. 2010, one accuracy a
class where there are more than two.) An answer that is no class ("unsure") says nothing: an annotator gives it with
the same chance whatever the class, so that it counts neither for nor against them. The prior expects people to be
right; without it, or from another start than the votes, all roles may swap: everybody wrong, all labels turned round.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, replace
from typing import Self

import numpy as np

from hitl.annotations import Annotations, Floats
from hitl.consensus import AnnotatorReport, Consensus, Fit
from hitl.evidence import Evidence
from hitl.models import em, warm_start
from hitl.models.checks import require_between, require_whole
from hitl.models.priors.shares import Shares

PASS = 0.1
"""Pseudo-count of each answer that is no class, and of giving one that is."""


@dataclass(frozen=True, eq=False)
class Coins:
    """Everybody's coins at their posterior mode.

    Attributes:
        one: whether an annotator has one coin for all classes.
        right, wrong: pseudo-counts r and w, > 0.
        accuracy_kj: (K, J) chance of the right class among answers that are a class, in (0, 1).
        said_ko: (K, 1 + L - J) chance of an answer that is a class, and of each other option; rows sum to 1.
    """

    one: bool
    right: float
    wrong: float
    accuracy_kj: Floats
    said_ko: Floats

    @classmethod
    def unlearned(cls, annotations: Annotations, one: bool, right: float, wrong: float) -> Coins:
        """Everybody at the prior's mode."""
        size = annotations.n_annotators, annotations.n_options, annotations.n_classes
        return cls(one, right, wrong, np.zeros(0), np.zeros(0)).learn(np.zeros(size))

    @property
    def log_pi_klj(self) -> Floats:
        """(K, L, J) log chance of each answer."""
        n_annotators, n_classes = self.accuracy_kj.shape
        log_pi = np.empty((n_annotators, n_classes + self.said_ko.shape[1] - 1, n_classes))
        log_pi[:, :n_classes] = np.log1p(-self.accuracy_kj[:, None]) - np.log(n_classes - 1)
        j = np.arange(n_classes)
        log_pi[:, j, j] = np.log(self.accuracy_kj)
        log_pi[:, :n_classes] += np.log(self.said_ko[:, 0])[:, None, None]
        log_pi[:, n_classes:] = np.log(self.said_ko[:, 1:])[:, :, None]
        return log_pi

    def learn(self, counts_klj: Floats) -> Self:
        """Posterior modes given expected counts."""
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
        """Log density of all coins, up to a constant; one coin counts once."""
        coin = self.accuracy_kj[:, :1] if self.one else self.accuracy_kj
        beta = self.right * np.log(coin).sum() + self.wrong * np.log1p(-coin).sum()
        return float(beta + PASS * np.log(self.said_ko).sum())

    def report(self, annotations: Annotations, counts_klj: Floats, share_j: Floats) -> AnnotatorReport:
        """What the fit says of the annotators.

        A row of a confusion matrix weighs as many answers as its coin has seen. What one coin has seen is divided
        among the rows by class share, so that the accuracy is as uncertain as the coin.
        """
        pi_kjl = np.exp(self.log_pi_klj).transpose(0, 2, 1)
        seen_kj = counts_klj.sum(axis=1)
        if self.one:
            seen_kj = (seen_kj.sum(axis=1, keepdims=True) + self.right + self.wrong) * share_j
        else:
            seen_kj = seen_kj + self.right + self.wrong
        return AnnotatorReport(
            names=annotations.annotators,
            classes=annotations.classes,
            options=annotations.options,
            concentration=np.ascontiguousarray(seen_kj[:, :, None] * pi_kjl),
            confusion=np.ascontiguousarray(pi_kjl / pi_kjl.sum(axis=2, keepdims=True)),
            labels=annotations.labels_per_annotator,
            shares=share_j,
        )


def tosses(counts_klj: Floats) -> tuple[Floats, Floats]:
    """(K, J) right and (K, J) wrong answers for items of each class; answers that are no class are neither."""
    classes = counts_klj[:, : counts_klj.shape[2]]
    right_kj = np.einsum("kjj->kj", classes).copy()
    return right_kj, np.maximum(classes.sum(axis=1) - right_kj, 0.0)


@dataclass(frozen=True, slots=True)
class OneCoin:
    """One accuracy an annotator.

    Attributes:
        accuracy: what it is expected to be, in (0, 1), and
        strength: how many answers that expectation weighs, > 0.
        share_smoothing: pseudo-items of each class, > 0.
        least_labels: labels an item needs to teach (all items are judged).
        tolerance: an iteration that gains less, in nats an item, is the last.
    """

    accuracy: float = 0.75
    strength: float = 9.0
    share_smoothing: float = 1.0
    least_labels: int = 1
    tolerance: float = 1e-7
    max_iterations: int = 1000

    def __post_init__(self) -> None:
        _check(self)

    def fit(self, evidence: Evidence, *, start: Consensus | None = None) -> Consensus:
        """EM from the votes, or from what `start` learned."""
        return _fit("one-coin", self, evidence, start)

    def apply(self, consensus: Consensus, evidence: Evidence) -> Consensus:
        """Judge other items with what was learned; people not met yet are as the prior expects."""
        return _apply(self, consensus, evidence)


@dataclass(frozen=True, slots=True)
class TwoCoin:
    """One accuracy a class and annotator: for two classes sensitivity and specificity.

    Settings as in `OneCoin`; `strength` is in answers a class.
    """

    accuracy: float = 0.75
    strength: float = 9.0
    share_smoothing: float = 1.0
    least_labels: int = 1
    tolerance: float = 1e-7
    max_iterations: int = 1000

    def __post_init__(self) -> None:
        _check(self)

    def fit(self, evidence: Evidence, *, start: Consensus | None = None) -> Consensus:
        """EM from the votes, or from what `start` learned."""
        return _fit("two-coin", self, evidence, start)

    def apply(self, consensus: Consensus, evidence: Evidence) -> Consensus:
        """Judge other items with what was learned; people not met yet are as the prior expects."""
        return _apply(self, consensus, evidence)


def _check(method: OneCoin | TwoCoin) -> None:
    require_between("accuracy", method.accuracy, 0, 1)
    for setting in ("strength", "share_smoothing", "tolerance"):
        require_between(setting, getattr(method, setting), 0)
    require_whole("max_iterations", method.max_iterations, 1)
    require_whole("least_labels", method.least_labels, 1)


def _fit(name: str, method: OneCoin | TwoCoin, evidence: Evidence, start: Consensus | None) -> Consensus:
    began = time.perf_counter()
    annotations = evidence.annotations
    estimate = em.maximise(
        evidence,
        Shares.even(annotations.n_classes, method.share_smoothing),
        _at_the_prior(method, annotations),
        warm_start.first_beliefs(evidence, start, _strangers(method, annotations)),
        tolerance=method.tolerance,
        max_iterations=method.max_iterations,
        least_labels=method.least_labels,
    )
    share_j = estimate.prior.share_j
    people = estimate.people.learn(estimate.counts_klj).report(annotations, estimate.counts_klj, share_j)
    fit = Fit(name, asdict(method), estimate.objective, estimate.converged, time.perf_counter() - began)
    return Consensus(annotations.items, annotations.classes, estimate.q_nj, people, share_j, fit=fit)


def _apply(method: OneCoin | TwoCoin, consensus: Consensus, evidence: Evidence) -> Consensus:
    q_nj = warm_start.judged(consensus, evidence, _strangers(method, evidence.annotations))
    return consensus.judging(evidence.annotations.items, q_nj)


def _at_the_prior(method: OneCoin | TwoCoin, annotations: Annotations) -> Coins:
    right = method.strength * method.accuracy
    return Coins.unlearned(annotations, isinstance(method, OneCoin), right, method.strength - right)


def _strangers(method: OneCoin | TwoCoin, annotations: Annotations) -> Floats:
    somebody = replace(annotations.select(np.zeros(len(annotations), bool)), annotators=("somebody",), anonymous=None)
    stranger_jl: Floats = np.exp(_at_the_prior(method, somebody).log_pi_klj[0]).T
    return stranger_jl
