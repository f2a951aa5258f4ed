"""Search items, save searches under a name, and explain the label of one item."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal
from urllib.parse import parse_qsl, urlencode

import numpy as np
import pyarrow.compute as pc
from fastapi import Form, Query
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.exceptions import HTTPException

from hitl.annotations import Floats
from hitl.events.bodies import path
from hitl.service.web.access.guard import is_plain
from hitl.service.web.responses import is_page, listed
from hitl.service.web.snapshot import NOWHERE, Mask, QuestionView, Rows, Snapshot
from hitl.service.web.templates import named
from hitl.service.web.visits import ACTION, PAGE, Leading, QuestionName, Viewing, paged, pages
from hitl.store.store import SavedView

router = pages("items")

COLUMNS = ("item", "text", "label", "confidence", "labels", "done", "contested", "changed", "truth")
VIEW = ("name", "address", "by", "since")  # columns of a saved view

CHANGED = 0.1  # an item counts as changed if its probabilities moved by more than this since the last run

SMALLEST = 1e-12
BELIEFS = 12  # maximum classes shown with their probability

ANSWER = ("annotator", "said", "accuracy", "low", "high", "weight", "time")  # columns of an answer

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
    size: int = Field(50, ge=0, le=1000, description="Rows per page; 0: all, except on pages for people")

    def without_defaults(self, *others: str) -> dict[str, Any]:
        """Return the values that are not defaults, without the page number and `others`."""
        return self.model_dump(exclude_defaults=True, exclude={"page", *others})


@router.get("/projects/{project}/items", summary="Items", responses=PAGE)
def items(visit: Viewing, wanted: Annotated[Search, Query()]) -> Response:
    """Show the items that match, page by page."""
    snapshot, (name, view) = visit.snapshot, visit.view(wanted.question)
    matching = find(snapshot, view, wanted)
    size = wanted.size or (50 if is_page(visit.request) else max(len(matching), 1))
    some, facts = paged(matching, wanted.page, size)
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
        "text": snapshot.texts[row].as_py(),
        "annotators": list(known_annotators(snapshot)),
        "classes": () if view.evidence.parts else view.consensus.classes,
        "work": visit.one.work if visit.one.work and visit.one.work.item == item else None,
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
    mask = _which(snapshot, view, wanted)
    if wanted.label:
        mask &= view.consensus.codes == _code(wanted.label, view.consensus.classes)
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
        "label": str(consensus.classes[consensus.codes[n]]) if view.has_label[n] else None,
        "confidence": float(consensus.confidence[n]) if view.has_label[n] else None,
        "labels": int(view.evidence.annotations.labels_per_item[n]),
        "done": bool(snapshot.is_done_in[view.page.name][n]),
        "contested": bool(view.is_contested[n]),
        "changed": round(float(view.changed[n]), 4),
        "truth": None if view.truth[n] < 0 else str(consensus.classes[view.truth[n]]),
    }


def known_annotators(snapshot: Snapshot) -> dict[str, None]:
    """Return everyone who can be asked: the crew of the settings, then all who have labeled."""
    crew = map(str, snapshot.settings.crew.annotators)
    labeled = (str(name) for view in snapshot.views.values() for name in view.consensus.annotators.names)
    return dict.fromkeys([*crew, *labeled])


def _which(snapshot: Snapshot, view: QuestionView, wanted: Search) -> Mask:
    of_one = wanted.question is not None and len(snapshot.views) > 1
    done = snapshot.is_done_in[view.page.name] if of_one else snapshot.is_done
    masks: dict[str, Callable[[], Mask]] = {
        "contested": lambda: view.is_contested.copy(),
        "changed": lambda: view.changed > CHANGED,
        "known": lambda: view.truth >= 0,
        "unlabeled": lambda: view.evidence.annotations.labels_per_item == 0,
        "done": lambda: done.copy(),
        "open": lambda: ~done,
        "all": lambda: np.ones(len(snapshot.keys), bool),
    }
    return masks[wanted.show]()


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
    ours = np.nan_to_num(p_nj).argmax(axis=1) == view.consensus.codes
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
    return urlencode(wanted.without_defaults("size"))


def _view_line(project: str, view: SavedView) -> dict[str, Any]:
    address = f"/projects/{path(project)}/items" + (f"?{view.query}" if view.query else "")
    return {"name": view.name, "address": address, "by": view.by, "since": view.since}


# -- the story of an item ----------------------------------------------------------------------------------
# The weight of answer s by annotator k is ln C[k, label, s] - ln C[k, other, s], where `other` is the second best label
# and C are the confusion matrices of the consensus. An answer with a weight above 0 supports the label. Weights add up
# if annotators are independent. If they share errors, the consensus discounts the sum (`Consensus.design_effect`).


@dataclass(frozen=True)
class Story:
    """Explanation of one item's label.

    Attributes:
        label, other: the label and the second best one; None if there is only one class.
        beliefs: (class, probability): the label, then the most probable other classes, `BELIEFS` at most.
        answers: one row per answer: annotator, said, accuracy (with low and high), weight, time.
        models: one row per model: model, label and its probability, probability of our label, temperature.
        typical: number of answers `other` by typical annotators that would flip the label; None if no number would, if
            the item has ground truth, or if the classes are in order.
        between: lowest and highest class of a 90 % interval; None if it is a single class, or without an order.
    """

    label: str
    other: str | None
    beliefs: Sequence[tuple[str, float]]
    answers: Sequence[Mapping[str, Any]]
    models: Sequence[Mapping[str, Any]]
    typical: int | None
    between: tuple[str, str] | None

    @property
    def facts(self) -> dict[str, Any]:
        """The explanation as JSON values, without the answers."""
        beliefs = [{"label": name, "probability": p} for name, p in self.beliefs]
        models = list(self.models)
        return {
            "beliefs": beliefs, "models": models, "second_best": self.other, "answers_that_turn_it": self.typical,
            "between": self.between,
        }  # fmt: skip


def story_of(view: QuestionView, n: int) -> Story:
    """Explain the label of the item in row n."""
    consensus = view.consensus
    q_j, label, names = consensus.probabilities[n], int(consensus.codes[n]), list(map(str, consensus.classes))
    ranks = [j for j in np.argsort(-q_j, kind="stable").tolist() if j != label]
    other = ranks[0] if ranks else None
    low, high = (names[code] for code in consensus.interval[n])
    return Story(
        names[label],
        None if other is None else names[other],
        [(names[j], float(q_j[j])) for j in [label, *ranks][:BELIEFS]],
        _answers(view, n, label, other),
        _models(view, n, label),
        None if other is None or consensus.ordered else _typical(view, n, q_j, label, other),
        (low, high) if consensus.ordered and low != high else None,
    )


def _answers(view: QuestionView, n: int, label: int, other: int | None) -> list[dict[str, Any]]:
    """List the answers to item n, largest absolute weight first. Weights compare class `label` with class `other`."""
    report, annotations = view.consensus.annotators, view.evidence.annotations
    low, high = report.interval
    options = {name: code for code, name in enumerate(report.options)}
    rows = []
    for place in range(annotations.item_start[n], annotations.item_start[n + 1]):
        annotator = str(annotations.annotators[annotations.annotator[place]])
        said = annotations.options[annotations.label[place]]
        time = math.nan if annotations.time is None else float(annotations.time[place])
        row: dict[str, Any] = dict.fromkeys(ANSWER) | {"annotator": annotator, "said": str(said)}
        k, code = view.reported_place.get(annotator), options.get(said)
        if k is not None and code is not None:
            row |= {"accuracy": float(report.accuracy[k]), "low": float(low[k]), "high": float(high[k])}
            row["weight"] = None if other is None else _weight(report.confusion[k], label, other, code)
        row["time"] = time if math.isfinite(time) else None
        rows.append(row)
    return sorted(rows, key=lambda row: -abs(row["weight"] or 0.0))


def _weight(confusion_jl: Any, label: int, other: int, said: int) -> float:
    return float(np.log(max(confusion_jl[label, said], SMALLEST) / max(confusion_jl[other, said], SMALLEST)))


def _models(view: QuestionView, n: int, label: int) -> list[dict[str, Any]]:
    rows = []
    for model, p_nj in view.evidence.probabilities.items():
        p_j = p_nj[n]
        if math.isnan(p_j[0]):
            continue
        own = int(p_j.argmax())
        shares = {"probability": float(p_j[own]), "of_our_label": float(p_j[label])}
        temperature = view.consensus.temperatures.get(model)
        rows.append({"model": model, "label": str(view.consensus.classes[own]), **shares, "temperature": temperature})
    return rows


def _typical(view: QuestionView, n: int, q_j: Floats, label: int, other: int) -> int | None:
    """Return how many answers `other` by annotators with the crowd's mean confusion matrix would flip the label."""
    report = view.consensus.annotators
    if view.truth[n] >= 0 or len(report.options) <= other or not len(report.names):
        return None
    weights = np.maximum(report.labels, 0) if report.labels.any() else np.ones(len(report.names))
    each = _weight(np.average(report.confusion, axis=0, weights=weights), other, label, other)
    if each <= 0:
        return None
    best, second = max(float(q_j[label]), SMALLEST), max(float(q_j[other]), SMALLEST)
    return max(1, math.ceil(math.log(best / second) / each + 1e-9))
