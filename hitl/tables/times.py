"""Read and write times: numbers, timestamps, ISO 8601, and dates as other tools write them.

    2026-03-01 10:23:00 UTC    Mon Mar 02 09:02:00 PST 2026    3/1/2026 14:02

dateutil parses what is not ISO 8601. Whether 3/1/2026 is in March or in January is decided by the other dates of the
column, or else by the caller.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hitl.errors import BadAnnotations, BadTable
from hitl.tables.columns import Place, is_text, numbers_of, row_number

YEAR_1, YEAR_10000 = -62_135_596_800, 253_402_300_800
"""Range of seconds since the epoch whose years have four digits, as ISO 8601 expects."""

ZONES = {
    f"{zone}{time}": 3600 * (hours + (time == "DT"))
    for zone, hours in zip("ECMP", (-5, -6, -7, -8), strict=True)
    for time in ("ST", "DT")
}
"""Names of time zones (RFC 5322) -> seconds from UTC. Other names, such as IST, have several meanings."""

_SHORT_DATE = re.compile(r"(\d{1,2})([-./])(\d{1,2})\2(?:\d{4}|(?<=/)\d{2})(?!\d)")
"""Date of two small numbers and a year."""

_PERHAPS_SHORT = r"^\s*\d{1,2}[-./]\d"
"""Beginning of such a date, which Arrow finds quickly."""


def seconds_of(
    column: pa.ChunkedArray, name: str, day_first: bool | None = None, place_of: Place = row_number
) -> npt.NDArray[np.float64]:
    """Return times as seconds since the epoch. Text without a time zone is taken as UTC.

    `day_first` says whether 3/1/2026 is in January; None: only if other dates in the column show it. Raise
    BadAnnotations, naming the row and the column, for text that is no time, and for dates that are not decided.
    """
    if is_text(column.type):
        with suppress(BadTable):
            return numbers_of(column, f"column {name!r}")
        for zone in ("UTC", None):
            with suppress(pa.ArrowInvalid):
                column = pc.cast(column, pa.timestamp("us", tz=zone))
                break
        else:
            column = _parsed(column, name, day_first, place_of)
    if pa.types.is_date(column.type):
        column = pc.cast(column, pa.timestamp("us"))
    if pa.types.is_timestamp(column.type):
        micros = pc.cast(pc.cast(column, pa.timestamp("us", tz=column.type.tz), safe=False), pa.int64())
        return np.asarray(pc.divide(pc.cast(micros, pa.float64()), 1e6).to_numpy(), dtype=np.float64)
    return numbers_of(column, f"column {name!r}")


def order_of(column: pa.ChunkedArray, name: str, day_first: bool | None, place_of: Place) -> bool | None:
    """Return whether the day comes first in the dates of a part of a column; `day_first` if it has no short dates.

    `day_first` is the order in the parts before, or the caller's. Raise BadAnnotations if this part shows the other
    order, or if nothing shows it.
    """
    if not is_text(column.type):
        return day_first
    column = pc.utf8_trim_whitespace(column)
    dates = column.filter(pc.match_substring_regex(column, _PERHAPS_SHORT)).unique().to_pylist()
    short = {text: found for text in dates if (found := _SHORT_DATE.match(text))}
    if not short:
        return day_first
    place = _place_in(column, name, place_of)
    shown = _decide(short, day_first, place)
    if day_first not in (None, shown):
        text = next(text for text, found in short.items() if int(found[1 if shown else 3]) > 12)
        first, other = ("day", "month") if shown else ("month", "day")
        raise BadAnnotations(
            f"{place(text)} has the {first} first; expected the {other} first, as in the rows before or as "
            f"--{other}-first says: one order in a column"
        )
    return shown


def _parsed(column: pa.ChunkedArray, name: str, day_first: bool | None, place_of: Place) -> pa.ChunkedArray:
    """Parse each distinct text of a column once."""
    column = pc.utf8_trim_whitespace(column)
    chunks, place = column.dictionary_encode().chunks, _place_in(column, name, place_of)
    texts = chunks[0].dictionary.to_pylist()  # of all chunks
    short = {text: found for text in texts if (found := _SHORT_DATE.match(text))}
    day_first = _decide(short, day_first, place) if short else None
    complete: set[str] = set()
    seconds: list[float | None] = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # an unknown time zone
        for text in texts:
            try:
                seconds.append(parse_time(text, text in short and bool(day_first), complete) if text else None)
            except (ValueError, OverflowError, Warning):
                raise BadAnnotations(
                    f"{place(text)} is no time; expected ISO 8601 (2026-03-01T10:23:00Z) or seconds since 1970"
                ) from None
    parsed = pa.array(seconds, pa.float64())
    return pa.chunked_array([parsed.take(chunk.indices) for chunk in chunks], pa.float64())


def _place_in(column: pa.ChunkedArray, name: str, place_of: Place) -> Callable[[str], str]:
    """Return a function that names the first row with a text of a column."""
    return lambda text: f"{place_of(int(pc.index(column, text).as_py()))}, column {name!r}: {text!r}"


def parse_time(text: str, day_first: bool, complete: set[str]) -> float:
    """Return a time as seconds since the epoch, in UTC if it has no zone. Warn of an unknown zone.

    Raise ValueError or OverflowError for text that is no time, and for a date without a year, month or day.

    `complete`: shapes of text that were found to have all three.
    """
    from dateutil import parser

    time = parser.parse(text, dayfirst=day_first, tzinfos=ZONES, default=datetime(2000, 1, 1))
    shape = re.sub(r"\d", "0", re.sub("[^\\W\\d]", "a", text))
    if shape not in complete:
        if time != parser.parse(text, dayfirst=day_first, tzinfos=ZONES, default=datetime(2004, 2, 2)):
            raise ValueError(text)
        complete.add(shape)
    return float((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp())


def _decide(dates: Mapping[str, re.Match[str]], day_first: bool | None, place: Callable[[str], str]) -> bool:
    """Return True if the day comes first in these dates. Raise BadAnnotations if they do not show it, or differ."""
    day = next((text for text, found in dates.items() if int(found[1]) > 12), None)
    month = next((text for text, found in dates.items() if int(found[3]) > 12), None)
    if day and month:
        raise BadAnnotations(f"{place(month)} has the month first, {day!r} the day; expected one order in a column")
    if day or month:
        return day is not None
    if day_first is not None:
        return day_first
    different = [text for text, found in dates.items() if int(found[1]) != int(found[3]) and found[2] != "."]
    if different:
        raise BadAnnotations(
            f"{place(different[0])} may be in two different months, and no date of the column shows which number is "
            "the day; say it with --day-first or --month-first (hitl.toml: source.day_first; Python: give datetimes)"
        )
    return True  # with points, the day comes first everywhere


def iso_8601(seconds: npt.NDArray[np.float64]) -> pa.Array:
    """Return seconds since the epoch as text, such as 2026-01-31T12:00:00.500000Z.

    NaN and times outside the years 1 to 9999 become null.
    """
    known = (seconds >= YEAR_1) & (seconds < YEAR_10000)
    micros = np.round(np.where(known, seconds, 0) * 1e6).astype(np.int64).astype("datetime64[us]")
    return pa.array(np.datetime_as_string(micros, timezone="UTC").astype(object), pa.string(), mask=~known)
