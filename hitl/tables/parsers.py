"""Parse text files and workbooks to tables, and find the lines on which their rows begin."""

from __future__ import annotations

import csv
import io
import json
import re
import warnings
from collections.abc import Iterator, Sequence
from datetime import date, datetime, time
from functools import partial
from pathlib import Path
from typing import IO, Any
from zipfile import BadZipFile, ZipFile

import numpy as np
import pyarrow as pa

from hitl.errors import BadTable, MissingExtra
from hitl.tables.limits import SHARDS, SHORTER, limits, memory_limit, require_memory, require_shape

BLOCK = 1 << 22
"""Bytes of a CSV file that are parsed at a time. No row may be longer."""

SEPARATORS = (",", ";", "\t")
"""Possible separators of a .csv file. Spreadsheets write semicolons in locales with decimal commas."""

LINE_BYTES = 8
"""Bytes that a character of a line takes: twice while it is read, and in values of Python and of a column."""

ROWS = 100_000
"""Rows of JSON Lines or Excel converted to columns at a time."""

CHARACTERS = 1 << 25
"""Characters of JSON Lines after which rows are converted even if there are fewer than ROWS."""

VALUE_BYTES = 125
"""Bytes of a value of JSON Lines, without its characters, as a value of Python and in a column. Measured: 80 to 100."""

TEXT_BYTES = (4, 2)
"""Bytes of a character of JSON Lines, as values of Python and in a column: in general, and in ASCII."""

SPARSE, FEW_FIELDS = 50, 10_000_000
"""Maximum ratio of cells (rows times names) to values in JSON Lines, in tables of more than FEW_FIELDS cells."""

CELL_BYTES, SHARED_TEXT_BYTES = 60, 4
"""Bytes of a cell of Excel, without its characters; and of a byte of the texts that cells share."""

MAX_LINES, MAX_CELLS = 1 << 20, 50_000_000
"""Maximum lines (as in Excel) and cells of a sheet, because a file may claim any number."""

_NAME = re.compile(r'"([^"\\]*+)"\s*+:')


def bounded_lines(path: Path, stream: IO[str], begins: int = 0) -> Iterator[str]:
    """Yield the lines after the first `begins`. Raise BadTable, naming the line, for one that memory cannot hold."""
    limit = memory_limit()
    most = limit // LINE_BYTES
    for number, line in enumerate(iter(partial(stream.readline, most + 1), ""), start=begins + 1):
        if len(line) > most:
            require_memory(f"{path}, line {number}", LINE_BYTES * len(line), limit, SHORTER)
        yield line


# -- CSV and TSV -------------------------------------------------------------------------------------------


def read_csv(path: Path) -> Iterator[pa.Table]:
    """Yield the rows in order, as text, in tables of some megabytes.

    Empty fields are null. Raise BadTable, naming the line, for an unclosed quote, a row with more or fewer fields than
    the first line, and text that is not UTF-8.
    """
    from pyarrow import csv as arrow

    if not path.stat().st_size:
        raise BadTable(f"{path}: the file is empty; expected a header line")
    separator = _separator_of(path)
    require_shape(path, 0, next((len(header) for _, header in csv_rows(path, separator)), 0))
    _require_closed_quotes(path, separator)
    parse = arrow.ParseOptions(delimiter=separator, newlines_in_values=True)
    blocks = arrow.ReadOptions(block_size=BLOCK)  # up to 40 are read ahead
    try:
        with arrow.open_csv(path, read_options=blocks, parse_options=parse) as reader:
            text = {name: pa.string() for name in reader.schema.names}
        convert = arrow.ConvertOptions(
            column_types=text, strings_can_be_null=True, quoted_strings_can_be_null=False, null_values=[""]
        )
        with arrow.open_csv(path, read_options=blocks, parse_options=parse, convert_options=convert) as reader:
            yield _without_unnamed(path, pa.Table.from_batches([], reader.schema))
            for batch in reader:
                yield _without_unnamed(path, pa.Table.from_batches([batch]))
    except pa.ArrowInvalid as error:
        _name_the_line(path, separator)
        if "straddling object" in str(error):
            raise _too_long(path, "bytes") from error
        raise BadTable(f"{path}: cannot be read as csv: {error}") from error


def read_columns(names: Sequence[str]) -> list[int]:
    """Return the places of the columns to read: all that have a name, and one without (of pandas, the index)."""
    return [place for place, name in enumerate(names) if name or names.count("") == 1]


def _without_unnamed(path: Path, table: pa.Table) -> pa.Table:
    """Leave out columns for which lines end in several separators. Raise BadTable for one with content."""
    read = read_columns(table.column_names)
    for place in {*range(table.num_columns)} - {*read}:
        if table.column(place).null_count < table.num_rows:
            raise BadTable(f"{path}: column {place + 1} has no name; expected one in the first line")
    return table if len(read) == table.num_columns else table.select(read)


def _csv_text(path: Path) -> Iterator[str]:
    """Yield the lines, with bytes that are not UTF-8. Raise BadTable for one that is too long for a row."""
    with pa.input_stream(path, compression="detect") as raw:
        stream = io.TextIOWrapper(raw, encoding="utf-8-sig", errors="surrogateescape", newline="")
        for number, line in enumerate(iter(partial(stream.readline, BLOCK + 1), ""), start=1):
            if len(line) > BLOCK:
                raise _too_long(f"{path}, line {number}", "characters")
            yield line


def _too_long(where: object, what: str) -> BadTable:
    return BadTable(
        f"{where}: more than {BLOCK:,} {what}; expected at most that many in a row of CSV. Is a line break or a quote "
        "missing? Longer rows can be written as .jsonl or .parquet"
    )


def _separator_of(path: Path) -> str:
    """Return a tab for .tsv, else the most frequent separator in the first line outside quotes, or a comma."""
    if ".tsv" in [suffix.lower() for suffix in path.suffixes[-2:]]:
        return "\t"
    first = next((line for line in _csv_text(path) if line.strip()), "")
    plain = re.sub(r'"(?:[^"]|"")*"', "", first)
    return max(SEPARATORS, key=plain.count)  # ties go to the first


def csv_rows(path: Path, separator: str | None = None) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows, header first, each with the line it begins on. Blank lines are skipped, as in Arrow."""
    reader = csv.reader(_csv_text(path), delimiter=separator or _separator_of(path))
    line = 1
    try:
        for fields in reader:
            if fields:
                yield line, fields
            line = reader.line_num + 1
    except csv.Error:  # a field longer than csv accepts: later rows have no line number
        return


def _name_the_line(path: Path, separator: str) -> None:
    """Raise BadTable for the first line that is not UTF-8, or has more or fewer fields than the first."""
    for number, line in enumerate(_csv_text(path), start=1):
        if any("\udc80" <= character <= "\udcff" for character in line):
            raise BadTable(f"{path}, line {number}: not UTF-8; save the file as UTF-8 (in Excel as 'CSV UTF-8')")
    rows = csv_rows(path, separator)
    _, header = next(rows, (0, []))
    for begins, fields in rows:
        if len(fields) != len(header):
            size = f"{len(fields)} field{'' if len(fields) == 1 else 's'}"
            raise BadTable(f"{path}, line {begins}: {size}; expected {len(header)}, as the first line has")


def _require_closed_quotes(path: Path, separator: str) -> None:
    """Raise BadTable for the first quoted field that does not end before a separator or a line's end.

    Arrow would read everything up to the next quote, or the end of the file, as the text of that field.
    """
    ends = rf" *+(?:{separator}|\r?\n|\r)"
    plain = rf'[^"{separator}\r\n][^{separator}\r\n]*+'
    fields = re.compile(rf'(?:(?:"(?:[^"]++|"")*+"|{plain})?{ends})*+'.encode())
    rest, line = b"", 1
    with pa.input_stream(path, compression="detect") as raw:
        buffered = io.BufferedReader(raw, BLOCK)
        while block := buffered.read(BLOCK):
            block += buffered.readline(BLOCK)
            rest += block if block.endswith(b"\n") else block + b"\n"
            match = fields.match(rest) if b'"' in rest and not _quotes_alternate(rest, separator) else None
            whole = len(rest) if match is None else match.end()
            line += rest.count(b"\n", 0, whole)
            rest = rest[whole:]
            if len(rest) > BLOCK:  # a longer field could not be parsed
                break
    if rest:
        raise BadTable(
            f"{path}, line {line}: a quote is opened here that does not end its field; close it, or write it twice "
            "where it belongs to the text"
        )


def _quotes_alternate(lines: bytes, separator: str) -> bool:
    """Return True if quotes open and close fields in turn, with none in their text: a quick check that often passes."""
    text = np.frombuffer(b"\n" + lines, dtype=np.uint8)
    quotes = np.flatnonzero(text == ord('"'))
    between = np.isin(np.arange(256), [ord(separator), ord("\n"), ord("\r")])
    return bool(len(quotes) % 2 == 0 and between[text[quotes[::2] - 1]].all() and between[text[quotes[1::2] + 1]].all())


# -- JSON Lines --------------------------------------------------------------------------------------------


def read_json_lines(path: Path, size: int | None) -> Iterator[pa.Table]:
    """Yield the rows in order, in tables of `size` rows.

    The standard library parses line by line. It is slower than Arrow's reader, but hostile text is an error that names
    the line instead of a crash, times stay text as written, and integers of any length keep their digits. Raise
    BadTable, naming the line, for a line that is not a JSON object, values that are nested too deeply, and rows that
    share almost no names.
    """

    def table(rows: list[dict[str, Any]]) -> pa.Table:  # a function, so that its rows are freed before the next block
        names = dict.fromkeys(name for row in rows for name in row)
        return pa.table({name: _json_column(name, [row.get(name) for row in rows]) for name in names})

    yield from map(table, _json_blocks(path, size or ROWS, keeps=size is None))


def json_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the non-blank lines with their numbers, counted from 1."""
    with pa.input_stream(path, compression="detect") as raw:
        lines = enumerate(bounded_lines(path, io.TextIOWrapper(raw, encoding="utf-8-sig")), start=1)
        yield from ((number, line) for number, line in lines if line.strip())


def _json_blocks(path: Path, size: int, keeps: bool) -> Iterator[list[dict[str, Any]]]:
    """Yield the rows of each table. `keeps`: the tables before are kept, in as many bytes as their text at most."""
    rows: list[dict[str, Any]] = []
    names: set[str] = set()
    count = values = characters = held = before = 0
    most = memory_limit()
    allowed = limits()  # once: outside a project this reads the environment
    for number, line in json_lines(path):
        characters += len(line)
        held += TEXT_BYTES[line.isascii()] * len(line)
        held += VALUE_BYTES * (line.count(",") + line.count("{") + line.count("["))
        if held > most:
            require_memory(path if rows else f"{path}, line {number}", held, most, SHARDS if keeps else SHORTER)
        try:
            rows.append(parsed_object(line, allowed.nesting))
        except ValueError as error:
            raise BadTable(f"{path}, line {number}: cannot be read as jsonl: {error}") from None
        own = _NAME.findall(line)
        count, values = count + 1, values + len(own)
        if not names.issuperset(own):
            names.update(own)
            if count * len(names) > max(FEW_FIELDS, SPARSE * values) or len(names) > allowed.columns:
                raise BadTable(
                    f"{path}, line {number}: the rows so far have {len(names):,} different names, most of them in few "
                    f"rows; expected a table, with at most {allowed.columns:,} names (limits.columns)"
                )
        if len(rows) == size or characters > CHARACTERS:
            yield rows
            before += characters
            rows, characters, held, most = [], 0, before if keeps else 0, memory_limit()
    if rows:
        yield rows


def parsed_object(line: str, nesting: int) -> dict[str, Any]:
    """Parse a JSON object. Raise ValueError for anything else, and for more than `nesting` levels of values."""
    try:
        value = json.loads(line)
    except RecursionError:
        raise ValueError("values are nested too deeply") from None
    except json.JSONDecodeError as error:  # without its line, which is always the first
        raise ValueError(f"not JSON: {error.msg} at character {error.pos + 1}") from None
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"got {line.strip()[:40]!r}; expected an object, {{...}}, in each line")
    if line.count("[") + line.count("{") > nesting and not is_shallow(value, nesting):
        raise ValueError(f"values are nested too deeply; expected at most {nesting:,} levels (limits.nesting)")
    return value


def is_shallow(value: Any, nesting: int) -> bool:
    """Return True if values are nested in at most so many levels. Any depth is counted without recursion."""
    level = [value]
    for _ in range(nesting + 1):
        level = [
            inner
            for each in level
            if isinstance(each, dict | list)
            for inner in (each.values() if isinstance(each, dict) else each)
        ]
    return not level


def _json_column(name: str, values: list[Any]) -> pa.Array:
    try:
        return pa.array(values)
    except (OverflowError, pa.ArrowInvalid, pa.ArrowTypeError) as error:
        kinds = {type(value) for value in values if value is not None}
        if kinds == {int, float}:
            return pa.array([None if value is None else float(value) for value in values])
        if str in kinds and kinds <= {str, int, float}:  # "1" and 1 are one name
            return pa.array([value if value is None or type(value) is str else json.dumps(value) for value in values])
        if kinds != {int}:
            raise ValueError(f"column {name!r}: {error}") from None
    try:
        return pa.array(values, pa.uint64())
    except (OverflowError, pa.ArrowInvalid):
        return pa.array([None if value is None else str(value) for value in values])


def with_long_integers_as_text(tables: list[pa.Table]) -> list[pa.Table]:
    """Return the tables. A column that is uint64 in some and int64, text or null in others becomes text in all."""
    integers, text = {pa.int64(), pa.uint64()}, {pa.string(), pa.null()}
    for name in dict.fromkeys(name for table in tables for name in table.column_names):
        kinds = {table.schema.field(name).type for table in tables if name in table.column_names}
        if pa.uint64() in kinds and kinds <= integers | text and kinds != {pa.uint64()}:
            tables = [
                table.set_column(table.column_names.index(name), name, table.column(name).cast(pa.string()))
                if name in table.column_names
                else table
                for table in tables
            ]
    return tables


# -- Excel -------------------------------------------------------------------------------------------------


def read_excel(path: Path) -> Iterator[pa.Table]:
    """Yield the non-empty rows of the first sheet, as text: 7.0 is "7", a date is in ISO 8601.

    The first non-empty row is the header. Raise BadTable for a file that is no workbook, a header with an empty field,
    and a value outside the columns of the header.
    """
    rows = excel_rows(path)
    _, header = next(rows, (0, []))
    while header and header[-1] is None:
        header.pop()
    if not header or None in header:
        raise BadTable(f"{path}: a column of the first row has no name; expected a name for each column")
    width, schema = len(header), pa.schema([(str(name), pa.string()) for name in header])
    yield schema.empty_table()
    block: list[list[str | None]] = []
    held, most = 0, memory_limit()

    def table() -> pa.Table:
        return pa.Table.from_arrays([pa.array(cells, pa.string()) for cells in zip(*block, strict=True)], schema=schema)

    for line, row in rows:
        if any(cell is not None for cell in row[width:]):
            raise BadTable(f"{path}, line {line}: a value in column {width + 1} or later; the first row names {width}")
        held += sum(CELL_BYTES + len(cell or "") for cell in row)
        block.append([*row[:width], *[None] * (width - len(row))])
        if len(block) == ROWS or held > min(CHARACTERS, most // 4):
            yield table()
            block, held = [], 0
    if block:
        yield table()


def excel_rows(path: Path) -> Iterator[tuple[int, list[str | None]]]:
    """Yield the non-empty rows of the first sheet, with their row numbers."""
    try:
        import openpyxl
    except ImportError:
        raise MissingExtra(
            f"{path}: reading Excel needs openpyxl: pip install 'hitl-toolkit[excel]'; or save the sheet as .csv"
        ) from None
    with path.open("rb") as file:  # of our own, because openpyxl leaves it open where it fails
        try:
            with ZipFile(file) as archive:  # openpyxl reads the texts of all cells first
                texts = sum(one.file_size for one in archive.infolist() if one.filename.endswith("sharedStrings.xml"))
            require_memory(path, SHARED_TEXT_BYTES * texts, instead="save it as .csv")
            with warnings.catch_warnings():  # openpyxl warns of styles that it skips
                warnings.simplefilter("ignore")
                book = openpyxl.load_workbook(file, read_only=True, data_only=True)
        except BadTable:
            raise
        except (BadZipFile, KeyError, ValueError) as error:
            raise BadTable(f"{path}: cannot be read as xlsx: {error}; save it again as .xlsx, or as .csv") from None
        cells_read = 0
        for number, cells in enumerate(book.worksheets[0].iter_rows(values_only=True), start=1):
            cells_read += 1 + len(cells)
            if number > MAX_LINES or cells_read > MAX_CELLS:
                raise BadTable(f"{path}: more than {MAX_LINES:,} lines or {MAX_CELLS:,} cells; save it as .csv")
            row = [_excel_text(cell) for cell in cells]
            if any(cell is not None for cell in row):
                yield number, row


def _excel_text(cell: Any) -> str | None:
    if cell is None or cell == "":
        return None
    if isinstance(cell, bool):
        return str(cell).lower()  # as in Parquet and JSON
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    if isinstance(cell, datetime) and cell.time() == time():
        return cell.date().isoformat()
    return cell.isoformat() if isinstance(cell, date | time) else str(cell)
