"""Make a plan, review it, and send it to the platform.

make       `hitl plan`: estimate from stored labels and record the plan; nothing is sent
approve    `hitl push`: send the plan
"""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any

from fastapi import Form, Query, Request
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from hitl.plan import Ask
from hitl.service.web.callers import Lead, OneProject, Shown, Viewer, may_act
from hitl.service.web.errors import responses
from hitl.service.web.formats import FORMS, Page, answer, pages
from hitl.service.web.snapshot import Snapshot
from hitl.service.web.work import begin

router = pages("plan")


COLUMNS = ("item", "text", "annotator", "gain", "right", "why", "since", "check", "audit")


@router.get("/projects/{project}/plan", summary="What is asked next", responses=FORMS | responses(401, 404, 422, 503))
def plan(
    project: str,
    request: Request,
    caller: Viewer,
    one: OneProject,
    snapshot: Shown,
    annotator: Annotated[str, Query(max_length=500, description="Questions for this annotator alone")] = "",
    page: Annotated[int, Query(ge=1, le=1_000_000)] = 1,
    size: Annotated[int, Query(ge=1, le=1000)] = 50,
) -> Response:
    """The questions of the last plan in the order in which they are served, and what waits to be sent."""
    asks = snapshot.plan.asks if snapshot.plan is not None else ()
    found = [ask for ask in asks if not annotator or str(ask.annotator) == annotator]
    rows = [_line(snapshot, ask) for ask in found[(page - 1) * size : page * size]]
    pending = one.store.count_pending(project)
    facts = {
        "found": len(found),
        "page": page,
        "pages": max(1, -(-len(found) // size)),
        "stop": None if snapshot.plan is None else snapshot.plan.stop,
        "pending": dict(pending),
        "questions_by_annotator": {
            "anyone" if name is None else str(name): count
            for name, count in Counter(ask.annotator for ask in asks).most_common()
        },
    }
    shown = {
        "given": {"annotator": annotator, "size": size if size != 50 else None},
        "annotator": annotator,
        "work": one.work,
        "may_act": may_act(caller, project),
        "reasons": [] if snapshot.plan is None else _reasons(snapshot),
        "last": snapshot.cycles[-1] if snapshot.cycles else None,
    }
    return answer(request, Page("plan.html.j2", "Plan", rows, COLUMNS, facts, shown), caller, project)


@router.post("/projects/{project}/plan", summary="Make a plan; nothing is sent", **begin.documented)
def make(project: str, request: Request, caller: Lead, one: OneProject) -> Response:
    """Judge what is stored and record the plan, as `hitl plan` does."""
    return begin(request, one, "plan", caller.name)


@router.post("/projects/{project}/plan/approve", summary="Send the plan to the platform", **begin.documented)
def approve(
    project: str,
    request: Request,
    caller: Lead,
    one: OneProject,
    cycle: Annotated[int | None, Form(ge=0, le=2**53, description="The cycle whose plan it is; 409 if not")] = None,
) -> Response:
    """Make the platform as planned, as `hitl push` does."""
    last = one.store.last_cycle(project)
    if cycle is not None and (last is None or last.number != cycle):
        raise HTTPException(409, "another plan has been made since: look at it, then send it")
    return begin(request, one, "push", caller.name)


def _line(snapshot: Snapshot, ask: Ask) -> dict[str, Any]:
    row = snapshot.item_place.get(str(ask.item))
    return {
        "item": str(ask.item),
        "text": "" if row is None else snapshot.texts[row].as_py(),
        "annotator": None if ask.annotator is None else str(ask.annotator),
        "gain": float(ask.gain),
        "right": float(ask.right),
        "why": ask.why,
        "since": ask.since or None,
        "check": ask.check,
        "audit": ask.audit,
    }


def _reasons(snapshot: Snapshot) -> list[tuple[str, int]]:
    from hitl.plan import DoneItems

    assert snapshot.plan is not None
    return Counter(DoneItems.of(snapshot.plan.done).why).most_common(8)
