"""The overview says what has moved since the last cycle, and how far live beliefs were from it."""

from __future__ import annotations

from pathlib import Path

from hitl.service.web.projects import Difference
from tests.service.web.pages.test_hostile import Links
from tests.service.web.served import Served, pull, served_crowd, serving, small

PAGE = "/projects/p"


def words(served: Served) -> str:
    return " ".join(Links(served.html(PAGE)).text.split())


def test_what_has_moved_since_the_last_cycle(tmp_path: Path) -> None:
    config = served_crowd(tmp_path / "p", small())
    with serving(config) as served:
        assert "has moved" not in words(served)
        assert "have changed since the last cycle" not in words(served)
        with (config.parent / "labels" / "annotations.csv").open("a") as file:
            file.writelines(f"item 11,{who},dog,1800000000\n" for who in ("ann", "bob", "cyd"))
        pull(config)
        served.projects.look()
        (row,) = served.json(PAGE)["rows"]
        assert row["changed"] >= 1
        (link,) = {link for link in Links(served.html(PAGE)).of("href") if "show=changed" in link}
        assert served.json(link)["found"] == row["changed"]
        assert "Since cycle 1 the belief in" in words(served)
        assert "Annotations or items have changed since the last cycle" in words(served)


def test_how_far_live_beliefs_were_from_the_last_cycle(served: Served) -> None:
    one = served.project()
    assert served.json(PAGE)["rows"][0]["live"] is None
    assert "believed live" not in words(served)
    before = one.differences
    one.differences = lambda: {"label": Difference(1, 0.0312, 0.00217, 9)}
    try:
        assert served.json(PAGE)["rows"][0]["live"] == {"cycle": 1, "largest": 0.0312, "mean": 0.00217, "items": 9}
        said = words(served).replace("\u00a0", " ")
        assert "Cycle 1 fitted everything anew." in said
        assert "probabilities of 9 items were 0.22 % off on average, 3.1 % at most" in said
    finally:
        one.differences = before
