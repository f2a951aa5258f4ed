"""Transitions of a Markov chain from moments of consecutive items (Traganitis & Giannakis 2019, Algorithm 2), without
EM.

    S_km = E[e(l_t,k) e(l_t+1,m)']  =  Pi_k' A Pi_m       A = diag(p) step                       (eqs. 21, 22)
    A*   = argmin over A >= 0, sum A = 1 of  sum_km n_km |S_km - Pi_k' A Pi_m|^2
    step[i] ∝ A*[i]                                                                              (eq. 23)

with Pi_k (J x L) the confusion matrices from a method for single items, and n_km how often annotator m labeled the
item after one that k labeled. With h_k[l] = Pi_k[:, l], u_t the sum of h over the labels of item t, and M_t that of
Pi_k Pi_k' over its annotators, this minimizes

    sum_t  <A, A M_{t+1}> by M_t  -  2 u_t' A u_{t+1}

so that no table of pairs of annotators is needed. The result is a start for EM: `SequentialDawidSkene().fit(evidence,
start=with_chain(evidence, MomentMatching().fit(items)))`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.optimize import nnls

from hitl.annotations import Floats
from hitl.consensus import Consensus
from hitl.errors import BadEvidence
from hitl.evidence import Evidence
from hitl.models.annotators import confusion
from hitl.models.inference.warm_start import require_same_classes
from hitl.models.priors.markov_chain import Sequences
from hitl.models.sequences.learned_chain import FIRST, STEPS, sequences_of

SUM_WEIGHT = 1e3
"""Weight of the sum constraint on A in the least squares, relative to equations scaled to 1."""

LEAST = 1e-4
"""Smallest probability of a transition. Moments of few items would otherwise rule out possible ones."""


def with_chain(evidence: Evidence, found: Consensus) -> Consensus:
    """Add the chain estimated from consecutive items to the consensus of a method for single items.

    Raise BadEvidence without a sequence, for other classes, and if no two consecutive items have labels.
    """
    if evidence.sequence is None:
        raise BadEvidence("moments of consecutive items need the sequence of the items (sequence=)")
    require_same_classes(found, evidence)
    sequences = sequences_of(evidence)
    joint_ij = joint_shares(evidence, found, sequences)
    step_ij = np.maximum(joint_ij / np.maximum(joint_ij.sum(axis=1, keepdims=True), LEAST), LEAST)
    step_ij /= step_ij.sum(axis=1, keepdims=True)
    first = sequences.rows[sequences.start[:-1]]
    first_j = found.probabilities[first].sum(axis=0) + 1
    return replace(found, parameters={**found.parameters, FIRST: first_j / first_j.sum(), STEPS: step_ij})


def joint_shares(evidence: Evidence, found: Consensus, sequences: Sequences) -> Floats:
    """Return (J, J) A, the shares of pairs of consecutive classes; sum 1."""
    annotations = evidence.annotations
    n, j = annotations.n_items, annotations.n_classes
    pseudo_jl = confusion.even_pseudo_counts(j, annotations.n_options, 1.0)
    pi_klj = confusion.confusion_from(found, annotations, pseudo_jl)
    gram_kc = np.einsum("kli,klj->kij", pi_klj, pi_klj).reshape(len(pi_klj), j * j)
    u_nj, gram_nc = np.zeros((n, j)), np.zeros((n, j * j))
    np.add.at(u_nj, annotations.item, pi_klj[annotations.annotator, annotations.label])
    np.add.at(gram_nc, annotations.item, gram_kc[annotations.annotator])
    labeled = annotations.labels_per_item > 0
    before, after = sequences.rows[:-1], sequences.rows[1:]
    pairs = sequences.follows & labeled[before] & labeled[after]
    before, after = before[pairs], after[pairs]
    if not len(before):
        raise BadEvidence("moments of consecutive items need two consecutive items with labels; found none")
    b_ij = u_nj[before].T @ u_nj[after]
    # [(a, b), (c, d)] -> [(a, c), (b, d)]: the quadratic form of A
    q = (gram_nc[before].T @ gram_nc[after]).reshape(j, j, j, j).transpose(0, 2, 1, 3).reshape(j * j, j * j)
    return _on_the_simplex(q, b_ij.ravel()).reshape(j, j)


def _on_the_simplex(q: Floats, b: Floats) -> Floats:
    """Return the x >= 0 with sum 1 that minimizes x' q x - 2 b' x, by non-negative least squares of a root of q."""
    values, vectors = np.linalg.eigh((q + q.T) / 2)
    root = np.sqrt(np.maximum(values, values[-1] * 1e-12))
    equations = root[:, None] * vectors.T
    known = (vectors.T @ b) / root
    scale = np.abs(equations).max()
    weight = np.full((1, len(b)), SUM_WEIGHT)
    x = nnls(np.vstack((equations / scale, weight)), np.append(known / scale, SUM_WEIGHT))[0]
    return np.asarray(x / x.sum())
