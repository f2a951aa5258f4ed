"""Every number of a table leads to what it comes from; what a study estimates over all items has no list of its own."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from tests.service.web.pages.test_hostile import Links
from tests.service.web.served import Served

ADDRESSES = (
    "/projects/p",
    "/projects/p/items",
    "/projects/p/items/item%203",
    "/projects/p/annotators",
    "/projects/p/annotators/cyd",
    "/projects/p/team",
    "/projects/p/models",
    "/projects/p/plan",
    "/projects/p/runs",
)


class Numbers(HTMLParser):
    """The cells of numbers: their text, and whether all of it is a link."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.cells: list[tuple[str, bool]] = []
        self._cell = self._link = self._study = False
        self.feed(html)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        """A cell or a link begins; or a study, up to the end of its section."""
        self._study |= "data-study" in dict(attributes)
        self._cell |= tag == "td" and "n" in (dict(attributes).get("class") or "").split()
        self._link |= tag == "a"

    def handle_endtag(self, tag: str) -> None:
        """It ends."""
        self._cell &= tag != "td"
        self._study &= tag != "section"
        self._link &= tag != "a"

    def handle_data(self, data: str) -> None:
        """What stands in it."""
        if self._cell and not self._study and re.search(r"\d", data):
            self.cells.append((data, self._link))


@pytest.mark.parametrize("address", ADDRESSES)
def test_a_number_is_a_link(served: Served, address: str) -> None:
    cells = Numbers(served.html(address)).cells
    assert cells
    assert [text for text, linked in cells if not linked] == []


def test_what_a_number_links_to_is_there(served: Served) -> None:
    for address in ADDRESSES:
        for link in Links(served.html(address)).of("href"):
            page, _, part = link.partition("#")
            if link.startswith("/projects/") and part:
                assert f'id="{part}"' in served.html(page), link


def test_a_cycle_has_a_page_of_its_own(served: Served) -> None:
    (cycle,) = served.json("/projects/p/runs")["rows"]
    page = f"/projects/p/runs/{cycle['cycle']}"
    assert page in Links(served.html("/projects/p/runs")).of("href")
    figures = {row["figure"]: row["value"] for row in served.json(page)["rows"]}
    assert figures["labels"] == cycle["labels"] == 27
    assert figures["models.net.agrees"] == pytest.approx(4 / 9)
    assert "elieved accuracy" in Links(served.html(page)).text
    for number, status in (("2", 404), ("0", 404), ("x", 422)):
        assert served.client.get(f"/projects/p/runs/{number}?format=json").status_code == status
