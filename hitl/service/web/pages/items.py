"""Search items, save searches under a name, and show one item."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal
from urllib.parse import parse_qsl, urlencode

import numpy as np
import pyarrow.compute as pc
from fastapi import Form, Query
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.exceptions import HTTPException

from hitl.events.bodies import path
from hitl.service.web.access.guard import is_plain
from hitl.service.web.errors import listed
from hitl.service.web.pages.story import ANSWER, story_of
from hitl.service.web.snapshot import NOWHERE, Mask, QuestionView, Rows, Snapshot
from hitl.service.web.templates import named
from hitl.service.web.visits import ACTION, PAGE, Leading, QuestionName, Viewing, paged, pages
from hitl.store.store import SavedView

router = pages("items")

COLUMNS = ("item", "text", "label", "confidence", "labels", "contested", "changed", "truth")
VIEW = ("name", "address", "by", "since")  # columns of a saved view

CHANGED = 0.1  # an item counts as changed if its probabilities moved by more than this since the last run

ViewName = Annotated[str, Form(max_length=80, description="What it is called")]


class Search(BaseModel):
    """A search for items; the fields are the query parameters of the URL."""

    model_config = ConfigDict(frozen=True)

    question: str | None = Field(None, max_length=500, description="One of the project's questions; else the first")
    q: str = Field("", max_length=200, description="Part of an item's id or text")
    show: Literal["all", "contested", "changed", "open", "done", "known", "unlabeled"] = "all"
    label: str = Field("", max_length=500, description="Items with this label")
    annotator: str = Field("", max_length=500, description="Items that this annotator has labeled")
    said: str = Field("", max_length=500, description="Items with this answer, by that annotator if named")
    model: str = Field("", max_length=500, description="Items that this model predicts")
    same: Literal["", "yes", "no"] = Field("", description="Whether its prediction is our label")
    sort: Literal["confidence", "surest", "change", "item", "labels"] = "confidence"
    page: int = Field(1, ge=1, le=1_000_000)
    size: int = Field(50, ge=1, le=1000, description="Rows per page")

    def without_defaults(self, *others: str) -> dict[str, Any]:
        """Return the values that are not defaults, without the page number and `others`."""
        return self.model_dump(exclude_defaults=True, exclude={"page", *others})


@router.get("/projects/{project}/items", summary="Items", responses=PAGE)
def items(visit: Viewing, wanted: Annotated[Search, Query()]) -> Response:
    """Show the items that match, page by page."""
    snapshot, (name, view) = visit.snapshot, visit.view(wanted.question)
    some, facts = paged(find(snapshot, view, wanted), wanted.page, wanted.size)
    rows = [line(snapshot, view, int(n)) for n in some]
    now = _as_query(wanted)
    views = [
        {"name": each.name, "query": each.query, "current": each.query == now}
        for each in visit.one.store.views(visit.one.name)
    ]
    shown = {
        "given": wanted.without_defaults(),
        "wanted": wanted,
        "views": views,
        "questions": list(snapshot.views),
        "classes": view.consensus.classes,
        "options": view.consensus.annotators.options,
        "models": list(view.evidence.probabilities),
    }
    return visit.page("items.html.j2", "Items", rows, COLUMNS, {"question": name, **facts}, **shown)


@router.get("/projects/{project}/items/{item:named}", summary="The story of one item", responses=PAGE)
def item(visit: Viewing, item: str, question: QuestionName = None) -> Response:
    """Explain the item's label: every answer and prediction, and what would change the label."""
    snapshot, (name, view) = visit.snapshot, visit.view(question)
    item = named(item)
    row = snapshot.item_place.get(item)
    if row is None:
        raise HTTPException(404, f"no item {item!r} in project {visit.one.name!r}")
    story = story_of(view, row)
    data = json.loads(visit.one.store.data_of(visit.one.name, snapshot.keys[row]) or "{}")
    shown = {
        "story": story,
        "asks": [ask for ask in (snapshot.plan.asks if snapshot.plan else ()) if str(ask.item) == item],
        "data": [(name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
                 for name, value in data.items()],
        "questions": list(snapshot.views),
        "text": snapshot.texts[row].as_py(),
        "annotators": list(known_annotators(snapshot)),
    }  # fmt: skip
    facts = {"item": line(snapshot, view, row), "question": name, **story.facts}
    return visit.page("item.html.j2", item, story.answers, ANSWER, facts, **shown)


@router.get("/projects/{project}/views", summary="Saved views", responses=PAGE)
def saved(visit: Viewing) -> Response:
    """Show the searches of items that have a name."""
    rows = [_view_line(visit.one.name, each) for each in visit.one.store.views(visit.one.name)]
    return visit.page("views.html.j2", "Saved views", rows, VIEW)


@router.post("/projects/{project}/views", summary="Save a view of items", status_code=201, responses=ACTION)
def save(
    visit: Leading,
    name: ViewName,
    query: Annotated[str, Form(max_length=8000, description="That of the address of the items")] = "",
) -> Response:
    """Give a search of items a name. It replaces a view of the same name."""
    words, given = " ".join(name.split()), dict(parse_qsl(query))
    if not words or not is_plain(name):
        raise HTTPException(422, "name: expected a word at least, and no control characters")
    try:
        wanted = Search.model_validate({key: value for key, value in given.items() if key not in ("page", "size")})
    except ValidationError as error:
        raise HTTPException(422, listed(error.errors(), "query")) from None
    visit.view(wanted.question)
    made = visit.one.store.save_view(visit.one.name, words, _as_query(wanted), visit.caller.name)
    return visit.done(f"items{f'?{made.query}' if made.query else ''}", _view_line(visit.one.name, made), 201)


@router.post("/projects/{project}/views/forget", summary="Forget a saved view", responses=ACTION)
def forget(visit: Leading, name: ViewName) -> Response:
    """Remove a saved view; its address still works."""
    if not is_plain(name) or not visit.one.store.forget_view(visit.one.name, name):
        raise HTTPException(404, f"no view {name!r} in project {visit.one.name!r}")
    return visit.done("views", {"name": name})


def find(snapshot: Snapshot, view: QuestionView, wanted: Search) -> Rows:
    """Return the rows of matching items, in the requested order."""
    mask = _which(snapshot, view, wanted.show)
    if wanted.label:
        mask &= view.consensus.labels == _code(wanted.label, view.consensus.classes)
    if wanted.annotator or wanted.said:
        mask &= _labeled(view, wanted.annotator, wanted.said)
    if wanted.model:
        mask &= _predicted(view, wanted.model, wanted.same)
    if wanted.q:
        texts = (pc.match_substring(each, wanted.q, ignore_case=True) for each in (snapshot.names, snapshot.texts))
        mask &= pc.or_(*texts).to_numpy(zero_copy_only=False).astype(bool)
    order = _order(snapshot, view, wanted.sort)
    return order[mask[order]]


def line(snapshot: Snapshot, view: QuestionView, n: int) -> dict[str, Any]:
    """Return the table row of one item."""
    consensus = view.consensus
    return {
        "item": snapshot.names[n].as_py(),
        "text": snapshot.texts[n].as_py(),
        "label": str(consensus.classes[consensus.labels[n]]),
        "confidence": float(consensus.confidence[n]),
        "labels": int(view.evidence.annotations.labels_per_item[n]),
        "contested": bool(view.is_contested[n]),
        "changed": round(float(view.changed[n]), 4),
        "truth": None if view.truth[n] < 0 else str(consensus.classes[view.truth[n]]),
    }


def known_annotators(snapshot: Snapshot) -> dict[str, None]:
    """Return everyone who can be asked: the crew of the settings, then all who have labeled."""
    crew = map(str, snapshot.settings.crew.annotators)
    labeled = (str(name) for view in snapshot.views.values() for name in view.consensus.annotators.names)
    return dict.fromkeys([*crew, *labeled])


def _which(snapshot: Snapshot, view: QuestionView, show: str) -> Mask:
    """Return a new (N,) mask of the items to show."""
    masks: dict[str, Callable[[], Mask]] = {
        "contested": lambda: view.is_contested.copy(),
        "changed": lambda: view.changed > CHANGED,
        "known": lambda: view.truth >= 0,
        "unlabeled": lambda: view.evidence.annotations.labels_per_item == 0,
        "done": lambda: snapshot.is_done.copy(),
        "open": lambda: ~snapshot.is_done,
        "all": lambda: np.ones(len(snapshot.keys), bool),
    }
    return masks[show]()


def _labeled(view: QuestionView, annotator: str, said: str) -> Mask:
    """Return an (N,) mask of items labeled by this annotator (or anyone if empty), with this answer if one is given."""
    annotations = view.evidence.annotations
    rows: Any = view.rows_of(annotator) if annotator else slice(None)
    chosen, labels = annotations.item[rows], annotations.label[rows]
    mask = np.zeros(annotations.n_items, bool)
    mask[chosen[labels == _code(said, annotations.options)] if said else chosen] = True
    return mask


def _predicted(view: QuestionView, model: str, same: str) -> Mask:
    """Return an (N,) mask of items that the model predicts, optionally only those (dis)agreeing with the label."""
    p_nj = view.evidence.probabilities.get(model)
    if p_nj is None:
        return np.zeros(len(view.consensus.items), bool)
    mask: Mask = ~np.isnan(p_nj[:, 0])
    ours = np.nan_to_num(p_nj).argmax(axis=1) == view.consensus.labels
    return mask if not same else mask & (ours if same == "yes" else ~ours)


def _order(snapshot: Snapshot, view: QuestionView, sort: str) -> Rows:
    if sort == "surest":
        return view.by_confidence[::-1]
    if sort == "change":
        return view.by_change
    if sort == "labels":
        return np.argsort(-view.evidence.annotations.labels_per_item, kind="stable")
    return np.arange(len(snapshot.keys)) if sort == "item" else view.by_confidence


def _code(name: str, names: Sequence[Any]) -> int:
    return next((code for code, each in enumerate(names) if str(each) == name), NOWHERE)


def _as_query(wanted: Search) -> str:
    """Return the query string of a search, without defaults, page number and page size."""
    return urlencode(wanted.without_defaults("size"))


def _view_line(project: str, view: SavedView) -> dict[str, Any]:
    address = f"/projects/{path(project)}/items" + (f"?{view.query}" if view.query else "")
    return {"name": view.name, "address": address, "by": view.by, "since": view.since}
