"""Controls that mark parts of items: boxes and time segments, read from results and written."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hitl.connectors.label_studio.config import Form, parse
from hitl.connectors.label_studio.controls import NotUnderstood
from hitl.connectors.label_studio.regions import Boxes
from hitl.errors import BadSettings, Refused
from hitl.parts import BoxTuple, boxes_as_label, boxes_in, spans_as_label, spans_in
from hitl.platform import Question

BOXES = """<View><Image name="image" value="$image"/>
<RectangleLabels name="box" toName="image"><Label value="cat" background="#d55e00"/><Label value="dog"/>
</RectangleLabels></View>"""

HEIGHT, WIDTH = 300, 400
CAT, DOG = (10.0, 20.0, 30.0, 40.0, "cat"), (60.0, 30.0, 25.0, 50.0, "dog")

CONTROL = Form((Boxes("box", "image", ("cat", "dog"), "image"),))


def region(box: BoxTuple, **changes: Any) -> dict[str, Any]:
    """A box as the web page writes it; `changes` to its value, or to the region itself."""
    x, y, width, height, kind = box
    value = {"x": x, "y": y, "width": width, "height": height, "rotation": 0, "rectanglelabels": [kind]}
    whole = {
        "from_name": "box",
        "to_name": "image",
        "type": "rectanglelabels",
        "original_width": WIDTH,
        "original_height": HEIGHT,
        "image_rotation": 0,
        "value": value,
    }
    value |= {name: change for name, change in changes.items() if name in value}
    return whole | {name: change for name, change in changes.items() if name not in value}


def test_the_control_asks_about_boxes() -> None:
    (question,) = parse(BOXES).questions
    assert question == Question("box", ("cat", "dog"), ("cat", "dog"), kind="boxes", field="image")
    with pytest.raises(Refused, match="labels parts of 'text', which is no <Image>"):
        parse('<View><Text name="text" value="$t"/>' + BOXES.split("\n", 1)[1].replace('"image"', '"text"'))


def test_answers_are_read() -> None:
    label = CONTROL.read([region(DOG), region(CAT), {"from_name": "other"}])["box"]
    assert label == boxes_as_label(HEIGHT, WIDTH, [CAT, DOG])
    assert CONTROL.read([]) == {"box": '{"height":0,"width":0,"boxes":[]}'}
    untold = {**region(CAT), "original_width": None}
    assert CONTROL.read([untold])["box"] == boxes_as_label(0, 0, [CAT])
    assert CONTROL.read([untold, region(DOG)])["box"] == label


@st.composite
def boxes(draw: st.DrawFn) -> BoxTuple:
    x, y = draw(st.floats(0, 99)), draw(st.floats(0, 99))
    return x, y, draw(st.floats(0.01, 100 - x)), draw(st.floats(0.01, 100 - y)), draw(st.sampled_from(("cat", "dog")))


@given(st.lists(boxes(), max_size=5), st.randoms())
def test_a_label_has_one_form_and_goes_both_ways(drawn: list[BoxTuple], random: Any) -> None:
    label = boxes_as_label(HEIGHT, WIDTH, drawn)
    assert boxes_as_label(*boxes_in(label)) == label, "what is rounded stays as it is"
    random.shuffle(drawn)
    assert boxes_as_label(HEIGHT, WIDTH, [*drawn, *drawn[:1]]) == label
    for kept in boxes_in(label)[2]:
        near = min(
            drawn, key=lambda box: (box[4] != kept[4], max(abs(a - b) for a, b in zip(box, kept[:4], strict=False)))
        )
        assert near[:4] == pytest.approx(kept[:4], abs=0.51e-4)
    if drawn:
        written = CONTROL.write({"box": label})
        assert [region["original_width"] for region in written] == [WIDTH] * len(written)
        assert CONTROL.read(written) == {"box": label}


def test_nought_has_no_sign() -> None:
    assert boxes_as_label(1, 1, [(-0.0, -1e-9, 2, 2, "cat")]) == boxes_as_label(1, 1, [(0, 0, 2.0, 2.0, "cat")])


def test_each_region_has_its_probability() -> None:
    label = boxes_as_label(HEIGHT, WIDTH, [CAT, DOG])
    sure = {boxes_as_label(HEIGHT, WIDTH, [CAT]): 0.9, boxes_as_label(HEIGHT, WIDTH, [DOG]): 0.6}
    assert [one["score"] for one in CONTROL.write({"box": label}, {"box": sure})] == [0.9, 0.6]
    assert "original_width" not in CONTROL.write({"box": boxes_as_label(0, 0, [CAT])})[0]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (region(CAT, rotation=12.5), "a box of 'cat' is turned by 12.5 degrees; expected an upright one"),
        (region(CAT, image_rotation=90), "the image below a box of 'cat' is turned by 90 degrees"),
        (region((80, 20, 30, 10, "cat")), "the box of 'cat' at x 80, y 20 with width 30, height 10 reaches beyond"),
        (region((-5, 20, 30, 10, "dog")), "reaches beyond the image; expected 0 to 100 percent"),
        (region((10, 20, 0, 10, "dog")), "has no area within the image"),
        (region((10, 20, 5, 0.00001, "dog")), "has no area within the image"),
        (region((-0.5, 20, 0.4, 10, "dog")), "has no area within the image"),
        (region((10, 20, -5, 10, "dog")), "has no area within the image"),
        (region(CAT, rectanglelabels=["cow"]), "'cow' is not among the labels of 'box'"),
        (region(CAT, rectanglelabels=["cat", "dog"]), "has the labels ['cat', 'dog']; expected one label"),
        (region(CAT, rectanglelabels=[]), "has the labels []; expected one or more"),
        (region(CAT, width=None), "a box of 'cat' has no place"),
        (region(CAT, x=float("nan")), "a box of 'cat' has no place"),
        (region(CAT, type="brushlabels"), "'brushlabels' is no answer to the control 'box'"),
        (region(CAT, original_width=500), "its boxes are on images of different sizes (height, width): [(300, 400)"),
        (region(CAT, original_width="wide"), "a side of 'wide' pixels"),
    ],
)
def test_what_is_no_box_is_told_and_not_dropped(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(NotUnderstood) as caught:
        CONTROL.read([region(DOG), wrong])
    assert said in str(caught.value)


def test_what_reaches_a_little_beyond_the_image_is_cut_off() -> None:
    label = CONTROL.read([region((-0.5, 90.0, 20.0, 10.4, "cat"))])["box"]
    assert boxes_in(label or "")[2] == [(0.0, 90.0, 19.5, 10.0, "cat")]


def test_what_is_no_box_is_not_written() -> None:
    assert CONTROL.write({}) == []
    for labels in (
        {"box": "good"},
        {"other": boxes_as_label(0, 0, [CAT])},
        {"box": boxes_as_label(0, 0, [(*CAT[:4], "cow")])},
    ):
        with pytest.raises(BadSettings):
            CONTROL.write(labels)


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


def segment(kind: str, of: str, **value: Any) -> dict[str, Any]:
    return {"from_name": "what", "to_name": of, "type": kind, "value": value}


def frames(*ranges: tuple[Any, Any], label: str = "goal") -> dict[str, Any]:
    """As the editor serializes a TimelineRegion."""
    return segment("timelinelabels", "v", ranges=[{"start": s, "end": e} for s, e in ranges], timelinelabels=[label])


def read(form: Form, *regions: dict[str, Any]) -> list[tuple[Any, Any, str]]:
    label = form.read(list(regions))["what"]
    assert label is not None
    return spans_in(label)


def test_frames_count_from_one_with_the_last_and_from_zero_without_it() -> None:
    form = parse(VIDEO)
    (question,) = form.questions
    assert (question.kind, question.field, question.classes) == ("time_spans", "clip", ("goal", "foul"))
    regions = [frames((1, 10), (20, 20)), frames((3, 5), label="foul")]
    assert read(form, *regions) == [(0, 10, "goal"), (2, 5, "foul"), (19, 20, "goal")]
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
    wanted = segment("labels", "a", start=0.512, end=2, channel=0, labels=["goal"])
    assert read(form, wanted) == [(0.512, 2, "goal")]
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
    wanted = segment("timeserieslabels", "ts", start=said, end=later, instant=False, timeserieslabels=["goal"])
    ((start, end, _),) = read(form, wanted)
    assert start == iso
    (written,) = form.write({"what": spans_as_label([(start, end, "goal")])})
    assert written["value"] == wanted["value"]


def test_numbers_of_a_series_are_as_they_are_and_milliseconds_where_it_has_a_format() -> None:
    wanted = segment("timeserieslabels", "ts", start=1000, end=61000.5, instant=False, timeserieslabels=["goal"])
    assert read(parse(SERIES.format(more=' timeColumn="t"')), wanted) == [(1000, 61000.5, "goal")]
    timed = parse(SERIES.format(more=' timeColumn="t" timeFormat="%Y-%m-%d"'))
    assert read(timed, wanted)[0][0] == "1970-01-01T00:00:01"
    unused = parse(SERIES.format(more=' timeFormat="%Y-%m-%d"'))
    assert read(unused, wanted)[0][0] == 1000, "without a time column it counts rows"


@pytest.mark.parametrize(
    ("xml", "wrong", "what"),
    [
        (VIDEO, frames((None, 3)), "None is no frame"),
        (VIDEO, frames((1.5, 3)), "1.5 is no frame"),
        (VIDEO, frames((1, 2**63)), "9223372036854775808 is no frame"),
        (SOUND.format(more=""), segment("labels", "a", start=1, end=1.7e308, labels=["goal"]), "1.7e.308 is no time"),
        (VIDEO, frames((1, 3), label="dive"), "'dive' is not among the labels"),
        (VIDEO, segment("timelinelabels", "v", timelinelabels=["goal"]), "no ranges of frames"),
        (VIDEO, segment("labels", "v", start=1, end=2, labels=["goal"]), "'labels' is no answer"),
        (SOUND.format(more=""), segment("labels", "a", start="1", end=2, labels=["goal"]), "'1' is no time"),
        (
            SERIES.format(more=' timeColumn="t" timeFormat="%Y"'),
            segment("timeserieslabels", "ts", start="soon", end="2027", timeserieslabels=["goal"]),
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
def test_what_is_no_segment_is_not_written(label: str) -> None:
    with pytest.raises(BadSettings, match="no answer to control 'what'"):
        parse(VIDEO).write({"what": label})
