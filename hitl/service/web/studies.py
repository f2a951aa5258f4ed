"""What takes longer than a request may: worked out in a thread, one at a time, and kept for each question.

A page shows what was found last, and of how many labels; it comes again while something newer is worked out. A study
rests at least REST times as long as it took, so that live labels do not keep a processor busy.
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
"""How many times longer than it took a study is good for, whatever comes meanwhile."""

AT_ONCE = 0.2
"""Seconds that a page waits for a study that it has just asked for."""

_log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(eq=False)
class Study(Generic[T]):
    """What is known of one question.

    Attributes:
        found: what came of it; None: nothing yet, or there is nothing to tell.
        labels: how many labels it is of.
        busy: something newer is being worked out.
        trouble: why that failed; "" where it did not.
    """

    found: T | None = None
    labels: int = 0
    busy: bool = False
    trouble: str = ""
    of: QuestionView | None = None
    took: float = 0.0
    ended: float = 0.0


class Studies:
    """All studies of the service. Safe to ask from several threads."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str, str], Study[Any]] = {}
        self._lock = threading.Lock()
        self._thread = ThreadPoolExecutor(1, "hitl studies")

    def of(self, kind: str, project: str, view: QuestionView, make: Callable[[QuestionView], T | None]) -> Study[T]:
        """What `make` says of a question: of this view, or of an older one while this is `busy`."""
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
        """Begin no more."""
        self._thread.shutdown(wait=False, cancel_futures=True)
