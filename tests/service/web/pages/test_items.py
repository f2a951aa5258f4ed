"""The search of items finds what a loop over plain lists finds."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hitl.report.measures import AGREED, SURE
from hitl.service.web.pages.items import Search, find
from hitl.service.web.snapshot import Snapshot
from tests.service.web.pages.crowds import CLASSES, crowds
from tests.service.web.served import Served

SEARCHES = st.builds(
    Search,
    q=st.sampled_from(["", "text 1", "TEM-2", "nothing"]),
    show=st.sampled_from(["all", "contested", "changed", "open", "done", "known", "unlabeled"]),
    label=st.sampled_from(["", *CLASSES, "no such label"]),
    annotator=st.sampled_from(["", "ann-0", "ann-1", "nobody"]),
    said=st.sampled_from(["", *CLASSES]),
    sort=st.sampled_from(["confidence", "surest", "change", "item", "labels"]),
)


@given(crowds(), SEARCHES)
def test_a_search_finds_what_a_loop_finds(known: Snapshot, wanted: Search) -> None:
    found = [known.names[int(row)].as_py() for row in find(known, known.view(None), wanted)]
    assert len(set(found)) == len(found)
    kept = [item for item in listed(known) if fits(item, wanted)]
    assert set(found) == {item["name"] for item in kept}
    key = {
        "confidence": lambda item: item["confidence"],
        "surest": lambda item: -item["confidence"],
        "change": lambda item: -item["changed"],
        "labels": lambda item: -len(item["said"]),
        "item": lambda item: item["row"],
    }[wanted.sort]
    values = {item["name"]: key(item) for item in kept}
    assert [values[name] for name in found] == sorted(values.values())


def listed(known: Snapshot) -> list[dict[str, Any]]:
    """The items as plain values."""
    view = known.view(None)
    annotations, consensus = view.evidence.annotations, view.consensus
    said: dict[int, dict[str, str]] = {}
    for n, k, label in zip(annotations.item, annotations.annotator, annotations.label, strict=True):
        said.setdefault(int(n), {})[annotations.annotators[k]] = annotations.options[label]
    done = {one.item for one in known.plan.done} if known.plan else set()
    return [
        {
            "row": row,
            "name": name,
            "text": known.texts[row].as_py(),
            "label": consensus.classes[
                max(range(len(consensus.classes)), key=lambda j: consensus.probabilities[row][j])
            ],
            "confidence": max(consensus.probabilities[row]),
            "said": said.get(row, {}),
            "known": view.truth[row] >= 0,
            "changed": view.changed[row],
            "done": name in done,
        }
        for row, name in enumerate(known.names.to_pylist())
    ]


def fits(item: dict[str, Any], wanted: Search) -> bool:
    votes = Counter(item["said"].values())
    agreed = max(votes.values(), default=0) >= AGREED * sum(votes.values())
    shown = {
        "all": True,
        "contested": sum(votes.values()) >= 2 and (item["confidence"] < SURE or not agreed),
        "changed": item["changed"] > 0.1,
        "open": not item["done"],
        "done": item["done"],
        "known": item["known"],
        "unlabeled": not votes,
    }[wanted.show]
    answers = [label for who, label in item["said"].items() if wanted.annotator in ("", who)]
    return (
        shown
        and wanted.label in ("", item["label"])
        and (not wanted.annotator or bool(answers))
        and (not wanted.said or wanted.said in answers)
        and (wanted.q.lower() in item["name"].lower() or wanted.q.lower() in item["text"].lower())
    )


@pytest.mark.parametrize("size", [1, 5, 12, 1000])
def test_pages_together_are_the_whole(served: Served, size: int) -> None:
    whole = [row["item"] for row in served.json("/projects/p/items", size=1000)["rows"]]
    assert len(whole) == 12
    first = served.json("/projects/p/items", size=size)
    pages = [served.json("/projects/p/items", size=size, page=page + 1)["rows"] for page in range(first["pages"])]
    assert [row["item"] for rows in pages for row in rows] == whole
    assert served.json("/projects/p/items", size=size, page=first["pages"] + 1)["rows"] == []


@pytest.mark.parametrize("query", [{"page": 0}, {"page": "x"}, {"size": 1001}, {"show": "some"}, {"sort": "no"}])
def test_what_cannot_be_searched_is_refused(served: Served, query: dict[str, Any]) -> None:
    answer = served.client.get("/projects/p/items", params={**query, "format": "json"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "invalid")
    assert f"query.{next(iter(query))}" in answer.json()["error"]["message"]


def test_a_question_that_is_not_there(served: Served) -> None:
    for part in ("items", "items/item%201", "annotators", "annotators/ann", "models"):
        answer = served.client.get(f"/projects/p/{part}", params={"question": "no", "format": "json"})
        assert answer.status_code == 404
        assert "expected one of 'label'" in answer.json()["error"]["message"]
