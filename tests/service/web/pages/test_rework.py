"""What was sent back, and how far that is: to be planned, asked, answered."""

from __future__ import annotations

import time
from pathlib import Path

from tests.service.web.pages.test_hostile import Links
from tests.service.web.served import pull, run, served_crowd, serving, small

PAGE = "/projects/p/rework"


def test_the_state_goes_from_planned_to_answered(tmp_path: Path) -> None:
    config = served_crowd(tmp_path / "p", small())
    with serving(config) as served:
        given = {"item": "item 3", "annotator": "ann", "note": "look again"}
        assert served.client.post(PAGE, data=given).status_code == 201

        def states(expected: str, words: str) -> None:
            served.projects.look()
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
        served.projects.look()
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
