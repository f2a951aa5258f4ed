"""Log of `hitl serve` and `hitl schedule`: one line per event on standard error, as JSON or as text.

Each line has timestamp, level, logger and event, also those of other packages. Ours may have more fields.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from hitl.errors import HitlError
from hitl.formatting import escaped, hidden, masked, plain

BURST, LINES_PER_SECOND = 100, 10.0
"""Lines of one kind that are logged at any rate, and then per second. The next line says how many were left out."""

RUN_FIELDS = (
    *("due", "new", "labels", "done", "items", "asks", "operations", "changed", "seconds", "stop", "unchanged"),
    *("error", "message", "problems", "next"),
)
"""Figures of a run that go to the log. The page of runs has the rest."""
RUN_LEVELS = {"waits": logging.WARNING, "failed": logging.ERROR}

_runs = logging.getLogger("hitl.schedule")


def event(logger: logging.Logger, name: str, level: int = logging.INFO, **fields: Any) -> None:
    """Log an event with fields."""
    logger.log(level, name, extra={"fields": fields})


def run(name: str, project: str, figures: Mapping[str, Any]) -> None:
    """Log an event of a run (see `hitl.service.loop.Tell`)."""
    logged = {key: figures[key] for key in RUN_FIELDS if figures.get(key) is not None}
    usual = logging.WARNING if logged.get("problems") else logging.INFO
    event(_runs, name, RUN_LEVELS.get(name, usual), project=project, **logged)


@contextmanager
def lines(as_json: bool, level: str = "info") -> Iterator[None]:
    """Log all lines of at least this level on standard error. With `as_json`, the error that ends the block too."""
    root, ours = logging.getLogger(), logging.getLogger("hitl")
    former, show_warning = (root.handlers[:], ours.handlers[:], ours.level), warnings.showwarning

    def log_warning(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        event(ours, str(message), logging.WARNING, category=category.__name__)

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Line(as_json))
    handler.addFilter(LineLimit(LINES_PER_SECOND))
    root.handlers[:], ours.handlers[:] = [handler], []
    ours.setLevel(level.upper())
    warnings.showwarning = log_warning
    try:
        yield
    except HitlError as error:
        if not as_json:
            raise
        event(ours, str(error), logging.CRITICAL, error=type(error).__name__)
        raise SystemExit(error.exit_code) from None
    finally:
        root.handlers[:], ours.handlers[:] = former[:2]
        ours.setLevel(former[2])
        warnings.showwarning = show_warning


class _Line(logging.Formatter):
    def __init__(self, as_json: bool) -> None:
        super().__init__()
        self._as_json = as_json

    def format(self, record: logging.LogRecord) -> str:
        when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        fields = {**getattr(record, "fields", {})}
        if left_out := getattr(record, "left_out", 0):
            fields["left_out"] = left_out
        level, text = record.levelname.lower(), masked(record.getMessage())
        traceback = hidden(self.formatException(record.exc_info)) if record.exc_info else ""
        if self._as_json:
            line = {"timestamp": when, "level": level, "logger": record.name, "event": text, **fields}
            line |= {"exception": traceback} if traceback else {}
            return escaped(hidden(json.dumps(line, ensure_ascii=False, default=str)))
        more = "".join(f" {key}={value}" for key, value in fields.items())
        return plain(f"{when} {level:<8} {text}{more}") + (f"\n{traceback}" if traceback else "")


class LineLimit(logging.Filter):
    """Limit on the lines of each kind (an event, or a logger, at one level): BURST, then `per_second`. Thread-safe."""

    def __init__(self, per_second: float) -> None:
        super().__init__()
        self._per_second, self._lock = per_second, threading.Lock()
        self._kinds: dict[object, tuple[float, float, int]] = {}  # lines to spare, since when, lines left out

    def filter(self, record: logging.LogRecord) -> bool:
        """Return False if the line is to be left out."""
        kind = record.name, record.levelno, record.msg if hasattr(record, "fields") else ""
        with self._lock:
            now = time.monotonic()
            spare, since, left_out = self._kinds.get(kind, (BURST, now, 0))
            spare = min(BURST, spare + (now - since) * self._per_second)
            self._kinds[kind] = (spare - 1, now, 0) if spare >= 1 else (spare, now, left_out + 1)
        record.left_out = left_out
        return spare >= 1
