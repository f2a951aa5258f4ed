"""Answers of a server that is none, or not itself: another shape is an error that says where."""

from __future__ import annotations

from typing import Any

import pytest

from hitl.connectors.label_studio import replies
from hitl.connectors.label_studio.replies import Shape, WrongShape

ANNOTATED = replies.tasks(["id", "annotations", "result"])
COMPARED = replies.tasks(["id", "annotations_ids"])
TASKS = {"tasks": [{"id": 7, "annotations": [{"id": 1, "result": []}]}], "total": 1}


@pytest.mark.parametrize(
    ("shape", "answer", "where"),
    [
        (replies.USERS, [], r": List should have at least 1 item"),
        (replies.USERS, [{"id": 1, "email": "a@b.c"}, {"id": 2, "email": ["a@b.c"]}], r"\[1\]\.email: .*valid string"),
        (replies.USERS, {"results": [{"id": "1"}]}, r"\[0\]\.id: .*valid integer"),
        (replies.USER, {"id": 1, "email": 7}, r"\.email: .*valid string, got '7'"),
        (replies.USER, ["id"], r": .*valid dictionary"),
        (ANNOTATED, TASKS | {"tasks": [{"id": 7, "annotations": [{"id": 1}]}]}, r"annotations\[0\]\.result: Field"),
        (replies.SKIPS, {"skipped_annotations_number": 2**63}, r": Input should be less than or equal"),
        (COMPARED, TASKS, r"tasks\[0\]\.annotations_ids: Field"),
    ],
)
def test_another_shape(shape: Shape, answer: Any, where: str) -> None:
    with pytest.raises(WrongShape, match=where):
        replies.read(shape, answer)


@pytest.mark.parametrize(
    ("shape", "answer"),
    [
        (replies.USERS, [{"id": 1, "email": None}, {"id": 2}]),
        (replies.USER, {"id": 1, "email": "a@b.c", "more": {}}),
        (ANNOTATED, TASKS),
    ],
)
def test_what_a_server_may_leave_out(shape: Shape, answer: Any) -> None:
    assert replies.read(shape, answer) == answer


def test_no_field_is_used_unread() -> None:
    with pytest.raises(KeyError, match="no type of lengths"):
        replies.tasks(["id", "lengths"])
