"""Labels that nothing can be compared with. They are kept as votes, and nothing is learned from them.

Whether annotator k is right shows only on items with another label or with known truth. An item with the single label l
says no more than how often k gives it:

    p(l_nk = l) = sum_j p_j pi[k, j, l]

So if all labels are single, all shares and rows that give each label its frequency are equally likely, among them some
in which every label means another class. The votes q_n = (e_l + 1/J) / 2, from which iterations begin, are one of these
maxima: with C_jl = sum of q_nj over the items labeled l, and p_j pi_jl = C_jl / N, they are reproduced exactly,

    p(z_n = j | l) = C_jl / sum_j C_jl = q_nj

Exact EM stays there. Pseudo-counts, however small, move along the ridge, to rows that are all alike, and momentum moves
beyond, where a label counts against its own class. A few compared labels decide as little: the likelihood picks the
point of the ridge that explains them best, and turns the meaning of all single labels with it.

A label is uncompared if it is its item's only one, the truth is unknown, and its annotator has more single labels than
compared ones and fewer than `ENOUGH` compared ones per class.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from hitl.annotations import Floats
from hitl.evidence import Evidence
from hitl.models.annotators import AnnotatorModel
from hitl.models.inference import em
from hitl.models.inference.engine import Shards, Size, Sums
from hitl.models.inference.loop import Expected
from hitl.models.numerics.votes import voted
from hitl.models.priors import Mask, TruthPrior

ENOUGH = 10
"""Compared labels per class from which an annotator's single labels are read by the annotator's own matrix."""

P = TypeVar("P", bound=TruthPrior)
A = TypeVar("A", bound=AnnotatorModel)


def run_em(
    shards: Shards, prior: P, annotators: A, first: Floats | em.Beliefs, *, least_labels: int, **limits: Any
) -> em.EMResult[P, A]:
    """Run EM on the items that can be compared, and keep the votes of the others; arguments as in `em.run_em`.

    The last parameters also count the votes, divided evenly among the labels of annotators without enough compared
    ones, so that they predict other items alike.
    """
    lone_k = _lone(shards.size, shards.annotations.n_classes)
    found = em.run_em(shards, prior, annotators, first, least_labels=least_labels, lone_k=lone_k, **limits)
    if not lone_k.any():
        return found
    votes_kl, statistics = shards.total(partial(_votes, prior=prior, lone_k=lone_k))
    counts_klj = found.counts_klj + _pooled(votes_kl, shards.annotations.n_classes)
    expected = Expected(counts_klj, found.statistics + statistics, found.expected.log_evidence)
    last = replace(found, expected=expected, prior=prior.learn(expected.statistics))
    last = replace(last, annotators=annotators.learn(counts_klj))
    return last if shards.table is None else replace(last, q_nj=_keep(shards.table, found.q_nj, lone_k))


def keep_votes(evidence: Evidence, q_nj: Floats) -> Floats:
    """Return beliefs (N, J) with the votes in place of those about items that cannot be compared."""
    return _keep(evidence, q_nj, _lone(Size.of(evidence), evidence.annotations.n_classes))


def _keep(evidence: Evidence, q_nj: Floats, lone_k: Mask) -> Floats:
    alone_n = em.alone(evidence, lone_k)
    return np.where(alone_n[:, None], voted(evidence), q_nj) if alone_n.any() else q_nj


def _lone(size: Size, n_classes: int) -> Mask:
    """Return (K,) True for annotators without enough compared labels."""
    compared_k = size.labels_k - size.single_k
    return np.asarray(compared_k < np.minimum(size.single_k, ENOUGH * n_classes))


def _votes(evidence: Evidence, prior: TruthPrior, lone_k: Mask) -> Sums:
    """Return (K, L) numbers of uncompared labels, and the statistics of the prior by their votes."""
    annotations, alone_n = evidence.annotations, em.alone(evidence, lone_k)
    size = annotations.n_annotators, annotations.n_options
    cells = annotations.cell[alone_n[annotations.item]]
    votes_kl = np.bincount(cells, minlength=size[0] * size[1]).reshape(size)
    return Sums((votes_kl, prior.statistics(voted(evidence), alone_n)))


def _pooled(votes_kl: npt.NDArray[Any], n_classes: int) -> Floats:
    """Return (K, L, J) counts of uncompared labels by their votes, each annotator with the same proportions."""
    votes_l, votes_k = votes_kl.sum(axis=0), votes_kl.sum(axis=1)
    belief_lj = np.eye(len(votes_l), n_classes) + 1 / n_classes
    belief_lj /= belief_lj.sum(axis=1, keepdims=True)
    pooled_lj = votes_l[:, None] * belief_lj / max(1, votes_l.sum())
    return np.asarray(votes_k[:, None, None] * pooled_lj)
