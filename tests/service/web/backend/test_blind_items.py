"""Items that are answered without a suggestion, and what the report and `hitl annotators` make of them."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Literal

import httpx
import numpy as np
import pytest

from hitl.connectors.label_studio import LabelStudioSettings
from hitl.connectors.label_studio.config import parse
from hitl.cycle import judge, record
from hitl.models.analysis.anchoring import is_blind
from hitl.platform import AnnotationRow, AnnotatorRow, ItemRow, Page, PredictionRow
from hitl.report import render
from hitl.report.stored import stored_report
from hitl.service.web.snapshot import snapshot_of
from hitl.settings import ServeSettings, Settings
from hitl.store import Store
from tests.command_line import Run
from tests.service.web.backend.served import PASSWORD, USER, One, application, rows, serving, stored

MOODS = ("good", "bad", "mixed")
CONFIG = """<View><Text name="text" value="$text"/><Choices name="mood" toName="text">
<Choice value="good"/><Choice value="bad"/><Choice value="mixed"/></Choices></View>"""
SETTINGS = Settings(
    name="p", source=LabelStudioSettings(url="http://localhost:1", project=1), serve=ServeSettings(blind_share=0.25)
)
ITEMS, PEOPLE = 400, ("ann", "bob", "cyd")
BLIND = {n for n in range(ITEMS) if is_blind("p", str(n), 0.25)}


def page(copies: float, raised: frozenset[int] = frozenset(), first: int = 0) -> Page:
    """Three people of accuracy .7 and a model of the same, which is copied so often where it is shown.

    Items below `first` were answered before there were suggestions, and `raised` under one before the share was raised.
    """
    rng, annotations, predictions, texts = np.random.default_rng(0), [], [], []
    for n in range(ITEMS):
        truth = int(rng.integers(3))
        model = truth if rng.random() < 0.7 else (truth + 1) % 3
        texts.append(f"{MOODS[truth]} text {n}")
        predictions.append(
            PredictionRow(str(n), "mood", "resnet", {one: 0.1 + 0.7 * (one == MOODS[model]) for one in MOODS})
        )
        for k, who in enumerate(PEOPLE):
            shown = n >= first and (n not in BLIND or n in raised)
            said = truth if rng.random() < 0.7 else int(rng.integers(3))
            said = model if shown and rng.random() < copies else said
            when = f"2026-11-23T{n // 60:02d}:{n % 60:02d}:0{k}Z"
            label = MOODS[said]
            annotations.append(
                AnnotationRow(f"{n}{who}", str(n), "mood", who, label, "answer", when, when, suggested=shown)
            )
    items = tuple(ItemRow(str(n), {"text": text}, "2026-11-23T00:00:00Z") for n, text in enumerate(texts))
    people = tuple(AnnotatorRow(who, who) for who in PEOPLE)
    return Page({}, items, tuple(annotations), tuple(predictions), people, frozenset(str(n) for n in range(ITEMS)))


def kept(folder: Path, one: Page, settings: Settings = SETTINGS) -> str:
    """The text of the report on these rows."""
    with Store(f"sqlite:///{folder}/hitl.db") as store:
        with store.lease("p") as lease:
            store.save_page(lease, one)
            store.note_questions(lease, parse(CONFIG).questions)
        html = render(stored_report(settings, store, parse(CONFIG).questions))
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", html))


def test_nothing_is_suggested_for_blind_items_and_something_for_the_others(tmp_path: Path) -> None:
    snapshot = stored(tmp_path, rows(40, {}, {n: {"mood": {"good": 0.9, "bad": 0.1}} for n in range(1, 41)}))
    serve = ServeSettings(blind_share=0.25)
    snapshot = replace(snapshot, settings=snapshot.settings.model_copy(update={"serve": serve}))
    app = application({"p": One(snapshot.settings, snapshot)})
    with serving(app) as url, httpx.Client(base_url=url, auth=(USER, PASSWORD), timeout=60) as client:
        body = {"tasks": [{"id": n} for n in range(1, 41)], "label_config": CONFIG}
        entries = client.post("/ml/p/predict", json=body).json()["results"]
        version = client.post("/ml/p/setup", json={}).json()["model_version"]
    blind = [n for n, entry in enumerate(entries, 1) if entry == []]
    assert blind == [n for n in range(1, 41) if is_blind("p", str(n), 0.25)]
    assert 3 <= len(blind) <= 17
    assert version.startswith("hitl-suggests-model-0.25-")  # Label Studio asks again when the share has changed


def test_the_report_says_how_far_suggestions_pull(tmp_path: Path) -> None:
    text = kept(tmp_path, page(0.5))
    assert "Suggestions pull answers: " in text
    (shown,), (blind,), (points,) = (
        map(float, re.findall(pattern, text))
        for pattern in (
            r"([\d.]+) % of \d+ answers equal",
            r"([\d.]+) % of \d+ where it is not",
            r"is \+([\d.]+) points",
        )
    )
    assert points == pytest.approx(shown - blind, abs=0.11)
    assert 15 < points < 35
    assert "Answers with and without a suggestion" in text
    assert all(re.search(rf"{who} [\d.]+ % of", text) for who in PEOPLE)


def test_the_consensus_leaves_out_as_many_answers_as_are_copies(tmp_path: Path) -> None:
    """It claims as much as is right. Where all answers count, copies confirm the model's errors."""

    def judged(suggest: Literal["model", "consensus"]) -> tuple[float, float]:
        settings = SETTINGS.model_copy(update={"serve": ServeSettings(blind_share=0.25, suggest=suggest)})
        (folder := tmp_path / suggest).mkdir()
        text = kept(folder, one := page(0.5), settings)
        assert ("The consensus leaves out" in text) == (suggest == "model")
        with Store(f"sqlite:///{folder}/hitl.db") as store:
            judgement = judge(settings, store, parse(CONFIG).questions)
            found, view = judgement.results["mood"], snapshot_of(settings, store).views["mood"].consensus
            with store.lease("p") as lease:
                record(lease, settings, store, judgement)
                changed = replace(one.annotations[0], label=MOODS[0], version="2026-11-24T00:00:00Z")
                store.save_page(lease, Page({}, one.items[:1], (changed, *one.annotations[1:3]), one.predictions[:1]))
            applied = snapshot_of(settings, store).views["mood"].consensus
        assert np.abs(applied.probabilities - found.probabilities).mean() < 0.005  # one answer moves the pull a little
        assert (found.annotators.labels == ITEMS).all()  # also those left out: they are answered
        assert np.abs(view.probabilities - found.probabilities).max() < 1e-9
        truth = {item.key: item.data["text"].split()[0] for item in one.items}
        right = [truth[str(item)] == label for item, label in zip(found.items, found.labels, strict=True)]
        return float(np.mean(right)), float(found.confidence.mean())

    right, claimed = judged("model")
    assert claimed == pytest.approx(right, abs=0.04)
    right_with_copies, claimed_with_copies = judged("consensus")  # nothing is compared
    assert right > right_with_copies
    assert claimed_with_copies > right_with_copies + 0.08


@pytest.mark.parametrize("copies", [0.0, 0.5])
def test_the_command_says_the_same(run: Run, tmp_path: Path, copies: float) -> None:
    kept(tmp_path, page(copies))
    (tmp_path / "hitl.toml").write_text(
        f'name = "p"\nstore = "sqlite:///{tmp_path}/hitl.db"\n[source]\nkind = "label-studio"\n'
        'url = "http://localhost:1"\nproject = 1\n[serve]\nblind_share = 0.25\n'
    )
    code, out, err = run("annotators", "--json")
    assert code == 0, err
    overall = json.loads(out)["suggestions"]["overall"]
    assert (overall["low"] > 0) == (copies > 0)
    shown = [n for n in range(ITEMS) if n not in BLIND]
    assert sum(overall["items"]) == shown[-1] - shown[0] - 1
    assert set(json.loads(out)["suggestions"]["annotators"]) == set(PEOPLE)
    assert "points" in run("annotators")[1]


def test_only_items_whose_arm_is_certain_count(tmp_path: Path) -> None:
    some = frozenset(sorted(BLIND)[:60])
    number = re.compile(r"% of ([\d,]+) where it is not")
    (blind,) = number.findall(kept(tmp_path, page(0.5, raised=some, first=20)))
    shown = [n for n in range(20, ITEMS) if n not in BLIND - some]
    left = [n for n in BLIND - some if shown[0] < n < shown[-1]]
    assert int(blind) == 3 * len(left)  # neither those answered under a suggestion later nor those from before


def test_without_blind_items_there_is_no_estimate_and_without_suggestions_no_word(tmp_path: Path) -> None:
    none = SETTINGS.model_copy(update={"serve": ServeSettings(blind_share=0)})
    assert "No estimate yet of how far suggestions pull answers: 0 items" in kept(tmp_path, page(0.5), none)
    consensus = SETTINGS.model_copy(update={"serve": ServeSettings(suggest="consensus")})
    assert "Do suggestions pull" not in kept(tmp_path, page(0.5), consensus)
    unseen = page(0.5)
    unseen = replace(unseen, annotations=tuple(replace(row, suggested=None) for row in unseen.annotations))
    (tmp_path / "other").mkdir()
    assert "Do suggestions pull" not in kept(tmp_path / "other", unseen)
