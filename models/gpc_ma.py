"""GPC-MA: Gaussian process classification with multiple annotators (Rodrigues, Pereira & Ribeiro 2014).

    f ~ GP(0, k)        p(z_n = 1) = Phi(f(x_n))        l_nk | z_n ~ confusion matrix of annotator k

    E   expectation propagation over the labeled items; q_nj from each item's cavity and its own labels (`priors.gp`)
    M   confusion matrices at their posterior mode from q_nj (eqs. 8, 10); the kernel's scale and lengths

Features tie items together: evidence about one item counts for all similar ones, labeled or not. With more than two
classes, each class is a question of its own, class against rest (`inference.latent_classes`), with its own process,
sensitivities and specificities.

Sensitivity and specificity have the prior Beta(right, wrong); with more than two classes wrong answers are spread
evenly. Without this prior, a few labels could also be explained by every annotator being wrong.

The baselines (section 4.1) are Gaussian process classifiers without an annotator model. They predict from features
alone:

    gpc-gold            learns from ground truth alone
    gpc-majority        treats the majority label of an item as its truth, shared equally among ties
    gpc-concatenated    treats every label as the truth of a separate item with the same features

NumPy and SciPy each bring a BLAS with its own threads. While the threads of one wait, they spin on the processors that
the other needs, so small problems are fitted with one thread. (On two cores, two threads took six times as long as one
for 250 items, twice as long for 700, and equally long for 1,500.)
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, TypeVar

import numpy as np
from threadpoolctl import threadpool_limits

from hitl.annotations import Annotations, Floats
from hitl.consensus import AnnotatorReport, Consensus
from hitl.evidence import Evidence
from hitl.models.annotators import confusion
from hitl.models.annotators.leave_one_out import counts_by_others
from hitl.models.combiner import BELIEFS, TABLES, array_bytes, concluded, require_given, used
from hitl.models.inference import em, latent_classes
from hitl.models.inference.latent_classes import LatentClasses, Scaling
from hitl.models.inference.warm_start import require_same_classes
from hitl.models.majority import report_of_votes
from hitl.models.numerics import kernels
from hitl.models.numerics.checks import check_settings
from hitl.models.numerics.clamping import messages
from hitl.models.numerics.votes import shares, voted
from hitl.models.priors import TruthPrior
from hitl.models.priors.gp import GaussianProcess, Process, beliefs
from hitl.models.priors.shares import Fixed

THREADS_FROM = 1500
"""Minimum number of labeled items at which several BLAS threads pay off."""

P = TypeVar("P", bound=TruthPrior)


@dataclass(frozen=True, eq=False, slots=True)
class Question:
    """Evidence about one class against the rest.

    `observed_nj` (N, 2): how often the rest and the class were observed as an item's truth; None: by labels alone.
    """

    evidence: Evidence
    observed_nj: Floats | None = None


@dataclass(frozen=True, eq=False, slots=True)
class Answered:
    """Fit of one question; `q_n` (N,) are probabilities that the items are of the class."""

    q_n: Floats
    process: Process
    estimate: em.EMResult[GaussianProcess, confusion.Confusion]


@dataclass(frozen=True, slots=True)
class ProcessMethod(ABC):
    """Settings, fit and apply of methods with a Gaussian process."""

    uses: ClassVar[frozenset[str]] = frozenset({"features", "truth"})
    needs: ClassVar[frozenset[str]] = frozenset({"features"})
    by_labels: ClassVar[bool] = False
    """True if predictions use an item's own labels, in addition to its features."""

    ard: bool = False
    tolerance: float = 1e-4
    max_iterations: int = 100

    def memory(self, evidence: Evidence) -> int:
        """Estimate the bytes that a fit takes at its peak: covariances of the items for each class."""
        covariances = 8 * evidence.annotations.n_items**2 * (8 + 2.5 * evidence.annotations.n_classes)
        return int(covariances) + array_bytes(evidence.annotations, TABLES, BELIEFS)

    def __post_init__(self) -> None:
        check_settings(self)

    @abstractmethod
    def question(self, evidence: Evidence, j: int) -> Question:
        """Build the question about class j."""

    @abstractmethod
    def pseudo_counts(self, annotations: Annotations) -> Floats:
        """Return (J, L) prior pseudo-counts of confusion rows."""

    @abstractmethod
    def report(self, evidence: Evidence, q_nj: Floats, found: Sequence[Answered]) -> AnnotatorReport:
        """Report the annotators."""

    @property
    def counts(self) -> em.Counts:
        """Function that counts annotators' labels by beliefs."""
        return em.counts_by_all

    def fit(self, evidence: Evidence, *, start: Consensus | None = None) -> Consensus:
        """Fit from the votes, or from `start`. Raise BadEvidence without features."""
        evidence = used(self, evidence)
        began = time.perf_counter()
        assert evidence.features is not None
        annotations = evidence.annotations
        learned = None if start is None else LatentClasses.matching(start, evidence)
        scaling = Scaling.of(evidence.features) if learned is None else learned.scaling
        x_nd = scaling(evidence.features)
        asked = latent_classes.asked(annotations.n_classes)
        said = float(len(annotations) + evidence.known.sum())
        few = em.informative(evidence, 1).sum() < THREADS_FROM
        with threadpool_limits(1 if few else None, user_api="blas"):
            found = [self._answered(evidence, x_nd, q, j, learned) for q, j in enumerate(asked)]
        q_nj = latent_classes.joined(np.stack([one.q_n for one in found]), evidence)
        latent_qxn = np.stack([np.stack(one.process.marginals(x_nd)) for one in found])
        kept = LatentClasses.of_processes(
            scaling,
            [one.process for one in found],
            [one.estimate.annotators.learn(one.estimate.counts_klj).log_pi_klj for one in found],
            learned.learned_from if learned is not None and learned.is_held(said) else said,
        )
        return concluded(
            self,
            began,
            evidence,
            q_nj,
            self.report(evidence, q_nj, found),
            objective=_summed([one.estimate.objective for one in found]),
            converged=all(one.estimate.converged for one in found),
            parameters=kept.parameters(latent_qxn),
        )

    def apply(self, consensus: Consensus, evidence: Evidence) -> Consensus:
        """Predict other items from their features and, if the method uses them, their labels, without refitting.

        If an item was part of the fit (same name and features), its earlier labels are left out: none counts twice.
        """
        require_given(self, evidence, frozenset({"features"}))
        require_same_classes(consensus, evidence)
        assert evidence.features is not None
        annotations = evidence.annotations
        learned = LatentClasses.of(consensus, evidence)
        x_nd = learned.scaling(evidence.features)
        latent_qxn = np.stack([learned.latent(q, x_nd) for q in range(len(learned.theta_qp))])
        q_qn = np.stack(
            [
                self._judged(evidence, learned, q, j, latent_qxn[q])
                for q, j in enumerate(latent_classes.asked(annotations.n_classes))
            ]
        )
        judged = consensus.judging(annotations.items, latent_classes.joined(q_qn, evidence))
        return replace(judged, parameters=learned.parameters(latent_qxn))

    def _answered(self, evidence: Evidence, x_nd: Floats, q: int, j: int, learned: LatentClasses | None) -> Answered:
        asked = self.question(evidence, j)
        annotators = self._annotators(evidence.annotations, j, evidence.annotations.n_annotators)
        prior = GaussianProcess.unlearned(x_nd, self.ard, asked.observed_nj)
        q_nj = latent_classes.column(voted(evidence), j)
        if learned is not None:
            said = float(len(evidence.annotations) + evidence.known.sum())
            prior = replace(learned.resumed(q, prior), held=learned.is_held(said))
            log_answers_klj = learned.log_answers(q, evidence.annotations, self._unmet(evidence.annotations, j))
            begun = em.expectation(asked.evidence, replace(prior, sweeps=1), log_answers_klj)
            prior, q_nj = replace(prior, sites=begun.statistics.sites), begun.q_nj
        least_labels = int(self.by_labels)

        def climbed(prior: P, q_nj: Floats) -> em.EMResult[P, confusion.Confusion]:
            return em.run_em(
                asked.evidence,
                prior,
                annotators,
                q_nj,
                tolerance=self.tolerance,
                max_iterations=self.max_iterations,
                least_labels=least_labels,
                counts=self.counts,
            )

        if learned is None and self.by_labels:  # a fit without features is cheap and saves iterations with features
            q_nj = climbed(Fixed(np.zeros((1, 2))), q_nj).q_nj
        estimate = climbed(prior, q_nj)
        process: Process = estimate.statistics.settled()
        if not self.by_labels:
            return Answered(_chance(np.stack(process.marginals(x_nd))), process, estimate)
        message_nj = messages(asked.evidence, estimate.annotators.log_pi_klj)
        q_n = beliefs(message_nj, *process.cavities(x_nd))[:, 1]
        return Answered(q_n, process, estimate)

    def _judged(self, evidence: Evidence, learned: LatentClasses, q: int, j: int, latent_xn: Floats) -> Floats:
        """Return (N,) beliefs that the items are of class j."""
        if not self.by_labels:
            return _chance(latent_xn)
        asked = latent_classes.question(evidence, j)
        log_answers_klj = learned.log_answers(q, evidence.annotations, self._unmet(evidence.annotations, j))
        message_nj = messages(asked, log_answers_klj)
        return beliefs(message_nj, *learned.without_own(q, latent_xn))[:, 1]

    def _annotators(self, annotations: Annotations, j: int, n_annotators: int) -> confusion.Confusion:
        """Return annotators' confusion rows for a question, at the prior's mode."""
        pseudo_jl = latent_classes.collapsed(self.pseudo_counts(annotations), annotations, j)
        return confusion.Confusion.unlearned(pseudo_jl, n_annotators)

    def _unmet(self, annotations: Annotations, j: int) -> Floats:
        """Return (L', 2) log probabilities of the answers of an annotator without labels."""
        return np.asarray(self._annotators(annotations, j, 1).log_pi_klj[0])


@dataclass(frozen=True, slots=True)
class GPCMA(ProcessMethod):
    """Gaussian process classification with multiple annotators.

    Time grows with the cube of the number of labeled items: a thousand take seconds per class, several thousand take
    minutes.

    Attributes:
        ard: True for one length scale per feature (automatic relevance determination) instead of one for all.
        tolerance: iterations stop when one gains less than this, in nats per item.
        right, wrong: prior Beta(right, wrong) of sensitivities and specificities, both > 1.
        leave_one_out: True to score each label by all evidence about the item except that label. Use it in active
            learning, where annotators are chosen by their estimated skill.

    Example:
        >>> from hitl import Annotations, Evidence, models
        >>> annotations = Annotations.from_matrix([[0, 0], [1, 1], [0, -1], [-1, -1]])
        >>> evidence = Evidence(annotations, features=[[0.0], [5.0], [0.5], [5.5]])
        >>> models.GPCMA().fit(evidence).labels.tolist()
        [0, 1, 0, 1]
    """

    by_labels: ClassVar[bool] = True

    right: float = 8.0
    wrong: float = 3.0
    leave_one_out: bool = False

    @property
    def counts(self) -> em.Counts:
        """Function that counts annotators' labels by beliefs; with `leave_one_out`, these exclude the own label."""
        return counts_by_others if self.leave_one_out else em.counts_by_all

    def question(self, evidence: Evidence, j: int) -> Question:
        """Build the question about class j, with the annotators' labels as answers."""
        return Question(latent_classes.question(evidence, j))

    def pseudo_counts(self, annotations: Annotations) -> Floats:
        """Return (J, L) the Beta parameters minus 1, where the wrong answers of a row share theirs equally."""
        j, options = annotations.n_classes, annotations.n_options
        return confusion.on_the_diagonal(j, options, self.right - 1, (self.wrong - 1) / (options - 1))

    def report(self, evidence: Evidence, q_nj: Floats, found: Sequence[Answered]) -> AnnotatorReport:
        """Report confusion matrices counted by the beliefs over all classes; with two classes, those of the fit."""
        annotations, pseudo_jl = evidence.annotations, self.pseudo_counts(evidence.annotations)
        if annotations.n_classes == 2:
            counts_klj = found[0].estimate.counts_klj
        else:
            everything = np.ones(len(q_nj), bool)
            by_all = confusion.posterior_mode(kernels.counts(annotations, q_nj), pseudo_jl)
            counts_klj = self.counts(evidence, q_nj, everything, np.log(by_all))
        return confusion.report(annotations, counts_klj, pseudo_jl, shares(q_nj))


@dataclass(frozen=True, slots=True)
class TruthfulLabels(ProcessMethod, ABC):
    """Classifier that treats labels as the truth, or ignores them."""

    @abstractmethod
    def seen(self, annotations: Annotations) -> Floats:
        """Return (N, J) how often each class was observed as the truth of an item."""

    def question(self, evidence: Evidence, j: int) -> Question:
        """Build the question about class j, with the items' labels or ground truth as observations."""
        annotations = evidence.annotations
        seen_nj = np.where(evidence.known[:, None], 0.0, self.seen(annotations))
        yes_or_no = latent_classes.question(evidence, j)
        none = yes_or_no.annotations.select(np.zeros(len(annotations), dtype=bool))
        observed_nj = np.stack((seen_nj.sum(axis=1) - seen_nj[:, j], seen_nj[:, j]), axis=1)
        return Question(Evidence(none, truth=yes_or_no.truth), observed_nj)

    def pseudo_counts(self, annotations: Annotations) -> Floats:
        """Return (J, L) ones: nothing is learned about annotators."""
        return confusion.even_pseudo_counts(annotations.n_classes, annotations.n_options, 1.0)

    def report(self, evidence: Evidence, q_nj: Floats, found: Sequence[Answered]) -> AnnotatorReport:
        """Report how often each annotator agrees with the classifier."""
        return report_of_votes(evidence.annotations, q_nj)


@dataclass(frozen=True, slots=True)
class GPCGold(TruthfulLabels):
    """Gaussian process classifier that learns from items with ground truth and ignores labels. Settings as in `GPCMA`.

    Example:
        >>> from hitl import Annotations, Evidence, models
        >>> no_labels = Annotations.from_matrix([[-1], [-1], [-1]], classes=["a", "b"])
        >>> evidence = Evidence(no_labels, features=[[0.0], [5.0], [4.5]], truth=[0, 1, -1])
        >>> models.GPCGold().fit(evidence).labels.tolist()
        ['a', 'b', 'b']
    """

    needs: ClassVar[frozenset[str]] = frozenset({"features", "truth"})

    def memory(self, evidence: Evidence) -> int:
        """Estimate the bytes that a fit takes at its peak: covariances of the items with ground truth."""
        known, n_items = int(evidence.known.sum()), evidence.annotations.n_items
        covariances = 8 * known * (known * (8 + 2.5 * evidence.annotations.n_classes) + n_items)
        return int(covariances) + array_bytes(evidence.annotations, TABLES, BELIEFS)

    def seen(self, annotations: Annotations) -> Floats:
        """Return zeros."""
        return np.zeros((annotations.n_items, annotations.n_classes))


@dataclass(frozen=True, slots=True)
class GPCMajority(TruthfulLabels):
    """Gaussian process classifier that learns from majority labels. Settings as in `GPCMA`.

    Example:
        >>> from hitl import Annotations, Evidence, models
        >>> annotations = Annotations.from_matrix([[0, 0, 1], [1, 1, -1], [-1, -1, -1]])
        >>> evidence = Evidence(annotations, features=[[0.0], [5.0], [4.5]])
        >>> models.GPCMajority().fit(evidence).labels.tolist()
        [0, 1, 1]
    """

    def seen(self, annotations: Annotations) -> Floats:
        """Return 1 for the class with most labels, shared equally among ties."""
        votes_nj = kernels.votes(annotations)
        top_nj = ((votes_nj > 0) & (votes_nj == votes_nj.max(axis=1, keepdims=True))).astype(float)
        return np.asarray(top_nj / np.maximum(top_nj.sum(axis=1, keepdims=True), 1.0))


@dataclass(frozen=True, slots=True)
class GPCConcatenated(TruthfulLabels):
    """Gaussian process classifier that learns from all labels, each treated as the truth. Settings as in `GPCMA`.

    Example:
        >>> from hitl import Annotations, Evidence, models
        >>> annotations = Annotations.from_matrix([[0, 0, 1], [1, 1, -1], [-1, -1, -1]])
        >>> evidence = Evidence(annotations, features=[[0.0], [5.0], [4.5]])
        >>> models.GPCConcatenated().fit(evidence).labels.tolist()
        [0, 1, 1]
    """

    def seen(self, annotations: Annotations) -> Floats:
        """Return the number of labels of each class."""
        return kernels.votes(annotations)


def _chance(latent_xn: Floats) -> Floats:
    """Return (N,) Phi(mean / sqrt(1 + variance))."""
    return beliefs(np.zeros((latent_xn.shape[1], 2)), *latent_xn)[:, 1]


def _summed(traces: Sequence[tuple[float, ...]]) -> tuple[float, ...]:
    """Return the sum of the objectives after each iteration; a question that has ended keeps its last value."""
    longest = max(map(len, traces))
    return tuple(np.sum([[*trace, *trace[-1:] * (longest - len(trace))] for trace in traces], axis=0).tolist())
