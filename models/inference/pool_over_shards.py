"""The pool of models over shards: its numbers are sums, what it learns from the labels comes from a sample."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self, overload

import numpy as np
import numpy.typing as npt

from hitl.annotations import Annotations, Floats, Ints
from hitl.consensus import Consensus
from hitl.evidence import Evidence
from hitl.models.calibration.temperature import Likelihood, LogTemperature
from hitl.models.inference.gathered import Rows, over_shards
from hitl.models.inference.over_shards import Beliefs
from hitl.models.inference.passes import Additive, Engine, first_of
from hitl.models.inference.unsupervised_pool import (
    Part,
    Weigh,
    by_truth,
    chosen,
    even_errors,
    features_of,
    informative,
    known_outputs,
    tempered,
    unmet,
    weights_by,
)
from hitl.models.numerics import kernels
from hitl.models.numerics.clamping import known_truth
from hitl.models.priors.calibrated import Calibrated, labels_used
from hitl.models.priors.model_outputs import OutputsSeen


@dataclass(frozen=True, eq=False)
class Places(Rows):
    """(S,) how many items of each shard are learned from, and how many are predicted."""

    informative_s: npt.NDArray[np.int64]
    predicted_s: npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class PoolCensus(Additive):
    """What a pool needs to know of all items.

    Attributes:
        outputs: what there is to see of the predictions.
        used_j: (J,) how often each class is given or true.
        abstained: items on which all models abstain.
        known: items of known truth that a model predicts.
        places: where the items are that it learns from.
    """

    outputs: OutputsSeen
    used_j: npt.NDArray[np.int64]
    abstained: int
    known: int
    places: Places

    @classmethod
    def of(cls, evidence: Evidence) -> Self:
        """Of a shard."""
        predicted_n, models = evidence.predicted, tuple(evidence.probabilities)
        places = Places(np.array([informative(evidence).sum()]), np.array([predicted_n.sum()]))
        outputs = OutputsSeen.of(models, evidence.probabilities)
        known = int((evidence.known & predicted_n).sum())
        return cls(outputs, labels_used(evidence), int((~predicted_n).sum()), known, places)


@dataclass(frozen=True)
class OnShard:
    """A pool on a shard's items."""

    def __call__(self, pool: Calibrated, evidence: Evidence) -> Calibrated:
        """The same pool over them."""
        return pool.over(evidence.probabilities)


class PoolOverShards:
    """The pool of the models of all shards, over no items; see `Calibrated`."""

    def __init__(self, shards: Sequence[Evidence], engine: Engine, prior: LogTemperature) -> None:
        self._shards, self._engine, self._prior = shards, engine, prior
        self.census: PoolCensus = engine.total(PoolCensus.of, shards)

    def as_learned(self, learned: Consensus | None = None) -> Calibrated:
        """Not learned yet, or with what a consensus has learned."""
        models, outputs = tuple(first_of(self._shards).probabilities), self.census.outputs.read(self.census.used_j > 0)
        return Calibrated.without_items(models, outputs, self._prior, learned)

    def supervised(self, total_j: Floats) -> Calibrated:
        """What `Calibrated.supervised` finds of one table; (J,) known items of each class."""
        pool = self.as_learned()
        numbers = self.census.known * total_j.size * len(pool.models)
        return pool.supervised_by(over_shards(self._engine, self._shards, _Known(pool), numbers), total_j)

    def unsupervised(self, weigh: Weigh = weights_by) -> tuple[Calibrated, Beliefs]:
        """What `unsupervised_pool.unsupervised` finds of one table."""
        pool, annotations, places = self.as_learned(), first_of(self._shards).annotations, self.census.places
        if not places.informative_s.any():
            found = pool.at(pool.temperature_m, pool.correlation_mm)
            return found, _EvenErrors(found, even_errors(annotations, unmet(annotations.n_annotators)))
        labeled = self._sample(pool, places.informative_s, True)
        weights = weigh(
            labeled.part(annotations),
            lambda: self._sample(pool, places.predicted_s, False).part(annotations),
            pool.prior,
        )
        found = tempered(pool, labeled.predicts_nm, weights)
        if self.census.known:
            numbers = self.census.known * annotations.n_classes
            found = by_truth(found, over_shards(self._engine, self._shards, _KnownOutputs(found), numbers))
        return found, _EvenErrors(found, even_errors(annotations, weights.accuracy_k))

    def reported_shares(self, pool: Calibrated, beliefs: Beliefs) -> Floats:
        """(J,) what `Calibrated.reported_shares` says of one table."""
        if self.census.abstained:
            return pool.shares_by(True, np.zeros(self.census.used_j.size))
        return pool.shares_by(False, self._engine.total(_Totals(beliefs), self._shards))

    def _sample(self, pool: Calibrated, items_s: npt.NDArray[np.int64], labeled: bool) -> Sample:
        found: Sample = self._engine.total(_Sampled(pool, items_s, labeled), _Numbered(self._shards))
        return found


@dataclass(frozen=True, eq=False)
class Sample:
    """Some items of a shard: labels (m), known truths, `Part.feature_mnj` and `Part.predicts_nm`."""

    item_m: Ints
    annotator_m: Ints
    label_m: Ints
    truth_n: Ints
    feature_mnj: Floats
    predicts_nm: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, evidence: Evidence, pool: Calibrated, rows: npt.NDArray[np.intp]) -> Sample:
        """These items of a shard, which the pool is over; there may be none."""
        assert evidence.truth is not None
        annotations = evidence.annotations
        place_n = np.full(annotations.n_items, -1, np.int32)
        place_n[rows] = np.arange(rows.size)
        place_m = place_n[annotations.item]
        chosen_m = np.flatnonzero(place_m >= 0)
        labels = place_m[chosen_m], annotations.annotator[chosen_m], annotations.label[chosen_m]
        return cls(*labels, evidence.truth[rows], *features_of(pool, rows))

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
        """As a table of its own, with the codes of these annotations."""
        names = tuple(range(len(self.truth_n))), like.annotators, like.classes, like.options, like.anonymous
        annotations = Annotations(self.item_m, self.annotator_m, self.label_m, *names)
        return Part(Evidence(annotations, truth=self.truth_n), self.feature_mnj, self.predicts_nm)


@dataclass(frozen=True, eq=False)
class _Sampled:
    """A shard with its number -> those of its items that are learned from; `items_s` (S,) of each shard may be."""

    pool: Calibrated
    items_s: npt.NDArray[np.int64]
    labeled: bool

    def __call__(self, numbered: tuple[int, Evidence]) -> Sample:
        number, evidence = numbered
        first = int(self.items_s[:number].sum())
        places = chosen(int(self.items_s.sum())) - first
        wanted = np.flatnonzero(informative(evidence) if self.labeled else evidence.predicted)
        rows = wanted[places[(places >= 0) & (places < wanted.size)]]
        return Sample.of(evidence, self.pool.over(evidence.probabilities), rows)


class _Numbered(Sequence[tuple[int, Evidence]]):
    """Shards with their numbers."""

    def __init__(self, shards: Sequence[Evidence]) -> None:
        self._shards = shards

    def __len__(self) -> int:
        return len(self._shards)

    @overload
    def __getitem__(self, i: int) -> tuple[int, Evidence]: ...
    @overload
    def __getitem__(self, i: slice) -> Sequence[tuple[int, Evidence]]: ...
    def __getitem__(self, i: int | slice) -> tuple[int, Evidence] | Sequence[tuple[int, Evidence]]:
        if isinstance(i, slice):
            return [self[number] for number in range(*i.indices(len(self)))]
        return i, self._shards[i]


@dataclass(frozen=True, eq=False)
class _Known:
    pool: Calibrated

    def __call__(self, evidence: Evidence) -> Likelihood:
        return self.pool.over(evidence.probabilities).likelihood(known_truth(evidence), evidence.known)


@dataclass(frozen=True, eq=False)
class _KnownOutputs:
    pool: Calibrated

    def __call__(self, evidence: Evidence) -> Likelihood:
        return known_outputs(evidence, self.pool.over(evidence.probabilities))


@dataclass(frozen=True, eq=False)
class _EvenErrors:
    """Beliefs by the pool and annotators who err evenly; known truths do not stand in them."""

    pool: Calibrated
    log_pi_klj: Floats

    def __call__(self, evidence: Evidence) -> Floats:
        message_nj = kernels.messages(evidence.annotations, self.log_pi_klj)
        log_prior_nj = self.pool.over(evidence.probabilities).log_prior()
        return kernels.beliefs(message_nj, log_prior_nj, out=message_nj)[0]


@dataclass(frozen=True, eq=False)
class _Totals:
    beliefs: Beliefs

    def __call__(self, evidence: Evidence) -> Floats:
        q_nj = self.beliefs(evidence)
        return kernels.totals(q_nj, np.ones(len(q_nj), dtype=bool))
