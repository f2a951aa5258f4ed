"""Arrays that are kept beside a file come back as they were, or not at all."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hitl.tables import kept_arrays

ARRAYS = {
    "few": np.arange(3, dtype=np.int32),
    "table": np.arange(6, dtype=np.uint16).reshape(2, 3),
    "none": np.empty((0, 3), np.int64),
    "turned": np.arange(6, dtype=np.float64).reshape(2, 3).T,
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    kept_arrays.write(tmp_path / "kept", 7, {"said": ["é", None]}, ARRAYS)
    return tmp_path / "kept"


def test_all_comes_back(path: Path) -> None:
    found = kept_arrays.read(path, 7)
    assert found is not None
    assert found[0] == {"said": ["é", None]}
    assert [*found[1]] == [*ARRAYS]
    for name, array in ARRAYS.items():
        assert found[1][name].dtype == array.dtype
        np.testing.assert_array_equal(found[1][name], array)


def test_some_come_back_alone(path: Path) -> None:
    found = kept_arrays.read(path, 7, ("none", "turned"))
    assert found is not None
    assert {*found[1]} == {"none", "turned"}
    np.testing.assert_array_equal(found[1]["turned"], ARRAYS["turned"])


def test_what_is_damaged_is_none(path: Path) -> None:
    data = path.read_bytes()
    for place in range(len(data)):
        path.write_bytes(data[:place] + bytes([data[place] ^ 0x41]) + data[place + 1 :])
        assert kept_arrays.read(path, 7) is None, place
        path.write_bytes(data[:place])
        assert kept_arrays.read(path, 7) is None, place


def test_what_is_damaged_elsewhere_does_not_matter_to_some(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    assert kept_arrays.read(path, 7, ("few", "table")) is not None
    assert kept_arrays.read(path, 7, ("turned",)) is None


def test_another_form_and_what_is_no_such_file_are_none(path: Path, tmp_path: Path) -> None:
    assert kept_arrays.read(path, 8) is None
    assert kept_arrays.read(tmp_path / "nothing", 7) is None
    assert kept_arrays.read(tmp_path, 7) is None
    for content in (b"", b"PK\x03\x04", b"1 2\n", b"x" * 100, b"0 0\n", b"558161692 2\n{}", b"-1 -1\n{}"):
        path.write_bytes(content)
        assert kept_arrays.read(path, 7) is None
