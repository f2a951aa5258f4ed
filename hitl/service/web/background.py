"""Do work outside of requests: actions that a lead starts, and slow results of pages.

An action does the same as the command of its name, one at a time per project; failures are shown on the page. Slow
results are computed one at a time and kept per question. A page shows the latest result with its number of labels, and
reloads while a newer one is computed.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import pyarrow as pa
from starlette.exceptions import HTTPException

from hitl import cycle
from hitl.errors import HitlError
from hitl.formatting import masked
from hitl.manual_operations import known_truth, send
from hitl.operations import push
from hitl.project import lease_seconds, one_fit, opened
from hitl.service.web.projects import Watched, Work
from hitl.service.web.snapshot import QuestionView

if TYPE_CHECKING:
    from hitl.platform import Connector
    from hitl.settings import Settings
    from hitl.store import Store

REST = 10.0
"""Pause before a result is computed again, as a multiple of the time it took, so that incoming labels do not keep the
processor busy.
"""

AT_ONCE = 0.2  # seconds that a page waits for a result that it has just requested

T = TypeVar("T")
_log = logging.getLogger(__name__)


# -- actions -----------------------------------------------------------------------------------------------


def _plan(settings: Settings, store: Store, connector: Connector, work: Work) -> str:
    with store.lease(settings.name) as lease:
        absent = cycle.absent_people(settings, store, connector)
        judgement = cycle.judge(settings, store, connector.questions(), work.progress, absent=absent)
        cycle.record(lease, settings, store, judgement, waits=True)
    return f"{judgement.plan}; look at it below, then send it"


def _push(settings: Settings, store: Store, connector: Connector, work: Work) -> str:
    with store.lease(settings.name, seconds=lease_seconds(connector)) as lease:
        receipts = list(push(lease, store, connector, work.progress))
    changed = sum(receipt.changed for receipt in receipts)
    return f"sent {len(receipts):,} operations, {changed:,} changes"


def _run(settings: Settings, store: Store, connector: Connector, work: Work) -> str:
    report = cycle.run(settings, store, connector, work.progress)
    pulled, changed = report.pulled.changed, report.changed
    return f"pulled {pulled:,} entries; {report.judgement.plan}; {changed:,} changes"


def _gold(settings: Settings, store: Store, connector: Connector, work: Work, question: str, label: str) -> str:
    table = pa.table({"item": [work.item], "label": [label]})
    truth = known_truth(table, connector.questions(), question, "gold item")
    send(settings, store, connector, truth, "gold item", work.progress)
    with store.lease(settings.name, seconds=lease_seconds(connector)) as lease:
        cycle.pull(lease, store, connector, work.progress)  # so that the pages show it before the next run
    return f"the right answer to {question} is {label}"


ACTIONS: Mapping[str, Callable[..., str]] = {"plan": _plan, "push": _push, "run": _run, "gold": _gold}
"""Name -> function that does the work and returns its outcome in words."""

_starting = threading.Lock()


def start(one: Watched, what: str, by: str, item: str | None = None, *given: str) -> Work:
    """Start an action in a thread; it gets `given`. Raises HTTPException (409) if the last one is still running."""
    with _starting:
        if one.work is not None and one.work.ended is None:
            raise HTTPException(409, f"{one.work.what!r} has been going on since {one.work.by} started it; wait for it")
        one.work = work = Work(what, by, time.time(), item)
    threading.Thread(target=_do, args=(one, work, *given), name=f"hitl {what} {one.name}", daemon=True).start()
    return work


def _do(one: Watched, work: Work, *given: str) -> None:
    try:
        with opened(one.config) as (settings, store, connector):
            work.said = ACTIONS[work.what](settings, store, connector, work, *given)
    except Exception as error:
        expected = isinstance(error, HitlError | OSError)
        work.said, work.failed = masked(str(error) if expected else f"{type(error).__name__}: {error}"), True
    finally:
        work.ended = time.time()
        one.refresh()


# -- slow results ------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Study(Generic[T]):
    """Latest result for one question.

    Attributes:
        result: the result; None if there is none yet, or nothing to show.
        view: view that was used last, or None.
        labels: number of labels that the result was computed from.
        busy: True while a newer result is being computed.
        trouble: why the last computation failed, or "".
        rests_until: when the next computation may begin, in monotonic seconds.
    """

    result: T | None = None
    view: QuestionView | None = None
    labels: int = 0
    busy: bool = False
    trouble: str = ""
    rests_until: float = 0.0


class Studies:
    """All slow results of the service. Thread-safe."""

    def __init__(self) -> None:
        self._studies: dict[tuple[str, str, str], Study[Any]] = {}
        self._lock, self._thread = threading.Lock(), ThreadPoolExecutor(1, "hitl studies")

    def of(self, kind: str, project: str, view: QuestionView, make: Callable[[QuestionView], T | None]) -> Study[T]:
        """Return the latest result of `make` for the question of this view. Compute a new one if the view is new.

        Computing may have to wait (`Study.rests_until`). The result is for an older view until it is done.
        """
        with self._lock:
            study = self._studies.setdefault((kind, project, view.page.name), Study())
            if study.view is view or study.busy or time.monotonic() < study.rests_until:
                return study
            study.busy = True
            done = self._thread.submit(self._compute, study, view, make)
        if study.view is None:
            with suppress(TimeoutError):
                done.result(AT_ONCE)
        return study

    def _compute(self, study: Study[T], view: QuestionView, make: Callable[[QuestionView], T | None]) -> None:
        began, trouble, result, labels = time.monotonic(), "", study.result, study.labels
        try:
            with one_fit:
                result, labels = make(view), len(view.evidence.annotations)
        except Exception as error:
            _log.exception("a study of %s", view.page.name)
            trouble = masked(f"{type(error).__name__}: {error}")
        ended = time.monotonic()
        with self._lock:
            study.result, study.labels, study.trouble = result, labels, trouble
            study.view, study.rests_until, study.busy = view, ended + REST * (ended - began), False

    def stop(self) -> None:
        """Cancel all computations that have not begun."""
        self._thread.shutdown(wait=False, cancel_futures=True)
