"""`hitl rank`: leaderboards, annotators who guess, pairs to ask next, and files that say too little."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from hitl.models.preferences.comparisons import Comparisons
from hitl.models.preferences.davidson import Davidson
from tests.command_line import Run
from tests.models.preferences.crowds import Tournament

PEOPLE = {"ann": 0.95, "bob": 0.9, "cy": 0.9, "dan": 0.1}


@pytest.fixture
def game(tmp_path: Path) -> tuple[Tournament, Comparisons]:
    """comparisons.csv of 400 answers about eight items by PEOPLE, of whom dan guesses."""
    game = Tournament.drawn(1, 8, list(PEOPLE.values()))
    given = game.compared(400)
    names, who = np.array([f"model {n}" for n in range(8)]), np.array(list(PEOPLE))
    table = pd.DataFrame({"left": names[given.left], "right": names[given.right]})
    table["winner"] = np.where(given.outcome == 1, table["left"], np.where(given.outcome == -1, "right", "tie"))
    table["annotator"] = who[given.annotator]
    table.to_csv(tmp_path / "comparisons.csv", index=False)
    return game, given


def ranked(run: Run, *words: str) -> dict[str, Any]:
    code, out, err = run("rank", *words, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)  # type: ignore[no-any-return]


def test_a_leaderboard_with_intervals(run: Run, game: tuple[Tournament, Comparisons]) -> None:
    said = ranked(run, "comparisons.csv", "--output", "board.csv", "--annotators-output", "people.csv")
    board, people, fit = (
        pd.read_csv("board.csv"),
        pd.read_csv("people.csv"),
        Davidson().fit(game[1]),
    )
    assert board["rank"].tolist() == list(range(1, 9))
    by_item = board.sort_values("item")
    expected = np.array([fit.strengths, *fit.interval(), fit.wins(fit.strengths)])
    assert np.allclose(by_item[["strength", "low", "high", "wins"]].to_numpy().T, expected)
    assert by_item["comparisons"].tolist() == game[1].counts.tolist()
    assert board["strength"].is_monotonic_decreasing
    assert board["best"].sum() == pytest.approx(1)
    assert ((board["rank_low"] <= board["rank"]) & (board["rank"] <= board["rank_high"])).all()
    assert people["annotator"][0] == "dan"
    assert people["reliability"].tolist() == pytest.approx(sorted(fit.reliability))
    pd.testing.assert_frame_equal(pd.DataFrame(said["leaderboard"]), board)
    assert said["groups"] == [[f"model {n}" for n in range(8)]]
    _, out, _ = run("rank", "comparisons.csv")
    assert "Leaderboard with 95 % intervals" in out
    assert "Annotators" in out


def test_the_plan_asks_reliable_people_and_can_be_filled_in(run: Run, game: tuple[Tournament, Comparisons]) -> None:
    said = ranked(run, "comparisons.csv", "--next", "10", "--plan", "pairs.csv", "--per-annotator", "4")
    plan, table = pd.read_csv("pairs.csv"), pd.read_csv("comparisons.csv")
    assert list(plan) == ["left", "right", "winner", "annotator", "gain"]
    assert plan["winner"].isna().all()
    assert [row["left"] for row in said["next"]] == plan["left"].tolist()
    assert sorted(plan["annotator"].value_counts().to_dict().items()) == [("ann", 4), ("bob", 4), ("cy", 2)]
    plan["winner"] = "left"
    pd.concat([table, plan]).to_csv("comparisons.csv", index=False)
    assert sum(row["comparisons"] for row in ranked(run, "comparisons.csv")["leaderboard"]) == 2 * 410
    assert len(ranked(run, "comparisons.csv", "--plan", "pairs.csv")["next"]) == 20


def test_nobody_is_asked_about_a_pair_again(run: Run) -> None:
    """Unless they are asked again already, as where items are models that are compared on many prompts."""
    table = "left,right,winner,annotator\na,b,a,ann\nb,c,b,ann\na,b,a,bob\n"
    Path("c.csv").write_text(table)
    planned = ranked(run, "c.csv", "--next", "9", "--per-annotator", "9")["next"]
    pairs = [(row["annotator"], *sorted((row["left"], row["right"]))) for row in planned]
    assert sorted(pairs) == [("ann", "a", "c"), ("bob", "a", "c"), ("bob", "b", "c")]
    assert "Only 3 of 20 pairs" in run("rank", "c.csv", "--plan", "plan.csv", "--per-annotator", "9")[1]
    Path("c.csv").write_text(table.replace(",ann\n", ",\n"))
    planned = ranked(run, "c.csv", "--next", "9", "--per-annotator", "9")["next"]
    assert sorted(row["annotator"] or "" for row in planned) == ["", "", "", "bob", "bob"]  # anybody may answer again
    Path("c.csv").write_text(table + "b,a,a,ann\n")
    assert len(ranked(run, "c.csv", "--next", "9", "--per-annotator", "9")["next"]) == 6


def test_rankings_and_comparisons_by_nobody_in_particular(run: Run) -> None:
    Path("rankings.csv").write_text("ranking\na > b > c\na > c = b\nb > a > c\n")
    said = ranked(run, "rankings.csv", "--next", "3")
    assert [row["item"] for row in said["leaderboard"]] == ["a", "b", "c"]
    assert said["annotators"] == [{"annotator": "(anonymous)", "comparisons": 9, "reliability": None}]
    assert [row["annotator"] for row in said["next"]] == [None] * 3
    _, out, _ = run("rank", "rankings.csv", "--next", "3")
    assert "Annotators" not in out
    assert "NA" not in out


def test_groups_that_nothing_connects_are_told_and_asked_about(run: Run) -> None:
    Path("c.csv").write_text("left,right,winner\na,b,a\nc,d,c\nb,a,tie\n")
    code, out, err = run("rank", "c.csv", "--json", "--next", "1")
    said = json.loads(out)
    assert code == 0
    assert "no comparison connects these 2 groups of items: {a, b}; {c, d}" in err
    assert said["groups"] == [["a", "b"], ["c", "d"]]
    assert len({*"ab"} & {said["next"][0]["left"], said["next"][0]["right"]}) == 1
    assert all(np.isfinite(row["strength"]) for row in said["leaderboard"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("left,right,winner\na,b,x\n", "c.csv, line 2: winner 'x' is unknown; expected 'a', 'b', left, right or tie"),
        ("left,right,winner\na,b,a\na,a,a\n", "c.csv, line 3: 'a' is compared with itself"),
        ("left,right,winner\n,b,b\n", "c.csv, line 2: an item has no name"),
        ("item,label\na,b\n", "c.csv: no column 'left'"),
        ("left,right,winner\na,b,\n", "1 row has no winner and is left out (first at c.csv, line 2)"),
        ("left,right,winner\na,b,\n", "c.csv: no comparisons"),
        ("ranking,left,right,winner\na>b,a,b,b\n", "c.csv: it has ranking and left, right, winner"),
    ],
)
def test_what_says_nothing_is_refused(run: Run, text: str, message: str) -> None:
    Path("c.csv").write_text(text)
    code, _, err = run("rank", "c.csv")
    assert (code, message in err) == (65, True), err


def test_the_comparisons_are_never_overwritten(run: Run) -> None:
    Path("c.csv").write_text("left,right,winner\na,b,a\n")
    code, _, err = run("rank", "c.csv", "--output", "c.csv")
    assert (code, "c.csv is named twice" in err) == (65, True)


def test_long_rankings_are_read(run: Run, tmp_path: Path) -> None:
    names = [f"a system with a long name {n:03d}" for n in range(50)]
    (tmp_path / "rankings.csv").write_text("ranking\n" + " > ".join(names) + "\n")
    assert [row["item"] for row in ranked(run, "rankings.csv")["leaderboard"]] == names
