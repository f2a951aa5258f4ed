"""The pool of all models over shards, with or without known truth; `unsupervised_pool` has the equations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Self, overload

import numpy as np
import numpy.typing as npt

from hitl.annotations import Annotations, Floats, Ints
from hitl.consensus import Consensus
from hitl.evidence import Evidence
from hitl.models.calibration.temperature import Likelihood, LogTemperature
from hitl.models.inference.em import Beliefs
from hitl.models.inference.engine import Additive, Rows, Shards, Table
from hitl.models.inference.unsupervised_pool import (
    Part,
    Weigh,
    by_truth,
    chosen,
    even_errors,
    informative,
    known_outputs,
    tempered,
    unmet,
    weights_by,
)
from hitl.models.numerics import kernels
from hitl.models.numerics.clamping import known_truth
from hitl.models.priors.calibrated import Calibrated, PoolOn, ReadOutputs, labels_used
from hitl.models.priors.model_outputs import ModelOutputs, OutputsSeen


class ModelPool:
    """Pool of all models, over no items, learned over shards.

    Attributes:
        census: numbers of items it learns from.
        on: applies the pool to a shard's items.
    """

    def __init__(self, shards: Shards, prior: LogTemperature) -> None:
        self._shards, self._prior = shards, prior
        self.census: PoolCensus = shards.total(PoolCensus.of)
        self.on = PoolOn(shards.once(ReadOutputs(self._models, self._outputs)))

    @property
    def _models(self) -> tuple[str, ...]:
        return self._shards.models

    @property
    def _outputs(self) -> ModelOutputs:
        return self.census.outputs.read(self.census.used_j > 0)

    def unlearned(self, learned: Consensus | None = None) -> Calibrated:
        """Return the pool at the prior's mode, or with the temperatures of a consensus."""
        return Calibrated.without_items(self._models, self._outputs, self._prior, learned)

    def supervised(self, total_j: Floats) -> Calibrated:
        """Learn from items of known truth; `total_j` (J,) counts them per class."""
        pool = self.unlearned()
        return pool.fitted_to(self._shards.total(_Known(pool, self.on)), total_j)

    def unsupervised(self, weigh: Weigh | None = None) -> tuple[Calibrated, Beliefs]:
        """Learn without truth. Also return beliefs of a shard by the pool and annotators who err evenly.

        Known truths are learned from, but not substituted into these beliefs. `weigh` does steps 1 and 2
        (`weights_by`).
        """
        pool, annotations, places = self.unlearned(), self._shards.annotations, self.census.places
        if not places.informative_s.any():
            found, accuracy_k = pool.at(pool.temperature_m, pool.correlation_mm), unmet(annotations.n_annotators)
        else:
            labeled = self._sample(pool, places.informative_s, True)
            predicted = partial(self._sample, pool, places.predicted_s, False)
            weights = (weigh or weights_by)(labeled, predicted, pool.prior)
            found, accuracy_k = tempered(pool, labeled.predicts_nm, weights), weights.accuracy_k
            if self.census.known:
                found = by_truth(found, self._shards.total(_KnownOutputs(found, self.on)))
        return found, _EvenErrors(found, self.on, even_errors(annotations, accuracy_k))

    def reported_shares(self, pool: Calibrated, beliefs: Beliefs) -> Floats:
        """Return (J,) `Calibrated.reported_shares` for these beliefs."""
        total_j = np.zeros(0) if self.census.abstained else self._shards.total(_Totals(beliefs))
        return pool.shares_by(bool(self.census.abstained), total_j)

    def _sample(self, pool: Calibrated, items_s: npt.NDArray[np.int64], labeled: bool) -> Part:
        numbered = _Numbered(self._shards.tables)
        found: Sample = self._shards.engine.total(_Sampled(pool, self.on, items_s, labeled), numbered)
        return found.part(self._shards.annotations)


def unsupervised(evidence: Evidence, prior: LogTemperature, weigh: Weigh | None = None) -> tuple[Calibrated, Floats]:
    """Learn the pool of a table. Also return the beliefs (N, J) of `ModelPool.unsupervised`."""
    pools = ModelPool(Table(evidence), prior)
    found, beliefs = pools.unsupervised(weigh)
    return pools.on(found, evidence), beliefs(evidence)


@dataclass(frozen=True, eq=False)
class Places(Rows):
    """(S,) numbers of items to learn from, and of predicted items, in each shard."""

    informative_s: npt.NDArray[np.int64]
    predicted_s: npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class PoolCensus(Additive):
    """Facts about all items that a pool needs.

    Attributes:
        outputs: counts over the predictions.
        used_j: (J,) how often each class is given or true.
        abstained: items on which all models abstain.
        known: items of known truth that a model predicts.
        places: numbers, per shard, of the items to learn from.
    """

    outputs: OutputsSeen
    used_j: npt.NDArray[np.int64]
    abstained: int
    known: int
    places: Places

    @classmethod
    def of(cls, evidence: Evidence) -> Self:
        """Count one shard."""
        predicted_n, models = evidence.predicted, tuple(evidence.probabilities)
        places = Places(np.array([informative(evidence).sum()]), np.array([predicted_n.sum()]))
        outputs = OutputsSeen.of(models, evidence.probabilities)
        known = int((evidence.known & predicted_n).sum())
        return cls(outputs, labels_used(evidence), int((~predicted_n).sum()), known, places)


@dataclass(frozen=True, eq=False)
class Sample:
    """Sample of a shard's items: labels (m), known truths, `Part.feature_mnj` and `Part.predicts_nm`."""

    item_m: Ints
    annotator_m: Ints
    label_m: Ints
    truth_n: Ints
    feature_mnj: Floats
    predicts_nm: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, evidence: Evidence, pool: Calibrated, rows: npt.NDArray[np.intp]) -> Sample:
        """Select these items of a shard, which the pool covers."""
        assert evidence.truth is not None
        annotations = evidence.annotations
        place_n = np.full(annotations.n_items, -1, np.int32)
        place_n[rows] = np.arange(rows.size)
        place_m = place_n[annotations.item]
        chosen_m = np.flatnonzero(place_m >= 0)
        predicts_nm = pool.predicts_nm[rows]
        feature_mnj = pool.log_p_mnj[:, rows] / predicts_nm.sum(axis=1)[:, None]
        labels = place_m[chosen_m], annotations.annotator[chosen_m], annotations.label[chosen_m]
        return cls(*labels, evidence.truth[rows], feature_mnj, predicts_nm)

    def __add__(self, other: Sample) -> Sample:
        return Sample(
            np.concatenate((self.item_m, other.item_m + np.int32(len(self.truth_n)))),
            np.concatenate((self.annotator_m, other.annotator_m)),
            np.concatenate((self.label_m, other.label_m)),
            np.concatenate((self.truth_n, other.truth_n)),
            np.concatenate((self.feature_mnj, other.feature_mnj), axis=1),
            np.concatenate((self.predicts_nm, other.predicts_nm)),
        )

    def part(self, like: Annotations) -> Part:
        """Return the sample as a separate table, with the codes of these annotations."""
        names = tuple(range(len(self.truth_n))), like.annotators, like.classes, like.options, like.anonymous
        annotations = Annotations(self.item_m, self.annotator_m, self.label_m, *names)
        return Part(Evidence(annotations, truth=self.truth_n), self.feature_mnj, self.predicts_nm)


@dataclass(frozen=True, eq=False)
class _Sampled:
    """Map a numbered shard to its part of the sample; `items_s` (S,) of each shard may be in it."""

    pool: Calibrated
    on: PoolOn
    items_s: npt.NDArray[np.int64]
    labeled: bool

    def __call__(self, numbered: tuple[int, Evidence]) -> Sample:
        number, evidence = numbered
        first = int(self.items_s[:number].sum())
        places = chosen(int(self.items_s.sum())) - first
        wanted = np.flatnonzero(informative(evidence) if self.labeled else evidence.predicted)
        rows = wanted[places[(places >= 0) & (places < wanted.size)]]
        return Sample.of(evidence, self.on(self.pool, evidence), rows)


@dataclass(frozen=True, eq=False)
class _Numbered(Sequence[tuple[int, Evidence]]):
    """Shards with their numbers."""

    tables: Sequence[Evidence]

    def __len__(self) -> int:
        return len(self.tables)

    @overload
    def __getitem__(self, i: int) -> tuple[int, Evidence]: ...
    @overload
    def __getitem__(self, i: slice) -> Sequence[tuple[int, Evidence]]: ...
    def __getitem__(self, i: int | slice) -> tuple[int, Evidence] | Sequence[tuple[int, Evidence]]:
        if isinstance(i, slice):
            return [self[number] for number in range(*i.indices(len(self)))]
        return i, self.tables[i]


@dataclass(frozen=True, eq=False)
class _Known:
    pool: Calibrated
    on: PoolOn

    def __call__(self, evidence: Evidence) -> Likelihood:
        return self.on(self.pool, evidence).likelihood(known_truth(evidence), evidence.known)


@dataclass(frozen=True, eq=False)
class _KnownOutputs(_Known):
    def __call__(self, evidence: Evidence) -> Likelihood:
        return known_outputs(evidence, self.on(self.pool, evidence))


@dataclass(frozen=True, eq=False)
class _EvenErrors:
    """Predict by the pool and annotators who err evenly; known truths are not substituted."""

    pool: Calibrated
    on: PoolOn
    log_pi_klj: Floats

    def __call__(self, evidence: Evidence) -> Floats:
        message_nj = kernels.messages(evidence.annotations, self.log_pi_klj)
        log_prior_nj = self.on(self.pool, evidence).log_prior()
        return kernels.beliefs(message_nj, log_prior_nj, out=message_nj)[0]


@dataclass(frozen=True, eq=False)
class _Totals:
    beliefs: Beliefs

    def __call__(self, evidence: Evidence) -> Floats:
        q_nj = self.beliefs(evidence)
        return kernels.totals(q_nj, np.ones(len(q_nj), dtype=bool))
