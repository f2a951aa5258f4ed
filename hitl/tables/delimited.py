"""Delimited text, CSV and TSV: detect the separator, reject unclosed quotes, and name the line of an error."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa

from hitl.errors import BadTable
from hitl.tables.limits import require_shape

BLOCK = 1 << 22
"""Number of bytes parsed at a time."""

ONE_THREAD = 1 << 28
"""File size that one thread reads in less than a second; several threads take half as much CPU time again."""

SEPARATORS = (",", ";", "\t")
"""Possible separators of a .csv file; spreadsheets write ; in locales with decimal commas."""


def read(
    path: Path, size: int | None, columns: Sequence[str] | None, separator: str | None = None
) -> Iterator[pa.Table]:
    """Yield the rows in order as text, in tables of some megabytes, or all in one without a `size`; empty is null.

    Without a `separator`, the most frequent one of SEPARATORS in the first line is used. All `columns` are read. Raises
    BadTable, naming the line, for an unclosed quote, a row with more or fewer fields than the first line, and
    text that is not UTF-8.
    """
    from pyarrow import csv as arrow

    if not path.stat().st_size:
        raise BadTable(f"{path}: the file is empty; expected a header line")
    separator = separator or separator_of(path)
    require_shape(path, 0, next((len(header) for _, header in _rows(path, separator)), 0))
    _require_closed_quotes(path, separator)
    parse = arrow.ParseOptions(delimiter=separator, newlines_in_values=True)
    try:
        with arrow.open_csv(path, parse_options=parse) as reader:
            text = {name: pa.string() for name in reader.schema.names}
        convert = arrow.ConvertOptions(
            column_types=text, strings_can_be_null=True, quoted_strings_can_be_null=False, null_values=[""]
        )
        if size is None:
            blocks = arrow.ReadOptions(block_size=BLOCK, use_threads=path.stat().st_size > ONE_THREAD)
            yield arrow.read_csv(path, read_options=blocks, parse_options=parse, convert_options=convert)
        else:
            with arrow.open_csv(path, parse_options=parse, convert_options=convert) as reader:
                yield from map(pa.Table.from_batches, ([batch] for batch in reader))
    except pa.ArrowInvalid as error:
        _name_the_line(path, separator)
        raise BadTable(f"{path}: cannot be read as csv: {error}") from error


def separator_of(path: Path) -> str:
    """Return the most frequent separator in the first line, outside quotes; a comma if it has none."""
    if ".tsv" in path.suffixes[-2:]:
        return "\t"
    first = next((line for line in _text(path) if line.strip()), "")
    plain = re.sub(r'"(?:[^"]|"")*"', "", first)
    return max(SEPARATORS, key=plain.count)  # ties go to the first


def lines(path: Path) -> Iterator[int]:
    """Yield the line, counted from 1, on which each row below the header begins."""
    return (line for line, _ in islice(_rows(path, separator_of(path)), 1, None))


def _rows(path: Path, separator: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows, header first, each with the line it begins on. Blank lines are skipped, as in Arrow."""
    reader = csv.reader(_text(path), delimiter=separator)
    line = 1
    try:
        for fields in reader:
            if fields:
                yield line, fields
            line = reader.line_num + 1
    except csv.Error:  # a field longer than csv accepts: later rows have no line number
        return


def _text(path: Path) -> Iterator[str]:
    """Yield the lines of a file, compressed or not, with their line ends.

    A byte that is not UTF-8 becomes a surrogate.
    """
    with pa.input_stream(path, compression="detect") as raw:
        yield from io.TextIOWrapper(raw, encoding="utf-8-sig", errors="surrogateescape", newline="")


def _name_the_line(path: Path, separator: str) -> None:
    """Raise BadTable for the first line that is not UTF-8, or has more or fewer fields than the first."""
    for number, line in enumerate(_text(path), start=1):
        if any("\udc80" <= character <= "\udcff" for character in line):
            raise BadTable(f"{path}, line {number}: not UTF-8; save the file as UTF-8 (in Excel as 'CSV UTF-8')")
    rows = _rows(path, separator)
    _, header = next(rows, (0, []))
    for begins, fields in rows:
        if len(fields) != len(header):
            size = f"{len(fields)} field{'' if len(fields) == 1 else 's'}"
            raise BadTable(f"{path}, line {begins}: {size}; expected {len(header)}, as the first line has")


def _require_closed_quotes(path: Path, separator: str) -> None:
    """Raise BadTable for the first quoted field that does not end before a separator or a line's end.

    Arrow would read everything up to the next quote, or the end of the file, as the text of that field.
    """
    if all(_quotes_alternate(block, separator) for block in _blocks_of_lines(path)):
        return
    with pa.input_stream(path, compression="detect") as raw:
        content = raw.read()
    content = content if content.endswith(b"\n") else content + b"\n"
    ends = rf" *+(?:{separator}|\r?\n|\r)"
    plain = rf'[^"{separator}\r\n][^{separator}\r\n]*+'
    fields = re.compile(rf'(?:(?:"(?:[^"]|"")*+"|{plain})?{ends})*+'.encode()).match(content)
    assert fields is not None  # the pattern can match nothing
    if fields.end() < len(content):
        line = 1 + content.count(b"\n", 0, fields.end())
        raise BadTable(
            f"{path}, line {line}: a quote is opened here that does not end its field; close it, or write it twice "
            "where it belongs to the text"
        )


def _quotes_alternate(block: bytes, separator: str) -> bool:
    """Return True if quotes open and close fields in turn, with none in their text: a quick check that often passes."""
    text = np.frombuffer(b"\n" + block, dtype=np.uint8)
    quotes = np.flatnonzero(text == ord('"'))
    between = np.isin(np.arange(256), [ord(separator), ord("\n"), ord("\r")])
    return bool(len(quotes) % 2 == 0 and between[text[quotes[::2] - 1]].all() and between[text[quotes[1::2] + 1]].all())


def _blocks_of_lines(path: Path) -> Iterator[bytes]:
    """Yield the bytes of a file in blocks of whole lines; the last one gets a line end too."""
    with pa.input_stream(path, compression="detect") as raw:
        buffered = io.BufferedReader(raw, BLOCK)
        while block := buffered.read(BLOCK):
            block += buffered.readline()
            yield block if block.endswith(b"\n") else block + b"\n"


def read_rows(header: bytes, rows: bytes, separator: str) -> pa.Table | None:
    """Parse rows below the header of a text; return None if the whole text must be parsed instead."""
    from pyarrow import csv as arrow

    header = header.removeprefix(b"\xef\xbb\xbf")
    text = header + rows
    if not _quotes_alternate(text if text.endswith(b"\n") else text + b"\n", separator):
        return None
    parse = arrow.ParseOptions(delimiter=separator, newlines_in_values=True)
    whole = arrow.ReadOptions(block_size=max(BLOCK, len(text)), use_threads=False)
    try:
        names = arrow.read_csv(pa.BufferReader(header), whole, parse).column_names
        kinds = {name: pa.string() for name in names}
        convert = arrow.ConvertOptions(
            column_types=kinds, strings_can_be_null=True, quoted_strings_can_be_null=False, null_values=[""]
        )
        return arrow.read_csv(pa.BufferReader(text), whole, parse, convert)
    except pa.ArrowInvalid:
        return None
