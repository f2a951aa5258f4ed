"""`hitl judge`: how right judges are, what a panel is worth, how many items pass, and what people read next."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from hitl.active.guarantees import panel as panels
from hitl.active.guarantees.intervals import clopper_pearson
from hitl.active.guarantees.panel import judged
from hitl.annotations import Annotations
from hitl.consensus import Consensus
from hitl.errors import BadEvidence, BadSettings
from hitl.evidence import Evidence
from hitl.models.combine import fit
from hitl.models.default import DefaultCombiner
from hitl.models.pl import PL
from hitl.models.registry import combiner
from tests.active.guarantees.panels import JUDGES, KINDS, Panel, in_order, panel
from tests.command_line import Run

DEFAULT = partial(fit, DefaultCombiner())


def of(made: Panel, many: int = 0) -> panels.Panel:
    return judged(made.evidence, [1], DEFAULT, many)


@pytest.mark.parametrize("kind", KINDS)
def test_intervals_cover_and_are_narrower_than_those_of_people_alone(kind: str) -> None:
    covers, right, width = [], [], []
    for seed in range(20):
        made = panel(kind, seed, items=500, read=100)
        found = of(made)
        assert found.passing is not None
        assert found.drawn == found.read == 100
        covers.append(found.passing.low <= made.truth_n.mean() <= found.passing.high)
        alone = clopper_pearson(int(made.truth_n[made.read].sum()), 100)
        width.append(found.passing.width / alone.width)
        for one, share in zip(found.judges, made.right, strict=True):
            assert one.right is not None
            right.append(one.right.low <= share <= one.right.high)
    assert np.mean(covers) >= 0.95 - 3 * np.sqrt(0.05 * 0.95 / 20)
    assert np.mean(right) >= 0.95 - 3 * np.sqrt(0.05 * 0.95 / 20)
    assert np.mean(width) < (0.8 if kind == "independent" else 0.95)


def test_three_clones_are_worth_about_one_and_others_nearly_three() -> None:
    clones = of(panel("clones", 0, items=400, read=300)).worth
    others = of(panel("independent", 0, items=400, read=300)).worth
    assert clones is not None
    assert others is not None
    assert clones.share <= 1.2
    assert others.low > 1.8


def test_a_panel_makes_the_accuracy_of_a_judge_better_known_too() -> None:
    made = panel("independent", 0, items=1_000, read=300)
    for one, share in zip(of(made).judges, made.right, strict=True):
        assert one.right is not None
        assert one.right.width < 0.65 * clopper_pearson(round(300 * share), 300).width


def test_judges_take_the_role_that_predicts_what_people_said_better() -> None:
    made = panel("biased", 4, items=200, read=100)
    rng = np.random.default_rng(0)

    def blind(to_models: bool, evidence: Evidence) -> Consensus:
        """The default, which sees noise instead of the judges in one of their roles."""
        labels = evidence.annotations
        if evidence.probabilities and to_models:
            noise = {name: rng.permutation(p_nj) for name, p_nj in evidence.probabilities.items()}
            return DEFAULT(replace(evidence, probabilities=noise))
        if len(labels) and not to_models and "ann" not in labels.annotators:
            return DEFAULT(replace(evidence, annotations=replace(labels, label=rng.permutation(labels.label))))
        return DEFAULT(evidence)

    sees = judged(made.evidence, [1], DEFAULT, 20)
    assert sees.losses["annotators"] < sees.losses["models"]
    for better, worse in (("annotators", "models"), ("models", "annotators")):
        found = judged(made.evidence, [1], partial(blind, worse == "models"), 20)
        assert found.losses[better] + 0.1 < found.losses[worse]
        assert found.losses[better] == pytest.approx(sees.losses[better])
        assert (found.next == sees.next) is (better == "annotators")  # its beliefs choose what to read next
    labels = made.evidence.annotations
    few = replace(made.evidence, annotations=labels.select(np.isin(labels.item, made.read[:19])))
    assert of(Panel(few, made.truth_n, made.read, made.right)).losses == {}
    assert judged(made.evidence, [1], partial(fit, PL()), 0).losses == {}  # it needs models


def test_the_worth_follows_from_the_correlations_of_errors() -> None:
    rng = np.random.default_rng(0)
    wrong_nk = (rng.random((200, 4)) < 0.2).astype(float)
    wrong_nk[:, 1] = wrong_nk[:, 0]
    rho = np.corrcoef(wrong_nk.T)[np.triu_indices(4, 1)].mean()
    found = panels._worth(wrong_nk, 0.95)
    assert found is not None
    assert found.share == pytest.approx(4 / (1 + 3 * rho))
    assert found.low < found.share < found.high <= 4
    assert panels._worth(np.zeros((50, 3)), 0.95) is None
    wrong_nk[:100, 2:] = np.nan  # they answered half of the items
    rows = wrong_nk[100:]
    pairs = [np.corrcoef(wrong_nk[:, 0], wrong_nk[:, 1])[0, 1]]
    pairs += [np.corrcoef(rows[:, a], rows[:, b])[0, 1] for a, b in ((0, 2), (0, 3), (1, 2), (1, 3), (2, 3))]
    found = panels._worth(wrong_nk, 0.95)
    assert found is not None
    assert found.share == pytest.approx(4 / (1 + 3 * np.mean(pairs)))


def test_no_belief_has_seen_what_people_say_about_its_item() -> None:
    made = panel("independent", 3, items=200, read=60)
    labels = made.evidence.annotations
    place_n = panels._random_places(labels)
    reference_n = panels._reference(made.evidence, DEFAULT)
    alone = replace(made.evidence, annotations=labels.select(np.zeros(len(labels), bool)))
    before = panels._beliefs(alone, reference_n, place_n, DEFAULT)
    for item in made.read[:8]:
        other = reference_n.copy()
        other[item] = 1 - other[item]
        assert panels._beliefs(alone, other, place_n, DEFAULT)[item] == pytest.approx(before[item])


def test_of_several_people_the_consensus_counts_and_ground_truth_before_it() -> None:
    answers = np.array([[0, 1, 1], [1, -1, -1], [-1, -1, -1], [1, 1, 1]])
    labels = Annotations.from_matrix(answers, classes=["no", "yes"])
    evidence = Evidence(labels, truth=np.array([-1, -1, -1, 0]))
    assert panels._reference(evidence, partial(fit, combiner("majority"))).tolist() == [1, 1, -1, 0]


def test_the_beginning_of_the_random_order_is_the_sample_even_if_people_read_more() -> None:
    made = panel("independent", 5, items=300, read=300)
    order = in_order(list(made.evidence.annotations.items))
    read = np.zeros(300, bool)
    read[order[:60]] = True
    read[order[30]] = False  # one cannot be judged
    chosen = read.copy()
    chosen[order[150::3]] = True  # and people read what they liked
    labels = made.evidence.annotations
    for mask, drawn in ((read, 59), (chosen, 59), (~read, 0)):
        evidence = replace(made.evidence, annotations=labels.select(mask[labels.item]))
        found = judged(evidence, [1], partial(fit, PL()), 0)
        assert (found.read, found.drawn) == (int(mask.sum()), drawn)
        assert found.passing is not None
        assert found.passing.known == (drawn or found.read)


def test_items_to_read_come_by_turns_from_the_random_order_and_by_doubt() -> None:
    made = panel("independent", 6, items=300, read=40)
    found = of(made, many=50)
    assert len(found.next) == 50
    assert not {one.item for one in found.next} & set(made.read.tolist())
    order = [n for n in in_order(list(made.evidence.annotations.items)) if n not in set(made.read.tolist())]
    drawn = [one.item for one in found.next if one.why == "random"]
    assert len(drawn) >= 20
    assert set(order[: len(drawn)]) <= {one.item for one in found.next}
    doubt = [one.doubt for one in found.next if one.why == "doubt"]
    assert doubt == sorted(doubt, reverse=True)
    assert of(panel("independent", 6, items=30, read=28), many=50).next[2:] == ()


def test_without_people_only_the_next_items_are_known() -> None:
    found = of(panel("clones", 7, items=50, read=0), many=5)
    assert (found.passing, found.worth, found.read, found.judges[0].right) == (None, None, 0, None)
    assert len(found.next) == 5
    with pytest.raises(BadEvidence, match="no judge"):
        judged(Evidence(Annotations.from_matrix([[0, 1], [1, -1]])), [1], DEFAULT, 5)


# -- judges in the combination -------------------------------------------------------------------------------


def evidence_of(votes: int, seed: int) -> tuple[Annotations, np.ndarray]:
    """Labels of Ann, Bob and Cyd, one per item, and of so many judges who are one; which answer the judges give."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 2, 1_000)
    said = np.where(rng.random(1_000) < 0.85, truth, 1 - truth)
    matrix = np.full((1_000, 3 + votes), -1)
    matrix[np.arange(1_000), rng.integers(0, 3, 1_000)] = np.where(rng.random(1_000) < 0.8, truth, 1 - truth)
    for k in range(votes):
        matrix[:, 3 + k] = np.where(rng.random(1_000) < 0.03 * (k > 0), 1 - said, said)
    item, who = np.nonzero(matrix >= 0)
    codes = (item.astype(np.int32), who.astype(np.int32), matrix[item, who].astype(np.int32))
    names = ("ann", "bob", "cyd", *JUDGES[:votes])
    return Annotations(*codes, tuple(map(str, range(1_000))), names, ("a", "b"), ("a", "b")), said


def weight(labels: Annotations, said: np.ndarray) -> float:
    """By how much the judges' common answer moves the log odds."""
    q_nj = DEFAULT(Evidence(labels).with_judges(JUDGES)).probabilities
    log_odds = np.log(q_nj[:, 1] / q_nj[:, 0])
    person = np.array([labels.label[labels.item == n][0] for n in range(1_000)])  # people come first
    return float(
        np.mean(
            [
                log_odds[(said == 1) & (person == own)].mean() - log_odds[(said == 0) & (person == own)].mean()
                for own in (0, 1)
            ]
        )
    )


def test_three_cloned_judges_count_as_about_one_in_the_consensus() -> None:
    for seed in range(3):
        once, thrice = (weight(*evidence_of(votes, seed)) for votes in (1, 3))
        assert thrice <= 1.2 * once


def test_judges_become_models_whose_answers_are_predictions() -> None:
    labels = Annotations.from_matrix([[0, 1, -1], [1, 1, 0], [2, -1, 2]], classes=["a", "b", "c"])
    assert labels.annotators[1:] == (1, 2)
    made = Evidence(labels).with_judges(["1", "2", "9"])
    assert (made.annotations.annotators, made.annotations.labels_per_annotator.tolist()) == ((0,), [3])
    middle = Evidence(labels).with_judges(["1"]).annotations
    assert (middle.annotators, middle.labels_per_annotator.tolist()) == ((0, 2), [3, 2])
    assert middle.annotator.tolist() == [0, 0, 1, 0, 1]
    assert list(made.probabilities) == ["1", "2"]
    assert made.probabilities["1"][0].tolist() == [0.125, 0.75, 0.125]
    assert np.isnan(made.probabilities["2"][0]).all()
    assert Evidence(labels).with_judges([]).probabilities == {}


# -- the command ---------------------------------------------------------------------------------------------


def write(made: Panel, folder: Path) -> None:
    """labels.csv of a panel: people, and judges as annotators."""
    labels = made.evidence.annotations
    rows = ["item,annotator,label"]
    rows += [
        f"{labels.items[n]},ann,{labels.classes[label]}" for n, label in zip(labels.item, labels.label, strict=True)
    ]
    for name, p_nj in made.evidence.probabilities.items():
        rows += [
            f"{item},{name},{labels.classes[j]}" for item, j in zip(labels.items, p_nj.argmax(axis=1), strict=True)
        ]
    (folder / "labels.csv").write_text("\n".join(rows) + "\n")


NAMED = [word for name in JUDGES for word in ("--judge", name)]


def test_the_command_says_what_is_known_and_writes_a_page(run: Run, tmp_path: Path) -> None:
    made = panel("clones", 1, items=300, read=120)
    write(made, tmp_path)
    code, out, err = run("judge", "labels.csv", *NAMED, "--page", "judges.html", "--output", "next.csv")
    assert (code, err) == (0, "")
    assert "of 300 items" in out
    assert "worth 1." in out
    assert "rest on 120 items that people read and that a random order begins with" in out
    page = Path("judges.html").read_text()
    assert all(name in page for name in (*JUDGES, "worth 1.", "What people should read next"))
    assert len(Path("next.csv").read_text().splitlines()) == 51
    found = json.loads(run("judge", "labels.csv", *NAMED, "--next", "3", "--json")[1])
    direct = of(made, many=3)
    assert direct.passing is not None
    assert found["pass_rate"]["share"] == pytest.approx(direct.passing.share)
    assert {one["judge"] for one in found["judges"]} == set(JUDGES)
    assert found["losses"] == pytest.approx(direct.losses)
    assert f"Counted as {min(direct.losses, key=direct.losses.__getitem__)}, judges predict" in out
    assert [one["item"] for one in found["next"]] == [made.evidence.annotations.items[one.item] for one in direct.next]


def test_a_pipeline_stops_where_too_few_pass_or_too_little_is_known(run: Run, tmp_path: Path) -> None:
    write(panel("independent", 2, items=300, read=120), tmp_path)
    share = json.loads(run("judge", "labels.csv", *NAMED, "--json")[1])["pass_rate"]["share"]
    for requirement, code, state in (
        (f"pass_rate >= {share - 0.15:.2f}", 0, "met"),
        (f"pass_rate>={100 * share + 15:.0f}%", 1, "not met"),
        (f"pass_rate <= {share - 0.15:.2f}", 1, "not met"),
        (f"pass_rate >= {share:.2f}", 3, "open"),
        ("claude >= 0.3", 0, "met"),
        ("worth >= 1", 0, "met"),
    ):
        done, out, _ = run("judge", "labels.csv", *NAMED, "--require", requirement)
        assert (done, f"{requirement}: {state}" in out) == (code, True)
    for wrong in ("pass_rate = 0.9", "pass_rate >= many", "nobody >= 0.5"):
        code, _, err = run("judge", "labels.csv", *NAMED, "--require", wrong)
        assert (code, "--require" in err) == (BadSettings.exit_code, True)


def test_a_judge_named_as_a_figure_hides_none(run: Run, tmp_path: Path) -> None:
    write(panel("independent", 2, items=60, read=30), tmp_path)
    text = Path("labels.csv").read_text()
    Path("labels.csv").write_text(text.replace(f",{JUDGES[0]},", ",worth,"))
    named = [word if word != JUDGES[0] else "worth" for word in NAMED]
    assert run("judge", "labels.csv", *named, "--require", "pass_rate >= 0.01")[0] == 0
    code, _, err = run("judge", "labels.csv", *named, "--require", "worth >= 0.5")
    assert (code, "--require worth: a judge has this name too" in err) == (BadSettings.exit_code, True)


def test_a_class_with_a_comma_may_pass(run: Run, tmp_path: Path) -> None:
    rows = ["item,annotator,label", 'a,gpt,"yes, mostly"', "a,ann,no", "b,gpt,no", 'b,ann,"yes, mostly"', "c,gpt,yes"]
    Path("labels.csv").write_text("\n".join(rows) + "\n")
    code, out, err = run("judge", "labels.csv", "--judge", "gpt", "--pass", '"yes, mostly", yes', "--json")
    assert (code, json.loads(out)["passing"]) == (0, ["yes, mostly", "yes"]), err


def test_who_is_a_judge_and_what_passes_must_be_known(run: Run, tmp_path: Path) -> None:
    write(panel("independent", 2, items=60, read=30), tmp_path)
    code, _, err = run("judge", "labels.csv")
    assert (code, "no judge" in err) == (BadEvidence.exit_code, True)
    code, _, err = run("judge", "labels.csv", "--judge", "nobody")
    assert (code, "--judge nobody" in err) == (BadSettings.exit_code, True)
    code, _, err = run("judge", "labels.csv", *NAMED, "--pass", "maybe")
    assert (code, "--pass maybe: no such class" in err) == (BadSettings.exit_code, True)
    Path("stars.csv").write_text("item,annotator,label\na,gpt,one\na,ann,two\nb,gpt,two\n")
    code, _, err = run("judge", "stars.csv", "--judge", "gpt")
    assert (code, "which classes pass" in err) == (BadSettings.exit_code, True)


def test_in_a_project_the_judges_are_those_of_the_crew_and_count_as_models(run: Run, tmp_path: Path) -> None:
    write(panel("clones", 4, items=200, read=60), tmp_path)
    code, _, err = run("init", "labels.csv")
    assert code == 0, err
    settings = Path("hitl.toml").read_text()
    Path("hitl.toml").write_text(settings.replace("[crew]", f"[crew]\njudges = {list(JUDGES)}"))
    assert run("run")[0] == 0
    found = json.loads(run("judge", "--json")[1])
    assert {one["judge"] for one in found["judges"]} == set(JUDGES)
    assert (found["read"], found["drawn"]) == (60, 60)
    code, out, _ = run("models", "--json")
    assert code == 0
    assert set(json.loads(out)["questions"]["label"]["models"]) == set(JUDGES)
