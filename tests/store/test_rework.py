"""An item that was sent back is answered by what its annotator says later, on the platform's clock alone."""

from __future__ import annotations

import time
from typing import Any

import pytest

from hitl.store import Store
from tests.store.rows import item, page, said


@pytest.mark.parametrize("ahead", [-7200.0, 0.0, 7200.0], ids=["behind", "right", "ahead"])
@pytest.mark.parametrize(
    ("later", "answered"),
    [
        (None, False),
        ({"who": "bob"}, False),
        ({"second": 30}, True),
        ({"second": 30, "kind": "gold"}, True),
        ({"second": 30, "kind": "skip", "label": None}, True),
        ({"second": 5}, False),
    ],
    ids=["nothing", "somebody else", "an answer", "ground truth", "a skip", "an older one that came late"],
)
def test_what_comes_later_answers_it(
    store: Store, monkeypatch: pytest.MonkeyPatch, ahead: float, later: dict[str, Any] | None, answered: bool
) -> None:
    served = 1714564810.0  # 12:00:10 of `at`, when the annotator answered first
    monkeypatch.setattr(time, "time", lambda: served + 10 - ahead)
    with store.lease("p") as lease:
        store.save_page(lease, page(1, item("i1"), said("1", "i1", second=10)))
        sent = store.send_back("p", "i1", "ann", "lea")
        assert sent.since == served + 10 - ahead
        assert [back.answered for back in store.sent_back("p")] == [False]
        rows = [] if later is None else [said("2", "i1", **later)]
        store.save_page(lease, page(2, item("i1", second=40), said("1", "i1", second=10), *rows))
    assert [back.answered for back in store.sent_back("p")] == [answered]
    label = None if later and later.get("kind") == "skip" else "yes"
    assert store.replies("p") == ([("i1", "ann", "q", label)] if answered else [])


def test_an_expert_who_has_not_answered_it_may_be_on_a_clock_of_long_ago(store: Store) -> None:
    with store.lease("p") as lease:
        store.save_page(lease, page(1, item("i1")))
        store.send_back("p", "i1", "eve", "lea")
        store.save_page(lease, page(2, item("i1", second=40), said("1", "i1", who="eve", second=30)))
    assert store.sent_back("p")[0].answered


def test_an_answer_without_a_time_does_not_answer_it(store: Store) -> None:
    from dataclasses import replace

    with store.lease("p") as lease:
        store.save_page(lease, page(1, item("i1")))
        store.send_back("p", "i1", "ann", "lea")
        store.save_page(lease, page(2, item("i1", second=40), replace(said("1", "i1"), version="7")))
    assert not store.sent_back("p")[0].answered
