"""MACE (Hovy, Berg-Kirkpatrick, Vaswani & Hovy 2013): on each item an annotator either knows the answer or spams.

    z_n ~ uniform     s_nk ~ Bernoulli(1 - theta_k)      theta_k ~ Beta(skill, skill)
    l_nk = z_n if s_nk = 0      l_nk ~ Cat(xi_k) if s_nk = 1      xi_k ~ Dir(habit)

Spam is drawn from the annotator's own distribution xi_k whatever the truth, so that a constant answer is worth nothing.
Variational Bayes with q(z, s) q(theta) q(xi): with a~ = exp(E ln a), the spam indicator is summed out,

    pi_kjl   = [l = j] theta~_k + (1 - theta_k)~ xi~_kl           an annotator model of `inference.loop`
    true_k   = sum_j C_kjj theta~_k / pi_kjj                      expected number of labels that follow the truth
    spam_kl  = sum_j C_kjl - [expected true labels l]             expected number of spam labels l
    q(theta_k) = Beta(skill + true_k, skill + sum_l spam_kl),   q(xi_k) = Dir(habit + spam_k)

with C_kjl the expected counts of labels. The objective is the bound: log evidence under pi, less the divergences of
q(theta) and q(xi) from the priors, for which the paper takes 0.5 and 10. The prior of the truth stays uniform.

Departures: the paper starts several times from random values and keeps the best fit; here iterations start from the
votes. Answers that are no class ("unsure") are neither spam nor true, and carry no information. crowd-kit 1.4 has lower
accuracies, because it mixes up the annotators' xi unless annotators appear in the order of their names.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import ClassVar, Self

import numpy as np

from hitl.annotations import Annotations, Floats
from hitl.consensus import AnnotatorReport, Consensus
from hitl.evidence import Evidence
from hitl.models.annotators import confusion
from hitl.models.combiner import used_shards
from hitl.models.inference import em, uncompared, warm_start
from hitl.models.inference.engine import Shards
from hitl.models.numerics.checks import check_settings
from hitl.models.numerics.special import digamma
from hitl.models.priors.shares import Fixed, log_beta

PASS = 0.1
"""Pseudo-count, in the report, of each option that is no class, and of all classes together."""

KNOWING = "theta"
"""Name of the consensus parameter with (K,) posterior means of theta."""


@dataclass(frozen=True, eq=False)
class Spamming:
    """Posteriors of how often each annotator follows the truth, and of what they answer otherwise.

    Attributes:
        skill, habit: parameters of the priors Beta(skill, skill) and Dir(habit), > 0.
        theta_k2: (K, 2) Beta parameters: labels that follow the truth, and spam.
        xi_kj: (K, J) Dirichlet parameters of spam.
    """

    skill: float
    habit: float
    theta_k2: Floats
    xi_kj: Floats
    n_options: int

    @classmethod
    def unlearned(cls, annotations: Annotations, skill: float, habit: float) -> Self:
        """Build all annotators at the prior."""
        size = annotations.n_annotators, annotations.n_classes
        return cls(skill, habit, np.full((size[0], 2), skill), np.full(size, habit), annotations.n_options)

    @cached_property
    def _logs(self) -> tuple[Floats, Floats]:
        """Return (K, 2) and (K, J) expected logs of theta and of xi."""
        found = [digamma(alpha) - digamma(alpha.sum(axis=1, keepdims=True)) for alpha in (self.theta_k2, self.xi_kj)]
        theta_k2, xi_kj = found
        return theta_k2, xi_kj

    @cached_property
    def _parts(self) -> tuple[Floats, Floats]:
        """Return (K,) theta~, the chance of a true answer, and (K, J) the chance of each answer as spam."""
        log_theta_k2, log_xi_kj = self._logs
        return np.exp(log_theta_k2[:, 0]), np.exp(log_theta_k2[:, 1:] + log_xi_kj)

    @property
    def pi_klj(self) -> Floats:
        """(K, J, J) chance of each answer, per true class; rows of an annotator have the same sum, below 1."""
        true_k, spam_kj = self._parts
        return np.asarray(spam_kj[:, :, None] + true_k[:, None, None] * np.eye(spam_kj.shape[1]))

    @property
    def log_pi_klj(self) -> Floats:
        """(K, L, J) log chance of each answer; 0 for options that are no class."""
        n_annotators, n_classes = self.xi_kj.shape
        log_pi = np.zeros((n_annotators, self.n_options, n_classes))
        log_pi[:, :n_classes] = np.log(self.pi_klj)
        return log_pi

    def learn(self, counts_klj: Floats) -> Self:
        """Return the posteriors that maximize the bound, given expected counts (K, L, J)."""
        true_k, spam_kj = self._parts
        classes_klj = counts_klj[:, : spam_kj.shape[1]]
        true_kj = np.einsum("kjj->kj", classes_klj) * (true_k[:, None] / (true_k[:, None] + spam_kj))
        spam_kj = np.maximum(classes_klj.sum(axis=2) - true_kj, 0.0)
        theta_k2 = np.stack((true_kj.sum(axis=1), spam_kj.sum(axis=1)), axis=1) + self.skill
        return replace(self, theta_k2=theta_k2, xi_kj=spam_kj + self.habit)

    def log_density(self) -> float:
        """Return minus the divergence of the posteriors from the priors."""
        total = 0.0
        for alpha, prior, log in zip((self.theta_k2, self.xi_kj), (self.skill, self.habit), self._logs, strict=True):
            evidence = log_beta(alpha).sum() - log_beta(np.full_like(alpha, prior)).sum()
            total += evidence - ((alpha - prior) * log).sum()
        return float(total)

    def report(self, annotations: Annotations, counts_klj: Floats, share_j: Floats) -> AnnotatorReport:
        """Report annotators by the matrices of the fit, each row with the weight of its labels and of one more."""
        n_classes = self.xi_kj.shape[1]
        said_ko = np.column_stack((counts_klj[:, :n_classes].sum(axis=(1, 2)), counts_klj[:, n_classes:].sum(axis=2)))
        said_ko = (said_ko + PASS) / (said_ko + PASS).sum(axis=1, keepdims=True)
        classes_kjl = self.pi_klj.transpose(0, 2, 1)
        classes_kjl = classes_kjl / classes_kjl.sum(axis=2, keepdims=True) * said_ko[:, :1, None]
        pi_kjl = np.concatenate((classes_kjl, np.repeat(said_ko[:, None, 1:], n_classes, axis=1)), axis=2)
        seen_kj = confusion.over_options(counts_klj) + 1
        return confusion.report_of(annotations, seen_kj[:, :, None] * pi_kjl, share_j)


@dataclass(frozen=True, slots=True)
class MACE:
    """Annotators who know the answer, or spam with a distribution of their own.

    The result's `parameters["theta"]` (K,) are the probabilities that an annotator does not spam.

    Attributes:
        skill: prior pseudo-labels of each annotator that follow the truth, and as many that are spam, > 0.
        habit: prior pseudo-labels of spam per class and annotator, > 0.
        least_labels: minimum number of labels of an item to learn from it, unless its truth is known.
        tolerance: iterations stop when one gains less than this, in nats per item.

    Example:
        >>> from hitl import Annotations, Evidence, models
        >>> evidence = Evidence(Annotations.from_matrix([[0, 0, 1], [1, 1, -1], [1, 1, 0]]))
        >>> models.MACE().fit(evidence).labels.tolist()
        [0, 1, 1]
    """

    uses: ClassVar[frozenset[str]] = frozenset({"truth"})
    fits_shards: ClassVar[bool] = True

    skill: float = 0.5
    habit: float = 10.0
    least_labels: int = 1
    tolerance: float = 1e-6
    max_iterations: int = 500

    def __post_init__(self) -> None:
        check_settings(self)

    def fit(self, evidence: Evidence | Shards, *, start: Consensus | None = None) -> Consensus:
        """Maximize the bound, starting from the votes or from `start`."""
        shards = used_shards(self, evidence)
        began = time.perf_counter()
        annotations = shards.annotations
        even_j = np.full(annotations.n_classes, 1 / annotations.n_classes)
        people = Spamming.unlearned(annotations, self.skill, self.habit)
        found = uncompared.run_em(
            shards,
            Fixed(np.log(even_j)[None]),
            people,
            partial(warm_start.first_beliefs, start=start, unmet_jl=self._unmet(annotations)),
            tolerance=self.tolerance,
            max_iterations=self.max_iterations,
            least_labels=self.least_labels,
        )
        report = found.annotators.report(annotations, found.counts_klj, even_j)
        theta_k2 = found.annotators.theta_k2
        parameters = {KNOWING: theta_k2[:, 0] / theta_k2.sum(axis=1)}
        return em.concluded(self, began, shards, found, report, parameters=parameters)

    def apply(self, consensus: Consensus, evidence: Evidence) -> Consensus:
        """Predict other items, labeled by the same annotators or by new ones, who answer like the crowd's mean."""
        unmet_jl = self._unmet(evidence.annotations)
        unmet_jl = confusion.crowd_rows(consensus.annotators, evidence.annotations, unmet_jl)
        return warm_start.applied(consensus, evidence, unmet_jl)

    def _unmet(self, annotations: Annotations) -> Floats:
        """Return (J, L) confusion rows at the prior."""
        wrong = 0.5 / annotations.n_options
        return confusion.on_the_diagonal(annotations.n_classes, annotations.n_options, 0.5 + wrong, wrong)
