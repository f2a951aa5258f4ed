"""Start plans, pushes and runs from a page. Each works like the command of that name, in one thread per project.

Failures are shown on the page. Everything that was done is in the store.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fastapi import Request
from fastapi.responses import JSONResponse, RedirectResponse, Response
from starlette.exceptions import HTTPException

from hitl.errors import HitlError
from hitl.service.web.errors import responses
from hitl.service.web.formats import is_page

if TYPE_CHECKING:
    from hitl.platform import Connector
    from hitl.service.web.projects import Watched
    from hitl.settings import Settings
    from hitl.store import Store

Act = Callable[["Settings", "Store", "Connector", "Work"], str]
"""Do the work, and return its outcome in words."""


@dataclass
class Work:
    """An action that somebody has started.

    Attributes:
        what: plan, push or run; by: who started it; at: when, in seconds since the epoch.
        step: current step; ended: when it ended, or None; said: outcome in words; failed: True after an error.
    """

    what: str
    by: str
    at: float
    step: str = "starts"
    ended: float | None = None
    said: str = ""
    failed: bool = False

    def progress(self, what: str, done: int, total: int | None) -> None:
        """Record the current step."""
        self.step = f"{what}: {done:,}" + ("" if total is None else f" of {total:,}")

    def as_json(self) -> dict[str, Any]:
        """Return JSON values."""
        return dict(vars(self))


def _plan(settings: Settings, store: Store, connector: Connector, work: Work) -> str:
    from hitl import cycle

    with store.lease(settings.name) as lease:
        judgement = cycle.judge(settings, store, connector.questions(), work.progress)
        cycle.record(lease, settings, store, judgement, waits=True)
    return f"{judgement.plan}; look at it below, then send it"


def _push(settings: Settings, store: Store, connector: Connector, work: Work) -> str:
    from hitl import cycle
    from hitl.project import lease_seconds

    with store.lease(settings.name, seconds=lease_seconds(connector)) as lease:
        receipts = list(cycle.push(lease, store, connector, work.progress))
    changed = sum(receipt.changed for receipt in receipts)
    return f"sent {len(receipts):,} operations, {changed:,} changes on the platform"


def _run(settings: Settings, store: Store, connector: Connector, work: Work) -> str:
    from hitl import cycle

    report = cycle.run(settings, store, connector, work.progress)
    pulled, changed = report.pulled.changed, report.changed
    return f"pulled {pulled:,} entries; {report.judgement.plan}; {changed:,} changes on the platform"


ACTS: Mapping[str, Act] = {"plan": _plan, "push": _push, "run": _run}


class Begin:
    """Start an action and respond at once."""

    documented: Mapping[str, Any] = {
        "status_code": 202,
        "responses": {
            **responses(401, 403, 404, 409, 413, 503),
            303: {"description": "A browser goes back to the page"},
        },
    }
    """OpenAPI description of the response."""

    def __call__(self, request: Request, one: Watched, what: str, by: str) -> Response:
        """Return 202 and the started action, or redirect a browser to the page. Raises 409 if another action is
        running.
        """
        work = start(one, what, by)
        if is_page(request):
            part = "runs" if what == "run" else "plan"
            return RedirectResponse(f"{request.url.path.rsplit('/projects/', 1)[0]}{_page(request, part)}", 303)
        return JSONResponse(work.as_json(), 202)


def _page(request: Request, part: str) -> str:
    from hitl.service.web.templates import path

    return f"/projects/{path(request.path_params['project'])}/{part}"


begin = Begin()
_lock = threading.Lock()


def start(one: Watched, what: str, by: str) -> Work:
    """Start an action in a thread. Raises 409 if another one that was started here is running."""
    with _lock:
        if one.work is not None and one.work.ended is None:
            raise HTTPException(409, f"{one.work.what!r} has been going on since {one.work.by} started it; wait for it")
        one.work = work = Work(what, by, time.time())
    threading.Thread(target=_do, args=(one, work), name=f"hitl {what} {one.name}", daemon=True).start()
    return work


def _do(one: Watched, work: Work) -> None:
    from hitl.project import opened

    try:
        with opened(one.config) as (settings, store, connector):
            work.said = ACTS[work.what](settings, store, connector, work)
    except (HitlError, OSError) as error:
        work.said, work.failed = str(error), True
    except Exception as error:
        work.said, work.failed = f"{type(error).__name__}: {error}", True
    finally:
        work.ended = time.time()
        one.refresh()
