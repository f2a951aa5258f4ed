"""Files that are well, files that are known to be hostile, and random changes of both; what reads each kind."""

from __future__ import annotations

import gzip
import io
import json
import random
import struct
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa

ROWS = [
    {"item": f"i{n % 9}", "annotator": f"a{n % 3}", "label": ("yes", "no")[n % 2], "duration": n} for n in range(30)
]
TABLE = pa.Table.from_pylist(ROWS)
VECTORS = pa.table({"item": ["a", "b"], "probabilities": [[0.5, 0.5], [0.25, 0.75]]})


def read(path: Path) -> None:
    """As `hitl combine` and `[models]` read a file of this ending."""
    from hitl.tables.matrices import read_probabilities, read_vectors
    from hitl.tables.read import batches, column_names, read_table

    ending = path.name.partition(".")[2]
    if ending == "npy":
        read_probabilities(path, items=["a", "b"], classes=["x", "y"])
    elif ending == "npz":
        _any(lambda: read_probabilities(path), lambda: read_vectors(path))
    else:
        _any(
            lambda: read_table(path, ["item", "annotator", "label"]).to_pylist(),
            lambda: [part.to_pylist() for part in batches(path, column_names(path)[:3], 7)],
            lambda: read_probabilities(path, items=["a", "b"], classes=["x", "y"]),
        )


def pull(path: Path) -> None:
    """As a project of tables reads it."""
    from hitl.connectors.tables import Tables

    tables = Tables(path)
    tables.questions()
    list(tables.pull(None))


def _any(*steps: Callable[[], Any]) -> None:
    """All steps; an error of ours where none of them could read the file, and any other at once."""
    from hitl.errors import HitlError

    failed: list[HitlError] = []
    for step in steps:
        try:
            step()
        except HitlError as error:
            failed.append(error)
    if len(failed) == len(steps):
        raise failed[0]


# -- changes -----------------------------------------------------------------------------------------------

TOKENS = (
    b"\xff\xff\xff\x7f", b"\xff\xff\xff\xff", b"\0\0\0\0", b"\x80", b"\n", b"\r", b'"', b",", b";", b"[" * 200,
    b"{" * 200, b'{"a":' * 300, b"null", b"1e999", b"-1", b"NaN", b'"\\ud800"', b"\\", b"\xef\xbb\xbf", b"\xed\xa0\x80",
    b"9" * 400,
)  # fmt: skip


def mutated(base: bytes, others: list[bytes], chance: random.Random) -> bytes:
    """The bytes with a few changes: other bytes, parts gone, doubled, or from another file."""
    data = bytearray(base)
    for _ in range(chance.choice((1, 1, 2, 4, 16))):
        if not data:
            data += b"\n"
        place, length = chance.randrange(len(data)), chance.choice((1, 2, 4, 8, 64, 1024))
        how = chance.randrange(7)
        if how == 0:
            data[place] = chance.randrange(256)
        elif how == 1:
            data[place] ^= 1 << chance.randrange(8)
        elif how == 2:
            data[place : place + length] = b""
        elif how == 3:
            data[place:place] = data[place : place + length] * chance.choice((1, 2, 50))
        elif how == 4:
            data[place : place + chance.choice((0, 4))] = chance.choice(TOKENS)
        elif how == 5:
            other = chance.choice(others)
            start = chance.randrange(max(len(other), 1))
            data[place:place] = other[start : start + length]
        else:
            del data[place:]
        del data[1 << 20 :]
    return bytes(data)


# -- files to begin with -----------------------------------------------------------------------------------


def _written(write: Callable[[IO[bytes]], object]) -> bytes:
    file = io.BytesIO()
    write(file)
    return file.getvalue()


def _csv() -> list[bytes]:
    plain = "item,annotator,label\n" + "".join(f"{row['item']},{row['annotator']},{row['label']}\n" for row in ROWS)
    quoted = 'item;annotator;label\n"a ""b""\nc";ann;"yes"\n"d";;no\n'
    wide = ",".join(f"c{n}" for n in range(60_000)) + "\n" + "," * 59_999 + "\n"
    return [text.encode() for text in (plain, quoted, wide, "item,label\n" + "x" * 300_000 + ",yes\n", plain[:200])]


def _jsonl() -> list[bytes]:
    plain = "".join(json.dumps(row) + "\n" for row in ROWS)
    nested = '{"item": "a", "label": "x", "meta": {"deep": [[1, 2], [3]], "text": "a \\"b\\" \\\\"}}\n'
    deep = '{"item": ' + "[" * 100_000 + "]" * 100_000 + "}\n"
    lines = '"\n' + "[\n" * 100_000
    objects = '{"a":' * 100_000
    sparse = "".join(f'{{"k{n}": 1}}\n' for n in range(20_000))
    return [text.encode() for text in (plain, plain + nested, deep, lines, objects, sparse)]


def _gz() -> list[bytes]:
    bomb = zlib.compressobj(6, zlib.DEFLATED, 31)
    block = b"a,b,c\n" * 200_000
    packed = b"".join(bomb.compress(block) for _ in range(400)) + bomb.flush()  # 480 MB
    return [*map(gzip.compress, _csv()[:2]), packed]


def _parquet() -> list[bytes]:
    from pyarrow import parquet

    return [
        _written(lambda file: parquet.write_table(TABLE, file)),
        _written(lambda file: parquet.write_table(VECTORS, file, compression="zstd")),
        _written(lambda file: parquet.write_table(TABLE, file, compression="gzip", use_dictionary=False)),
    ]


def _arrow() -> list[bytes]:
    def write(opener: Any, table: pa.Table) -> bytes:
        def wrote(file: IO[bytes]) -> None:
            with opener(file, table.schema) as writer:
                writer.write_table(table)

        return _written(wrote)

    return [write(opener, table) for opener in (pa.ipc.new_stream, pa.ipc.new_file) for table in (TABLE, VECTORS)]


def _xlsx() -> list[bytes]:
    import openpyxl

    book = openpyxl.Workbook()
    for row in [list(ROWS[0]), *(list(row.values()) for row in ROWS)]:
        book.active.append(row)
    plain = _written(book.save)
    far = _with_sheet(plain, lambda text: text.replace(b'r="31"', b'r="99999999999"'))
    entities = b'<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa">' + b"".join(
        b'<!ENTITY a%d "%s">' % (n, (b"&a%d;" % (n - 1) if n else b"&a;") * 10) for n in range(9)
    )
    laughs = _with_sheet(plain, lambda text: entities + b"]>" + text.replace(b"<v>2</v>", b"<v>&a8;</v>"))
    bomb = _with_sheet(plain, lambda text: text + b" " * 400_000_000)
    return [plain, far, laughs, bomb]


def _with_sheet(book: bytes, change: Callable[[bytes], bytes]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(book)) as old, zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            text = old.read(name)
            new.writestr(name, change(text) if name.endswith("sheet1.xml") else text)
    return made.getvalue()


def _npz() -> list[bytes]:
    numbers = np.array([[0.5, 0.5], [0.25, 0.75]])
    named = {"items": np.array(["a", "b"]), "classes": np.array(["x", "y"])}
    return [
        _written(lambda file: np.savez(file, probabilities=numbers, **named)),
        _written(lambda file: np.savez_compressed(file, features=numbers, items=named["items"])),
        _written(lambda file: np.savez_compressed(file, probabilities=np.zeros((40_000_000, 1)), **named)),
    ]


def _npy() -> list[bytes]:
    plain = _written(lambda file: np.save(file, np.array([[0.5, 0.5], [0.25, 0.75]])))
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999, 99999), }\n"
    promised = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header
    return [plain, promised]


SEEDS: Mapping[str, Callable[[], list[bytes]]] = {
    "csv": _csv,
    "csv.gz": _gz,
    "jsonl": _jsonl,
    "parquet": _parquet,
    "arrow": _arrow,
    "xlsx": _xlsx,
    "npz": _npz,
    "npy": _npy,
}
