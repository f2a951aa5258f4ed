"""What a fit of shards holds does not grow with their number."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from hitl.annotations import Annotations
from hitl.evidence import Evidence
from hitl.models import PL, PLEM, DefaultCombiner, HierarchicalDawidSkene
from hitl.models.hierarchy import hierarchical_dawid_skene
from hitl.models.inference import sample, unsupervised_pool
from hitl.models.inference.engine import Shards

ITEMS, ANNOTATORS, CLASSES = 2000, 20, 3


class Drawn(Sequence[Evidence]):
    """Shards drawn each time they are requested: five labels per item, 40 gold items in all, a model."""

    def __init__(self, number: int, models: bool) -> None:
        self._number, self._models = number, models

    def __len__(self) -> int:
        return self._number

    def __getitem__(self, i: Any) -> Any:
        if i >= self._number:
            raise IndexError(i)
        rng = np.random.default_rng(i)
        truth = rng.integers(CLASSES, size=ITEMS).astype(np.int32)
        item = np.repeat(np.arange(ITEMS, dtype=np.int32), 5)
        annotator = np.argsort(rng.random((ITEMS, ANNOTATORS)), axis=1)[:, :5].ravel().astype(np.int32)
        right = rng.random(len(item)) < np.linspace(0.5, 0.9, ANNOTATORS)[annotator]
        label = np.where(right, truth[item], rng.integers(CLASSES, size=len(item))).astype(np.int32)
        names = tuple(range(ITEMS)), tuple(range(ANNOTATORS)), ("a", "b", "c"), ("a", "b", "c")
        p_nj = rng.dirichlet(np.ones(CLASSES), size=ITEMS)
        p_nj[np.arange(ITEMS), truth] += 1
        models = {"net": p_nj / 2} if self._models else {}
        known = np.where(np.arange(ITEMS) < (40 if i == 0 else 0), truth, -1).astype(np.int32)
        return Evidence(Annotations(item, annotator, label, *names), models, truth=known)


@pytest.mark.journey
@pytest.mark.parametrize(
    ("method", "models"),
    [
        (HierarchicalDawidSkene(max_iterations=3), False),
        (DefaultCombiner(), False),
        (DefaultCombiner(), True),
        (PLEM(max_iterations=3), True),
        (PL(), True),
    ],
)
def test_a_fit_of_many_shards_holds_as_much_as_one_of_few(
    method: Any, models: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unsupervised_pool, "ENOUGH", 1000)
    monkeypatch.setattr(sample, "ITEMS", 100)
    monkeypatch.setattr(hierarchical_dawid_skene, "ROUNDS", 2)
    monkeypatch.setattr(hierarchical_dawid_skene, "STEPS", 2)
    method.fit(Shards(Drawn(1, models)))
    most = []
    for number in (4, 16):
        tracemalloc.start()
        method.fit(Shards(Drawn(number, models)))
        most.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert most[1] < 1.15 * most[0]
