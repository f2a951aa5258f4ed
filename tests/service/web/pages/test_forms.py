"""Every page is one address with three forms, and all three say the same rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hitl.service.web.pages import annotators, items, models, overview, plan, story
from tests.service.web.pages.test_hostile import Links
from tests.service.web.served import Crowd, Served, pull, served_crowd, serving

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
    assert "attachment" in table.headers["content-disposition"]
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
            assert "no cycle yet" in page.text.lower()


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
        ("/projects/p/items/item%203", story.ANSWER),
        ("/projects/p/annotators", annotators.COLUMNS),
        ("/projects/p/annotators/cyd", annotators.ANSWER),
        ("/projects/p/models", models.COLUMNS),
        ("/projects/p/plan", plan.COLUMNS),
    ):
        assert list(served.json(address)["rows"][0]) == list(columns)
