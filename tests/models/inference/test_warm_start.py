"""Beginning from an earlier fit: it may have met other people, other items and fewer classes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hitl import score
from hitl.consensus import Consensus
from hitl.errors import BadEvidence
from hitl.evidence import Evidence
from hitl.models import DawidSkene
from hitl.models.combiner import Combiner, needs_of
from hitl.models.methods import COMBINERS
from hitl.models.registry import combiner
from hitl.testing.crowds import restricted_to_uses, sample, with_everything
from tests.compile_kernels import long_in_journeys
from tests.models.test_combiners_contract import CHEAP

every_method = pytest.mark.parametrize("name", long_in_journeys(COMBINERS))


def cheap(name: str) -> Combiner:
    return combiner(name, **CHEAP.get(COMBINERS.load(name).__name__, {}))


def known_without_a_class() -> Evidence:
    """All truths known, and the last of three classes never met."""
    evidence, truth = with_everything(seed=14, n_items=60, known=1.0)
    rows = np.flatnonzero(truth < 2)
    labeled = np.isin(evidence.annotations.item, rows)
    items = np.searchsorted(rows, evidence.annotations.item[labeled]).astype(np.int32)
    met = replace(evidence.annotations.select(labeled), item=items, items=tuple(range(len(rows))))
    models = {name: p_nj[rows] for name, p_nj in evidence.probabilities.items()}
    assert evidence.features is not None
    assert evidence.graph is not None
    places = np.stack((np.arange(len(rows)) // 10, np.arange(len(rows)) % 10), axis=1)
    graph = evidence.graph[rows][:, rows]
    return Evidence(met, models, evidence.features[rows], truth[rows], places, graph)


def fit_without_a_class(method: Combiner) -> Consensus:
    return method.fit(restricted_to_uses(method, known_without_a_class()))


@every_method
def test_no_class_is_impossible_because_it_was_not_met(name: str) -> None:
    assert (fit_without_a_class(cheap(name)).class_shares > 0).all()


@every_method
@pytest.mark.parametrize("before", ["weighted-majority", "vb-ibcc"])
def test_a_start_that_has_not_met_a_class_does_no_harm(name: str, before: str) -> None:
    method = cheap(name)
    few = name in ("dbcc", "edbcc")  # their chains take long
    evidence, truth = sample(
        method, seed=15, n_items=100 if few else 200, known=0.3 if "truth" in needs_of(method) else 0.0
    )
    plain = score.accuracy(method.fit(evidence).probabilities, truth)
    found = method.fit(evidence, start=fit_without_a_class(combiner(before))).probabilities
    assert score.accuracy(found, truth) >= plain - (0.06 if few else 0.03)


def test_new_labels_of_fewer_classes_are_judged_as_the_message_says() -> None:
    labels = {"item": ["a", "a", "b", "c"], "annotator": ["x", "y", "x", "y"], "label": ["cat", "cat", "dog", "fox"]}
    consensus = DawidSkene().fit(Evidence.from_tables(labels))
    new = {"item": ["d", "e"], "annotator": ["x", "z"], "label": ["cat", "dog"]}
    with pytest.raises(BadEvidence, match=r"has cat, dog; build it with classes=consensus\.classes$"):
        DawidSkene().apply(consensus, Evidence.from_tables(new))
    applied = DawidSkene().apply(consensus, Evidence.from_tables(new, classes=consensus.classes))
    assert applied.classes == ("cat", "dog", "fox")
