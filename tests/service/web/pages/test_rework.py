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
