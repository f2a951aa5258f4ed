"""Passes over the pixels of images whose true classes are a Potts field on the 4-neighbor grid.

    half step    q_n <- (q_n + softmax(own_p + message_p + strength around_n)) / 2
    judgement    p_n ∝ exp(own_p + strength around_n)      q_n ∝ p_n exp message_n

around_n is the sum of q over the neighbors of pixel n. p is the pattern of the pixel: pixels of an image that all
annotators labeled alike have one message. So the passes read a two-byte code per pixel in place of the labels, and
annotators are learned from the sum of q over the pixels of each pattern.

All pixels move at once, as the items of `mean_field` do. The rows of one class are contiguous, with a border of zeros
around the image, so that a loop along a row has no branch and compiles to vector instructions; so does the exponential.
Beliefs are single precision: they are off by 1e-6, and half the memory takes half the time. Sums are double.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import get_num_threads, prange

from hitl.annotations import Ints
from hitl.models.numerics.compiled import compiled, threaded

LOWEST = np.float32(-87.0)
"""Smallest argument of exp in single precision; below it the result is 0, or nearly."""

_LOG2_E = np.float32(1.44269504)
_LN2_HIGH, _LN2_LOW = np.float32(0.693359375), np.float32(-2.12194440e-4)
_HALF, _ONE = np.float32(0.5), np.float32(1.0)
_C2, _C3, _C4 = np.float32(0.49999994), np.float32(0.16666655), np.float32(0.041669849)
_C5, _C6 = np.float32(8.3345205e-3), np.float32(1.3822500e-3)


def runs(height_i: Ints, width_i: Ints) -> Ints:
    """Return (threads + 1,) bounds of runs of images with about as many pixels each."""
    pixels = np.cumsum(height_i.astype(np.int64) * width_i)
    parts = np.arange(1, get_num_threads()) * pixels[-1] / get_num_threads()
    return np.concatenate(([0], np.searchsorted(pixels, parts), [len(pixels)])).astype(np.int32)


@threaded
def fill(
    run: Any, height: Any, width: Any, at_pixel: Any, at_belief: Any, at_pattern: Any, pattern: Any, by_pattern: Any,
    q: Any,
) -> None:  # fmt: skip
    """Give each pixel the beliefs (P, J) of its pattern."""
    for r in prange(len(run) - 1):
        for i in range(run[r], run[r + 1]):
            h, w = height[i], width[i]
            code = pattern[at_pixel[i] : at_pixel[i] + h * w].reshape(h, w)
            plane = q[at_belief[i] : at_belief[i + 1]].reshape(by_pattern.shape[1], h + 2, w + 2)
            first = at_pattern[i]
            for j in range(by_pattern.shape[1]):
                for y in range(h):
                    for x in range(w):
                        plane[j, y + 1, x + 1] = by_pattern[first + code[y, x], j]


@threaded
def settle(
    run: Any, height: Any, width: Any, at_pixel: Any, at_belief: Any, at_pattern: Any, pattern: Any, own: Any,
    message: Any, strength: Any, sweeps: int, enough: float, q: Any,
) -> None:  # fmt: skip
    """Do at most `sweeps` half steps per image, in place; stop early if no belief changes by `enough`."""
    for r in prange(len(run) - 1):
        for i in range(run[r], run[r + 1]):
            h, w = height[i], width[i]
            code = pattern[at_pixel[i] : at_pixel[i] + h * w].reshape(h, w)
            here = q[at_belief[i] : at_belief[i + 1]].reshape(len(strength), h + 2, w + 2)
            table = own[at_pattern[i] : at_pattern[i + 1]] + message[at_pattern[i] : at_pattern[i + 1]]
            there = np.zeros_like(here)
            done = 0
            change = np.inf
            while done < sweeps and change >= enough:
                if done % 2:
                    change = _half_step(code, table, strength, there, here)
                else:
                    change = _half_step(code, table, strength, here, there)
                done += 1
            if done % 2:
                here[:] = there


@threaded
def judge(
    run: Any, height: Any, width: Any, at_pixel: Any, at_belief: Any, at_pattern: Any, pattern: Any, own: Any,
    message: Any, strength: Any, q: Any, keep: bool, believed: Any, expected: Any, evidence: Any,
) -> None:  # fmt: skip
    """Compute beliefs from the messages and the neighbors; they replace `q` if `keep`.

    `believed` and `expected` (P, J) get the sums of q and of p over the pixels of each pattern, `evidence` (I,) the
    sum of ln sum_j p_n exp message_n over the pixels of each image.
    """
    for r in prange(len(run) - 1):
        for i in range(run[r], run[r + 1]):
            h, w, first, last = height[i], width[i], at_pattern[i], at_pattern[i + 1]
            code = pattern[at_pixel[i] : at_pixel[i] + h * w].reshape(h, w)
            here = q[at_belief[i] : at_belief[i + 1]].reshape(len(strength), h + 2, w + 2)
            out = np.zeros_like(here) if keep else here
            evidence[i] = _judge(
                code, own[first:last], message[first:last], strength, here, keep, out, believed[first:last],
                expected[first:last],
            )  # fmt: skip
            if keep:
                here[:] = out


@compiled
def exponentials(values: Any, scale: Any) -> None:
    """Replace a row of numbers <= 0 by exp, in place; `scale` is an int32 work row. The relative error is 2e-7."""
    for x in range(values.shape[0]):
        value = max(values[x], LOWEST)
        whole = np.floor(value * _LOG2_E + _HALF)
        rest = (value - whole * _LN2_HIGH) - whole * _LN2_LOW
        series = _C4 + rest * (_C5 + rest * _C6)
        values[x] = _ONE + rest * (_ONE + rest * (_C2 + rest * (_C3 + rest * series)))
        scale[x] = (np.int32(whole) + np.int32(127)) << np.int32(23)
    power = scale.view(np.float32)
    for x in range(values.shape[0]):
        values[x] *= power[x]


@compiled
def _softmax(logs: Any, top: Any, total: Any, scale: Any) -> None:
    """Apply softmax to the columns of `logs` (J, W), in place.

    `top` (W,) gets the largest value, `total` (W,) the sum of exponentials.
    """
    top[:] = logs[0]
    for j in range(1, logs.shape[0]):
        for x in range(top.shape[0]):
            top[x] = max(top[x], logs[j, x])
    total[:] = 0
    for j in range(logs.shape[0]):
        row = logs[j]
        for x in range(top.shape[0]):
            row[x] -= top[x]
        exponentials(row, scale)
        for x in range(top.shape[0]):
            total[x] += row[x]
    for x in range(top.shape[0]):
        inverse = _ONE / total[x]
        for j in range(logs.shape[0]):
            logs[j, x] *= inverse


@compiled
def _half_step(code: Any, table: Any, strength: Any, q: Any, out: Any) -> float:
    classes, (height, width) = len(strength), code.shape
    logs = np.empty((classes, width), np.float32)
    top, total, change = np.empty(width, np.float32), np.empty(width, np.float32), np.zeros(width, np.float32)
    scale = np.empty(width, np.int32)
    for y in range(height):
        row = code[y]
        for j in range(classes):
            above, here, below, value, weight = q[j, y], q[j, y + 1], q[j, y + 2], logs[j], strength[j]
            for x in range(width):
                value[x] = weight * (above[x + 1] + below[x + 1] + here[x] + here[x + 2])
            for x in range(width):
                value[x] += table[row[x], j]
        _softmax(logs, top, total, scale)
        for j in range(classes):
            here, there, value = q[j, y + 1], out[j, y + 1], logs[j]
            for x in range(width):
                step = _HALF * (value[x] - here[x + 1])
                change[x] = max(change[x], abs(step))
                there[x + 1] = here[x + 1] + step
    return float(change.max())


@compiled
def _judge(
    code: Any, own: Any, message: Any, strength: Any, q: Any, keep: bool, out: Any, believed: Any, expected: Any
) -> float:
    classes, (height, width) = len(strength), code.shape
    alone, heard = np.empty((classes, width), np.float32), np.empty((classes, width), np.float32)
    near = np.empty(width, np.float32)
    top, total = np.empty((2, width), np.float32), np.empty((2, width), np.float32)
    evidence, scale = np.zeros(width), np.empty(width, np.int32)
    for y in range(height):
        row = code[y]
        for j in range(classes):
            above, here, below = q[j, y], q[j, y + 1], q[j, y + 2]
            for x in range(width):
                near[x] = above[x + 1] + below[x + 1] + here[x] + here[x + 2]
            for x in range(width):
                alone[j, x] = own[row[x], j] + strength[j] * near[x]
                heard[j, x] = alone[j, x] + message[row[x], j]
        _softmax(alone, top[0], total[0], scale)
        _softmax(heard, top[1], total[1], scale)
        for x in range(width):
            total[1, x] /= total[0, x]
        for x in range(width):
            evidence[x] += top[1, x] - top[0, x] + np.log(total[1, x])
        for x in range(width):
            for j in range(classes):
                believed[row[x], j] += heard[j, x]
                expected[row[x], j] += alone[j, x]
        if keep:
            for j in range(classes):
                out[j, y + 1, 1 : width + 1] = heard[j]
    return float(evidence.sum())
