"""Stretches of a consensus: borders against plain loops, what overlaps, and crowds against majority votes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hitl.errors import BadSettings
from hitl.kinds.span_borders import START, TIME_STRENGTH, TIME_SWEEPS, expected_distances, time_borders
from hitl.kinds.span_labels import Answer, SpanLabels
from hitl.kinds.spans import combine_spans, span_table
from hitl.models import BSCSeq, MajorityVote
from hitl.models.combiner import Combiner
from tests.kinds.segment_crowds import CROWDS, Stretch, f1_of_stretches, f1_of_time, majority_of_units
from tests.kinds.span_crowds import found_spans


def labels(known: Any = None, **said: Any) -> SpanLabels:
    """Answers to recordings r0, r1, ...: annotator -> stretches of each."""
    answers = [Answer(f"r{n}", who, one) for who, of in said.items() for n, one in enumerate(of)]
    return SpanLabels.from_recordings([f"r{n}" for n in range(len(next(iter(said.values()))))], answers, known)


def found(given: SpanLabels, method: Combiner | None = None) -> dict[str, list[Stretch]]:
    by: dict[str, list[Stretch]] = {}
    for span in found_spans(given, method):
        by.setdefault(str(span.item), []).append((*map(float, span.at("start", "end")), str(span.label)))
    return by


def plain_borders(given: SpanLabels, weight: Any) -> list[tuple[float, float]]:
    """The formulas of `segment_borders`, cluster by cluster, with b on a far finer line."""
    (matched,) = given.matched
    times = given.border_v[matched.place_md].tolist()
    rows = [*zip(matched.cluster_m.tolist(), matched.annotator_m.tolist(), times, strict=True)]

    def medians(c: int, spread: list[float]) -> tuple[float, float]:
        found = []
        for side in range(2):
            pairs = sorted((x[side], 1 / spread[k]) for own, k, x in rows if own == c)
            half, so_far = sum(one for _, one in pairs) / 2 - 1e-9, 0.0
            for value, one in pairs:
                so_far += one
                if so_far >= half:
                    found.append(value)
                    break
        return found[0], found[1]

    spread = [START] * len(given.annotators)
    even = [medians(c, spread) for c in range(len(matched))]
    for _ in range(TIME_SWEEPS):
        far, count = [0.0] * len(spread), [0.0] * len(spread)
        for c, (first, last) in enumerate(even):
            for side in range(2):
                own = [(k, x[side] / (last - first)) for one, k, x in rows if one == c]
                b = np.linspace(min(x for _, x in own) - 1, max(x for _, x in own) + 1, 4001)
                p = np.exp(-sum(np.abs(x - b) / spread[k] for k, x in own))
                for k, x in own:
                    far[k] += weight[c] * float(np.sum(p * np.abs(x - b)) / p.sum())
                    count[k] += weight[c]
        mean = (sum(far) + START) / (sum(count) + 1)
        spread = [(one + TIME_STRENGTH * mean) / (n + TIME_STRENGTH) for one, n in zip(far, count, strict=True)]
    return [medians(c, spread) for c in range(len(matched))]


@pytest.mark.parametrize("seed", range(6))
def test_borders_are_those_of_plain_loops(seed: int) -> None:
    rng = np.random.default_rng(seed)
    jitter = {"ann": 0.5, "bob": 2.0, "cyd": 2.0, "dee": 4.0}
    said = {
        who: [[(40 * n + s * rng.normal(), 40 * n + 24 + s * rng.normal(), "A") for n in range(4)] for _ in range(4)]
        for who, s in jitter.items()
    }
    given = labels(**said)
    (matched,) = given.matched
    weight = rng.uniform(0.2, 1, len(matched))
    ranks = time_borders(matched, given.border_v, weight, len(given.annotators))
    assert [tuple(row) for row in given.border_v[ranks].tolist()] == plain_borders(given, weight)


@pytest.mark.parametrize("seed", range(5))
def test_expected_distances_are_those_of_a_fine_line(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, spread = rng.normal(0, 0.2, 4), rng.uniform(0.1, 0.4, 4)
    who = np.arange(4)
    unknown, known = (
        expected_distances(x, np.array([certain]), np.zeros(4, np.int64), who, spread) for certain in (np.nan, 0.1)
    )
    b = np.linspace(-3, 3, 100_001)
    p = np.exp(-sum(np.abs(one - b) / s for one, s in zip(x, spread, strict=True)))
    exact = [float(np.sum(p * np.abs(one - b)) / p.sum()) for one in x]
    np.testing.assert_allclose(unknown, exact, rtol=0.03)
    np.testing.assert_allclose(known, np.abs(x - 0.1))


def test_exact_annotators_say_more_about_borders() -> None:
    """The consensus of two exact annotators and three others is nearer to the right borders than a plain median."""
    rng = np.random.default_rng(0)
    right = [[(50.0 * n, 50.0 * n + 30, "A") for n in range(5)] for _ in range(8)]

    def moved(sd: float) -> list[list[Stretch]]:
        return [[(s + sd * rng.normal(), e + sd * rng.normal(), kind) for s, e, kind in of] for of in right]

    said = [moved(sd) for sd in (0.5, 0.5, 4, 4, 4)]
    spans = found_spans(labels(**dict(zip("abcde", said, strict=True))), MajorityVote())
    true = np.array([one[:2] for of in right for one in of])
    ours = np.array([span.at("start", "end") for span in spans], float)
    plain = np.median([[one[:2] for of in own for one in of] for own in said], axis=0)
    assert np.abs(ours - true).mean() < 0.8 * np.abs(plain - true).mean()


def test_two_that_overlap_a_little_are_cut_and_of_two_over_each_other_one_is_left() -> None:
    walk, run = (0, 62, "walk"), (60, 100, "run")
    assert found(labels(ann=[[walk, run]], bob=[[walk, run]], cyd=[[walk, run]])) == {
        "r0": [(0.0, 60.0, "walk"), (60.0, 100.0, "run")]
    }
    told = labels({"r0": [walk, run]}, ann=[[walk, run]])
    assert found(told) == {"r0": [(0.0, 62.0, "walk"), (60.0, 100.0, "run")]}, "known ones are as they were told"


def test_known_stretches_are_certain_and_a_recording_without_an_answer_is_open() -> None:
    given = labels({"r0": [(10, 20, "A")]}, ann=[[(12, 25, "B")], [(0, 5, "A")], []], bob=[[], [(0, 6, "A")], []])
    assert found(given)["r0"] == [(10.0, 20.0, "A")]
    assert [span.probability for span in found_spans(given) if span.item == "r0"] == [1.0]
    (layer,) = combine_spans(given).values()
    assert span_table(given, [layer]).column_names[-1] == "answers"
    assert layer.annotators.labels.tolist() == [3, 3]


def test_a_method_for_tokens_is_refused() -> None:
    with pytest.raises(BadSettings, match="BSCSeq is a method for sequences of tokens"):
        combine_spans(labels(ann=[[(0, 5, "A")]]), BSCSeq())


SEEDS = range(4)


def scores(crowd: str) -> Any:
    """(seeds, 2, 2) F1 of stretches and of time: of the consensus, and of a vote for each unit of time."""
    rows = []
    for seed in SEEDS:
        given, right = CROWDS[crowd].draw(seed)
        both = found(given), majority_of_units(given)
        rows.append([[score(one, right) for score in (f1_of_stretches, f1_of_time)] for one in both])
    return np.array(rows)


@pytest.mark.journey
def test_crowds_are_combined_better_than_by_a_vote_for_each_unit_of_time() -> None:
    """At least as well but for .01 in every crowd, and better on average."""
    mean = np.array([scores(crowd).mean(axis=0) for crowd in CROWDS])
    gain = mean[:, 0] - mean[:, 1]
    assert (gain >= -0.01).all(), dict(zip(CROWDS, gain.round(3).tolist(), strict=True))
    assert (gain.mean(axis=0) > 0.02).all()
