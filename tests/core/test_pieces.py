"""Pieces of a text: they end with rows, and what is written elsewhere does not change them."""

from __future__ import annotations

import hashlib
import io
import random
from pathlib import Path
from zlib import crc32

import pytest

from hitl.tables import pieces
from hitl.tables.pieces import Pieces


def content(dice: random.Random, rows: int) -> list[bytes]:
    said = (b"yes", b"no", b'"may\nbe"', b'"a ""b"""', b'"\n\n,"', b"")
    return [b"%d,%s\n" % (n, dice.choice(said)) for n in range(rows)]


def cut(path: Path, data: bytes, known: pieces.Known = ()) -> Pieces:
    path.write_bytes(data)
    return Pieces.of(path, known)


def known_of(found: Pieces) -> list[tuple[bytes, int]]:
    return [*zip(found.digests, found.lengths, strict=True)]


WHAT = ("change", "add", "drop", "move", "grow", "shrink", "torn", "nothing")


def by_hand(data: bytes) -> tuple[bytes, list[bytes]]:
    """The header and the pieces, as the rule says it, row by row."""
    rows, found, piece = list[bytes](), list[bytes](), b""
    for line in io.BytesIO(data).readlines():
        if rows and rows[-1].count(b'"') % 2:
            rows[-1] += line
        else:
            rows.append(line)
    header, *rest = rows or [b""]
    cut_row = False  # the row in which a piece becomes long enough does not end it
    for row in rest:
        piece += row
        if len(piece) > pieces.LEAST:
            if cut_row and (crc32(row) % pieces.ROWS == 0 or len(piece) >= pieces.MOST):
                found.append(piece)
                piece, cut_row = b"", False
            else:
                cut_row = True
    return header, [*found, *([piece] if piece else [])]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "LEAST", 40)
    monkeypatch.setattr(pieces, "MOST", 150)
    monkeypatch.setattr(pieces, "ROWS", 3)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("seed", range(8))
def test_what_is_known_of_a_file_changes_nothing(tmp_path: Path, seed: int) -> None:
    """Over any course: rows come, go and change, the end is torn and mended, the file grows and shrinks."""
    dice, path = random.Random(seed), tmp_path / "a.csv"
    rows, known = content(dice, 300), list[tuple[bytes, int]]()
    mark = dice.choice((b"", b"\xef\xbb\xbf"))
    for _ in range(60):
        place, what = dice.randrange(len(rows)), dice.choice(WHAT)
        if what == "change":
            rows[place] = rows[place].replace(b"s", b"z") if b"s" in rows[place] else b"0,x\n"
        elif what == "add":
            rows[place:place] = content(dice, dice.choice((1, 1, 40)))
        elif what == "drop" and len(rows) > 100:
            del rows[place : place + dice.choice((1, 1, 40))]
        elif what == "move":
            rows = [*rows[place:], *rows[:place]]
        elif what == "grow":
            rows += content(dice, dice.choice((1, 5, 50)))
        elif what == "shrink" and len(rows) > 100:
            del rows[-dice.choice((1, 5, 50)) :]
        data = mark + b"item,label\n" + b"".join(rows)
        if dice.random() < 0.2:
            data = data.replace(b"\n", b"\r\n")
        if what == "torn":
            data = data[: -dice.randrange(1, 60)]
        found = cut(path, data, known)
        header, parts = by_hand(data)
        assert (found.header, found.read(path, range(len(found.digests)))) == (header, parts)
        assert [*found.lengths] == [*map(len, parts)]
        assert found.digest == cut(path, data).digest
        known = known_of(found) if dice.random() < 0.9 else [(each, n + 1) for each, n in known_of(found)]  # damaged


@pytest.mark.usefixtures("small")
def test_a_last_piece_that_goes_on_is_not_taken_for_whole(tmp_path: Path) -> None:
    data = b"item,label\n" + b"1,yes\n" * 3 + b"2,no"
    known = known_of(cut(tmp_path / "a.csv", data))
    assert len(known) == 1
    assert cut(tmp_path / "a.csv", data + b"body\n", known) == cut(tmp_path / "a.csv", data + b"body\n")


def test_pieces_that_are_known_are_not_looked_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "LEAST", 200)
    rows, looks = content(random.Random(0), 3000), list[int]()
    known = known_of(cut(tmp_path / "a.csv", b"".join(rows)))
    real = pieces._piece_end
    monkeypatch.setattr(pieces, "_piece_end", lambda data: [looks.append(1), real(data)][1])
    for place in (1, 1500, 2900):
        rows[place] = b"new,yes\n"
    found = cut(tmp_path / "a.csv", b"".join(rows), known)
    assert len(pieces.unshared(found.digests, [digest for digest, _ in known])) >= 3
    assert len(looks) < 15 < len(known) / 3


def test_each_byte_counts_in_the_digest(tmp_path: Path) -> None:
    data = b"item,label\n" + b"".join(content(random.Random(0), 50))
    known, seen = known_of(cut(tmp_path / "a.csv", data)), {cut(tmp_path / "a.csv", data).digest}
    for place in range(len(data)):
        other = bytearray(data)
        other[place] ^= 1
        seen.add(cut(tmp_path / "a.csv", bytes(other), known).digest)
    assert len(seen) == len(data) + 1


def test_bytes_that_the_file_no_longer_has_are_not_read(tmp_path: Path) -> None:
    found = cut(tmp_path / "a.csv", b"item,label\n1,yes\n")
    for other in (b"item,label\n1,yet\n", b"item,label\n1,y"):
        (tmp_path / "a.csv").write_bytes(other)
        assert found.read(tmp_path / "a.csv", [0]) is None


def test_a_row_changes_its_own_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "LEAST", 2000)
    dice = random.Random(0)
    rows, path = content(dice, 20_000), tmp_path / "a.csv"
    before, changed = cut(path, b"".join(rows)).digests, []
    for _ in range(20):
        place = dice.randrange(len(rows))
        after = cut(path, b"".join([*rows[:place], b"new,yes\n", *rows[place:]])).digests
        changed.append(len(pieces.unshared(after, before)))
        assert len(pieces.unshared(before, after)) <= 3
    assert sum(changed) < 30


def test_a_text_without_ends_of_rows_is_one_piece(tmp_path: Path) -> None:
    data = b"a" * (3 * pieces.MOST)
    found = cut(tmp_path / "a.csv", b"item\n" + data)
    assert found == Pieces(b"item\n", (hashlib.sha256(data).digest()[:16],), (len(data),))
    assert cut(tmp_path / "a.csv", data) == Pieces(data, (), ())
    assert cut(tmp_path / "a.csv", b"") == Pieces(b"", (), ())


def test_digests_that_are_there_more_often() -> None:
    assert pieces.unshared([b"a", b"b", b"a", b"c"], [b"a", b"c", b"c"]) == [1, 2]
