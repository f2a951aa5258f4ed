"""What a platform refuses, or does not answer, does not stop what is behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from hitl import cycle
from hitl.connectors.tables import Tables
from hitl.errors import HitlError, LeaseLost, Refused, Unreachable
from hitl.operations import IN_A_ROW, push
from hitl.platform import Operation, Receipt
from hitl.store import Store
from hitl.store.schema import project as projects
from tests.projects import settings


class Picky(Tables):
    """Tables that raise for some operations."""

    def __init__(self, folder: Path, wrong: Callable[[Operation], HitlError | None]) -> None:
        super().__init__(folder)
        self.wrong = wrong
        self.asked: list[str] = []

    def push(self, operations: Iterable[Operation]) -> Iterator[Receipt]:
        for operation in operations:
            self.asked.append(f"{operation.kind} {operation.key}".strip())
            error = self.wrong(operation)
            if error is not None:
                raise error
            yield from super().push([operation])


def refusing(*kinds: str, error: type[HitlError] = Refused) -> Callable[[Operation], HitlError | None]:
    return lambda operation: error(f"no {operation.kind}, mend it") if operation.kind in kinds else None


@pytest.mark.parametrize("kind", ["order", "assign", "labels_wanted", "consensus"])
@pytest.mark.parametrize("error", [Refused, Unreachable])
def test_the_others_are_served_and_it_is_sent_again_until_it_is_taken(
    folder: Path, store: Store, kind: str, error: type[HitlError]
) -> None:
    for _ in range(2):  # it repeats
        picky = Picky(folder, refusing(kind, error=error))
        with pytest.raises(error, match=f"no {kind}, mend it"):
            cycle.run(settings(), store, picky)
        left = {operation.kind for operation in store.pending("p")}
        assert left == {kind, *({"consensus"} if kind == "order" else ())}
        failure = store.failure("p")
        assert failure is not None
        assert f"no {kind}, mend it" in failure.message
    cycle.run(settings(), store, Tables(folder))
    assert (store.pending("p"), store.failure("p")) == ([], None)


def test_one_person_whom_the_platform_refuses_does_not_stop_the_other(folder: Path, store: Store) -> None:
    wrong = Picky(folder, lambda each: Refused("dee has left") if each.key == "dee" else None)
    with pytest.raises(Refused, match="dee has left"):
        cycle.run(settings(), store, wrong)
    assert (folder / "hitl-output/assignments/eve.csv").read_text().count("\n") > 1
    assert [operation.key for operation in store.pending("p")] == ["dee"]


def test_what_was_queued_and_is_refused_stops_no_cycle(folder: Path, store: Store) -> None:
    with store.lease("p") as lease:
        store.queue(
            lease, [Operation("add_items", "new.csv", {"items": []}), Operation("gold", "q", {"questions": {}})]
        )
    picky = Picky(folder, refusing("add_items", "gold"))
    with pytest.raises(
        Refused, match=r"no add_items.*not retried: items of new\.csv.*no gold.*not retried: ground truth of q"
    ):
        cycle.run(settings(), store, picky)
    assert store.pending("p") == []
    assert store.last_cycle("p") is not None
    assert cycle.run(settings(), store, Tables(folder)).changed == 0


def test_a_platform_that_is_down_is_not_asked_for_ever(folder: Path, store: Store) -> None:
    picky = Picky(folder, lambda _: Unreachable("down", 7.0))
    with pytest.raises(Unreachable, match="down") as caught:
        cycle.run(settings(), store, picky)
    assert len(picky.asked) == IN_A_ROW
    assert caught.value.retry_after == 7.0


def test_no_answer_after_the_lease_was_lost_leaves_all_in_doubt(folder: Path, store: Store) -> None:
    """The last operation has no answer, as after a stop, and another process has been there meanwhile."""
    cycle.run(settings(), store, Tables(folder))

    def overtaken(operation: Operation) -> HitlError | None:
        if operation.kind != "consensus":
            return None
        with store.database.write() as connection:
            connection.execute(sa.update(projects).values(epoch=projects.c.epoch + 1, pushing=None))
        return Unreachable("no answer")

    with store.lease("p") as lease, pytest.raises(LeaseLost):
        list(push(lease, store, Picky(folder, overtaken), verify=True))
    with store.lease("p") as lease:
        assert store.in_doubt(lease)


def test_after_a_push_that_was_cut_short_all_is_verified(folder: Path, store: Store) -> None:
    cycle.run(settings(), store, Tables(folder))

    def overtaken(operation: Operation) -> HitlError | None:
        return LeaseLost("overtaken") if operation.kind == "consensus" else None

    calm: Any = Picky(folder, lambda _: None)
    cycle.run(settings(), store, calm)
    assert calm.asked == []
    with store.lease("p") as lease, pytest.raises(LeaseLost):
        list(push(lease, store, Picky(folder, overtaken), verify=True))
    cycle.run(settings(), store, calm)
    assert {what.split()[0] for what in calm.asked} == {"order", "assign", "labels_wanted", "consensus"}


def test_what_fails_behind_the_last_operation_is_laid_on_no_other(folder: Path, store: Store) -> None:
    """As a question to the platform that follows the orders: all of them are confirmed by then."""

    class Follows(Tables):
        def push(self, operations: Iterable[Operation]) -> Iterator[Receipt]:
            these = list(operations)
            yield from super().push(these)
            if these[0].kind in ("order", "consensus"):
                raise Unreachable(f"no answer behind {these[0].kind}")

    with pytest.raises(Unreachable, match=r"no answer behind"):
        cycle.run(settings(), store, Follows(folder))
    assert {operation.kind for operation in store.pending("p")} <= {"consensus"}
    assert "labels_wanted" in {operation.kind for operation, _ in store.operations("p")}
    cycle.run(settings(), store, Tables(folder))
    assert (store.pending("p"), store.failure("p")) == ([], None)
