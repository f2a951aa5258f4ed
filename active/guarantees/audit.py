"""Sequential audit of labels: draw items at known chances, and stop as soon as their answers prove the promise.

An audit promises, with a confidence 1 - alpha, that at most a share `error` of N labels is wrong. It may be looked at
after every answer (`likelihood_ratio` says why). The belief about each label, 1 - its confidence, only decides how soon
the audit ends, and never whether its promise holds.

Items are cut into strata by their belief. Several claims (all labels; each class; each slice) share the draws; each
has alpha / their number. A claim about a group of strata counts the draws that fell into it, at the chances within it.

Everything is determined by the labels, the seed and the answers: draw t reads its numbers from SHA-256 of "seed t".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from hashlib import sha256

import numpy as np
import numpy.typing as npt
from scipy.stats import binom

from hitl.active.guarantees import likelihood_ratio as ratio
from hitl.annotations import Floats

Ints = npt.NDArray[np.int64]

PARTS = 6
"""Number of strata of each group of labels."""

UNIFORM = 0.3
"""Part of the chances that all labels share equally, so that no error can hide where the belief sees none."""

ENOUGH = 50
"""Number of audits before which a forecast would rest on the belief, which may be wrong by a factor of ten."""

PROVEN, REFUTED, OPEN = "proven", "refuted", "open"


@dataclass(frozen=True, slots=True)
class Promise:
    """What an audit is to prove.

    Attributes:
        error: greatest share of wrong labels, in (0, 1).
        confidence: chance, in (0, 1), with which a false promise is not certified.
        mended: True if the wrong labels that the audit finds are corrected, so that only the others count.
        missed: greatest share of wrong labels that an auditor takes for right, in [0, 1). The target is lowered by what
            may be missed, and a tenth of alpha pays for that.
    """

    error: float
    confidence: float = 0.95
    mended: bool = True
    missed: float = 0.0

    def needed(self, size: int, alpha: float) -> int:
        """Return the number of wrong labels, of `size`, that auditors would find at least if the promise is broken."""
        broken = math.floor(self.error * size + 1e-9) + 1
        return max(int(binom.ppf(alpha / 10, broken, 1 - self.missed)), 1) if self.missed else broken

    def alpha(self, claims: int) -> float:
        """Return the chance of a false certificate that each of `claims` claims may have by its draws."""
        return (0.9 if self.missed else 1.0) * (1 - self.confidence) / claims


@dataclass(frozen=True, slots=True)
class Draw:
    """One drawn label: its `item` code, its stratum, all chances, and `recheck` if a second auditor answers too."""

    item: int
    stratum: int
    chances: tuple[float, ...]
    recheck: bool = False


@dataclass(slots=True)
class Claim:
    """A promise about the labels of some strata, and what the draws so far say about it.

    Attributes:
        name: "" for all labels, else the group.
        members: (S,) True for strata that belong to it.
        size: number of its labels.
        log_wealth: log of the present wealth; `peak` its greatest value so far.
    """

    name: str
    members: npt.NDArray[np.bool_]
    size: int
    needed: int
    alpha: float
    mended: bool
    mu_cs: Floats
    left_s: Ints
    log_weight_c: Floats = field(init=False)
    audited_s: Ints = field(init=False)
    wrong_s: Ints = field(init=False)
    log_wealth_b: Floats = field(init=False)
    log_wealth: float = 0.0
    peak: float = 0.0

    def __post_init__(self) -> None:
        self.left_s = np.where(self.members, self.left_s, 0)
        self.log_weight_c = np.zeros(len(self.mu_cs))
        self.audited_s, self.wrong_s = np.zeros((2, len(self.left_s)), np.int64)
        self.log_wealth_b = np.zeros(len(ratio.WEIGHTS))
        if self.needed > self.size:
            self.log_wealth = self.peak = math.inf

    @property
    def audited(self) -> int:
        """Number of audited labels."""
        return int(self.audited_s.sum())

    @property
    def wrong(self) -> int:
        """Number of audited labels that were wrong."""
        return int(self.wrong_s.sum())

    @property
    def state(self) -> str:
        """PROVEN, REFUTED (more wrong labels found than promised, and they are not mended), or OPEN."""
        if self.peak >= -math.log(self.alpha):
            return PROVEN
        return REFUTED if not self.mended and self.wrong >= self.needed else OPEN

    def add(self, stratum_t: Ints, wrong_t: Ints, chance_ts: Floats) -> None:
        """Add draws, in their order."""
        if not len(stratum_t):
            return
        state = self.log_weight_c, self.left_s, self.audited_s, self.wrong_s, self.log_wealth_b
        chance_ts = np.where(self.members, chance_ts, 0.0)
        path = ratio.advance(0, stratum_t, wrong_t, chance_ts, self.mu_cs, *state, self.needed, self.mended)
        self.log_wealth, self.peak = float(path[-1]), max(self.peak, float(path.max()))

    def simulate(self, rng: np.random.Generator) -> int:
        """Add draws of one possible future until the claim is decided. Return how many it took."""
        weight_c = np.exp(self.log_weight_c - self.log_weight_c.max())
        mu_s = self.mu_cs[rng.choice(len(weight_c), p=weight_c / weight_c.sum())]
        share_s = rng.beta(1 + self.wrong_s, 1 / mu_s - 1 + self.audited_s - self.wrong_s)
        taken, left = 0, int(self.left_s.sum())
        while self.state == OPEN and taken < left:
            chance_s, stratum_t = self.chances(), list[int]()
            open_s = self.left_s.copy()
            for _ in range(max(3, (self.audited + taken) // 20)):
                if open_s.sum():
                    now_s = chance_s * (open_s > 0)
                    stratum_t.append(int(rng.choice(len(now_s), p=now_s / now_s.sum())))
                    open_s[stratum_t[-1]] -= 1
            wrong_t = rng.random(len(stratum_t)) < share_s[stratum_t]
            self.add(np.array(stratum_t), wrong_t.astype(np.int64), np.tile(chance_s, (len(stratum_t), 1)))
            taken += len(stratum_t)
        return taken if self.state == PROVEN else left

    def chances(self) -> Floats:
        """Return (S,) chances of the strata that prove it soonest."""
        share_s = ratio.expected_shares(self.mu_cs, self.log_weight_c, self.audited_s, self.wrong_s)
        total = float(self.needed if self.mended else self.needed - self.wrong)
        evidence = max(-math.log(self.alpha) - self.log_wealth, 0.1)
        return np.asarray(ratio.growth_chances(share_s, self.left_s, total, self.mended, evidence, UNIFORM))


class Audit:
    """A sequential audit of N labels.

    Args:
        error_n: (N,) believed chances that the labels are wrong, in [0, 1].
        promise: what to prove.
        seed: text that determines the draws; it must be fixed after the labels are.
        group_n: (N,) group of each label (class or slice); each gets a claim of its own besides the claim about all.
        recheck: share of the draws that a second auditor answers whatever the first says, in [0, 1].
    """

    def __init__(
        self,
        error_n: Floats,
        promise: Promise,
        seed: str,
        group_n: Sequence[str] | None = None,
        *,
        recheck: float = 0.0,
    ) -> None:
        self.promise, self.seed, self.recheck = promise, seed, recheck
        groups = [""] * len(error_n) if group_n is None else list(group_n)
        self.stratum_n, group_s = _strata(np.clip(np.asarray(error_n, np.float64), 1e-4, 0.9), groups)
        n_strata = len(group_s)
        size_s = np.bincount(self.stratum_n, minlength=n_strata).astype(np.int64)
        belief_s = np.bincount(self.stratum_n, np.clip(error_n, 1e-4, 0.9), n_strata) / size_s
        mu_cs = np.asarray(ratio.components(belief_s, promise.error))
        names = [""] if group_n is None else ["", *dict.fromkeys(group_s)]
        alpha = promise.alpha(len(names))
        self.claims: list[Claim] = []
        for place, name in enumerate(names):
            members = np.array([not place or group == name for group in group_s])
            size = int(size_s[members].sum())
            needed = promise.needed(size, (1 - promise.confidence) / len(names))
            claim = Claim(name, members, size, needed, alpha, promise.mended, mu_cs, size_s)
            self.claims.append(claim)
        order = np.argsort(self.stratum_n, kind="stable")
        self._items_s = [list(part) for part in np.split(order, np.cumsum(size_s)[:-1])]
        self.draws: list[Draw] = []
        self.wrong: list[bool] = []

    @property
    def pending(self) -> list[Draw]:
        """Draws that have no answer yet."""
        return self.draws[len(self.wrong) :]

    @property
    def left(self) -> int:
        """Number of labels that were not drawn."""
        return sum(map(len, self._items_s))

    @property
    def open_claims(self) -> list[Claim]:
        """Claims that are neither proven nor refuted."""
        return [claim for claim in self.claims if claim.state == OPEN]

    @property
    def state(self) -> str:
        """PROVEN if every claim is, REFUTED if one is and none is open, else OPEN."""
        if self.open_claims and (self.left or self.pending):
            return OPEN
        return PROVEN if all(claim.state == PROVEN for claim in self.claims) else REFUTED

    def chances(self) -> tuple[float, ...]:
        """Return (S,) chances of the strata, rounded, that prove the open claims soonest; at least one must be open."""
        wanted = np.mean([claim.chances() for claim in self.open_claims], axis=0)
        return tuple(np.round(wanted / wanted.sum(), 9).tolist())

    def draw(self, count: int, chances: tuple[float, ...] | None = None) -> list[Draw]:
        """Draw `count` labels, or as many as are left. `chances` are those that were computed before the draws.

        Raises ValueError while earlier draws have no answer, because the chances depend on the answers.
        """
        if self.pending:
            raise ValueError(f"{len(self.pending)} drawn labels have no answer yet")
        chances = self.chances() if chances is None else chances
        drawn = []
        for number in range(len(self.draws), len(self.draws) + count):
            chance_s = np.array(chances) * [bool(items) for items in self._items_s]
            if not chance_s.sum():
                break
            first, second, third = _uniforms(self.seed, number)
            stratum = int(np.searchsorted(np.cumsum(chance_s), first * chance_s.sum(), side="right"))
            items = self._items_s[stratum]
            item = int(items.pop(int(second * len(items))))
            drawn.append(Draw(item, stratum, chances, third < self.recheck))
        self.draws += drawn
        return drawn

    def record(self, wrong: Sequence[bool]) -> None:
        """Add the answers to the next draws, in the order of the draws: whether each label is wrong."""
        first = len(self.wrong)
        part = self.draws[first : first + len(wrong)]
        if len(part) < len(wrong):
            raise ValueError(f"{len(wrong)} answers to {len(part)} drawn labels")
        self.wrong += map(bool, wrong)
        for claim in self.claims:
            claim.add(*_arrays(part, wrong))

    def replay(self, wrong_n: npt.NDArray[np.bool_], most: int, batch: int | None = None) -> None:
        """Answer draws by `wrong_n` (N,), which labels are wrong, until the audit ends or `most` labels are audited.

        Draws are made by `batch`, by default a twentieth of those before.
        """
        while self.state == OPEN and len(self.draws) < most:
            count = max(3, len(self.draws) // 20) if batch is None else batch
            self.record([bool(wrong_n[draw.item]) for draw in self.draw(min(count, most - len(self.draws)))])

    def forecast(self, runs: int = 20) -> tuple[int, int, int] | None:
        """Return how many more audits will prove the claim about all labels: the median, and an 80 % interval.

        Futures are simulated with shares of wrong labels drawn from their posterior. A future that refutes the claim,
        or audits every label, counts all labels left. None before ENOUGH audits, when it would rest on the belief.
        """
        if len(self.wrong) < ENOUGH or self.claims[0].state != OPEN:
            return None
        rng, claim = np.random.default_rng(0), self.claims[0]
        more = [deepcopy(claim).simulate(rng) for _ in range(runs)]
        low, middle, high = np.quantile(more, [0.1, 0.5, 0.9], method="nearest").tolist()
        return int(middle), int(low), int(high)

    def bound(self, claim: Claim) -> int:
        """Return the number of wrong labels that are left at most, with the confidence of the claim.

        It is the greatest number that the draws do not exclude, as if it had been promised. If found errors are not
        mended, they are counted.
        """
        draws = _arrays(self.draws[: len(self.wrong)], self.wrong)
        size_s = claim.left_s + claim.audited_s

        def excluded(number: int) -> bool:
            needed = (
                number
                if not self.promise.missed
                else max(int(binom.ppf(claim.alpha / 9, number, 1 - self.promise.missed)), 1)
            )
            other = Claim("", claim.members, claim.size, needed, claim.alpha, claim.mended, claim.mu_cs, size_s)
            other.add(*draws)
            return other.state == PROVEN

        low, high = (0 if claim.mended else claim.wrong), claim.size  # `low` is possible; above `high` nothing is
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (low, middle - 1) if excluded(middle) else (middle, high)
        return low


def _arrays(draws: Sequence[Draw], wrong: Sequence[bool]) -> tuple[Ints, Ints, Floats]:
    stratum_t = np.array([draw.stratum for draw in draws], np.int64)
    return stratum_t, np.array(wrong, np.int64), np.array([draw.chances for draw in draws], np.float64)


def _uniforms(seed: str, number: int) -> tuple[float, float, float]:
    """Return three numbers in [0, 1) that anyone can compute again."""
    digest = sha256(f"{seed} {number}".encode()).digest()
    first, second, third = (int.from_bytes(digest[8 * i : 8 * i + 8], "big") / 2**64 for i in range(3))
    return first, second, third


def _strata(error_n: Floats, groups: Sequence[str]) -> tuple[Ints, list[str]]:
    """Cut each group by belief, into PARTS of equal sums of (p (1 - p))^(1/4). Equal beliefs stay together.

    Return (N,) codes of strata and (S,) the group of each stratum.
    """
    stratum_n = np.zeros(len(error_n), np.int64)
    group_s: list[str] = []
    group_n = np.array(groups, dtype=object)
    for group in dict.fromkeys(groups):
        rows = np.flatnonzero(group_n == group)
        value, inverse = np.unique(error_n[rows], return_inverse=True)
        weight = np.bincount(inverse, (value * (1 - value))[inverse] ** 0.25)
        middle = np.cumsum(weight) - weight / 2
        part = np.minimum((PARTS * middle / weight.sum()).astype(np.int64), PARTS - 1)
        _, part = np.unique(part, return_inverse=True)  # parts without a belief are no strata
        stratum_n[rows] = len(group_s) + part[inverse]
        group_s += [group] * (int(part.max()) + 1)
    return stratum_n, group_s
