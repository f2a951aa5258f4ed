"""Record when sessions and tokens were last used, at most once a minute each.

This happens in the background, so that no request waits for a database lock.
"""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import sqlalchemy as sa

from hitl.errors import StoreError
from hitl.store.database import Database

EVERY_SECONDS = 60.0
"""Precision of these times, in seconds."""

AT_ONCE = 1_000
"""Maximum writes waiting for the database. Beyond that, a later request writes the time."""

_log = logging.getLogger(__name__)


class Touches:
    """Write times one after the other, in a background thread."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="hitl-touches")
        self._lock = threading.Lock()
        self._waiting: set[str] = set()

    def note(self, column: sa.Column[Any], key: sa.Column[Any], digest: str, last: float, now: float) -> None:
        """Write `now` into the row of this key, unless the `last` time is recent enough."""
        if now - last < EVERY_SECONDS:
            return
        with self._lock:
            if digest in self._waiting or len(self._waiting) >= AT_ONCE:
                return
            self._waiting.add(digest)
        later = sa.or_(column.is_(None), column < now)
        self._thread.submit(
            self._write, sa.update(column.table).where(key == digest, later).values({column: now}), digest
        )

    def _write(self, update: sa.Update, digest: str) -> None:
        try:
            with self._database.write() as connection:
                connection.execute(update)
        except StoreError as error:
            _log.warning("the time of a request was not noted: %s", error)
        finally:
            with self._lock:
                self._waiting.discard(digest)

    def close(self) -> None:
        """Wait for pending writes."""
        self._thread.shutdown(wait=True)
