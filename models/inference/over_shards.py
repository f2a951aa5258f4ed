"""The loop over shards: what `em.climb` needs of a pass is a sum over them; beliefs are worked out when asked for.

Nothing of the size of all items or labels is held: only what belongs to annotators and classes. A single shard gives
the numbers of `em.maximise` to the last bit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar, overload

import numpy as np
import numpy.typing as npt

from hitl.annotations import Annotations, Floats
from hitl.consensus import AnnotatorReport, Consensus, Fit
from hitl.evidence import Evidence
from hitl.models.annotators import AnnotatorModel
from hitl.models.annotators.confusion import VotesCounted
from hitl.models.combiner import Combiner, FittedToShards, given, name_of, needs_of, used, without
from hitl.models.inference import em, loop, working_set
from hitl.models.inference.em import Counts, counts_by_all
from hitl.models.inference.loop import Climbed, Expected
from hitl.models.inference.passes import Additive, Engine, first_of
from hitl.models.inference.working_set import Split, split_of
from hitl.models.numerics.clamping import clamp
from hitl.models.priors import TruthPrior

P = TypeVar("P", bound=TruthPrior)
A = TypeVar("A", bound=AnnotatorModel)

Beliefs = Callable[[Evidence], Floats]
"""A shard -> beliefs (N, J) of its items."""

At = Callable[[Any, Evidence], TruthPrior]
"""What a prior has learned, put on the items of a shard."""


CountsAt = Callable[[Evidence], Counts]
"""By which beliefs the annotators of a shard are judged."""


def by_all(evidence: Evidence) -> Counts:
    """By the beliefs as they are."""
    return counts_by_all


def same(prior: Any, evidence: Evidence) -> TruthPrior:
    """A prior that has nothing of its own for each item."""
    learned: TruthPrior = prior
    return learned


@dataclass(frozen=True, eq=False)
class Census(Additive):
    """Numbers of items, of items that are learned from, and (K,) of labels."""

    items: int
    counted: int
    labels_k: npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Judge:
    """Beliefs by the posterior under what was learned, from items with `least_labels` labels or known truth.

    Others are judged all the same. Of what is known of them, a prior that ties items together tells their neighbours
    nothing.
    """

    prior: Any
    log_pi_klj: Floats
    at: At = same
    least_labels: int = 0

    def __call__(self, evidence: Evidence) -> Floats:
        """(N, J) beliefs of a shard's items."""
        counted_n = em.informative(evidence, self.least_labels)
        return em.expectation(evidence, self.at(self.prior, evidence), self.log_pi_klj, counted_n).q_nj


class OverShards:
    """`em.Passes` over shards by an engine.

    `first` says at which beliefs iterations begin; `at` puts the prior on a shard's items. What the engine is given can
    be pickled where these and the priors can.
    """

    def __init__(
        self,
        shards: Sequence[Evidence],
        engine: Engine,
        first: Beliefs,
        *,
        least_labels: int = 1,
        counts: CountsAt = by_all,
        at: At = same,
    ) -> None:
        self._shards, self._engine, self._first, self._at = shards, engine, first, at
        self._least_labels, self._counts = least_labels, counts
        self.census = engine.total(_Census(least_labels), shards)

    @property
    def counted(self) -> int:
        """How many items the parameters are learned from."""
        return self.census.counted

    @property
    def labels(self) -> int:
        """How many labels there are."""
        return int(self.census.labels_k.sum())

    def climb(self, prior: P, annotators: A, *, tolerance: float, max_iterations: int) -> Climbed[P, A]:
        """What `em.maximise` finds, but for the beliefs."""
        quick = self._counts is by_all and working_set.pays(self.labels, annotators.log_pi_klj.size, prior)
        climb = working_set.climb if quick else loop.climb
        return climb(self, prior, annotators, tolerance=tolerance, max_iterations=max_iterations)

    def split(self, prior: Any, log_pi_klj: Floats, bins: int) -> Split:
        """By the posterior under these parameters, the unsure items apart."""
        return self._engine.total(_Split(prior, log_pi_klj, self._least_labels, bins), self._shards)

    def first(self, prior: Any, log_pi_klj: Floats) -> Expected:
        """By the beliefs at which iterations begin; without log evidence."""
        work = _First(self._first, prior, log_pi_klj, self._least_labels, self._counts, self._at)
        return self._engine.total(work, self._shards)

    def expected(self, prior: Any, log_pi_klj: Floats) -> Expected:
        """By the posterior under these parameters."""
        work = _Expected(prior, log_pi_klj, self._least_labels, self._counts, self._at)
        return self._engine.total(work, self._shards)


@dataclass(frozen=True, eq=False)
class _Census:
    least_labels: int

    def __call__(self, evidence: Evidence) -> Census:
        counted = int(em.informative(evidence, self.least_labels).sum())
        return Census(evidence.annotations.n_items, counted, evidence.annotations.labels_per_annotator)


@dataclass(frozen=True, eq=False)
class _Expected:
    prior: Any
    log_pi_klj: Floats
    least_labels: int
    counts: CountsAt
    at: At

    def __call__(self, evidence: Evidence) -> Expected:
        informative_n = em.informative(evidence, self.least_labels)
        return em.expected(
            evidence, self.at(self.prior, evidence), self.log_pi_klj, informative_n, self.counts(evidence)
        )[0]


@dataclass(frozen=True, eq=False)
class _Split:
    prior: Any
    log_pi_klj: Floats
    least_labels: int
    bins: int

    def __call__(self, evidence: Evidence) -> Split:
        informative_n = em.informative(evidence, self.least_labels)
        return split_of(evidence, self.prior, self.log_pi_klj, informative_n, self.bins)[0]


@dataclass(frozen=True, eq=False)
class _First:
    beliefs: Beliefs
    prior: Any
    log_pi_klj: Floats
    least_labels: int
    counts: CountsAt
    at: At

    def __call__(self, evidence: Evidence) -> Expected:
        q_nj, informative_n = clamp(self.beliefs(evidence), evidence), em.informative(evidence, self.least_labels)
        return em.by_beliefs(
            evidence, self.at(self.prior, evidence), q_nj, informative_n, self.log_pi_klj, self.counts(evidence)
        )


class _Used(Sequence[Evidence]):
    """The shards without kinds of evidence that a method does not use."""

    def __init__(self, shards: Sequence[Evidence], uses: frozenset[str]) -> None:
        self._shards, self._uses = shards, uses

    def __len__(self) -> int:
        return len(self._shards)

    @overload
    def __getitem__(self, i: int) -> Evidence: ...
    @overload
    def __getitem__(self, i: slice) -> Sequence[Evidence]: ...
    def __getitem__(self, i: int | slice) -> Evidence | Sequence[Evidence]:
        if isinstance(i, slice):
            return _Used(self._shards[i], self._uses)
        evidence = self._shards[i]
        return without(evidence, given(evidence) - self._uses)


def used_of(method: Combiner, shards: Sequence[Evidence]) -> Sequence[Evidence]:
    """The shards as this method uses them, like `combiner.used`.

    The first shard that has all it needs is what that checks: a known truth, if it needs one, may be in any of them.
    Raises BadEvidence where there is no shard, or none that has it.
    """
    first, needs = first_of(shards), needs_of(method)
    used(method, first if needs <= given(first) else next((one for one in shards if needs <= given(one)), first))
    return _Used(shards, method.uses)


def concluded(
    method: Any,
    began: float,
    annotations: Annotations,
    people: AnnotatorReport,
    labels_k: npt.NDArray[np.int64],
    beliefs: Beliefs,
    *,
    objective: tuple[float, ...] = (),
    converged: bool = True,
    **learned: Any,
) -> FittedToShards:
    """What a fit of shards ends with, like `combiner.concluded`.

    `annotations`: those of any shard, for the names; `labels_k`: (K,) labels in all shards.
    """
    fit = Fit(name_of(method), asdict(method), objective, converged, time.perf_counter() - began)
    people = replace(people, labels=labels_k)
    nothing = np.empty((0, annotations.n_classes))
    return FittedToShards(
        Consensus((), annotations.classes, nothing, people, people.shares, fit=fit, **learned), beliefs
    )


def voted(method: Any, began: float, shards: Sequence[Evidence], engine: Engine, beliefs: Beliefs) -> FittedToShards:
    """What a method ends with whose beliefs come from no model of who confuses what."""
    found = engine.total(_Votes(beliefs), shards)
    annotations = first_of(shards).annotations
    return concluded(method, began, annotations, found.report(annotations), found.labels_k, beliefs)


@dataclass(frozen=True, eq=False)
class _Votes:
    beliefs: Beliefs

    def __call__(self, evidence: Evidence) -> VotesCounted:
        return VotesCounted.of(evidence.annotations, self.beliefs(evidence))
