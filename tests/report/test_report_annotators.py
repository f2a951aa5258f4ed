"""Annotators in the report: the figures are those of the profile, and names are harmless."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from hitl.annotations import Annotations
from hitl.evidence import Evidence
from hitl.models import VBIBCC
from hitl.models.analysis.annotator_profile import AnnotatorProfiler
from hitl.report import QuestionPage, Report, annotators, render
from hitl.report.annotators import AnnotatorsSection
from tests.report.samples import EVIL, Page, combined, pool, require_valid_figure, sample, seen


def crowd(n: int = 400, names: str = "person {}", options: tuple[str, ...] = ("cat", "dog")) -> QuestionPage:
    """Fourteen who work, one of them worse with time, five who nearly always say dog, one who says anything."""
    rng = np.random.default_rng(0)
    truth, when = rng.integers(2, size=n), np.sort(rng.random(n)) * 86400 * 100 + 1.7e9
    right = np.full((n, 20), 0.9)
    right[n // 2 :, 3] = 0.55
    said = np.where(rng.random((n, 20)) < right, truth[:, None], 1 - truth[:, None])
    said[:, 14:19] = rng.random((n, 5)) < 0.93
    said[:, 19] = rng.random(n) < 0.4
    said[rng.random((n, 20)) < 0.5] = -1
    annotations = Annotations.from_matrix(said)
    annotations = replace(
        annotations,
        annotators=tuple(names.format(k) for k in range(20)),
        classes=options,
        options=options,
        time=when[annotations.item],
    )
    evidence = Evidence(annotations)
    return QuestionPage("animal", evidence, VBIBCC().fit(evidence))


@pytest.fixture(scope="module")
def page() -> QuestionPage:
    return crowd()


@pytest.fixture(scope="module")
def section(page: QuestionPage) -> AnnotatorsSection:
    found = annotators.annotators_section(page)
    assert found is not None
    return found


def test_the_section_is_the_profile(page: QuestionPage, section: AnnotatorsSection) -> None:
    found = AnnotatorProfiler().fit(page.evidence, page.consensus)
    flagged = [k for k in np.argsort(-found.people.labels, kind="stable") if found.flags(int(k))]
    assert list(section.flagged) == flagged
    assert [group.size for group, _ in section.groups] == found.communities.sizes.tolist()
    assert [found.names[k] for k in section.changed] == ["person 3"]
    for g, (group, names) in enumerate(section.groups):
        assert len(names) == min(group.size, annotators.MEMBERS)
        assert {found.communities.main[found.names.index(name)] for name in names} == {g}


def test_the_page_says_it(page: QuestionPage, section: AnnotatorsSection) -> None:
    text = seen(page).text
    found = section.profiles
    assert f"Krippendorff's alpha {found.agreement.alpha:.2f}" in text
    assert "always 'dog'" in text
    assert "random answers" in text
    assert "almost always say 'dog'" in text
    assert "Whose accuracy changed, of 20 tested" in text
    change = found.changes[3]
    assert change is not None
    when = annotators.day(change.when)
    assert when.startswith("2024-01")
    assert f"person 3 {when} {change.before * 100:.0f} % {change.after * 100:.0f} %" in text
    for k in section.flagged:
        figures = f"{found.people.labels[k]} {found.people.accuracy[k] * 100:.0f} %"
        assert f"{found.names[k]} {figures} {'; '.join(found.flags(k))}" in text


def test_everybody_clearly_less_accurate_than_the_others_needs_training() -> None:
    """Ten annotators, three of whom are right less often: no spammers, but the people to talk to."""
    rng = np.random.default_rng(3)
    accuracy = np.array([0.95, 0.93, 0.94, 0.92, 0.95, 0.93, 0.94, 0.7, 0.65, 0.72])
    truth = rng.integers(3, size=500)
    wrong = (truth[:, None] + rng.integers(1, 3, (500, 10))) % 3
    annotations = Annotations.from_matrix(np.where(rng.random((500, 10)) < accuracy, truth[:, None], wrong))
    evidence = Evidence(annotations)
    page = QuestionPage("animal", evidence, VBIBCC().fit(evidence))
    section = annotators.annotators_section(page)
    assert section is not None
    assert sorted(section.flagged) == [7, 8, 9]
    sentence = annotators.who_needs_training(section)
    low, high = (end[8] * 100 for end in page.consensus.annotators.interval)
    right = page.consensus.annotators.accuracy[8] * 100
    assert f"8, {right:.0f} % right ({low:.0f} to {high:.0f} %; right less often than most others)" in sentence
    assert f"Who needs training? {sentence}" in seen(page).text
    strict = annotators.annotators_section(replace(page, least_accuracy=0.99))
    assert strict is not None
    assert len(strict.flagged) == 10
    assert strict.profiles.flags(0) == ["below the required 99 %"]


def test_nobody_of_equals_needs_training_and_neither_does_who_became_better() -> None:
    rng = np.random.default_rng(4)
    n = 600
    truth, right = rng.integers(2, size=n), np.full((n, 8), 0.9)
    right[: n // 2, 2] = 0.6
    said = np.where(rng.random((n, 8)) < right, truth[:, None], 1 - truth[:, None])
    annotations = Annotations.from_matrix(said)
    annotations = replace(annotations, time=annotations.item.astype(float))
    evidence = Evidence(annotations)
    profiles = AnnotatorProfiler().fit(evidence, VBIBCC().fit(evidence))
    assert profiles.drifts[2]
    assert any(flag.startswith("better over time") for flag in profiles.flags(2))
    assert not any(profiles.needs_training(k) for k in range(8) if k != 2)
    assert profiles.needs_training(2) == bool(profiles.behind[2])


def test_the_forest_holds_everybody_with_labels_best_on_top(page: QuestionPage, section: AnnotatorsSection) -> None:
    report = page.consensus.annotators
    figure = section.figures["forest"]
    at = [(y, x) for trace in figure["data"] for y, x in zip(trace["y"], trace["x"], strict=True)]
    assert sorted(y for y, _ in at) == list(range(20))
    assert [x for _, x in sorted(at)] == pytest.approx(np.sort(report.accuracy), abs=1e-4)
    ticks = figure["layout"]["yaxis"]["ticktext"]
    assert ticks == [f"person {k}" for k in np.argsort(report.accuracy, kind="stable")]
    crosses = {
        ticks[y]
        for trace in figure["data"]
        for y, symbol in zip(trace["y"], trace["marker"]["symbol"], strict=True)
        if symbol == "x"
    }
    assert crosses == {section.profiles.names[k] for k in section.flagged}
    low, high = report.interval
    for trace in figure["data"]:
        for x, y, up, down in zip(
            trace["x"], trace["y"], trace["error_x"]["array"], trace["error_x"]["arrayminus"], strict=True
        ):
            k = int(ticks[y].split()[1])
            assert (x - down, x + up) == pytest.approx((low[k], high[k]), abs=2e-4)


def test_the_map_is_symmetric_ordered_and_framed_by_group(section: AnnotatorsSection) -> None:
    figure = section.figures["similarity"]
    z = np.array(figure["data"][0]["z"])
    assert z.shape == (20, 20)
    assert z == pytest.approx(z.T, abs=0.011)
    assert np.diag(z) == pytest.approx(1)
    frames = figure["layout"]["shapes"]
    assert len(frames) == len(section.groups)
    assert sum(frame["x1"] - frame["x0"] for frame in frames) == 20
    inside = np.zeros(z.shape, bool)
    for frame in frames:
        rows = slice(int(frame["x0"] + 0.5), int(frame["x1"] + 0.5))
        inside[rows, rows] = True
    assert z[inside].mean() > z[~inside].mean() + 0.2


def test_drift_is_drawn_in_days_with_the_windows(section: AnnotatorsSection) -> None:
    figure = section.figures["drift"]
    (line,) = [trace for trace in figure["data"] if trace.get("name")]
    assert line["name"] == "person 3"
    early, late = (np.mean(part) for part in np.array_split(line["y"], 2))
    assert early > 0.8 > 0.7 > late
    assert line["x"] == sorted(line["x"])
    assert line["x"][0].startswith("2023-11")
    assert [note["text"] for note in figure["layout"]["annotations"]] == ["person 3"]


def test_figures_are_valid_plotly_and_each_has_its_place(page: QuestionPage, section: AnnotatorsSection) -> None:
    found = seen(page, page)
    places = {a["id"] for _, a in found.tags if "plot" in (a.get("class") or "").split()}
    assert places == set(found.data["figures"]) | {"q1-confusion", "q2-confusion"}
    names = {f"q1-{name}" for name in section.figures}
    assert {"q1-forest", "q1-similarity", "q1-group-1", "q1-group-2", "q1-drift"} <= names <= set(found.data["figures"])
    for name in names:
        require_valid_figure(found.data["figures"][name])


def test_names_from_outside_do_no_harm() -> None:
    html = render(Report("T", (crowd(names=f"{EVIL}{{}}", options=(EVIL, "b</style>")),)))
    found = Page(html)
    assert EVIL not in html
    assert "<script" not in json.dumps(found.data["figures"])
    assert f"almost always say '{EVIL}'" in found.text or "almost always say 'b</style>'" in found.text


def test_of_large_crowds_the_busiest_are_shown() -> None:
    page, _ = sample(n=10_000, k=1_000, classes=("a", "b", "c"))
    found = annotators.annotators_section(page)
    assert found is not None
    assert sum(len(trace["y"]) for trace in found.figures["forest"]["data"]) == annotators.FOREST
    assert len(json.dumps(found.figures)) < 300_000


@pytest.mark.parametrize("labels", [0, 1])
def test_hardly_anything_known(labels: int) -> None:
    if not labels:
        assert annotators.annotators_section(pool(n_annotators=2)) is None
        assert "What the annotators are like" not in seen(pool(n_annotators=2)).text
        return
    annotations = Annotations.from_matrix(np.array([[0]]), classes=("a", "b"))
    text = seen(QuestionPage("q", Evidence(annotations), combined(annotations))).text
    assert "What the annotators are like" in text
    assert "Krippendorff" not in text
    assert "No one. No annotator is clearly worse" in text


def test_a_consensus_over_other_people_leaves_the_section_out() -> None:
    page, _ = sample()
    others = replace(page.consensus.annotators, names=tuple(f"other {k}" for k in range(7)))
    assert annotators.annotators_section(replace(page, consensus=replace(page.consensus, annotators=others))) is None


def test_times_that_are_no_dates_are_shown_as_they_are() -> None:
    assert annotators.day(1e300) == "1e+300"
    assert annotators.day(0.0) == "1970-01-01"
