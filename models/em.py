"""The one loop: expectation-maximisation of a truth prior x an annotator model.

    E   L = messages(people.log_pi);  q = prior.beliefs(L);  q one-hot where the truth is known
    M   people = people.learn(counts(q));  prior = prior.learn(q)

It climbs the log posterior of the parameters (truths summed out), which therefore never falls:

    sum_n log sum_j p(z_n = j | theta) prod_k pi[k, j, l_nk]  +  log p(pi)  +  log p(theta)

With Dirichlet posteriors in place of point estimates the same loop is variational Bayes: log pi and log p(z) are
expectations, the densities negative divergences from the priors, and what it climbs is the evidence bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from hitl.annotations import Floats
from hitl.evidence import Evidence
from hitl.models import kernels
from hitl.models.confusion import AnnotatorModel
from hitl.models.priors import TruthPrior

P = TypeVar("P", bound=TruthPrior)
A = TypeVar("A", bound=AnnotatorModel)


@dataclass(frozen=True, eq=False)
class Estimate(Generic[P, A]):
    """What the loop found: beliefs (N, J), the prior, the annotators, their counts (K, L, J), and its trace."""

    q_nj: Floats
    prior: P
    people: A
    counts_klj: Floats
    objective: tuple[float, ...]
    converged: bool


def maximise(
    evidence: Evidence,
    prior: P,
    people: A,
    q_nj: Floats,
    *,
    tolerance: float,
    max_iterations: int,
    least_labels: int = 1,
) -> Estimate[P, A]:
    """Iterate from the beliefs `q_nj` until an iteration gains less than `tolerance` nats an item.

    The parameters are learned from items with known truth or at least `least_labels` labels; all are judged.
    """
    annotations = evidence.annotations
    informative_n = (annotations.labels_per_item >= least_labels) | evidence.known
    q_nj = clamp(q_nj, evidence)
    trace: list[float] = []
    converged = False
    while not converged and len(trace) < max_iterations:
        _, people, prior = maximisation(evidence, prior, people, q_nj, informative_n)
        q_nj, log_evidence = expectation(evidence, prior, people.log_pi_klj, informative_n)
        trace.append(log_evidence + people.log_density() + prior.log_density())
        converged = len(trace) > 1 and bool(trace[-1] - trace[-2] < tolerance * max(1, informative_n.sum()))
    counts_klj = kernels.counts(annotations, _teaching(q_nj, informative_n))
    return Estimate(q_nj, prior, people, counts_klj, tuple(trace), converged)


def maximisation(
    evidence: Evidence, prior: P, people: A, q_nj: Floats, informative_n: npt.NDArray[np.bool_]
) -> tuple[Floats, A, P]:
    """The M-step: expected counts (K, L, J), the annotators, and the prior."""
    counts_klj = kernels.counts(evidence.annotations, _teaching(q_nj, informative_n))
    return counts_klj, people.learn(counts_klj), prior.learn(q_nj, informative_n)


def expectation(
    evidence: Evidence, prior: TruthPrior, log_pi_klj: Floats, informative_n: npt.NDArray[np.bool_] | None = None
) -> tuple[Floats, float]:
    """The E-step: (N, J) beliefs of all items and the log evidence of the informative ones (default: of all).

    Known truths count as observed.
    """
    message_nj = kernels.messages(evidence.annotations, log_pi_klj)
    q_nj, log_z_n = prior.beliefs(message_nj)
    known = np.flatnonzero(evidence.known)
    if known.size:
        assert evidence.truth is not None
        truth = evidence.truth[known]
        log_prior = prior.log_prior()
        row = known if log_prior.shape[0] > 1 else np.zeros_like(known)
        log_z_n[known] = message_nj[known, truth] + log_prior[row, truth]
    return clamp(q_nj, evidence), float(log_z_n.sum() if informative_n is None else log_z_n[informative_n].sum())


def _teaching(q_nj: Floats, informative_n: npt.NDArray[np.bool_]) -> Floats:
    """Beliefs with zero rows for the items that teach nothing."""
    return q_nj if informative_n.all() else np.where(informative_n[:, None], q_nj, 0.0)


def clamp(q_nj: Floats, evidence: Evidence) -> Floats:
    """Beliefs with the known truths put in as one-hot rows."""
    known = np.flatnonzero(evidence.known)
    if not known.size:
        return q_nj
    assert evidence.truth is not None
    clamped = q_nj.copy()
    clamped[known] = 0.0
    clamped[known, evidence.truth[known]] = 1.0
    return clamped
