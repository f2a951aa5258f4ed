"""Controls of Label Studio with which stretches of time are marked: read from results, and written."""

from __future__ import annotations

from typing import Any

import pytest

from hitl.connectors.label_studio.config import Form, parse
from hitl.connectors.label_studio.controls import NotUnderstood
from hitl.errors import BadSettings, Refused
from hitl.parts import spans_as_label, spans_in

VIDEO = (
    '<View><Video name="v" value="$clip"/><TimelineLabels name="what" toName="v"><Label value="goal"/>'
    '<Label value="Foul" alias="foul"/></TimelineLabels></View>'
)
SOUND = (
    '<View><Labels name="what" toName="a"><Label value="goal"/></Labels><Audio name="a" value="$sound"{more}/></View>'
)
SERIES = (
    '<View><TimeSeriesLabels name="what" toName="ts"><Label value="goal"/></TimeSeriesLabels>'
    '<TimeSeries name="ts" value="$csv" valueType="url"{more}><Channel column="x"/></TimeSeries></View>'
)


def region(kind: str, of: str, **value: Any) -> dict[str, Any]:
    return {"from_name": "what", "to_name": of, "type": kind, "value": value}


def frames(*ranges: tuple[Any, Any], label: str = "goal") -> dict[str, Any]:
    """As the editor serializes a TimelineRegion."""
    return region("timelinelabels", "v", ranges=[{"start": s, "end": e} for s, e in ranges], timelinelabels=[label])


def read(form: Form, *regions: dict[str, Any]) -> list[tuple[Any, Any, str]]:
    label = form.read(list(regions))["what"]
    assert label is not None
    return spans_in(label)


def test_frames_count_from_one_with_the_last_and_from_zero_without_it() -> None:
    form = parse(VIDEO)
    (question,) = form.questions
    assert (question.kind, question.field, question.classes) == ("time_spans", "clip", ("goal", "foul"))
    given = [frames((1, 10), (20, 20)), frames((3, 5), label="foul")]
    assert read(form, *given) == [(0, 10, "goal"), (2, 5, "foul"), (19, 20, "goal")]
    label = spans_as_label([(0, 10, "goal"), (19, 20, "goal")])
    written = form.write({"what": label}, {"what": {spans_as_label([(0, 10, "goal")]): 0.75}})
    assert [one["value"] for one in written] == [
        {"ranges": [{"start": 1, "end": 10}], "timelinelabels": ["goal"]},
        {"ranges": [{"start": 20, "end": 20}], "timelinelabels": ["goal"]},
    ]
    assert (written[0]["type"], written[0]["to_name"], written[0]["score"]) == ("timelinelabels", "v", 0.75)
    assert "score" not in written[1]
    assert form.read(written)["what"] == label
    assert read(form) == [], "no region: nothing is to be marked"


def test_a_sound_is_in_seconds() -> None:
    form = parse(SOUND.format(more=""))
    assert form.questions[0].field == "sound"
    given = region("labels", "a", start=0.512, end=2, channel=0, labels=["goal"])
    assert read(form, given) == [(0.512, 2, "goal")]
    (written,) = form.write({"what": spans_as_label([(0.512, 2, "goal")])})
    assert written["value"] == {"start": 0.512, "end": 2, "channel": 0, "labels": ["goal"]}


@pytest.mark.parametrize(
    ("time_format", "said", "iso"),
    [
        ("%Y-%m-%d %H:%M:%S.%L", "2026-02-01 23:59:58.120", "2026-02-01T23:59:58.120000"),
        ("%Y-%m-%d %H:%M:%S.%f", "2026-02-01 23:59:58.120001", "2026-02-01T23:59:58.120001"),
        ("%d/%m/%Y %I:%M %p", "01/02/2026 11:59 PM", "2026-02-01T23:59:00"),
        ("%Y-%m-%dT%H:%M:%S%Z", "2026-02-01T23:59:58+0000", "2026-02-01T23:59:58"),
        ("%H:%M:%S", "23:59:58", "1900-01-01T23:59:58"),
    ],
)
def test_formatted_times_are_iso_8601_here_and_in_their_own_form_there(time_format: str, said: str, iso: str) -> None:
    form = parse(SERIES.format(more=f' timeColumn="t" timeFormat="{time_format}"'))
    later = said.replace("2026", "2027") if "2026" in said else "23:59:59"
    given = region("timeserieslabels", "ts", start=said, end=later, instant=False, timeserieslabels=["goal"])
    ((start, end, _),) = read(form, given)
    assert start == iso
    (written,) = form.write({"what": spans_as_label([(start, end, "goal")])})
    assert written["value"] == given["value"]


def test_numbers_of_a_series_are_as_they_are_and_milliseconds_where_it_has_a_format() -> None:
    given = region("timeserieslabels", "ts", start=1000, end=61000.5, instant=False, timeserieslabels=["goal"])
    assert read(parse(SERIES.format(more=' timeColumn="t"')), given) == [(1000, 61000.5, "goal")]
    timed = parse(SERIES.format(more=' timeColumn="t" timeFormat="%Y-%m-%d"'))
    assert read(timed, given)[0][0] == "1970-01-01T00:00:01"
    unused = parse(SERIES.format(more=' timeFormat="%Y-%m-%d"'))
    assert read(unused, given)[0][0] == 1000, "without a time column it counts rows"


@pytest.mark.parametrize(
    ("xml", "wrong", "what"),
    [
        (VIDEO, frames((None, 3)), "None is no frame"),
        (VIDEO, frames((1.5, 3)), "1.5 is no frame"),
        (VIDEO, frames((1, 2**63)), "9223372036854775808 is no frame"),
        (SOUND.format(more=""), region("labels", "a", start=1, end=1.7e308, labels=["goal"]), "1.7e.308 is no time"),
        (VIDEO, frames((1, 3), label="dive"), "'dive' is not among the labels"),
        (VIDEO, region("timelinelabels", "v", timelinelabels=["goal"]), "no ranges of frames"),
        (VIDEO, region("labels", "v", start=1, end=2, labels=["goal"]), "'labels' is no answer"),
        (SOUND.format(more=""), region("labels", "a", start="1", end=2, labels=["goal"]), "'1' is no time"),
        (
            SERIES.format(more=' timeColumn="t" timeFormat="%Y"'),
            region("timeserieslabels", "ts", start="soon", end="2027", timeserieslabels=["goal"]),
            "'soon' is no time in the form '%Y'",
        ),
    ],
)
def test_what_is_no_stretch_is_not_understood(xml: str, wrong: dict[str, Any], what: str) -> None:
    with pytest.raises(NotUnderstood, match=what):
        parse(xml).read([wrong])


@pytest.mark.parametrize(
    ("xml", "what"),
    [
        (SOUND.format(more=' splitchannels="true"'), "labels channels of 'a' apart"),
        (SERIES.format(more=' timeColumn="t" timeFormat="%Q"'), "timeFormat='%Q', which hitl cannot read"),
        (VIDEO.replace("<Video", "<Image"), "labels parts of 'v', which is no <Video>"),
        (SOUND.replace("Audio", "Image").format(more=""), "which is no <Text> or <Audio>"),
        (
            '<View><Video name="v" value="$clip"/><VideoRectangle name="box" toName="v"/></View>',
            "<VideoRectangle name='box'> is not supported",
        ),
    ],
)
def test_what_is_not_supported_is_said(xml: str, what: str) -> None:
    with pytest.raises(Refused, match=what) as refused:
        parse(xml)
    assert "TimeSeriesLabels on TimeSeries, TimelineLabels on Video" in str(refused.value)


@pytest.mark.parametrize("label", ["", '[[0,1,"dive"]]', '[["a","b","goal"]]'])
def test_what_is_no_answer_is_not_written(label: str) -> None:
    with pytest.raises(BadSettings, match="no answer to control 'what'"):
        parse(VIDEO).write({"what": label})
