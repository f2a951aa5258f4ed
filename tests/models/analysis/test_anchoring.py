"""How far suggestions pull answers: planted pulls are found, others are not, and chance is that of items."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from hitl.models.analysis.anchoring import LEAST_ITEMS, is_blind, model_answers, pull, pulls, randomized, thinned
from tests.bench.honesty.suggestions import SHARES, figures, project, simulated


@pytest.fixture(scope="module")
def answers() -> pd.DataFrame:
    return simulated(0, 0.1, stops=True, share=0.2)


def test_a_planted_pull_is_found_and_an_absent_one_is_not() -> None:
    found, none = (figures(60, effect, stops=False, share=0.2) for effect in (0.1, 0.0))
    assert found["found"] >= 0.9
    assert found["mean"] == pytest.approx(0.1, abs=0.015)
    assert none["mean"] == pytest.approx(0, abs=0.015)
    assert none["found"] + none["negative"] <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / 60)


def test_each_share_is_on_the_line_of_its_arm(answers: pd.DataFrame) -> None:
    one = pull(answers)
    items = answers.groupby("item")[["agrees", "sure", "blind"]].mean()
    for blind, share in ((0, one.agree_shown), (1, one.agree_blind)):
        arm = items[items.blind == blind]
        x, y = (np.append(arm[name], more) for name, more in (("sure", [arm.sure.mean()] * 2), ("agrees", [1, 0])))
        slope = np.polyfit(x, y, 1)[0]
        assert share == pytest.approx(arm.agrees.mean() + slope * (items.sure.mean() - arm.sure.mean()), abs=1e-9)
    assert one.effect == pytest.approx(one.agree_shown - one.agree_blind)
    assert one.copied == pytest.approx(one.effect / (1 - one.agree_blind))


def test_the_interval_is_that_of_drawing_items_again() -> None:
    """Without a pull, any other draw of the items could as well have been made. Drawing answers would be narrower."""
    answers = simulated(1, 0, stops=False, share=0.2)
    rng, one = np.random.default_rng(0), pull(answers)
    item = answers["item"].to_numpy()
    drawn = [pull(answers.assign(blind=(rng.random(item.max() + 1) < 0.2)[item])).effect for _ in range(200)]
    assert np.std(drawn) == pytest.approx((one.high - one.low) / 2 / 1.96, rel=0.15)


def test_an_arm_in_which_all_agree_still_has_an_interval() -> None:
    blind = np.arange(60) % 3 == 0
    rows = pd.DataFrame({"item": np.arange(60), "annotator": "a", "agrees": True, "sure": 0.8, "blind": blind})
    one = pull(rows)
    assert (one.shown, one.blind, one.items, one.effect) == (40, 20, (40, 20), 0.0)
    assert one.low < -0.05
    assert one.high > 0.05
    few = pull(rows[: 3 * LEAST_ITEMS - 3])
    assert np.isnan(few.effect)
    assert "No estimate yet" in str(few)
    assert np.isnan(pull(rows[:0]).low)


def test_only_annotators_with_enough_items_in_both_arms_get_one(answers: pd.DataFrame) -> None:
    found = pulls(answers)
    assert found.overall == pull(answers)
    least = answers.groupby("annotator").blind.agg(["sum", "size"])
    enough = (least["sum"] >= LEAST_ITEMS) & (least["size"] - least["sum"] >= LEAST_ITEMS)
    assert set(found.annotators) == set(least.index[enough])
    name = next(iter(found.annotators))
    assert found.annotators[name] == pull(answers[answers.annotator == name])


def test_answers_count_between_the_first_and_the_last_that_saw_a_suggestion() -> None:
    evidence, blind, start, end, _ = project(0, 0.1, stops=False, share=0.2)
    suggested, labels = model_answers(evidence, {}), evidence.annotations
    assert labels.time is not None
    rows = randomized(evidence, suggested, blind, start, end)
    inside = (labels.time > start[labels.annotator]) & (labels.time < end[labels.annotator])
    assert len(rows) == inside.sum() < len(labels)
    assert (rows.blind == blind[rows["item"]]).all()
    assert (rows.agrees == (labels.label[inside] == suggested.argmax(axis=1)[rows["item"]])).all()
    suggested[3] = np.nan  # nothing was suggested there
    assert 3 not in set(randomized(evidence, suggested, blind, start, end)["item"])
    start = np.where(np.arange(len(start)) == 0, np.nan, start)  # this annotator has seen none
    assert str(labels.annotators[0]) not in set(randomized(evidence, suggested, blind, start, end).annotator)
    untimed = replace(evidence, annotations=replace(labels, time=None))
    assert randomized(untimed, suggested, blind, start, end).empty


def test_without_copies_answers_equal_suggestions_as_often_as_without_one() -> None:
    evidence, *drawn, _ = project(0, 0.2, stops=False, share=0.2)
    suggested = model_answers(evidence, {})
    answers = randomized(evidence, suggested, *drawn)
    one = pull(answers)
    left = thinned(evidence, answers, one.copies_among_equal, "project 0")
    assert pull(randomized(left, suggested, *drawn)).effect == pytest.approx(0, abs=0.035)
    assert 1 - len(left.annotations) / len(evidence.annotations) == pytest.approx(0.8 * one.copied, abs=0.02)
    again = thinned(evidence, answers, one.copies_among_equal, "project 0")
    assert (again.annotations.cell == left.annotations.cell).all()


def test_what_is_blind_is_drawn_once_and_stays_when_the_share_grows() -> None:
    items = [f"task {n}" for n in range(5000)]
    tenth, fifth = ({item for item in items if is_blind("p", item, share)} for share in SHARES)
    assert tenth < fifth
    assert len(tenth) == pytest.approx(500, abs=70)
    assert len(fifth) == pytest.approx(1000, abs=90)
    other = {item for item in items if is_blind("q", item, 0.1)}
    assert len(tenth & other) < 100
    assert not any(is_blind("p", item, 0) for item in items)
