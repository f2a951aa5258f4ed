"""Acceptance without people: the largest set of labels that may be taken by belief alone, at a promise.

Of N labels, those accepted have at most `error` x N errors left, with a confidence 1 - alpha, whatever the belief is:
it only orders the labels, and a better one lets more of them be accepted (Candès, Ilyas & Zrnic 2025, Probably
Approximately Correct Labels, arXiv 2506.10908; here with an exact test that looks once).

The order, most certain first, is fixed before the audit, and equal beliefs are ordered by SHA-256 of the seed. n labels
are drawn uniformly from the first F of the order, and their errors are corrected. With m = floor(error N) + 1 errors
that break the promise, let k be the largest number for which P(Hypergeometric(F, m + k, n) <= k) <= alpha: drawing at
most k of m + k errors is that unlikely. The longest beginning of the order with at most k errors found is accepted.
Only as many draws count as allow the same k, because the others could only shorten it; errors that those find are
corrected all the same.

It is too long only if m errors are left besides those found. If the region has m + k errors or more, then at most k of
the first m + k were drawn, which has probability alpha or less. If it has fewer, K, then it is accepted whole and at
most K - m of them were drawn. That is no likelier: with one error less, the number drawn falls by one at most.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256

import numpy as np
import numpy.typing as npt
from scipy.stats import hypergeom

from hitl.annotations import Floats

Codes = npt.NDArray[np.int64]

REACH = 2.0
"""Believed errors in the region that is audited, in multiples of those allowed: more is unlikely to be accepted."""


@dataclass(frozen=True, slots=True, eq=False)
class Accepted:
    """Labels that need no people.

    Attributes:
        items: (A,) codes of the accepted labels, most certain first.
        audited: number of audited labels in the region; `required` is the least with which any can be accepted.
        found: number of errors found among the accepted labels. They must be corrected.
        bound: number of other errors among them at most, with the confidence of the promise.
    """

    items: Codes
    audited: int
    required: int
    found: int
    bound: int

    @property
    def reason(self) -> str:
        """Reason why nothing is accepted; "" if something is."""
        if len(self.items):
            return ""
        if self.audited < self.required:
            return f"{self.audited:,} audited items prove nothing; {self.required:,} are needed at least"
        return "too many of the most certain labels are wrong"


class Acceptance:
    """Choose labels to accept without people.

    Args:
        confidence_n: (N,) believed chances that the labels are right, in [0, 1]. No answer of the audit may have been
            used for them, or for the labels.
        error: share of the N labels, in (0, 1), that may be wrong and accepted.
        confidence: chance, in (0, 1), with which the promise holds.
        seed: text that orders equal beliefs and determines the draws; it must be fixed after the labels are.

    Attributes:
        region: (F,) codes of the labels that are audited and may be accepted, most certain first.
        allowed: number of errors that may be left among accepted labels.
        required: least number of audits in the region with which any label can be accepted.
    """

    def __init__(self, confidence_n: Floats, error: float, confidence: float = 0.95, seed: str = "") -> None:
        size = len(confidence_n)
        self.alpha = 1 - confidence
        self.allowed = math.floor(error * size + 1e-9)
        tie_n, draw_n = _keys(seed, size)
        order = np.lexsort((tie_n, -confidence_n))
        believed = np.cumsum(1 - confidence_n[order])
        self.region: Codes = order[: int(np.searchsorted(believed, REACH * error * size)) + 1]
        self._draws: Codes = self.region[np.argsort(draw_n[self.region])]
        broken = len(self.region) - self.allowed  # audits that leave too few labels for a broken promise
        self.required = _first(lambda n: self._chance(0, n) <= self.alpha, max(broken, 0))

    def draw(self, count: int) -> Codes:
        """Return the codes of `count` labels of the region, drawn uniformly. More draws begin with the same labels."""
        return self._draws[:count]

    def accept(self, audited: Codes, wrong: npt.NDArray[np.bool_]) -> Accepted:
        """Return the labels that are accepted, given the answers of the audit.

        Args:
            audited: (n,) codes of the audited labels, drawn uniformly from the region or from all labels. Those outside
                the region do not count.
            wrong: (n,) True for wrong labels.
        """
        state_n = np.full(max(self.region.max(initial=-1), audited.max(initial=-1)) + 1, -1)
        state_n[audited] = wrong
        draws = self._draws[state_n[self._draws] >= 0]
        most = _first(lambda k: self._chance(k, len(draws)) > self.alpha, len(draws) + 1) - 1
        needed = _first(lambda n: self._chance(most, n) <= self.alpha, len(draws))
        counted_n = np.zeros(len(state_n), dtype=bool)
        counted_n[draws[:needed]] = state_n[draws[:needed]] == 1
        length = int(np.searchsorted(np.cumsum(counted_n[self.region]), most, side="right"))
        state_f = state_n[self.region[:length]]
        bound = min(self.allowed, int((state_f < 0).sum()))
        return Accepted(self.region[:length], len(draws), self.required, int((state_f == 1).sum()), bound)

    def _chance(self, found: int, audited: int) -> float:
        """Return the probability of finding at most `found` errors if there are `found` + 1 more than allowed."""
        errors = self.allowed + 1 + found
        return float(hypergeom.cdf(found, len(self.region), errors, audited)) if errors <= len(self.region) else 0.0


def _first(holds: Callable[[int], bool], end: int) -> int:
    """Return the first number from 0 to `end` - 1 for which a condition holds from there on; `end` if there is none."""
    return bisect_left(range(end), True, key=holds)


def _keys(seed: str, size: int) -> npt.NDArray[np.uint64]:
    """Return (2, N) random numbers from SHA-256 of "seed n", which anyone can compute again."""
    start = sha256(f"{seed} ".encode())

    def digest(number: int) -> bytes:
        found = start.copy()
        found.update(b"%d" % number)
        return found.digest()[:16]

    return np.frombuffer(b"".join(map(digest, range(size))), ">u8").reshape(size, 2).T.astype(np.uint64)
