"""Files that say what they said are left alone, all others are written."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

from hitl.connectors import table_output
from hitl.connectors.table_output import write_if_changed


def test_other_bytes_of_the_same_size_and_time_are_written(tmp_path: Path) -> None:
    """Two writes may come within one tick of a file system."""
    path, written = tmp_path / "order.csv", []
    for item in "aabba":
        written.append(write_if_changed(path, pa.table({"item": [item]})))
        os.utime(path, (43_200, 43_200))
    assert written == [True, False, True, False, True]
    assert path.read_text() == '"item"\n"a"\n'
    assert [each.name for each in tmp_path.iterdir()] == ["order.csv"]


def test_a_file_that_says_so_already_is_not_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "added_items.jsonl"
    assert write_if_changed(path, pa.table({"item": ["a"]}))
    monkeypatch.setattr(table_output, "atomic", lambda *_: pytest.fail("written again"))
    assert not write_if_changed(path, pa.table({"item": ["a"]}))
