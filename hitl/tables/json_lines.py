"""JSON Lines: one object per line.

The standard library parses, line by line. It is slower than Arrow's reader, but hostile text becomes an error that
names its line instead of a crash, times stay text as written, and integers of any length keep their digits.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from hitl.errors import BadTable
from hitl.tables.limits import limits

BLOCK = 100_000
"""Number of rows converted to columns at a time."""

SPARSE = 50
"""Maximum number of fields per value: a table has a field for every name in every row."""

FEW_FIELDS = 10_000_000
_NAME = re.compile(r'"([^"\\]*+)"\s*+:')


def read(path: Path, size: int | None, columns: Sequence[str] | None) -> Iterator[pa.Table]:
    """Yield the rows in order, in tables of about `size` rows, or all in one without a size.

    Raise BadTable, naming the line, for text that is not JSON, values that are no objects or too deeply nested, and
    rows that share almost no names.
    """
    blocks = map(_table, _blocks(path, size or BLOCK))
    if size is not None:
        yield from blocks
        return
    tables = list(blocks)
    if tables:
        yield pa.concat_tables(_alike(tables), promote_options="permissive")


def write(handle: IO[bytes], tables: Iterable[pa.Table]) -> None:
    """Write a line for each row."""
    for table in tables:
        for batch in table.to_batches(max_chunksize=10_000):
            lines = (json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in batch.to_pylist())
            handle.write("".join(lines).encode())


def lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the non-blank lines with their numbers, counted from 1."""
    with pa.input_stream(path, compression="detect") as raw:
        for number, line in enumerate(io.TextIOWrapper(raw, encoding="utf-8-sig"), start=1):
            if line.strip():
                yield number, line


def _blocks(path: Path, size: int) -> Iterator[list[dict[str, Any]]]:
    rows: list[dict[str, Any]] = []
    names: set[str] = set()
    count = values = 0
    allowed = limits()  # once: outside a project they are read from the environment
    for number, line in lines(path):
        rows.append(_row(path, number, line, allowed.nesting))
        own = _NAME.findall(line)
        count, values = count + 1, values + len(own)
        if not names.issuperset(own):
            names.update(own)
            if count * len(names) > max(FEW_FIELDS, SPARSE * values) or len(names) > allowed.columns:
                raise BadTable(
                    f"{path}, line {number}: the rows so far have {len(names):,} different names, most of them in few "
                    f"rows; expected a table, with at most {allowed.columns:,} names (limits.columns)"
                )
        if len(rows) == size:
            yield rows
            rows = []
    if rows:
        yield rows


def _row(path: Path, number: int, line: str, deepest: int) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        message = "values are nested too deeply" if isinstance(error, RecursionError) else f"not JSON: {error}"
        raise BadTable(f"{path}, line {number}: cannot be read as jsonl: {message}") from None
    if not isinstance(row, dict):
        raise BadTable(f"{path}, line {number}: got {line.strip()[:40]!r}; expected an object, {{...}}, in each line")
    if line.count("[") + line.count("{") > deepest and _depth(row) > deepest:
        raise BadTable(
            f"{path}, line {number}: values are nested {_depth(row):,} levels deep; expected at most "
            f"{deepest:,} (limits.nesting)"
        )
    return row


def _depth(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(_depth, inner), default=0)


def _table(rows: list[dict[str, Any]]) -> pa.Table:
    names = dict.fromkeys(name for row in rows for name in row)
    return pa.table({name: _column(name, [row.get(name) for row in rows]) for name in names})


def _column(name: str, values: list[Any]) -> pa.Array:
    try:
        return pa.array(values)
    except (OverflowError, pa.ArrowInvalid, pa.ArrowTypeError) as error:
        kinds = {type(value) for value in values if value is not None}
        if kinds == {int, float}:
            return pa.array([None if value is None else float(value) for value in values])
        if kinds != {int}:
            raise ValueError(f"column {name!r}: {error}") from None
    integers = [value for value in values if value is not None]
    if 0 <= min(integers) <= max(integers) < 2**64:
        return pa.array(values, pa.uint64())
    return pa.array([None if value is None else str(value) for value in values])


def _alike(tables: list[pa.Table]) -> list[pa.Table]:
    """Return the tables with text in every column that holds long integers, as text or unsigned, in one of them."""
    kinds: dict[str, set[pa.DataType]] = {}
    for table in tables:
        for entry in table.schema:
            kinds.setdefault(entry.name, set()).add(entry.type)
    integers = {pa.int64(), pa.uint64(), pa.null()}
    long = [name for name, own in kinds.items() if pa.uint64() in own and not own <= {pa.uint64(), pa.null()}]
    for place, table in enumerate(tables):
        for name in long:
            if name in table.column_names and table.schema.field(name).type in integers:
                text = table.column(name).cast(pa.string())
                tables[place] = table = table.set_column(table.column_names.index(name), name, text)
    return tables
