"""The pool of all models over shards, with or without ground truth; `unsupervised_pool` has the equations."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Self

import numpy as np
import numpy.typing as npt

from hitl.annotations import Annotations, Floats, Ints
from hitl.consensus import Consensus
from hitl.evidence import Evidence
from hitl.models.calibration.temperature import Likelihood, LogTemperature
from hitl.models.inference import unsupervised_pool
from hitl.models.inference.em import Beliefs
from hitl.models.inference.engine import Additive, Rows, Shards, Table
from hitl.models.inference.unsupervised_pool import Part, Weigh
from hitl.models.numerics import kernels
from hitl.models.numerics.clamping import known_truth
from hitl.models.priors.calibrated import (
    Calibrated,
    ModelOutputs,
    OutputsSeen,
    PoolOn,
    labels_used,
    pool_on,
    read_outputs,
)


class ModelPool:
    """Pool of all models, over no items, learned over shards.

    Attributes:
        census: counts over all items.
        on: function that applies the pool to a shard's items.
    """

    def __init__(self, shards: Shards, prior: LogTemperature) -> None:
        self._shards, self._prior = shards, prior
        self.census: PoolCensus = shards.total(PoolCensus.of)
        read = partial(read_outputs, models=shards.models, outputs=self._outputs)
        self.on: PoolOn = partial(pool_on, read=shards.once(read))

    @property
    def _outputs(self) -> ModelOutputs:
        return self.census.outputs.read(self.census.used_j > 0)

    def unlearned(self, learned: Consensus | None = None) -> Calibrated:
        """Return the pool at the prior's mode, or with the temperatures of a consensus."""
        return Calibrated.without_items(self._shards.models, self._outputs, self._prior, learned)

    def supervised(self, total_j: Floats) -> Calibrated:
        """Learn from items with ground truth; `total_j` (J,) counts them per class."""
        pool = self.unlearned()
        return pool.fitted_to(self._shards.total(partial(_known, pool=pool, on=self.on)), total_j)

    def unsupervised(self, weigh: Weigh | None = None) -> tuple[Calibrated, Beliefs]:
        """Learn the pool without truth. Also return the beliefs of a shard by this pool and annotators who err evenly.

        Ground truth, if any, improve the pool, but do not replace these beliefs. `weigh` does steps 1 and 2 of
        `unsupervised_pool`; default: `weights_by`.
        """
        pool, annotations, census = self.unlearned(), self._shards.annotations, self.census
        if not census.informative:
            found = pool.at(pool.temperature_m, pool.correlation_mm)
            accuracy_k = unsupervised_pool.unmet(annotations.n_annotators)
        else:
            labeled = self._sample(pool, census.informative, True)
            predicted = partial(self._sample, pool, census.predicted, False)
            weights = (weigh or unsupervised_pool.weights_by)(labeled, predicted, pool.prior)
            found, accuracy_k = unsupervised_pool.tempered(pool, labeled.predicts_nm, weights), weights.accuracy_k
            if census.known:
                known = self._shards.total(partial(_known_outputs, pool=found, on=self.on))
                found = unsupervised_pool.by_truth(found, known)
        log_pi_klj = unsupervised_pool.even_errors(annotations, accuracy_k)
        return found, partial(_by_even_errors, pool=found, on=self.on, log_pi_klj=log_pi_klj)

    def reported_shares(self, pool: Calibrated, beliefs: Beliefs) -> Floats:
        """Return (J,) `Calibrated.reported_shares` for these beliefs."""
        abstained = bool(self.census.abstained)
        return pool.shares_by(abstained, np.zeros(0) if abstained else self._shards.total(partial(_total, of=beliefs)))

    def _sample(self, pool: Calibrated, items: int, labeled: bool) -> Part:
        """Sample items to learn from if `labeled`, else predicted items; `items`: their number in all shards."""
        found: Sample = self._shards.total(partial(_sampled, pool=pool, on=self.on, items=items, labeled=labeled))
        return found.part(self._shards.annotations)


def unsupervised(evidence: Evidence, prior: LogTemperature, weigh: Weigh | None = None) -> tuple[Calibrated, Floats]:
    """Learn the pool of a table. Also return the beliefs (N, J) of `ModelPool.unsupervised`."""
    pools = ModelPool(Table(evidence), prior)
    found, beliefs = pools.unsupervised(weigh)
    return pools.on(found, evidence), beliefs(evidence)


@dataclass(frozen=True, eq=False)
class PoolCensus(Additive):
    """Counts over all items that a pool needs.

    Attributes:
        outputs: counts over the predictions.
        used_j: (J,) how often each class is a label or ground truth.
        abstained: number of items on which all models abstain.
        known: number of items with ground truth that a model predicts.
        informative: number of items to learn from: a model predicts them, and they have a label or ground truth.
        predicted: number of items that a model predicts.
    """

    outputs: OutputsSeen
    used_j: npt.NDArray[np.int64]
    abstained: int
    known: int
    informative: int
    predicted: int

    @classmethod
    def of(cls, evidence: Evidence) -> Self:
        """Count one shard."""
        predicted_n = evidence.predicted
        outputs = OutputsSeen.of(tuple(evidence.probabilities), evidence.probabilities)
        masks = ~predicted_n, evidence.known & predicted_n, unsupervised_pool.informative(evidence), predicted_n
        return cls(outputs, labels_used(evidence), *(int(mask_n.sum()) for mask_n in masks))


@dataclass(frozen=True, eq=False)
class Sample(Rows):
    """Sample of items.

    Attributes:
        labels_n: (n,) number of labels per item.
        annotator_m, label_m: (m,) annotator and answer of each label, item by item.
        truth_n: (n,) known classes, or -1.
        feature_nmj: (n, M, J) `Part.feature_mnj`, item first.
        predicts_nm: (n, M) as in `Part`.
    """

    labels_n: npt.NDArray[np.int64]
    annotator_m: Ints
    label_m: Ints
    truth_n: Ints
    feature_nmj: Floats
    predicts_nm: npt.NDArray[np.bool_]

    def part(self, like: Annotations) -> Part:
        """Return the sample as a separate table, with the codes of these annotations."""
        names = tuple(range(len(self.truth_n))), like.annotators, like.classes, like.options, like.anonymous
        item_m = np.repeat(np.arange(len(self.labels_n), dtype=np.int32), self.labels_n)
        annotations = Annotations(item_m, self.annotator_m, self.label_m, *names)
        feature_mnj = np.ascontiguousarray(self.feature_nmj.transpose(1, 0, 2))
        return Part(Evidence(annotations, truth=self.truth_n), feature_mnj, self.predicts_nm)


def _sampled(evidence: Evidence, pool: Calibrated, on: PoolOn, items: int, labeled: bool) -> Sample:
    """Select the part of a sample that comes from one shard; `items`: number of items in all shards to sample from."""
    assert evidence.truth is not None
    annotations, pool = evidence.annotations, on(pool, evidence)
    wanted = np.flatnonzero(unsupervised_pool.informative(evidence) if labeled else evidence.predicted)
    rows = wanted[unsupervised_pool.chosen(wanted.size, items)]
    chosen_n = np.zeros(annotations.n_items, dtype=bool)
    chosen_n[rows] = True
    chosen_m = chosen_n[annotations.item]
    predicts_nm = pool.predicts_nm[rows]
    feature_nmj = pool.log_p_mnj[:, rows].transpose(1, 0, 2) / predicts_nm.sum(axis=1)[:, None, None]
    labels = annotations.labels_per_item[rows], annotations.annotator[chosen_m], annotations.label[chosen_m]
    return Sample(*labels, evidence.truth[rows], feature_nmj, predicts_nm)


def _known(evidence: Evidence, pool: Calibrated, on: PoolOn) -> Likelihood:
    return on(pool, evidence).likelihood(known_truth(evidence), evidence.known)


def _known_outputs(evidence: Evidence, pool: Calibrated, on: PoolOn) -> Likelihood:
    return unsupervised_pool.known_outputs(evidence, on(pool, evidence))


def _by_even_errors(evidence: Evidence, pool: Calibrated, on: PoolOn, log_pi_klj: Floats) -> Floats:
    """Predict by the pool and annotators who err evenly; ground truth is not substituted."""
    message_nj = kernels.messages(evidence.annotations, log_pi_klj)
    return kernels.beliefs(message_nj, on(pool, evidence).log_prior(), out=message_nj)[0]


def _total(evidence: Evidence, of: Beliefs) -> Floats:
    q_nj = of(evidence)
    return kernels.totals(q_nj, np.ones(len(q_nj), dtype=bool))
