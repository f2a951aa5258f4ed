"""Compute slow results in a thread, one at a time, and cache them per question.

A page shows the latest result and its number of labels, and reloads while a newer one is computed. After each study,
there is a pause of at least REST times its duration, so that live labels do not keep a processor busy.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from hitl.project import one_fit
from hitl.service.web.snapshot import QuestionView

REST = 10.0
"""Pause before a study is repeated, as a multiple of its duration."""

AT_ONCE = 0.2
"""Seconds that a page waits for a study that it has just requested."""

_log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(eq=False)
class Study(Generic[T]):
    """Latest result for one question.

    Attributes:
        found: the result; None if there is none yet, or nothing to show.
        labels: the number of labels it is based on.
        busy: a newer one is being computed.
        trouble: why the last computation failed, or "".
    """

    found: T | None = None
    labels: int = 0
    busy: bool = False
    trouble: str = ""
    of: QuestionView | None = None
    took: float = 0.0
    ended: float = 0.0


class Studies:
    """All studies of the service. Thread-safe."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str, str], Study[Any]] = {}
        self._lock = threading.Lock()
        self._thread = ThreadPoolExecutor(1, "hitl studies")

    def of(self, kind: str, project: str, view: QuestionView, make: Callable[[QuestionView], T | None]) -> Study[T]:
        """Return the result of `make` for a question: for this view, or for an older one while this is `busy`."""
        key = kind, project, view.page.name
        with self._lock:
            study = self._kept.setdefault(key, Study())
            rested = time.monotonic() - study.ended >= REST * study.took
            if study.of is view or study.busy or not rested:
                return study
            study.busy = True
            done = self._thread.submit(self._work_out, study, view, make)
        if study.of is None:
            with suppress(TimeoutError):
                done.result(AT_ONCE)
        return study

    def _work_out(self, study: Study[T], view: QuestionView, make: Callable[[QuestionView], T | None]) -> None:
        began, trouble, found, labels = time.monotonic(), "", study.found, study.labels
        try:
            with one_fit:
                found, labels = make(view), len(view.evidence.annotations)
        except Exception as error:
            _log.exception("a study of %s", view.page.name)
            trouble = f"{type(error).__name__}: {error}"
        ended = time.monotonic()
        with self._lock:
            study.found, study.labels, study.trouble = found, labels, trouble
            study.of, study.took, study.ended, study.busy = view, ended - began, ended, False

    def stop(self) -> None:
        """Start no more studies."""
        self._thread.shutdown(wait=False, cancel_futures=True)
