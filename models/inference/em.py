"""Expectation-maximization of a truth prior and an annotator model, over shards. A table in memory is one shard.

`loop` has the iterations. This module computes a pass: beliefs, and expectations over the items that count.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from hitl.annotations import Floats
from hitl.consensus import AnnotatorReport, Consensus
from hitl.evidence import Evidence
from hitl.models import combiner
from hitl.models.annotators import AnnotatorModel
from hitl.models.inference import loop, working_set
from hitl.models.inference.engine import Shards, Table
from hitl.models.inference.loop import EMResult as EMResult
from hitl.models.inference.loop import Expected
from hitl.models.numerics import kernels
from hitl.models.numerics.clamping import clamp, messages
from hitl.models.priors import Mask, Posterior, TruthPrior

P = TypeVar("P", bound=TruthPrior)
A = TypeVar("A", bound=AnnotatorModel)

Beliefs = Callable[[Evidence], Floats]
"""A shard -> beliefs (N, J) of its items."""

Counts = Callable[[Evidence, Floats, npt.NDArray[np.bool_], Floats], Floats]
"""A shard, beliefs (N, J), which items count (N,), log pi (K, L, J) -> expected counts (K, L, J)."""

Counted = Callable[[Evidence], Mask]
"""A shard -> (N,) True for items to learn from."""

PriorOn = Callable[[Any, Evidence], TruthPrior]
"""Apply a learned prior to the items of a shard."""


def counts_by_all(evidence: Evidence, q_nj: Floats, among_n: npt.NDArray[np.bool_], log_pi_klj: Floats) -> Floats:
    """Return (K, L, J) expected counts by full beliefs, which include the annotator's own labels."""
    return kernels.counts(evidence.annotations, q_nj, among_n)


def same_for_all(prior: Any, evidence: Evidence) -> TruthPrior:
    """Return the prior itself, which has no item-specific parameters."""
    learned: TruthPrior = prior
    return learned


def run_em(
    evidence: Evidence | Shards,
    prior: P,
    annotators: A,
    first: Floats | Beliefs,
    *,
    tolerance: float,
    max_iterations: int,
    least_labels: int = 1,
    lone_k: Mask | None = None,
    counts: Counts = counts_by_all,
    prior_on: PriorOn = same_for_all,
    begun: Expected | None = None,
) -> EMResult[P, A]:
    """Iterate from first beliefs until an iteration gains less than `tolerance` nats per item.

    Parameters are learned from items with ground truth or at least `least_labels` labels; beliefs cover all items.

    Args:
        first: beliefs (N, J) of the table, or a function that computes the beliefs of a shard.
        lone_k: (K,) True for annotators whose single labels teach nothing (`uncompared`).
        counts: function that counts the labels of a shard.
        prior_on: function that applies the prior to a shard's items.
        begun: expectations by the first beliefs, if already computed; `first` is then not used.
    """
    shards = evidence if isinstance(evidence, Shards) else Table(evidence)
    q_nj: Floats = np.empty((0, shards.annotations.n_classes))

    def total(work: Callable[[Evidence], tuple[Any, Floats]]) -> Any:
        nonlocal q_nj
        if shards.table is None:
            return shards.total(partial(_without_beliefs, work=work))
        found, q_nj = work(shards.table)
        return found

    counted = partial(informative, least_labels=least_labels, lone_k=lone_k)
    parts: dict[str, Any] = {"prior_on": prior_on, "counted": counted, "counts": counts}

    def expected(prior: Any, log_pi_klj: Floats) -> Expected:
        found: Expected = total(partial(_expected, prior=prior, log_pi_klj=log_pi_klj, **parts))
        return found

    def split(prior: Any, log_pi_klj: Floats, bins: int) -> working_set.Split:
        work = partial(working_set.split, prior=prior, log_pi_klj=log_pi_klj, counted=counted, bins=bins)
        found: working_set.Split = total(work)
        return found

    plain = counts is counts_by_all and prior_on is same_for_all and begun is None
    log_pi_klj = annotators.log_pi_klj
    few_passes = plain and working_set.pays(shards.size.labels, log_pi_klj.size, prior)

    def first_pass() -> Expected:
        beliefs = first if callable(first) else partial(_constant, value=first)
        found: Expected = total(partial(_first, prior=prior, log_pi_klj=log_pi_klj, beliefs=beliefs, **parts))
        return found

    limits = loop.Limits(shards.size.counted(least_labels), tolerance, max_iterations)
    if few_passes:
        labels = shards.size.labels
        found = working_set.iterate_in_few_passes(expected, split, prior, annotators, first_pass(), limits, labels)
    else:
        found = loop.iterate(expected, prior, annotators, begun or first_pass(), limits)
    return replace(found, q_nj=q_nj)


def judge(
    evidence: Evidence, prior: Any, log_pi_klj: Floats, prior_on: PriorOn = same_for_all, least_labels: int = 0
) -> Floats:
    """Return (N, J) beliefs of a shard's items under learned parameters.

    If the prior ties items together, only items with ground truth or at least `least_labels` labels inform the others.
    """
    return expectation(evidence, prior_on(prior, evidence), log_pi_klj, informative(evidence, least_labels)).q_nj


def concluded(
    method: Any,
    began: float,
    evidence: Evidence | Shards,
    found: EMResult[P, A],
    people: AnnotatorReport,
    **learned: Any,
) -> Consensus:
    """Return the consensus of a method that iterates; arguments as in `combiner.concluded`."""
    learned |= {"objective": found.objective, "converged": found.converged}
    return combiner.concluded(method, began, evidence, found.q_nj, people, **learned)


def informative(evidence: Evidence, least_labels: int, lone_k: Mask | None = None) -> Mask:
    """Return (N,) True for items to learn from, which have ground truth or at least `least_labels` labels.

    Items that have a single label, by an annotator in `lone_k` (K,), do not count.
    """
    counted_n = (evidence.annotations.labels_per_item >= least_labels) | evidence.known
    return counted_n if lone_k is None or not lone_k.any() else counted_n & ~alone(evidence, lone_k)


def alone(evidence: Evidence, lone_k: Mask) -> Mask:
    """Return (N,) True for items with unknown truth and a single label, by an annotator in `lone_k` (K,)."""
    annotations = evidence.annotations
    alone_n = (annotations.labels_per_item == 1) & ~evidence.known
    alone_n[annotations.item[~lone_k[annotations.annotator]]] = False
    return np.asarray(alone_n)


def expectation(
    evidence: Evidence, prior: TruthPrior, log_pi_klj: Floats, counted_n: npt.NDArray[np.bool_] | None = None
) -> Posterior:
    """Return the posterior given labels and ground truth. `counted_n` (N,) marks the items that count; default: all."""
    message_nj = messages(evidence, log_pi_klj)
    counted_n = np.ones(len(message_nj), dtype=bool) if counted_n is None else counted_n
    return prior.posterior(message_nj, counted_n)


def _expected(
    evidence: Evidence, prior: Any, log_pi_klj: Floats, prior_on: PriorOn, counted: Counted, counts: Counts
) -> tuple[Expected, Floats]:
    """Return the expectations of a shard under these parameters, and its beliefs (N, J)."""
    counted_n = counted(evidence)
    found = expectation(evidence, prior_on(prior, evidence), log_pi_klj, counted_n)
    counts_klj = counts(evidence, found.q_nj, counted_n, log_pi_klj)
    return Expected(counts_klj, found.statistics, found.log_evidence), found.q_nj


def _first(
    evidence: Evidence,
    prior: Any,
    log_pi_klj: Floats,
    beliefs: Beliefs,
    prior_on: PriorOn,
    counted: Counted,
    counts: Counts,
) -> tuple[Expected, Floats]:
    """Return the expectations of a shard by given beliefs, with log evidence 0, and the beliefs (N, J)."""
    q_nj, counted_n = clamp(beliefs(evidence), evidence), counted(evidence)
    statistics = prior_on(prior, evidence).statistics(q_nj, counted_n)
    return Expected(counts(evidence, q_nj, counted_n, log_pi_klj), statistics, 0.0), q_nj


def _without_beliefs(evidence: Evidence, work: Callable[[Evidence], tuple[Any, Floats]]) -> Any:
    return work(evidence)[0]


def _constant(evidence: Evidence, value: Floats) -> Floats:
    return value
