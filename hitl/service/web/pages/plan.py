"""Make a plan, review it, send it to the platform, send items back to annotators, and make items gold items."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import Form, Query
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from hitl.events.bodies import path
from hitl.plan import DoneItems
from hitl.service.web import background
from hitl.service.web.pages.items import known_annotators
from hitl.service.web.snapshot import Snapshot
from hitl.service.web.visits import ACTION, PAGE, Leading, PageNumber, Size, Viewing, paged, pages

router = pages("plan")

COLUMNS = ("item", "text", "annotator", "gain", "right", "why", "since", "check", "audit")
SENT_BACK = ("item", "text", "annotator", "note", "by", "since", "state")
"""Columns of a planned question, and of an item that was sent back."""

REASONS = 8  # maximum reasons shown why items are done

NO_NUL = r"^[^\x00]*$"  # pattern of text that every database stores
Item = Annotated[str, Form(max_length=2000, pattern=NO_NUL, description="The item's id")]
Annotator = Annotated[str, Form(max_length=2000, pattern=NO_NUL, description="The name of the annotator")]


@router.get("/projects/{project}/plan", summary="What is asked next", responses=PAGE)
def plan(
    visit: Viewing,
    annotator: Annotated[str, Query(max_length=500, description="Questions for this annotator alone")] = "",
    page: PageNumber = 1,
    size: Size = 50,
) -> Response:
    """Show the questions of the last plan in the order in which they are served, and changes to send."""
    snapshot, one = visit.snapshot, visit.one
    asks = snapshot.plan.asks if snapshot.plan else ()
    some, facts = paged([ask for ask in asks if not annotator or str(ask.annotator) == annotator], page, size)
    rows = []
    for ask in some:
        values = {name: getattr(ask, name) for name in ("gain", "right", "why", "check", "audit")}
        who = None if ask.annotator is None else str(ask.annotator)
        cells = {"item": str(ask.item), "text": _text(snapshot, str(ask.item)), "annotator": who, **values}
        rows.append({name: {**cells, "since": ask.since or None}[name] for name in COLUMNS})
    counts = Counter(ask.annotator for ask in asks).most_common()
    asked = {"anyone" if name is None else str(name): count for name, count in counts}
    stop = snapshot.plan.stop if snapshot.plan else None
    more = {"stop": stop, "pending": dict(one.store.count_pending(one.name)), "questions_by_annotator": asked}
    return visit.page(
        "plan.html.j2",
        "Plan",
        rows,
        COLUMNS,
        facts | more,
        given={"annotator": annotator, "size": size if size != 50 else None},
        annotator=annotator,
        work=one.work,
        reasons=Counter(DoneItems.of(snapshot.plan.done).why).most_common(REASONS) if snapshot.plan else [],
        last=snapshot.cycles[-1] if snapshot.cycles else None,
    )


@router.post("/projects/{project}/plan", summary="Make a plan; nothing is sent", status_code=202, responses=ACTION)
def make(visit: Leading) -> Response:
    """Judge what is stored and record the plan, as `hitl plan` does."""
    return visit.done("plan", vars(background.start(visit.one, "plan", visit.caller.name)), 202)


@router.post(
    "/projects/{project}/plan/approve", summary="Send the plan to the platform", status_code=202, responses=ACTION
)
def approve(
    visit: Leading,
    cycle: Annotated[
        int | None, Form(ge=0, le=2**53, description="Run that made the plan; 409 if another is newer")
    ] = None,
) -> Response:
    """Send the plan to the platform, as `hitl push` does."""
    last = visit.one.store.last_cycle(visit.one.name)
    if cycle is not None and (last is None or last.number != cycle):
        raise HTTPException(409, "another plan has been made since: look at it, then send it")
    return visit.done("plan", vars(background.start(visit.one, "push", visit.caller.name)), 202)


@router.get("/projects/{project}/rework", summary="What was sent back", responses=PAGE)
def sent_back(visit: Viewing) -> Response:
    """Show items that were sent back, to whom, and if they wait for the next plan, are asked, or answered."""
    rows = sent_back_rows(visit.snapshot, visit.one.store.sent_back(visit.one.name))
    return visit.page("rework.html.j2", "Sent back", rows, SENT_BACK)


@router.post("/projects/{project}/rework", summary="Send an item back", status_code=201, responses=ACTION)
def send_back(
    visit: Leading,
    item: Item,
    annotator: Annotator,
    note: Annotated[str, Form(max_length=1000, pattern=NO_NUL, description="What to look at")] = "",
) -> Response:
    """Ask this annotator about the item in the next plan, before all others. A new answer of theirs ends it."""
    snapshot, project = visit.snapshot, visit.one.name
    row = snapshot.item_place.get(item)
    if row is None:
        raise HTTPException(404, f"no item {item!r} in project {project!r}")
    if annotator not in known_annotators(snapshot):
        raise HTTPException(404, f"no annotator {annotator!r} in project {project!r}")
    made = visit.one.store.send_back(project, snapshot.keys[row], annotator, visit.caller.name, note.strip())
    return visit.done("rework", {"item": item, "annotator": annotator, "note": made.note, "since": made.since}, 201)


@router.post("/projects/{project}/rework/withdraw", summary="Take an item back that was sent back", responses=ACTION)
def take_back(visit: Leading, item: Item, annotator: Annotator) -> Response:
    """Stop asking about the item, from the next plan on."""
    row = visit.snapshot.item_place.get(item)
    key = item if row is None else visit.snapshot.keys[row]  # for a deleted item, the platform's key is shown
    if not visit.one.store.take_back(visit.one.name, key, annotator):
        raise HTTPException(404, f"item {item!r} was not sent back to {annotator!r}")
    return visit.done("rework", {"item": item, "annotator": annotator})


@router.post("/projects/{project}/gold", summary="Give the right answer to an item", status_code=202, responses=ACTION)
def gold(
    visit: Leading,
    item: Item,
    label: Annotated[str, Form(max_length=2000, pattern=NO_NUL, description="One of the question's classes")],
    question: Annotated[str | None, Form(description="One of the project's questions; else the first")] = None,
) -> Response:
    """Send ground truth of one item to the platform, as `hitl gold` does. It replaces earlier ground truth."""
    name, view = visit.view(question)
    if item not in visit.snapshot.item_place:
        raise HTTPException(404, f"no item {item!r} in project {visit.one.name!r}")
    if view.evidence.parts or label not in map(str, view.consensus.classes):
        expected = "ground truth that is marked on the platform" if view.evidence.parts else "a class of the question"
        raise HTTPException(422, f"label: {label!r} cannot be the ground truth of {name!r}; expected {expected}")
    work = background.start(visit.one, "gold", visit.caller.name, item, name, label)
    return visit.done(f"items/{path(item)}?{urlencode({'question': name})}", vars(work), 202)


def sent_back_rows(snapshot: Snapshot, sent: Any) -> list[dict[str, Any]]:
    """Return a row per item that was sent back, newest first."""
    asked = {(str(ask.item), str(ask.annotator)) for ask in (snapshot.plan.asks if snapshot.plan else ())}
    rows = []
    for back in reversed(sent):
        place, who = snapshot.key_place.get(str(back.item)), str(back.annotator)
        name = str(back.item) if place is None else snapshot.names[place].as_py()
        answered = place is not None and back.answered
        state = "answered" if answered else "asked" if (name, who) in asked else "waits"
        cells = (name, _text(snapshot, name), who, back.note, back.by, back.since, state)
        rows.append(dict(zip(SENT_BACK, cells, strict=True)))
    return rows


def _text(snapshot: Snapshot, item: str) -> str:
    row = snapshot.item_place.get(item)
    return "" if row is None else str(snapshot.texts[row].as_py())
