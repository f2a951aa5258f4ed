"""Times as other tools write them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hitl.errors import BadAnnotations
from hitl.tables.times import seconds_of

TIMES = st.datetimes(datetime(1971, 1, 1), datetime(2100, 1, 1)).map(lambda time: time.replace(microsecond=0))
FORMATS = (
    "%a %b %d %H:%M:%S UTC %Y",
    "%Y-%m-%d %H:%M:%S UTC",
    "%a, %d %b %Y %H:%M:%S GMT",
    "%d %B %Y %H:%M:%S",
    "%b %d, %Y %I:%M:%S %p",
    "%Y/%m/%d %H:%M:%S",
    "%d.%m.%Y %H:%M:%S",
)


def seconds(*texts: str | None, day_first: bool | None = None) -> list[float]:
    column = pa.chunked_array([pa.array(texts, pa.string())])
    return [float(value) for value in seconds_of(column, "time", day_first)]


@given(st.lists(TIMES, min_size=1, max_size=4), st.sampled_from(FORMATS))
def test_times_are_read_as_they_were_written(times: list[datetime], form: str) -> None:
    texts = [time.strftime(form) for time in times]
    assert seconds(*texts, texts[0]) == [time.replace(tzinfo=UTC).timestamp() for time in (*times, times[0])]


@given(st.lists(TIMES, min_size=1, max_size=4), st.booleans(), st.sampled_from("/-"))
def test_one_date_decides_about_the_column_else_the_flag(times: list[datetime], day_first: bool, mark: str) -> None:
    form = f"%d{mark}%m{mark}%Y %H:%M:%S" if day_first else f"%m{mark}%d{mark}%Y %H:%M:%S"
    sure = datetime(2026, 3, 31)
    expected = [time.replace(tzinfo=UTC).timestamp() for time in (*times, sure)]
    texts = [time.strftime(form) for time in (*times, sure)]
    assert seconds(*texts) == seconds(*texts, day_first=not day_first) == expected
    assert seconds(*texts[:-1], day_first=day_first) == expected[:-1] or any(time.day > 12 for time in times)


@pytest.mark.parametrize(("zone", "hours"), [("PST", -8), ("PDT", -7), ("EST", -5), ("EDT", -4), ("CDT", -5)])
def test_zones_of_mturk(zone: str, hours: int) -> None:
    time = datetime(2026, 3, 2, 9, 2, tzinfo=timezone(timedelta(hours=hours)))
    assert seconds(f"Mon Mar 02 09:02:00 {zone} 2026", None)[0] == time.timestamp()


def test_a_date_of_two_months_needs_the_flag() -> None:
    with pytest.raises(BadAnnotations, match=r"row 1, column 'time': '3/1/2026' may be .*--day-first or --month-first"):
        seconds("3/3/2026", "3/1/2026")
    with pytest.raises(BadAnnotations, match=r"row 1, column 'time': '1/13/2026' has the month first, '13/1/2026' the"):
        seconds("13/1/2026", "1/13/2026")
    assert seconds("3/1/26", day_first=True) == [datetime(2026, 1, 3, tzinfo=UTC).timestamp()]
    assert seconds("3/1/26", day_first=False) == [datetime(2026, 3, 1, tzinfo=UTC).timestamp()]


@pytest.mark.parametrize(
    "text",
    [
        "cat",
        "May",
        "10:23",
        "Mar 2026",
        "3/2026",
        "31/2/2026",
        "Mon Mar 02 09:02:00 IST 2026",
        "13/13/2026",
        "2026-13-01",
    ],
)
def test_what_is_no_time_is_named(text: str) -> None:
    with pytest.raises(BadAnnotations, match=rf"row 1, column 'time': '{text}'"):
        seconds("2026-03-01 10:00:00 UTC", text)
