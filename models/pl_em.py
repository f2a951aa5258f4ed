"""P+L-EM: models' probabilities and annotators' labels become one probability for each class of each item, by EM.

Kerrigan, Smyth & Steyvers 2021, "Combining human predictions with model probabilities via confusion matrices and
calibration", appendix I. Its name on the command line is pl-em. It learns a confusion matrix for each annotator from
all items; `PL` learns it from items of known truth alone.

    z_n               true class of item n
    o_nk              answer of annotator k about item n
    p_m(z_n = j)      probability that model m gives, T_m its temperature
    pi[k, j, o]       confusion matrix of annotator k: chance of answer o if the class is j
    b[j, o]           pseudo-counts of its prior (`PL.pseudo_counts`, from `accuracy` and `off`)
    q_nj              (N, J) beliefs: probability that item n is of class j

    pool    p(z_n = j) ∝ prod_m p_m(z_n = j)^(1 / T_m), over the models that do not abstain; the class shares where
            all do. Models that err alike weigh less together (`priors.calibrated`)
    E step  q_nj ∝ p(z_n = j) prod_k pi[k, j, o_nk]                                               (eq. 3)
    M step  pi[k, j, o] ∝ b[j, o] + (sum of q_nj over the items n that k labeled o)               (eq. 28)

Two steps differ from the paper, unless the settings say otherwise (`PLEM.paper()`).

Temperatures are fitted once, before EM, with annotators who are right with one chance and whose errors are spread
evenly over the other classes (`inference.unsupervised_pool`). In the paper the M step fits them again and again
(eq. 26; `refit`). Then they drift, the further the more items there are, and EM can end at a model whose classes are
swapped.

    M step  ln T_m one Newton step nearer to the maximum of  sum_n sum_j q_nj ln p(z_n = j)  +  ln N(ln T_m)    (eq. 26)

A step in place of the maximum leaves the fixed points as they are. The sum is over all items, the prior enters once.

Items with fewer than `enough_labels` labels count in the M step with their first q_nj throughout. Otherwise a label
raises a belief, and the belief then confirms the label.

An item without labels does not count in the M step. Where the truth is known, q_nj is that truth, in the fit of the
temperatures too. The confidence is not corrected for annotators who err together, so it tends to be too high;
`DefaultCombiner` corrects it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

import numpy as np

from hitl.annotations import Floats
from hitl.consensus import Consensus
from hitl.evidence import Evidence
from hitl.models.annotators import confusion
from hitl.models.calibration.temperature import LogTemperature
from hitl.models.combiner import FittedToShards, used
from hitl.models.inference import em
from hitl.models.inference.over_shards import Beliefs, Judge, OverShards, concluded, used_of
from hitl.models.inference.passes import IN_TURN, Engine, first_of
from hitl.models.inference.pool_over_shards import OnShard, PoolOverShards
from hitl.models.inference.unsupervised_pool import unsupervised
from hitl.models.numerics import kernels
from hitl.models.numerics.checks import require_counts, require_positive
from hitl.models.pl import PL, calibrated_prior


@dataclass(frozen=True, slots=True)
class PLEM(PL):
    """Models and annotators combined by EM, with or without known truth; needs at least one model.

    Use it to compare with the paper, or where annotators err independently. `DefaultCombiner` does the same, and
    corrects the confidence.

    Attributes:
        accuracy: how often an annotator is expected to be right before any label is seen, in (0, 1).
        off: how much that expectation weighs, in labels for each wrong answer of each class, > 0; more is slower to
            learn an annotator's own errors.
        temperature: prior of each model's log temperature. The default expects exp(0.45) = 1.57: a model that is too
            sure. `LogTemperature(0.0)` expects a calibrated one.
        tolerance: EM stops when an iteration raises the log posterior by less than this, in nats an item, > 0.
        max_iterations: the most iterations, >= 1; `Consensus.fit.converged` says whether they were enough.
        refit: fit the temperatures again in every M step (eq. 26), from exp(mean) on. By default once, before EM.
        enough_labels: labels from which an item counts in every M step, >= 1; with three, annotators outvote one who is
            wrong. With fewer labels, it counts as it was believed first.

    Example:
        >>> from hitl import Annotations, Evidence
        >>> from hitl.models import PLEM
        >>> annotations = Annotations.from_matrix([[0, 1], [1, 1], [0, -1]])  # 3 items, 2 annotators, -1: no label
        >>> net = [[0.9, 0.1], [0.2, 0.8], [0.01, 0.99]]  # 3 items, 2 classes
        >>> consensus = PLEM().fit(Evidence(annotations, {"net": net}))
        >>> consensus.labels.tolist(), consensus.probabilities[2].round(2).tolist()
        ([0, 1, 1], [0.14, 0.86])
    """

    needs: ClassVar[frozenset[str]] = frozenset({"probabilities"})

    temperature: LogTemperature = LogTemperature(0.45)
    tolerance: float = 1e-6
    max_iterations: int = 200
    refit: bool = False
    enough_labels: int = 3

    def __post_init__(self) -> None:
        PL.__post_init__(self)
        require_positive(self, "tolerance")
        require_counts(self, "enough_labels", "max_iterations")

    @classmethod
    def paper(cls) -> Self:
        """As Kerrigan, Smyth & Steyvers 2021 have it (section 4 and appendix I, P+L-EM by maximum a posteriori).

        The priors of `PL.paper`. Every M step fits the temperature (eq. 26) and counts all labels (eq. 28). EM begins
        at the priors' modes; the paper prints no start.
        """
        return cls(accuracy=0.75, off=0.1, temperature=LogTemperature(0.5, 0.5), refit=True, enough_labels=1)

    def fit(self, evidence: Evidence, *, start: Consensus | None = None) -> Consensus:
        """EM from the prior's modes, or from what `start` learned. Raises BadEvidence without a model."""
        evidence = used(self, evidence)
        began = time.perf_counter()
        annotations = evidence.annotations
        pseudo_jl = self.pseudo_counts(annotations)
        people = EnteredOnce.unlearned(pseudo_jl, annotations.n_annotators)
        pool = calibrated_prior(self, evidence)
        usable = start is not None and start.classes == annotations.classes
        if not self.refit:
            pool, q_nj = unsupervised(evidence, pool)
        else:
            met = calibrated_prior(self, evidence, start if usable else None)
            pool = replace(pool, temperature_m=met.temperature_m)
            q_nj = em.expectation(evidence, pool, people.log_pi_klj).q_nj
        few = ~evidence.known & (annotations.labels_per_item < self.enough_labels)
        people = people.once(kernels.counts(annotations, q_nj, few))
        if start is not None and usable:
            log_pi_klj = np.log(confusion.confusion_from(start, annotations, pseudo_jl))
            q_nj = em.expectation(evidence, pool, log_pi_klj).q_nj
        found = em.maximise(
            evidence,
            pool,
            people,
            q_nj,
            tolerance=self.tolerance,
            max_iterations=self.max_iterations,
            least_labels=self.enough_labels,
        )
        counts_klj, pool = found.counts_klj + people.once_klj, found.prior
        report = confusion.report(annotations, counts_klj, pseudo_jl, pool.reported_shares(found.q_nj))
        return em.concluded(
            self, began, evidence, found, report, temperatures=pool.temperatures, parameters=pool.parameters
        )

    def fit_shards(
        self, shards: Sequence[Evidence], *, start: Consensus | None = None, engine: Engine = IN_TURN
    ) -> FittedToShards:
        """EM over shards; see `Shardable`."""
        began = time.perf_counter()
        shards = used_of(self, shards)
        annotations, pseudo_jl = first_of(shards).annotations, self.pseudo_counts(first_of(shards).annotations)
        people = EnteredOnce.unlearned(pseudo_jl, annotations.n_annotators)
        pools = PoolOverShards(shards, engine, self.temperature)
        pool = pools.as_learned()
        first: Beliefs
        if not self.refit:
            pool, first = pools.unsupervised()
        else:
            usable = start is not None and start.classes == annotations.classes
            pool = replace(pool, temperature_m=pools.as_learned(start if usable else None).temperature_m)
            first = Judge(pool, people.log_pi_klj, OnShard())
        people = people.once(engine.total(_Few(first, self.enough_labels), shards))
        if start is not None and start.classes == annotations.classes:
            first = Judge(pool, np.log(confusion.confusion_from(start, annotations, pseudo_jl)), OnShard())
        passes = OverShards(shards, engine, first, least_labels=self.enough_labels, at=OnShard())
        found = passes.climb(pool, people, tolerance=self.tolerance, max_iterations=self.max_iterations)
        counts_klj, pool = found.counts_klj + people.once_klj, found.prior
        judge = Judge(pool, found.annotators.log_pi_klj, OnShard())
        report = confusion.report(annotations, counts_klj, pseudo_jl, pools.reported_shares(pool, judge))
        return concluded(
            self,
            began,
            annotations,
            report,
            passes.census.labels_k,
            judge,
            objective=found.objective,
            converged=found.converged,
            temperatures=pool.temperatures,
            parameters=pool.parameters,
        )


@dataclass(frozen=True, eq=False)
class _Few:
    """Counts (K, L, J) of a shard's items with few labels, by beliefs."""

    beliefs: Beliefs
    enough_labels: int

    def __call__(self, evidence: Evidence) -> Floats:
        few = ~evidence.known & (evidence.annotations.labels_per_item < self.enough_labels)
        return kernels.counts(evidence.annotations, self.beliefs(evidence), few)


@dataclass(frozen=True, eq=False)
class EnteredOnce(confusion.Confusion):
    """Confusion matrices that some labels enter once: `once_klj` (K, L, J) counts beside the others."""

    once_klj: Floats = field(default_factory=lambda: np.zeros(()))

    def once(self, once_klj: Floats) -> Self:
        """The same, with these counts beside the others."""
        return replace(self, once_klj=once_klj).learn(np.zeros_like(once_klj))

    def learn(self, counts_klj: Floats) -> Self:
        """Posterior mode of every row."""
        return super().learn(counts_klj + self.once_klj)

    def log_density(self) -> float:
        """Log density of all rows given what entered once, up to a constant."""
        return super().log_density() + float(np.sum(self.once_klj * self.log_pi_klj))
