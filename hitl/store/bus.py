"""What the processes of one service tell one another, and which of them leads: one connection to PostgreSQL each.

    lead    one of them holds an advisory lock of the service; when it dies, its connection does, and another gets it
    tell    a message (NOTIFY) reaches all others within milliseconds, or never: what it says is in the store as well

Whoever leads and loses the connection leads no more, before the server can have given the lock to another: it asks once
a second, and the server keeps the lock of a client that is silent for SILENT_SECONDS.
"""

from __future__ import annotations

import json
import logging
import threading
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from hitl.errors import HitlError, StoreError

if TYPE_CHECKING:
    from hitl.store.database import Database

LOOK = 1.0
"""Seconds between two attempts to lead, and between two looks whether the connection lives."""

SILENT_SECONDS = 15
"""How long the server keeps the lock of a client that does not answer; on a connection by TCP."""

LONGEST = 7_900
"""Bytes of a message: PostgreSQL takes 8,000."""

_LEADS = 0x6869_746C
"""The kind of our lock ("hitl")."""

_log = logging.getLogger(__name__)

Message = Mapping[str, Any]
"""JSON values."""


class Bus(threading.Thread):
    """Listens and tells for one process. `heard`, `led` and `lost` are called in its thread.

    Args:
        database: of the service; on PostgreSQL.
        service: its name: those of one name have one that leads.
        heard: takes what another process tells.
        led: this process leads from now on.
        lost: it led, and does no more.
    """

    def __init__(
        self,
        database: Database,
        service: str,
        heard: Callable[[Message], None],
        led: Callable[[], None],
        lost: Callable[[], None],
    ) -> None:
        super().__init__(name="hitl bus", daemon=True)
        self._database, self._heard, self._led, self._lost = database, heard, led, lost
        self._key = zlib.crc32(service.encode()) - 2**31
        self._channel = f"hitl_{self._key + 2**31:08x}"
        self._me = 0  # the number of the connection on the server, which it gives with each message
        self._stopping = threading.Event()
        self.leads = False

    def tell(self, message: Message) -> bool:
        """Tell all others; whether it was sent. One that is too long is not: they find out by looking."""
        text = json.dumps({"from": self._me, **message}, separators=(",", ":"))
        if len(text) > LONGEST:
            return False
        with suppress(StoreError):
            self._database.scalar(sa.select(sa.func.pg_notify(self._channel, text)))
            return True
        return False

    def stop(self, seconds: float = 5.0) -> None:
        """Lead and listen no more."""
        self._stopping.set()
        if self.is_alive():
            self.join(seconds)

    def run(self) -> None:
        """Until stopped; a connection that breaks is made again."""
        while not self._stopping.is_set():
            try:
                with self._database.session(SILENT_SECONDS) as connection:
                    self._me = connection.info.backend_pid
                    connection.execute(f"LISTEN {self._channel}")
                    while not self._stopping.is_set():
                        self._turn(connection)
            except StoreError as error:
                _log.warning("this worker does not hear the others: %s", error)
            finally:
                self._lose()
            self._stopping.wait(LOOK)

    def _turn(self, connection: Any) -> None:
        """Try to lead, or see whether the connection lives; take what is told meanwhile."""
        if self.leads:
            connection.execute("SELECT 1")
        elif connection.execute("SELECT pg_try_advisory_lock(%s, %s)", (_LEADS, self._key)).fetchone()[0]:
            self.leads = True
            self._led()
        for told in connection.notifies(timeout=LOOK):
            message = json.loads(told.payload)
            if message.pop("from", None) != self._me:
                self._take(message)

    def _take(self, message: Message) -> None:
        try:
            self._heard(message)
        except (HitlError, KeyError, TypeError, ValueError) as error:  # of another version, perhaps
            _log.warning("a message of another process cannot be read: %s: %s", type(error).__name__, error)

    def _lose(self) -> None:
        if self.leads:
            self.leads = False
            if not self._stopping.is_set():
                self._lost()
