"""Whatever a file declares or unpacks to, reading it stays near the memory limit: it is read, or an error comes first.

The limit is some megabytes here, so that files of other sizes than in `test_hostile_files` are beyond it. Texts that
repeat compress to kilobytes in most formats.
"""

from __future__ import annotations

import gzip
import json
import re
import tempfile
import time
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st
from pyarrow import feather, parquet

from hitl.connectors.exports.records import kind_of, records
from hitl.errors import BadInput
from hitl.evidence import Evidence
from hitl.tables import parsers
from hitl.tables.limits import Limits, within
from hitl.tables.matrices import read_probabilities, read_vectors
from hitl.tables.read import column_names, read_parts, read_table
from tests.command_line import Run

LIMIT = 4_000_000
ROOM = 3 * LIMIT + 24_000_000
"""Bytes that reading may take at its peak: copies within the limit, and blocks of fixed size."""
SMALL = LIMIT // 40
"""Bytes of content that is read under this limit in every format."""
MESSAGE = re.compile(
    r"its content takes [\d.]+ (kB|MB|GB|TB) of memory or more; expected at most 4 MB \(limits\.memory, or what is "
    r"available\); .+|more than 262,144 (?:characters|bytes); expected at most that many in a row of CSV\. .+|"
    r"unpacked it has [\d,]+ bytes or more; expected at most [\d,]+ .*\(limits\.unpacked, and 200 times its size\)"
)
"""Size, limit, and what to do instead."""
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
"""Shrinking a large file to a smaller one that fails too takes long, and says nothing."""
POOLS: list[pa.MemoryPool] = []
"""Pools that were measured. They have to outlive what was allocated from them."""


@pytest.fixture(autouse=True, scope="module")
def _small_blocks() -> Iterator[None]:
    """Arrow reads up to 40 blocks of a CSV file ahead: 160 MB, whatever the size of the file.

    Its threads go on for a moment after an error, and must not find `tracemalloc` stopped halfway (a crash of 3.11).
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parsers, "BLOCK", 1 << 18)
        tracemalloc.start()
        yield
        time.sleep(1)
        tracemalloc.stop()


def peak_of(read: Callable[[], object]) -> tuple[str | None, int]:
    """Return the message of the error, or None, and the bytes allocated at the peak by Python, numpy and Arrow."""
    default = pa.default_memory_pool()
    POOLS.append(pa.proxy_memory_pool(default))
    pa.set_memory_pool(POOLS[-1])
    before, _ = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    message = None
    try:
        with within(Limits(memory=LIMIT, name_length=1 << 30)):
            read()
    except BadInput as error:
        message = str(error)
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        pa.set_memory_pool(default)
    return message, peak - before + (POOLS[-1].max_memory() or 0)


def check(path: Path, size: int, *readers: Callable[[], object], room: int = ROOM) -> None:
    """Check each way to read a file whose texts and numbers have this size."""
    for read in readers:
        message, peak = peak_of(read)
        assert peak < room, (path.name, message, f"{peak:,}")
        if message is not None:
            assert message.startswith(str(path)), message
            assert MESSAGE.search(message), message
            assert size > SMALL, message


# -- tables ------------------------------------------------------------------------------------------------


def coded(n_rows: int, text: str) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(n_rows, np.int32)), [text])


def as_list(texts: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays(np.array([0, len(texts)], np.int32), texts)


def as_parquet(path: Path, texts: pa.Array, **options: Any) -> None:
    parquet.write_table(pa.table({"item": texts}), path, store_schema=False, compression="zstd", **options)


def as_zipped_parquet(path: Path, texts: pa.Array) -> None:
    sink = pa.BufferOutputStream()
    parquet.write_table(pa.table({"item": texts}), sink, use_dictionary=False, compression="none")
    path.write_bytes(gzip.compress(sink.getvalue(), 1))


def lines_of(texts: pa.Array, of_json: bool) -> str:
    rows = texts.to_pylist()
    return "".join(json.dumps({"item": row}) + "\n" for row in rows) if of_json else "\n".join(["item", *rows]) + "\n"


def as_sheet(path: Path, texts: pa.Array) -> None:
    book = pytest.importorskip("openpyxl").Workbook(write_only=True)
    sheet = book.create_sheet()
    sheet.append(["item"])
    for row in texts.to_pylist():
        sheet.append([row])
    book.save(path)


WRITERS: dict[str, Callable[[Path, pa.Array], object]] = {
    "a.csv": lambda path, texts: path.write_text(lines_of(texts, False)),
    "b.csv.gz": lambda path, texts: path.write_bytes(gzip.compress(lines_of(texts, False).encode(), 1)),
    "a.tsv": lambda path, texts: path.write_text(lines_of(texts, False)),
    "a.jsonl": lambda path, texts: path.write_text(lines_of(texts, True)),
    "b.jsonl.gz": lambda path, texts: path.write_bytes(gzip.compress(lines_of(texts, True).encode(), 1)),
    "a line of values.jsonl": lambda path, texts: path.write_text(json.dumps({"item": texts.to_pylist()}) + "\n"),
    "dictionary.parquet": as_parquet,
    "plain.parquet": lambda path, texts: as_parquet(path, texts, use_dictionary=False),
    "prefixes.parquet": lambda path, texts: as_parquet(
        path, texts, use_dictionary=False, column_encoding="DELTA_BYTE_ARRAY"
    ),
    "suffixes.parquet": lambda path, texts: as_parquet(
        path, texts, use_dictionary=False, column_encoding="DELTA_LENGTH_BYTE_ARRAY"
    ),
    "list.parquet": lambda path, texts: as_parquet(path, as_list(texts)),
    "struct.parquet": lambda path, texts: as_parquet(path, pa.StructArray.from_arrays([texts], ["x"])),
    "groups.parquet": lambda path, texts: as_parquet(path, texts, row_group_size=100),
    "a.parquet.gz": as_zipped_parquet,
    "plain.arrow": lambda path, texts: feather.write_feather(pa.table({"item": texts}), str(path), "uncompressed"),
    "packed.arrow": lambda path, texts: feather.write_feather(pa.table({"item": texts}), str(path), "zstd"),
    "coded.arrow": lambda path, texts: feather.write_feather(
        pa.table({"item": coded(len(texts), texts[0].as_py())}), str(path), "zstd"
    ),
    "a.xlsx": as_sheet,
}
"""File -> function that writes a column of texts."""

SIZES = st.tuples(st.sampled_from([1, 30, 300, 3_000, 30_000]), st.sampled_from([1_000, 30_000, 1_000_000, 60_000_000]))
"""Rows, and the bytes of all of them."""


@pytest.mark.journey
@pytest.mark.parametrize("name", WRITERS)
@settings(max_examples=4, phases=PHASES)
@given(size=SIZES, same=st.booleans(), character=st.sampled_from(["x", "é"]))
@example(size=(300, 60_000_000), same=True, character="x")
def test_a_table_of_texts(name: str, size: tuple[int, int], same: bool, character: str) -> None:
    n_rows, length = size[0], max(1, size[1] // size[0])
    if name.endswith("xlsx"):  # a cell has at most 32,767 characters, and is slow to write
        n_rows, length = (1_500, 30_000) if n_rows * length > 10_000_000 else (n_rows, min(length, 30_000))
    texts = pa.array([character * length + ("" if same else f" {row}") for row in range(n_rows)])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        WRITERS[name](path, texts)
        check(
            path,
            texts.nbytes,
            lambda: read_table(path, [] if name.startswith(("list", "struct", "a line")) else ["item"]),
            lambda: sum(part.num_rows for part in read_parts(path, 1_000)),
            lambda: column_names(path),
        )


def test_groups_that_are_small_one_by_one(tmp_path: Path) -> None:
    texts = pa.array(["x" * 250 + f" {row % 2}" for row in range(200_000)])
    as_parquet(tmp_path / "groups.parquet", texts, row_group_size=700)
    check(tmp_path / "groups.parquet", texts.nbytes, lambda: read_table(tmp_path / "groups.parquet", ["item"]))


@settings(max_examples=15, phases=PHASES)
@given(
    n_rows=st.sampled_from([1_000, 1_000_000, 8_000_000]),
    kind=st.sampled_from(["null", "bool", "int8", "int64", "float64"]),
    file=st.sampled_from(["a.parquet", "a.arrow"]),
    as_name=st.booleans(),
)
def test_a_table_of_values_that_take_little_in_the_file(n_rows: int, kind: str, file: str, as_name: bool) -> None:
    numbers = pa.nulls(n_rows) if kind == "null" else pa.array(np.zeros(n_rows, kind))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / file
        write = parquet.write_table if file.endswith("parquet") else feather.write_feather
        write(pa.table({"item": numbers}), str(path))
        check(path, 8 * n_rows, lambda: read_table(path, ["item"] if as_name else []), lambda: column_names(path))


@pytest.mark.parametrize("rows", [65_536, 100_000])
def test_parts_that_fit_are_read_though_the_file_does_not(rows: int, tmp_path: Path) -> None:
    """Texts are counted 65,536 rows at a time, whatever number of rows a part has."""
    texts = pa.array([f"{'x' * 40} {row % 100:2}" for row in range(400_000)])
    as_parquet(tmp_path / "a.parquet", texts)
    with within(Limits(memory=24_000_000)):
        assert sum(part.num_rows for part in read_parts(tmp_path / "a.parquet", rows)) == 400_000


# -- numbers -----------------------------------------------------------------------------------------------


def features_as_lists(path: Path, n_items: int, width: int, n_empty: int) -> None:
    lists: list[list[float] | None] = [[0.0] * width] * n_items + [None] * n_empty
    column = pa.array(lists, pa.list_(pa.float64()))
    parquet.write_table(pa.table({"item": np.arange(len(lists)), "x": column}), path)


@settings(max_examples=25, phases=PHASES)
@given(
    n_items=st.sampled_from([1, 50, 2_000]),
    width=st.sampled_from([1, 20, 1_000]),
    n_empty=st.sampled_from([0, 1_000, 30_000, 100_000]),
    name=st.sampled_from(["lists.parquet", "x.npz", "names.npz", "p.npz", "p.npy"]),
)
@example(n_items=1, width=1_000, n_empty=30_000, name="lists.parquet")
@example(n_items=1, width=1, n_empty=100_000, name="x.npz")
def test_arrays(n_items: int, width: int, n_empty: int, name: str) -> None:
    """Rows without a list of numbers become rows of the array too."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        n_rows = n_items + n_empty
        read: Callable[[Path], object] = read_vectors
        if name == "lists.parquet":
            features_as_lists(path, n_items, width, n_empty)
        elif name == "x.npz":
            np.savez_compressed(path, items=np.arange(n_rows), x=np.zeros((n_rows, max(1, width // 50)), np.int8))
        elif name == "names.npz":
            items = np.array([f"{'é' * width}{row}" for row in range(min(n_rows, 3_000))])
            np.savez_compressed(path, items=items, x=np.zeros((len(items), 1)))
        else:
            p_nj = np.full((n_items, width), 1 / width)
            np.save(path, p_nj) if name.endswith("npy") else np.savez_compressed(path, probabilities=p_nj)
            read = lambda path: read_probabilities(path, items=range(n_items), classes=range(width))  # noqa: E731
        check(path, 8 * n_rows * width, lambda: read(path), room=3 * LIMIT + 2_000_000)


@settings(max_examples=12, phases=PHASES)
@given(
    n_items=st.sampled_from([20, 2_000, 20_000]),
    n_classes=st.sampled_from([2, 50, 2_000]),
    n_models=st.integers(0, 3),
    width=st.sampled_from([0, 3, 2_000]),
)
def test_numbers_of_a_few_items_become_rows_of_all(n_items: int, n_classes: int, n_models: int, width: int) -> None:
    """The answers name the items, and a model of one row the classes: their product is what is allocated."""
    labels = pa.table(
        {
            "item": np.arange(n_items),
            "annotator": ["a"] * n_items,
            "label": [f"c{row % n_classes}" for row in range(n_items)],
        }
    )
    model = pa.table({"item": [0]} | {f"p_c{j}": [1.0 / n_classes] for j in range(n_classes)})
    features = pa.table({"item": [0], "x": [[0.0] * width]}) if width else None
    models = {f"model {number}": model for number in range(n_models)}
    classes = [f"c{j}" for j in range(n_classes)]
    message, peak = peak_of(lambda: Evidence.from_tables(labels, models, features=features, classes=classes))
    assert peak < ROOM, (message, f"{peak:,}")
    if message is not None:
        assert MESSAGE.search(message), message
        assert 8 * n_items * max(n_classes * n_models, width) > SMALL


# -- exports -----------------------------------------------------------------------------------------------

RECORDS: dict[str, Callable[[int, str], str]] = {
    "list.json": lambda n, text: json.dumps([{"id": row, "text": text} for row in range(n)]),
    "indented.json": lambda n, text: json.dumps([{"id": row, "text": text} for row in range(n)], indent=1),
    "lines.jsonl": lambda n, text: "".join(f'{{"id": {row}, "text": "{text}"}}\n' for row in range(n)),
    "one.jsonl": lambda n, text: json.dumps({"id": 1, "texts": [text] * n}),
    "texts.xml": lambda n, text: f"<r>{f'<a>{text}</a>' * n}</r>",
    "one text.xml": lambda n, text: f"<r><a>{text * n}</a></r>",
    "inside.xml": lambda n, text: f"<r><a>{f'<b>{text}</b>' * n}</a></r>",
    "attribute.xml": lambda n, text: f'<r><a x="{text * n}"/></r>',
}


@pytest.mark.journey
@pytest.mark.parametrize("name", RECORDS)
@settings(max_examples=6, phases=PHASES)
@given(
    size=st.tuples(st.sampled_from([1, 300, 30_000]), st.sampled_from([1_000, 1_000_000, 40_000_000])),
    zipped=st.booleans(),
    character=st.sampled_from(["x", "é", "x "]),
)
def test_the_records_of_an_export(name: str, size: tuple[int, int], zipped: bool, character: str) -> None:
    content = RECORDS[name](size[0], character * max(1, size[1] // size[0] // len(character)))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        if zipped:
            path = path.with_suffix(".zip")
            with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
                archive.writestr(name, content)
        else:
            path.write_text(content)
        notes: list[str] = []
        kind = kind_of(path)
        assert kind is not None
        check(path, len(content), lambda: sum(1 for _ in records(path, kind, notes.append)))
        assert notes == []


# -- the command -------------------------------------------------------------------------------------------


def test_the_command_says_what_takes_less(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    n_rows = 60_000  # more than are read at a time to recognize the columns
    labels = pa.table({"item": coded(n_rows, "x" * 90), "annotator": coded(n_rows, "ann"), "label": coded(n_rows, "a")})
    parquet.write_table(labels, tmp_path / "labels.parquet", compression="zstd", store_schema=False)
    monkeypatch.setenv("HITL_LIMITS__MEMORY", "6000000")
    code, _, error = run("combine", "labels.parquet")
    assert code == 65
    assert re.search(
        r"labels\.parquet: its content takes [\d.]+ MB of memory or more; expected at most 6 MB \(limits\.memory, or "
        r"what is available\); `hitl shard` reads tables of labels in parts",
        " ".join(error.split()),
    ), error
