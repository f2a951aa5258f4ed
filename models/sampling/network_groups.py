"""Groups of annotators who share a Markov network.

Annotators joined by common items, directly or through others, are one network, exact if its table has at most
`exact_states` answers. A larger one is cut into groups of at most `group_states` answers of those who agree most
beyond what the class explains,

    z_kk' = sum_n ( [l_nk = l_nk'] - e_nkk' ) / sqrt( sum_n e_nkk' (1 - e_nkk') )
    e_nkk' = sum_j q_nj sum_l pi_kjl pi_k'jl

with confusion matrices from the votes and beliefs q without the labels of k and k'. From the largest z down to
JOINED_ABOVE, the groups of the two are joined if the result is small enough. The pool of annotators without ids is
always alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from hitl.annotations import Annotations, Floats
from hitl.consensus import Consensus
from hitl.evidence import Evidence
from hitl.models.majority import MajorityVote
from hitl.models.numerics import kernels
from hitl.models.numerics.compiled import compiled

JOINED_ABOVE = 2.0
"""Agreement beyond chance, in standard deviations, that joins two annotators of a large network: needless couplings end
near 0, and on real annotators log loss was better with 2 than with 3 or 4."""

Codes = npt.NDArray[np.int64]


def groups(evidence: Evidence, exact_states: int, group_states: int) -> tuple[list[Codes], npt.NDArray[np.bool_]]:
    """Return the annotators of each network, and (K, K) which of them label items together (the pool with no one)."""
    annotations = evidence.annotations
    shared_kk = shared_items(annotations) > 0
    networks: list[Codes] = []
    excess_kk: Floats | None = None
    for part in _components(shared_kk):
        if part.size == 1 or annotations.n_options ** int(part.size) <= exact_states:
            networks.append(part)
            continue
        if excess_kk is None:
            excess_kk = excess_agreement(evidence, MajorityVote().fit(evidence))
        networks += cut(part, excess_kk, annotations.n_options, group_states)
    return networks, shared_kk


def shared_items(annotations: Annotations) -> Codes:
    """Return (K, K) the number of items two annotators both label; 0 for the pool and on the diagonal."""
    from scipy import sparse

    named = annotations.annotator != _anonymous(annotations)
    answered = sparse.csr_array(
        (np.ones(int(named.sum()), np.int64), (annotations.item[named], annotations.annotator[named])),
        shape=(annotations.n_items, annotations.n_annotators),
    )
    together: Codes = (answered.T @ answered).toarray()
    np.fill_diagonal(together, 0)
    return together


def excess_agreement(evidence: Evidence, learned: Consensus) -> Floats:
    """Return (K, K) z: agreement of two annotators beyond what `learned` explains; 0 if they share no item.

    Costs J L for every pair of labels of an item.
    """
    annotations = evidence.annotations
    pi_klj = np.ascontiguousarray(np.maximum(learned.annotators.confusion, 1e-12).transpose(0, 2, 1))
    logits_nj = kernels.messages(annotations, np.log(pi_klj)) + np.log(learned.class_shares)
    sums = np.zeros((2, annotations.n_annotators, annotations.n_annotators))
    labels = annotations.item_start, annotations.annotator, annotations.label, evidence.truth, _anonymous(annotations)
    _add_excess(*labels, pi_klj, logits_nj, sums)
    excess_kk: Floats = sums[0] / np.sqrt(np.maximum(sums[1], 1e-12))
    return excess_kk + excess_kk.T


@compiled
def _add_excess(
    item_start: Any, annotator: Any, label: Any, truth: Any, anonymous: int, pi: Any, logits: Any, sums: Any
) -> None:
    n_options, n_classes = pi.shape[1], pi.shape[2]
    q = np.empty(n_classes)
    for n in range(logits.shape[0]):
        for one in range(item_start[n], item_start[n + 1]):
            for other in range(one + 1, item_start[n + 1]):
                a, b = annotator[one], annotator[other]
                if a == anonymous or b == anonymous:
                    continue
                top = -np.inf
                for j in range(n_classes):
                    q[j] = logits[n, j] - np.log(pi[a, label[one], j]) - np.log(pi[b, label[other], j])
                    top = max(top, q[j])
                total = expected = 0.0
                for j in range(n_classes):
                    weight = np.exp(q[j] - top) if truth[n] < 0 else (1.0 if truth[n] == j else 0.0)
                    total += weight
                    for option in range(n_options):
                        expected += weight * pi[a, option, j] * pi[b, option, j]
                expected = min(expected / total, 1.0)
                sums[0, a, b] += (1.0 if label[one] == label[other] else 0.0) - expected
                sums[1, a, b] += expected * (1.0 - expected)


def cut(part: Codes, excess_kk: Floats, n_options: int, group_states: int) -> list[Codes]:
    """Cut one network into groups; two may always share a group, however many options there are."""
    most = 2
    while n_options ** (most + 1) <= group_states:
        most += 1
    first, second = np.triu_indices(part.size, 1)
    excess = excess_kk[part[first], part[second]]
    order = np.argsort(-excess, kind="stable")
    group_m = [[m] for m in range(part.size)]
    for pair in order[excess[order] > JOINED_ABOVE]:
        one, other = group_m[first[pair]], group_m[second[pair]]
        if one is not other and len(one) + len(other) <= most:
            one += other
            for m in other:
                group_m[m] = one
    distinct = {id(group): sorted(group) for group in group_m}
    return [part[group] for group in distinct.values()]


def _components(shared_kk: npt.NDArray[np.bool_]) -> list[Codes]:
    from scipy.sparse import csgraph, csr_array

    count, part_k = csgraph.connected_components(csr_array(shared_kk), directed=False)
    order = np.argsort(part_k, kind="stable").astype(np.int64)
    return np.split(order, np.cumsum(np.bincount(part_k, minlength=count))[:-1])


def _anonymous(annotations: Annotations) -> int:
    return -1 if annotations.anonymous is None else annotations.anonymous
