"""Hints of the platform, made durable before they are answered: one writer a project, one transaction for many.

A hint says that something may have changed, and nothing else of it counts: a forged, stale or repeated one costs a
look at the platform. It is in the store until a pull that began later has succeeded.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING

from hitl.errors import StoreError

if TYPE_CHECKING:
    from hitl.store import Store

GATHER = 0.01
"""Seconds that a transaction waits for more hints: a webhook waits no longer, and a hundred a second are enough."""


class Hints:
    """The hints of one project on their way into its store. `noted` is called, in its thread, when some are there:
    with whether they had to be written."""

    def __init__(self, store: Store, project: str, noted: Callable[[bool], None]) -> None:
        self._store, self._project, self._noted = store, project, noted
        self._waiting: list[Future[None]] = []
        self._lock, self._news = threading.Lock(), threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=f"hitl hints of {project}", daemon=True)

    def take(self) -> Future[None]:
        """A hint, now. The result is there when it is durable, or the StoreError that kept it from being so."""
        taken: Future[None] = Future()
        with self._lock:
            self._waiting.append(taken)
        self._news.set()
        return taken

    def start(self) -> None:
        """Write, in a thread."""
        self._thread.start()

    def stop(self) -> None:
        """After what was taken is written."""
        self._stopping = True
        self._news.set()
        if self._thread.is_alive():
            self._thread.join(5.0)

    def _run(self) -> None:
        while not self._stopping or self._waiting:
            self._news.wait()
            threading.Event().wait(GATHER)
            self._news.clear()
            with self._lock:
                taken, self._waiting = self._waiting, []
            if taken:
                self._write(taken)

    def _write(self, taken: list[Future[None]]) -> None:
        """One transaction for all of them."""
        failed, written = None, True
        try:
            written = self._store.note_hint(self._project)
        except StoreError as error:
            failed = error
        self._noted(written)  # also where it failed: a look that is not durable is better than none
        for one in taken:
            with suppress(Exception):  # whoever waited has gone
                if failed is None:
                    one.set_result(None)
                else:
                    one.set_exception(failed)
