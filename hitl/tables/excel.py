"""Excel workbooks: the first sheet as a table of text, with its first row that has text as the header."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from datetime import date, datetime, time
from itertools import islice
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import pyarrow as pa

from hitl.errors import BadTable, MissingExtra

MAX_LINES = 1 << 20
"""Maximum number of lines of a sheet, as in Excel; a file may claim any number."""

MAX_CELLS = 50_000_000


def read(path: Path, size: int | None, columns: Sequence[str] | None) -> Iterator[pa.Table]:
    """Yield the non-empty rows, as text, in one table: 7.0 is "7", a date is in ISO 8601.

    Raise BadTable for a file that is no workbook or has no header, and for a value outside the header's columns.
    """
    rows = _rows(path)
    _, header = next(rows, (0, []))
    while header and header[-1] is None:
        header.pop()
    if not header or None in header:
        raise BadTable(f"{path}: a column of the first row has no name; expected a name for each column")
    width = len(header)
    table: list[list[str | None]] = []
    for line, row in rows:
        if any(cell is not None for cell in row[width:]):
            raise BadTable(f"{path}, line {line}: a value stands beside the {width} columns of the first row")
        table.append([*row[:width], *[None] * (width - len(row))])
    arrays = [pa.array([row[place] for row in table], pa.string()) for place in range(width)]
    yield pa.Table.from_arrays(arrays, names=[str(name) for name in header])


def lines(path: Path) -> Iterator[int]:
    """Yield the sheet row, counted from 1, of each row of the table."""
    return (line for line, _ in islice(_rows(path), 1, None))


def _rows(path: Path) -> Iterator[tuple[int, list[str | None]]]:
    """Yield the non-empty rows of the first sheet, with their row numbers."""
    try:
        import openpyxl
    except ImportError:
        raise MissingExtra(
            f"{path}: reading Excel needs openpyxl: pip install 'hitl-toolkit[excel]'; or save the sheet as .csv"
        ) from None
    try:
        with warnings.catch_warnings():  # about styles that it skips
            warnings.simplefilter("ignore")
            book = openpyxl.load_workbook(path, read_only=True, data_only=True)
    except (BadZipFile, KeyError, ValueError) as error:
        raise BadTable(f"{path}: cannot be read as xlsx: {error}; save it anew as .xlsx, or as .csv") from None
    try:
        seen = 0
        for number, cells in enumerate(book.worksheets[0].iter_rows(values_only=True), start=1):
            seen += 1 + len(cells)
            if number > MAX_LINES or seen > MAX_CELLS:
                raise BadTable(f"{path}: more than {MAX_LINES:,} lines or {MAX_CELLS:,} cells; save it as .csv")
            row = [_text(cell) for cell in cells]
            if any(cell is not None for cell in row):
                yield number, row
    finally:
        book.close()


def _text(cell: Any) -> str | None:
    if cell is None or cell == "":
        return None
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    if isinstance(cell, datetime) and cell.time() == time():
        return cell.date().isoformat()
    return cell.isoformat() if isinstance(cell, date | time) else str(cell)
