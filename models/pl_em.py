"""P+L-EM: combine models' probabilities and annotators' labels into one probability per class and item, by EM.

Kerrigan, Smyth & Steyvers 2021, appendix I. It learns a confusion matrix for each annotator from all items; `PL` learns
it from items with ground truth alone.

    z_n               true class of item n
    o_nk              answer of annotator k about item n
    p_m(z_n = j)      probability that model m gives, T_m its temperature
    pi[k, j, o]       confusion matrix of annotator k: chance of answer o if the class is j
    b[j, o]           pseudo-counts of its prior (`PL.pseudo_counts`, from `accuracy` and `off`)
    q_nj              (N, J) beliefs: probability that item n is of class j

    pool    p(z_n = j) ∝ prod_m p_m(z_n = j)^(1 / T_m), over the models that do not abstain; the class shares if
            all do. Models that err alike get less weight together (`priors.calibrated`)
    E step  q_nj ∝ p(z_n = j) prod_k pi[k, j, o_nk]                                               (eq. 3)
    M step  pi[k, j, o] ∝ b[j, o] + (sum of q_nj over the items n that k labeled o)               (eq. 28)

By default two steps differ from the paper (`PLEM.paper()` follows it).

Temperatures are fitted once, before EM, with a simpler annotator model: each annotator has one accuracy, and their
errors are spread evenly over the other answers (`inference.unsupervised_pool`). In the paper every M step fits
temperatures (eq. 26; `refit`). They then drift further the more items there are, and EM may end with swapped classes.

    M step  ln T_m one Newton step nearer to the maximum of  sum_n sum_j q_nj ln p(z_n = j)  +  ln N(ln T_m)    (eq. 26)

Taking one step instead of maximizing leaves the fixed points unchanged. The sum is over all items, and the prior enters
once.

Items with fewer than `enough_labels` labels always count in the M step with their first q_nj. Otherwise a label would
raise a belief, and the belief would confirm the label.

An item without labels does not count in the M step. If the truth is known, q_nj is that truth, in the fit of the
temperatures too. The confidence tends to be too high, as annotators err together; `DefaultCombiner` corrects it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Self

import numpy as np

from hitl.annotations import Floats
from hitl.consensus import Consensus
from hitl.evidence import Evidence
from hitl.models.annotators import confusion
from hitl.models.calibration.temperature import LogTemperature
from hitl.models.combiner import used_shards
from hitl.models.inference import em
from hitl.models.inference.engine import PerShard, Shards
from hitl.models.inference.model_pool import ModelPool
from hitl.models.numerics import kernels
from hitl.models.pl import PL


@dataclass(frozen=True, slots=True)
class PLEM(PL):
    """Models and annotators combined by EM, with or without ground truth; needs at least one model.

    Attributes:
        accuracy: expected accuracy of an annotator before any label is seen, in (0, 1).
        off: weight of that expectation, in labels for each wrong answer of each class, > 0.
        temperature: prior of each model's log temperature. The default expects an overconfident model.
        tolerance: EM stops when an iteration raises the log posterior by less than this, in nats per item, > 0.
        max_iterations: maximum number of iterations, >= 1.
        refit: True to fit the temperatures again in every M step (eq. 26), starting at exp(mean). By default they are
            fitted once, before EM.
        enough_labels: number of labels from which an item counts in M steps with its current belief, >= 1. With fewer
            labels it counts with its first belief.

    Example:
        >>> from hitl import Annotations, Evidence
        >>> from hitl.models import PLEM
        >>> annotations = Annotations.from_matrix([[0, 1], [1, 1], [0, -1]])  # 3 items, 2 annotators, -1: no label
        >>> net = [[0.9, 0.1], [0.2, 0.8], [0.01, 0.99]]  # 3 items, 2 classes
        >>> consensus = PLEM().fit(Evidence(annotations, {"net": net}))
        >>> consensus.labels.tolist(), consensus.probabilities[2].round(2).tolist()
        ([0, 1, 1], [0.14, 0.86])
    """

    tables: ClassVar[int] = 10
    needs: ClassVar[frozenset[str]] = frozenset({"probabilities"})

    temperature: LogTemperature = LogTemperature(0.45)
    tolerance: float = 1e-6
    max_iterations: int = 200
    refit: bool = False
    enough_labels: int = 3

    @classmethod
    def paper(cls) -> Self:
        """Return the settings of Kerrigan, Smyth & Steyvers 2021 (section 4 and appendix I, MAP).

        The priors are those of `PL.paper`. Every M step fits the temperature (eq. 26) and counts all labels (eq. 28).
        EM starts at the modes of the priors; the paper gives no start.
        """
        return cls(accuracy=0.75, off=0.1, temperature=LogTemperature(0.5, 0.5), refit=True, enough_labels=1)

    def fit(self, evidence: Evidence | Shards, *, start: Consensus | None = None) -> Consensus:
        """Run EM from the unsupervised pool (with `refit`, from the priors' modes), or from `start`.

        Raise BadEvidence without a model.
        """
        shards = used_shards(self, evidence)
        began = time.perf_counter()
        annotations, pseudo_jl = shards.annotations, self.pseudo_counts(shards.annotations)
        start = start if start is not None and start.classes == annotations.classes else None
        pools = ModelPool(shards, self.temperature)
        people = confusion.Confusion.unlearned(pseudo_jl, annotations.n_annotators)
        first: em.Beliefs
        if not self.refit:
            pool, first = pools.unsupervised()
        else:
            pool = replace(pools.unlearned(), temperature_m=pools.unlearned(start).temperature_m)
            first = partial(em.judge, prior=pool, log_pi_klj=people.log_pi_klj, prior_on=pools.on)
        fixed_klj = shards.total(partial(_counts_of_few, beliefs=first, enough_labels=self.enough_labels))
        if start is not None:
            log_pi_klj = np.log(confusion.confusion_from(start, annotations, pseudo_jl))
            first = partial(em.judge, prior=pool, log_pi_klj=log_pi_klj, prior_on=pools.on)
        found = em.run_em(
            shards,
            pool,
            confusion.Confusion.expected(pseudo_jl.T + fixed_klj),
            first,
            tolerance=self.tolerance,
            max_iterations=self.max_iterations,
            least_labels=self.enough_labels,
            prior_on=pools.on,
        )
        counts_klj, pool = found.counts_klj + fixed_klj, found.prior
        judge = partial(em.judge, prior=pool, log_pi_klj=found.annotators.log_pi_klj, prior_on=pools.on)
        share_j = pools.reported_shares(pool, PerShard(judge, shards.table, found.q_nj))
        report = confusion.report(annotations, counts_klj, pseudo_jl, share_j)
        kept = {"temperatures": pool.temperatures, "parameters": pool.parameters}
        return em.concluded(self, began, shards, found, report, **kept)


def _counts_of_few(evidence: Evidence, beliefs: em.Beliefs, enough_labels: int) -> Floats:
    """Return label counts (K, L, J), by beliefs, of a shard's items without ground truth with too few labels."""
    few = ~evidence.known & (evidence.annotations.labels_per_item < enough_labels)
    return kernels.counts(evidence.annotations, beliefs(evidence), few)
