"""Brush masks in Label Studio's format: the run lengths of thi.ng/rle-pack, a list of bytes.

    32 bits     number of values
    5 bits      bits of a value, minus 1
    4 x 4 bits  four sizes of lengths: bits of a length, minus 1
    then blocks, until all values are complete:
        1 bit       1: one value is repeated; 0: different values follow
        2 bits      index of the size of the block's length
        length      number of values of the block, minus 1
        value(s)    one value, or as many as the length says

The most significant bit comes first, and zeros fill the last byte. The values of a mask are red, green, blue and
opacity of each pixel, row by row. A pixel that the brush has touched has opacity 255, and all others 0. The masks that
`hitl` writes have lower opacities where they are less certain.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from hitl.errors import BadInput
from hitl.models.numerics.compiled import compiled

Bytes = npt.NDArray[np.uint8]

CHANNELS = 4
"""Values per pixel: red, green, blue, opacity."""

WORD = 8
"""Bits per value."""

SIZES = np.array([3, 4, 8, 16])
"""Bit sizes of lengths when writing, as in Label Studio."""

HEADER = 32 + 5 + 4 * 4
"""Bits before the first block."""


def decode(rle: Sequence[int], height: int, width: int) -> npt.NDArray[np.bool_]:
    """Return (H, W) True where the brush has touched the image. Raise BadInput if `rle` is no mask of this size."""
    return opacity(rle, height, width) > 0


def encode(mask: npt.ArrayLike, opacity: npt.ArrayLike = 255) -> list[int]:
    """Encode an (H, W) mask. Nonzero pixels get the opacity, a number or (H, W), clipped to 1 .. 255.

    Raise BadInput if the mask has another shape or is empty.
    """
    drawn = np.asarray(mask)
    if drawn.ndim != 2 or not drawn.size:
        raise BadInput(f"brush mask: expected height x width, got {drawn.shape}")
    values = np.where(drawn != 0, np.clip(opacity, 1, 255), 0).astype(np.uint8)
    return encode_values(np.repeat(values.ravel(), CHANNELS))


def opacity(rle: Sequence[int], height: int, width: int) -> Bytes:
    """Return (H, W) opacity of each pixel, 0 to 255. Raise BadInput if `rle` is no mask of this size."""
    require_mask(rle, height, width)
    return decode_values(rle).reshape(height, width, CHANNELS)[:, :, 3]


def require_mask(rle: Sequence[int], height: int, width: int) -> None:
    """Raise BadInput if `rle` is no mask of this size, without allocating the mask."""
    packed, word, sizes, number = _header(rle)
    if number != height * width * CHANNELS:
        raise BadInput(
            f"brush mask: {number} values; expected {height} x {width} x {CHANNELS} = {height * width * CHANNELS}"
        )
    _require_complete(_unpack(packed, word, sizes, number, np.empty(0, np.uint8)), number)


def decode_values(rle: Sequence[int]) -> Bytes:
    """Decode a list of bytes to (N,) values. Raise BadInput if it ends too early or contains anything but bytes."""
    packed, word, sizes, number = _header(rle)
    values = np.empty(number, dtype=np.uint8)
    _require_complete(_unpack(packed, word, sizes, number, values), number)
    return values


def _header(rle: Sequence[int]) -> tuple[Bytes, int, npt.NDArray[np.int64], int]:
    """Return the bytes, the bits of a value, the sizes of lengths in bits, and the number of values."""
    packed = _bytes(rle)
    if len(packed) * 8 < HEADER:
        raise BadInput(f"brush mask: {len(packed)} bytes; expected at least {-(-HEADER // 8)}")
    number, word = _read(packed, 0, 32), _read(packed, 32, 5) + 1
    sizes = np.array([_read(packed, 37 + 4 * i, 4) + 1 for i in range(4)])
    if word > WORD:
        raise BadInput(f"brush mask: values of {word} bits; expected at most {WORD}")
    _require_bits(packed, number, sizes)
    return packed, word, sizes, number


def _require_complete(done: int, number: int) -> None:
    if done < number:
        raise BadInput(f"brush mask: the bytes end after {done} of {number} values")


def encode_values(values: npt.ArrayLike) -> list[int]:
    """Encode (N,) values, each in 0 .. 255, as a list of bytes. There must be at least one value."""
    flat = np.ascontiguousarray(values, dtype=np.uint8).ravel()
    starts = np.concatenate(([0], np.flatnonzero(flat[1:] != flat[:-1]) + 1))
    length, value = np.diff(np.append(starts, len(flat))), flat[starts]
    longest = 2 ** int(SIZES[-1])
    pieces = -(-length // longest)
    rest = length - (pieces - 1) * longest
    block = np.full(int(pieces.sum()), longest)
    block[np.cumsum(pieces) - 1] = rest
    size = np.searchsorted(2**SIZES, block)
    header = f"{len(flat):032b}{WORD - 1:05b}" + "".join(f"{bits - 1:04b}" for bits in SIZES)
    # A block is one number of 1 + 2 + SIZES[size] + WORD bits.
    number = ((block > 1) * 4 + size << SIZES[size]) + block - 1 << WORD
    number += np.repeat(value, pieces)
    bits = 3 + SIZES[size] + WORD
    last = np.repeat(np.cumsum(bits), bits)
    bit = np.repeat(number, bits) >> (last - 1 - np.arange(len(last))) & 1
    packed: list[int] = np.packbits(np.concatenate((np.array([*header], np.uint8), bit.astype(np.uint8)))).tolist()
    return packed


def _bytes(rle: Sequence[int]) -> Bytes:
    try:
        given = np.asarray(rle)
    except (ValueError, OverflowError):
        given = np.asarray(None)
    if given.ndim != 1 or given.dtype.kind not in "iu" or not given.size or given.min() < 0 or given.max() > 255:
        raise BadInput("brush mask: expected a list of whole numbers in 0 .. 255")
    return given.astype(np.uint8)


def _require_bits(packed: Bytes, number: int, sizes: npt.NDArray[np.int64]) -> None:
    """Raise BadInput if the bytes cannot hold `number` values, before memory is allocated for them.

    A block takes at least three bits and the bits of its length.
    """
    left = len(packed) * 8 - HEADER
    most = max(left // (3 + int(bits)) * 2 ** int(bits) for bits in sizes)
    if number > most:
        raise BadInput(f"brush mask: {number} values in {len(packed)} bytes; no more than {most} fit")


@compiled
def _read(packed: Any, first: int, bits: int) -> int:
    value = 0
    for at in range(first, first + bits):
        value = 2 * value + ((packed[at >> 3] >> (7 - (at & 7))) & 1)
    return value


@compiled
def _unpack(packed: Any, word: int, sizes: Any, number: int, values: Any) -> int:
    """Read `number` values into `values`, unless it is empty. Return how many were found before the bytes ended."""
    at, done, end, keep = HEADER, 0, 8 * len(packed), len(values) > 0
    while done < number:
        if at + 3 > end:
            return done
        repeated, size = _read(packed, at, 1), sizes[_read(packed, at + 1, 2)]
        at += 3
        if at + size > end:
            return done
        length = min(_read(packed, at, size) + 1, number - done)
        at += size
        if repeated:
            if at + word > end:
                return done
            if keep:
                values[done : done + length] = _read(packed, at, word)
            at += word
            done += length
        elif not keep:
            held = (end - at) // word
            if length > held:
                done += int(held)
                return done
            at += length * word
            done += length
        else:
            for _ in range(length):
                if at + word > end:
                    return done
                values[done] = _read(packed, at, word)
                at += word
                done += 1
    return done
