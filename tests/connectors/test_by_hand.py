"""`hitl add` and `hitl gold` over tables: killed after any step, the next command ends where it would have ended."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from hitl import cycle
from hitl.connectors.tables import Tables
from hitl.errors import BadTable, Refused, Unreachable
from hitl.manual_operations import known_truth, new_items, send
from hitl.operations import push
from hitl.platform import Operation, Receipt
from hitl.store import Store
from tests.killing import EVERY, fatal_steps, run_until, steps_of
from tests.projects import folder_with_tables, settings, state

ADD, GOLD = ("add", "new.csv"), ("gold", "known.csv")
NEXT = {ADD: [ADD, GOLD, ("push",), ("run",)], GOLD: [GOLD, ADD, ("push",), ("run",)]}


def folder_with_files(folder: Path) -> Path:
    folder_with_tables(folder)
    (folder / "new.csv").write_text("item,text\nn1,new\nn2,newer\n")
    (folder / "known.csv").write_text("item,label\n3,1\n4,0\n")
    (folder / "hitl.toml").write_text(
        'name = "p"\nstore = "sqlite:///hitl.db"\n[source]\nkind = "tables"\npath = "."\n[budget]\nopen_questions = 6\n'
    )
    with Store(f"sqlite:///{folder}/hitl.db") as store, store.lease("p") as lease:
        cycle.pull(lease, store, Tables(folder))
    return folder


@EVERY
@pytest.mark.parametrize("command", [ADD, GOLD], ids=["add", "gold"])
def test_killed_after_any_step_the_next_command_ends_as_if_it_had_not_been(
    tmp_path: Path, command: tuple[str, ...], every: int
) -> None:
    expected = {}
    for number, after in enumerate(NEXT[command]):
        whole = folder_with_files(tmp_path / f"whole-{number}")
        steps = steps_of(run_until(0, *command, folder=whole))
        steps_of(run_until(0, *after, folder=whole))
        expected[after] = state(whole)
    assert steps >= 4  # queued, checked, written, confirmed
    for step in fatal_steps(steps, every):
        after = NEXT[command][step % len(NEXT[command])]
        folder = folder_with_files(tmp_path / f"killed-{step}")
        assert run_until(step, *command, folder=folder).returncode == -signal.SIGKILL
        with Store(f"sqlite:///{folder}/hitl.db") as store:
            queued = bool(store.queued("p"))
        if not queued and not state(folder):  # killed before it was queued: given again, as its user would
            steps_of(run_until(0, *command, folder=folder))
        steps_of(run_until(0, *after, folder=folder))
        with Store(f"sqlite:///{folder}/hitl.db") as store:
            assert store.pending("p") == []
        assert state(folder) == expected[after], f"killed after step {step}, then {after}"


class Failing(Tables):
    """Fails before a push, or after it, as a platform does whose answer is lost."""

    def __init__(self, folder: Path, error: Exception, pushed: bool = False) -> None:
        super().__init__(folder)
        self.error, self.pushed = error, pushed

    def push(self, operations: Iterable[Operation]) -> Iterator[Receipt]:
        if self.pushed:
            list(super().push(operations))
        raise self.error


def items(*names: str, batch: str = "new.csv") -> Operation:
    return new_items(pa.table({"item": names, "text": [f"text of {name}" for name in names]}), "item", batch)


def added(folder: Path) -> list[str]:
    found = state(folder).get("added_items.jsonl", b"").decode().splitlines()
    return [line.split('"')[3] for line in found]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return folder_with_files(tmp_path / "p")


def test_no_cycle_drops_what_waits_and_it_goes_first(folder: Path) -> None:
    with Store(f"sqlite:///{folder}/hitl.db") as store:
        with pytest.raises(Unreachable):
            send(settings(), store, Failing(folder, Unreachable("down")), items("n1"), "new.csv")
        with store.lease("p") as lease:
            for _ in range(3):
                cycle.record(lease, settings(), store, cycle.judge(settings(), store, Tables(folder).questions()))
        assert [one.kind for one in store.pending("p")][:2] == ["add_items", "order"]
        report = cycle.run(settings(), store, Tables(folder))
        assert report.receipts[0].operation == items("n1")
        assert "n1" in report.judgement.evidence["label"].annotations.items  # pulled back before it was judged
        assert store.queued("p") == []
        assert added(folder) == ["n1"]


def test_two_batches_of_one_name_both_arrive(folder: Path) -> None:
    """The first waits, because the platform was down; the second is queued when the first is there."""
    with Store(f"sqlite:///{folder}/hitl.db") as store:
        for name in ("n1", "n2"):
            with pytest.raises(Unreachable):
                send(settings(), store, Failing(folder, Unreachable("down")), items(name), "new.csv")
        assert store.queued("p") == [items("n1")]
        sent = send(settings(), store, Tables(folder), items("n2"), "new.csv")
        assert [receipt.operation for receipt in sent.receipts] == [items("n1"), items("n2")]
        assert added(folder) == ["n1", "n2"]
        assert store.queued("p") == []


def test_what_the_platform_did_before_its_answer_was_lost_is_not_done_twice(folder: Path) -> None:
    with Store(f"sqlite:///{folder}/hitl.db") as store:
        with pytest.raises(Unreachable):
            send(settings(), store, Failing(folder, Unreachable("lost"), pushed=True), items("n1"), "new.csv")
        with store.lease("p") as lease:
            assert [receipt.changed for receipt in push(lease, store, Tables(folder))] == [0]


def test_what_the_platform_refuses_does_not_block_what_comes_after(folder: Path) -> None:
    with Store(f"sqlite:///{folder}/hitl.db") as store:
        with pytest.raises(Refused, match=r"no text; not retried: items of new\.csv\. Fix this"):
            send(settings(), store, Failing(folder, Refused("no text")), items("n1"), "new.csv")
        assert store.queued("p") == []
        with pytest.raises(Refused, match=r"^no rights$"):
            cycle.run(settings(), store, Failing(folder, Refused("no rights")))
        assert store.pending("p") != []  # what a cycle says stays


def test_truth_of_an_item_that_waits_to_be_added_is_sent_after_it(folder: Path) -> None:
    truth = known_truth(pa.table({"item": ["n1"], "label": ["1"]}), Tables(folder).questions(), None, "known.csv")
    with Store(f"sqlite:///{folder}/hitl.db") as store:
        with pytest.raises(BadTable, match=r"known.csv: item 'n1' is not in the project, nothing was sent"):
            send(settings(), store, Tables(folder), truth, "known.csv")
        with pytest.raises(Unreachable):
            send(settings(), store, Failing(folder, Unreachable("down")), items("n1"), "new.csv")
        sent = send(settings(), store, Tables(folder), truth, "known.csv")
    assert [receipt.operation.kind for receipt in sent.receipts] == ["add_items", "gold"]


def test_verifying_does_not_do_again_what_was_asked_for_once(folder: Path) -> None:
    with Store(f"sqlite:///{folder}/hitl.db") as store:
        send(settings(), store, Tables(folder), items("n1"), "new.csv")
        (folder / "hitl-output/added_items.jsonl").unlink()
        with store.lease("p") as lease:
            assert list(push(lease, store, Tables(folder), verify=True)) == []
    assert added(folder) == []
