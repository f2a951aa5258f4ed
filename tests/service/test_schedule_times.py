"""When cycles are due: times, cron lines, settings and hints, by computed times and no clock."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hitl import project as projects
from hitl.errors import BadSettings
from hitl.service.loop import Debounce
from hitl.service.loops import projects_of, require_secrets
from hitl.settings.schedule import ScheduleSettings
from hitl.settings.times import seconds_of, spelled
from tests.scheduled import T0, project

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
    ("line", "start", "expected"),
    [
        ("*/10 8-18 * * mon-fri", (2026, 11, 20, 17, 45), ["2026-11-20T17:50+00:00", "2026-11-23T07:00+00:00"]),
        ("30 2 * * *", (2026, 3, 28, 12), ["2026-03-29T01:00+00:00", "2026-03-30T00:30+00:00"]),  # the hour is left out
        ("30 2 * * *", (2026, 10, 24, 12), ["2026-10-25T00:30+00:00", "2026-10-26T01:30+00:00"]),  # it comes twice
        ("0 * * * *", (2026, 10, 25, 0, 30), ["2026-10-25T01:00+00:00", "2026-10-25T02:00+00:00"]),
        ("50 2 * * *", (2026, 10, 25, 1, 10), ["2026-10-26T01:50+00:00"]),  # from the second of the two hours
        ("0 9 * * sat-sun", (2026, 11, 20, 12), ["2026-11-21T08:00+00:00", "2026-11-22T08:00+00:00"]),
    ],
)
def test_cron_lines_are_in_the_time_zone(line: str, start: tuple[int, ...], expected: list[str]) -> None:
    schedule, found = ScheduleSettings(cron=line, timezone="Europe/Vienna"), [datetime(*start, tzinfo=UTC)]  # type: ignore[arg-type, misc]
    for _ in expected:
        found.append(schedule.next_after(found[-1]))  # type: ignore[arg-type]
    assert [when.isoformat(timespec="minutes") for when in found[1:]] == expected


# -- settings ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        ('every = "15x"', r"schedule.every: '15x' is not a time; expected for instance '30s'"),
        ("every = -5", "schedule.every: input should be greater than 0"),
        ('cron = "61 * * * *"', r"schedule.cron: '61 .*': bad minute; expected minute hour day-of-month month"),
        ('cron = "* * * *"', "wrong number of fields"),
        ('cron = "*/5 * * * * *"', "wrong number of fields"),
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
        ('cron = "0 0 31 2 *"', "bad day-of-month"),
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
