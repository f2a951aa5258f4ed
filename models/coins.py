"""Coins: annotators who are right with one chance (one coin), or with one for each class (two coins), by EM.

    z_n ~ Cat(p)      l_nk = z_n with chance a_kj where z_n = j, else any other class, all alike

    one coin    a_kj = a_k for all classes j                                a_k  ~ Beta(r + 1, w + 1)
    two coins   a_kj free; for two classes sensitivity and specificity      a_kj ~ Beta(r + 1, w + 1)

    M   a_kj = (R_kj + r) / (R_kj + W_kj + r + w)      R, W expected numbers of right and of wrong answers, which the
                                                       one coin adds up over the classes
    E   as in Dawid-Skene

(One coin: the form of Zhang et al. 2016, "Spectral methods meet EM"; two coins: Raykar et al. 2010, one accuracy a
class where there are more than two.) An answer that is no class ("unsure") says nothing: an annotator gives it with
the same chance whatever the class, so that it counts neither for nor against them. The prior expects annotators to be
right; without it, or from another start than the votes, all roles may swap: every annotator wrong, all labels turned
round.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, replace
from typing import ClassVar

import numpy as np

from hitl.annotations import Annotations, Floats
from hitl.consensus import Consensus, Fit
from hitl.crew import EXPECTED_ACCURACY
from hitl.evidence import Evidence
from hitl.models.annotators.coins import Coins
from hitl.models.combiner import used
from hitl.models.inference import em, warm_start
from hitl.models.numerics.checks import require_between, require_whole
from hitl.models.priors.shares import Shares


@dataclass(frozen=True, slots=True)
class OneCoin:
    """One accuracy an annotator.

    Attributes:
        accuracy: what it is expected to be, in (0, 1), and
        strength: how many answers that expectation weighs, > 0.
        share_smoothing: pseudo-items of each class, > 0.
        least_labels: labels an item needs to count (all items are judged).
        tolerance: an iteration that gains less, in nats an item, is the last.

    Example:
        >>> from hitl import Annotations, Evidence
        >>> from hitl.models import OneCoin
        >>> evidence = Evidence(Annotations.from_matrix([[0, 0, 1], [1, 1, -1], [1, 1, 0]]))
        >>> OneCoin().fit(evidence).labels.tolist()
        [0, 1, 1]
    """

    uses: ClassVar[frozenset[str]] = frozenset({"truth"})

    accuracy: float = EXPECTED_ACCURACY
    strength: float = 9.0
    share_smoothing: float = 1.0
    least_labels: int = 1
    tolerance: float = 1e-7
    max_iterations: int = 1000

    def __post_init__(self) -> None:
        _check(self)

    def fit(self, evidence: Evidence, *, start: Consensus | None = None) -> Consensus:
        """EM from the votes, or from what `start` learned."""
        evidence = used(self, evidence)
        return _fit("one-coin", self, evidence, start)

    def apply(self, consensus: Consensus, evidence: Evidence) -> Consensus:
        """Judge other items with what was learned; annotators not met yet are as the prior expects."""
        return _apply(self, consensus, evidence)


@dataclass(frozen=True, slots=True)
class TwoCoin:
    """One accuracy a class and annotator: for two classes sensitivity and specificity.

    Settings as in `OneCoin`; `strength` is in answers a class.

    Example:
        >>> from hitl import Annotations, Evidence
        >>> from hitl.models import TwoCoin
        >>> evidence = Evidence(Annotations.from_matrix([[0, 0, 1], [1, 1, -1], [1, 1, 0]]))
        >>> TwoCoin().fit(evidence).labels.tolist()
        [0, 1, 1]
    """

    uses: ClassVar[frozenset[str]] = frozenset({"truth"})

    accuracy: float = EXPECTED_ACCURACY
    strength: float = 9.0
    share_smoothing: float = 1.0
    least_labels: int = 1
    tolerance: float = 1e-7
    max_iterations: int = 1000

    def __post_init__(self) -> None:
        _check(self)

    def fit(self, evidence: Evidence, *, start: Consensus | None = None) -> Consensus:
        """EM from the votes, or from what `start` learned."""
        evidence = used(self, evidence)
        return _fit("two-coin", self, evidence, start)

    def apply(self, consensus: Consensus, evidence: Evidence) -> Consensus:
        """Judge other items with what was learned; annotators not met yet are as the prior expects."""
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
        warm_start.first_beliefs(evidence, start, _unmet(method, annotations)),
        tolerance=method.tolerance,
        max_iterations=method.max_iterations,
        least_labels=method.least_labels,
    )
    share_j = estimate.prior.share_j
    people = estimate.annotators.learn(estimate.counts_klj).report(annotations, estimate.counts_klj, share_j)
    fit = Fit(name, asdict(method), estimate.objective, estimate.converged, time.perf_counter() - began)
    return Consensus(annotations.items, annotations.classes, estimate.q_nj, people, share_j, fit=fit)


def _apply(method: OneCoin | TwoCoin, consensus: Consensus, evidence: Evidence) -> Consensus:
    q_nj = warm_start.judged(consensus, evidence, _unmet(method, evidence.annotations))
    return consensus.judging(evidence.annotations.items, q_nj)


def _at_the_prior(method: OneCoin | TwoCoin, annotations: Annotations) -> Coins:
    right = method.strength * method.accuracy
    return Coins.unlearned(annotations, isinstance(method, OneCoin), right, method.strength - right)


def _unmet(method: OneCoin | TwoCoin, annotations: Annotations) -> Floats:
    newcomer = replace(annotations.select(np.zeros(len(annotations), bool)), annotators=("newcomer",), anonymous=None)
    unmet_jl: Floats = np.exp(_at_the_prior(method, newcomer).log_pi_klj[0]).T
    return unmet_jl
