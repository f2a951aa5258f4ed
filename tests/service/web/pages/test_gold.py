"""A lead gives the right answer to an item on its page: stored and sent as `hitl gold` does."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from hitl.project import opened
from hitl.service.web.access.roles import Role
from hitl.service.web.background import Work
from tests.command_line import Run
from tests.service.web.pages.test_hostile import Links
from tests.service.web.served import Served, served_crowd, serving, small

GOLD, ITEM = "/projects/p/gold", "/projects/p/items/item%203"
HTML = {"Accept": "text/html"}


def finished(served: Served) -> Work:
    for _ in range(500):
        work = served.project().work
        if work is not None and work.ended is not None:
            served.refresh()
            return work
        time.sleep(0.02)
    raise AssertionError("the action did not end in 10 s")


def recorded(config: Path) -> Any:
    with opened(config) as (settings, store, _):
        operations = [(one.key, one.payload, receipt) for one, receipt in store.operations(settings.name, "gold")]
    return operations, (next(config.parent.rglob("gold.csv"))).read_text()


def test_the_form_records_what_the_command_records(tmp_path: Path, run: Run) -> None:
    config, twin = (served_crowd(tmp_path / name, small()) for name in ("p", "twin"))
    with serving(config) as served:
        assert GOLD in Links(served.html(ITEM)).of("action")
        sent = served.client.post(GOLD, data={"item": "item 3", "label": "cat"}, headers=HTML)
        assert (sent.status_code, sent.headers["location"]) == (303, f"{ITEM}?question=label")
        work = finished(served)
        assert not work.failed, work.said
        shown = Links(served.html(ITEM)).text
        assert "Gold item: the right answer is cat" in shown
        assert "the right answer to label is cat" in shown
        assert served.json(ITEM)["item"]["truth"] == "cat"
        assert "the right answer to label" not in Links(served.html("/projects/p/items/item%205")).text
    (tmp_path / "truth.csv").write_text("item,label\nitem 3,cat\n")
    assert run("gold", "truth.csv", "--config", str(twin))[0] == 0
    assert recorded(config) == recorded(twin)


@pytest.mark.parametrize(
    ("given", "status"),
    [({"label": "horse"}, 422), ({"item": "item 99"}, 404), ({"question": "mood"}, 404), ({"label": None}, 422)],
)
def test_what_is_no_item_or_class_is_refused(served: Served, given: dict[str, str], status: int) -> None:
    assert served.client.post(GOLD, data={"item": "item 3", "label": "cat", **given}).status_code == status
    assert served.project().work is None


def test_a_viewer_has_no_form(served: Served) -> None:
    viewer = {"Authorization": f"Bearer {served.accounts.create_token('reader of gold', Role.VIEWER)}"}
    assert GOLD not in Links(served.client.get(ITEM, headers={**viewer, **HTML}).text).of("action")
    assert served.client.post(GOLD, data={"item": "item 3", "label": "cat"}, headers=viewer).status_code == 403
