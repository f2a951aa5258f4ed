"""Acceptance keeps its promise wherever errors are, accepts as much as it may, and can be repeated from its seed."""

from __future__ import annotations

from hashlib import sha256
from itertools import combinations, product
from math import comb

import numpy as np
import pytest

from hitl.active.guarantees.acceptance import Acceptance, Accepted
from tests.bench.guarantees.acceptance import one_run
from tests.bench.guarantees.projects import KINDS


def accepted(acceptance: Acceptance, audited: list[int], wrong: list[bool]) -> Accepted:
    return acceptance.accept(np.array(audited, np.int64), np.array(wrong, bool))


def chance(size: int, errors: int, audits: int, found: int) -> float:
    """The chance that so many audits find at most `found` errors."""
    ways = sum(comb(errors, k) * comb(size - errors, audits - k) for k in range(min(found, audits) + 1))
    return ways / comb(size, audits)


def oracle(size: int, allowed: int, audits: int, alpha: float) -> tuple[int, int]:
    """The largest number of found errors that is unlikely if one error more than allowed is left besides; else -1.

    And the least number of audits for which it is unlikely.
    """

    def may(found: int, audits: int) -> bool:
        errors = allowed + 1 + found
        return errors > size or chance(size, errors, audits, found) <= alpha

    most = max((k for k in range(audits + 1) if may(k, audits)), default=-1)
    return most, min(n for n in range(audits + 1) if may(most, n))


@pytest.mark.parametrize(
    ("size", "region", "error", "audits", "alpha"),
    [
        (7, 7, 0.3, 3, 0.2),
        (6, 6, 0.34, 3, 0.5),
        (6, 6, 0.17, 4, 0.4),
        (6, 6, 0.5, 2, 0.3),
        (5, 5, 0.2, 4, 0.7),
        (6, 6, 0.1, 5, 0.2),
        (7, 5, 0.3, 2, 0.45),
    ],
)
def test_tiny_populations_keep_the_promise_and_accept_all_they_may(
    size: int, region: int, error: float, audits: int, alpha: float
) -> None:
    """All placements of errors, which are all orders too, and all draws."""
    confidence = np.linspace(0.99, 0.98, size) if region == size else np.linspace(0.02, 0.01, size)
    acceptance = Acceptance(confidence, error, 1 - alpha)
    order, allowed = acceptance.region.tolist(), int(error * size)
    assert order == list(range(region))
    (most, least), draws = oracle(region, allowed, audits, alpha), list(combinations(order, audits))
    worst, accepts = 0.0, False
    for wrong in product((False, True), repeat=region):
        failures = 0
        for draw in draws:
            found = accepted(acceptance, list(draw), [wrong[n] for n in draw])
            counted = [n for n in acceptance.draw(region) if n in draw][:least]
            seen = [wrong[n] and n in counted for n in order]
            fitting = [length for length in range(region + 1) if sum(seen[:length]) <= most]
            assert found.items.tolist() == order[: max(fitting, default=0)]
            assert found.found == sum(wrong[n] and n in draw for n in found.items)
            failures += sum(wrong[n] for n in found.items) - found.found > error * size
            accepts |= bool(len(found.items))
        worst = max(worst, failures / len(draws))
    assert worst <= alpha
    assert accepts == (most >= 0)


def test_the_least_number_of_audits_is_exact() -> None:
    """Of 10,000 labels with 101 errors, so many audits find none in at most 5 % of draws, and one less in more."""
    acceptance = Acceptance(np.full(10_000, 0.99), 0.01)
    assert len(acceptance.region) == 10_000
    chances = [comb(10_000 - 101, n) / comb(10_000, n) for n in (acceptance.required - 1, acceptance.required)]
    assert chances[1] <= 0.05 < chances[0]
    draw = acceptance.draw(acceptance.required).tolist()
    found = accepted(acceptance, draw, [False] * len(draw))
    assert (len(found.items), found.bound, found.reason) == (10_000, 100, "")


def test_it_says_why_nothing_is_accepted() -> None:
    acceptance = Acceptance(np.full(10_000, 0.99), 0.01)
    draw = acceptance.draw(acceptance.required - 1).tolist()
    found = accepted(acceptance, draw, [False] * len(draw))
    assert not len(found.items)
    assert found.reason == f"{len(draw)} audited items prove nothing; {len(draw) + 1} are needed at least"
    assert accepted(acceptance, [], []).audited == 0
    draw = acceptance.draw(400).tolist()
    surest = np.where(np.arange(10_000) == draw[0], 0.995, 0.99)
    found = accepted(Acceptance(surest, 0.01), draw, [True] * 400)
    assert (len(found.items), found.reason) == (0, "too many of the most certain labels are wrong")


def test_the_region_ends_where_believed_errors_reach_twice_those_allowed() -> None:
    confidence = np.array([0.6, 0.9, 0.7, 0.8, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5])
    acceptance = Acceptance(confidence, 0.25)  # 2.5 are allowed; those believed reach 5 at no place
    assert len(acceptance.region) == 10
    acceptance = Acceptance(confidence, 0.04)  # .1 + .2 + .3 + .4 reach .8 at the fourth
    assert acceptance.region.tolist() == [1, 3, 2, 0]


def test_answers_outside_the_region_do_not_count() -> None:
    rng = np.random.default_rng(0)
    confidence, wrong = rng.random(1_000), rng.random(1_000) < 0.05
    acceptance = Acceptance(confidence, 0.1)
    inside = np.isin(np.arange(1_000), acceptance.region)
    audited = rng.permutation(1_000)[:500]
    found = acceptance.accept(audited, wrong[audited])
    only = acceptance.accept(audited[inside[audited]], wrong[audited[inside[audited]]])
    assert found.audited == only.audited == inside[audited].sum() < 500
    assert found.items.tolist() == only.items.tolist() != []


def test_equal_beliefs_are_in_the_order_of_the_seed_and_draws_in_another() -> None:
    """Anybody can compute both again: parts of SHA-256 of seed and number."""
    acceptance = Acceptance(np.where(np.arange(500) < 400, 0.9, 0.5), 0.4, seed="dice")
    digests = [sha256(b"dice %d" % n).digest() for n in range(500)]
    order = sorted(range(500), key=lambda n: (n >= 400, digests[n][:8]))
    assert acceptance.region.tolist() == order
    draws = sorted(range(500), key=lambda n: digests[n][8:16])
    assert acceptance.draw(500).tolist() == draws
    assert acceptance.draw(7).tolist() == draws[:7]
    assert Acceptance(np.full(500, 0.9), 0.4, seed="coin").region.tolist() != order


def test_found_errors_are_corrected_and_do_not_count() -> None:
    """Once every label is audited, all are accepted, though a third was wrong."""
    wrong = [n % 3 == 0 for n in range(60)]
    found = accepted(Acceptance(np.full(60, 0.9), 0.1), list(range(60)), wrong)
    assert (len(found.items), found.found, found.bound) == (60, 20, 0)


@pytest.mark.parametrize("kind", ["good", "over-confident", "useless", "trap"])
def test_promises_are_rarely_broken(kind: str) -> None:
    """One time in twenty they may be; the benchmark has 1,000 runs of public sets (docs/benchmarks/acceptance.txt)."""
    failed = []
    for seed in range(200):
        doubt, wrong = KINDS[kind](2_000, 0.05, np.random.default_rng(seed))
        failed.append(one_run(1 - np.round(doubt, 2), wrong, 0.02, 300, seed)[1])
    assert np.mean(failed) <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / 200)
