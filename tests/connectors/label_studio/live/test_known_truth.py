"""`hitl gold` against a real Label Studio: it says what is given and no more, and leaves what others have said."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import pytest

from hitl.connectors.label_studio.config import parse
from hitl.connectors.label_studio.controls import NotUnderstood
from hitl.parts import spans_as_label
from hitl.platform import AnnotationRow, Operation
from tests.connectors.label_studio.conftest import SENTIMENT, Project, choice

THREE = """<View><Text name="text" value="$text"/>
<Choices name="sentiment" toName="text"><Choice value="good"/><Choice value="bad"/></Choices>
<Choices name="topics" toName="text" choice="multiple"><Choice value="art"/><Choice value="law"/></Choices>
<Labels name="parts" toName="text"><Label value="name"/></Labels></View>"""
TOPICS = {"topics=art": "yes", "topics=law": "no"}
NO_PART = spans_as_label([])


def on_server(test: Callable[..., None]) -> Callable[..., None]:
    return pytest.mark.server(pytest.mark.journey(test))


def operation(task: int, labels: Mapping[str, str]) -> Operation:
    return Operation("gold", "", {"questions": {name: {str(task): label} for name, label in labels.items()}})


def known(project: Project, task: int) -> dict[str, str]:
    """What a pull takes for the truth of a task."""
    rows = [row for page in project.connect().pull(None) for row in page.annotations if row.item == str(task)]
    return {row.question: str(row.label) for row in rows if row.kind == "gold"}


def answers(project: Project, task: int) -> list[AnnotationRow]:
    rows = [row for page in project.connect().pull(None) for row in page.annotations if row.item == str(task)]
    return [row for row in rows if row.kind == "answer"]


@on_server
def test_known_truth_of_one_control_says_nothing_of_the_others(make_project: Callable[..., Project]) -> None:
    project = make_project(THREE)
    (task,) = project.add(1)
    given: dict[str, str] = {}
    for more in ({"sentiment": "good"}, TOPICS, {"parts": NO_PART}, {"sentiment": "bad"}):
        given |= more
        (receipt,) = project.connect().push([operation(task, more)])
        assert (receipt.changed, known(project, task)) == (1, given)
        (again,) = project.connect().push([operation(task, more)])
        assert again.changed == 0


@on_server
def test_truth_that_would_say_more_than_was_given_is_left_out(make_project: Callable[..., Project]) -> None:
    project = make_project(THREE)
    (task,) = project.add(1)
    (receipt,) = project.connector.push([operation(task, {"parts": NO_PART})])
    assert "1 left out" in receipt.detail
    assert known(project, task) == {}


@on_server
def test_the_truth_of_somebody_else_stays(project: Project) -> None:
    other = int(project.people[0].id)

    def annotated(n: int) -> list[dict[str, Any]]:
        return [{"completed_by": other, "result": choice("bad"), "ground_truth": True}]

    first, second = project.add(2, annotated)
    both = Operation("gold", "", {"questions": {"sentiment": {str(first): "good", str(second): "bad"}}})
    (receipt,) = project.connector.push([both])
    assert receipt.changed == 0
    assert f"1 left out (task {first}: user {other} has set its ground truth" in receipt.detail
    assert known(project, first) == {"sentiment": "bad"}
    assert answers(project, first) == []


@on_server
@pytest.mark.parametrize(
    ("said", "known_before"),
    [
        ({"result": choice("art", control="topics")}, {**TOPICS, "parts": NO_PART}),  # marked as truth by hand
        ({"result": choice("good"), "was_cancelled": True}, {}),
        ({"result": choice("good", "bad")}, {}),  # which cannot be read, and is written anew
    ],
)
def test_what_is_known_already_stays(
    make_project: Callable[..., Project], said: dict[str, Any], known_before: dict[str, str]
) -> None:
    project = make_project(THREE if known_before else SENTIMENT)
    me = project.admin.get("/api/current-user/whoami")["id"]
    (task,) = project.add(1, lambda n: [{"completed_by": me, "ground_truth": True, **said}])
    (receipt,) = project.connector.push([operation(task, {"sentiment": "good"})])
    assert receipt.changed == 1
    assert known(project, task) == {"sentiment": "good", **known_before}


FILM = """<View><Video name="film" value="$film"/>
<TimelineLabels name="scenes" toName="film"><Label value="goal"/></TimelineLabels></View>"""
TIMES = """<View><TimeSeries name="ts" value="$csv" timeColumn="t" timeFormat="%Y-%m-%d %H:%M:%S"/>
<TimeSeriesLabels name="steps" toName="ts"><Label value="walk"/></TimeSeriesLabels></View>"""


def test_half_a_frame_is_no_truth() -> None:
    with pytest.raises(NotUnderstood, match=r"1\.5"):
        parse(FILM).as_truth({"scenes": spans_as_label([(1, 1.5, "goal")])})


def test_what_was_left_open_stays_open_or_is_not_written() -> None:
    form = parse(THREE)
    own = form.as_truth({"parts": spans_as_label([(0, 3, "name")])})
    with pytest.raises(NotUnderstood, match="leave the other controls open"):
        form.as_truth({"parts": NO_PART}, own)
    both = form.as_truth({"sentiment": "good"}, own)
    read = form.read(form.as_truth({"parts": NO_PART}, both))
    assert read == {"sentiment": "good", **dict.fromkeys(TOPICS), "parts": NO_PART}


@pytest.mark.parametrize("meta", ["x", {"hitl": 5}, {"hitl": {"open": 5}}])
def test_an_odd_meta_ends_no_push(meta: object) -> None:
    form = parse(THREE)
    own = [{**choice("good")[0], "meta": meta}]
    with suppress(NotUnderstood):  # then the result is written anew
        form.as_truth(TOPICS, own)


def test_times_are_compared_as_the_control_has_them() -> None:
    form = parse(TIMES)
    given = spans_as_label([("2026-01-01T01:00:00+01:00", "2026-01-01T01:00:02+01:00", "walk")])
    read = form.read(form.as_truth({"steps": given}))
    assert read == {"steps": spans_as_label([("2026-01-01T00:00:00", "2026-01-01T00:00:02", "walk")])}


def test_a_control_that_may_have_been_hidden_says_nothing_where_it_is_not_answered() -> None:
    hidden = """<View><Text name="text" value="$text"/>
    <Choices name="kind" toName="text"><Choice value="ad"/><Choice value="post"/></Choices>
    <View visibleWhen="choice-selected" whenTagName="kind" whenChoiceValue="ad">
    <Choices name="topics" toName="text" choice="multiple"><Choice value="art"/><Choice value="law"/></Choices></View>
    <Choices name="always" toName="text" choice="multiple"><Choice value="a"/><Choice value="b"/></Choices></View>"""
    form = parse(hidden)
    read = form.read(choice("post", control="kind"))
    assert read == {"kind": "post", **dict.fromkeys(TOPICS), "always=a": "no", "always=b": "no"}
    read = form.read([*choice("ad", control="kind"), *choice("art", control="topics")])
    assert read == {"kind": "ad", **TOPICS, "always=a": "no", "always=b": "no"}
    assert form.digest != parse(hidden.replace(' visibleWhen="choice-selected"', "")).digest


def test_a_rating_of_one_star_asks_nothing_and_stops_nothing() -> None:
    one = """<View><Text name="text" value="$text"/><Rating name="stars" toName="text" maxRating="1"/>
    <Choices name="kind" toName="text"><Choice value="ad"/><Choice value="post"/></Choices></View>"""
    assert [question.name for question in parse(one).questions] == ["kind"]
