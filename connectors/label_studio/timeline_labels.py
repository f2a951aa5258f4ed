"""Read and write time segments marked in recordings: one region of a result list per label of a segment.

    <TimeSeriesLabels> on <TimeSeries>
    {"type": "timeserieslabels", "value": {"start": 4, "end": 60, "instant": false, "timeserieslabels": ["walk"]}, ...}
    <Labels> on <Audio>
    {"type": "labels", "value": {"start": 0.51, "end": 2.07, "channel": 0, "labels": ["speech"]}, ...}
    <TimelineLabels> on <Video>
    {"type": "timelinelabels", "value": {"ranges": [{"start": 1, "end": 10}], "timelinelabels": ["goal"]}, ...}

Times are in units of the time column, in seconds, and in frames, respectively. Label Studio counts frames from 1 and
includes the last one, so frames 1 to 10 are 0 to 10 here. A time series with a timeFormat has times as text in that
format (in UTC, as the page writes them). They are converted to ISO 8601 here, and back when written.

An annotation without regions means that there is nothing to mark. In the consensus, a region's score is the
probability of the segment.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from hitl.connectors.label_studio.answers import Answers, NotUnderstood, results_of
from hitl.errors import BadSettings
from hitl.parts import LARGEST, Place, spans_as_label, spans_in
from hitl.platform import Question

TYPES = {"TimeSeries": "timeserieslabels", "Audio": "labels", "Video": "timelinelabels"}
"""Tag of the labeled object -> type of its results, which is also the key of their labels."""

MILLISECONDS, OFFSET = "%L", "%Z"
"""Codes of milliseconds and UTC offset in a timeFormat. Python lacks the first, and has %z for the second."""


@dataclass(frozen=True, slots=True)
class TimelineLabels:
    """A control to mark time segments of a recording.

    Attributes:
        name, target: the control and the recording it labels (from_name and to_name of results).
        field: the field of a task's data that holds the recording, or its address.
        choices: the classes of segments.
        of: the kind of recording, a key of `TYPES`.
        time_format: format of times; None if they are numbers.
    """

    name: str
    target: str
    field: str
    choices: tuple[str, ...]
    of: str
    time_format: str | None = None

    @property
    def questions(self) -> tuple[Question, ...]:
        """Questions about every item: one, about its segments."""
        return (Question(self.name, self.choices, self.choices, "time_spans", self.field),)

    def read(self, result: object) -> Answers:
        """Return the segments in an annotation's result. Raises NotUnderstood for a region that is not a segment."""
        own = results_of(self.name, result)
        return {self.name: spans_as_label([segment for item in own for segment in self._segments(item)])}

    def write(
        self, labels: Mapping[str, str], distributions: Mapping[str, Mapping[str, float]] | None = None
    ) -> list[dict[str, Any]]:
        """Return regions for these segments; `distributions` has the probability of each, by its one-segment label.

        Raises BadSettings for an invalid segment.
        """
        if not labels:
            return []
        sure = (distributions or {}).get(self.name, {})
        unknown = [name for name in labels if name != self.name]
        try:
            segments = spans_in(labels.get(self.name, ""))
            kinds = [kind for *_, kind in segments if kind not in self.choices]
            regions = [] if kinds else [self._region(*one, sure.get(spans_as_label([one]))) for one in segments]
        except (TypeError, ValueError):
            unknown, kinds, regions = [self.name], [], []
        if unknown or kinds:
            raise BadSettings(f"{(unknown + kinds)[0]!r}: {labels!r} is no answer to control {self.name!r}")
        return regions

    def read_prediction(self, result: object, score: object) -> dict[str, dict[str, float]]:
        """Return nothing: a model's segments are not combined with those of annotators yet."""
        return {}

    def _segments(self, item: Mapping[str, Any]) -> list[tuple[Place, Place, str]]:
        value, key = item.get("value"), TYPES[self.of]
        if item.get("type") != key or not isinstance(value, dict):
            raise NotUnderstood(f"{item.get('type')!r} is no answer to the control {self.name!r}")
        labels = value.get(key) or ()
        for label in labels:
            if label not in self.choices:
                raise NotUnderstood(f"{label!r} is not among the labels of {self.name!r}")
        ranges = value.get("ranges") if self.of == "Video" else [value]
        if not isinstance(ranges, list) or not all(isinstance(one, dict) for one in ranges):
            raise NotUnderstood(f"{ranges!r} are no ranges of frames")
        sides = [(self._time(one.get("start")), self._time(one.get("end"))) for one in ranges]
        return [(self._first(start), end, label) for start, end in sides for label in labels]

    def _first(self, start: Place) -> Place:
        """Return the start of a segment, which is the end of the previous frame."""
        return start - 1 if self.of == "Video" and not isinstance(start, str) else start

    def _time(self, said: object) -> Place:
        if self.time_format is not None:
            return _iso(said, self.time_format)
        unit = "frame" if self.of == "Video" else "time"
        if isinstance(said, bool) or not isinstance(said, int | float) or not abs(said) < LARGEST:
            raise NotUnderstood(f"{said!r} is no {unit}; expected a number below 2**53")
        if unit == "frame" and said != int(said):
            raise NotUnderstood(f"{said!r} is no {unit}; expected a whole number")
        return int(said) if said == int(said) else said

    def _region(self, start: Place, end: Place, kind: str, probability: float | None) -> dict[str, Any]:
        key = TYPES[self.of]
        value: dict[str, Any] = {"start": self._written(start), "end": self._written(end), key: [kind]}
        if self.of == "Video":
            value = {"ranges": [{"start": value["start"] + 1, "end": value["end"]}], key: [kind]}
        elif self.of == "Audio":
            value["channel"] = 0
        else:
            value["instant"] = False
        region = {
            "id": f"{start}-{end}-{self.choices.index(kind)}".replace(":", ""),
            "from_name": self.name,
            "to_name": self.target,
            "type": key,
            "value": value,
        }
        return region if probability is None else region | {"score": probability}

    def _written(self, time: Place) -> Place:
        """Return a time in the control's format. Raises ValueError and TypeError for an invalid one."""
        if self.time_format is None:
            if isinstance(time, str):
                raise TypeError(f"{time!r} is no number")
            return time
        return _formatted(datetime.fromisoformat(str(time)), self.time_format)


def why_not_format(time_format: str) -> str | None:
    """Return why times in this format cannot be read and written, or None if they can."""
    now = datetime(2026, 12, 31, 23, 59, 58, 123000, tzinfo=UTC)
    try:
        _iso(_formatted(now, time_format), time_format)
    except (NotUnderstood, ValueError):
        return f"has timeFormat={time_format!r}, which hitl cannot read; expected for instance '%Y-%m-%d %H:%M:%S.%L'"
    return None


def _iso(said: object, time_format: str) -> str:
    """Return a time in this format as ISO 8601 (UTC). A number is milliseconds since the epoch, as in the page."""
    try:
        if isinstance(said, str):
            time = datetime.strptime(said, time_format.replace(MILLISECONDS, "%f").replace(OFFSET, "%z"))
        elif isinstance(said, int | float) and not isinstance(said, bool):
            time = datetime.fromtimestamp(said / 1000, UTC)
        else:
            raise ValueError
    except (ValueError, OverflowError, OSError):
        raise NotUnderstood(f"{said!r} is no time in the form {time_format!r}") from None
    return (time.astimezone(UTC) if time.tzinfo else time).replace(tzinfo=None).isoformat()


def _formatted(time: datetime, time_format: str) -> str:
    own = (time.astimezone(UTC) if time.tzinfo else time).replace(tzinfo=UTC)
    milliseconds = f"{own.microsecond // 1000:03d}"
    return own.strftime(time_format.replace(MILLISECONDS, milliseconds).replace(OFFSET, "%z"))
