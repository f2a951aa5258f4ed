"""Truth prior: a Potts field on the 4-neighbor grid of each image, with class shares for broad and for thin pixels.

    p(z) ∝ prod_n share[b_n, z_n]  exp( sum_{n ~ m} strength [z_n = z_m] )         b_n: 1 if pixel n is thin
    half step    q_n <- (q_n + softmax(own_p + message_p + strength around_n)) / 2
    judgement    p_n ∝ exp(own_p + strength around_n)      q_n ∝ p_n exp message_p

q_n are the beliefs in the classes of pixel n, and p in a subscript is its label pattern. own_p are the log class shares
for the pattern, message_p are the log likelihoods of its labels, and around_n is the sum of q over the neighbors of n.

This is `graph_field` with mean field, for many millions of pixels. Label patterns are its items: all pixels of a
pattern have the same message, and the results are sums of beliefs over the pixels of each pattern.

A half step updates all pixels at once. The rows of one class are contiguous, with a border of zeros around the image,
so that loops along a row compile to vector instructions. So does the exponential. Beliefs have single precision, with
errors of 1e-6.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from numba import prange

from hitl.annotations import Floats
from hitl.kinds.label_patterns import PIXEL_KINDS, LabelPatterns
from hitl.models.numerics import kernels
from hitl.models.numerics.compiled import compiled, threaded
from hitl.models.numerics.potts import ENOUGH
from hitl.models.priors import Mask, Posterior
from hitl.models.priors.graph_field import SWEEPS

Singles = npt.NDArray[np.float32]

LOWEST = np.float32(-87.0)
"""Smallest argument of exp in single precision. Smaller ones are replaced by it, because their results are nearly 0."""

_LOG2_E = np.float32(1.44269504)
_LN2_HIGH, _LN2_LOW = np.float32(0.693359375), np.float32(-2.12194440e-4)
_HALF, _ONE = np.float32(0.5), np.float32(1.0)
_C2, _C3, _C4 = np.float32(0.49999994), np.float32(0.16666655), np.float32(0.041669849)
_C5, _C6 = np.float32(8.3345205e-3), np.float32(1.3822500e-3)


@dataclass(frozen=True, eq=False, slots=True)
class ShareCounts:
    """Expected numbers of pixels.

    Attributes:
        believed_bj: (2, J) broad and thin pixels of each class, by the beliefs q.
        expected_bj: (2, J) the same by p, the predictions from shares and neighbors.
    """

    believed_bj: Floats
    expected_bj: Floats

    def __add__(self, other: ShareCounts) -> ShareCounts:
        return ShareCounts(self.believed_bj + other.believed_bj, self.expected_bj + other.expected_bj)


@dataclass(frozen=True, eq=False)
class PixelField:
    """Field over the pixels of I images.

    Attributes:
        patterns: label patterns of the images.
        strength: log odds that each neighbor of a class adds to this class, >= 0.
        share_bj: (2, J) class shares of broad and of thin pixels; rows sum to 1.
        smoothing: pseudo-pixels of each class, > 0.
        q: state of the half steps, changed in place: (J, H + 2, W + 2) beliefs of each image, with a border of zeros,
            in one flat array. Empty if the strength is 0, because no half steps are needed.
    """

    patterns: LabelPatterns
    strength: float
    share_bj: Floats
    smoothing: float
    q: Singles

    @classmethod
    def even(cls, patterns: LabelPatterns, strength: float, smoothing: float) -> Self:
        """Build a field with uniform shares."""
        classes = patterns.annotations.n_classes
        q = np.zeros(patterns.belief_i[-1] if strength else 0, dtype=np.float32)
        return cls(patterns, strength, np.full((PIXEL_KINDS, classes), 1 / classes), smoothing, q)

    @property
    def own_nj(self) -> Floats:
        """(P, J) log class shares for each pattern."""
        return np.log(self.share_bj)[self.patterns.thin_p]

    def posterior(self, message_nj: Floats, counted_n: Mask) -> Posterior:
        """Return sums of beliefs over the pixels of each pattern, given the (P, J) messages of the patterns."""
        own_nj = self.own_nj
        if self.strength:
            self.settle(message_nj, SWEEPS)
            believed_nj, expected_nj, evidence = self.judged(own_nj, message_nj)
        else:  # all pixels of a pattern have the same belief
            q_nj, log_z_n = kernels.beliefs(message_nj, own_nj)
            pixels_n = self.patterns.pixels_p
            believed_nj, expected_nj = q_nj * pixels_n[:, None], np.exp(own_nj) * pixels_n[:, None]
            evidence = float(pixels_n @ np.where(counted_n, log_z_n, 0.0))
        return Posterior(believed_nj, evidence, self._counts(believed_nj, expected_nj, counted_n))

    def statistics(self, q_nj: Floats, counted_n: Mask) -> ShareCounts:
        """Return the statistics of (P, J) sums of beliefs, ignoring neighbors.

        Half steps will start at these beliefs.
        """
        pixels_n = self.patterns.pixels_p[:, None]
        if self.strength:
            _fill(self._where, (q_nj / pixels_n).astype(np.float32), self.q)
        return self._counts(q_nj, self.share_bj[self.patterns.thin_p] * pixels_n, counted_n)

    def learn(self, statistics: ShareCounts) -> Self:
        """Return the field after one learning step of the class shares."""
        pseudo_bj = self.smoothing * self.share_bj.shape[1] * self.share_bj
        believed_bj = statistics.believed_bj + self.smoothing
        share_bj = self.share_bj * believed_bj / (statistics.expected_bj + pseudo_bj)
        return replace(self, share_bj=share_bj / share_bj.sum(axis=1, keepdims=True))

    def log_density(self) -> float:
        """Return the log Dirichlet density of the shares, up to a constant."""
        return float(self.smoothing * np.log(self.share_bj).sum())

    def settle(self, message_nj: Floats, sweeps: int) -> None:
        """Do at most `sweeps` half steps with the (P, J) messages of the patterns."""
        table = self.own_nj.astype(np.float32) + message_nj.astype(np.float32)
        _settle(self._where, table, np.float32(self.strength), sweeps, ENOUGH, self.q)

    def judged(self, own_nj: Floats, message_nj: Floats, keep: bool = False) -> tuple[Floats, Floats, float]:
        """Return (P, J) sums of beliefs q, (P, J) sums of predictions p, and the log evidence.

        If `keep`, the beliefs replace the state `q`.
        """
        believed_nj, expected_nj = np.zeros_like(own_nj), np.zeros_like(own_nj)
        evidence_i = np.zeros(len(self.patterns.height_i))
        tables = own_nj.astype(np.float32), message_nj.astype(np.float32)
        _judge(self._where, *tables, np.float32(self.strength), self.q, keep, believed_nj, expected_nj, evidence_i)
        return believed_nj, expected_nj, float(evidence_i.sum())

    def _counts(self, believed_nj: Floats, expected_nj: Floats, counted_n: Mask) -> ShareCounts:
        rows = [counted_n & (self.patterns.thin_p == b) for b in range(PIXEL_KINDS)]
        return ShareCounts(*(np.stack([sums[row].sum(axis=0) for row in rows]) for sums in (believed_nj, expected_nj)))

    @property
    def _where(self) -> tuple[Any, ...]:
        images = self.patterns
        return images.height_i, images.width_i, images.pixel_i, images.belief_i, images.first_i, images.code


@compiled
def _image(where: Any, i: int, q: Any, classes: int) -> tuple[Any, Any, int, int]:
    """Return (H, W) patterns and (J, H + 2, W + 2) beliefs of an image, its first pattern, and one past its last."""
    heights, widths, at_pixel, at_belief, at_pattern, pattern = where
    height, width = heights[i], widths[i]
    code = pattern[at_pixel[i] : at_pixel[i + 1]].reshape(height, width)
    planes = q[at_belief[i] : at_belief[i + 1]].reshape(classes, height + 2, width + 2)
    return code, planes, at_pattern[i], at_pattern[i + 1]


@threaded
def _fill(where: Any, by_pattern: Any, q: Any) -> None:
    """Give each pixel the beliefs (P, J) of its pattern."""
    classes = by_pattern.shape[1]
    for i in prange(len(where[0])):
        code, planes, first, _ = _image(where, i, q, classes)
        for j in range(classes):
            for y in range(code.shape[0]):
                for x in range(code.shape[1]):
                    planes[j, y + 1, x + 1] = by_pattern[first + code[y, x], j]


@threaded
def _settle(where: Any, table: Any, strength: Any, sweeps: int, enough: float, q: Any) -> None:
    """Do at most `sweeps` half steps per image, in place. Stop an image when no belief changes by `enough`."""
    classes = table.shape[1]
    for i in prange(len(where[0])):
        code, here, first, last = _image(where, i, q, classes)
        there = np.zeros_like(here)
        done = 0
        change = np.inf
        while done < sweeps and change >= enough:
            if done % 2:
                change = _half_step(code, table[first:last], strength, there, here)
            else:
                change = _half_step(code, table[first:last], strength, here, there)
            done += 1
        if done % 2:
            here[:] = there


@threaded
def _judge(
    where: Any, own: Any, message: Any, strength: Any, q: Any, keep: bool, believed: Any, expected: Any, evidence: Any
) -> None:
    """Compute beliefs from the messages and the neighbors. If `keep`, they replace `q`.

    Fill `believed` and `expected` (P, J) with the sums of q and of p over the pixels of each pattern, and `evidence`
    (I,) with the sum of ln sum_j p_n exp message_p over the pixels of each image.
    """
    for i in prange(len(where[0])):
        code, here, first, last = _image(where, i, q, own.shape[1])
        out = np.zeros_like(here) if keep else here
        evidence[i] = _judge_image(
            code, own[first:last], message[first:last], strength, here, keep, out, believed[first:last],
            expected[first:last],
        )  # fmt: skip
        if keep:
            here[:] = out


@compiled
def exponentials(values: Any, scale: Any) -> None:
    """Replace a row of numbers <= 0 by their exponentials, with a relative error of 2e-7.

    `scale`: int32 work array of the same length.
    """
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

    Fill `top` (W,) with the largest value of each column, and `total` (W,) with the sum of the exponentials of all
    values minus the largest. `scale` is an int32 work array (W,).
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
    classes, (height, width) = q.shape[0], code.shape
    logs = np.empty((classes, width), np.float32)
    top, total, change = np.empty(width, np.float32), np.empty(width, np.float32), np.zeros(width, np.float32)
    scale = np.empty(width, np.int32)
    for y in range(height):
        row = code[y]
        for j in range(classes):
            above, here, below, value = q[j, y], q[j, y + 1], q[j, y + 2], logs[j]
            for x in range(width):
                value[x] = strength * (above[x + 1] + below[x + 1] + here[x] + here[x + 2])
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
def _judge_image(
    code: Any, own: Any, message: Any, strength: Any, q: Any, keep: bool, out: Any, believed: Any, expected: Any
) -> float:
    classes, (height, width) = q.shape[0], code.shape
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
                alone[j, x] = own[row[x], j] + strength * near[x]
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
