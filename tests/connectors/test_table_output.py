"""Files that say what they said are left alone, all others are written."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

from hitl.connectors import table_output
from hitl.connectors.table_output import write_if_changed
from hitl.tables.files import write_table


def test_other_bytes_of_the_same_size_and_time_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two writes may come within one tick of a file system."""

    def at_noon(path: Path, table: pa.Table) -> None:
        write_table(path, table)
        os.utime(path, (43_200, 43_200))

    monkeypatch.setattr(table_output, "write_table", at_noon)
    path = tmp_path / "order.csv"
    assert [write_if_changed(path, pa.table({"item": [item]})) for item in "aabba"] == [True, False, True, False, True]
    assert path.read_text() == '"item"\n"a"\n'
    assert [each.name for each in tmp_path.iterdir()] == ["order.csv"]
