"""When cycles are due: times, cron lines, settings and hints, by computed times and no clock."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hitl import project as projects
from hitl.errors import BadSettings
from hitl.service.loop import Debounce
from hitl.service.loops import projects_of, require_secrets
from hitl.settings import ScheduleSettings
from hitl.settings.times import cron_fields, seconds_of, spelled
from tests.scheduled import T0, plainly, project

# -- times -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "seconds"), [("30s", 30), ("15m", 900), ("1h30m", 5400), ("2d", 172_800), ("0.5s", 0.5), ("90m", 5400)]
)
def test_times_in_words(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds
    assert seconds_of(spelled(seconds)) == seconds


@pytest.mark.parametrize("text", ["", "15", "15 m", "m", "-5m", "1w", "15m!", "0s", "0m0s", "1.m"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(BadSettings, match=re.escape(repr(text))):
        seconds_of(text)


@pytest.mark.parametrize(
    "line",
    [
        "*/10 8-18 * * mon-fri",
        "0 0 * * 0",
        "0 12 * * 7",
        "15 */6 1,15 * *",
        "5/20 1-3 * * sat,sun",
        "30 4 * jan,mar 1-5/2",
        "0 9 28-31 * *",
        "*/20 * * * 6",
    ],
)
@pytest.mark.parametrize("start", [datetime(2026, 3, 25, tzinfo=UTC), datetime(2026, 10, 23, tzinfo=UTC)])
def test_cron_lines_come_when_a_plain_reading_says(line: str, start: datetime) -> None:
    """Every minute of eight days around both changes of the clocks, in Vienna."""
    zone, end = ZoneInfo("Europe/Vienna"), start + timedelta(days=8)
    minutes = [start + timedelta(minutes=n) for n in range(8 * 24 * 60)]
    expected = [when for when in minutes if plainly(line, when.astimezone(zone))]
    schedule = ScheduleSettings(cron=line, timezone="Europe/Vienna")
    assert times_of(schedule, start - timedelta(seconds=1), end) == expected


def times_of(schedule: ScheduleSettings, start: datetime, end: datetime) -> list[datetime]:
    """When cycles are due after `start` and before `end`."""
    found, when = [], schedule.next_after(start)
    while when is not None and when < end:
        found.append(when.astimezone(UTC))
        when = schedule.next_after(when)
    return found


def test_a_time_left_out_in_spring_comes_once_and_one_that_comes_twice_in_autumn_twice() -> None:
    schedule = ScheduleSettings(cron="30 2 * * *", timezone="Europe/Vienna")
    assert times_of(schedule, datetime(2026, 3, 28, tzinfo=UTC), datetime(2026, 3, 31, tzinfo=UTC)) == [
        datetime(2026, 3, day, hour, 30, tzinfo=UTC) for day, hour in ((28, 1), (29, 1), (30, 0))
    ]
    assert times_of(schedule, datetime(2026, 10, 24, 12, tzinfo=UTC), datetime(2026, 10, 27, tzinfo=UTC)) == [
        datetime(2026, 10, day, hour, 30, tzinfo=UTC) for day, hour in ((25, 0), (25, 1), (26, 1))
    ]


@pytest.mark.parametrize(
    ("line", "expected"),
    [("0 0 29 2 *", "2028-02-29"), ("0 0 29 2 mon", "2044-02-29"), ("0 0 31 2 *", None), ("0 0 1 1 *", "2027-01-01")],
)
def test_rare_dates_are_found_and_impossible_ones_given_up(line: str, expected: str | None) -> None:
    when = ScheduleSettings(cron=line).next_after(T0)
    assert (when and f"{when:%Y-%m-%d}") == expected


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("* * * *", "has 4 fields; expected 5"),
        ("60 * * * *", "'60' is no minute; expected 0 to 59"),
        ("* 18-8 * * *", "'18-8' is no hour"),
        ("* * 0 * *", "'0' is no day; expected 1 to 31"),
        ("* * * 13 *", "expected 1 to 12 or jan to dec"),
        ("* * * * monday", "'monday' is no day of week; expected 0 to 7 or sun to sat"),
        ("*/0 * * * *", "every n-th"),
        ("*-5 * * * *", "a range a-b"),
        ("1,, * * * *", "'' is no minute"),
    ],
)
def test_cron_lines_that_are_wrong_say_where(line: str, message: str) -> None:
    with pytest.raises(BadSettings, match=message):
        cron_fields(line)


def test_a_week_goes_round_and_sunday_has_two_numbers() -> None:
    assert cron_fields("* * * * fri-mon")["day_of_week"] == {0, 1, 5, 6}
    assert cron_fields("* * * * 5-7")["day_of_week"] == {0, 5, 6}
    assert cron_fields("* * * * 0")["day_of_week"] == cron_fields("* * * * 7")["day_of_week"] == {0}


# -- settings ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        ('every = "15x"', r"schedule.every: '15x' is not a time; expected for instance '30s'"),
        ("every = -5", "schedule.every: input should be greater than 0"),
        ('cron = "61 * * * *"', "schedule.cron: '61' is no minute"),
        ('cron = "* * * * *"\nevery = "1h"', "every and cron exclude each other"),
        ('cron = "* * * * *"\ntimezone = "Mars"', "schedule.timezone: 'Mars' is no time zone"),
        ("after_annotations = 0", "schedule.after_annotations"),
        ('webhook = "8090"', "schedule.webhook: '8090' is no address"),
        ('webhook = "host:99999"', "schedule.webhook: 'host:99999' is no address"),
        ('debounce = "5m"', "debounce_at_most is shorter than debounce"),
        ('often = "1h"', "schedule.often"),
        ("", 'nothing says when to run; expected schedule.every = "15m"'),
        ('timezone = "UTC"', "nothing says when to run"),
        ('webhook = "127.0.0.1:8090"', "needs a secret: set HITL_WEBHOOK_SECRET"),
        ('cron = "0 0 31 2 *"', "schedule.cron: '0 0 31 2 \\*' never comes"),
    ],
)
def test_settings_that_are_wrong_name_the_key(tmp_path: Path, schedule: str, message: str) -> None:
    with pytest.raises(BadSettings, match=message):
        require_secrets(projects_of([project(tmp_path, schedule)]))


def test_a_secret_does_not_stand_in_the_file_and_comes_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = project(tmp_path, 'webhook = "127.0.0.1:1"')
    monkeypatch.setenv("HITL_WEBHOOK_SECRET", "s3cret")
    secret = projects.load(config).webhook_secret
    assert secret is not None
    assert secret.get_secret_value() == "s3cret"
    config.write_text('webhook_secret = "s3cret"\n' + config.read_text())
    with pytest.raises(BadSettings, match="set HITL_WEBHOOK_SECRET in the environment") as caught:
        projects.load(config)
    assert "s3cret" not in str(caught.value)


def test_one_project_twice_is_refused_and_two_of_one_store_are_not(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/hitl.db"
    a, b = (project(tmp_path / folder, name=folder, store=store) for folder in "ab")
    assert [each.name for each in projects_of([a, b])] == ["a", "b"]
    b.write_text(b.read_text().replace('name = "b"', 'name = "a"'))
    with pytest.raises(BadSettings, match="project 'a' of the same store"):
        projects_of([a, b])


def test_two_projects_of_one_name_do_not_listen_at_one_address(tmp_path: Path) -> None:
    a, b = (project(tmp_path / folder, 'webhook = "127.0.0.1:8090"', name="p") for folder in "ab")
    with pytest.raises(BadSettings, match=r"a project 'p' listens at 127\.0\.0\.1:8090 already \(.*a.hitl\.toml"):
        projects_of([a, b])
    b.write_text(b.read_text().replace("8090", "8091"))
    assert len(projects_of([a, b])) == 2


# -- hints -------------------------------------------------------------------------------------------------


@given(st.lists(st.floats(0, 30), min_size=1, max_size=60), st.floats(1, 20), st.floats(20, 60))
def test_a_burst_is_one_run_and_a_stream_cannot_put_it_off(gaps: list[float], quiet: float, at_most: float) -> None:
    """Against a plain simulation of a clock that fires at the time last said."""
    debounce, now = Debounce(quiet, at_most), T0
    due: datetime | None = None
    first = T0
    for gap in gaps:
        now += timedelta(seconds=gap)
        if due is not None and due <= now:
            due = None  # it ran
        if due is None:
            first = now
        due = debounce.hint(now)
        assert now <= due <= first + timedelta(seconds=at_most)
        assert due == now + timedelta(seconds=quiet) or due == first + timedelta(seconds=at_most)
