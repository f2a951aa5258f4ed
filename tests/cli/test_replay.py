"""`hitl replay`: what it shows, writes and refuses, for recorded and for simulated people."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hitl.active.policy import ExpectedGain
from hitl.active.replay.baselines import Evenly
from hitl.active.replay.experiments import Recording, Simulation, run_trials, spent_to_reach
from hitl.active.replay.replay import Replay, StopRule, accuracy_of
from hitl.active.replay.simulated_annotators import Group
from hitl.active.replay.strategies import near_all_labels
from hitl.cli.replay_people import groups_of
from hitl.crew import Budget, Crew
from hitl.errors import BadSettings
from hitl.evidence import Evidence
from hitl.models import DefaultCombiner
from hitl.tables.read import read_table
from tests.command_line import Run

FLAGS = ("replay", "annotations.csv", "--truth", "truth.csv", "--seeds", "2", "--workers", "1", "--batch", "60")
SIMULATED = ("replay", "--truth", "truth.csv", "--seeds", "1", "--workers", "1", "--batch", "40", "--labels", "120")


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    """60 items, four people, two classes, the truth of 50, a model."""
    rng = np.random.default_rng(0)
    said, truth, net = ["item,annotator,label"], ["item,label"], ["item,p_cat,p_dog"]
    for n in range(60):
        z = int(rng.integers(2))
        for who, right in (("ann", 0.9), ("bob", 0.8), ("cyd", 0.7), ("dan", 0.5)):
            said.append(f"i{n},{who},{('cat', 'dog')[z if rng.random() < right else 1 - z]}")
        net.append(f"i{n},{0.7 if z == 0 else 0.2},{0.3 if z == 0 else 0.8}")
        if n < 50:
            truth.append(f"i{n},{('cat', 'dog')[z]}")
    for name, lines in (("annotations", said), ("truth", truth), ("net", net)):
        (tmp_path / f"{name}.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "people.csv").write_text("annotator,cost,capacity\nann,3,5\nbob,2,\ncyd,,\n")
    return tmp_path


def evidence_of(tables: Path) -> Evidence:
    said, truth = (read_table(tables / f"{name}.csv", ["item", "label"]) for name in ("annotations", "truth"))
    return Evidence.from_tables(said, truth=truth)


def strategies(batch: int, **more: Any) -> dict[str, Replay]:
    budget = Budget(batch, 1.0, min_labels=0, max_labels=2**31 - 1)
    policies = {"expected-gain": ExpectedGain(), "evenly": Evenly()}
    return {name: Replay(DefaultCombiner(), policy, budget, **more) for name, policy in policies.items()}


def test_the_table_says_what_each_needed(run: Run, tables: Path) -> None:
    """Its figures are those of the replays made directly, at one item of 50 below the accuracy of everything."""
    code, out, err = run(*FLAGS, "--json")
    assert (code, err) == (0, "")
    told = json.loads(out)
    assert list(told["strategies"]) == ["expected-gain", "evenly", "majority vote, evenly"]
    evidence = evidence_of(tables)
    target = accuracy_of(DefaultCombiner().fit(replace(evidence, truth=None)), evidence) - 1 / 50 - 1e-9
    tracks = run_trials(Recording(evidence), strategies(60), seeds=2)
    needed = {}
    for name, several in tracks.items():
        (row,) = told["strategies"][name]["needed"]
        assert row["accuracy"] == target
        each = [one.to_reach(target) for one in several]
        assert row["labels"] == [None if one is None else one[0] for one in each]
        assert row["labels"] == row["cost"]
        needed[name] = np.median([one[0] if one else np.inf for one in each])
    ratio = told["strategies"]["expected-gain"]["needed"][0]["times_fewer"]
    assert ratio == needed["evenly"] / needed["expected-gain"]
    code, out, _ = run(*FLAGS)
    assert code == 0
    assert "recorded: 240 labels of 4 annotators on 60 items; classes: cat, dog; 2 seeds; combined by default" in out
    assert f"{100 * target:.1f} %" in out
    assert (f"{ratio:.2f} × fewer labels" if ratio >= 1 else f"{1 / ratio:.2f} × more labels") in out


def test_targets_policies_and_models_are_those_asked_for(run: Run, tables: Path) -> None:
    more = ("--target", "0.6", "--target", "1", "--policy", "random", "--policy", "even", "--method", "pl-em")
    code, out, _ = run(*FLAGS, *more, "--probabilities", "net=net.csv", "--confidence", "0.9", "--json")
    assert code == 0
    told = json.loads(out)["strategies"]
    assert list(told) == ["random", "evenly", "majority vote, evenly"]
    assert [row["accuracy"] for row in told["evenly"]["needed"]] == [0.6, 1.0]
    assert told["evenly"]["needed"][0]["labels"] == [0, 0]  # the model alone
    assert told["majority vote, evenly"]["needed"][0]["labels"] != [0, 0]


@pytest.mark.journey
@pytest.mark.parametrize(("workers", "target"), [("1", ()), ("2", ("--target", "0.7"))])
def test_what_the_named_method_does_not_use_is_told_once(
    run: Run, tables: Path, workers: str, target: tuple[str, ...]
) -> None:
    flags = (*FLAGS, "--workers", workers, *target, "-p", "net=net.csv")
    assert run(*flags)[2] == ""
    told = "hitl: warning: vb-ibcc ignores the probabilities of 'net'; default and hierarchical-dawid-skene do not\n"
    assert run(*flags, "--method", "vb-ibcc")[2] == told


def test_it_says_where_a_project_would_have_ended_and_what_was_true(run: Run, tables: Path) -> None:
    stop = ("--stop", "0.5", "--gold", "25", "--seeds", "1", "--certify", "30")
    code, out, _ = run(*FLAGS, *stop, "--json")
    assert code == 0
    told = json.loads(out)["strategies"]["expected-gain"]["stopped"]
    rule = StopRule(0.5, 25, 30)
    tracks = run_trials(Recording(evidence_of(tables)), strategies(60, stop=rule), seeds=1)["expected-gain"]
    assert told == [None if track.stopped is None else asdict(track.stopped) for track in tracks]
    (at, *_) = (one for one in told if one is not None)
    code, out, _ = run(*FLAGS, *stop)
    said = " ".join(out.split())
    assert "Where a project with target_accuracy = 0.5 would have ended, 25 items with known answers" in said
    assert f"{100 * at['accuracy']:.1f} %" in out
    assert all(text in said for text in ("have ended were below the target", "proved what was not true; 5 % may"))


@pytest.mark.journey
def test_costs_and_capacities_of_people_count(run: Run, tables: Path) -> None:
    code, out, _ = run(*FLAGS, "--people", "people.csv", "--capacity", "9", "--target", "0.5", "--json")
    assert code == 0
    evidence = evidence_of(tables)
    crew = Crew(capacity={"ann": 5}, default_capacity=9, cost={"ann": 3.0, "bob": 2.0})
    tracks = run_trials(Recording(evidence), strategies(60, crew=crew), seeds=2)
    told = json.loads(out)["strategies"]
    for name, several in tracks.items():
        assert told[name]["end"] == [
            {"labels": one.labels[-1], "accuracy": pytest.approx(one.accuracy[-1])} for one in several
        ]
        found = [one.to_reach(0.5) for one in several]
        assert told[name]["needed"][0]["cost"] == [None if one is None else one[1] for one in found]
    code, out, _ = run(*FLAGS, "--people", "people.csv", "--capacity", "9", "--target", "0.8")
    found = spent_to_reach(tracks["evenly"], 0.8)
    (line,) = [line for line in out.splitlines() if "evenly" in line and "majority" not in line]
    assert f"{found.labels[0]:.0f} (" in line or f"{found.labels[0]:.0f} " in line
    assert f"{found.cost[0]:,.12g}" in line
    assert found.cost[0] != found.labels[0]
    code, out, _ = run(*FLAGS, "--people", "people.csv", "-o", "page.html", "-o", "page.svg")
    assert "cost" in out
    assert "Accuracy against cost" in (tables / "page.html").read_text()
    assert "Accuracy against cost" in (tables / "page.svg").read_text()


def test_the_page_the_picture_and_the_steps_hold_the_replays(run: Run, tables: Path) -> None:
    code, out, err = run(*FLAGS, "-o", "page.html", "-o", "page.svg", "-o", "steps.csv", "--target", "0.8")
    assert (code, err) == (0, "")
    assert out.endswith("wrote page.html\nwrote page.svg\nwrote steps.csv\n")
    tracks = run_trials(Recording(evidence_of(tables)), strategies(60), seeds=2)
    steps = read_table(tables / "steps.csv").to_pandas()
    assert list(steps.columns) == ["strategy", "seed", "labels", "cost", "accuracy", "done"]
    for name, several in tracks.items():
        for rank, one in enumerate(several):
            rows = steps[(steps["strategy"] == name) & (steps["seed"] == str(rank))]
            np.testing.assert_array_equal(rows["labels"].astype(int), one.labels)
            np.testing.assert_allclose(rows["accuracy"].astype(float), one.accuracy)
    page = (tables / "page.html").read_text()
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page)
    figures = json.loads(data)["figures"]
    assert list(figures) == ["curves0"]
    lines = [trace for trace in figures["curves0"]["data"] if "name" in trace]
    assert [trace["name"] for trace in lines] == ["expected-gain", "evenly", "majority vote, evenly"]
    ends = [one.accuracy[-1] for one in tracks["expected-gain"]]
    assert lines[0]["y"][-1] == pytest.approx(np.median(ends), abs=1e-4)
    assert "Accuracy against cost" not in page
    assert "lowest to highest of 2 seeds" in page
    assert "hitl replay annotations.csv --truth truth.csv" in page
    picture = ElementTree.fromstring((tables / "page.svg").read_text())
    texts = [element.text for element in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert {"Accuracy against labels", "labels", "expected-gain", "majority vote, evenly"} <= set(texts)
    assert len([e for e in picture.iter("{http://www.w3.org/2000/svg}path") if e.get("stroke-width") == "2"]) == 3


def test_simulated_people_stand_in_for_recorded_ones(run: Run, tables: Path) -> None:
    (tables / "truth.csv").write_text("\n".join(["item,label", *(f"i{n},{'abc'[n % 3]}" for n in range(60))]) + "\n")
    code, out, err = run(
        *SIMULATED, "--simulate", "good=5:0.7-0.8", "--simulate", "newcomer=2", "--delay", "1", "--json"
    )
    assert (code, err) == (0, "")
    told = json.loads(out)["strategies"]
    assert told["evenly"]["end"][0]["labels"] == 120
    assert told["evenly"]["needed"][0]["accuracy"] == 0.95
    items = Evidence.from_tables(
        {"item": [f"i{n}" for n in range(60)], "annotator": ["x"] * 60, "label": list("abc" * 20)},
        truth={"item": [f"i{n}" for n in range(60)], "label": list("abc" * 20)},
    )
    from hitl.active.replay.answers import ResponseModel

    source = Simulation(items, (Group("good", 5, (0.7, 0.8)), Group("good", 2, joins=10)))
    tracks = run_trials(source, strategies(40, most_labels=120, responses=ResponseModel(1.0)), seeds=1)
    for name, (one,) in tracks.items():
        assert told[name]["end"] == [{"labels": 120, "accuracy": pytest.approx(one.accuracy[-1])}]
    code, out, _ = run(*SIMULATED, "--simulate", "good=5")
    assert code == 0
    assert out.startswith("simulated annotators on 60 items; classes: a, b, c; 1 seed; combined by default")


def test_people_without_ids_are_one_pool(run: Run, tables: Path) -> None:
    code, out, _ = run(*FLAGS, "--anonymous", "--labels", "90")
    assert code == 0
    assert out.startswith("recorded: 240 labels of annotators without ids on 60 items")
    code, out, _ = run(*FLAGS, "--anonymous", "--json", "--method", "majority")
    told = json.loads(out)["strategies"]
    assert list(told) == ["expected-gain", "evenly"]
    assert [end["labels"] for end in told["evenly"]["end"]] == [240, 240]  # every label, though 4 of an item at most


def test_the_groups_of_the_command_line() -> None:
    found = groups_of(["good=20:0.6-0.9", "random=6", "newcomer=8:.7-.7"])
    assert found == (Group("good", 20, (0.6, 0.9)), Group("random", 6), Group("good", 8, (0.7, 0.7), joins=10))
    with pytest.raises(BadSettings, match=r"--simulate 'good=0': 0 annotators; expected 1 or more"):
        groups_of(["good=0"])
    for accuracy in ("0.9-0.7", "0.5-1.5"):
        with pytest.raises(BadSettings, match=rf"--simulate 'good=3:{accuracy}': expected 0 <= LOWEST <= HIGHEST <= 1"):
            groups_of([f"good=3:{accuracy}"])
    for wrong in ("good", "lazy=3", "good=-1", "good=3:0.5", "good=3:a-b"):
        with pytest.raises(BadSettings, match="expected KIND=HOW MANY"):
            groups_of([wrong])


@pytest.mark.parametrize(
    ("more", "code", "told"),
    [
        (("--policy", "clever"), 78, "policy.name 'clever' is unknown"),
        (("--method", "clever"), 78, "method 'clever' is unknown"),
        (("--simulate", "good=3"), 78, "give a file of annotations or --simulate"),
        (("--output", "nowhere/page.html"), 65, "the folder nowhere does not exist"),
        (
            ("--output", "page.pdf"),
            65,
            "unknown format '.pdf'; expected .html (a page), .svg (a picture), or every step as a table: .csv",
        ),
        (("--output", "truth.csv"), 65, "named twice"),
        (("-o", "a.svg", "-o", "a.svg"), 65, "named twice"),
        (("--people", "truth.csv"), 65, "no column 'annotator'"),
        (("--people", "strangers.csv"), 65, "'eve' is not an annotator in this replay"),
        (("--people", "words.csv"), 65, "the cost of 'ann' is much; input should be a valid number"),
        (("--people", "half.csv"), 65, "the capacity of 'ann' is 2.5; input should be a valid integer"),
        (("--people", "endless.csv"), 65, "the capacity of 'ann' is inf; input should be a"),
        (("--people", "twice.csv"), 65, "an annotator appears twice"),
        (("--people", "price.csv"), 65, "expected a column cost or capacity; it has annotator, price"),
        (("--people", "free.csv"), 65, "the cost of 'ann' is 0; input should be greater than 0"),
        (("--confidence", "0"), 78, "--confidence is 0; expected a probability"),
        (("--skip", "1"), 78, "--skip is 1; expected a share of the questions"),
        (("--delay", "inf"), 2, "'--delay': inf is not finite"),
        (("--stop", "1"), 78, "--stop is 1; expected an accuracy above 0 and below 1"),
        (("--certify", "5"), 78, "it needs --stop"),
        (("--stop", "0.9", "--gold", "50"), 65, "50 gold items asked for, and 50 items have ground truth"),
        (("--capacity", "0"), 78, "--capacity is 0, so nobody can be asked"),
    ],
)
def test_what_is_wrong_is_refused_and_nothing_written(
    run: Run, tables: Path, more: tuple[str, ...], code: int, told: str
) -> None:
    (tables / "strangers.csv").write_text("annotator,cost\neve,2\n")
    (tables / "words.csv").write_text("annotator,cost\nann,much\n")
    (tables / "free.csv").write_text("annotator,cost\nann,0\n")
    (tables / "half.csv").write_text("annotator,capacity\nann,2.5\n")
    (tables / "endless.csv").write_text("annotator,capacity\nann,inf\n")
    (tables / "twice.csv").write_text("annotator,cost\nann,1\nann,2\n")
    (tables / "price.csv").write_text("annotator,price\nann,2\n")
    before = sorted(tables.iterdir())
    found, out, err = run(*FLAGS, *more)
    assert (found, out) == (code, "")
    assert told in err
    assert sorted(tables.iterdir()) == before


def test_without_people_or_truth_there_is_nothing_to_replay(run: Run, tables: Path) -> None:
    code, _, err = run("replay", "--truth", "truth.csv")
    assert code == 78
    assert "give a file of annotations or --simulate" in err
    code, _, err = run("replay", "annotations.csv")
    assert (code, "expected --truth, a table of known labels" in err) == (78, True)
    (tables / "empty.csv").write_text("item,label\ni1,\n")
    code, _, err = run("replay", "annotations.csv", "--truth", "empty.csv")
    assert code == 65
    assert "no item has ground truth" in err


def test_truth_of_few_items_is_refused_or_warned_about(run: Run, tables: Path) -> None:
    lines = (tables / "truth.csv").read_text().splitlines()
    (tables / "few.csv").write_text("\n".join(lines[:10]) + "\n")
    code, out, err = run("replay", "annotations.csv", "--truth", "few.csv")
    assert (code, out) == (65, "")
    assert "the truth of 9 items is known; expected 10 or more" in err
    (tables / "few.csv").write_text("\n".join(lines[:21]) + "\n")
    code, out, err = run(*FLAGS, "--truth", "few.csv", "--json")
    assert code == 0
    assert "one item is 5.0 % of the accuracy" in err
    evidence = evidence_of(tables)
    evidence = replace(evidence, truth=np.where(np.cumsum(evidence.known) <= 20, evidence.truth, -1))
    full = accuracy_of(DefaultCombiner().fit(replace(evidence, truth=None)), evidence)
    assert json.loads(out)["strategies"]["evenly"]["needed"][0]["accuracy"] == pytest.approx(full - 1 / 20)


def test_one_item_below_is_one_item_below() -> None:
    """9 of 10, 8 of 10, ...: with one right label less the target is reached, with two less it is not."""
    items, truth = [f"i{n}" for n in range(10)], ["a", "b"] * 5
    for right in range(2, 11):
        said = [label if n < right else "ba"["ab".index(label)] for n, label in enumerate(truth)]
        evidence = Evidence.from_tables(
            {"item": items, "annotator": ["x"] * 10, "label": said}, truth={"item": items, "label": truth}
        )
        assert (right - 2) / 10 < near_all_labels(evidence, "majority") <= (right - 1) / 10


def test_what_is_never_reached_is_called_so(run: Run, tables: Path) -> None:
    code, out, _ = run(*FLAGS, "--labels", "30", "--target", "1")
    assert code == 0
    assert "not reached" not in out
    assert out.count("never") == 3


def test_people_with_a_capacity_may_be_asked_when_the_others_may_not(run: Run, tables: Path) -> None:
    code, out, _ = run(*FLAGS, "--people", "people.csv", "--capacity", "0", "--json", "--target", "0.5")
    assert code == 0
    assert json.loads(out)["strategies"]["evenly"]["end"][0]["labels"] == 60  # ann's, all of them


def test_a_model_that_learns_beside_each_policy(tables: Path, run: Run) -> None:
    """Features that tell the class: most of the labels are saved."""
    net = dict(line.split(",")[::2] for line in (tables / "net.csv").read_text().split()[1:])
    rows = [f"i{n},{(net[f'i{n}'] == '0.8') + 0.1 * (n % 5)},{n % 3}" for n in range(60)]
    (tables / "features.csv").write_text("item,size,colour\n" + "\n".join(rows) + "\n")
    learns = ("--features", "features.csv", "--learn", "logistic")
    code, out, err = run(*FLAGS, *learns, "--json", "--target", "0.85")
    assert code == 0, err
    found = json.loads(out)["strategies"]
    assert list(found) == ["expected-gain", "expected-gain, learning", "evenly", "majority vote, evenly"]
    learning, alone = (found[name]["needed"][0]["labels"] for name in ("expected-gain, learning", "expected-gain"))
    assert max(learning) < min(240 if labels is None else labels for labels in alone)
    code, _, err = run(*FLAGS, "--learn", "logistic")
    assert code == 78
    assert "--learn needs --features" in err
    (tables / "groups.csv").write_text("item,group\n" + "".join(f"i{n},{n // 2}\n" for n in range(60)))
    code, out, err = run(*FLAGS, *learns, "--groups", "groups.csv", "--json", "--seeds", "1")
    assert (code, err) == (0, "")
    code, _, err = run(*FLAGS, "--groups", "groups.csv")
    assert code == 78
    assert "it needs --learn" in err
    (tables / "groups.csv").write_text("item,group\nother,1\n")
    code, _, err = run(*FLAGS, *learns, "--groups", "groups.csv")
    assert (code, "none of its items is recorded; expected names as 'i0'" in err) == (65, True)


def test_a_method_that_needs_features_is_replayed_with_them(tables: Path, run: Run) -> None:
    rows = [f"i{n},{n % 5},{n % 3}" for n in range(60)]
    (tables / "features.csv").write_text("item,size,colour\n" + "\n".join(rows) + "\n")
    method = ("--method", "learned", "--features", "features.csv", "--seeds", "1", "--batch", "120")
    code, _, err = run(*FLAGS, *method, "--json")
    assert code == 0, err


def test_answers_of_nobody_have_no_limits_of_annotators(tables: Path, run: Run) -> None:
    with (tables / "annotations.csv").open("a") as file:
        file.write("i0,,cat\n")
    for limits in (("--people", "people.csv"), ("--capacity", "1")):
        code, _, err = run(*FLAGS, *limits)
        assert code == 78
        assert "--people and --capacity need an annotator in every row" in err


@pytest.mark.journey
def test_with_a_confidence_it_does_not_end_before_items_have_labels(tables: Path, run: Run) -> None:
    code, out, _ = run(*FLAGS, "--batch", "1", "--confidence", "0.9", "--seeds", "1", "--json")
    assert code == 0
    assert json.loads(out)["strategies"]["expected-gain"]["end"][0]["labels"] >= 60


def test_items_whose_truth_is_told_are_not_scored(tables: Path, run: Run) -> None:
    said = ("--stop", "0.99", "--gold", "40", "--seeds", "1")
    code, out, _ = run(*FLAGS, *said)
    assert (code, "except for the --gold items, which methods know from the start" in out) == (0, True)
    recorded = Recording(evidence_of(tables))
    (track,) = run_trials(recorded, strategies(240, stop=StopRule(0.99, 40)), seeds=1)["expected-gain"]
    assert set(np.round(track.accuracy * 10, 9) % 1) <= {0.0, 0.5}, "of ten items, ties shared"


def test_combine_learns_from_features(tables: Path, run: Run) -> None:
    truth = dict(line.split(",") for line in (tables / "truth.csv").read_text().split()[1:])
    np.savez(
        tables / "features.npz",
        items=np.array([f"i{n}" for n in range(70)]),
        X=np.array([[truth.get(f"i{n}") == "dog", n % 3] for n in range(70)], dtype=float),
    )
    flags = ("combine", "annotations.csv", "--features", "features.npz", "--json", "--labels")
    code, out, err = run(*flags, "--method", "learned")
    assert code == 0, err
    found = json.loads(out)
    assert found["items"] == 70  # those that nobody has labeled too
    assert list(found["temperatures"]) == ["learned"]
    assert "features" in run(*flags)[2]  # the default ignores them, and says so
