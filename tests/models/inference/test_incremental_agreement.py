"""After ten thousand labels that came, changed and went, the labels are those of a refit.

A refit starts from nothing, so this is about crowds in which a method has one answer. Dawid–Skene has many where
people gave few labels for each of many classes, and then also two refits from different starts disagree
(docs/benchmarks/update.txt).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest

from hitl.annotations import Annotations
from hitl.evidence import Evidence
from hitl.models.dawid_skene import DawidSkene
from hitl.models.inference import incremental
from hitl.models.inference.incremental import IncrementalEM
from hitl.models.pl_em import PLEM
from hitl.models.vb_ibcc import VBIBCC
from tests.changing_crowds import Change, part, random_changes, simulated, take_in, take_in_together
from tests.reference_data import crowd

CHANGES = 10_000


@pytest.fixture(autouse=True)
def _never_from_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it would be where ten thousand labels are few."""
    monkeypatch.setattr(incremental, "REFIT_AFTER", np.inf)


ANCHORED = VBIBCC(anchor=0.5, least_labels=2)


def followed(
    method: Any, evidence: Evidence, names: Annotations, changes: Iterable[Change], together: int = 1
) -> IncrementalEM:
    live: IncrementalEM = method.follow(method.fit(evidence), evidence)
    for some in batched(changes, together):
        if together > 1:
            take_in_together(live, names, some)
        else:
            take_in(live, names, some[0])
    return live


def batched(changes: Iterable[Change], size: int) -> Iterator[list[Change]]:
    rest = iter(changes)
    while some := list(islice(rest, size)):
        yield some


def agreement(method: Any, live: IncrementalEM, before: Evidence) -> tuple[float, float, float]:
    """Share of items whose labels are those of a refit: in a consensus, at once, and had nothing been taken in."""
    refit = method.fit(live.evidence()).labels
    untouched = method.apply(method.fit(before), live.evidence()).labels
    return tuple(
        float(np.mean(found == refit)) for found in (live.consensus().labels, live.snapshot().labels, untouched)
    )


@pytest.mark.parametrize(
    ("method", "items", "together"),
    [(ANCHORED, 20_000, 1), (DawidSkene(), 20_000, 40), (PLEM(), 10_000, 200)],
    ids=["vb-ibcc", "dawid-skene", "p+l-em"],
)
def test_a_simulated_crowd(method: Any, items: int, together: int) -> None:
    evidence, _, answer = simulated(items, items // 200, 5, 4, models=isinstance(method, PLEM))
    names = evidence.annotations
    live = followed(method, evidence, names, random_changes(names, answer, CHANGES), together)
    consensus, at_once, untouched = agreement(method, live, evidence)
    assert consensus >= 0.999
    assert at_once >= 0.998
    assert untouched < 0.995  # it was not easy


@pytest.mark.parametrize("name", ["rte", "sentence_polarity"])
def test_a_real_crowd_of_which_more_and_more_is_seen(name: str) -> None:
    recorded = crowd(name).annotations
    seen, answer = part(recorded, 0.7)
    pairs = np.stack((recorded.item, recorded.annotator), axis=1)
    live = followed(ANCHORED, Evidence(seen), recorded, random_changes(seen, answer, CHANGES, pairs=pairs), 20)
    consensus, at_once, untouched = agreement(ANCHORED, live, Evidence(seen))
    # On rte, 800 items, two that are nearly even end on the other side: a refit from the votes finds another top there.
    assert consensus >= (0.9975 if name == "rte" else 0.999)
    assert at_once >= 0.997
    assert untouched < 0.99
