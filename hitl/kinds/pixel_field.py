"""Truth prior: a Potts field on the 4-neighbor grid of each image, with class shares for broad and for thin pixels.

    p(z) ∝ prod_n share[b_n, z_n]  exp( sum_{n ~ m} strength [z_n = z_m] )         b_n: 1 if pixel n is thin

It is the field of `graph_field` by mean field, for many millions of pixels. Its items are label patterns (see
`label_patterns`): messages are per pattern, and its beliefs are sums over the pixels of each pattern. Half steps
continue in place where the last ones ended. The strength is given, and the shares are learned by the same steps as
there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from hitl.annotations import Floats
from hitl.kinds import grid_passes
from hitl.kinds.label_patterns import BREADTHS, LabelPatterns
from hitl.models.numerics import kernels
from hitl.models.numerics.mean_field import ENOUGH
from hitl.models.priors import Mask, Posterior
from hitl.models.priors.graph_field import SWEEPS

Singles = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False, slots=True)
class ShareCounts:
    """(2, J) expected broad and thin pixels of each class, by the beliefs, and by the neighbors' messages."""

    believed_bj: Floats
    expected_bj: Floats

    def __add__(self, other: ShareCounts) -> ShareCounts:
        return ShareCounts(self.believed_bj + other.believed_bj, self.expected_bj + other.expected_bj)


@dataclass(frozen=True, eq=False)
class PixelField:
    """Field over the pixels of I images.

    Attributes:
        patterns: label patterns of the images.
        strength: log odds that a neighbor of the same class adds, >= 0.
        share_bj: (2, J) class shares of broad and of thin pixels; rows sum to 1.
        smoothing: pseudo-pixels of each class, > 0.
        q: state of the half steps: (J, H + 2, W + 2) beliefs of each image, with a border of zeros; changed in place.
        sweeps: maximum number of half steps of one posterior.
    """

    patterns: LabelPatterns
    strength: float
    share_bj: Floats
    smoothing: float
    q: Singles
    sweeps: int = SWEEPS

    @classmethod
    def even(cls, patterns: LabelPatterns, strength: float, smoothing: float) -> Self:
        """Build a field with uniform shares."""
        classes = patterns.annotations.n_classes
        q = np.zeros(patterns.belief_i[-1] if strength else 0, dtype=np.float32)
        return cls(patterns, strength, np.full((BREADTHS, classes), 1 / classes), smoothing, q)

    def posterior(self, message_nj: Floats, counted_n: Mask) -> Posterior:
        """Return sums of beliefs over the pixels of each pattern, given its message."""
        own_nj = np.log(self.share_bj)[self.patterns.thin_p]
        if not self.strength:
            return self._alone(message_nj, own_nj, counted_n)
        self.settle(own_nj, message_nj, self.sweeps)
        believed_nj, expected_nj, evidence = self.judged(own_nj, message_nj)
        return Posterior(believed_nj, evidence, self._counts(believed_nj, expected_nj, counted_n))

    def statistics(self, q_nj: Floats, counted_n: Mask) -> ShareCounts:
        """Return statistics of sums of beliefs that ignore neighbors, and start half steps at these beliefs."""
        if self.strength:
            mean_nj = q_nj / self.patterns.pixels_p[:, None]
            grid_passes.fill(*self._where(), mean_nj.astype(np.float32), self.q)
        expected_nj = self.share_bj[self.patterns.thin_p] * self.patterns.pixels_p[:, None]
        return self._counts(q_nj, expected_nj, counted_n)

    def learn(self, statistics: ShareCounts) -> Self:
        """Take one step of the shares."""
        pseudo_bj = self.smoothing * self.share_bj.shape[1] * self.share_bj
        believed_bj = statistics.believed_bj + self.smoothing
        share_bj = self.share_bj * believed_bj / (statistics.expected_bj + pseudo_bj)
        return replace(self, share_bj=share_bj / share_bj.sum(axis=1, keepdims=True))

    def log_density(self) -> float:
        """Return the log Dirichlet density of the shares, up to a constant."""
        return float(self.smoothing * np.log(self.share_bj).sum())

    def settle(self, own_nj: Floats, message_nj: Floats, sweeps: int) -> None:
        """Do at most `sweeps` half steps, with the log shares (P, J) and messages (P, J) of the patterns."""
        tables = own_nj.astype(np.float32), message_nj.astype(np.float32)
        grid_passes.settle(*self._where(), *tables, self._strengths, sweeps, ENOUGH, self.q)

    def judged(self, own_nj: Floats, message_nj: Floats, keep: bool = False) -> tuple[Floats, Floats, float]:
        """Return (P, J) sums of beliefs and of the neighbors' predictions, and the log evidence.

        If `keep`, beliefs replace `q`.
        """
        believed_nj, expected_nj = np.zeros_like(own_nj), np.zeros_like(own_nj)
        evidence_i = np.zeros(len(self.patterns.height_i))
        tables = own_nj.astype(np.float32), message_nj.astype(np.float32)
        grid_passes.judge(*self._where(), *tables, self._strengths, self.q, keep, believed_nj, expected_nj, evidence_i)
        return believed_nj, expected_nj, float(evidence_i.sum())

    def _alone(self, message_nj: Floats, own_nj: Floats, counted_n: Mask) -> Posterior:
        """Return the posterior without strength, in which all pixels of a pattern have the same belief."""
        q_nj, log_z_n = kernels.beliefs(message_nj, own_nj)
        pixels_n = self.patterns.pixels_p
        believed_nj, expected_nj = q_nj * pixels_n[:, None], np.exp(own_nj) * pixels_n[:, None]
        evidence = float(pixels_n @ np.where(counted_n, log_z_n, 0.0))
        return Posterior(believed_nj, evidence, self._counts(believed_nj, expected_nj, counted_n))

    def _counts(self, believed_nj: Floats, expected_nj: Floats, counted_n: Mask) -> ShareCounts:
        rows = [counted_n & (self.patterns.thin_p == b) for b in range(BREADTHS)]
        return ShareCounts(
            np.stack([believed_nj[row].sum(axis=0) for row in rows]),
            np.stack([expected_nj[row].sum(axis=0) for row in rows]),
        )

    @property
    def _strengths(self) -> Singles:
        return np.full(self.share_bj.shape[1], self.strength, dtype=np.float32)

    def _where(self) -> tuple[Any, Any, Any, Any, Any, Any, Any]:
        """Return the index arrays that all passes need."""
        images = self.patterns
        runs = grid_passes.runs(images.height_i, images.width_i)
        starts = images.pixel_i, images.belief_i, images.first_i
        return runs, images.height_i, images.width_i, *starts, images.code
