"""Controls that mark parts of items: spans of a text, time segments of a recording, boxes and masks on an image.

Each part is a region of the result list:

    Labels on Text                   type "labels"            {"start": 0, "end": 3, "labels": ["PER"]}
    TimeSeriesLabels on TimeSeries   type "timeserieslabels"  {"start": 4, "end": 60, "timeserieslabels": ["walk"]}
    Labels on Audio                  type "labels"            {"start": 0.51, "end": 2.07, "labels": ["speech"]}
    TimelineLabels on Video          type "timelinelabels"    {"ranges": [{"start": 1, "end": 10}], ...}
    RectangleLabels on Image         type "rectanglelabels"   {"x": 10.5, "y": 20, "width": 30, "height": 25, ...}
    BrushLabels on Image             type "brushlabels"       {"format": "rle", "rle": [...], "brushlabels": ["cat"]}

An annotation without regions means that there is nothing to mark. In the consensus, a region's score is the
probability of the part; for a mask, the mean over its pixels.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, ClassVar

from hitl.connectors.label_studio.controls import Answers, Control, NotUnderstood
from hitl.errors import BadSettings
from hitl.formatting import short
from hitl.kinds.span_offsets import place_quoted
from hitl.parts import (
    BOX_DIGITS,
    LARGEST,
    Place,
    boxes_as_label,
    boxes_in,
    drawn_as_label,
    drawn_in,
    spans_as_label,
    spans_in,
)
from hitl.platform import Question

BEYOND = 1.0
"""Percent by which a box may extend beyond its image, or a stretch beyond its recording, and is cut at the edge."""
SLACK = 0.01
"""Seconds by which a stretch may begin before a recording of unknown length."""
LEVEL = 0.01
"""Degrees that count as no turn."""
CUT, TURNED = "cut at the edge", "turned by 360 degrees, which is no turn"
"""Repairs that notes name."""
SIDES = ("x", "y", "width", "height")
MILLISECONDS, OFFSET = "%L", "%Z"
"""Codes of milliseconds and UTC offset in a timeFormat. Python lacks the first, and has %z for the second."""

Entries = Sequence[Mapping[str, Any]]
Region = tuple[str, str, dict[str, Any]]
"""A part to write: the id of its region, its label as if it were the only part, and fields of the region (`value`)."""


@dataclass(frozen=True, slots=True)
class Regions(Control):
    """A control that marks parts of an item.

    Attributes:
        field: the field of a task's data that holds the text, or the address of the image or recording.
    """

    noun: ClassVar[str] = "labels"
    field: str
    kind: ClassVar[str]

    @property
    def questions(self) -> tuple[Question, ...]:
        """One question about every item, about its parts."""
        return (Question(self.name, self.choices, self.choices, self.kind, self.field),)

    def read(self, result: object) -> Answers:
        """Return the parts in an annotation's result. Raises NotUnderstood for a region that is not such a part."""
        return {self.name: self._label(self.own(result))}

    def write(
        self, labels: Mapping[str, str], distributions: Mapping[str, Mapping[str, float]]
    ) -> list[dict[str, Any]]:
        """Return the regions of these parts. `distributions`: control -> label of a single part -> its probability."""
        try:
            regions = list(self._regions(labels[self.name]))
        except (KeyError, TypeError, ValueError):
            raise BadSettings(f"{self.name!r}: {labels!r} is no answer to control {self.name!r}") from None
        sure = distributions.get(self.name, {})
        return [
            {"id": name} | self.entry({}) | fields | ({"score": sure[alone]} if alone in sure else {})
            for name, alone, fields in regions
        ]

    @abstractmethod
    def _label(self, own: Entries) -> str: ...

    @abstractmethod
    def _regions(self, label: str) -> Iterator[Region]: ...

    def _marked(self, item: Mapping[str, Any]) -> list[str]:
        labels = item["value"].get(self.type)
        if not isinstance(labels, list) or not labels:
            raise NotUnderstood(
                f"a part marked with {self.name!r} has the labels {short(labels)}; expected one or more"
            )
        return list(map(self.choice, labels))


@dataclass(frozen=True, slots=True)
class TextSpans(Regions):
    """Spans of a text. Offsets count characters (code points) from 0, and the end is exclusive."""

    kind: ClassVar[str] = "spans"

    @property
    def type(self) -> str:
        """Type of its results."""
        return "labels"

    def repair(self, entry: Mapping[str, Any], data: Mapping[str, Any] | None) -> tuple[Mapping[str, Any], str]:
        """Place a span where the text says what the region quotes, if its offsets were counted in another way."""
        value = entry["value"]
        start, end, quoted = _whole(value.get("start")), _whole(value.get("end")), value.get("text")
        text = None if data is None else data.get(self.field)
        if start is None or end is None or not 0 <= start < end:
            raise NotUnderstood(f"{short(value.get('start'))} to {short(value.get('end'))} is no part of a text")
        place, repaired = (start, end), ""
        if isinstance(text, str) and isinstance(quoted, str):
            placed = place_quoted(text, start, end, quoted)
            if placed is None:
                raise NotUnderstood(
                    f"it marks {short(quoted)} from {start} to {end}, where the text has {short(text[start:end])}; "
                    "expected the same, or a text that has it exactly once"
                )
            place, repaired = placed
        return {**entry, "value": {**value, **dict(zip(("start", "end"), place, strict=True))}}, repaired

    def _label(self, own: Entries) -> str:
        return spans_as_label(
            [(item["value"]["start"], item["value"]["end"], label) for item in own for label in self._marked(item)]
        )

    def _regions(self, label: str) -> Iterator[Region]:
        for start, end, kind in spans_in(label):
            value = {"start": start, "end": end, self.type: [kind]}
            yield f"{start}-{end}-{self.choices.index(kind)}", spans_as_label([(start, end, kind)]), {"value": value}


@dataclass(frozen=True, slots=True)
class TimeSegments(Regions):
    """Time segments of a recording, in units of the time column, in seconds, or in frames.

    Label Studio counts frames from 1 and includes the last one, so frames 1 to 10 are 0 to 10 here. A time series with
    a timeFormat has times as text in that format (in UTC, as the page writes them). They are converted to ISO 8601
    here, and back when written.

    Attributes:
        of: tag of the recording: "TimeSeries", "Audio" or "Video".
        time_format: format of times (timeFormat); None if they are numbers.
    """

    of: str
    time_format: str | None = None
    kind: ClassVar[str] = "time_spans"

    @property
    def type(self) -> str:
        """Type of its results."""
        return {"TimeSeries": "timeserieslabels", "Audio": "labels", "Video": "timelinelabels"}[self.of]

    def repair(self, entry: Mapping[str, Any], data: Mapping[str, Any] | None) -> tuple[Mapping[str, Any], str]:
        """Cut a stretch of sound at the ends of the recording, if it extends a little beyond them."""
        value, length = entry["value"], entry.get("original_length")
        sides = [value.get("start"), value.get("end")]
        if self.of != "Audio" or not all(isinstance(side, int | float) for side in sides):
            return entry, ""
        length = length if isinstance(length, int | float) and length > 0 else math.inf
        slack = BEYOND / 100 * length if length < math.inf else SLACK
        if sides[0] < -slack or sides[1] > length + slack:
            raise NotUnderstood(
                f"{sides[0]:g} s to {sides[1]:g} s reaches beyond the recording, which has {length:g} s"
            )
        cut = [max(sides[0], 0), min(sides[1], length)]
        return {**entry, "value": {**value, "start": cut[0], "end": cut[1]}}, "" if cut == sides else CUT

    def _label(self, own: Entries) -> str:
        segments = []
        for item in own:
            labels = self._marked(item)
            ranges = item["value"].get("ranges") if self.of == "Video" else [item["value"]]
            if not isinstance(ranges, list) or not ranges or not all(isinstance(part, dict) for part in ranges):
                raise NotUnderstood(f"{short(ranges)} are no ranges of frames")
            for part in ranges:
                start, end = self._time(part.get("start")), self._time(part.get("end"))
                if self.of == "Video" and not isinstance(start, str):
                    if start < 1:
                        raise NotUnderstood(f"{start!r} is no frame; expected frames counted from 1")
                    start -= 1
                segments += [(start, end, label) for label in labels]
        return spans_as_label(segments)

    def _time(self, value: object) -> Place:
        if self.time_format is not None:
            return _iso(value, self.time_format)
        unit, expected = ("frame", "a whole number") if self.of == "Video" else ("time", "a number below 2**53")
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < LARGEST:
            raise NotUnderstood(f"{value!r} is no {unit}; expected a number below 2**53")
        if self.of == "Video" and value != int(value):
            raise NotUnderstood(f"{value!r} is no {unit}; expected {expected}")
        return int(value) if value == int(value) else value

    def _regions(self, label: str) -> Iterator[Region]:
        for start, end, kind in spans_in(label):
            if self.time_format is None and str in (type(start), type(end)):
                raise TypeError("expected numbers")
            first, last = start, end
            if self.time_format is not None:
                first, last = (_formatted(datetime.fromisoformat(str(time)), self.time_format) for time in (start, end))
            value: dict[str, Any] = {"start": first, "end": last, self.type: [kind]}
            if self.of == "Video":
                value = {"ranges": [{"start": first + 1, "end": last}], self.type: [kind]}
            else:
                value |= {"channel": 0} if self.of == "Audio" else {"instant": False}
            name = f"{start}-{end}-{self.choices.index(kind)}".replace(":", "")
            yield name, spans_as_label([(start, end, kind)]), {"value": value}


@dataclass(frozen=True, slots=True)
class Boxes(Regions):
    """Boxes on an image. x, y is the upper left corner; all four numbers are percent of the image.

    A box that extends beyond the image by up to `BEYOND` percent is cut at the edge. A box is invalid if it extends
    further, is rotated, has no area, or does not have exactly one label.
    """

    kind: ClassVar[str] = "boxes"

    @property
    def type(self) -> str:
        """Type of its results."""
        return "rectanglelabels"

    def repair(self, entry: Mapping[str, Any], data: Mapping[str, Any] | None) -> tuple[Mapping[str, Any], str]:
        """Cut a box at the edge of the image, and take whole turns for none."""
        value, labels = entry["value"], self._marked(entry)
        if len(labels) != 1:
            raise NotUnderstood(
                f"a box of the control {self.name!r} has the labels {short(labels)}; expected one label"
            )
        place: list[Any] = [value.get(side) for side in SIDES]
        if not all(isinstance(side, int | float) and math.isfinite(side) for side in place):
            raise NotUnderstood(f"a box of {labels[0]!r} has no place: x, y, width, height are {short(place)}")
        turns = [value.get("rotation"), entry.get("image_rotation")]
        for name, turn in zip(("a box", "the image below a box"), turns, strict=True):
            if turn and not (isinstance(turn, int | float) and abs(math.remainder(turn, 360)) <= LEVEL):
                raise NotUnderstood(
                    f"{name} of {labels[0]!r} is turned by {short(turn)} degrees; expected an upright one"
                )
        cut = _within_image(labels[0], *place)
        repairs = [TURNED] if any(turn and abs(turn) > LEVEL for turn in turns) else []
        repairs += [CUT] if any(round(abs(a - b), BOX_DIGITS) for a, b in zip(cut, place, strict=True)) else []
        return {**entry, "value": {**value, **dict(zip(SIDES, cut, strict=True))}}, " and ".join(repairs)

    def _label(self, own: Entries) -> str:
        sides = {tuple(_pixels(item.get(f"original_{side}")) for side in ("height", "width")) for item in own}
        sizes = [size for size in sorted(sides) if min(size) > 0]
        if len(sizes) > 1:
            raise NotUnderstood(f"its boxes are on images of different sizes (height, width): {sizes}")
        height, width = sizes[0] if sizes else (0, 0)
        boxes = [(*(item["value"][side] for side in SIDES), *self._marked(item)) for item in own]
        return boxes_as_label(height, width, boxes)

    def _regions(self, label: str) -> Iterator[Region]:
        height, width, boxes = boxes_in(label)
        size = {"original_width": width, "original_height": height} if height and width else {}
        for number, box in enumerate(boxes):
            *place, kind = box
            self.choices.index(kind)
            value = dict(zip(SIDES, place, strict=True)) | {"rotation": 0, self.type: [kind]}
            fields = {**size, "image_rotation": 0, "value": value}
            yield f"box-{number}", boxes_as_label(height, width, [box]), fields


@dataclass(frozen=True, slots=True)
class Masks(Regions):
    """Masks drawn over an image, one region per stroke; the consensus has one region per class."""

    kind: ClassVar[str] = "masks"

    @property
    def type(self) -> str:
        """Type of its results."""
        return "brushlabels"

    def _label(self, own: Entries) -> str:
        sizes = {tuple(_pixels(item.get(f"original_{side}")) for side in ("height", "width")) for item in own}
        if len(sizes) > 1:
            raise NotUnderstood(f"its regions are of images of different sizes (height, width): {sorted(sizes)}")
        height, width = next(iter(sizes), (0, 0))
        if own and not (height > 0 and width > 0):
            raise NotUnderstood(f"its regions are of an image of {width} x {height} pixels")
        masks = []
        for item in own:
            rle = item["value"].get("rle")
            if item["value"].get("format") != "rle":
                raise NotUnderstood(
                    f"{short(item['value'].get('format'))} is no brush mask of the control {self.name!r}"
                )
            if not isinstance(rle, list) or not all(type(byte) is int and 0 <= byte < 256 for byte in rle):
                raise NotUnderstood(f"a mask of the control {self.name!r} is no list of bytes")
            masks += [(label, rle) for label in self._marked(item)]
        return drawn_as_label(height, width, masks)

    def _regions(self, label: str) -> Iterator[Region]:
        height, width, masks = drawn_in(label)
        for kind, rle in masks:
            value = {"format": "rle", "rle": rle, self.type: [kind]}
            fields = {"original_width": width, "original_height": height, "image_rotation": 0, "value": value}
            yield f"mask-{self.choices.index(kind)}", drawn_as_label(height, width, [(kind, rle)]), fields


def _whole(value: object) -> int | None:
    """Return a number as an integer; None unless it is whole."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < LARGEST:
        return None
    return int(value) if value == int(value) else None


def _pixels(side: object) -> int:
    """Return the length of an image's side; 0 if the region does not have it. Raises NotUnderstood if it is invalid."""
    length = 0 if side is None else _whole(side)
    if length is None or length < 0:
        raise NotUnderstood(f"it is on an image with a side of {short(side)} pixels")
    return length


def _within_image(kind: str, x: float, y: float, width: float, height: float) -> tuple[float, float, float, float]:
    """Return a box (x, y, width, height) cut at the edge. Raises NotUnderstood if it extends too far or has no area."""
    box = f"the box of {kind!r} at x {x:g}, y {y:g} with width {width:g}, height {height:g}"
    if min(x, y) < -BEYOND or max(x + width, y + height) > 100 + BEYOND:
        raise NotUnderstood(f"{box} reaches beyond the image; expected 0 to 100 percent")
    if x < 0 or x + width > 100:
        x, width = max(x, 0.0), min(x + width, 100.0) - max(x, 0.0)
    if y < 0 or y + height > 100:
        y, height = max(y, 0.0), min(y + height, 100.0) - max(y, 0.0)
    if round(min(width, height), BOX_DIGITS) <= 0:
        raise NotUnderstood(f"{box} has no area within the image")
    return x, y, width, height


def is_readable(time_format: str) -> bool:
    """Return True if times in this format can be read and written."""
    now = datetime(2026, 12, 31, 23, 59, 58, 123000, tzinfo=UTC)
    try:
        _iso(_formatted(now, time_format), time_format)
    except (NotUnderstood, ValueError):
        return False
    return True


def _iso(value: object, time_format: str) -> str:
    """Return a time in this format as ISO 8601 (UTC). A number is in milliseconds since the epoch, as on the page."""
    try:
        if isinstance(value, str):
            time = datetime.strptime(value, time_format.replace(MILLISECONDS, "%f").replace(OFFSET, "%z"))
        elif isinstance(value, int | float) and not isinstance(value, bool):
            time = datetime.fromtimestamp(value / 1000, UTC)
        else:
            raise ValueError
    except (ValueError, OverflowError, OSError):
        raise NotUnderstood(f"{value!r} is no time in the form {time_format!r}") from None
    return (time.astimezone(UTC) if time.tzinfo else time).replace(tzinfo=None).isoformat()


def _formatted(time: datetime, time_format: str) -> str:
    utc = (time.astimezone(UTC) if time.tzinfo else time).replace(tzinfo=UTC)
    milliseconds = f"{utc.microsecond // 1000:03d}"
    return utc.strftime(time_format.replace(MILLISECONDS, milliseconds).replace(OFFSET, "%z"))
