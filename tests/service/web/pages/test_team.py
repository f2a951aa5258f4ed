"""The team: what to train, counted by a loop; its links; groups and changes as reports have them; worked out once."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import given

from hitl.report.annotators import annotators_section
from hitl.service.web.background import Studies
from hitl.service.web.pages.people import team_of, training
from hitl.service.web.snapshot import QuestionView, Snapshot
from tests.service.web.pages.crowds import crowds, snapshot
from tests.service.web.served import Served


@given(crowds("dawid-skene"))
def test_confusions_are_those_of_a_loop(known: Snapshot) -> None:
    view = known.view(None)
    annotations, consensus = view.evidence.annotations, view.consensus
    said: Counter[tuple[Any, Any]] = Counter()
    who: dict[tuple[Any, Any], Counter[Any]] = {}
    of: dict[tuple[Any, Any], set[int]] = {}
    per_class: Counter[Any] = Counter()
    for n, k, label in zip(annotations.item, annotations.annotator, annotations.label, strict=True):
        true, answer = consensus.classes[consensus.codes[n]], annotations.options[label]
        per_class[true] += 1
        if true != answer:
            said[true, answer] += 1
            who.setdefault((true, answer), Counter())[annotations.annotators[k]] += 1
            of.setdefault((true, answer), set()).add(int(n))
    rows = training(view)
    assert {(row["true"], row["said"]): row["labels"] for row in rows} == dict(said)
    assert [row["labels"] for row in rows] == sorted(said.values(), reverse=True)
    for row in rows:
        pair = row["true"], row["said"]
        assert row["items"] == len(of[pair])
        assert row["annotators"] == len(who[pair])
        assert [who[pair][name] for name in row["names"]] == sorted(who[pair].values(), reverse=True)[:5]
        assert row["share"] == pytest.approx(said[pair] / said.total())
        assert row["often"] == pytest.approx(said[pair] / per_class[row["true"]])


def test_each_number_leads_to_its_items(served: Served) -> None:
    told = served.json("/projects/p/team")
    assert told["rows"]
    for row in told["rows"]:
        link = urlencode({"said": row["said"], "label": row["true"]})
        assert served.json(f"/projects/p/items?{link}")["found"] == row["items"]


def test_the_rest_is_what_reports_say() -> None:
    """Two who are right, one who always says the same."""
    view = snapshot([[row % 2, row % 2, 0] for row in range(60)], method="dawid-skene").view(None)
    found, expected = team_of(view).section, annotators_section(view.page)
    assert found is not None
    assert expected is not None
    assert (found.flagged, found.changed, len(found.groups)) == (
        expected.flagged,
        expected.changed,
        len(expected.groups),
    )
    assert found.profiles.flags(2) == ["always 'cat'"]


# -- studies -----------------------------------------------------------------------------------------------


def view_of(labels: int) -> QuestionView:
    """A question of so many labels."""
    return snapshot([[0] for _ in range(labels)]).view(None)


def until_rested(studies: Studies, view: QuestionView, make: Any) -> Any:
    """The study once it is of this view."""
    for _ in range(500):
        study = studies.of("kind", "p", view, make)
        if study.view is view:
            return study
        time.sleep(0.01)
    raise AssertionError("it never came")


def test_a_study_is_made_once_for_a_view() -> None:
    studies, made, view = Studies(), list[int](), view_of(3)

    def make(of: QuestionView) -> str:
        made.append(len(of.evidence.annotations))
        return "found"

    assert studies.of("kind", "p", view, make).result == "found"
    assert studies.of("kind", "p", view, make).labels == 3
    assert made == [3]
    assert until_rested(studies, view_of(4), make).labels == 4
    assert studies.of("another", "p", view, lambda of: "else").result == "else"
    assert made == [3, 4]


def test_a_long_study_shows_what_was_there_before_it() -> None:
    studies, go_on = Studies(), threading.Event()

    def slow(of: QuestionView) -> int:
        go_on.wait(20)
        return len(of.evidence.annotations)

    first, second = view_of(3), view_of(4)
    begun = studies.of("kind", "p", first, slow)
    assert (begun.result, begun.busy) == (None, True)
    assert studies.of("kind", "p", second, slow) is begun, "one at a time"
    go_on.set()
    assert until_rested(studies, first, slow).result == 3
    begun.rests_until = 0.0  # it has rested
    go_on.clear()
    again = studies.of("kind", "p", second, slow)
    assert (again.result, again.labels, again.busy) == (3, 3, True)
    go_on.set()
    assert until_rested(studies, second, slow).result == 4


def test_a_study_rests_longer_than_it_took() -> None:
    studies, made = Studies(), list[int]()
    studies.of("kind", "p", view_of(3), lambda of: made.append(3))
    until_rested(studies, view_of(4), lambda of: made.append(4)).rests_until = time.monotonic() + 600.0
    for _ in range(5):
        studies.of("kind", "p", view_of(5), lambda of: made.append(5))
    assert 5 not in made


def test_a_study_that_fails_says_so_and_keeps_what_was_there() -> None:
    studies, first = Studies(), view_of(3)
    assert studies.of("kind", "p", first, lambda of: "found").result == "found"

    def fails(of: QuestionView) -> str:
        raise ValueError("no such thing")

    second = view_of(4)
    study = until_rested(studies, second, fails)
    assert (study.result, study.trouble, study.busy) == ("found", "ValueError: no such thing", False)
    assert study.labels == 3, "what is shown is of the labels that it was found from"
