"""Text in columns: CSV and TSV. Which separator a file has, which of its lines is wrong, on which line a row stands."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from hitl.errors import BadTable
from hitl.tables.limits import require_shape

BLOCK = 1 << 22
"""Bytes that are parsed at a time."""

SMALL = 1 << 28
"""Bytes of a file that is read by one thread: it takes less than a second."""

BOM = b"\xef\xbb\xbf"

SEPARATORS = (",", ";", "\t")
"""What may stand between the columns of a .csv file; spreadsheets write ; where a number has a comma."""


def read(
    path: Path, size: int | None, columns: Sequence[str] | None, separator: str | None = None
) -> Iterator[pa.Table]:
    """The rows in order as text, in tables of about `size` rows or in one; an empty field is null.

    Without a `separator` it is the one of SEPARATORS that the first line has most of. `columns` are not looked at: all
    are read. Raises BadTable, naming the line, for a quote that is not closed, a row with more or fewer fields than the
    first line, and text that is not UTF-8.
    """
    if not path.stat().st_size:
        raise BadTable(f"{path}: the file is empty; expected a header line")
    separator = separator or separator_of(path)
    require_shape(path, 0, next((len(header) for _, header in _rows(path, separator)), 0))
    opened = _unclosed_quote(path, separator)
    if opened is not None:
        raise BadTable(
            f"{path}, line {opened}: a quote is opened here that does not end its field; close it, or write it twice "
            "where it belongs to the text"
        )
    try:
        yield from _tables(path, size, separator)
    except pa.ArrowInvalid as error:
        _name_the_line(path, separator)
        raise BadTable(f"{path}: cannot be read as csv: {error}") from error


def read_rows(header: bytes, rows: bytes, separator: str) -> pa.Table | None:
    """Some rows of a text, as `read` gives them, below its first line; None where whole texts have to be looked at.

    That is where a quote does not open or close a field, or a row is none.
    """
    from pyarrow import csv as arrow

    header = header.removeprefix(BOM)
    text = header + rows
    lines = text if text.endswith(b"\n") else text + b"\n"
    if not _each_quote_closes(lines, separator) and not _fields(separator).fullmatch(lines):
        return None
    parse = arrow.ParseOptions(delimiter=separator, newlines_in_values=True)
    whole = arrow.ReadOptions(block_size=max(BLOCK, len(text)), use_threads=False)
    try:
        names = arrow.read_csv(pa.BufferReader(header), whole, parse).column_names
        return arrow.read_csv(pa.BufferReader(text), whole, parse, _as_text(names))
    except pa.ArrowInvalid:
        return None


def separator_of(path: Path) -> str:
    """The separator of a file: the one that its first line has most of, outside of quotes; a comma if it has none."""
    if _suffix(path) == ".tsv":
        return "\t"
    first = next((line for line in _text(path) if line.strip()), "")
    plain = re.sub(r'"(?:[^"]|"")*"', "", first)
    return max(SEPARATORS, key=plain.count)  # of equals the first


def lines(path: Path) -> Iterator[int]:
    """The line, counted from 1, on which each row below the header begins."""
    return (line for line, _ in islice(_rows(path, separator_of(path)), 1, None))


def lines_with_text(path: Path) -> Iterator[int]:
    """The lines, counted from 1, that are not empty: those of the rows of JSON Lines."""
    return (number for number, line in enumerate(_text(path), start=1) if line.strip())


def _tables(path: Path, size: int | None, separator: str) -> Iterator[pa.Table]:
    from pyarrow import csv as arrow

    parse = arrow.ParseOptions(delimiter=separator, newlines_in_values=True)
    with arrow.open_csv(path, parse_options=parse) as reader:
        names = reader.schema.names
    convert = _as_text(names)
    if size is None:  # threads take half as much processor time again
        blocks = arrow.ReadOptions(block_size=BLOCK, use_threads=path.stat().st_size > SMALL)
        yield arrow.read_csv(path, read_options=blocks, parse_options=parse, convert_options=convert)
        return
    with arrow.open_csv(path, parse_options=parse, convert_options=convert) as reader:
        for batch in reader:
            yield pa.Table.from_batches([batch])


def _as_text(names: Sequence[str]) -> Any:
    """How these columns are read: as text, an empty field as null."""
    from pyarrow import csv as arrow

    return arrow.ConvertOptions(
        column_types={name: pa.string() for name in names},
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
        null_values=[""],
    )


def _name_the_line(path: Path, separator: str) -> None:
    """Raise BadTable for the first line that is not UTF-8, or has more or fewer fields than the first."""
    for number, line in enumerate(_text(path), start=1):
        if any("\udc80" <= character <= "\udcff" for character in line):
            raise BadTable(f"{path}, line {number}: not UTF-8; save the file as UTF-8 (in Excel as 'CSV UTF-8')")
    rows = _rows(path, separator)
    _, header = next(rows, (0, []))
    for begins, fields in rows:
        if len(fields) != len(header):
            found = f"{len(fields)} field{'' if len(fields) == 1 else 's'}"
            raise BadTable(f"{path}, line {begins}: {found}; expected {len(header)}, as the first line has")


def _rows(path: Path, separator: str) -> Iterator[tuple[int, list[str]]]:
    """The rows, the header first, each with the line it begins on; lines without text are none, as for Arrow."""
    reader = csv.reader(_text(path), delimiter=separator)
    line = 1
    try:
        for fields in reader:
            if fields:
                yield line, fields
            line = reader.line_num + 1
    except csv.Error:  # a field longer than csv takes: what comes behind it is not found
        return


def _text(path: Path) -> Iterator[str]:
    """The lines of a file, packed or not, with their ends; a byte that is not UTF-8 as a surrogate."""
    with pa.input_stream(path, compression="detect") as raw:
        yield from io.TextIOWrapper(raw, encoding="utf-8-sig", errors="surrogateescape", newline="")


def _suffix(path: Path) -> str:
    return (path.with_suffix("") if path.suffix == ".gz" else path).suffix.lower()


def _unclosed_quote(path: Path, delimiter: str) -> int | None:
    """The line of the first quoted field that does not end before a delimiter or a line's end; None where all do.

    Arrow takes what follows, up to the next quote or the end of the file, for the text of that field.
    """
    quoted, fields = re.compile(rb'"(?:[^"]|"")*+'), _fields(delimiter)
    rest, closing = re.compile(rb'(?:[^"]|"")*+'), re.compile(rf'"{_ends(delimiter)}'.encode())
    line, opened = 1, None
    for block in _blocks_of_lines(path):
        place = 0
        if opened is not None:
            place = rest.match(block).end()  # type: ignore[union-attr]  # it matches nothing, too
            if place < len(block):
                closed = closing.match(block, place)
                if closed is None:
                    return opened
                place, opened = closed.end(), None
        if opened is None and not _each_quote_closes(block[place:], delimiter):
            place = fields.match(block, place).end()  # type: ignore[union-attr]
            if place < len(block):
                opened = line + block.count(b"\n", 0, place)
                if block[place] != ord('"') or quoted.match(block, place).end() < len(block):  # type: ignore[union-attr]
                    return opened
        line += block.count(b"\n")
    return opened


def _fields(delimiter: str) -> re.Pattern[bytes]:
    """Whole fields, quoted or not, with what ends them."""
    plain = rf'[^"{delimiter}\r\n][^{delimiter}\r\n]*+'
    return re.compile(rf'(?:(?:"(?:[^"]|"")*+"|{plain})?{_ends(delimiter)})*+'.encode())


def _ends(delimiter: str) -> str:
    """What ends a field."""
    return rf" *+(?:{delimiter}|\r?\n|\r)"


def _each_quote_closes(block: bytes, delimiter: str) -> bool:
    """Whether quotes open and close fields by turns, with none in their text: a quick look that is often enough."""
    text = np.frombuffer(b"\n" + block, dtype=np.uint8)
    quotes = np.flatnonzero(text == ord('"'))
    between = np.isin(np.arange(256), [ord(delimiter), ord("\n"), ord("\r")])
    return bool(between[text[quotes[::2] - 1]].all() and between[text[quotes[1::2] + 1]].all() and len(quotes) % 2 == 0)


def _blocks_of_lines(path: Path, size: int = 1 << 22) -> Iterator[bytes]:
    """The bytes of a file in blocks of whole lines, the last one with a line's end too."""
    with pa.input_stream(path, compression="detect") as raw:
        lines = io.BufferedReader(raw, size)
        while block := lines.read(size):
            block += lines.readline()
            yield block if block.endswith(b"\n") else block + b"\n"
