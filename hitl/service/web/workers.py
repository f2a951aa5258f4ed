"""Several processes that serve one address: they accept from one socket, and one that ends is started again.

    start     the socket is bound here, so that a port that is taken is told before anything begins
    watch     a process that has ended is replaced: at once, and later and later where it ends young
    stop      SIGTERM or SIGINT: each is told, has its time to end, and is killed after that
    orphans   a process whose parent has died ends by itself

What each process counts for Prometheus (requests) is added up by way of files in a folder of their own.
"""

from __future__ import annotations

import os
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import Any

import structlog

from hitl.errors import BadSettings
from hitl.service.web.requests import FIGURES

YOUNG = 10.0
"""Seconds that a process has to live for its successor to begin at once."""

PAUSE, LONGEST_PAUSE = 0.5, 30.0
"""Seconds until the next try after one that died young, doubled with each, up to the longest."""

SECONDS_TO_END = 45.0
"""Seconds that a process has to end: for its requests, and for a cycle to come to its next step."""

BACKLOG = 2048
"""Connections that wait to be accepted."""


@dataclass(frozen=True)
class Place:
    """One of several processes.

    Attributes:
        number: 1, 2, ...; listener: the socket that it accepts from.
        again: others serve already; it is to accept when it has something to show.
    """

    number: int
    listener: socket.socket
    again: bool


Serve = Callable[[Any, Place], None]
"""Called in each process with what is wanted, and its place, until it is to end."""


@dataclass
class _Worker:
    """One process: when it began, and how many before it died young."""

    process: Any
    alive: Connection  # closed with this process, which its child sees
    began: float
    young: int


class Workers:
    """`number` processes that do `serve(wanted, place)`."""

    def __init__(self, serve: Serve, wanted: Any, number: int, listener: socket.socket) -> None:
        self._serve, self._wanted, self._number, self._listener = serve, wanted, number, listener
        self._context = get_context("spawn")  # a fork would take locks of threads along
        self._workers: dict[int, _Worker] = {}
        self._due: dict[int, tuple[float, int]] = {}
        self._woken, self._wake = os.pipe()
        self._stopping = False
        self._log = structlog.get_logger("hitl.serve")

    def run(self) -> None:
        """Until SIGTERM or SIGINT."""
        before = {one: signal.signal(one, self._stop) for one in (signal.SIGTERM, signal.SIGINT)}
        with tempfile.TemporaryDirectory(prefix="hitl-figures-") as figures:
            os.environ[FIGURES] = figures
            try:
                for n in range(1, self._number + 1):
                    self._start(n, 0, again=False)
                while not self._stopping:
                    self._watch()
            finally:
                self._end()
                os.environ.pop(FIGURES)
                for one, handler in before.items():
                    signal.signal(one, handler)

    def _stop(self, number: int, frame: object) -> None:
        self._stopping = True
        os.write(self._wake, b"x")  # `wait` goes on after a handler

    def _start(self, n: int, young: int, *, again: bool) -> None:
        held, given = self._context.Pipe()
        place = Place(n, self._listener, again)
        process = self._context.Process(
            target=_work, args=(self._serve, self._wanted, place, given), name=f"hitl worker {n}"
        )
        process.start()
        given.close()
        self._workers[n] = _Worker(process, held, time.monotonic(), young)
        self._log.info("worker started", worker=n, pid=process.pid)

    def _watch(self) -> None:
        """Wait until one ends, or one is due to begin."""
        now = time.monotonic()
        for n, (when, young) in list(self._due.items()):
            if when <= now:
                del self._due[n]
                self._start(n, young, again=True)
        left = min((when - now for when, _ in self._due.values()), default=None)
        wait([self._woken, *(one.process.sentinel for one in self._workers.values())], left)
        for n, one in list(self._workers.items()):
            if not one.process.is_alive() and not self._stopping:
                del self._workers[n]
                self._again(n, one)

    def _again(self, n: int, one: _Worker) -> None:
        one.alive.close()
        now = time.monotonic()
        young = one.young + 1 if now - one.began < YOUNG else 0
        pause = min(PAUSE * 2.0 ** (young - 1), LONGEST_PAUSE) if young else 0.0
        self._due[n] = now + pause, young
        self._log.warning("worker ended", worker=n, pid=one.process.pid, code=one.process.exitcode, again_in=pause)

    def _end(self) -> None:
        """All of them, at the same time."""
        self._stopping = True
        self._listener.close()
        for one in self._workers.values():
            one.process.terminate()
        until = time.monotonic() + SECONDS_TO_END
        for n, one in self._workers.items():
            one.process.join(max(until - time.monotonic(), 0.1))
            if one.process.is_alive():
                self._log.warning("worker killed", worker=n, pid=one.process.pid)
                one.process.kill()
                one.process.join()


def listening(host: str, port: int) -> socket.socket:
    """A socket bound to this address. Raises BadSettings where it cannot be."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise BadSettings(f"--address: cannot listen at {host}:{port}: {error.strerror or error}") from None


def _work(serve: Serve, wanted: Any, place: Place, alive: Connection) -> None:
    """One process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to all; who started this one says when it ends
    threading.Thread(target=_outlive_nobody, args=(alive,), name="hitl parent", daemon=True).start()
    serve(wanted, place)


def _outlive_nobody(alive: Connection) -> None:
    try:
        alive.recv()
    except (EOFError, OSError):
        os.kill(os.getpid(), signal.SIGTERM)
