"""What the store keeps for people of what a cycle could not do, on SQLite and PostgreSQL."""

from __future__ import annotations

from hitl.cli.status import words
from hitl.connectors.label_studio.client import NoAnswer
from hitl.errors import Refused, Unreachable, raise_all
from hitl.formatting import remember
from hitl.plan import Plan
from hitl.platform import Operation, Page
from hitl.status import status_of
from hitl.store import CycleRecord, Store
from tests.projects import NOON, settings

OPERATIONS = (
    Operation("assign", "7", {"items": ["a"]}),
    Operation("assign", "8", {"items": ["b"]}),
    Operation("order", "", {"items": ["a", "b"]}),
)


def test_no_secret_is_kept(store: Store) -> None:
    token = remember("not-to-be-stored-9d1c\n")
    with store.lease("p") as lease:
        store.note_failure(lease, Refused(f"Illegal header value {token!r}"))
    kept = store.failure("p")
    assert kept is not None
    assert {kept.message, *kept.messages} == {"Illegal header value '***'"}


def test_each_thing_that_failed_is_kept(store: Store) -> None:
    with store.lease("p") as lease:
        try:
            raise_all([Refused("no user 7"), Unreachable("no answer"), Refused("no user 7")])
        except Unreachable as error:
            store.note_failure(lease, error)
        kept = store.failure("p")
        assert kept is not None
        assert (kept.error, kept.message) == ("Unreachable", "no user 7; no answer")
        assert kept.messages == ("no user 7", "no answer")
        store.note_failure(lease, OSError("x" * 1000))
        kept = store.failure("p")
        assert kept is not None
        assert kept.messages == ("x" * 500,)
        store.note_failure(lease, NoAnswer("a page"))  # a class of the connector's own
        kept = store.failure("p")
        assert kept is not None
        assert kept.error == "Unreachable"
        store.note_failure(lease, None)
        assert store.failure("p") is None


def test_status_reads_it_all(store: Store) -> None:
    figures = {"items": 4, "done": 1, "confidence": 0.8, "agreement": None, "problems": ["no user 'ann'"]}
    with store.lease("p") as lease:
        store.save_page(lease, Page(cursor={}, problems=("task 7: no label",)))
        store.record_cycle(lease, CycleRecord({}, Plan(), OPERATIONS, figures))
        store.begin_push(lease)
    found = status_of(settings(), store, NOON)
    assert (found.problems, found.left_out, found.unfinished) == (("task 7: no label",), ("no user 'ann'",), True)
    text = "\n".join(words(found))
    for said in (
        "The last push was interrupted",
        "reads them again:\n  task 7: no label\n",
        "Notes from the last run:\n  no user 'ann'\n",
        "3 operations (questions of 2 annotators, order). `hitl push` or the next run sends them",
    ):
        assert said in text
