"""Annotators: counts against a loop, and each number leads to as many items as it says."""

from __future__ import annotations

from collections import Counter
from html import unescape
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given

from hitl.service.web.pages.people import confusion, disagreements, over_time
from hitl.service.web.snapshot import Snapshot
from tests.service.web.pages.crowds import crowds, snapshot
from tests.service.web.pages.test_hostile import Links
from tests.service.web.served import Served


@given(crowds("dawid-skene"))
def test_confusion_counts_are_those_of_a_loop(known: Snapshot) -> None:
    view = known.view(None)
    annotations, consensus = view.evidence.annotations, view.consensus
    for k, who in enumerate(consensus.annotators.names):
        counted: Counter[tuple[Any, Any]] = Counter()
        wrong = set()
        for n, by, label in zip(annotations.item, annotations.annotator, annotations.label, strict=True):
            if annotations.annotators[by] == who:
                true, said = consensus.classes[consensus.codes[n]], annotations.options[label]
                counted[true, said] += 1
                wrong |= {int(n)} if true != said else set()
        rows = confusion(view, k)
        found = {(row["true"], cell["option"]): cell["labels"] for row in rows for cell in row["said"]}
        assert {cell: times for cell, times in found.items() if times} == dict(counted)
        assert [row["labels"] for row in rows] == [
            sum(times for (true, _), times in counted.items() if true == row["true"]) for row in rows
        ]
        for row in rows:
            assert sum(cell["share"] for cell in row["said"]) == pytest.approx(float(row["labels"] > 0))
        places = disagreements(view, str(who))
        assert {int(annotations.item[place]) for place in places} == wrong
        sure = [float(consensus.confidence[annotations.item[place]]) for place in places]
        assert sure == sorted(sure, reverse=True)


def test_agreement_over_time_is_that_of_a_loop() -> None:
    """An annotator who is right at first and wrong at the end, beside two who are right."""
    labels = [[0 if row < 24 else 1, 0, 0] for row in range(40)]
    view = snapshot(labels, times=True).view(None)
    parts = over_time(view, "ann-0")
    assert [part["agreement"] for part in parts] == [1, 1, 1, 1, pytest.approx(0.8), 0, 0, 0]
    assert [part["labels"] for part in parts] == [5] * 8
    assert [part["time"] for part in parts] == sorted(part["time"] for part in parts)
    assert over_time(view, "nobody") == []
    assert over_time(snapshot(labels).view(None), "ann-0") == [], "without times there is no order"


@pytest.mark.parametrize("who", ["ann", "bob", "cyd"])
def test_each_cell_leads_to_its_items(served: Served, who: str) -> None:
    told = served.json(f"/projects/p/annotators/{who}")
    page = Links(served.html(f"/projects/p/annotators/{who}"))
    cells = [unescape(link) for link in page.of("href") if "said=" in link and "label=" in link]
    counts = [cell["labels"] for row in told["confusion"] for cell in row["said"]]
    assert len(cells) == len(counts) == 4
    for link, count in zip(cells, counts, strict=True):
        assert urlsplit(link).path == "/projects/p/items"
        assert served.json(link)["found"] == count
    assert sum(counts) == told["annotator"]["labels"] == 9


@pytest.mark.parametrize("sort", ["labels", "accuracy", "worst", "name"])
def test_the_order_is_what_is_asked_for(served: Served, sort: str) -> None:
    rows = served.json("/projects/p/annotators", sort=sort)["rows"]
    key = {
        "labels": lambda row: -row["labels"],
        "accuracy": lambda row: -row["accuracy"],
        "worst": lambda row: row["accuracy"],
        "name": lambda row: row["annotator"],
    }[sort]
    assert [key(row) for row in rows] == sorted(map(key, rows))
    assert {row["annotator"] for row in rows} >= {"ann", "bob", "cyd"}


def test_one_is_found_by_a_part_of_the_name(served: Served) -> None:
    assert [row["annotator"] for row in served.json("/projects/p/annotators", q="YD")["rows"]] == ["cyd"]
    assert served.json("/projects/p/annotators", q="nobody")["found"] == 0


def test_an_annotator_who_is_asked_and_has_not_answered(served: Served) -> None:
    page = Links(served.html("/projects/p/annotators/dee")).text
    assert "has not labeled anything yet" in page
    assert served.client.get("/projects/p/annotators/nobody", headers={"Accept": "text/html"}).status_code == 404
