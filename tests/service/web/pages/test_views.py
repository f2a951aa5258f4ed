"""Searches of items that a lead has saved by name: everybody of the project finds them again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hitl.service.web.access.roles import Role
from tests.service.web.pages.test_hostile import SCRIPT, Links
from tests.service.web.served import Served, served_crowd, serving, small

PAGE = "/projects/p/views"
QUERY = "show=contested&label=dog&sort=labels"


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Served]:
    """A project of the test's own."""
    with serving(served_crowd(tmp_path / "p", small())) as found:
        yield found


def save(served: Served, name: str, query: str) -> Any:
    return served.client.post(PAGE, data={"name": name, "query": query})


def test_a_saved_view_is_on_the_page_of_items_and_finds_the_same(own: Served) -> None:
    assert Links(own.html("/projects/p/items")).of("aria-current") == ["page"]  # Items, of the navigation
    assert save(own, " Doubtful  dogs ", f"page=3&{QUERY}&size=5&junk=1&q=").status_code == 201
    (row,) = own.json(PAGE)["rows"]
    assert (row["name"], row["by"], row["address"]) == ("Doubtful dogs", "tests", f"/projects/p/items?{QUERY}")
    page = Links(own.html("/projects/p/items"))
    assert row["address"] in page.of("href")
    assert "Doubtful dogs" in page.text
    expected = own.json("/projects/p/items", show="contested", label="dog", sort="labels")["rows"]
    assert own.json(row["address"])["rows"] == expected
    assert Links(own.html(row["address"])).of("aria-current") == ["page", "true"]


def test_a_view_is_saved_anew_and_forgotten(own: Served) -> None:
    for query in (QUERY, "show=open"):
        assert save(own, "mine", query).status_code == 201
    assert [row["address"] for row in own.json(PAGE)["rows"]] == ["/projects/p/items?show=open"]
    assert own.client.post(f"{PAGE}/forget", data={"name": "mine"}).status_code == 200
    assert own.json(PAGE)["rows"] == []
    assert own.client.post(f"{PAGE}/forget", data={"name": "mine"}).status_code == 404
    assert save(own, "all", "").status_code == 201
    assert own.json(PAGE)["rows"][0]["address"] == "/projects/p/items"


@pytest.mark.parametrize(
    ("name", "query"),
    [("", "show=open"), ("  ", "show=open"), ("a\x00b", "show=open"), ("x" * 81, "show=open"), ("a", "show=some"),
     ("a", "sort=no"), ("a", f"q={'x' * 201}"), ("a", f"label={'x' * 501}"), ("a", "question=no")],
)  # fmt: skip
def test_what_is_no_view_is_refused(own: Served, name: str, query: str) -> None:
    answer = save(own, name, query)
    assert answer.status_code in (404, 422)
    assert answer.json()["error"]["message"]
    assert own.json(PAGE)["rows"] == []


def test_names_and_words_are_shown_as_they_are(own: Served) -> None:
    assert save(own, SCRIPT, "q=%3Cscript%3E%26x").status_code == 201
    for address in (PAGE, "/projects/p/items"):
        html = own.html(address)
        assert "<script>" not in html
        assert SCRIPT in Links(html).text
    assert own.json(own.json(PAGE)["rows"][0]["address"])["found"] == 0


def test_a_browser_goes_back_to_what_it_has_saved(own: Served) -> None:
    headers = {"Accept": "text/html"}
    answer = own.client.post(PAGE, data={"name": "mine", "query": QUERY}, headers=headers)
    assert (answer.status_code, answer.headers["location"]) == (303, f"/projects/p/items?{QUERY}")
    answer = own.client.post(f"{PAGE}/forget", data={"name": "mine"}, headers=headers)
    assert (answer.status_code, answer.headers["location"]) == (303, PAGE)


def test_a_viewer_sees_them_and_is_shown_no_button(own: Served) -> None:
    save(own, "mine", QUERY)
    token = own.accounts.create_token("reader", Role.VIEWER)
    headers = {"Accept": "text/html", "Authorization": f"Bearer {token}"}
    for address in (PAGE, "/projects/p/items"):
        page = Links(own.client.get(address, headers=headers).text)
        assert "mine" in page.text
        assert not [action for action in page.of("action") if action.startswith(PAGE)]
        assert [action for action in Links(own.html(address)).of("action") if action.startswith(PAGE)]
