"""What a cycle tells: once, bounded, again only when it was over."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hitl import cycle
from hitl.active.stopping import rules
from hitl.active.stopping.rules import Expected
from hitl.annotations import Annotations
from hitl.connectors.tables import Tables
from hitl.consensus import Consensus
from hitl.errors import Refused, Unreachable
from hitl.events import build_events
from hitl.events.bodies import text_of
from hitl.events.build_events import ITEMS
from hitl.evidence import Evidence
from hitl.models.analysis.annotator_profile import AnnotatorProfiler
from hitl.models.analysis.drift import Change
from hitl.models.vb_ibcc import VBIBCC
from hitl.operations import Judgement
from hitl.plan import Done, DoneItems, Plan
from hitl.settings import Settings
from hitl.settings.environment import hide_secrets
from hitl.store import CycleRecord, Store
from tests import projects
from tests.events.conftest import Telling
from tests.events.receivers import SECRET

URL = {"url": "http://127.0.0.1:9/hook"}


def told(store: Store, kind: str = "") -> list[dict[str, Any]]:
    """What was announced, oldest first."""
    found = [json.loads(one.body) for one in reversed(store.deliveries("p", 1000))]
    return [one for one in found if kind in one["type"]]


def run(settings: Settings, store: Store, folder: Path) -> None:
    cycle.run(settings, store, Tables(folder))


# -- items ---------------------------------------------------------------------------------------------------------


def test_items_are_told_once_when_they_are_decided_and_again_with_another_label(
    store: Store, folder: Path, telling: Telling
) -> None:
    settings = telling(URL, serve={"url": "https://hitl.example"})
    run(settings, store, folder)
    (first,) = told(store, "items.decided")
    assert first["data"]["decided"] == len(first["data"]["items"]) == first["data"]["done"] == 9
    assert first["data"]["items"][0]["url"] == "https://hitl.example/projects/p/items/0"
    assert first["data"]["cycle"] == store.last_cycle("p").number  # type: ignore[union-attr]
    run(settings, store, folder)
    assert len(told(store)) == 1
    projects.answers(folder, *((10, who, 1) for who in ("ann", "bob", "dee")))
    projects.answers(folder, *((0, who, 1) for who in ("dee", "eve", "fay", "gil")))
    run(settings, store, folder)
    second = told(store, "items.decided")[1]["data"]
    assert (second["decided"], second["changed"], second["done"]) == (1, 1, 10)
    assert {one["item"]: one["labels"]["label"] for one in second["items"]} == {"10": "1", "0": "1"}


def judged(settings: Settings, done: list[Done], **plan: Any) -> Judgement:
    return Judgement({}, {}, Plan((), tuple(done), **plan), {"items": 5000})


def record(settings: Settings, store: Store, judgement: Judgement) -> list[dict[str, Any]]:
    """A cycle with this judgement; what it told."""
    before = len(told(store))
    made = build_events.of_cycle(settings, store, judgement)
    with store.lease("p") as lease:
        store.record_cycle(lease, CycleRecord({}, judgement.plan, (), dict(judgement.metrics), told=made))
    return told(store)[before:]


def test_a_flood_of_items_is_one_event_that_counts_all_and_names_some(store: Store, telling: Telling) -> None:
    settings = telling(URL, {**URL, "template": "slack"})
    done = [Done(f"item {n}", ("cat",), 0.9, "confident") for n in range(3000)]
    (event, _) = record(settings, store, judged(settings, done))
    assert event["data"]["decided"] == 3000
    assert len(event["data"]["items"]) == ITEMS
    assert len(json.dumps(event)) < 20_000
    assert "and 2,980 more" in text_of(event)
    assert record(settings, store, judged(settings, done)) == []
    reopened = record(settings, store, judged(settings, [*done[:-5], Done("new", ("dog",), 0.9, "")]))
    assert (reopened[0]["data"]["decided"], reopened[0]["data"]["reopened"]) == (1, 5)


@pytest.mark.parametrize("seed", range(20))
def test_what_has_changed_is_found_as_one_would_by_hand(store: Store, seed: int) -> None:
    rng = np.random.default_rng(seed)

    def some() -> list[Done]:
        items = rng.permutation(12)[: rng.integers(0, 12)]
        return [Done(str(n), tuple(rng.choice(["a", "b", "ab"], 2)), 0.5, "") for n in items]

    before, now = some(), some()
    with store.lease("p") as lease:
        store.record_cycle(lease, CycleRecord({}, Plan((), tuple(before))))
    fresh, changed, reopened = build_events.differences(store.done("p"), DoneItems.of(now))
    old = {one.item: one.labels for one in before}
    assert [now[n].item for n in fresh] == [one.item for one in now if one.item not in old]
    assert [now[n].item for n in changed] == [one.item for one in now if old.get(one.item, one.labels) != one.labels]
    assert reopened == len(old.keys() - {one.item for one in now})


def test_only_what_is_wanted_is_made_and_nothing_without_addresses(
    store: Store, folder: Path, telling: Telling
) -> None:
    run(telling(), store, folder)
    assert told(store) == []
    assert store.told("p") == {}
    run(telling({**URL, "kinds": ["run.failed"]}), store, folder)
    assert told(store) == []
    done = [Done("another", ("cat",), 0.9, "")]
    only = telling({**URL, "kinds": ["items.decided"]}, {**URL, "kinds": ["target.reached"]})
    record(only, store, judged(only, done))
    assert [one.address for one in store.deliveries("p")] == ["ci"]


def test_what_cannot_be_made_fails_no_cycle(
    store: Store, folder: Path, telling: Telling, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*given: object) -> None:
        raise ZeroDivisionError("a fault of ours")

    monkeypatch.setattr(build_events, "newly_drifted", broken)
    with caplog.at_level(logging.WARNING):
        run(telling(URL), store, folder)
    assert store.last_cycle("p") is not None
    assert told(store) == []
    assert "ZeroDivisionError: a fault of ours" in caplog.text


# -- targets -------------------------------------------------------------------------------------------------------


def test_the_end_of_the_project_is_told_once_and_again_after_it_was_lost(store: Store, telling: Telling) -> None:
    settings = telling(URL, budget={"target_accuracy": 0.95})

    def at(stop: str | None, accuracy: float) -> list[str]:
        known = {"accuracy": 1 - rules.MARGIN * (1 - accuracy)}  # believed to reach just this
        judgement = Judgement({}, {}, Plan(stop=stop), {"items": 9, "expected": known})
        return [one["data"]["why"] for one in record(settings, store, judgement)]

    assert at(None, 0.90) == []
    assert at("reached: 1", 0.951) == ["reached: 1"]
    assert at("reached: 2", 0.951) == []
    assert at(None, 0.9497) == []  # a hair below: not lost
    assert at("reached: 3", 0.9501) == []
    assert at(None, 0.94) == []  # lost, which is no news
    assert at(None, 0.94) == []
    assert at("reached: 4", 0.951) == ["reached: 4"]


def test_each_of_several_questions_reaches_its_target_once(
    store: Store, telling: Telling, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = telling(URL, budget={"target_accuracy": 0.95})
    low = {"a": 0.90, "b": 0.96}
    monkeypatch.setattr(build_events, "expected_accuracy", lambda pair: Expected(1 - rules.MARGIN * (1 - low[pair[0]])))
    nothing: Any = {"a": "a", "b": "b"}
    monkeypatch.setattr(build_events, "newly_drifted", lambda *given: ([], {}))

    def look() -> list[str | None]:
        judgement = Judgement(nothing, nothing, Plan(), {"items": 9})
        return [one["data"]["question"] for one in record(settings, store, judgement)]

    assert look() == ["b"]
    low["a"] = 0.951
    assert look() == ["a"]
    low["b"] = 0.947
    assert look() == []
    low["b"] = 0.9
    assert look() == []
    low["b"] = 0.951
    assert look() == ["b"]


# -- annotators ----------------------------------------------------------------------------------------------------


def crowd(turn: float = 0.5, n: int = 400, seed: int = 0) -> Evidence:
    """Five annotators of all items; the first gets worse at this part of the time."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(2, size=n)
    right = np.array([0.95, 0.9, 0.9, 0.85, 0.9])[:, None] > rng.random((5, n))
    right[0, int(turn * n) :] = rng.random(n - int(turn * n)) < 0.55
    said = np.where(right, truth, 1 - truth)
    order = [(n_, k) for n_ in range(n) for k in range(5)]
    return Evidence(
        Annotations.from_frame(
            {
                "item": [str(n_) for n_, _ in order],
                "annotator": [f"a{k}" for _, k in order],
                "label": [str(said[k, n_]) for n_, k in order],
                "time": [1_700_000_000.0 + 60 * n_ for n_, _ in order],
            },
            time="time",
        )
    )


def fitted(evidence: Evidence) -> Consensus:
    return VBIBCC().fit(evidence)


def test_the_changes_are_those_of_hitl_annotators() -> None:
    evidence = crowd()
    consensus = fitted(evidence)
    found, alarms = build_events.changes(evidence, consensus)
    profiles = AnnotatorProfiler().fit(evidence, consensus)
    assert alarms == profiles.drifts.tolist() == [True, False, False, False, False]
    for one, other in zip(found, profiles.changes, strict=True):
        assert one is not None
        assert other is not None
        assert (one.p_any_look, one.when, one.before, one.after) == (
            other.p_any_look,
            other.when,
            other.before,
            other.after,
        )


def test_a_drift_is_told_once_however_often_one_looks(store: Store, telling: Telling) -> None:
    settings = telling(URL)
    seen = []
    for n in range(120, 401, 20):
        whole = crowd(turn=0.3)
        annotations = whole.annotations
        rows = np.flatnonzero(annotations.item < n)
        part = Evidence(
            replace(
                annotations,
                items=annotations.items[:n],
                item=annotations.item[rows],
                annotator=annotations.annotator[rows],
                label=annotations.label[rows],
                time=None if annotations.time is None else annotations.time[rows],
            )
        )
        judgement = Judgement({"label": part}, {"label": fitted(part)}, Plan(), {"items": n})
        seen += record(settings, store, judgement)
    (event,) = seen
    assert (event["type"], event["data"]["annotator"], event["data"]["question"]) == ("annotator.drifted", "a0", None)
    assert event["data"]["after"] < event["data"]["before"]
    assert "`a0` became worse" in text_of(event)


def looks(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """`look(alarm, p, when)`: who is told, where the test says this of the first annotator."""
    evidence, state = crowd(n=40), {}  # type: ignore[var-annotated]

    def look(alarm: bool, p: float, when: float, seen: float) -> list[str]:
        change = Change(p, p, when, 0.9, 0.6, None)  # type: ignore[arg-type]
        monkeypatch.setattr(build_events, "changes", lambda *given: ([change, *[None] * 4], [alarm, *[False] * 4]))
        at = replace(evidence.annotations, time=np.full(len(evidence.annotations), seen))
        fresh, now = build_events.newly_drifted(replace(evidence, annotations=at), None, state)  # type: ignore[arg-type]
        state.clear()
        state.update(now)
        return [name for name, _ in fresh]

    return look


def test_flicker_around_the_limit_is_no_news(monkeypatch: pytest.MonkeyPatch) -> None:
    look = looks(monkeypatch)
    assert look(True, 0.04, 50.0, 100.0) == ["a0"]
    for seen in range(101, 120):
        assert look(seen % 2 == 0, 0.04 if seen % 2 == 0 else 0.08, 40.0 + seen % 7, float(seen)) == []


def test_a_new_change_after_all_that_was_seen_is_told_and_one_after_the_first_was_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    look = looks(monkeypatch)
    assert look(True, 0.001, 50.0, 100.0) == ["a0"]
    assert look(True, 0.001, 99.0, 200.0) == []
    assert look(True, 0.001, 150.0, 300.0) == ["a0"]
    assert look(True, 0.001, 150.0, 400.0) == []
    assert look(False, 0.6, 150.0, 500.0) == []  # over
    assert look(True, 0.01, 150.0, 600.0) == ["a0"]


def test_many_at_once_are_told_in_several_cycles(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"a{k:02}" for k in range(30)]
    annotations = Annotations.from_frame(
        {"item": ["1"] * 30 + ["2"], "annotator": [*names, "a00"], "label": ["x"] * 30 + ["y"], "time": [5.0] * 31},
        time="time",
    )
    change = [Change(0.001 * (k + 1), 0.01, 3.0, 0.9, 0.6, None) for k in range(30)]  # type: ignore[arg-type]
    monkeypatch.setattr(build_events, "changes", lambda *given: (change, [True] * 30))
    first, now = build_events.newly_drifted(Evidence(annotations), None, {})  # type: ignore[arg-type]
    second, now = build_events.newly_drifted(Evidence(annotations), None, now)  # type: ignore[arg-type]
    assert [name for name, _ in first] == names[: build_events.DRIFTED]
    assert [name for name, _ in second] == names[build_events.DRIFTED :]
    assert build_events.newly_drifted(Evidence(annotations), None, now) == ([], now)  # type: ignore[arg-type]


def test_without_times_nobody_drifts() -> None:
    evidence = crowd(n=40)
    plain = replace(evidence, annotations=replace(evidence.annotations, time=None))
    assert build_events.newly_drifted(plain, fitted(plain), {}) == ([], {})


# -- failures ------------------------------------------------------------------------------------------------------


def test_a_row_of_failures_is_told_once_and_its_end(
    store: Store, folder: Path, telling: Telling, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = telling(URL, serve={"url": "https://hitl.example"})
    monkeypatch.setenv("HITL_LABEL_STUDIO_TOKEN", "t0ken-of-the-platform")
    hide_secrets()
    errors: list[Exception] = [
        Refused(f"it says <no> to t0ken-of-the-platform and {URL['url']} and {SECRET}"),
        Unreachable("it does not answer"),
        ZeroDivisionError("a fault"),
    ]
    for error in errors:

        def fails(*given: object, error: Exception = error) -> None:
            raise error

        with monkeypatch.context() as patch:
            patch.setattr(cycle, "pull", fails)
            with pytest.raises(type(error)):
                run(settings, store, folder)
    (failed,) = told(store, "run.")
    assert failed["data"]["error"] == "Refused"
    assert failed["data"]["message"] == "it says <no> to *** and *** and ***"
    assert failed["data"]["url"] == "https://hitl.example/projects/p/runs"
    assert "`it says &lt;no&gt; to *** and *** and ***`" in text_of(failed)
    run(settings, store, folder)
    run(settings, store, folder)
    assert [one["type"] for one in told(store, "run.")] == ["run.failed", "run.recovered"]
    assert "runs succeed again" in text_of(told(store, "run.recovered")[0])


def test_what_is_left_out_is_told_once_each(store: Store, telling: Telling) -> None:
    settings = telling(URL)

    def look(*problems: str) -> list[list[str]]:
        found = record(settings, store, Judgement({}, {}, Plan(), {"items": 3, "problems": list(problems)}))
        return [one["data"]["problems"] for one in found]

    assert look("task 7: no text") == [["task 7: no text"]]
    assert look("task 7: no text", "task 8: @channel `x` <!here>") == [["task 8: @channel `x` <!here>"]]
    assert look("task 7: no text", "task 8: @channel `x` <!here>") == []
    (many,) = look(*(f"task {n}" for n in range(100)))
    assert len(many) == build_events.PROBLEMS
    assert told(store)[-1]["data"]["count"] == 100
