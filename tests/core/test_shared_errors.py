"""Matrices of annotators who share their errors are the whole matrices that they stand for."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from hitl import Annotations
from hitl.active.acquisition import expected_gain
from hitl.models.annotators.mean_rows import at_labels, messages
from hitl.models.numerics import kernels
from hitl.tables.shared_errors import SharedErrors, as_array, diagonals, given


def table(classes: int, options: int, annotators: int = 3, weight: float = 1.0) -> SharedErrors:
    rng = np.random.default_rng(classes)
    seen = sparse.random_array((classes, options), density=0.3, rng=rng, format="lil")
    seen.setdiag(0)
    seen = sparse.csr_array(seen) / (2 * options)
    even_j = (1 - seen.sum(axis=1)) / (options - 1)
    return SharedErrors(rng.uniform(0.4, 0.9, annotators), np.full(annotators, weight), even_j, seen)


def whole(shared: SharedErrors) -> np.ndarray:
    """The definition, cell by cell."""
    annotators, classes, options = shared.shape
    made = np.empty(shared.shape)
    for k in range(annotators):
        for j in range(classes):
            for option in range(options):
                error = shared.even_j[j] + shared.seen[j, option]
                chance = shared.right_k[k] if option == j else (1 - shared.right_k[k]) * error
                made[k, j, option] = shared.weight_k[k] * chance
    return made


@pytest.mark.parametrize(("classes", "options"), [(5, 5), (4, 6)])
def test_every_reading_is_that_of_the_whole_table(classes: int, options: int) -> None:
    shared, rng = table(classes, options, weight=7.0), np.random.default_rng(0)
    full = whole(shared)
    k, j, option = (rng.integers(size, size=20) for size in shared.shape)
    np.testing.assert_allclose(full.sum(axis=2), 7.0)
    for found, expected in (
        (np.asarray(shared), full),
        (shared[1], full[1]),
        (shared.sum(axis=0), full.sum(axis=0)),
        (diagonals(as_array(shared)), np.diagonal(full, axis1=1, axis2=2)),
        (given(as_array(shared), k, option), full[k, :, option]),
        (shared.answers(k, j), full[k, j]),
        (shared.at(k, j, option), full[k, j, option]),
        (np.asarray(SharedErrors.from_arrays(shared.arrays())), full),
        (np.asarray(shared.of(shared.right_k)), full / 7.0),
    ):
        np.testing.assert_allclose(found, expected, atol=1e-14)
    cell, total = at_labels(as_array(shared), k.astype(np.int32), j.astype(np.int32), option.astype(np.int32))
    np.testing.assert_allclose(cell, full[k, j, option])
    np.testing.assert_allclose(total, 7.0)


def test_messages_are_sums_over_labels() -> None:
    shared, rng = table(5, 6), np.random.default_rng(1)
    matrix = rng.integers(-1, 6, size=(40, 3))
    item, annotator = np.nonzero(matrix >= 0)
    names = tuple("abcdef")
    labels = Annotations(item, annotator, matrix[item, annotator], tuple(range(40)), tuple(range(3)), names[:5], names)
    expected = kernels.messages(labels, np.log(np.ascontiguousarray(whole(shared).transpose(0, 2, 1))))
    np.testing.assert_allclose(messages(labels, as_array(shared)), expected, atol=1e-12)


@pytest.mark.parametrize("measure", [expected_gain.INFORMATION, expected_gain.ACCURACY])
def test_gains_are_those_of_the_whole_table_and_no_bound_is_passed(measure: expected_gain.Measure) -> None:
    shared = table(6, 7, annotators=5)
    q_nj = np.random.default_rng(2).dirichlet(np.full(6, 0.3), size=50)
    q_nj[0] = np.eye(6)[2]
    gain, expected = measure.gain(q_nj, as_array(shared)), measure.gain(q_nj, whole(shared))
    np.testing.assert_allclose(gain, expected, atol=1e-7)
    assert (measure.bound(q_nj, as_array(shared)) >= gain.max(axis=1) - 1e-9).all()
