"""What every combiner, and the policy, answered before the house was rebuilt: nothing that is moved may change it.

Each output is kept as its size and eight projections on fixed random directions, which any change of a value moves.
`python -m tests.test_frozen` writes tests/data/frozen.json anew; do that only for a change of answers that is meant,
and say in the commit what it gains.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hitl.active.policy import ExpectedGain
from hitl.annotations import Floats
from hitl.consensus import Consensus
from hitl.crew import Budget, Crew
from hitl.demo.recorded import rte
from hitl.evidence import Evidence
from hitl.models.combiner import given, needs_of
from hitl.models.registry import COMBINERS, combiner
from hitl.plan import Plan
from tests import oracles

FILE = Path(__file__).parent / "data" / "frozen.json"
TOLERANCE = 1e-10
SHORT: dict[str, dict[str, Any]] = {
    "gibbs-ibcc": {"draws": 60, "burn_in": 30},
    "ebcc": {"draws": 60, "burn_in": 30},
    "dbcc": {"draws": 40, "burn_in": 20},
    "edbcc": {"draws": 40, "burn_in": 20},
}
"""Chains long enough to use every step, short enough for a test."""


def _rte() -> Evidence:
    evidence = rte()
    labeled = evidence.annotations
    some = labeled.select(labeled.item < 120)
    annotations = replace(some, items=labeled.items[:120])
    assert evidence.truth is not None
    truth = evidence.truth[:120]
    rng = np.random.default_rng(7)
    models = _models(rng, truth, 2, 2)
    told = np.where(np.arange(120) % 4 == 0, truth, -1).astype(np.int32)
    return Evidence(annotations, models, truth=told)


def _models(rng: np.random.Generator, truth: Any, n_classes: int, n_models: int) -> dict[str, Floats]:
    models = {}
    for m in range(n_models):
        logits = rng.normal(size=(len(truth), n_classes))
        logits[np.arange(len(truth)), truth] += 2.0 + m
        p_nj = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        p_nj[rng.random(len(truth)) < 0.1] = np.nan
        models[f"model-{m}"] = p_nj
    return models


def _crowd(seed: int, **shape: Any) -> Evidence:
    return oracles.crowd(np.random.default_rng(seed), **shape)[0]


SETS: dict[str, Callable[[], Evidence]] = {
    "rte": _rte,
    "unsure": lambda: _crowd(1, n_items=60, n_annotators=12, n_classes=4, n_options=5, asked=0.25, known=0.3, models=1),
    "pool": lambda: _crowd(
        2,
        n_items=80,
        n_annotators=2,
        n_classes=6,
        asked=0.1,
        pool=150,
        known=0.25,
        models=3,
        abstaining=0.2,
        unlabeled=8,
    ),
    "thin": lambda: _crowd(3, n_items=90, n_annotators=40, n_classes=3, asked=0.05, known=0.2, models=2),
}


def _kinds(evidence: Evidence) -> dict[str, Evidence]:
    """The same with and without models and truth."""
    return {
        "all": evidence,
        "no truth": replace(evidence, truth=None),
        "no models": replace(evidence, probabilities={}),
        "people only": Evidence(evidence.annotations),
    }


def _frozen(values: Any) -> list[float]:
    flat = np.asarray(values, dtype=np.float64).ravel()
    rng = np.random.default_rng(flat.size)
    rows = rng.normal(size=(8, flat.size))
    return [float(flat.size), *(float(np.sum(row * flat)) for row in rows)]


BY_VOTES = ("majority", "weighted-majority", "weighted-sum", "mean-score")
"""Their accuracy has been that of the answers beside the labels since; what is frozen is that of the matrices."""


def _of_consensus(consensus: Consensus) -> dict[str, list[float]]:
    people = consensus.annotators
    if consensus.fit.method in BY_VOTES:
        people = replace(people, answers=None)
    low, high = people.interval
    parts = {
        "probabilities": consensus.probabilities,
        "shares": consensus.class_shares,
        "confusion": people.confusion,
        "concentration": people.concentration,
        "accuracy": people.accuracy,
        "low": low,
        "high": high,
        "objective": consensus.fit.objective,
        "temperatures": list(consensus.temperatures.values()),
    }
    return {name: _frozen(values) for name, values in parts.items()}


def _of_plan(plan: Plan, evidence: Evidence) -> dict[str, Any]:
    return {
        "asks": [[str(ask.item), ask.annotator, ask.check] for ask in plan.asks],
        "gain": _frozen([ask.gain for ask in plan.asks]),
        "right": _frozen([ask.right for ask in plan.asks]),
        "done": sorted(str(done.item) for done in plan.done),
        "open": plan.open_items,
    }


def _crews(evidence: Evidence) -> dict[str, tuple[ExpectedGain, Crew, Budget]]:
    people = evidence.annotations.annotators
    named = tuple(name for k, name in enumerate(people) if k != evidence.annotations.anonymous)
    busy = Crew(named, default_capacity=3, cost={name: 1 + k % 3 for k, name in enumerate(named)})
    return {
        "named": (ExpectedGain(), Crew(named), Budget(open_questions=12, target_confidence=0.99)),
        "busy": (
            ExpectedGain(gold_share=0.2),
            busy,
            Budget(open_questions=15, max_labels=6, cost=20.0, value_per_label=50.0),
        ),
        "anyone": (ExpectedGain(), Crew(), Budget(open_questions=10, target_confidence=0.97)),
    }


def _fits(set_name: str) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    everything = SETS[set_name]()
    for kind, evidence in _kinds(everything).items():
        for method in [name for name in COMBINERS if kind == "all" or name in ("default", "vb-ibcc", "pl-em")]:
            if not needs_of(COMBINERS.load(method)) <= given(evidence):
                continue
            consensus = combiner(method, **SHORT.get(method, {})).fit(evidence)
            found[f"{method}, {kind}"] = _of_consensus(consensus)
            if method == "default":
                for name, (policy, crew, budget) in _crews(evidence).items():
                    found[f"plan {name}, {kind}"] = _of_plan(
                        policy.plan([(evidence, consensus)], crew, budget), evidence
                    )
    return found


def _agree(found: Any, kept: Any) -> bool:
    if isinstance(kept, dict):
        return found.keys() == kept.keys() and all(_agree(found[key], kept[key]) for key in kept)
    if isinstance(kept, list) and kept and isinstance(kept[0], float):
        size = np.sqrt(max(kept[0], 1.0))
        return len(found) == len(kept) and bool(np.allclose(found, kept, rtol=TOLERANCE, atol=TOLERANCE * size))
    return bool(found == kept)


@pytest.mark.parametrize("name", SETS)
@pytest.mark.filterwarnings("ignore")
def test_answers_are_those_of_before(name: str) -> None:
    kept = json.loads(FILE.read_text())[name]
    found = json.loads(json.dumps(_fits(name)))
    assert kept.keys() <= found.keys()  # a method may join
    assert [key for key in kept if not _agree(found[key], kept[key])] == []


def test_a_change_of_one_value_is_seen() -> None:
    values = np.linspace(0, 1, 500)
    moved = values.copy()
    moved[123] += 1e-8
    assert _agree({"p": _frozen(values)}, {"p": _frozen(values + 1e-14)})
    assert not _agree({"p": _frozen(values)}, {"p": _frozen(moved)})


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        FILE.parent.mkdir(exist_ok=True)
        FILE.write_text(json.dumps({name: _fits(name) for name in SETS}, indent=0) + "\n")
