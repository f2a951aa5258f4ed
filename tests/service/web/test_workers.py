"""`hitl serve --workers 2` over a real PostgreSQL: either worker takes what comes, both show it, and one may die."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from subprocess import Popen
from typing import Any

import httpx
import psycopg
import pytest

from hitl.service.web.access import Accounts, Role
from hitl.store import Store
from tests.command_line import Run
from tests.service.web.live.serving import SECRET, answer, cycle, tables, until
from tests.service.web.processes import log_in, serving
from tests.store.conftest import postgres, postgres_url

__all__ = ["postgres", "postgres_url"]

ITEM = "/projects/p/items/i4?format=json"

CONNECTIONS = 300
"""Tries to reach each of two workers: which of them accepts a connection nobody can say."""


class Service:
    """What runs, and a connection to each of its workers."""

    def __init__(self, config: Path, url: str, address: str, said: str, process: Popen[str]) -> None:
        """With its first user."""
        self.config, self.url, self.address, self.process = config, url, address, process
        self.client = log_in(address, said)
        self._kept: dict[int, httpx.Client] = {}
        self._opened = [self.client]

    def close(self) -> None:
        for client in self._opened:
            client.close()

    def log(self, event: str) -> list[dict[str, Any]]:
        """The lines of this event."""
        return logged(self.config.parent, event)

    def pids(self) -> dict[int, int]:
        """Number of a worker -> its process."""
        return {line["worker"]: line["pid"] for line in self.log("worker started")}

    def leader(self) -> int:
        """The number of the worker that leads."""
        return int(until(lambda: self.log("this worker leads:"))[-1]["worker"])

    def worker(self, number: int) -> httpx.Client:
        """A connection that this worker has accepted, and has just answered on: idle ones are closed after a while."""
        kept = self._kept.pop(number, None)
        if kept is not None and self._answers(kept) == number:
            self._kept[number] = kept
        for _ in range(CONNECTIONS):
            if number in self._kept:
                return self._kept[number]
            client = httpx.Client(base_url=self.address, cookies=self.client.cookies, timeout=60)
            self._opened.append(client)
            found = self._answers(client)
            if found is not None:
                self._kept.setdefault(found, client)
        raise AssertionError(f"no connection to worker {number}")

    def _answers(self, client: httpx.Client) -> int | None:
        """The number of the worker that answers on this connection; None: of one that was just killed."""
        try:
            found = re.search(r'hitl_live_pulls_total{project="p",worker="(\d)"}', client.get("/metrics").text)
        except httpx.TransportError:
            return None
        assert found is not None
        return int(found.group(1))

    def forget(self, number: int) -> None:
        """This worker is no more."""
        self._kept.pop(number, None)

    def webhook(self, client: httpx.Client) -> int:
        return client.post("/webhook/p", json={}, headers={"X-Hitl-Secret": SECRET}).status_code

    def labels(self, client: httpx.Client, item: str) -> dict[str, str]:
        """Annotator -> label, as the page of an item says."""
        story = client.get(f"/projects/p/items/{item}?format=json")
        assert story.status_code == 200, story.text
        return {row["annotator"]: row["said"] for row in story.json()["rows"]}

    def stored(self) -> set[tuple[str, str]]:
        with Store(self.url) as store:
            table = store.annotations("p", "label").to_pylist()
        return {(row["item"], row["annotator"]) for row in table}


def logged(folder: Path, event: str) -> list[dict[str, Any]]:
    """The lines of the log that begin so."""
    lines = (folder / "log.txt").read_text().splitlines()
    found = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]
    return [line for line in found if line["event"].startswith(event)]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, postgres: str) -> Iterator[Service]:
    folder, url = tmp_path_factory.mktemp("workers"), postgres.format("workers")
    with psycopg.connect(postgres.format("postgres"), autocommit=True) as connection:
        connection.execute("CREATE DATABASE workers")
    config = tables(folder, url=url)
    cycle(config)
    with two_workers(folder) as (address, said, process):
        made = Service(config, url, address, said, process)
        for n in (1, 2):
            until(lambda n=n: made.worker(n).get("/readyz").status_code == 200)
        yield made
        made.close()


def two_workers(folder: Path) -> AbstractContextManager[tuple[str, str, Popen[str]]]:
    return serving(folder, "serve", "--workers", "2", "--json", secrets={"HITL_WEBHOOK_SECRET": SECRET})


def test_either_takes_a_label_and_both_show_it(service: Service) -> None:
    leader = service.leader()
    for turn, number in enumerate((leader, 3 - leader, leader, 3 - leader)):
        answer(service.config, f"i4,new{turn},yes", f"i5,new{turn},no")
        assert service.webhook(service.worker(number)) == 200
        for each in (1, 2):
            until(lambda each=each, turn=turn: service.labels(service.worker(each), "i4").get(f"new{turn}") == "yes")
    until(lambda: service.worker(1).get(ITEM).json() == service.worker(2).get(ITEM).json())
    pulls = {n: _figure(service.worker(n), "pulls_total", n) for n in (1, 2)}
    assert pulls[leader] > 0
    assert pulls[3 - leader] == 0, "one looks at the platform"
    assert _figure(service.worker(3 - leader), "labels_total", 3 - leader) > 0, "the other was told, label by label"


def test_events_come_from_each_of_them(service: Service) -> None:
    """A browser that comes back to another worker reads everything again: its numbers are others."""
    service.leader()
    with ExitStack() as opened:
        streams: dict[str, Iterator[str]] = {}
        for _ in range(CONNECTIONS):
            client = opened.enter_context(httpx.Client(base_url=service.address, cookies=service.client.cookies))
            headers = {"Last-Event-ID": "another-1"}
            stream = opened.enter_context(client.stream("GET", "/projects/p/events", headers=headers, timeout=60))
            lines = stream.iter_lines()
            run = next(line for line in lines if line.startswith("id: ")).partition("-")[0]
            streams.setdefault(run, lines)
            if len(streams) == 2:
                break
        assert len(streams) == 2
        answer(service.config, "i4,new,yes")
        assert httpx.post(f"{service.address}/webhook/p", json={}, headers={"X-Hitl-Secret": SECRET}).is_success
        for lines in streams.values():
            until(lambda lines=lines: "i4" in next(line for line in lines if line.startswith("data: ")))


@pytest.mark.parametrize("leads", [True, False])
def test_a_worker_that_is_killed_loses_nothing_and_comes_back(service: Service, leads: bool) -> None:
    leader = service.leader()
    killed = leader if leads else 3 - leader
    other, pid = 3 - killed, service.pids()[killed]
    who, accepted = f"{pid}", set()
    for turn in range(20):
        answer(service.config, f"i{turn},{who},yes")
        if turn == 10:
            os.kill(pid, signal.SIGKILL)
            service.forget(killed)
        if service.webhook(service.worker(killed if turn < 10 else other)) == 200:
            accepted.add((f"i{turn}", who))
    assert len(accepted) == 20
    assert httpx.get(f"{service.address}/healthz").status_code == 200
    until(lambda: accepted <= service.stored())
    until(lambda: service.pids()[killed] != pid)
    until(lambda: service.labels(service.worker(killed), "i19").get(who) == "yes")
    until(lambda: service.labels(service.worker(other), "i19").get(who) == "yes")
    if leads:
        assert service.leader() == other
    answer(service.config, f"i20,{who},yes")
    assert service.webhook(service.worker(killed)) == 200
    until(lambda: service.labels(service.worker(other), "i20").get(who) == "yes")


def test_who_logs_in_is_known_to_both_and_requests_are_counted_together(service: Service) -> None:
    before = _requests(service.worker(1))
    for n in (1, 2):
        assert service.worker(n).get("/projects/p?format=json").status_code == 200
    assert _requests(service.worker(2)) >= before + 2
    for _ in range(4):
        assert httpx.get(f"{service.address}/projects/p").status_code == 401, "who has not logged in is known to none"


def test_what_a_lead_has_started_is_shown_by_both(service: Service) -> None:
    with Store(service.url) as store:
        accounts = Accounts(store.database)
        token = {"Authorization": f"Bearer {accounts.create_token('plans', Role.LEAD)}"}
        accounts.close()
    with httpx.Client(base_url=service.address) as client:
        assert client.post("/projects/p/plan", headers=token).status_code == 202
    for n in (1, 2):
        until(lambda n=n: "look at it below, then send it" in service.worker(n).get("/projects/p/plan").text)


def test_a_signal_ends_all_and_so_does_the_death_of_the_parent(tmp_path: Path, postgres_url: str) -> None:
    config = tables(tmp_path, url=postgres_url)
    cycle(config)
    for one, code in ((signal.SIGTERM, 0), (signal.SIGKILL, -signal.SIGKILL)):
        with two_workers(tmp_path) as (_, _, process):
            until(lambda: logged(tmp_path, "this worker leads:"))
            pids = [line["pid"] for line in logged(tmp_path, "worker started")]
            assert len(pids) == 2
            process.send_signal(one)
            assert process.wait(60) == code
            until(lambda pids=pids: not any(map(_runs, pids)))
            assert "Traceback" not in (tmp_path / "log.txt").read_text()


def test_it_needs_one_database_on_postgresql(tmp_path: Path, run: Run) -> None:
    config = tables(tmp_path / "p")
    code, _, error = run("serve", "--workers", "2", "-c", str(config))
    assert code == 78
    assert "expected one PostgreSQL database" in error


def test_a_port_that_is_taken_is_told(tmp_path: Path, postgres_url: str, run: Run) -> None:
    config = tables(tmp_path / "p", url=postgres_url)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        code, _, error = run("serve", "--workers", "2", "-c", str(config), "--address", address)
    assert code == 78
    assert f"cannot listen at {address}" in error


def _figure(client: httpx.Client, name: str, worker: int) -> float:
    text = client.get("/metrics").text
    found = re.search(rf'hitl_live_{name}{{project="p",worker="{worker}"}} (\S+)', text)
    assert found is not None, text
    return float(found.group(1))


def _requests(client: httpx.Client) -> float:
    found = re.findall(r"hitl_requests_total{.*} (\S+)", client.get("/metrics").text)
    return sum(map(float, found))


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
