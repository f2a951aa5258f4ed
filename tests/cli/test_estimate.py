"""`hitl estimate`: shares from known items, with beliefs about the others."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from hitl.active.guarantees.intervals import share_of
from hitl.certificates.certificate import Labels
from hitl.certificates.shares import difference
from hitl.errors import BadSettings, BadTable
from tests.command_line import Run

ITEMS = 2_000


@pytest.fixture
def known(tmp_path: Path) -> pd.DataFrame:
    """labels.csv with calibrated beliefs; 300 known items in known.csv. Returns labels and truth of all."""
    rng = np.random.default_rng(0)
    p_cat = rng.beta(0.3, 0.6, ITEMS).round(4)
    table = pd.DataFrame({"item": [f"photo{n}" for n in range(ITEMS)]})
    table["label"] = np.where(p_cat > 0.5, "cat", "dog")
    table["confidence"] = np.maximum(p_cat, 1 - p_cat)
    table["p_cat"], table["p_dog"], table["town"] = (
        p_cat,
        1 - p_cat,
        np.where(np.arange(ITEMS) % 2 + (p_cat > 0.8), "a", "b"),
    )
    table.to_csv(tmp_path / "labels.csv", index=False)
    table["truth"] = np.where(rng.random(ITEMS) < p_cat, "cat", "dog")
    some = table.sample(300, random_state=3)[["item", "truth"]].rename(columns={"truth": "label"})
    some.to_csv(tmp_path / "known.csv", index=False)
    return table


def shares(run: Run, *more: str) -> dict[str, dict[str, float]]:
    code, out, err = run("estimate", "labels.csv", "--truth", "known.csv", "--json", *more)
    assert (code, err) == (0, "")
    return {row["share"]: row for row in json.loads(out)["shares"]}


def test_shares_are_estimated_with_intervals(run: Run, known: pd.DataFrame) -> None:
    found = shares(run, "--per", "town")
    actual = {
        "labels that are right": (known["label"] == known["truth"]).mean(),
        "labels that are right, a": (known["label"] == known["truth"])[known["town"] == "a"].mean(),
        "items of class cat": (known["truth"] == "cat").mean(),
        "items of class dog": (known["truth"] == "dog").mean(),
    }
    for name, share in actual.items():
        assert found[name]["low"] <= share <= found[name]["high"]
    assert found["labels that are right"]["known"] == 300
    own, some = known[known["town"] == "b"], set(pd.read_csv("known.csv")["item"])
    drawn = own[own["item"].isin(some)]
    by_hand = share_of(
        np.asarray(drawn["label"] == drawn["truth"], float),
        np.asarray(drawn["confidence"].round(4)),
        float(own["confidence"].mean()),
        len(own),
    )
    assert found["labels that are right, b"]["estimate"] == pytest.approx(by_hand.share, abs=1e-4)
    assert found["items of class cat"]["high"] - found["items of class cat"]["low"] < 0.085  # .105 without beliefs
    wider = shares(run, "--confidence", "99%")["items of class cat"]
    assert wider["low"] < found["items of class cat"]["low"]
    _, out, _ = run("estimate", "labels.csv", "--truth", "known.csv")
    assert "Shares with 95 % intervals" in out
    assert "They hold if the known items were drawn at random" in out


def test_the_difference_of_two_models_has_an_interval(run: Run, known: pd.DataFrame) -> None:
    rng = np.random.default_rng(1)
    flipped = np.where(rng.random(ITEMS) < 0.15, np.where(known["label"] == "cat", "dog", "cat"), known["label"])
    pd.DataFrame({"item": known["item"], "label": flipped}).sample(frac=1, random_state=0).to_csv("other.csv")
    actual = (known["label"] == known["truth"]).mean() - (flipped == known["truth"]).mean()
    found = shares(run, "--other", "other.csv")["right in labels.csv, less in other.csv"]
    assert 0 < found["low"] <= actual <= found["high"] < 0.3
    assert found["known"] == 300
    same = shares(run, "--other", "labels.csv")["right in labels.csv, less in labels.csv"]
    assert same["estimate"] == 0
    assert same["low"] == pytest.approx(-same["high"])
    assert same["high"] < 0.02
    pd.DataFrame({"item": ["x"], "label": ["cat"]}).to_csv("other.csv", index=False)
    code, _, err = run("estimate", "labels.csv", "--truth", "known.csv", "--other", "other.csv")
    assert (code != 0, "no known item has a label in both tables" in err) == (True, True)


@pytest.mark.parametrize("known", [30, 200])
def test_the_interval_of_a_difference_covers_whatever_is_believed(known: int) -> None:
    """Beliefs that say nothing, and labels that are wrong together."""
    rng, held = np.random.default_rng(known), 0
    truth = rng.integers(2, size=1000)
    hard = rng.random(1000) < 0.3
    first, second = (np.where(hard & (rng.random(1000) < share), 1 - truth, truth) for share in (0.4, 0.7))
    actual = (first == truth).mean() - (second == truth).mean()
    names = tuple(map(str, range(1000)))
    made = [
        Labels(items=names, labels=tuple(map(str, one)), doubt=tuple(rng.random(1000).round(4)), groups=())
        for one in (first, second)
    ]
    for _ in range(200):
        drawn = rng.choice(1000, known, replace=False)
        interval = difference(made[0], made[1], {names[n]: str(truth[n]) for n in drawn}, 0.95)
        held += interval.low <= actual <= interval.high
    assert held >= 200 * 0.95 - 2 * np.sqrt(200 * 0.95 * 0.05)


def test_few_known_items_have_exact_intervals(run: Run, known: pd.DataFrame) -> None:
    some = pd.read_csv("known.csv").head(30)
    some.to_csv("known.csv", index=False)
    found = shares(run)["labels that are right"]
    right = int((some["label"] == some["item"].map(known.set_index("item")["label"])).sum())
    assert (found["known"], found["estimate"]) == (30, pytest.approx(right / 30))


def test_what_says_nothing_is_refused(run: Run, known: pd.DataFrame) -> None:
    Path("other.csv").write_text("item,label\nx,cat\n")
    code, _, err = run("estimate", "labels.csv", "--truth", "other.csv")
    assert (code, "none of its items is in labels.csv" in err) == (65, True)
    table = pd.read_csv("labels.csv")
    some = pd.read_csv("known.csv").set_index("item")["label"]
    is_known = table["item"].isin(some.index)
    table.loc[is_known, "label"] = table.loc[is_known, "item"].map(some)
    table.loc[is_known, "confidence"] = 1.0
    table.to_csv("labels.csv", index=False)
    code, _, err = run("estimate", "labels.csv", "--truth", "known.csv")
    assert (code, "they were combined with this truth" in err) == (78, True)


def test_items_drawn_by_doubt_tell_more_than_evenly_drawn_ones(run: Run, known: pd.DataFrame) -> None:
    code, out, err = run("estimate", "labels.csv", "--draw", "300", "--output", "drawn.csv", "--seed", "1")
    assert (code, err) == (0, "")
    assert "fill in its column label" in out
    drawn = pd.read_csv("drawn.csv")
    assert list(drawn.columns) == ["item", "label", "town", "chance"]  # never the label that is to be judged
    assert len(drawn) == 300
    code, _, err = run("estimate", "labels.csv", "--truth", "drawn.csv")
    assert (code, "has no label" in err) == (BadTable.exit_code, True)
    drawn["label"] = drawn["item"].map(known.set_index("item")["truth"])
    drawn.to_csv("drawn.csv", index=False)
    right = "labels that are right"
    evenly = shares(run)[right]
    code, out, err = run("estimate", "labels.csv", "--truth", "drawn.csv", "--per", "town", "--json")
    found = {row["share"]: row for row in json.loads(out)["shares"]}
    for name in (right, f"{right}, a", f"{right}, b"):
        part = known if name == right else known[known["town"] == name[-1]]
        assert found[name]["low"] <= (part["label"] == part["truth"]).mean() <= found[name]["high"]
    assert found[right]["high"] - found[right]["low"] < 0.9 * (evenly["high"] - evenly["low"])


def test_what_does_not_fit_a_draw_is_said(run: Run, known: pd.DataFrame) -> None:
    for words, what in (
        (["labels.csv"], "expected --truth"),
        (["labels.csv", "--draw", "300"], "expected --output"),
        (["labels.csv", "--draw", "2000", "--output", "drawn.csv"], "expected fewer to draw"),
        (["labels.csv", "--truth", "known.csv", "--seed", "1"], "--seed: only with --draw"),
    ):
        code, _, err = run("estimate", *words)
        assert (code, what in err) == (BadSettings.exit_code, True), err
    table = pd.read_csv("known.csv")
    table["chance"] = 2.0
    table.to_csv("known.csv", index=False)
    code, _, err = run("estimate", "labels.csv", "--truth", "known.csv")
    assert (code, "column chance" in err) == (BadTable.exit_code, True)
    table["chance"] = 0.1
    table.head(50).to_csv("known.csv", index=False)
    code, _, err = run("estimate", "labels.csv", "--truth", "known.csv")
    assert (code, "fewer than 100" in err) == (BadTable.exit_code, True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--draw", "100", "-o", "drawn.csv", "--seed", "-1"], "Invalid value for '--seed'"),
        (["--draw", "100", "-o", "drawn.csv", "--per", "town"], "--per: only with --truth"),
        (["--truth", "known.csv"], "labels.csv, line 4: no probability in column p_cat"),
    ],
)
def test_options_and_probabilities_are_checked(run: Run, known: pd.DataFrame, options: list[str], message: str) -> None:
    known.loc[2, "p_cat"] = np.nan
    known.to_csv("labels.csv", index=False)
    code, _, err = run("estimate", "labels.csv", *options)
    assert (code in (2, 65, 78), message in err) == (True, True)
    assert not Path("drawn.csv").exists()
