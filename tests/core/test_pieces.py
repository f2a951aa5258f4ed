"""Pieces of a text: they end with rows, and what is written elsewhere does not change them."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from hitl.tables import delimited, pieces


def content(dice: random.Random, rows: int) -> list[bytes]:
    said = (b"yes", b"no", b'"may\nbe"', b'"a ""b"""', b'"\n\n,"', b"")
    return [b"%d,%s\n" % (n, dice.choice(said)) for n in range(rows)]


def digests(data: bytes) -> list[bytes]:
    return [pieces.digest_of(data, *each) for each in pairwise(pieces.bounds(data, pieces.header_end(data)))]


@pytest.mark.parametrize("seed", range(3))
def test_pieces_end_with_rows(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(pieces, "LEAST", 40)
    header, rows = b'item,"la\nbel"\n', content(random.Random(seed), 2000)
    data = header + b"".join(rows)
    assert pieces.header_end(data) == len(header)
    whole = delimited.read_rows(header, b"".join(rows), ",")
    parts = [data[start:end] for start, end in pairwise(pieces.bounds(data, len(header)))]
    assert len(parts) > 20
    assert b"".join(parts) == data[len(header) :]
    tables = [delimited.read_rows(header, part, ",") for part in parts]
    assert [row for table in tables for row in table.to_pylist()] == whole.to_pylist()


def test_a_row_changes_its_own_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "LEAST", 2000)
    dice = random.Random(0)
    rows = content(dice, 20_000)
    before, changed = digests(b"".join(rows)), []
    for _ in range(20):
        place = dice.randrange(len(rows))
        after = digests(b"".join([*rows[:place], b"new,yes\n", *rows[place:]]))
        changed.append(len(pieces.unshared(after, before)))
        assert len(pieces.unshared(before, after)) <= 3
    assert sum(changed) < 30


def test_a_text_without_ends_of_rows_is_one_piece() -> None:
    data = b"a" * (3 * pieces.MOST)
    assert pieces.bounds(data, 0) == [0, len(data)]
    assert pieces.bounds(b"", 0) == [0]


def test_digests_that_are_there_more_often() -> None:
    assert pieces.unshared([b"a", b"b", b"a", b"c"], [b"a", b"c", b"c"]) == [1, 2]
