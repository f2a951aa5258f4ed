"""Values behind codes are the sequence that they stand for."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from hitl.tables.coded import Coded, Numbers
from hitl.tables.encoding import CheckedNames

NAMES = CheckedNames.of(pa.array(["a", "b", "c"]))


@pytest.mark.parametrize("values", [NAMES, ("a", "b", "c"), [("a",), ("b",), ("c",)]])
def test_it_is_the_sequence_that_it_stands_for(values: list[object]) -> None:
    codes = np.array([2, 0, 0, 1])
    coded, expected = Coded(values, codes), [values[code] for code in codes]
    assert list(coded) == expected
    assert [coded[place] for place in range(-4, 4)] == expected[-4:] + expected
    assert list(coded[1:3]) == expected[1:3]
    assert len(coded) == 4
    assert expected[0] in coded
    assert coded.column.to_pylist() == [list(one) if isinstance(one, tuple) else one for one in expected]


def test_none() -> None:
    assert list(Coded(NAMES, np.empty(0, np.int64))) == []
    assert Coded(NAMES, np.empty(0, np.int64)).column.to_pylist() == []


def test_numbers_are_a_sequence_of_floats() -> None:
    numbers = Numbers(np.array([0.5, 1.0, 0.25]))
    assert list(numbers) == numbers == [0.5, 1.0, 0.25]
    assert numbers[1:] == [1.0, 0.25]
    assert numbers != [0.5, 1.0]
    assert {type(one) for one in (*numbers, numbers[-1])} == {float}
    assert repr(numbers) == "[0.5, 1.0, 0.25]"
    assert np.asarray(numbers).tolist() == [0.5, 1.0, 0.25]
    assert pa.array(numbers).to_pylist() == [0.5, 1.0, 0.25]
