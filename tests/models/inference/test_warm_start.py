"""Beginning from an earlier fit: it may have met other people, other items and fewer classes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hitl import score
from hitl.evidence import Evidence
from hitl.models.coins import OneCoin
from hitl.models.inference import warm_start
from hitl.models.majority import MajorityVote
from tests import oracles
from tests.models.test_combiners_contract import all_known, everyone, make


def test_a_start_that_knows_nobody_is_not_used() -> None:
    """From anywhere else than the votes the roles of classes may be swapped."""
    evidence, _ = oracles.crowd(np.random.default_rng(33), 40, 4, 3)
    votes_nj = MajorityVote().fit(evidence).probabilities
    other = OneCoin().fit(oracles.crowd(np.random.default_rng(34), 40, 4, 2)[0])
    for start in (None, other):
        np.testing.assert_array_equal(warm_start.first_beliefs(evidence, start, np.eye(3) + 1), votes_nj)


SUPERVISED = {"PL", "LL", "SP", "LR", "BayesianPL"}


def known_without_a_class() -> Evidence:
    """All truths known, and the last of three classes never met."""
    evidence, truth = all_known(seed=14, n_items=60, known=1.0)
    rows = np.flatnonzero(truth < 2)
    said = np.isin(evidence.annotations.item, rows)
    items = np.searchsorted(rows, evidence.annotations.item[said]).astype(np.int32)
    met = replace(evidence.annotations.select(said), item=items, items=tuple(range(len(rows))))
    models = {name: p_nj[rows] for name, p_nj in evidence.probabilities.items()}
    return Evidence(met, models, truth=truth[rows])


@everyone
def test_no_class_is_impossible_because_it_was_not_met(name: str) -> None:
    consensus = make(name).fit(known_without_a_class())
    assert (consensus.class_shares > 0).all()


@everyone
@pytest.mark.parametrize("before", ["MajorityVote", "WeightedMajority", "DawidSkene", "VBIBCC"])
def test_a_start_that_has_not_met_a_class_does_no_harm(name: str, before: str) -> None:
    evidence, truth = all_known(seed=15, n_items=200, known=0.3 if name in SUPERVISED else 0.0)
    start = make(before).fit(known_without_a_class())
    plain = score.accuracy(make(name).fit(evidence).probabilities, truth)
    found = make(name).fit(evidence, start=start).probabilities
    assert score.accuracy(found, truth) >= plain - 0.03
