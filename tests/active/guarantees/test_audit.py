"""An audit draws at its chances, proves no more than it may, and can be repeated from its seed and its answers."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from hitl.active.guarantees.audit import OPEN, PROVEN, REFUTED, Audit, Promise
from hitl.annotations import Floats
from tests.bench.guarantees.certificates import audited, false_proof


def doubts(size: int = 400) -> Floats:
    """A tenth of the labels are doubted."""
    return np.where(np.arange(size) % 10 == 0, 0.3, 0.005)


def test_false_promises_are_rarely_proven() -> None:
    """One time in twenty may be; the benchmark has 2,000 projects (docs/benchmarks/certificates.txt)."""
    proofs = [false_proof(seed, sizes=(200, 500))[1] for seed in range(40)]
    assert np.mean(proofs) <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / 40)


def test_a_good_belief_takes_fewer_audits() -> None:
    rng, size = np.random.default_rng(0), 4_000
    counts = Counter[str]()
    for seed in range(10):
        wrong = rng.random(size) < doubts(size) / 4
        for name, error_n in {"belief": doubts(size), "none": np.full(size, 0.5)}.items():
            audit = audited(Audit(error_n, Promise(0.03, mended=False), str(seed)), wrong, size)
            assert audit.state == PROVEN
            counts[name] += len(audit.wrong)
    assert counts["belief"] < 0.85 * counts["none"]


def test_mending_takes_fewer_audits() -> None:
    counts, wrong = Counter[bool](), np.arange(600) % 12 == 0
    for seed in range(10):
        for mended in (False, True):
            audit = Audit(np.where(wrong, 0.4, 0.03), Promise(0.11, mended=mended), str(seed))
            counts[mended] += len(audited(audit, wrong, 600).wrong)
    assert counts[True] < 0.9 * counts[False]


def test_labels_are_drawn_at_the_chances_of_their_strata_and_alike_within() -> None:
    first = [Audit(doubts(40), Promise(0.1), str(seed)).draw(1)[0] for seed in range(4_000)]
    audit = Audit(doubts(40), Promise(0.1), "")
    expected_n = np.array(audit.chances())[audit.stratum_n] / np.bincount(audit.stratum_n)[audit.stratum_n]
    number_n = np.bincount([draw.item for draw in first], minlength=40)
    assert np.abs((number_n - 4_000 * expected_n) / np.sqrt(4_000 * expected_n)).max() < 4
    assert expected_n.min() >= 0.3 / 40 - 1e-9


def test_no_label_is_drawn_twice_and_the_end_is_certain() -> None:
    wrong = np.arange(60) % 20 == 0
    for mended, state in ((True, PROVEN), (False, REFUTED)):
        audit = audited(Audit(doubts(60), Promise(0.04, mended=mended), "s"), wrong, 60)
        assert audit.state == state
        items = [draw.item for draw in audit.draws]
        assert len(set(items)) == len(items)
        assert audit.claims[0].wrong == wrong[items].sum()


def test_the_same_seed_draws_the_same_and_waits_for_answers() -> None:
    one, same, other = (Audit(doubts(), Promise(0.02), seed) for seed in ("a", "a", "b"))
    assert one.draw(30) == same.draw(30) != other.draw(30)
    with pytest.raises(ValueError, match="30 drawn labels have no answer yet"):
        one.draw(1)
    one.record([False] * 10)
    assert len(one.pending) == 20
    with pytest.raises(ValueError, match="21 answers to 20 drawn labels"):
        one.record([False] * 21)


def test_answers_in_parts_prove_the_same_as_at_once() -> None:
    rng = np.random.default_rng(1)
    wrong = rng.random(400) < 0.01
    one, other = Audit(doubts(), Promise(0.05), "a"), Audit(doubts(), Promise(0.05), "a")
    said = [bool(wrong[draw.item]) for draw in one.draw(50)]
    other.draw(50)
    one.record(said)
    for each in said:
        other.record([each])
    assert one.claims[0].log_wealth == pytest.approx(other.claims[0].log_wealth)
    assert one.claims[0].peak == pytest.approx(other.claims[0].peak)


def test_the_bound_is_the_least_promise_that_would_be_proven() -> None:
    wrong = np.random.default_rng(2).random(400) < 0.01
    audit = audited(Audit(doubts(), Promise(0.0001, mended=False), "a"), wrong, 150)
    bound = audit.bound(audit.claims[0])
    assert wrong.sum() <= bound < 400
    draws = [draw.chances for draw in audit.draws]
    for number, state in ((bound, OPEN), (bound + 1, PROVEN)):
        again = Audit(doubts(), Promise(0.0001, mended=False), "a")
        again.claims[0].needed = number
        for chances, answer in zip(draws, audit.wrong, strict=True):
            again.draw(1, chances)
            again.record([answer])
        assert again.claims[0].state == state
    everything = audited(Audit(doubts(), Promise(0.0001, mended=False), "a"), wrong, 400)
    assert everything.state == REFUTED


def test_each_group_has_a_claim_and_a_part_of_alpha() -> None:
    groups = ["cat" if n % 4 else "dog" for n in range(400)]
    wrong = np.array([name == "dog" for name in groups]) & (np.arange(400) % 16 == 0)
    audit = audited(Audit(doubts(), Promise(0.05, mended=False), "a", groups), wrong, 400)
    states = {claim.name: claim.state for claim in audit.claims}
    assert [(claim.name, claim.size) for claim in audit.claims] == [("", 400), ("dog", 100), ("cat", 300)]
    assert [claim.alpha for claim in audit.claims] == pytest.approx([0.05 / 3] * 3)
    assert states["dog"] == REFUTED
    assert states["cat"] == PROVEN
    assert audit.claims[2].wrong == 0
    assert audit.state == REFUTED


def test_what_auditors_may_miss_lowers_the_target() -> None:
    strict, missing = Promise(0.05), Promise(0.05, missed=0.2)
    assert strict.needed(2_000, 0.05) == 101
    assert 60 < missing.needed(2_000, 0.05) < 81
    assert missing.alpha(1) == pytest.approx(0.045)
    assert strict.alpha(2) == pytest.approx(0.025)


def test_auditors_who_miss_a_third_prove_falsehoods_unless_it_is_allowed_for() -> None:
    rng = np.random.default_rng(3)
    false = Counter[float]()
    for seed in range(12):
        wrong = np.zeros(1_000, bool)
        wrong[rng.choice(1_000, 52, replace=False)] = True
        seen = wrong & (rng.random(1_000) > 0.3)
        for missed in (0.0, 0.3):
            promise = Promise(0.05, mended=False, missed=missed)
            false[missed] += audited(Audit(np.full(1_000, 0.05), promise, str(seed)), seen, 500).state == PROVEN
    assert false[0.0] >= 3
    assert false[0.3] <= 2


def test_the_forecast_is_near_the_number_of_audits_that_it_takes() -> None:
    rng, ratio = np.random.default_rng(5), []
    for seed in range(8):
        wrong = rng.random(1_500) < doubts(1_500) / 3
        audit = audited(Audit(doubts(1_500), Promise(0.03), str(seed)), wrong, 60)
        expected = audit.forecast()
        if expected is None:
            continue
        middle, low, high = expected
        assert low <= middle <= high
        done = len(audit.wrong)
        ratio.append((len(audited(audit, wrong, 1_500).wrong) - done) / middle)
    assert len(ratio) >= 4
    assert 0.5 < np.exp(np.mean(np.log(ratio))) < 2
    assert Audit(doubts(), Promise(0.02), "a").forecast() is None
