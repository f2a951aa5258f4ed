"""Rows that are made as they are read, against whole tables: `SkilledRows`, and sums over all cells by scipy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse
from scipy.special import gammaln

from hitl.annotations import Annotations
from hitl.models.hierarchy.skills import STRENGTHS, SkilledRows
from hitl.models.numerics import kernels
from hitl.models.numerics.observed_cells import BLOCK, Cells, Pseudo, read
from hitl.models.numerics.strengths_of_cells import FEW, SMALL, log_likelihood
from hitl.testing import crowd
from tests.core.factored_tables import some_factors
from tests.oracles import Floats

SHAPES = [(4, 5, 5), (3, 2 * BLOCK + 3, 2 * BLOCK + 5), (5, BLOCK, BLOCK + 1)]


def table(annotators: int, classes: int, options: int, pool: int = 9) -> Annotations:
    rng = np.random.default_rng(classes)
    evidence, _ = crowd(rng, 40, annotators, classes, options, unlabeled=3, pool=pool)
    return evidence.annotations


def beliefs(a: Annotations, sharpness: float = 2.0) -> Floats:
    """(N, J) from next to nothing to nearly 1."""
    raw = np.exp(np.random.default_rng(1).normal(0, sharpness, size=(a.n_items, a.n_classes)))
    return raw / raw.sum(axis=1, keepdims=True)


def weights(a: Annotations) -> Floats:
    weight_n = np.random.default_rng(2).uniform(0.2, 1, size=a.n_items)
    weight_n[::5] = 0.0  # these items are judged, and do not count
    return weight_n


def votes_of(cells: Cells) -> sparse.csr_array:
    rng = np.random.default_rng(3)
    votes_pj = rng.uniform(0, 2, size=(len(cells), cells.n_classes)) * (rng.random((len(cells), cells.n_classes)) < 0.1)
    return sparse.csr_array(votes_pj)


def whole(pseudo: Pseudo) -> Floats:
    """(K, L, J) all pseudo-counts."""
    tables, cells = pseudo.factors.tables(), pseudo.cells
    tables[cells.annotator_p, cells.option_p] += pseudo.votes_pj.toarray()
    return tables


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_cells_hold_every_label_once(shape: tuple[int, int, int]) -> None:
    a = table(*shape)
    cells = Cells.of(a)
    rows = [
        (int(item), int(cells.annotator_p[p]), int(cells.option_p[p]))
        for p in range(len(cells))
        for item in cells.item_m[cells.label_start[p] : cells.label_start[p + 1]]
    ]
    assert sorted(rows) == sorted(zip(a.item.tolist(), a.annotator.tolist(), a.label.tolist(), strict=True))
    assert len(set(cells.row_p.tolist())) == len(cells) == len(np.unique(a.cell))
    q_nj, weight_n = beliefs(a), weights(a)
    counts_cj = kernels.counts(a, q_nj, weight_n).reshape(-1, a.n_classes)
    np.testing.assert_allclose(cells.summed(weight_n, a.n_items) @ q_nj, counts_cj[cells.row_p], rtol=1e-12)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_messages_and_density_are_those_of_whole_tables(shape: tuple[int, int, int]) -> None:
    a = table(*shape)
    cells = Cells.of(a)
    factors = some_factors(np.random.default_rng(0), a.n_annotators, a.n_classes, a.n_options)
    pseudo = Pseudo(factors, votes_of(cells), cells)
    q_nj, weight_n = beliefs(a), weights(a)
    expected = SkilledRows.unlearned(whole(pseudo)).learn(kernels.counts(a, q_nj, weight_n))
    message_nj, density = read(pseudo, q_nj, weight_n)
    np.testing.assert_allclose(message_nj, kernels.messages(a, expected.log_pi_klj), rtol=1e-12)
    assert density == pytest.approx(expected.log_density(), rel=1e-12)


def test_counts_that_went_on_beyond_0_are_0() -> None:
    a = table(4, 5, 6)
    cells, weight_n = Cells.of(a), weights(a)
    pseudo = Pseudo(some_factors(np.random.default_rng(0), a.n_annotators, 5, 6), votes_of(cells), cells)
    beyond_nj = beliefs(a) - 0.2
    counts_klj = kernels.counts(a, beyond_nj, weight_n)
    assert (counts_klj < 0).any()
    assert (counts_klj > 0).any()
    expected = SkilledRows.unlearned(whole(pseudo)).learn(np.maximum(counts_klj, 0))
    message_nj, _ = read(pseudo, beyond_nj, weight_n)
    np.testing.assert_allclose(message_nj, kernels.messages(a, expected.log_pi_klj), rtol=1e-12)


@pytest.mark.parametrize("sharpness", [0.1, 4.0, 12.0], ids="beliefs {}".format)
@pytest.mark.parametrize("mean", [1.0, SMALL / 2, 1e-7], ids="means {}".format)
def test_the_likelihood_of_strengths_is_a_sum_over_all_cells(mean: float, sharpness: float) -> None:
    a = table(4, 200, 203)
    cells, weight_n, q_nj = Cells.of(a), weights(a), beliefs(a, sharpness)
    factors = some_factors(np.random.default_rng(0), a.n_annotators, a.n_classes, a.n_options)
    means = replace(factors.times(mean), right_kj=factors.right_kj)
    counts_klj, above = kernels.counts(a, q_nj, weight_n), 1e-15
    x, n = means.tables()[counts_klj > above], counts_klj[counts_klj > above]
    if (mean, sharpness) == (SMALL / 2, 4.0):  # all ways are taken
        assert ((n < FEW) & (x < SMALL)).any()
        assert ((n >= FEW) & (x < SMALL)).any()
        assert (x >= SMALL).any()
    expected = [np.sum(gammaln(s * x + n) - gammaln(s * x)) for s in STRENGTHS]
    found = log_likelihood(means, cells, q_nj, weight_n, STRENGTHS, above)
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-7)
