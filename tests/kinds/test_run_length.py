"""Brush masks: against Label Studio's own converter, and bytes that are no mask."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from label_studio_sdk.converter import brush

from hitl.errors import BadInput
from hitl.kinds.run_length import decode, decode_values, encode, encode_values, opacity, require_mask

RUNS = st.lists(st.tuples(st.integers(0, 255), st.sampled_from([1, 2, 7, 8, 9, 15, 16, 17, 255, 256, 257, 300])))


def packed(bits: str) -> list[int]:
    return [int(bits[i : i + 8].ljust(8, "0"), 2) for i in range(0, len(bits), 8)]


@settings(deadline=None, max_examples=60)
@given(RUNS.filter(bool))
def test_runs_are_written_as_label_studio_writes_them(runs: list[tuple[int, int]]) -> None:
    values = np.concatenate([np.full(length, value, dtype=np.uint8) for value, length in runs])
    found = encode_values(values)
    theirs = brush.encode_rle(values)
    assert found == theirs[: len(found)]
    assert not any(theirs[len(found) :])  # a byte more where the last one is full
    np.testing.assert_array_equal(brush.decode_rle(found), values)
    np.testing.assert_array_equal(decode_values(found), values)


@pytest.mark.parametrize("length", [2**16 - 1, 2**16, 2**16 + 1, 2**17, 2**17 + 1, 3 * 2**16 + 5])
def test_long_runs_are_cut(length: int) -> None:
    values = np.concatenate([[7], np.full(length, 255), [0, 0]]).astype(np.uint8)
    found = encode_values(values)
    np.testing.assert_array_equal(brush.decode_rle(found), values)
    np.testing.assert_array_equal(decode_values(found), values)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.tuples(st.booleans(), st.integers(0, 3), st.integers(1, 8), st.lists(st.integers(0, 31), min_size=8)),
        min_size=1,
    ),
    st.permutations([2, 4, 7, 11]),
)
def test_what_other_writers_may_write_is_read_as_label_studio_reads_it(
    blocks: list[tuple[bool, int, int, list[int]]], sizes: list[int]
) -> None:
    """Values of five bits, other sizes of lengths, and blocks of different values."""
    body, number = "", 0
    for repeated, size, length, values in blocks:
        length = min(length, 2 ** sizes[size])
        body += f"{int(repeated)}{size:02b}{length - 1:0{sizes[size]}b}"
        body += "".join(f"{value:05b}" for value in values[: 1 if repeated else length])
        number += length
    rle = packed(f"{number:032b}{4:05b}" + "".join(f"{size - 1:04b}" for size in sizes) + body)
    np.testing.assert_array_equal(decode_values(rle), brush.decode_rle(rle))


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 2**32 - 1))
def test_masks_come_back(height: int, width: int, seed: int) -> None:
    mask = np.random.default_rng(seed).random((height, width)) < 0.3
    rle = encode(mask)
    np.testing.assert_array_equal(decode(rle, height, width), mask)
    np.testing.assert_array_equal(brush.decode_rle(rle).reshape(height, width, 4)[:, :, 3], mask * 255)


@settings(deadline=None, max_examples=200)
@given(st.lists(st.integers(0, 255), min_size=1, max_size=40))
def test_any_bytes_are_read_or_refused(rle: list[int]) -> None:
    with suppress(BadInput):
        decode_values(rle)


@settings(deadline=None, max_examples=200)
@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 2**32 - 1), st.data())
def test_a_damaged_mask_is_refused_without_reading_it_whenever_it_cannot_be_read(
    height: int, width: int, seed: int, data: st.DataObject
) -> None:
    rle = encode(np.random.default_rng(seed).random((height, width)) < 0.3)
    rle[data.draw(st.integers(0, len(rle) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    rle = rle[: data.draw(st.integers(1, len(rle)))]
    try:
        require_mask(rle, height, width)
    except BadInput:
        with suppress(BadInput):
            assert len(decode_values(rle)) != height * width * 4
    else:
        assert len(decode_values(rle)) == height * width * 4


@pytest.mark.parametrize(
    ("rle", "message"),
    [
        ([], "whole numbers"),
        ([0, 300], "whole numbers"),
        (["a"], "whole numbers"),
        ([1.5, 2], "whole numbers"),
        ([[1], [2, 3]], "whole numbers"),
        ([0] * 5, "at least 7"),
        ([255] * 12, "bits"),
        (encode(np.eye(5, 4))[:-2], "end after"),
        (encode(np.eye(4)), "64 values; expected 5 x 4 x 4"),
    ],
)
def test_what_is_no_mask_is_refused(rle: list[int], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        decode(rle, 5, 4)


def test_a_number_that_cannot_be_takes_no_memory() -> None:
    with pytest.raises(BadInput, match="no more than"):
        decode_values(packed(f"{2**32 - 1:032b}{7:05b}" + "0010001101111111" + "1" * 40))


def test_only_height_times_width_is_encoded() -> None:
    with pytest.raises(BadInput, match="height x width"):
        encode(np.zeros(4))


def test_opacities_come_back_and_a_drawn_pixel_never_vanishes() -> None:
    mask = np.array([[True, False, True], [True, True, False]])
    rle = encode(mask, np.array([[255, 255, 130], [0.2, 300, 9]]))
    assert opacity(rle, 2, 3).tolist() == [[255, 0, 130], [1, 255, 0]]
    np.testing.assert_array_equal(decode(rle, 2, 3), mask)
