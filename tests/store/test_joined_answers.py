"""Answers of blocks, joined: what a table of all their rows says."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from hitl.store import joined_answers
from hitl.store.joined_answers import joined, one
from hitl.store.packed import _ANSWER, _BLOCK, _packed, _unpacked

KEYS = ["ann", "bob", "cid", None]


def block(rng: np.random.Generator, first: int) -> pa.Table:
    """Some items, of which some have no answer, with names in another order in each block."""
    n = int(rng.integers(1, 6))
    counts = rng.integers(0, 4, n)
    m = int(counts.sum())
    keys = [KEYS[place] for place in rng.permutation(len(KEYS))][: int(rng.integers(1, 5))]
    named = [[keys[code] for code in rng.integers(len(keys), size=m)] for _ in range(2)]
    numbers = [[None if rng.random() < 0.3 else float(value) for value in rng.random(m)] for _ in range(2)]
    fields = [pa.array(values, pa.string()).dictionary_encode() for values in named]
    fields += [pa.array(values, pa.float64()) for values in numbers]
    answers = pa.StructArray.from_arrays(fields, fields=list(_ANSWER))
    offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]).astype(np.int32))
    items = pa.array([f"item {first + place}" for place in range(n)])
    lists = pa.ListArray.from_arrays(offsets, answers)
    return pa.table([pa.array(np.arange(first, first + n)), items, lists], schema=_BLOCK)


@pytest.mark.parametrize("seed", range(20))
def test_joined_they_say_what_each_says(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(joined_answers, "_ROOM", 3)
    rng = np.random.default_rng(seed)
    blocks = [block(rng, 100 * place) for place in range(int(rng.integers(0, 12)))]
    found = joined(_unpacked(_packed(each)) for each in blocks)
    rows = [row for each in blocks for row in each.to_pylist()]
    said = [answer for row in rows for answer in row["answers"]]
    assert one(found.items).to_pylist() == [row["item"] for row in rows]
    assert [n for each in found.counts for n in each.tolist()] == [len(row["answers"]) for row in rows]
    for name in ("annotator", "label"):
        coded = found.coded(name)
        assert coded.cast(pa.string()).to_pylist() == [answer[name] for answer in said]
        assert len(set(coded.dictionary.to_pylist())) == len(coded.dictionary)
    for name in ("time", "duration"):
        expected = [np.nan if answer[name] is None else answer[name] for answer in said]
        assert np.array_equal(found.numbers(name), np.array(expected, float), equal_nan=True)
