"""Search items, and show one item."""

from __future__ import annotations

import json
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc
from fastapi import Query, Request
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from hitl.service.web.callers import OneProject, QuestionName, Shown, Viewer, question_of
from hitl.service.web.errors import responses
from hitl.service.web.formats import FORMS, Page, answer, pages
from hitl.service.web.pages.rework import known_annotators
from hitl.service.web.pages.story import ANSWER, story_of
from hitl.service.web.pages.views import named as named_views
from hitl.service.web.searches import Same, Search, Sort, Which
from hitl.service.web.snapshot import NOWHERE, QuestionView, Snapshot
from hitl.service.web.templates import named

router = pages("items")

Rows = npt.NDArray[np.intp]

COLUMNS = ("item", "text", "label", "confidence", "labels", "contested", "changed", "truth")

CHANGED = 0.1
"""An item counts as changed if its probabilities moved by more than this since the last run."""


@router.get("/projects/{project}/items", summary="Items", responses=FORMS | responses(401, 404, 422, 503))
def items(
    project: str,
    request: Request,
    caller: Viewer,
    one: OneProject,
    snapshot: Shown,
    question: QuestionName = None,
    q: Annotated[str, Query(max_length=200, description="Part of an item's id or text")] = "",
    show: Annotated[Which, Query(description="Which items")] = "all",
    label: Annotated[str, Query(max_length=500, description="Items with this label")] = "",
    annotator: Annotated[str, Query(max_length=500, description="Items that this annotator has labeled")] = "",
    said: Annotated[str, Query(max_length=500, description="Items with this answer, by that annotator if named")] = "",
    model: Annotated[str, Query(max_length=500, description="Items that this model predicts")] = "",
    same: Annotated[Same, Query(description="Whether its prediction is our label")] = "",
    sort: Annotated[Sort, Query(description="What comes first")] = "confidence",
    page: Annotated[int, Query(ge=1, le=1_000_000)] = 1,
    size: Annotated[int, Query(ge=1, le=1000)] = 50,
) -> Response:
    """The items that fit, a page of them."""
    wanted = Search(question, q, show, label, annotator, said, model, same, sort, page, size)
    name, view = question_of(snapshot, question)
    found = find(snapshot, view, wanted)
    rows = [line(snapshot, view, int(n)) for n in found[(page - 1) * size : page * size]]
    facts = {"question": name, "found": len(found), "page": page, "pages": max(1, -(-len(found) // size))}
    values = {field: value for field, value in vars(wanted).items() if field != "page"}
    given = {field: value for field, value in values.items() if value != getattr(Search, field)}
    shown = {
        "given": given,
        "wanted": wanted,
        "views": named_views(one.store.views(project), wanted),
        "questions": list(snapshot.views),
        "classes": view.consensus.classes,
        "options": view.consensus.annotators.options,
        "models": list(view.evidence.probabilities),
    }
    return answer(request, Page("items.html.j2", "Items", rows, COLUMNS, facts, shown), caller, project)


@router.get(
    "/projects/{project}/items/{item:named}",
    summary="The story of one item",
    responses=FORMS | responses(401, 404, 422, 503),
)
def item(
    project: str,
    item: str,
    request: Request,
    caller: Viewer,
    one: OneProject,
    snapshot: Shown,
    question: QuestionName = None,
) -> Response:
    """Who said what, what the models say, why this label, and what would change it."""
    name, view = question_of(snapshot, question)
    item = named(item)
    row = snapshot.item_place.get(item)
    if row is None:
        raise HTTPException(404, f"no item {item!r} in project {project!r}")
    story = story_of(view, row)
    asks = [ask for ask in (snapshot.plan.asks if snapshot.plan else ()) if str(ask.item) == item]
    facts = {"item": line(snapshot, view, row), "question": name, **story.facts}
    shown = {
        "story": story,
        "asks": asks,
        "data": _data(one.store.data_of(project, snapshot.keys[row])),
        "questions": list(snapshot.views),
        "text": snapshot.texts[row].as_py(),
        "annotators": list(known_annotators(snapshot)),
    }
    return answer(request, Page("item.html.j2", item, story.answers, ANSWER, facts, shown), caller, project)


def find(snapshot: Snapshot, view: QuestionView, wanted: Search) -> Rows:
    """Return the rows of matching items, in the requested order."""
    keep = _which(snapshot, view, wanted.show)
    if wanted.label:
        keep &= view.consensus.labels == _code(wanted.label, view.consensus.classes)
    if wanted.annotator or wanted.said:
        keep &= _labeled(view, wanted.annotator, wanted.said)
    if wanted.model:
        keep &= _predicted(view, wanted.model, wanted.same)
    if wanted.q:
        keep &= _with_text(snapshot, wanted.q)
    order = _order(snapshot, view, wanted.sort)
    found: Rows = order[keep[order]]
    return found


def line(snapshot: Snapshot, view: QuestionView, n: int) -> dict[str, Any]:
    """Return the table row of one item."""
    consensus, known = view.consensus, view.evidence
    label, start = int(consensus.labels[n]), known.annotations.item_start
    return {
        "item": snapshot.names[n].as_py(),
        "text": snapshot.texts[n].as_py(),
        "label": str(consensus.classes[label]),
        "confidence": float(consensus.confidence[n]),
        "labels": int(start[n + 1] - start[n]),
        "contested": bool(view.is_contested[n]),
        "changed": round(float(view.changed[n]), 4),
        "truth": None if view.truth[n] < 0 else str(consensus.classes[view.truth[n]]),
    }


def _which(snapshot: Snapshot, view: QuestionView, show: Which) -> npt.NDArray[np.bool_]:
    if show == "contested":
        return view.is_contested.copy()
    if show == "changed":
        return view.changed > CHANGED
    if show == "known":
        return np.asarray(view.truth >= 0)
    if show == "unlabeled":
        return np.asarray(view.evidence.annotations.labels_per_item == 0)
    if show in ("open", "done"):
        return snapshot.is_done if show == "done" else ~snapshot.is_done
    return np.ones(len(snapshot.keys), bool)


def _labeled(view: QuestionView, annotator: str, said: str) -> npt.NDArray[np.bool_]:
    """Return an (N,) mask of items labeled by this annotator (or anyone if empty), with this answer if one is given."""
    annotations = view.evidence.annotations
    keep = np.zeros(annotations.n_items, bool)
    rows: Any = slice(None)
    if annotator:
        code = view.annotator_place.get(annotator, NOWHERE)
        if code == NOWHERE:
            return keep
        rows = view.rows_of(code)
    items, labels = annotations.item[rows], annotations.label[rows]
    if said:
        items = items[labels == _code(said, annotations.options)]
    keep[items] = True
    return keep


def _predicted(view: QuestionView, model: str, same: Same) -> npt.NDArray[np.bool_]:
    """Return an (N,) mask of items that the model predicts, optionally only those (dis)agreeing with the label."""
    p_nj = view.evidence.probabilities.get(model)
    if p_nj is None:
        return np.zeros(len(view.consensus.items), bool)
    there = ~np.isnan(p_nj[:, 0])
    if not same:
        return np.asarray(there)
    ours = np.nan_to_num(p_nj).argmax(axis=1) == view.consensus.labels
    return np.asarray(there & (ours if same == "yes" else ~ours))


def _with_text(snapshot: Snapshot, part: str) -> npt.NDArray[np.bool_]:
    """Return an (N,) mask of items whose id or text contains this part, ignoring case."""
    found = pc.or_(
        pc.match_substring(snapshot.names, part, ignore_case=True),
        pc.match_substring(snapshot.texts, part, ignore_case=True),
    )
    return np.asarray(found.to_numpy(zero_copy_only=False), bool).copy()


def _order(snapshot: Snapshot, view: QuestionView, sort: Sort) -> Rows:
    if sort == "surest":
        return view.by_confidence[::-1]
    if sort == "change":
        return view.by_change
    if sort == "labels":
        return np.argsort(-view.evidence.annotations.labels_per_item, kind="stable")
    if sort == "item":
        return np.arange(len(snapshot.keys))
    return view.by_confidence


def _code(name: str, names: tuple[Any, ...]) -> int:
    return next((code for code, each in enumerate(names) if str(each) == name), NOWHERE)


def _data(text: str | None) -> list[tuple[str, str]]:
    data = json.loads(text or "{}")
    return [
        (str(name), value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
        for name, value in data.items()
    ]
