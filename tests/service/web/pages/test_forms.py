"""Every page is one address with three forms, and all three say the same rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from hitl.errors import BadSettings
from hitl.service.web.access.roles import Role
from hitl.service.web.pages import items, models, overview, people, plan
from tests.service.web.pages.test_hostile import Links
from tests.service.web.served import Crowd, Served, pull, served_crowd, serving, small

PAGES = {
    "/": {"project", "items", "labels", "annotators", "done", "confidence", "cycle", "recorded_at", "trouble"},
    "/projects/p": {"question", "items", "labels", "contested", "expected_accuracy"},
    "/projects/p/items": {"item", "text", "label", "confidence", "labels", "contested", "changed", "truth"},
    "/projects/p/items/item%203": {"annotator", "said", "accuracy", "low", "high", "weight", "time"},
    "/projects/p/items/item%2011": {"annotator", "said", "accuracy", "low", "high", "weight", "time"},
    "/projects/p/annotators": {"annotator", "labels", "accuracy", "low", "high", "bits", "typical_error"},
    "/projects/p/annotators/cyd": {"item", "text", "said", "label", "confidence"},
    "/projects/p/annotators/dee": {"item", "text", "said", "label", "confidence"},
    "/projects/p/models": {"model", "items", "agreement", "temperature", "verdict"},
    "/projects/p/plan": {"item", "text", "annotator", "gain", "right", "why", "since", "check", "audit"},
    "/projects/p/runs": {"cycle", "recorded_at", "labels", "done", "items", "confidence", "agreement", "stop"},
}


@pytest.mark.parametrize("address", PAGES)
def test_json_and_csv_have_the_same_rows(served: Served, address: str) -> None:
    rows = served.json(address)["rows"]
    table = served.client.get(address, params={"format": "csv"})
    assert table.headers["content-type"].startswith("text/csv")
    assert table.headers["content-disposition"].startswith(
        f'attachment; filename="p{"-" if "/p" in address[1:] else "rojects"}'
    )
    header = table.text.splitlines()[0].replace('"', "").split(",")
    assert set(header) >= PAGES[address]
    found = served.csv(address)
    assert [list(row) for row in found] == [header] * len(rows)
    for row, cells in zip(rows, found, strict=True):
        assert {name: said(value) for name, value in row.items()} == cells


def said(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


@pytest.mark.parametrize("address", PAGES)
def test_the_accept_header_chooses_as_the_format_does(served: Served, address: str) -> None:
    for accept, form in (("application/json", "json"), ("text/csv", "csv"), ("text/html,*/*;q=0.1", "html")):
        by_header = served.client.get(address, headers={"Accept": accept})
        by_query = served.client.get(address, params={"format": form})
        assert by_header.status_code == by_query.status_code == 200
        assert by_header.headers["content-type"] == by_query.headers["content-type"]
        if form != "html":  # a page says how long ago something was
            assert by_header.text == by_query.text
    assert "html" in served.client.get(address, headers={"Accept": "*/*"}).headers["content-type"]


@pytest.mark.parametrize("address", PAGES)
def test_a_page_has_one_heading_and_shows_its_rows(served: Served, address: str) -> None:
    page = Links(served.html(address))
    assert page.tags.count("h1") == 1
    assert page.tags.count("title") == 1
    for row in served.json(address)["rows"]:
        for name in ("item", "annotator", "model", "project", "question"):
            if row.get(name):
                assert str(row[name]) in page.text


def test_the_figures_of_a_model_lead_to_as_many_items(served: Served) -> None:
    (row,) = served.json("/projects/p/models")["rows"]
    links = [link for link in Links(served.html("/projects/p/models")).of("href") if "model=net" in link]
    found = [served.json(link)["found"] for link in links]
    assert found[:2] == [row["items"], round(row["agreement"] * row["items"])]
    assert found[2:] in ([], [row["items"] - found[1]])


def test_a_format_that_does_not_exist_is_refused(served: Served) -> None:
    answer = served.client.get("/projects/p/items", params={"format": "xml"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "invalid")


@pytest.mark.parametrize(
    "part", ["", "/items", "/annotators", "/models", "/plan", "/runs", "/items/a", "/annotators/ann"]
)
def test_pages_before_the_first_cycle(tmp_path: Path, part: str) -> None:
    """Labels are in the store and nothing is planned: pages say so, and none breaks."""
    rows = [("a", "ann", "cat"), ("a", "bob", "dog"), ("b", "ann", "dog")]
    with serving(served_crowd(tmp_path / "p", Crowd(rows), after=pull)) as served:
        served.json(f"/projects/p{part}")
        page = Links(served.html(f"/projects/p{part}"))
        if part == "/plan":
            assert "There is no plan yet" in page.text
        if part in ("", "/runs"):
            assert "no run yet" in page.text.lower()


def test_a_viewer_is_shown_no_button_that_would_be_refused(served: Served) -> None:
    token = served.accounts.create_token("reader", Role.VIEWER)
    viewer = {"Accept": "text/html", "Authorization": f"Bearer {token}"}
    for part in ("/plan", "/runs", "/rework", "/items/item%203"):
        for headers, forms in ((viewer, False), ({"Accept": "text/html"}, part != "/rework")):
            page = Links(served.client.get(f"/projects/p{part}", headers=headers).text)
            assert any(action.startswith("/projects/") for action in page.of("action")) == forms, part


@pytest.mark.parametrize("name", ["a/b", ".", "~.."])
def test_a_name_that_cannot_be_in_an_address_is_refused(tmp_path: Path, name: str) -> None:
    config = Crowd([("a", "ann", "cat")], name=name).written(tmp_path / "p")
    with pytest.raises(BadSettings, match="cannot be a part of an address"), serving(config):
        pass


@pytest.mark.parametrize("name", ["100% of it?", "a b#c", "<b>", "عربي"])
def test_any_other_name_is_found(tmp_path: Path, name: str) -> None:
    with serving(served_crowd(tmp_path / "p", small(name))) as served:
        (address,) = {link for link in Links(served.html("/")).of("href") if link.endswith(quote(name, safe="~"))}
        page = Links(served.html(address))
        assert page.of("hx-get") == [address]
        for link in page.of("href"):
            if link.startswith("/projects/"):
                served.html(link)


def test_one_class_alone_is_told(tmp_path: Path) -> None:
    """There is nothing to combine yet: the page says why, and no page breaks."""
    rows = [("a", "ann", "cat"), ("b", "ann", "cat")]
    with serving(served_crowd(tmp_path / "p", Crowd(rows), after=pull)) as served:
        assert "expected at least 2" in served.html("/")
        answer = served.client.get("/projects/p", headers={"Accept": "text/html"})
        assert answer.status_code == 503
        assert "expected at least 2" in answer.text


def test_a_project_without_labels(tmp_path: Path) -> None:
    rows = [("a", "ann", "cat"), ("b", "ann", "dog")]
    config = served_crowd(tmp_path / "p", Crowd(rows), after=lambda config: None)
    with serving(config) as served:
        answer = served.client.get("/projects/p", headers={"Accept": "text/html"})
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
        assert "nothing" in answer.text
        page = Links(served.html("/"))
        assert "p" in page.text


def test_a_table_without_rows_has_the_columns_of_one_with_rows(served: Served) -> None:
    for address, columns in (
        ("/", overview.COLUMNS),
        ("/projects/p/items", items.COLUMNS),
        ("/projects/p/items/item%203", items.ANSWER),
        ("/projects/p/annotators", people.COLUMNS),
        ("/projects/p/annotators/cyd", people.ANSWER),
        ("/projects/p/models", models.COLUMNS),
        ("/projects/p/plan", plan.COLUMNS),
    ):
        assert list(served.json(address)["rows"][0]) == list(columns)
