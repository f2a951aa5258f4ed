"""The overview says what has moved since the last cycle."""

from __future__ import annotations

from pathlib import Path

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
