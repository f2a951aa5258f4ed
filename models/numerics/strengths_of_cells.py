"""The likelihood of strengths s of a Dirichlet prior, from labels by cells: sums over cells of

    f_s(x, N)  =  ln G(s x + N) - ln G(s x)            x the mean, N the expected count of a cell

With thousands of classes most counts and means are small, and there ln G(y) = g(y) - ln y helps, g(y) = ln G(1 + y):

    f  =  -ln(1 + N / y) + g(y + N) - g(y)             y = s x
    g(y + N) - g(y)  =  N g' + N^2 g'' / 2 + N^3 g''' / 6 + ...        g(y) = -gamma y + sum_i zeta(i) (-y)^i / i

The logarithms of many cells are one logarithm of a product, and the series needs the moments sum N^a x^i, which serve
all strengths. With N < FEW and x < SMALL, and strengths up to 128, what is left out is less than 1e-8 of N. Other cells
go the way of `special`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import prange
from scipy.special import factorial, zeta

from hitl.annotations import Floats
from hitl.models.numerics.compiled import compiled, threaded
from hitl.models.numerics.kernels import log_positive
from hitl.models.numerics.observed_cells import (
    BLOCK,
    Cells,
    arrays_of,
    blocks_of,
    counted_row,
    expected_row,
    labels_of,
)
from hitl.models.numerics.special import CHUNK, rises_of_chunk
from hitl.tables.factored_rows import Factors

FEW, SMALL = 1e-3, 5e-4
"""Counts and means below which products and moments are taken."""

ORDERS = (7, 5, 3)
"""Moments with N, N^2 and N^3."""

FACTORS = 16
"""Most factors of a product, each N / (s x) + 1: some millions at most."""


def log_likelihood(
    means: Factors, cells: Cells, q_nj: Floats, weight_n: Floats, strengths: Floats, above: float
) -> Floats:
    """(S,) sums of f_s over cells with counts above a least one, by beliefs (N, J) and weights (N,) of the items."""
    blocks = blocks_of(cells.n_classes)
    sums, moments = np.zeros((blocks, len(strengths))), np.zeros((blocks, sum(ORDERS)))
    labels, q_nj = labels_of(cells), np.ascontiguousarray(q_nj)
    _sums(labels, q_nj, weight_n, arrays_of(means), strengths, above, sums, moments)
    total: Floats = sums.sum(axis=0)
    return total + _series(moments.sum(axis=0), strengths)


def _series(moments: Floats, strengths: Floats) -> Floats:
    """(S,) sums of g(s x + N) - g(s x)."""
    found = np.zeros(len(strengths))
    for a, moment_i in enumerate(np.split(moments, np.cumsum(ORDERS)[:-1]), start=1):
        i = np.arange(len(moment_i))
        # the coefficient of y^(i + a) in g is zeta(i + a) (-1)^(i + a) / (i + a), that of y is -gamma
        order = i + a
        of_g = np.where(order == 1, -np.euler_gamma, (-1.0) ** order * zeta(np.maximum(order, 2)) / order)
        derived = of_g * factorial(order) / factorial(i) / factorial(a)
        found += (strengths[:, None] ** i) @ (derived * moment_i)
    return found


@compiled
def _add_moments(few: Any, mean: Any, moments: Any, power: Any, term: Any) -> None:
    """Adds N^a x^i of a row to the sums of each class (ORDERS, BLOCK); `power` and `term` are room for it."""
    first = 0
    power[:] = few
    for orders in ORDERS:
        term[:] = power
        for i in range(first, first + orders):
            into = moments[i]
            for j in range(few.shape[0]):
                into[j] += term[j]
                term[j] *= mean[j]
        for j in range(few.shape[0]):
            power[j] *= few[j]
        first += orders


@compiled
def _take_logarithms(products: Any, sums: Any) -> None:
    """Takes the logarithms of products from the sums; products begin again at 1."""
    for s in range(products.shape[0]):
        product, total = products[s], 0.0
        for j in range(product.shape[0]):
            product[j] = log_positive(product[j])
        for j in range(product.shape[0]):
            total += product[j]
        sums[s] -= total
        product[:] = 1.0


@compiled
def _sums_of_block(
    low: Any, labels: Any, q: Any, weight: Any, factors: Any, strengths: Any, above: float, sums: Any, moments: Any
) -> None:
    cell_start, label_start, item, option = labels
    crowd, wrong, right, other = factors
    size, filled, held = min(q.shape[1] - low, BLOCK), 0, 0
    row, mean, few, ratio = np.empty(size), np.empty(size), np.empty(size), np.empty(size)
    products, of_class = np.ones((strengths.shape[0], size)), np.zeros((moments.shape[0], size))
    many_mean, many_count, part = np.empty(CHUNK), np.empty(CHUNK), np.empty(strengths.shape[0])
    for k in range(cell_start.shape[0] - 1):
        for p in range(cell_start[k], cell_start[k + 1]):
            counted_row(label_start[p], label_start[p + 1], item, q, weight, low, row)
            expected_row(option[p], low, crowd, wrong[k], right[k], other[k], mean)
            for j in range(size):
                few[j] = row[j] if above < row[j] < FEW and mean[j] < SMALL else 0.0
                ratio[j] = few[j] / mean[j]
            for j in range(size):
                if row[j] > above and few[j] == 0:
                    many_mean[filled], many_count[filled] = mean[j], row[j]
                    filled += 1
            for s in range(strengths.shape[0]):
                product, share = products[s], 1 / strengths[s]
                for j in range(size):
                    product[j] *= 1 + ratio[j] * share
            _add_moments(few, mean, of_class, row, ratio)
            held += 1
            if held == FACTORS:
                _take_logarithms(products, sums)
                held = 0
            if filled > CHUNK - BLOCK:
                rises_of_chunk(many_mean[:filled], many_count[:filled], strengths, above, part)
                sums += part
                filled = 0
    _take_logarithms(products, sums)
    rises_of_chunk(many_mean[:filled], many_count[:filled], strengths, above, part)
    sums += part
    for i in range(moments.shape[0]):
        moments[i] = of_class[i].sum()


@threaded
def _sums(
    labels: Any, q: Any, weight: Any, factors: Any, strengths: Any, above: float, sums: Any, moments: Any
) -> None:
    for block in prange(sums.shape[0]):
        low = np.int64(block) * BLOCK
        _sums_of_block(low, labels, q, weight, factors, strengths, above, sums[block], moments[block])
