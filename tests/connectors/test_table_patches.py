"""A file that is patched is the file that would be written, byte by byte, whatever is left of the one before."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from hitl.connectors import table_patches
from hitl.connectors.table_output import write_if_changed
from hitl.connectors.table_patches import write_consensus, write_wanted
from hitl.tables.operations_by_difference import (
    NOTHING,
    ConsensusByDifference,
    WantedByDifference,
    columns_of,
    consensus_columns,
)
from hitl.tables.row_differences import RowsByDifference, digest_of

CLASSES = ("cat", 'a "dog", or two', "=1+1")

Bools = npt.NDArray[np.bool_]


def operation(items: pa.Array, p: npt.NDArray[np.float64], said: Bools) -> ConsensusByDifference:
    columns = consensus_columns(p.argmax(axis=1).astype(np.int32), p.max(axis=1), p, said)
    rows = RowsByDifference.whole(digest_of(items), columns)
    return ConsensusByDifference(lambda: items, {"q": CLASSES[: p.shape[1]]}, {"q": rows})


def expected(path: Path, said: ConsensusByDifference) -> bytes:
    """What is written as a whole."""
    rows, other = said.rows["q"], path.with_name("expected.csv")
    write_if_changed(other, columns_of(said.named(), said.classes["q"], rows.columns).table())
    return other.read_bytes()


def names(n: int, odd: bool) -> pa.Array:
    found = [f"item {place}" for place in range(n)]
    if odd:
        found[:4] = ['with "quotes"', "with, comma", "=SUM(A1)", "ünï"]
    return pa.array(found, pa.string())


@pytest.fixture
def patches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows were changed in each file that was patched."""
    real, seen = table_patches._patched, list[int]()

    def watched(*given: Any) -> Any:
        found = real(*given)
        seen.extend([] if found is None else [len(given[4])])
        return found

    monkeypatch.setattr(table_patches, "_patched", watched)
    return seen


@pytest.fixture(autouse=True, params=[table_patches.GROUP, 7], ids=["one group", "many groups"])
def group(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_patches, "GROUP", request.param)


@pytest.mark.parametrize("seed", range(8))
def test_over_any_course_it_is_the_file_that_would_be_written(tmp_path: Path, patches: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    path, n = tmp_path / "consensus.csv", 150
    items = names(n, odd=seed % 2 == 1)
    p, said = rng.dirichlet([0.5] * 3, n), rng.random(n) < (0.8 if seed % 3 else 2)
    now = operation(items, p, said)
    for step in range(30):
        write_consensus(path, now)
        assert path.read_bytes() == expected(path, now), f"step {step}"
        p, said = p.copy(), said.copy()
        some = rng.choice(n, int(rng.integers(4)), replace=False)
        p[some] = rng.dirichlet([0.5] * 3, len(some))
        said[rng.choice(n, int(rng.integers(2)), replace=False)] ^= seed % 3 != 0
        before, now = now, operation(items, p, said).follow(now)
        if rng.random() < 0.1:
            path.write_bytes(path.read_bytes().replace(b"0.", b"1.", 1))  # somebody edits it
        if rng.random() < 0.05:
            path.unlink()
        if rng.random() < 0.1:
            (tmp_path / ".consensus.csv.index").write_bytes(b"PK")
        if rng.random() < 0.3:
            write_consensus(path, now)
            now = before  # as from a backup
    assert len(patches) > 5


def test_a_few_changed_rows_are_few(tmp_path: Path, patches: list[int]) -> None:
    path, items = tmp_path / "consensus.csv", names(100, odd=True)
    p = np.random.default_rng(0).dirichlet([0.5] * 3, 100)
    first = operation(items, p, np.ones(100, bool))
    assert write_consensus(path, first) == 100
    assert write_consensus(path, first) == 0
    p = p.copy()
    p[[0, 2, 99]] = p[[2, 99, 0]]
    second = operation(items, p, np.ones(100, bool)).follow(first)
    assert write_consensus(path, second) == 3
    p = p.copy()
    p[[2, 50]] = p[[50, 2]]
    assert write_consensus(path, operation(items, p, np.ones(100, bool)).follow(second)) == 2
    assert patches == [3, 2], "what was patched is known again"


def test_rows_of_several_lines_are_written_as_a_whole(tmp_path: Path, patches: list[int]) -> None:
    path, items = tmp_path / "consensus.csv", pa.array([f"item\n{place}" for place in range(50)])
    p = np.random.default_rng(0).dirichlet([0.5] * 3, 50)
    first = operation(items, p, np.ones(50, bool))
    write_consensus(path, first)
    p = p.copy()
    p[[0, 2]] = p[[2, 0]]
    second = operation(items, p, np.ones(50, bool)).follow(first)
    assert write_consensus(path, second) == 50
    assert path.read_bytes() == expected(path, second)
    assert patches == []


@pytest.mark.parametrize("cut", ["file", "index"])
def test_a_kill_between_file_and_index_leaves_a_file_that_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut: str
) -> None:
    path, items = tmp_path / "consensus.csv", names(100, odd=False)
    p = np.random.default_rng(0).dirichlet([0.5] * 3, 100)
    said = [operation(items, p, np.ones(100, bool))]
    for n in range(2):
        p = p.copy()
        p[[n, n + 5]] = p[[n + 5, n]]
        said.append(operation(items, p, np.ones(100, bool)).follow(said[-1]))
    write_consensus(path, said[0])
    before = path.read_bytes()

    def killed(*given: object, **named: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(table_patches, "atomic" if cut == "file" else "_keep", killed)
        with pytest.raises(KeyboardInterrupt):
            write_consensus(path, said[1])
    assert path.read_bytes() == (before if cut == "file" else expected(path, said[1]))
    write_consensus(path, said[2])
    assert path.read_bytes() == expected(path, said[2])


def wanted(items: pa.Array, labels: npt.NDArray[np.int32]) -> WantedByDifference:
    return WantedByDifference(lambda: items, RowsByDifference.whole(digest_of(items), [labels]))


def expected_wanted(path: Path, said: WantedByDifference) -> bytes:
    other = path.with_name("expected.csv")
    write_if_changed(other, said.table)
    return other.read_bytes()


@pytest.mark.parametrize("seed", range(6))
def test_over_any_course_the_labels_wanted_are_those_that_would_be_written(
    tmp_path: Path, patches: list[int], seed: int
) -> None:
    """They stand by name, and not in the order of the items."""
    rng = np.random.default_rng(seed)
    path, n = tmp_path / "labels_wanted.csv", 120
    items = names(n, odd=seed % 2 == 1).take(pa.array(rng.permutation(n)))
    labels = rng.integers(2, 12, n).astype(np.int32)
    now = wanted(items, labels)
    for step in range(30):
        write_wanted(path, now)
        assert path.read_bytes() == expected_wanted(path, now), f"step {step}"
        labels = labels.copy()
        some = rng.choice(n, int(rng.integers(4)), replace=False)
        labels[some] = rng.choice([NOTHING, 3, 10, 2000], len(some))
        before, now = now, wanted(items, labels).follow(now)
        if rng.random() < 0.1:
            path.write_bytes(path.read_bytes().replace(b",3", b",4", 1))
        if rng.random() < 0.05:
            path.unlink()
        if rng.random() < 0.3:
            write_wanted(path, now)
            now = before
    assert len(patches) > 5


def two(tmp_path: Path) -> tuple[Path, ConsensusByDifference, ConsensusByDifference]:
    """A file that was written, what it says, and what comes after."""
    path, items = tmp_path / "consensus.csv", names(40, odd=True)
    p = np.random.default_rng(0).dirichlet([0.5] * 3, 40)
    first = operation(items, p, np.ones(40, bool))
    write_consensus(path, first)
    p = p.copy()
    p[[3, 20]] = p[[20, 3]]
    return path, first, operation(items, p, np.ones(40, bool)).follow(first)


@pytest.mark.parametrize("changes", [False, True])
def test_an_edit_of_any_byte_within_the_same_tick_is_seen(tmp_path: Path, changes: bool) -> None:
    path, first, second = two(tmp_path)
    content, index = path.read_bytes(), path.with_name(".consensus.csv.index")
    kept, said = index.read_bytes(), second if changes else first
    right = expected(path, said)
    for place in range(0, len(content), 3):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        os.utime(path, (43_200, 43_200))
        index.write_bytes(kept)
        assert write_consensus(path, said) == 40
        assert path.read_bytes() == right
    for other in (b"", content[:-1], content + b"x", content[::-1]):
        path.write_bytes(other)
        index.write_bytes(kept)
        assert write_consensus(path, said) == 40
        assert path.read_bytes() == right
    assert not [*tmp_path.glob(".consensus.csv.*[!x]")]


def test_a_damaged_index_and_one_of_an_older_version_lead_to_the_whole(tmp_path: Path, patches: list[int]) -> None:
    path, first, second = two(tmp_path)
    index = path.with_name(".consensus.csv.index")
    kept = index.read_bytes()
    for place in range(0, len(kept), 11):
        index.write_bytes(kept[:place] + bytes([kept[place] ^ 0x55]) + kept[place + 1 :])
        assert write_consensus(path, first) == 0, "the file says so already"
        assert index.read_bytes() == kept
    with index.open("wb") as file:
        np.savez(file, header=np.frombuffer(b'{"form": 1}', np.uint8), rows=np.empty(0, np.int32))
    assert write_consensus(path, first) == 0
    assert patches == []
    assert write_consensus(path, second) == 2
    assert path.read_bytes() == expected(path, second)
