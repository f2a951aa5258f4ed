"""Human and model in the report: the figures are those of the profile, names are harmless, the page stays small."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from hitl.annotations import Annotations
from hitl.consensus import Consensus
from hitl.evidence import Evidence
from hitl.models import PLEM, VBIBCC, DefaultCombiner
from hitl.models.analysis.complementarity import judge
from hitl.models.analysis.model_profile import ModelProfile, ModelProfiler
from hitl.report import QuestionPage, Report, models, render
from tests.report.samples import EVIL, Page, require_valid_figure, sample, seen


def asked(n: int = 500, names: tuple[str, ...] = ("cat", "dog", "cow"), model: str = "net", seed: int = 3):
    """(evidence, truth): a model that is too sure and bad at the last class, five people who are not."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(len(names), size=n).astype(np.int32)
    said = np.where(rng.random((n, 5)) < 0.8, truth[:, None], rng.integers(len(names), size=(n, 5)))
    said[rng.random((n, 5)) < 0.6] = -1
    logits = rng.normal(size=(n, len(names))) + 2.5 * np.eye(len(names))[truth] * (truth < 2)[:, None]
    p = np.exp(2 * logits)
    annotations = Annotations.from_matrix(said, classes=names)
    return Evidence(annotations, {model: p / p.sum(axis=1, keepdims=True)}), truth


@pytest.fixture(scope="module")
def page() -> QuestionPage:
    evidence, truth = asked()
    return QuestionPage("animal", evidence, DefaultCombiner().fit(evidence), truth=truth)


@pytest.fixture(scope="module")
def profile(page: QuestionPage) -> ModelProfile:
    return ModelProfiler().fit(page.evidence, page.consensus, truth=page.truth)


@pytest.fixture(scope="module")
def section(page: QuestionPage) -> models.ModelsSection:
    found = models.models_section(page)
    assert found is not None
    return found


def test_the_section_is_the_profile(profile: ModelProfile, section: models.ModelsSection) -> None:
    account = profile.measured
    assert account is not None
    shown = section.profile.measured
    assert shown is not None
    for name in ("overall", "classes", "confidence", "calibration", "deferral", "dependence"):
        pd.testing.assert_frame_equal(getattr(shown, name), getattr(account, name))
    assert (shown.items, shown.bound, shown.error) == (account.items, account.bound, account.error)
    assert section.classes.equals(account.classes.sort_values("people_add", ascending=False))


def test_the_page_says_it(page: QuestionPage, section: models.ModelsSection) -> None:
    text = seen(page).text
    account = section.profile.best
    assert f"Measured on {account.items} items with known answers" in text
    row = section.classes.iloc[0]
    assert row["class"] == "cow"
    words = f"cow {row['items']:.0f} {row['model'] * 100:.1f} % {row['model_low'] * 100:.0f} % to"
    assert words in text.replace("\u00a0", " ")
    assert f"{row['people_add'] * 100:+.1f} {row['people_add_low'] * 100:+.1f} to" in text
    assert "Theorem" not in text  # for docs and `hitl models`, not for a lead's page
    assert f"Does the model help? {section.profile.verdict}." in text
    assert section.skips.gold == page.evidence.annotations.n_items
    assert f"Which items need no annotator? {section.skips.statement}" in text


def test_without_truth_the_page_says_that_the_consensus_judges_itself(page: QuestionPage) -> None:
    text = seen(replace(page, truth=None)).text
    assert "by the consensus, which believes itself" in text
    assert "truth as the consensus has it" in text
    assert "Measured on" not in text


def test_the_model_helps_only_where_its_interval_excludes_zero() -> None:
    """Clear gain, clear harm, too few known items to tell, and none at all, by the interval of the gain."""
    evidence, truth = asked(900)
    consensus = DefaultCombiner().fit(evidence)
    profile = ModelProfiler().fit(evidence, consensus, truth=truth)
    assert profile.measured is not None

    def verdict(gain: float, low: float, high: float) -> str:
        assert profile.measured is not None
        overall = profile.measured.overall.assign(model_adds=gain, model_adds_low=low, model_adds_high=high)
        return replace(profile, measured=replace(profile.measured, overall=overall)).verdict

    assert verdict(0.13, 0.05, 0.2).startswith("Yes: it adds +13.0 points to the annotators' accuracy (+5.0 to +20.0;")
    assert verdict(0.13, -0.05, 0.3).startswith("Can't tell yet: it adds +13.0 points")
    assert verdict(-0.1, -0.2, -0.01).startswith("No, it harms")
    assert replace(profile, measured=None).verdict.startswith(
        "Can't tell yet: 10 or more answered gold items would tell"
    )
    row = profile.measured.overall.iloc[0]
    assert f"({row['model_adds_low'] * 100:+.1f} to {row['model_adds_high'] * 100:+.1f}; " in profile.verdict


def test_a_class_has_a_row_from_30_items_on() -> None:
    evidence, truth = asked(300, tuple(f"class {j}" for j in range(12)))
    page = QuestionPage("q", evidence, DefaultCombiner().fit(evidence), truth=truth)
    found = models.models_section(page)
    assert found is not None
    few = found.profile.best.classes.query("0.5 <= items < 30")["class"]
    assert len(few) > 0
    assert not set(few) & set(found.classes["class"])


def test_truth_of_the_fit_is_hidden_item_by_item() -> None:
    evidence, truth = asked()
    known = replace(evidence, truth=np.where(np.arange(500) < 200, truth, -1).astype(np.int32))
    given = QuestionPage("animal", known, DefaultCombiner().fit(known))
    found = models.models_section(given)
    assert found is not None
    expected, shown = ModelProfiler().fit(known, given.consensus).measured, found.profile.measured
    assert expected is not None
    assert shown is not None
    assert shown.items == expected.items < 200 + 1
    assert shown.overall["both"][0] == expected.overall["both"][0] < 1


def test_truth_the_fit_was_not_told_measures_without_a_refit(monkeypatch: pytest.MonkeyPatch) -> None:
    evidence, truth = asked()
    consensus = PLEM().fit(evidence)
    monkeypatch.setattr(PLEM, "fit", None)
    found = models.models_section(QuestionPage("animal", replace(evidence, truth=truth), consensus))
    assert found is not None
    judged = judge(evidence, consensus)
    assert found.profile.best.overall["both"][0] == pytest.approx((consensus.codes == truth)[judged.compared].mean())


def test_figures_show_the_tables(profile: ModelProfile, section: models.ModelsSection) -> None:
    account = profile.measured
    assert account is not None
    _, before, after = section.figures["calibration"]["data"]
    told = account.calibration
    for trace, when in ((before, "before"), (after, "after")):
        rows = told[told["when"] == when]
        assert trace["x"] == pytest.approx(rows["confidence"].tolist(), abs=1e-4)
        assert trace["y"] == pytest.approx(rows["accuracy"].tolist(), abs=1e-4)
        assert np.add(trace["y"], trace["error_y"]["array"]) == pytest.approx(rows["high"].to_numpy(), abs=2e-4)
        assert np.subtract(trace["y"], trace["error_y"]["arrayminus"]) == pytest.approx(rows["low"], abs=2e-4)
    by_class = section.figures["by-class"]
    order = by_class["layout"]["yaxis"]["ticktext"]
    assert order[-1] == "cow"  # on top: where people add most
    for trace, who in zip(by_class["data"], ("model", "people", "both"), strict=True):
        told_x = account.classes.set_index("class")[who][order]
        assert trace["x"] == pytest.approx(told_x.tolist(), abs=1e-4)
        assert np.round(trace["y"]).tolist() == list(range(3))
    by_confidence = section.figures["by-confidence"]
    for trace, who in zip(by_confidence["data"], ("model", "people", "both"), strict=True):
        assert trace["y"] == pytest.approx(account.confidence[who].tolist(), abs=1e-4)
    low, high, everything, skipped = section.figures["deferral"]["data"]
    for trace, name in ((low, "low"), (high, "high"), (everything, "accuracy")):
        assert trace["y"] == pytest.approx(account.deferral[name].tolist(), abs=1e-4)
    assert skipped["y"][0] is None
    assert skipped["y"][1:] == pytest.approx(account.deferral["skipped"].tolist()[1:], abs=1e-4)


def test_figures_are_valid_plotly_and_each_has_its_place(page: QuestionPage, section: models.ModelsSection) -> None:
    found = seen(page, page)
    places = {a["id"] for _, a in found.tags if "plot" in (a.get("class") or "").split()}
    names = {f"q2-{name}" for name in section.figures}
    assert names <= places
    assert names <= set(found.data["figures"])
    for name in names:
        require_valid_figure(found.data["figures"][name])


def test_names_from_outside_do_no_harm() -> None:
    evidence, truth = asked(200, (EVIL, "b</style>", "c"), model=EVIL)
    html = render(Report("T", (QuestionPage("q", evidence, DefaultCombiner().fit(evidence), truth=truth),)))
    assert EVIL not in html
    assert "<script" not in json.dumps(Page(html).data["figures"])


@pytest.mark.journey
def test_of_many_classes_those_where_annotators_add_most_are_shown() -> None:
    evidence, truth = asked(2400, tuple(f"class {j}" for j in range(40)))
    page = QuestionPage("q", evidence, DefaultCombiner().fit(evidence), truth=truth)
    found = models.models_section(page)
    assert found is not None
    assert len(found.figures["by-class"]["layout"]["yaxis"]["ticktext"]) == models.CLASSES < len(found.classes) == 40
    assert found.classes["people_add"].is_monotonic_decreasing
    assert f"the {models.CLASSES} of 40 where annotators add most" in seen(page).text
    assert len(json.dumps(found.figures)) < 60_000


@pytest.mark.filterwarnings("ignore::hitl.errors.IgnoredEvidence")  # a method that takes no model is the point
def test_no_model_no_method_that_takes_one_nobody_asked() -> None:
    plain, _ = sample()
    assert models.models_section(plain) is None
    evidence, _ = asked(60)
    for method in (VBIBCC(), PLEM()):
        consensus: Consensus = method.fit(evidence)
        assert (models.models_section(QuestionPage("q", evidence, consensus)) is None) == (method == VBIBCC())
    unknown = replace(PLEM().fit(evidence), fit=replace(PLEM().fit(evidence).fit, method="somebody else's"))
    assert models.models_section(QuestionPage("q", evidence, unknown)) is None
    nobody = replace(evidence, annotations=evidence.annotations.select(np.zeros(len(evidence.annotations), bool)))
    assert models.models_section(QuestionPage("q", nobody, PLEM().fit(nobody))) is None
    assert "Human and model" not in seen(plain).text
