"""Show annotators, one page each, and the team: common confusions, who answers alike, whose accuracy changes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import Query
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from hitl.annotations import Floats
from hitl.report.annotators import AnnotatorsSection, annotators_section
from hitl.report.contents import Curve
from hitl.report.plots import curves_figure
from hitl.service.web.snapshot import QuestionView
from hitl.service.web.templates import named
from hitl.service.web.visits import PAGE, PageNumber, QuestionName, Size, Viewing, paged, pages

router = pages("annotators")

Sort = Literal["labels", "accuracy", "worst", "name"]

COLUMNS = ("annotator", "labels", "accuracy", "low", "high", "bits", "typical_error")
ANSWER = ("item", "text", "said", "label", "confidence")
CONFUSION = ("true", "said", "labels", "items", "share", "often", "annotators", "names")
"""Columns of an annotator, of an answer that the consensus contradicts, and of a confusion of the team."""

DRIFT_BINS = 8
CELLS = 30  # maximum classes shown of a confusion matrix
CONFUSIONS = 15  # maximum confusions of the team that are shown
NAMES = 5  # maximum annotators named per confusion: those who make it most often
DISAGREEMENTS = 50  # maximum answers shown that the consensus contradicts


@router.get("/projects/{project}/annotators", summary="Annotators", responses=PAGE)
def annotators(
    visit: Viewing,
    question: QuestionName = None,
    q: Annotated[str, Query(max_length=200, description="Part of a name")] = "",
    sort: Annotated[Sort, Query(description="What comes first")] = "labels",
    page: PageNumber = 1,
    size: Size = 50,
) -> Response:
    """Show each annotator's accuracy with its interval, and their typical error."""
    name, view = visit.view(question)
    names = view.consensus.annotators.names
    some, facts = paged([k for k in _order(view, sort) if q.casefold() in str(names[k]).casefold()], page, size)
    given = {"question": question, "q": q, "sort": None if sort == "labels" else sort}
    return visit.page(
        "annotators.html.j2",
        "Annotators",
        [line(view, k) for k in some],
        COLUMNS,
        {"question": name, **facts},
        given={**given, "size": None if size == 50 else size},
        sort=sort,
        q=q,
        chance=1 / max(len(view.consensus.classes), 1),
    )


@router.get("/projects/{project}/annotators/{annotator:named}", summary="The story of one annotator", responses=PAGE)
def annotator(visit: Viewing, annotator: str, question: QuestionName = None) -> Response:
    """Show the answers to each true class, their change over time, and the items where the consensus disagrees."""
    snapshot, (name, view) = visit.snapshot, visit.view(question)
    annotator = named(annotator)
    report, k = view.consensus.annotators, view.reported_place.get(annotator)
    asks = [ask for ask in (snapshot.plan.asks if snapshot.plan else ()) if str(ask.annotator) == annotator]
    if k is None:
        if not asks and annotator not in map(str, snapshot.settings.crew.annotators):
            raise HTTPException(404, f"no annotator {annotator!r} in project {visit.one.name!r}")
        new = {"annotator": {"annotator": annotator, "labels": 0}, "question": name, "confusion": []}
        return visit.page("annotator_new.html.j2", annotator, (), ANSWER, new, asks=asks)
    rows = [_answer(view, int(place), snapshot.texts) for place in disagreements(view, annotator)[:DISAGREEMENTS]]
    parts = over_time(view, annotator)
    return visit.page(
        "annotator.html.j2",
        annotator,
        rows,
        ANSWER,
        {"annotator": line(view, k), "question": name, "confusion": confusion(view, k)},
        figures=_drift_figure(parts) if parts else {},
        classes=list(map(str, report.classes)),
        options=list(map(str, report.options)),
        cells=CELLS,
        disagreed=rows,
        asks=asks,
        over_time=parts,
    )


@router.get("/projects/{project}/team", summary="The team", responses=PAGE)
def team(visit: Viewing, question: QuestionName = None) -> Response:
    """Show the confusions to train, flagged annotators, groups that answer alike, and changes of accuracy."""
    name, view = visit.view(question)
    study = visit.request.app.state.studies.of("team", visit.one.name, view, team_of)
    result: Team = study.result or Team(None, ())
    return visit.page(
        "team.html.j2",
        "Team",
        result.training,
        CONFUSION,
        {"question": name, "labels": study.labels, "busy": study.busy, **_team_facts(result.section)},
        figures={f"team-{part}": figure for part, figure in result.section.figures.items()} if result.section else {},
        now=len(view.evidence.annotations),
        trouble=study.trouble,
        q={"crowd": result.section, "id": "team"},
        n_annotators=view.n_labeling,
    )


def to_talk_to(sections: Iterable[tuple[QuestionView, AnnotatorsSection | None]]) -> list[dict[str, Any]]:
    """Return the annotators who need training, the first of each question, with the reasons in words."""
    people = []
    for view, section in sections:
        needing = [] if section is None else [k for k in section.flagged if section.profiles.needs_training(k)]
        for k in needing[:NAMES]:
            place = view.reported_place.get(str(section.profiles.names[k])) if section else None
            if section is not None and place is not None:
                why = ", ".join(section.profiles.flags(k))
                people.append({**line(view, place), "question": view.page.name, "why": why})
    return people


# -- annotators --------------------------------------------------------------------------------------------


def line(view: QuestionView, k: int) -> dict[str, Any]:
    """Return the table row of one annotator."""
    report, (low, high), (true, said, often) = (
        view.consensus.annotators,
        view.consensus.annotators.interval,
        view.typical_confusions,
    )
    typical = None
    if report.labels[k] and often[k] >= 0.005:
        typical = {"true": str(report.classes[true[k]]), "said": str(report.options[said[k]]), "often": float(often[k])}
    return {
        "annotator": str(report.names[k]),
        "labels": int(report.labels[k]),
        "accuracy": float(report.accuracy[k]),
        "low": float(low[k]),
        "high": float(high[k]),
        "bits": float(view.bits[k]),
        "typical_error": typical,
    }


def confusion(view: QuestionView, k: int) -> list[dict[str, Any]]:
    """Return one row per class: share and number of answers of each option. Counts take the consensus as truth."""
    report, annotations = view.consensus.annotators, view.evidence.annotations
    counts, rows = np.zeros((len(report.classes), len(report.options))), view.rows_of(str(report.names[k]))
    np.add.at(counts, (view.consensus.codes[annotations.item[rows]], annotations.label[rows]), 1)
    return [
        {
            "true": str(name),
            "labels": int(counts[j].sum()),
            "said": [
                {
                    "option": str(option),
                    "share": float(counts[j, s] / max(counts[j].sum(), 1)),
                    "labels": int(counts[j, s]),
                }
                for s, option in enumerate(report.options[:CELLS])
            ],
        }
        for j, name in enumerate(report.classes[:CELLS])
    ]


def disagreements(view: QuestionView, annotator: str) -> Any:
    """Return indices of the annotator's answers that the consensus contradicts, most confident consensus first."""
    annotations, consensus, rows = view.evidence.annotations, view.consensus, view.rows_of(annotator)
    rows = rows[annotations.label[rows] != consensus.codes[annotations.item[rows]]]
    return rows[np.argsort(-consensus.confidence[annotations.item[rows]], kind="stable")]


def over_time(view: QuestionView, annotator: str) -> list[dict[str, float]]:
    """Return the annotator's agreement with the consensus in `DRIFT_BINS` equal parts of their answers, oldest first.

    Return [] if fewer than 2 * `DRIFT_BINS` answers have a time.
    """
    annotations, rows = view.evidence.annotations, view.rows_of(annotator)
    if annotations.time is None:
        return []
    rows = rows[np.isfinite(annotations.time[rows])]
    if len(rows) < 2 * DRIFT_BINS:
        return []
    rows = rows[np.argsort(annotations.time[rows], kind="stable")]
    agreed = annotations.label[rows] == view.consensus.codes[annotations.item[rows]]
    parts = np.array_split(np.arange(len(rows)), DRIFT_BINS)
    times = annotations.time[rows]
    return [
        {"time": float(times[part].mean()), "agreement": float(agreed[part].mean()), "labels": len(part)}
        for part in parts
    ]


def _drift_figure(parts: list[dict[str, float]]) -> dict[str, Any]:
    labels, value = (np.array([part[name] for part in parts]) for name in ("labels", "agreement"))
    spread = 1.96 * np.sqrt(np.maximum(value * (1 - value), 0.01) / labels)
    through: Floats = np.cumsum(labels).astype(float)
    curve = Curve("agreement", through, value, np.clip(value - spread, 0, 1), np.clip(value + spread, 0, 1))
    return {"drift": curves_figure([curve], "agreement with the consensus (%)", "labels given, oldest first")}


def _answer(view: QuestionView, place: int, texts: Any) -> dict[str, Any]:
    annotations, consensus = view.evidence.annotations, view.consensus
    n = int(annotations.item[place])
    said, label = annotations.options[annotations.label[place]], consensus.classes[consensus.codes[n]]
    values = (str(consensus.items[n]), texts[n].as_py(), str(said), str(label), float(consensus.confidence[n]))
    return dict(zip(ANSWER, values, strict=True))


def _order(view: QuestionView, sort: Sort) -> list[int]:
    report = view.consensus.annotators
    if sort == "name":
        return sorted(range(len(report.names)), key=lambda k: str(report.names[k]))
    if sort == "worst":
        labeled = np.flatnonzero(report.labels > 0)
        return list(map(int, labeled[np.argsort(report.accuracy[labeled], kind="stable")]))
    return list(map(int, np.argsort(-(report.accuracy if sort == "accuracy" else report.labels), kind="stable")))


# -- team --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Team:
    """Results about the annotators of one question.

    Attributes:
        section: groups, change over time, flagged annotators; None without labels, or if the consensus is about other
            annotators or options.
        training: most frequent confusions of the team, as JSON values.
    """

    section: AnnotatorsSection | None
    training: tuple[dict[str, Any], ...]


def team_of(view: QuestionView) -> Team:
    """Compute everything that the team page shows for a question."""
    return Team(annotators_section(view.page), tuple(training(view)))


def training(view: QuestionView) -> list[dict[str, Any]]:
    """Return the team's most frequent confusions, taking the consensus as truth: one row each, most labels first.

    `share` is the fraction of all wrong answers, `often` the fraction of all answers to items of the true class.
    """
    annotations, consensus = view.evidence.annotations, view.consensus
    true, said = consensus.codes[annotations.item], annotations.label
    counts_jl = np.zeros((len(consensus.classes), len(annotations.options)), int)
    np.add.at(counts_jl, (true, said), 1)
    wrong_jl = counts_jl.copy()
    np.fill_diagonal(wrong_jl, 0)
    rows = []
    for cell in np.argsort(-wrong_jl, axis=None, kind="stable")[:CONFUSIONS]:
        j, option = divmod(int(cell), len(annotations.options))
        if not wrong_jl[j, option]:
            break
        given = (true == j) & (said == option)
        who = np.bincount(annotations.annotator[given], minlength=annotations.n_annotators)
        most = np.argsort(-who, kind="stable")[:NAMES]
        values = (
            str(consensus.classes[j]),
            str(annotations.options[option]),
            int(wrong_jl[j, option]),
            int(np.unique(annotations.item[given]).size),
            float(wrong_jl[j, option] / wrong_jl.sum()),
            float(wrong_jl[j, option] / counts_jl[j].sum()),
            int((who > 0).sum()),
            [str(annotations.annotators[k]) for k in most if who[k]],
        )
        rows.append(dict(zip(CONFUSION, values, strict=True)))
    return rows


def _team_facts(section: AnnotatorsSection | None) -> dict[str, Any]:
    if section is None:
        return {"look_into": [], "groups": [], "changed": []}
    profiles = section.profiles
    changes = ((str(profiles.names[k]), profiles.changes[k]) for k in section.changed)
    return {
        "look_into": [{"annotator": str(profiles.names[k]), "why": profiles.flags(k)} for k in section.flagged],
        "groups": [
            {"annotators": kind.size, "accuracy": kind.accuracy, "bits": kind.bits, "answers": kind.words}
            for kind, _ in section.groups
        ],
        "changed": [
            {"annotator": name, "at": one.when, "before": one.before, "after": one.after, "p": one.p_any_look}
            for name, one in changes
            if one is not None
        ],
    }
