"""A cycle and its deliveries killed after any step: each event is there once, and arrives under one id."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from pathlib import Path

from hitl.events import sender
from hitl.settings import Settings
from hitl.store import Store
from tests.command_line import forked
from tests.events.conftest import Telling
from tests.events.receivers import SECRET, receiving, verified
from tests.killing import EVERY, fatal_steps

KILLED = """
import os, signal, sys
from contextlib import contextmanager
from pathlib import Path
from hitl import cycle
from hitl.connectors.tables import Tables
from hitl.events import sender
from hitl.store import Store
from hitl.store.database import Database
from tests.events.test_kills import project

folder, url, address, last = Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
steps = 0

def step():
    global steps
    steps += 1
    if steps == last:
        os.kill(os.getpid(), signal.SIGKILL)

write, send = Database.write, sender.Address.send

@contextmanager
def stepping(self):
    with write(self) as connection:
        yield connection
        step()  # before it is committed
    step()

def sending(self, *arguments):
    step()
    answer = send(self, *arguments)
    step()
    return answer

record, began = Store.record_cycle, []

def recording(self, *arguments):
    began.append(steps)
    return record(self, *arguments)

with Store(url) as store:
    Store.record_cycle = recording
    Database.write, sender.Address.send = stepping, sending
    settings = project(address)
    cycle.run(settings, store, Tables(folder))
    sender.deliver(settings, store)
    Database.write = write
print(began[0], steps)
"""


def project(address: str) -> Settings:
    """As `telling` makes it; the secret is in the environment."""
    from hitl.settings import BudgetSettings
    from tests.projects import settings

    made = settings(events=[{"name": "ci", "url": address}])
    return made.model_copy(update={"budget": BudgetSettings(open_questions=6, target_confidence=0.6)})


def run_until(folder: Path, url: str, address: str, last: int) -> tuple[int, str]:
    environment = {**os.environ, "HITL_EVENTS_CI_SECRET": SECRET}
    done = forked(KILLED, str(folder), url, address, str(last), environment=environment)
    return done.returncode, done.stdout + done.stderr


@EVERY
def test_killed_after_a_step_nothing_is_lost_and_nothing_is_told_twice(
    tmp_path: Path, telling: Telling, every: int
) -> None:
    from tests.projects import folder_with_tables

    telling({"url": "http://127.0.0.1:9/"})  # sets the secret
    with receiving() as to:
        whole = folder_with_tables(tmp_path / "whole")
        code, said = run_until(whole, f"sqlite:///{whole}/hitl.db", to.url, 0)
        assert code == 0, said
        assert to.kinds == ["items.decided"]
    began, steps = map(int, said.split()[-2:])  # what a kill before does is no matter of events
    assert steps - began > 6
    twice = 0
    for last in (began + step for step in fatal_steps(steps - began, every)):
        folder = folder_with_tables(tmp_path / f"killed-{last}")
        url = f"sqlite:///{folder}/hitl.db"
        with receiving() as to:
            assert run_until(folder, url, to.url, last)[0] == -signal.SIGKILL
            assert run_until(folder, url, to.url, 0)[0] == 0
            with Store(url) as store:
                after_the_hold(store, to.url)
                (kept,) = store.deliveries("p")
                assert (kept.state, json.loads(kept.body)["data"]["decided"]) == ("delivered", 9), last
            counts = Counter((one.id, one.body) for one in to.got)
            assert set(counts) == {(kept.event, kept.body.encode())}, last
            assert all(verified(one, SECRET, float(one.headers["webhook-timestamp"])) for one in to.got)
            twice += counts.total() > 1
    assert twice <= (steps - began) / 3


def after_the_hold(store: Store, address: str) -> None:
    """What the killed one had begun to send is sent by another when its time is over."""
    (to,) = sender.addresses_of(project(address), store)
    it = store.claim("p", "ci", sender.HELD, now=4_000_000_000.0)
    if it is not None:
        assert to.settle(it, to.send(it, 5.0))
