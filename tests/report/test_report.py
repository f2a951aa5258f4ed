"""The report page: its figures equal those computed directly, and nothing from outside runs or loads."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest

import hitl
from hitl.annotations import Annotations
from hitl.consensus import Fit
from hitl.errors import BadInput, BadTable
from hitl.evidence import Evidence
from hitl.models.analysis.complementarity import reliability
from hitl.plan import Ask, Done, Plan
from hitl.report import Curve, Cycle, QuestionPage, Report, measures, plots, render, write
from hitl.report.page import percent
from tests.report.samples import EVIL, WHEN, Page, combined, pool, require_valid_figure, sample, seen

# -- figures ---------------------------------------------------------------------------------------------------


def test_headline_equals_what_is_computed_directly():
    page, truth = sample()
    done = tuple(Done(f"item-{i}", ("cat",), 0.9, "sure") for i in range(15))
    text = seen(replace(page, truth=truth), plan=Plan((), done, 45)).text
    right = int((page.consensus.codes == truth).sum())
    for words in (
        "60 items",
        "300 labels",
        "5.0 per item",
        "7 annotators",
        "25.0 % items done",
        f"{right / 60 * 100:.1f} % accuracy",
        f"measured: {right} of 60 gold items right",
    ):
        assert words in text, words


def test_a_truth_used_in_the_fit_is_not_measured():
    page, truth = sample()
    certain = replace(page.consensus, probabilities=np.eye(2)[truth])
    given = replace(page, evidence=replace(page.evidence, truth=truth), consensus=certain)
    text = seen(given).text
    assert "measured:" not in text
    assert "used in the fit" in text
    assert "measured:" in seen(replace(page, evidence=replace(page.evidence, truth=truth))).text


def test_held_out_truth_leaves_out_the_items_given_to_the_fit():
    page, truth = sample()
    given = np.where(np.arange(60) < 20, truth, -1)
    held_out = measures.held_out_truth(replace(page, evidence=replace(page.evidence, truth=given), truth=truth))
    right = int((page.consensus.codes == truth)[20:].sum())
    assert measures.accuracy_of(page, held_out).basis == f"measured: {right} of 40 gold items right"


def test_confidence_histogram_counts_every_item_once():
    page, _ = sample(classes=("a", "b", "c"))
    bar = seen(page).data["figures"]["q1-confidence"]["data"][0]
    assert sum(bar["y"]) == 60
    edges = bar["customdata"]
    assert edges[0][0] == pytest.approx(1 / 3, abs=1e-3)
    assert edges[-1][1] == 1
    inside = (page.consensus.confidence >= edges[-1][0]).sum()
    assert bar["y"][-1] == inside


def test_reliability_bins_hold_all_items_and_the_gap_is_theirs():
    rng = np.random.default_rng(0)
    confidence = np.round(rng.uniform(0.5, 1, 500), 2)  # with ties
    right = rng.random(500) < confidence
    bins = reliability(confidence, right)
    assert bins["items"].sum() == 500
    assert bins["items"] @ bins["accuracy"] == pytest.approx(right.sum())
    assert bins["items"] @ bins["confidence"] == pytest.approx(confidence.sum())
    assert bins["confidence"].is_monotonic_increasing
    assert measures.calibration_error(bins) < 0.1
    assert measures.calibration_error(reliability(np.full(50, 0.9), np.zeros(50, bool))) == pytest.approx(0.9)
    assert np.isnan(measures.calibration_error(reliability(np.zeros(0), np.zeros(0, bool))))


def test_annotator_table_equals_the_consensus():
    page, _ = sample()
    people, found = page.consensus.annotators, seen(page)
    shown = [int(a["data-annotator"] or -1) for _, a in found.tags if "data-annotator" in a]
    assert shown == sorted(range(7), key=lambda k: -people.labels[k])
    assert len(set(people.labels)) > 1
    low, high = people.interval
    for k, name in enumerate(people.names):
        row = f"{name} {people.labels[k]} {people.accuracy[k] * 100:.1f} % {low[k] * 100:.0f} % to {high[k] * 100:.0f}"
        assert row in found.text


def test_typical_confusion_is_the_most_frequent_wrong_answer():
    confusion = np.array([[[0.7, 0.3, 0.0], [0.0, 0.5, 0.5]], [[0.2, 0.8, 0.0], [0.1, 0.8, 0.1]]])
    true, said, often = measures.typical_confusions(confusion, np.array([0.9, 0.1]))
    assert true.tolist() == [0, 0]
    assert said.tolist() == [1, 1]
    assert often.tolist() == [0.3, 0.8]
    true, said, _ = measures.typical_confusions(confusion, np.array([0.1, 0.9]))
    assert (true[0], said[0]) == (1, 2)  # "unsure" is a wrong answer too


def test_confusions_for_the_heat_map():
    page, _ = sample(unsure=True)
    found = seen(page).data["confusions"]["q1"]
    annotations, q_nj = page.evidence.annotations, page.consensus.probabilities
    pooled = np.zeros((2, 3))
    for n, option in zip(annotations.item, annotations.label, strict=True):
        pooled[:, option] += q_nj[n]
    pooled /= pooled.sum(axis=1, keepdims=True)
    assert np.array(found["pooled"]) / 1000 == pytest.approx(pooled.ravel(), abs=1e-3)
    for k in range(7):
        expected = page.consensus.annotators.confusion[k].ravel()
        assert np.array(found["annotators"][str(k)]) / 1000 == pytest.approx(expected, abs=1e-3)
    assert found["options"] == ["cat", "dog", "unsure"]


def test_contested_items_are_those_in_doubt_least_confident_first():
    matrix = np.array([[0, 0, 0, 0], [0, 1, 0, 1], [1, -1, -1, -1], [0, 0, 0, 1], [1, 1, 0, 0], [-1, -1, -1, -1]])
    annotations = Annotations.from_matrix(matrix, classes=("no", "yes"))
    p = np.array([0.99, 0.7, 0.6, 0.95, 0.99, 0.5])
    consensus = replace(combined(annotations), probabilities=np.column_stack([p, 1 - p]))
    assert measures.contested(Evidence(annotations), consensus).tolist() == [1, 4]
    page = QuestionPage("q", Evidence(annotations), consensus, {1: "is it so?"})
    (row,) = measures.contested_rows(page, np.array([1]), np.array([-1, 1, -1, -1, -1, -1]))
    assert (row["item"], row["label"], row["truth"]) == (1, "no", "yes")
    votes = [(vote["name"], vote["share"], sorted(vote["annotators"])) for vote in row["votes"]]
    assert votes == [("no", 0.5, [0, 2]), ("yes", 0.5, [1, 3])]
    text = seen(page).text
    assert "1 is it so?" in text
    assert "no × 2:" in text


def test_plan_is_shown_in_serving_order_with_reasons():
    page, _ = sample()
    asks = tuple(Ask(f"item-{i}", None if i % 2 else "person 3", 0.5 - i / 100, 0.8, f"because {i}") for i in range(40))
    done = (Done("item-50", ("cat",), 0.97, "sure enough"), Done("item-51", ("dog",), 0.98, "sure enough"))
    text = seen(page, plan=Plan(asks, done, 58)).text
    assert "first 25 of 40 questions" in text
    assert "anyone" in text
    assert text.index("because 0") < text.index("because 1") < text.index("because 24")
    assert "because 25" not in text
    assert "2 × sure enough" in text
    assert "2 of 60 items (3.3 %)" in text


def test_each_annotator_has_a_link_to_their_questions():
    page, _ = sample()
    plan = Plan((Ask("item-1", "person 3", 0.5, 0.8, "w"), Ask("item-2", "person 3", 0.5, 0.8, "w")), (), 60)
    address = "http://localhost:8080/projects/1/data?tab=7"
    found = seen(page, plan=plan, links={"person 3": address})
    assert f"person 3 2 {address}" in found.text
    assert address in {a.get("href") for tag, a in found.tags if tag == "a"}
    evil = seen(page, plan=plan, links={"person 3": "javascript:alert(1)"})
    assert not [a for tag, a in evil.tags if tag == "a" and not (a["href"] or "").startswith("#")]


def test_models_and_how_sure_they_are():
    page, _ = sample()
    p_nj = np.tile([0.9, 0.1], (60, 1))
    p_nj[40:] = np.nan
    evidence = replace(page.evidence, probabilities={"resnet": p_nj})
    page = replace(page, evidence=evidence, consensus=replace(page.consensus, temperatures={"resnet": 1.8}))
    agree = (page.consensus.codes[:40] == 0).mean()
    assert f"resnet 40 {agree * 100:.1f} % over-confident" in seen(page).text
    assert "over-confident" not in seen(sample()[0]).text


def test_curves_and_history_become_lines():
    page, _ = sample()
    x = np.array([0.0, 10, 20])
    banded = Curve("ours", x, np.array([0.5, 0.8, 0.9]), np.array([0.4, 0.7, 0.8]), np.array([0.6, 0.9, 1.0]))
    plain = Curve("random", x, np.array([0.5, np.nan, 0.9]))
    history = tuple(
        Cycle(i, WHEN + timedelta(hours=i), {"labels": 10 * i, "confidence": 0.7 + i / 50, "done": i / 10})
        for i in range(1, 4)
    )
    found = seen(page, curves=(banded, plain), history=history)
    figure = found.data["figures"]["curves"]
    named = {trace["name"]: trace for trace in figure["data"] if "name" in trace}
    assert named["ours"]["y"] == [0.5, 0.8, 0.9]
    assert named["random"]["y"] == [0.5, None, 0.9]
    assert sum("fill" in trace for trace in figure["data"]) == 1
    names = {note["text"]: note["y"] for note in figure["layout"]["annotations"]}
    assert set(names) == {"ours", "random"}
    assert abs(names["ours"] - names["random"]) > 0.03  # both lines end at 0.9: the names stand apart
    assert {t["name"] for t in found.data["figures"]["history"]["data"]} == {"mean confidence", "items done"}
    assert "3 2026-03-01 12:30 30 76.0 % – 30.0 %" in found.text


def test_figures_are_valid_plotly():
    page, truth = sample()
    x = np.array([0.0, 10])
    curve = Curve("ours", x, x / 20, x / 30, x / 15)
    history = (Cycle(1, WHEN, {"confidence": 0.5}), Cycle(2, WHEN, {"confidence": 0.6}))
    figures = seen(replace(page, truth=truth), curves=(curve,), history=history).data["figures"]
    assert set(figures) == {"curves", "history", "q1-confidence", "q1-reliability", "q1-forest"}
    for figure in figures.values():
        require_valid_figure(figure)


def test_every_colour_is_defined_for_light_and_dark():
    page, truth = sample()
    found = seen(replace(page, truth=truth), curves=tuple(Curve(str(i), np.ones(1), np.ones(1)) for i in range(9)))
    used = set(re.findall(r"--[a-z0-9]+", found.scripts[0] + found.scripts[-1]))
    light, dark = found.styles[0].split("prefers-color-scheme: dark")
    assert used
    for name in used:
        assert re.search(rf"{name}:\s*#[0-9a-f]{{6}};", light), name
        assert re.search(rf"{name}:\s*#[0-9a-f]{{6}};", dark[: dark.index("box-sizing")]), name


def test_the_verdict_comes_first_with_one_accuracy_and_a_table_of_contents():
    page, truth = sample()
    ahead = ("Believed accuracy: 91.0 %", "It is too early to forecast the number of answers to go.")
    found = seen(replace(page, truth=truth), plan=Plan((), (), 60), outlook=ahead, remaining=ahead[1:])
    heads = [found.text.index(words) for words in ("Where does it stand?", "Does the model help?", "What is left?")]
    assert heads == sorted(heads)
    assert heads[-1] < found.text.index("On this page:") < found.text.index("How sure the labels are")
    assert "0 of 60 items are done" in found.text
    assert "No model was given" in found.text
    assert "It is too early to forecast the number of answers to go." in found.text
    places = {a.get("id") for _, a in found.tags}
    assert {(a["href"] or "")[1:] for tag, a in found.tags if tag == "a"} <= places
    assert "believed accuracy" not in found.text


# -- safety ----------------------------------------------------------------------------------------------------


def evil_report() -> Report:
    names = tuple(f"{EVIL}{i}" for i in range(3))
    annotations = Annotations.from_matrix(np.array([[0, 1, 0], [1, 1, 0], [0, 1, 1]]), classes=(EVIL, "b</style>"))
    annotations = replace(annotations, items=names, annotators=tuple(f'"><img src=x onerror=1>{i}' for i in range(3)))
    consensus = combined(annotations, temperatures={EVIL: 2.0}, fit=Fit(EVIL))
    evidence = Evidence(annotations, {EVIL: np.full((3, 2), 0.5)}, truth=np.array([0, 1, -1]))
    page = QuestionPage(EVIL, evidence, consensus, {names[0]: f"{EVIL} <!-- text \ud800"})
    plan = Plan((Ask(names[0], EVIL, 0.5, 0.5, EVIL),), (Done(names[1], (EVIL, EVIL), 0.9, EVIL),), 2)
    curve = Curve(EVIL, np.arange(2.0), np.ones(2))
    return Report(EVIL, (page, page), plan, (curve,), subtitle=EVIL, command=EVIL, generated=WHEN)


def test_everything_from_outside_is_escaped():
    html = render(evil_report())
    clean = render(Report("T", (sample()[0], sample()[0]), curves=(Curve("a", np.arange(2.0), np.ones(2)),)))
    found = Page(html)
    assert len(found.scripts) == len(Page(clean).scripts)
    assert not [tag for tag, _ in found.tags if tag == "img"]
    assert not [name for _, attributes in found.tags for name in attributes if name.startswith("on")]
    assert EVIL not in html
    assert "<" not in found.scripts[0]
    assert EVIL in found.text  # shown as text, not lost
    # plotly reads text as HTML, so in the data names are escaped once more
    assert "<script" not in json.dumps(found.data["figures"])
    assert found.data["confusions"]["q1"]["classes"][0].startswith("&lt;script&gt;")


def test_the_page_loads_nothing(tmp_path):
    write(evil_report(), tmp_path / "page.html")
    found = Page((tmp_path / "page.html").read_text("utf-8"))
    loads = ("src", "srcset", "poster", "action", "data", "href", "xlink:href", "background")
    for tag, attributes in found.tags:
        for name in loads:
            value = attributes.get(name) or ""
            assert value == "" or value.startswith(("#", "data:")), (tag, name, value)
        assert "url(" not in (attributes.get("style") or "")
    assert not re.search(r"url\(|@import", " ".join(found.styles))
    policy = next(a["content"] for _, a in found.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert "default-src 'none'" in policy
    assert not re.search(r"https?:", policy)
    assert "plotly" not in " ".join(found.scripts).lower()


def test_every_place_for_a_figure_has_one_and_every_figure_a_place():
    page, truth = sample()
    found = seen(replace(page, truth=truth), page, curves=(Curve("a", np.arange(2.0), np.ones(2)),))
    places = {a["id"] for _, a in found.tags if "plot" in (a.get("class") or "").split()}
    assert places == set(found.data["figures"]) | {"q1-confusion", "q2-confusion"}


# -- shapes and sizes ------------------------------------------------------------------------------------------


def test_several_questions_have_a_section_each():
    (first, _), (second, _) = sample(), sample(n=40, k=9, classes=("a", "b", "c"), seed=1)
    plan = Plan((), (Done("item-0", ("cat", "b"), 0.9, "sure"),), 59)
    found = seen(first, replace(second, name="colour"), plan=plan)
    assert [a["id"] for tag, a in found.tags if tag == "section" and a.get("class") == "question"] == ["q1", "q2"]
    assert {"#q1", "#q2"} <= {a.get("href") for tag, a in found.tags if tag == "a"}
    assert "60 items" in found.text  # the same items, counted once
    assert "500 answers" in found.text
    assert "9 annotators" in found.text
    assert "animal: cat, colour: b" in found.text


@pytest.mark.parametrize("people", [0, 2])
def test_nothing_labeled_yet(people):
    text = seen(pool(n_annotators=people), plan=Plan(open_items=3)).text
    assert "0 answers" in text
    assert "0 annotators" in text
    assert "50.0 % accuracy" in text
    assert "believed, not checked: too few gold items" in text
    assert ("no answers yet" if people else "No annotator has labeled anything yet") in text


@pytest.mark.parametrize("truth", [0, 1])
def test_one_item_one_annotator(truth):
    annotations = Annotations.from_matrix(np.array([[0]]), classes=("a", "b"))
    page = QuestionPage("q", Evidence(annotations, truth=np.array([truth])), combined(annotations))
    text = seen(page, history=(Cycle(1, WHEN),)).text
    assert "1 item 1 answer 1.0 per item 1 annotator with" in text
    assert f"{1 - truth} of 1 gold items right" in text


def test_a_fit_that_did_not_converge_says_so():
    page, _ = sample()
    assert "before it converged" not in seen(page).text
    fit = Fit("dawid-skene", objective=(1.0, 2.0), converged=False)
    text = seen(replace(page, consensus=replace(page.consensus, fit=fit))).text
    assert "stopped after 2 iterations before it converged" in text
    assert "method dawid-skene" in text
    assert f"hitl {hitl.__version__}" in text


def test_large_pages_are_capped():
    page, truth = sample(n=10_000, k=1_000, classes=("a", "b", "c", "d"))
    texts = dict.fromkeys(page.consensus.items, "some text " * 100)
    html = render(Report("Large", (replace(page, texts=texts, truth=truth),)))
    assert len(html.encode()) < 3_200_000
    found = Page(html)
    assert "500 of 1,000 annotators" in found.text
    assert found.count("tr", "data-annotator") == 500


def test_many_classes_and_people_keep_the_page_small():
    page, _ = sample(n=300, k=400, classes=tuple(f"c{i}" for i in range(60)))
    html = render(Report("Wide", (page,)))
    assert len(html.encode()) < 3_200_000
    found = Page(html)
    selectable = found.count("tr", "data-annotator")
    assert 0 < selectable < 400
    assert len(found.data["confusions"]["q1"]["annotators"]) == selectable
    assert f"first {selectable} annotators" in found.text


# -- writing and checking --------------------------------------------------------------------------------------


def test_written_whole_or_not_at_all(tmp_path, monkeypatch):
    page, _ = sample()
    report = Report("Title", (page,), generated=WHEN)
    path = tmp_path / "report.html"
    write(report, path)
    assert path.read_text("utf-8") == render(report)
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        write(replace(report, title="Another title"), path)
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]
    assert "Another title" not in path.read_text("utf-8")
    monkeypatch.undo()
    with pytest.raises(BadTable, match="does not exist"):
        write(report, tmp_path / "absent" / "report.html")


def test_parts_that_do_not_fit_are_refused():
    (page, _), (other, _) = sample(), sample(n=59)
    with pytest.raises(BadInput, match="differ in their items"):
        QuestionPage("q", page.evidence, other.consensus)


def test_percent_never_rounds_to_certainty():
    found = [percent(x).replace("\u00a0", " ") for x in (0.0, 0.00001, 0.934, 0.99999, 1.0, float("nan"))]
    assert found == ["0 %", "0.1 %", "93.4 %", "99.9 %", "100 %", "–"]


def test_names_at_line_ends_are_apart_and_near():
    values = np.array([0.5, 0.9, 0.9, 0.91])
    spread = plots.spread(values, 0.05)
    assert np.diff(spread).min() >= 0.05 - 1e-12
    assert np.abs(spread - values).max() <= 0.05 * 3
