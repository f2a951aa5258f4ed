"""How a project changes: what has moved, what was sent back, which plan is sent, and what Prometheus is told of it."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
import sqlalchemy as sa

from hitl.connectors.tables import Tables
from hitl.cycle import run_if_changed
from hitl.platform import Pages
from hitl.project import opened
from hitl.store.schema import cycle, project
from tests.service.web.pages.test_gold import finished
from tests.service.web.pages.test_hostile import Links
from tests.service.web.served import Served, pull, run, served_crowd, serving, small

PAGE = "/projects/p/rework"
YEAR = 365 * 24 * 3600.0


def words(served: Served) -> str:
    return " ".join(Links(served.html("/projects/p")).text.split())


def test_what_has_moved_since_the_last_cycle(tmp_path: Path) -> None:
    config = served_crowd(tmp_path / "p", small())
    with config.open("a") as file:
        file.write('\n[schedule]\nevery = "9h"\n')
    with serving(config) as served:
        assert re.search(
            r"Run 1 was (just now|.* ago) \(20.* UTC\)\. The next is due at 20\S+ \S+ UTC\.", words(served)
        )
        assert "has changed by" not in words(served)
        assert "have changed since the last run" not in words(served)
        with (config.parent / "labels" / "annotations.csv").open("a") as file:
            file.writelines(f"item 11,{who},dog,1800000000\n" for who in ("ann", "bob", "cyd"))
        pull(config)
        served.refresh()
        (row,) = served.json("/projects/p")["rows"]
        assert row["changed"] >= 1
        (link,) = {link for link in Links(served.html("/projects/p")).of("href") if "show=changed" in link}
        assert served.json(link)["found"] == row["changed"]
        assert "Since run 1, the confidence in" in words(served)
        assert "Annotations or items have changed since the last run" in words(served)


def test_the_page_has_the_title_of_the_platform(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tables, "workplaces", lambda self: Pages(title="Support tickets"))
    with serving(served_crowd(tmp_path / "p", small())) as served:
        assert "<h1>Support tickets</h1>" in served.html("/projects/p")


def test_the_state_goes_from_planned_to_answered(tmp_path: Path) -> None:
    config = served_crowd(tmp_path / "p", small())
    with serving(config) as served:
        given = {"item": "item 3", "annotator": "ann", "note": "look again"}
        assert served.client.post(PAGE, data=given).status_code == 201

        def states(expected: str, words: str) -> None:
            served.refresh()
            assert [row["state"] for row in served.json(PAGE)["rows"]] == [expected]
            assert words in Links(served.html(PAGE)).text

        states("waits", "waits for the next plan")
        run(config)
        states("asked", "asked")
        answers = config.parent / "labels" / "annotations.csv"
        kept = [line for line in answers.read_text().splitlines() if not line.startswith("item 3,ann,")]
        answers.write_text("\n".join([*kept, f"item 3,ann,cat,{time.time() + 60:.0f}", ""]))
        pull(config)
        states("answered", "answered")


def test_an_item_that_is_gone_is_taken_back(tmp_path: Path) -> None:
    config = served_crowd(tmp_path / "p", small())
    labels = config.parent / "labels"
    with serving(config) as served:
        assert served.client.post(PAGE, data={"item": "item 3", "annotator": "ann"}).status_code == 201
        for name in ("annotations.csv", "items.csv", "probabilities_net.csv"):
            kept = [line for line in (labels / name).read_text().splitlines() if not line.startswith("item 3,")]
            (labels / name).write_text("\n".join([*kept, ""]))
        pull(config)
        served.refresh()
        (row,) = served.json(PAGE)["rows"]
        assert served.client.post(f"{PAGE}/withdraw", data={"item": row["item"], "annotator": "ann"}).status_code == 200
        assert served.json(PAGE)["rows"] == []


def test_a_plan_is_sent_that_was_looked_at(tmp_path: Path) -> None:
    config = served_crowd(tmp_path / "p", small())
    with serving(config) as served:
        seen = served.snapshot().number
        run(config)
        sent = served.client.post("/projects/p/plan/approve", data={"cycle": seen})
        assert (sent.status_code, "another plan has been made since" in sent.text) == (409, True)
        assert served.client.post("/projects/p/plan/approve", data={"cycle": seen + 1}).status_code == 202


def test_a_program_learns_how_a_run_that_it_started_ended(tmp_path: Path) -> None:
    config = served_crowd(tmp_path / "p", small())
    good = config.read_text()
    with serving(config) as served:
        assert served.json("/projects/p/runs")["work"] is None
        config.write_text(good + "[budget]\ntarget_confidence = 1.95\n")
        assert served.client.post("/projects/p/runs").status_code == 202
        finished(served)
        work = served.json("/projects/p/runs")["work"]
        assert (work["what"], work["failed"]) == ("run", True)
        assert "hitl.toml" in work["said"]
        config.write_text(good)


def test_the_last_look_is_told_if_no_run_came_after_it(tmp_path: Path) -> None:
    config = served_crowd(tmp_path / "p", small())
    with serving(config) as served:
        with opened(config) as (settings, store, connector):
            run_if_changed(settings, store, connector)
        served.refresh()
        assert "Checked for changes just now" in served.html("/projects/p/runs")
        run(config)
        served.refresh()
        assert "Checked for changes" not in served.html("/projects/p/runs")


@pytest.mark.parametrize("looked", [True, False])
def test_a_cycle_of_a_clock_that_was_ahead_is_not_the_last_that_finished(tmp_path: Path, *, looked: bool) -> None:
    now = time.time()

    def afterwards(config: Path) -> None:
        run(config)
        with opened(config) as (_, store, _), store.database.write() as connection:
            connection.execute(sa.update(cycle).values(recorded_at=now + YEAR))
            connection.execute(sa.update(project).values(looked_at=now - 3600.0 if looked else None))

    with serving(served_crowd(tmp_path / "p", small(), afterwards)) as served:
        text = served.client.get("/metrics").text
    told = [float(line.split()[1]) for line in text.splitlines() if line.startswith("hitl_project_finished_timestamp")]
    assert told == ([pytest.approx(now - 3600.0)] if looked else [])
    assert 'hitl_project_failed{project="p"} 0.0' in text


def test_an_item_that_nothing_speaks_about_has_no_label(tmp_path: Path) -> None:
    config = served_crowd(tmp_path / "p", small())
    with (config.parent / "labels" / "items.csv").open("a") as file:
        file.write("lonely,nobody has seen it\n" if file.tell() else "item\nlonely\n")
    run(config)
    with serving(config) as served:
        (row,) = served.json("/projects/p/items?show=unlabeled&q=lonely")["rows"]
        assert (row["label"], row["confidence"], row["labels"]) == (None, None, 0)
        assert "no answer yet" in Links(served.html("/projects/p/items?q=lonely")).text
        assert "No answer yet" in Links(served.html("/projects/p/items/lonely")).text
