"""Read Parquet and Arrow files. What they take in memory, which encoding hides, is counted before they are read."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from hitl.tables.columns import is_text
from hitl.tables.limits import SHARDS, memory_limit, require_memory, require_shape

COPIES = 2
"""Times that a table is held at the peak: as it was read, and with its names as text. Measured: 1.4 to 1.7."""

WIDTHS = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "BYTE_ARRAY": 8}
"""Bytes of a value in memory, for types of Parquet with other than 8; those of a text are added."""
NESTED = 32
"""More bytes of a value in a list or struct while it is read: its levels, and buffers that grow. Measured."""
DICTIONARY = {"PLAIN_DICTIONARY", "RLE_DICTIONARY"}
"""Encodings that store each text once, however often it occurs."""
PREFIXED = "DELTA_BYTE_ARRAY"
"""Encoding that stores how many characters a text shares with the one before it."""
COUNTED = 1 << 16
"""Rows whose texts are counted at a time, if they are coded by a dictionary."""
UNCOUNTED = 0.1
"""Share of the memory up to which texts coded by dictionaries are not counted, but taken as long as the longest."""
BLOCK = 1 << 22

NARROWER = "leave out columns that are not needed, or shorten their texts"


# -- Parquet -----------------------------------------------------------------------------------------------


def parquet_names(path: Path) -> list[str]:
    """Return the names of the columns without reading the rows."""
    with _parquet(path) as (file, _):
        return list(file.schema_arrow.names)


def read_parquet(path: Path, size: int | None, columns: Sequence[str] | None) -> Iterator[pa.Table]:
    """Yield the rows in tables of about `size` rows, or one of all rows, with those of `columns` that there are."""
    with _parquet(path) as (file, source):
        require_shape(path, file.metadata.num_rows, file.metadata.num_columns)
        there = file.schema_arrow.names
        wanted = None if columns is None else [name for name in columns if name in there]
        whole = size is None or not file.metadata.num_rows
        _require_room(path, file, source, wanted, None if whole else size)
        parts = file.iter_batches(batch_size=size or 1, columns=wanted, use_threads=False)
        for part in [file.read(wanted)] if whole else map(pa.Table.from_batches, ([batch] for batch in parts)):
            _require_valid(part)
            yield part


@contextmanager
def _parquet(path: Path) -> Iterator[tuple[Any, Any]]:
    """Open a file. Yield it, and the source that it was opened from."""
    from pyarrow import parquet

    source = _unzipped(path) if path.suffix == ".gz" else path
    with parquet.ParquetFile(source, pre_buffer=False) as file:  # buffering would read the entire file ahead
        yield file, source


def _unzipped(path: Path) -> pa.BufferReader:
    """Return the content of a .gz file, which Parquet reads from its end."""
    blocks, size, most = [], 0, memory_limit()
    with pa.input_stream(path, compression="detect") as handle:
        while block := handle.read(BLOCK):
            size += len(block)
            require_memory(path, COPIES * size, most, "unpack it first")
            blocks.append(block)
    return pa.BufferReader(b"".join(blocks))


def _require_room(path: Path, file: Any, source: Any, wanted: Sequence[str] | None, rows: int | None) -> None:
    """Raise BadTable if columns take more memory than there is: all rows, or the largest part of this many `rows`."""
    most, advice = memory_limit(), SHARDS if rows is None else NARROWER
    names = [file.schema.column(place).path for place in range(len(file.schema))]
    single = [name for name in names if "." not in name and (wanted is None or name in wanted)]
    total, uncounted = 0, 0.0
    for number in range(file.metadata.num_row_groups):
        group = file.metadata.row_group(number)
        part = min(rows or group.num_rows, group.num_rows)
        share = part / max(group.num_rows, 1)
        size, hidden = 0.0, dict[str, Any]()
        longest = _longest_texts(source, number, single) if COPIES * group.total_byte_size <= most else {}
        for place, name in enumerate(names):
            if wanted is None or name.split(".")[0] in wanted:
                chunk = group.column(place)  # ends the process if metadata contradict each other: reading came first
                width = WIDTHS.get(chunk.physical_type, 8)
                if chunk.physical_type == "FIXED_LEN_BYTE_ARRAY":
                    width = file.schema.column(place).length
                width += NESTED * ("." in name)
                size += share * max(chunk.num_values * width, chunk.total_uncompressed_size)
                if chunk.physical_type == "BYTE_ARRAY" and {*chunk.encodings} & {*DICTIONARY, PREFIXED}:
                    hidden[name] = chunk
                    if PREFIXED in chunk.encodings:
                        longest.pop(name, None)
        total, uncounted = int(size) + (total if rows is None else 0), uncounted if rows is None else 0.0
        require_memory(path, COPIES * total, most, advice)
        # no text is longer than all that is stored of them
        texts = {name: longest.get(name, chunk.total_uncompressed_size) for name, chunk in hidden.items()}
        largest = sum(share * chunk.num_values * texts[name] for name, chunk in hidden.items())
        if COPIES * (uncounted + largest) <= UNCOUNTED * most:
            uncounted += largest
            require_memory(path, COPIES * (total + int(uncounted)), most, advice)
            continue
        for name, chunk in hidden.items():
            for counted in _texts_in(source, number, name, chunk, part, most):
                total += counted
                require_memory(path, COPIES * (total + int(uncounted)), most, advice)


def _longest_texts(source: Any, group: int, columns: Sequence[str]) -> dict[str, int]:
    """Return the bytes of the longest text in the dictionary of columns that begin with a text from it."""
    try:
        first = _first_row(source, group, columns, columns)
    except OSError:  # texts that are coded by their differences have no dictionary
        first = _first_row(source, group, columns, [])
    return {
        name: pc.max(pc.binary_length(column.dictionary)).as_py()
        for name, column in zip(first.schema.names, first.columns, strict=True)
        if pa.types.is_dictionary(column.type) and len(column.dictionary) > 1  # one of one text may be this row's own
    }


def _first_row(source: Any, group: int, columns: Sequence[str], coded: Sequence[str]) -> pa.RecordBatch:
    """Return the first row of a row group, if there is one, with the dictionaries of the `coded` columns."""
    from pyarrow import parquet

    with parquet.ParquetFile(source, pre_buffer=False, read_dictionary=coded) as file:
        rows = file.iter_batches(1, row_groups=[group], columns=columns, use_threads=False)
        return next(rows, pa.record_batch({}))


def _texts_in(source: Any, group: int, name: str, chunk: Any, rows: int, most: int) -> Iterator[int]:
    """Yield, as they are found, the bytes that the texts of a column take in the largest part of this many `rows`."""
    from pyarrow import parquet

    size, coded = min(COUNTED, rows), [name]
    if PREFIXED in chunk.encodings:
        size, coded = max(1, min(size, most // (8 * chunk.total_uncompressed_size))), []
    with parquet.ParquetFile(source, pre_buffer=False, read_dictionary=coded) as encoded:
        part = largest = seen = begun = last = 0
        for batch in encoded.iter_batches(size, row_groups=[group], columns=[name], use_threads=False):
            if seen // rows > begun:  # the batch before may have ended in this part
                part, begun = last if seen % rows else 0, seen // rows
            last = sum(map(_text_bytes, batch.columns))
            part += last
            seen += batch.num_rows
            if part > largest:
                yield part - largest
                largest = part


def _text_bytes(column: Any) -> int:
    """Return the bytes of the texts in a column of texts, or of lists or structs of them."""
    kind = column.type
    if pa.types.is_struct(kind):
        return sum(map(_text_bytes, column.flatten()))
    if pa.types.is_map(kind):
        return _text_bytes(column.keys) + _text_bytes(column.items)
    if isinstance(kind, pa.ListType | pa.LargeListType | pa.FixedSizeListType):
        return _text_bytes(column.flatten())
    if pa.types.is_dictionary(kind):
        lengths = pc.binary_length(column.dictionary).take(column.indices)
        return int(pc.sum(pc.cast(lengths, pa.int64())).as_py() or 0)
    return int(column.nbytes)


def bytes_of(column: pa.ChunkedArray, as_names: bool = False) -> int:
    """Return the bytes of a column. `as_names`: or those that it takes as text, if that is more."""
    kind = column.type
    if pa.types.is_dictionary(kind) and is_text(kind.value_type):
        return sum(map(_text_bytes, column.chunks))
    if not as_names or is_text(kind):
        return int(column.nbytes)
    longest = pc.max(pc.abs(column)).as_py() if pa.types.is_integer(kind) else 0
    return max(int(column.nbytes), len(column) * (4 + len(str(longest or 0))))


# -- Arrow -------------------------------------------------------------------------------------------------


def read_arrow(path: Path) -> Iterator[pa.Table]:
    """Yield the batches of an Arrow file or stream. It is mapped into memory, except for compressed parts."""
    with pa.memory_map(str(path)) as source:
        begins = 8 * (source.read(6) == b"ARROW1")  # a file with an index at its end, such as Feather
        source.seek(begins)
        for message in pa.ipc.MessageReader.open_stream(source):
            require_memory(path, _uncompressed(message))
        source.seek(0)
        if not begins:
            reader: Any = pa.ipc.open_stream(source)
        else:
            file = pa.ipc.open_file(source)
            reader = (file.get_batch(number) for number in range(file.num_record_batches))
        for batch in reader:
            part = pa.Table.from_batches([batch])
            _require_valid(part)
            require_shape(path, part.num_rows, part.num_columns)
            yield part


def _uncompressed(message: Any) -> int:
    """Return the bytes that the compressed buffers of an Arrow message take, which stand before each of them.

    The message is a FlatBuffer (Message.fbs of Arrow); pyarrow does not show its fields.
    """
    data, body = memoryview(message.metadata), memoryview(message.body or b"")

    def number(kind: str, at: int) -> int:
        return int(struct.unpack_from(kind, data, at)[0])

    def field(table: int, place: int) -> int:
        """Return where a field of a table is, or 0."""
        vtable = table - number("<i", table)
        there = number("<H", vtable + 4 + 2 * place) if 4 + 2 * place < number("<H", vtable) else 0
        return there and table + there

    def follow(at: int) -> int:
        return at + number("<I", at)

    batch = follow(field(follow(0), 2))
    if message.type == "dictionary":
        batch = follow(field(batch, 1))
    elif message.type != "record batch":
        return 0
    if not field(batch, 3):
        return 0
    buffers = follow(field(batch, 2))
    starts = (
        number("<q", buffers + 4 + 16 * n) for n in range(number("<I", buffers)) if number("<q", buffers + 12 + 16 * n)
    )
    return sum(max(0, struct.unpack_from("<q", body, start)[0]) for start in starts)


def _require_valid(part: pa.Table) -> None:
    """Raise an error if text or names are not UTF-8, or offsets are out of range, which could crash the process."""
    part.validate(full=True)
    fields = list(part.schema)
    while fields:
        field = fields.pop()
        assert field.name is not None  # reading a name decodes it
        if pa.types.is_struct(field.type):
            fields += [field.type.field(n) for n in range(field.type.num_fields)]
        elif pa.types.is_list(field.type):
            fields.append(field.type.value_field)
