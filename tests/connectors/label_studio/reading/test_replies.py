"""Answers of a server that is none, or not itself: another shape is an error that says where."""

from __future__ import annotations

from typing import Any

import pytest

from hitl.connectors.label_studio import replies
from hitl.connectors.label_studio.replies import Reader, WrongShape

ANNOTATED = replies.tasks(["id", "annotations", "result"])
COMPARED = replies.tasks(["id", "annotations_ids"])
TASKS = {"tasks": [{"id": 7, "annotations": [{"id": 1, "result": []}]}], "total": 1}


@pytest.mark.parametrize(
    ("reader", "answer", "where"),
    [
        (replies.users, [], r": expected a list of 1 or more"),
        (replies.users, [{"id": 1, "email": "a@b.c"}, {"id": 2, "email": ["a@b.c"]}], r"\[1\]\.email: expected text"),
        (replies.users, {"results": [{"id": "1"}]}, r"\[0\]\.id: expected a whole number"),
        (replies.user, {"id": 1, "email": 7}, r"\.email: expected text, found '7'"),
        (replies.user, ["id"], r": expected an object"),
        (ANNOTATED, TASKS | {"tasks": [{"id": 7, "annotations": [{"id": 1}]}]}, r"annotations\[0\]: result is not"),
        (replies.tasks(["id", "meta"]), TASKS | {"tasks": [{"id": 7, "meta": 0.5}]}, r"\.meta: expected an object"),
        (replies.SKIPS, {"skipped_annotations_number": 2**63}, r": expected a whole number"),
        (
            replies.tasks(["id", "annotations", "lead_time"]),
            TASKS | {"tasks": [{"id": 7, "annotations": [{"id": 1, "lead_time": float("inf")}]}]},
            r"annotations\[0\]\.lead_time: expected a number",
        ),
        (COMPARED, TASKS, r"tasks\[0\]: annotations_ids is not there"),
    ],
)
def test_another_shape(reader: Reader, answer: Any, where: str) -> None:
    with pytest.raises(WrongShape, match=where):
        reader(answer)


@pytest.mark.parametrize(
    ("reader", "answer"),
    [
        (replies.users, [{"id": 1, "email": None}, {"id": 2}]),
        (replies.user, {"id": 1, "email": "a@b.c", "more": {}}),
        (ANNOTATED, TASKS),
    ],
)
def test_what_a_server_may_leave_out(reader: Reader, answer: Any) -> None:
    assert reader(answer) == answer


def test_no_field_is_used_unread() -> None:
    with pytest.raises(KeyError, match="no reader of lengths"):
        replies.tasks(["id", "lengths"])
