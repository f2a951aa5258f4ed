"""Minibatches: many cheap steps of a truth prior, before `em.run_em` makes a few expensive ones over all items.

A step takes the next batch of a shuffled order, updates the beliefs of its items, and lets the prior learn from their
statistics as if they stood for all items (stochastic variational inference, Hoffman et al. 2013). Annotators learn
every few batches, from the latest beliefs of the items seen so far (incremental EM, Neal & Hinton 1998). Gradient
steps shrink to nothing; `em.run_em` then holds what they learned, and removes the noise from the rest.

If one batch holds all items, this is `em` without momentum.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt

from hitl.annotations import Floats
from hitl.evidence import Evidence
from hitl.models.annotators import AnnotatorModel
from hitl.models.inference import em
from hitl.models.numerics import kernels
from hitl.models.numerics.clamping import observe
from hitl.models.priors import TruthPrior

EVERY = 5
"""Number of batches between updates of the annotators."""


class Sharded(TruthPrior, Protocol):
    """Truth prior of independent items that learns from batches of them."""

    def over(self, rows: Any) -> Self:
        """Return the same prior over these items alone."""

    def paced(self, sampled: bool, rate: float) -> Self:
        """Return the same prior with steps sized for a sample or for all items, gradient steps shrunk to `rate` in [0,
        1]."""


P = TypeVar("P", bound=Sharded)
A = TypeVar("A", bound=AnnotatorModel)


def learned(
    evidence: Evidence, prior: P, annotators: A, q_nj: Floats, *, steps: int, batch: int, rng: np.random.Generator
) -> tuple[P, A, Floats]:
    """Return prior, annotators and beliefs (N, J) after `steps` steps of `batch` items, starting at `q_nj`.

    If one batch holds all items, items that count for nothing keep their beliefs.
    """
    labeled = np.flatnonzero(em.informative(evidence, 1))
    if labeled.size <= batch:
        return _of_all(evidence, prior, annotators, q_nj, labeled, steps)
    q_nj, seen_n = q_nj.copy(), np.zeros(len(q_nj), dtype=bool)
    message_nj = _messages(evidence, annotators)
    for step, rows in zip(range(steps), _batches(labeled, batch, rng), strict=False):
        prior = prior.paced(True, 1 - step / steps)
        found = prior.over(rows).posterior(message_nj[rows], np.ones(rows.size, dtype=bool))
        q_nj[rows], seen_n[rows] = found.q_nj, True
        prior = prior.learn(found.statistics.standing_for(labeled.size))
        if step % EVERY == EVERY - 1:
            annotators = annotators.learn(kernels.counts(evidence.annotations, q_nj, seen_n))
            message_nj = _messages(evidence, annotators)
    return prior, annotators, em.expectation(evidence, prior.paced(False, 0.0), annotators.log_pi_klj).q_nj


def _of_all(
    evidence: Evidence, prior: P, annotators: A, q_nj: Floats, labeled: npt.NDArray[np.intp], steps: int
) -> tuple[P, A, Floats]:
    """Run steps over all items with any label or prediction; nothing can be learned from the others."""
    counted_n = np.zeros(len(q_nj), dtype=bool)
    counted_n[labeled] = True
    q_nj, everything = q_nj.copy(), np.ones(labeled.size, dtype=bool)
    statistics = prior.over(labeled).statistics(q_nj[labeled], everything)
    for step in range(steps):
        prior = prior.paced(False, 1 - step / steps).learn(statistics)
        annotators = annotators.learn(kernels.counts(evidence.annotations, q_nj, counted_n))
        found = prior.over(labeled).posterior(_messages(evidence, annotators)[labeled], everything)
        q_nj[labeled], statistics = found.q_nj, found.statistics
    return prior, annotators, q_nj


def _messages(evidence: Evidence, annotators: AnnotatorModel) -> Floats:
    return observe(kernels.messages(evidence.annotations, annotators.log_pi_klj), evidence)


def _batches(rows: npt.NDArray[np.intp], batch: int, rng: np.random.Generator) -> Iterator[npt.NDArray[np.intp]]:
    """Yield shuffled orders of the rows, one after the other, in batches of equal size."""
    while True:
        order = rng.permutation(rows)
        for begin in range(0, rows.size - batch + 1, batch):
            yield np.sort(order[begin : begin + batch])
