"""Mean score: thresholds, variances and posterior against plain loops; Simpson's -1, 1, 3."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hitl.annotations import Annotations
from hitl.errors import BadEvidence, BadSettings
from hitl.evidence import Evidence
from hitl.models.mean_score import MeanScore, class_scores, option_scores
from tests import oracles
from tests.command_line import Run


def table(rows: list[tuple[str, str, object]], **names: object) -> Annotations:
    item, annotator, label = zip(*rows, strict=True)
    return Annotations.from_frame({"item": item, "annotator": annotator, "label": label}, **names)


def plain(evidence: Evidence, score_l: np.ndarray) -> np.ndarray:
    """(N, J) the documented posterior, item by item."""
    a = evidence.annotations
    n_classes = a.n_classes
    said: list[list[float]] = [[] for _ in a.items]
    for n, l in zip(a.item, a.label, strict=True):  # noqa: E741
        if not np.isnan(score_l[l]):
            said[n].append(float(score_l[l]))
    centre = []
    for j in range(n_classes):
        told = [x for n, labels in enumerate(said) for x in labels if evidence.truth[n] == j]
        centre.append(np.mean([score_l[j], *told]))
    gap = np.mean(np.diff(sorted(centre)) ** 2)
    squares = sum(sum((x - np.mean(labels)) ** 2 for x in labels) for labels in said if labels)
    within = (squares + gap / 4) / (1 + sum(len(labels) - 1 for labels in said if labels))
    excess = []
    for n, labels in enumerate(said):
        if labels:
            apart = [(np.mean(labels) - c) ** 2 for c in centre]
            excess.append((apart[evidence.truth[n]] if evidence.truth[n] >= 0 else min(apart)) - within / len(labels))
    between = max(0.0, float(np.mean(excess)))
    p = np.full((a.n_items, n_classes), 1 / n_classes)
    for n, labels in enumerate(said):
        if evidence.truth[n] >= 0:
            p[n] = np.eye(n_classes)[evidence.truth[n]]
        elif labels:
            variance = between + within / len(labels)
            density = np.exp([-((np.mean(labels) - c) ** 2) / (2 * variance) for c in centre])
            p[n] = density / density.sum()
    return p


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    known=st.sampled_from([0.0, 0.4]),
    options=st.sampled_from([3, 5]),
    pool=st.sampled_from([0, 8]),
)
def test_it_agrees_with_plain_loops(seed: int, known: float, options: int, pool: int) -> None:
    rng = np.random.default_rng(seed)
    evidence, _ = oracles.crowd(rng, 14, 4, 3, options, known=known, pool=pool, unlabeled=2)
    score_l = np.array([-1.0, 0.5, 3.0, 1.0, np.nan])[:options]
    scores = {name: float(x) for name, x in zip(evidence.annotations.options, score_l, strict=True) if not np.isnan(x)}
    found = MeanScore(scores).fit(evidence).probabilities
    np.testing.assert_allclose(found, plain(evidence, score_l), atol=1e-9)


def test_the_nearest_class_wins_and_thresholds_are_half_way() -> None:
    """Simpson 2011: "no" -1, "perhaps" 1, "surely" 3 for two classes."""
    rows = [("a", "p", "no"), ("a", "q", "perhaps"), ("b", "p", "surely"), ("b", "q", "perhaps")]
    rows += [("c", "p", "no"), ("c", "q", "surely"), ("d", "p", "perhaps"), ("e", "p", "no")]
    annotations = table(rows, classes=["no", "surely"], options=["no", "surely", "perhaps"])
    scores = {"no": -1, "perhaps": 1, "surely": 3}
    consensus = MeanScore(scores).fit(Evidence(annotations))
    # means 0, 2, 1, 1, -1; the threshold between -1 and 3 is 1
    assert consensus.codes[[0, 1, 4]].tolist() == [0, 1, 0]
    np.testing.assert_allclose(consensus.probabilities[2:4], 0.5)
    assert consensus.fit.settings == {"scores": {"no": -1, "perhaps": 1, "surely": 3}}


@pytest.mark.parametrize(
    ("options", "n_classes", "expected"),
    [
        ((3, 1, 2), 3, [3, 1, 2]),
        (("10", "2.5", "unsure"), 2, [10, 2.5, np.nan]),
        (("low", "mid", "high"), 3, [0, 1, 2]),
        (("low", "high", "7"), 2, [0, 1, np.nan]),
        (("nan", "1"), 2, [0, 1]),
    ],
)
def test_scores_that_nobody_gave(options: tuple[object, ...], n_classes: int, expected: list[float]) -> None:
    annotations = Annotations(
        np.array([0]), np.array([0]), np.array([0]), ("a",), ("p",), options[:n_classes], options
    )  # fmt: skip
    np.testing.assert_array_equal(option_scores(annotations, None), expected)


@pytest.mark.parametrize(
    ("classes", "guessed"),
    [(["bad", "good", "ok"], True), (["bad", "ok", "good"], False), (["no", "yes"], False), (["1", "2", "3"], False)],
)
def test_an_order_that_nobody_gave_is_told(run: Run, tmp_path: Path, classes: list[str], guessed: bool) -> None:
    """Words are sorted by the alphabet, so that "ok" was the best of grades, without a word."""
    rows = [f"{n},{who},{name}" for n, name in enumerate(classes) for who in ("ann", "bob")]
    (tmp_path / "grades.csv").write_text("\n".join(["item,annotator,label", *rows]) + "\n")
    seen = [] if guessed or classes == sorted(classes) else ["--classes", ",".join(classes)]
    code, _, err = run("combine", "grades.csv", "--method", "mean-score", *seen)
    assert code == 0
    assert ("mean-score takes the classes to be in this order: bad, good, ok" in err) == guessed
    assert guessed or err == ""


def test_scores_must_name_every_class_and_nothing_else() -> None:
    annotations = table([("a", "p", "x"), ("a", "q", "y")])
    for scores in ({"x": 1.0}, {"x": 1.0, "y": 2.0, "z": 3.0}):
        with pytest.raises(BadEvidence, match="expected each of the classes"):
            MeanScore(scores).fit(Evidence(annotations))
    for value in ("high", float("nan"), True):
        with pytest.raises(BadSettings, match="scores"):
            MeanScore({"x": value})


def test_known_truth_moves_the_score_of_a_class() -> None:
    """Everybody says 2 of class "1" too; ten known items tell."""
    rows = [(f"n{i}", "p", 2 if i % 2 else 3) for i in range(20)] + [("new", "p", 2)]
    annotations = table(rows, classes=[1, 3], options=[1, 3, 2])
    truth = np.array([0 if i % 2 else 1 for i in range(20)] + [-1])
    told = Evidence(annotations, truth=truth)
    np.testing.assert_allclose(class_scores(told, option_scores(annotations, None)), [(1 + 10 * 2) / 11, 3])
    assert MeanScore().fit(told).codes[20] == 0
    assert MeanScore().fit(told).confidence[20] > 0.8
    np.testing.assert_allclose(MeanScore().fit(Evidence(annotations)).probabilities[20], 0.5)


@pytest.mark.parametrize("scores", [3, ["a"]])
def test_scores_must_be_a_mapping(scores: Any) -> None:
    with pytest.raises(BadSettings, match="scores"):
        MeanScore(scores=scores)
