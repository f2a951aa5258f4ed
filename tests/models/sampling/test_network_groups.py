"""Who shares a network: couplings only where items are shared, copies found in a crowd, the price of cutting."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import logsumexp

from hitl.annotations import Annotations
from hitl.evidence import Evidence
from hitl.models.sampling import network_layout
from hitl.models.vb_ibcc import VBIBCC
from tests import oracles


def members(evidence: Evidence, exact_states: int, group_states: int) -> list[list[int]]:
    found, _ = network_layout.groups(evidence, exact_states, group_states)
    assert sorted(k for group in found for k in group) == list(range(evidence.annotations.n_annotators))
    return [group.tolist() for group in found]


def test_annotators_are_coupled_where_they_share_items() -> None:
    matrix = np.array([[0, 1, -1, -1, -1], [-1, 1, 0, -1, -1], [-1, -1, -1, 1, -1], [1, 0, -1, -1, -1]])
    annotations = Annotations.from_matrix(matrix, range(2))
    a = annotations
    pool = Annotations(a.item, a.annotator, a.label, a.items, a.annotators, a.classes, a.options, anonymous=1)
    expected = np.zeros((5, 5), int)
    expected[[0, 1, 1, 2], [1, 0, 2, 1]] = 2, 2, 1, 1
    np.testing.assert_array_equal(network_layout.shared_items(annotations), expected)
    assert members(Evidence(annotations), 8, 0) == [[0, 1, 2], [3], [4]]
    np.testing.assert_array_equal(network_layout.shared_items(pool), np.zeros((5, 5)))
    assert members(Evidence(pool), 8, 0) == [[0], [1], [2], [3], [4]]


def test_excess_agreement_leaves_both_people_out_of_the_belief() -> None:
    evidence, _ = oracles.crowd(np.random.default_rng(1), 40, 5, 3, 4, known=0.2, pool=10, asked=0.6)
    learned = VBIBCC().fit(evidence)
    found = network_layout.excess_agreement(evidence, learned)
    a, pi = evidence.annotations, learned.annotators.confusion
    said = {(n, k): label for n, k, label in zip(a.item, a.annotator, a.label, strict=True) if k != a.anonymous}
    for k in range(6):
        for m in range(k):
            gap, variance = 0.0, 0.0
            for n in range(40):
                if (n, k) not in said or (n, m) not in said:
                    continue
                log_q = np.log(learned.class_shares)
                for row in range(a.item_start[n], a.item_start[n + 1]):
                    if a.annotator[row] not in (k, m):
                        log_q = log_q + np.log(pi[a.annotator[row], :, a.label[row]])
                q = np.exp(log_q - logsumexp(log_q))
                if evidence.truth[n] >= 0:
                    q = np.eye(3)[evidence.truth[n]]
                expected = sum(q[j] * (pi[k, j] @ pi[m, j]) for j in range(3))
                gap += (said[n, k] == said[n, m]) - expected
                variance += expected * (1 - expected)
            z = gap / np.sqrt(variance) if variance else 0.0
            assert found[k, m] == found[m, k] == pytest.approx(z, abs=1e-9)


def test_groups_are_made_of_those_who_agree_most_and_stay_small() -> None:
    excess = np.zeros((6, 6))
    for k, m, z in ((0, 1, 9), (1, 2, 8), (2, 3, 7), (3, 4, 6), (4, 5, 1)):
        excess[k, m] = excess[m, k] = z
    part = np.arange(6)
    assert [group.tolist() for group in network_layout.cut(part, excess, 2, 8)] == [[0, 1, 2], [3, 4], [5]]
    assert [group.tolist() for group in network_layout.cut(part, excess, 9, 8)] == [[0, 1], [2, 3], [4], [5]]
    later = np.pad(excess, ((3, 0), (3, 0)))
    assert [group.tolist() for group in network_layout.cut(part + 3, later, 2, 64)] == [[3, 4, 5, 6, 7], [8]]
