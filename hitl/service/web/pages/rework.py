"""Send an item back to the same annotator, or to an expert. The next plan asks them first."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Form, Request
from fastapi.responses import JSONResponse, RedirectResponse, Response
from starlette.exceptions import HTTPException

from hitl.active.pending.rework import is_answered
from hitl.service.web.callers import Lead, OneProject, Shown, Viewer
from hitl.service.web.errors import responses
from hitl.service.web.formats import FORMS, Page, answer, is_page, pages
from hitl.service.web.snapshot import Snapshot
from hitl.service.web.templates import path

router = pages("rework")

COLUMNS = ("item", "text", "annotator", "note", "by", "since", "state")

Item = Annotated[str, Form(max_length=2000, description="The item's id")]
Annotator = Annotated[str, Form(max_length=2000, description="The name of the annotator")]


@router.get("/projects/{project}/rework", summary="What was sent back", responses=FORMS | responses(401, 404, 422, 503))
def sent_back(project: str, request: Request, caller: Viewer, one: OneProject, snapshot: Shown) -> Response:
    """Items that were sent back, to whom, and how far that is: it waits for the next plan, is asked, or answered."""
    rows = rows_of(snapshot, one.store.sent_back(project))
    return answer(request, Page("rework.html.j2", "Sent back", rows, COLUMNS), caller, project)


@router.post(
    "/projects/{project}/rework",
    summary="Send an item back",
    status_code=201,
    responses={
        **responses(401, 403, 404, 413, 422, 503),
        303: {"description": "A browser goes to what was sent back"},
    },
)
def send_back(
    project: str,
    request: Request,
    caller: Lead,
    one: OneProject,
    snapshot: Shown,
    item: Item,
    annotator: Annotator,
    note: Annotated[str, Form(max_length=1000, description="What to look at")] = "",
) -> Response:
    """Ask this annotator about the item in the next plan, before all others. A new answer of theirs ends it."""
    row = snapshot.item_place.get(item)
    if row is None:
        raise HTTPException(404, f"no item {item!r} in project {project!r}")
    if annotator not in known_annotators(snapshot):
        raise HTTPException(404, f"no annotator {annotator!r} in project {project!r}")
    made = one.store.send_back(project, snapshot.keys[row], annotator, caller.name, note.strip())
    if is_page(request):
        return RedirectResponse(f"/projects/{path(project)}/rework", 303)
    return JSONResponse({"item": item, "annotator": annotator, "note": made.note, "since": made.since}, 201)


@router.post(
    "/projects/{project}/rework/withdraw",
    summary="Take an item back that was sent back",
    responses={
        **responses(401, 403, 404, 413, 422, 503),
        303: {"description": "A browser goes to what was sent back"},
    },
)
def take_back(
    project: str, request: Request, caller: Lead, one: OneProject, snapshot: Shown, item: Item, annotator: Annotator
) -> Response:
    """Do not ask about it any longer, from the next plan on."""
    row = snapshot.item_place.get(item)
    key = item if row is None else snapshot.keys[row]  # for a deleted item, the platform's key is shown
    if not one.store.take_back(project, key, annotator):
        raise HTTPException(404, f"item {item!r} was not sent back to {annotator!r}")
    if is_page(request):
        return RedirectResponse(f"/projects/{path(project)}/rework", 303)
    return JSONResponse({"item": item, "annotator": annotator})


def known_annotators(snapshot: Snapshot) -> dict[str, None]:
    """Return everyone who can be asked: the crew of the settings, then all who have labeled."""
    crew = map(str, snapshot.settings.crew.annotators)
    labeled = (str(name) for view in snapshot.views.values() for name in view.consensus.annotators.names)
    return dict.fromkeys([*crew, *labeled])


def rows_of(snapshot: Snapshot, sent: Any) -> list[dict[str, Any]]:
    """Return a row per item that was sent back, newest first."""
    asked = {(str(ask.item), str(ask.annotator)) for ask in (snapshot.plan.asks if snapshot.plan else ())}
    evidence = {name: view.evidence for name, view in snapshot.views.items()}
    rows = []
    for back in reversed(sent):
        place = snapshot.key_place.get(str(back.item))
        name = str(back.item) if place is None else snapshot.names[place].as_py()
        answered = place is not None and is_answered(back, place, evidence)
        state = "answered" if answered else "asked" if (name, str(back.annotator)) in asked else "waits"
        rows.append(
            {
                "item": name,
                "text": "" if place is None else snapshot.texts[place].as_py(),
                "annotator": str(back.annotator),
                "note": back.note,
                "by": back.by,
                "since": back.since,
                "state": state,
            }
        )
    return rows
