"""Clocks that go wrong around a real Label Studio: of its application, of a proxy, and ours."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import httpx

from hitl.connectors.label_studio.server import LocalServer
from tests.connectors.label_studio.conftest import Through


class Proxy(Through):
    """In front of the server: the header `Date` says another time, and an answer may take longer."""

    def __init__(self, ahead: float = 0.0, delay: float = 0.0) -> None:
        super().__init__()
        self.ahead = ahead
        self.delay = delay

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        time.sleep(self.delay)
        response = super().handle_request(request)
        response.headers["date"] = format_datetime(datetime.now(UTC) + timedelta(seconds=self.ahead), usegmt=True)
        return response


class Stamps:
    """Writes in the server's database what another clock of its application would have written."""

    def __init__(self, server: LocalServer) -> None:
        folder = server.folder
        assert folder
        self._path = Path(folder) / "label_studio.sqlite3"

    def task(self, number: int, seconds: float) -> None:
        """The task, as if it had been changed so many seconds from now."""
        self._run("UPDATE task SET updated_at = ? WHERE id = ?", _written(seconds), number)

    def annotation(self, number: int, seconds: float) -> None:
        """The annotation and its task, as if it had been written so many seconds from now."""
        self._run("UPDATE task_completion SET updated_at = ? WHERE id = ?", _written(seconds), number)
        chosen = "(SELECT task_id FROM task_completion WHERE id = ?)"
        self._run(f"UPDATE task SET updated_at = ? WHERE id = {chosen}", _written(seconds), number)

    def new(self, tasks: list[int], seconds: float) -> None:
        """New tasks with their annotations, as if they had been imported so many seconds from now."""
        for number in tasks:
            when = _written(seconds)
            self._run("UPDATE task SET created_at = ?, updated_at = ? WHERE id = ?", when, when, number)
            self._run("UPDATE task_completion SET updated_at = ? WHERE task_id = ?", when, number)

    def count(self, number: int, annotations: int) -> None:
        """The task with a wrong count of its annotations."""
        self._run("UPDATE task SET total_annotations = ? WHERE id = ?", annotations, number)

    def _run(self, statement: str, *values: Any) -> None:
        with closing(sqlite3.connect(self._path, timeout=30)) as database, database:
            database.execute(statement, values)


def _written(seconds: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).strftime("%Y-%m-%d %H:%M:%S.%f")
