"""Shards give what one table gives, for every method that takes them, however the table is cut."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hitl.consensus import Consensus
from hitl.errors import BadEvidence
from hitl.evidence import Evidence
from hitl.models import PL, DawidSkene
from hitl.models.combiner import fits_shards, given, needs_of
from hitl.models.inference import unsupervised_pool
from hitl.models.inference.engine import SERIAL, Shards, summed
from hitl.models.methods import COMBINERS
from hitl.models.registry import combiner
from tests import oracles
from tests.models.shards import Elsewhere, MadeAnew, cut, stacked

METHODS = [name for name in COMBINERS if fits_shards(COMBINERS.load(name))]
FAR = 1e-6
"""How far sums in another order may lead."""


def crowd(seed: int, **shape: Any) -> Evidence:
    return oracles.crowd(np.random.default_rng(seed), **shape)[0]


TABLES = {
    "known": crowd(1, n_items=60, n_annotators=12, n_classes=4, n_options=5, asked=0.25, known=0.3),
    "pool": crowd(2, n_items=80, n_annotators=2, n_classes=3, asked=0.1, pool=150, known=0.25, unlabeled=8),
    "thin": crowd(3, n_items=90, n_annotators=40, n_classes=3, asked=0.05),
    "models": crowd(
        4, n_items=70, n_annotators=9, n_classes=3, asked=0.3, known=0.2, models=2, abstaining=0.2, unlabeled=5
    ),
    "models alone": crowd(5, n_items=60, n_annotators=6, n_classes=4, asked=0.3, models=2),
}
"""Known truths, gaps, items without labels, answers that are no class, annotators without ids, models that abstain."""


def tables(method: str) -> list[str]:
    return [name for name, evidence in TABLES.items() if needs_of(COMBINERS.load(method)) <= given(evidence)]


CASES = [(method, table) for method in METHODS for table in tables(method)]


def fields(consensus: Consensus) -> dict[str, Any]:
    people, effect = consensus.annotators, consensus.design_effect
    return {
        "shares": consensus.class_shares,
        "concentration": people.concentration,
        "confusion": people.confusion,
        "labels": people.labels,
        "prior": np.zeros(0) if people.prior is None else people.prior,
        "answers": np.zeros(0) if people.answers is None else people.answers,
        "accuracy": people.accuracy,
        "temperatures": np.array(list(consensus.temperatures.values())),
        "effect": np.array([effect.rho, effect.echo, effect.residual]),
        "shift": np.zeros(0) if effect.shift is None else effect.shift,
        "objective": np.array(consensus.fit.objective),
        **consensus.parameters,
    }


@pytest.fixture(autouse=True)
def _quiet() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.parametrize(("method", "table"), CASES)
def test_one_shard_is_the_table_to_the_last_bit(method: str, table: str) -> None:
    evidence = TABLES[table]
    whole, learned = combiner(method).fit(evidence), combiner(method).fit(Shards([evidence]))
    np.testing.assert_array_equal(
        combiner(method).apply(learned, evidence).probabilities, combiner(method).apply(whole, evidence).probabilities
    )
    for name, value in fields(whole).items():
        np.testing.assert_array_equal(fields(learned)[name], value, err_msg=name)


@pytest.mark.parametrize(("method", "table"), CASES)
@pytest.mark.parametrize("ends", [(1, 2, 40), (5, 11, 17, 30, 44, 59)])
def test_any_cut_gives_what_the_table_gives(method: str, table: str, ends: tuple[int, ...]) -> None:
    evidence = TABLES[table]
    shards = MadeAnew(cut(evidence, *ends))
    whole, learned = combiner(method).fit(evidence), combiner(method).fit(Shards(shards))
    np.testing.assert_allclose(
        stacked(combiner(method), learned, shards), combiner(method).apply(whole, evidence).probabilities, atol=FAR
    )
    assert learned.fit.converged == whole.fit.converged
    for name, value in fields(whole).items():
        np.testing.assert_allclose(fields(learned)[name], value, rtol=FAR, atol=FAR, err_msg=name)


@pytest.mark.parametrize(("method", "table"), dict(CASES).items())  # one table per method
def test_who_computes_changes_nothing(method: str, table: str) -> None:
    shards = cut(TABLES[table], 7, 30, 50)
    here, there = (combiner(method).fit(Shards(shards, engine)) for engine in (SERIAL, Elsewhere()))
    np.testing.assert_array_equal(stacked(combiner(method), here, shards), stacked(combiner(method), there, shards))
    for name, value in fields(here).items():
        np.testing.assert_array_equal(fields(there)[name], value, err_msg=name)


@pytest.mark.parametrize("method", ["pl-em", "default"])
@pytest.mark.parametrize("ends", [(), (9, 10, 33)])
def test_of_many_items_a_pool_is_learned_from_a_sample_of_each_shard(
    method: str, ends: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    everything = combiner(method).fit(TABLES["models"]).temperatures["m0"]
    monkeypatch.setattr(unsupervised_pool, "ENOUGH", 30)
    evidence = TABLES["models"]
    whole, learned = combiner(method).fit(evidence), combiner(method).fit(Shards(cut(evidence, *ends)))
    assert whole.temperatures["m0"] != everything
    exact = {"rtol": FAR} if not ends else {"rtol": 0.3}  # a sample of as many other items
    np.testing.assert_allclose(learned.temperatures["m0"], whole.temperatures["m0"], **exact)


def test_truth_that_a_method_needs_may_be_in_any_shard() -> None:
    evidence = TABLES["models"]
    assert evidence.truth is not None
    truth = np.where(np.arange(70) < 50, -1, evidence.truth).astype(np.int32)
    table = replace(evidence, truth=truth)
    whole, learned = PL().fit(table), PL().fit(Shards(cut(table, 20, 45)))
    np.testing.assert_allclose(stacked(PL(), learned, cut(table, 33)), PL().apply(whole, table).probabilities, atol=FAR)
    with pytest.raises(BadEvidence, match="pl needs ground truth"):
        PL().fit(Shards(cut(replace(evidence, truth=None), 20, 45)))


@pytest.mark.parametrize("method", ["vb-ibcc", "dawid-skene", "hierarchical-dawid-skene", "default"])
def test_a_start_is_used_shard_by_shard(method: str) -> None:
    evidence = TABLES["known"]
    start = combiner(method).fit(replace(evidence, truth=None))
    whole = combiner(method).fit(evidence, start=start)
    learned = combiner(method).fit(Shards(cut(evidence, 20, 41)), start=start)
    assert whole.fit.iterations == learned.fit.iterations
    np.testing.assert_allclose(
        stacked(combiner(method), learned, cut(evidence, 33)),
        combiner(method).apply(whole, evidence).probabilities,
        atol=FAR,
    )


def test_sums_are_added_in_pairs_of_neighbours() -> None:
    for n in range(1, 12):
        parts = [f"{i}" for i in range(n)]
        assert summed(_Text(one) for one in parts).text == _in_pairs(parts)


class _Text:
    def __init__(self, text: str) -> None:
        self.text = text

    def __add__(self, other: _Text) -> _Text:
        return _Text(f"({self.text}+{other.text})")


def _in_pairs(parts: list[str]) -> str:
    """Level by level, as a tree over workers would; the odd one out goes up as it is."""
    while len(parts) > 1:
        pairs = [parts[i : i + 2] for i in range(0, len(parts), 2)]
        parts = [f"({pair[0]}+{pair[1]})" if len(pair) == 2 else pair[0] for pair in pairs]
    return parts[0]


def test_no_shard_is_an_error() -> None:
    with pytest.raises(BadEvidence, match="no shards"):
        DawidSkene().fit(Shards([]))
