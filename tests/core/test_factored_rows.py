"""A table by factors is the table that it stands for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hitl.consensus import Consensus
from hitl.models import MajorityVote
from hitl.tables.factored_rows import FactoredTable, as_array, diagonals, given
from hitl.testing import crowd
from tests.core.factored_tables import some_table, written_out
from tests.oracles import Floats


@pytest.fixture(params=[(4, 5, 7), (3, 6, 6), (1, 2, 2)], ids=str)
def table(request: pytest.FixtureRequest) -> FactoredTable:
    return some_table(np.random.default_rng(sum(request.param)), *request.param)


@pytest.fixture
def whole(table: FactoredTable) -> Floats:
    return written_out(table)


def test_it_becomes_an_array_where_one_is_needed(table: FactoredTable, whole: Floats) -> None:
    for found in (np.asarray(table), table + 0.0, table[:], np.stack(list(table))):
        np.testing.assert_allclose(found, whole, rtol=1e-13)
    np.testing.assert_allclose(np.log(table), np.log(whole), rtol=1e-13)
    np.testing.assert_allclose(table.sum(axis=2), whole.sum(axis=2), rtol=1e-13)  # type: ignore[attr-defined]
    assert (table.shape, table.size, len(table), table.ndim) == (whole.shape, whole.size, len(whole), 3)
    with pytest.raises(AttributeError):
        table.nothing_of_the_kind  # type: ignore[attr-defined]  # noqa: B018


def test_one_annotator_s_matrix_is_made_alone(table: FactoredTable, whole: Floats) -> None:
    for k in range(-1, len(whole)):
        np.testing.assert_allclose(table[k], whole[k], rtol=1e-13)
    with pytest.raises(IndexError):
        table[len(whole)]


def test_sums_diagonals_and_means_are_read_off_the_factors(table: FactoredTable, whole: Floats) -> None:
    np.testing.assert_allclose(table.totals(), whole.sum(axis=2), rtol=1e-13)
    np.testing.assert_allclose(diagonals(as_array(table)), diagonals(whole), rtol=1e-13)
    weight_k = np.random.default_rng(0).dirichlet(np.ones(len(whole)))
    np.testing.assert_allclose(table.mean(weight_k), np.einsum("k,kjl->jl", weight_k, whole)[None], rtol=1e-13)


def test_divided_by_its_sums_it_has_rows_that_sum_to_1(table: FactoredTable, whole: Floats) -> None:
    chances = table.divided(table.totals())
    np.testing.assert_allclose(chances, whole / whole.sum(axis=2, keepdims=True), rtol=1e-13)
    np.testing.assert_allclose(table, whole, rtol=1e-13)  # it is as it was


def test_some_annotators_and_others_beside_them(table: FactoredTable, whole: Floats) -> None:
    chosen = [len(whole) - 1, 0, 0]
    np.testing.assert_allclose(table.of(chosen), whole[chosen], rtol=1e-13)
    np.testing.assert_allclose(table.beside(table.of(chosen)), np.concatenate([whole, whole[chosen]]), rtol=1e-13)


def test_parts_of_matrices(table: FactoredTable, whole: Floats) -> None:
    rng = np.random.default_rng(1)
    k, j, option = (rng.integers(size, size=40) for size in whole.shape)
    np.testing.assert_allclose(table.at(k, j, option), whole[k, j, option], rtol=1e-13)
    np.testing.assert_allclose(given(as_array(table), k, option), whole[k, :, option], rtol=1e-13)
    np.testing.assert_allclose(given(whole, k, option), whole[k, :, option], rtol=1e-13)
    np.testing.assert_allclose(table.answers(k, j), whole[k, j], rtol=1e-13)
    np.testing.assert_allclose(table.rows(0, option), whole[0].T[option], rtol=1e-13)


def test_a_consensus_keeps_it_in_its_file(tmp_path: Path) -> None:
    evidence, _ = crowd(np.random.default_rng(0), n_items=9, n_annotators=4, n_classes=5, n_options=7)
    table = some_table(np.random.default_rng(0))
    consensus = MajorityVote().fit(evidence)
    mean = as_array(table.divided(table.totals()))
    people = replace(consensus.annotators, concentration=as_array(table), confusion=mean)
    replace(consensus, annotators=people).save(tmp_path / "c.npz")
    found = Consensus.load(tmp_path / "c.npz").annotators
    assert isinstance(found.concentration, FactoredTable)
    assert isinstance(found.confusion, FactoredTable)
    np.testing.assert_array_equal(found.concentration, table)
    np.testing.assert_array_equal(found.confusion, mean)
    np.testing.assert_allclose(found.accuracy, replace(people, concentration=written_out(table)).accuracy, rtol=1e-12)
