"""Columns of a table as numbers: scaled where they are numeric, one-hot where they are not; and fewer of them.

numeric          x = (v − mean) / sd, both over the rows (sd of the population; 0 where all values are equal)
categorical      one column of 0 and 1 for each value, in the order of their names
principal        the d directions of largest variance of (N, D) numbers, the mean taken off
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hitl.annotations import Floats
from hitl.errors import BadInput
from hitl.tables.encoding import natural_order

MOST_VALUES = 1_000
"""Values of a categorical column; one with more is a name or a text."""


def scaled(name: str, values: Sequence[Any]) -> Floats:
    """(N, d) of N values of one column, none of them missing: numbers, text that spells numbers, or categories.

    Raises BadInput for a categorical column of too many values.

    Example:
        >>> from hitl.models.predictors.columns import scaled
        >>> scaled("size", ["1", "3"]).ravel().tolist(), scaled("kind", ["cat", "dog"]).tolist()
        ([-1.0, 1.0], [[1.0, 0.0], [0.0, 1.0]])
    """
    numbers = _numbers(values)
    if numbers is None:
        return _one_hot(name, [str(value) for value in values])
    deviation = numbers.std(axis=0)
    scaled_nd: Floats = (numbers - numbers.mean(axis=0)) / np.where(deviation > 0, deviation, 1.0)
    return scaled_nd


def _numbers(values: Sequence[Any]) -> Floats | None:
    """(N, 1) numbers, or (N, d) of lists of d > 0; None where a value is none. Yes and no are categories."""
    if any(isinstance(value, bool) for value in values):
        return None
    try:
        numbers = np.array([np.asarray(value, dtype=np.float64).ravel() for value in values])
    except (TypeError, ValueError, OverflowError):
        return None
    return numbers if numbers.size and np.isfinite(numbers).all() else None


def _one_hot(name: str, values: Sequence[str]) -> Floats:
    names = natural_order(list(dict.fromkeys(values)))
    if len(names) > MOST_VALUES:
        raise BadInput(
            f"column {name!r}: {len(names):,} different values; expected numbers, or {MOST_VALUES:,} categories at "
            "most. Of texts make features with text, of names none"
        )
    place = {value: code for code, value in enumerate(names)}
    return np.eye(len(names))[[place[value] for value in values]]


def principal(x_nd: Floats, dimensions: int) -> Floats:
    """(N, d) the principal components of the rows, d = `dimensions`, at most min(N, D).

    The sign of each is such that its largest loading is positive: the same rows give the same numbers.
    """
    centred = x_nd - x_nd.mean(axis=0)
    _, direction_dd = np.linalg.eigh(centred.T @ centred)
    v_dd = direction_dd[:, ::-1][:, : min(dimensions, *x_nd.shape)]
    sign = np.sign(v_dd[np.abs(v_dd).argmax(axis=0), np.arange(v_dd.shape[1])])
    projected: Floats = centred @ (v_dd * sign)
    return projected
