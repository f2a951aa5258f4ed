"""The page: numbers and figures put into `page.html.j2`, with styles, script and plotly.js inside it.

Nothing on it loads from a network, and its Content-Security-Policy forbids it. Names and texts come from
outside: the template escapes all of them, and data for the script is JSON without a "<".
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

import hitl
from hitl.annotations import Name
from hitl.files import atomic
from hitl.plan import Plan
from hitl.report import measures, models, people, plots, tables
from hitl.report.contents import QuestionPage, Report

ROWS = 25
"""Rows of the tables of contested items and of questions to ask."""

CLASSES_SHOWN = 12
ANNOTATORS_SHOWN = 500
"""Rows of the annotator tables of all questions together."""

CONFUSION_CELLS = 300_000
"""Cells of all the annotators' confusion matrices on the page, about 4 bytes each."""


def render(report: Report) -> str:
    """The report as one HTML page. Raises BadInput where its parts do not fit together."""
    questions = [_question(f"q{rank}", page, report) for rank, page in enumerate(report.questions, start=1)]
    figures = {key: value for question in questions for key, value in question.pop("figures").items()}
    if report.curves:
        figures["curves"] = plots.curves_figure(report.curves, report.curve_axis)
    if len(report.history) > 1:
        figures["history"] = plots.history_figure(report.history)
    confusions = {question["id"]: question.pop("confusions") for question in questions}
    return str(
        _template().render(
            report=report,
            questions=questions,
            overview=_overview(report),
            plan=None if report.plan is None else _plan(report.plan, report),
            generated=report.generated or datetime.now(UTC),
            version=hitl.__version__,
            data=_json({"figures": figures, "confusions": confusions}),
            **_files(),
        )
    )


def write(report: Report, path: str | Path) -> None:
    """Write `render(report)` to a file, whole or not at all."""
    page = render(report).encode("utf-8", "replace")
    with atomic(path) as handle:
        handle.write(page)


def _overview(report: Report) -> dict[str, Any]:
    """Counts over all questions; an item or an annotator of several questions counts once."""
    annotations = [page.evidence.annotations for page in report.questions]
    people = {a.annotators[k] for a in annotations for k in np.flatnonzero(a.labels_per_annotator)}
    return {
        "items": len({item for a in annotations for item in a.items}),
        "labels": sum(len(a) for a in annotations),
        "annotators": len(people),
        "done": None if report.plan is None else _done_share(report.plan),
    }


def _question(key: str, page: QuestionPage, report: Report) -> dict[str, Any]:
    """Everything the template and the script need for one question."""
    consensus, annotations = page.consensus, page.evidence.annotations
    truth = measures.held_out_truth(page)
    known = truth >= 0
    right = (consensus.labels == truth)[known]
    bins = measures.reliability(consensus.confidence[known], right) if known.any() else []
    rows = tables.annotator_rows(page, max(ROWS, ANNOTATORS_SHOWN // len(report.questions)))
    figures = {f"{key}-confidence": plots.confidence_figure(consensus.confidence, annotations.n_classes)}
    if bins:
        figures[f"{key}-reliability"] = plots.reliability_figure(bins)
    crowd = people.people_section(page)
    if crowd is not None:
        figures |= {f"{key}-{name}": figure for name, figure in crowd.figures.items()}
    together = models.models_section(page)
    if together is not None:
        figures |= {f"{key}-{name}": figure for name, figure in together.figures.items()}
    confusions = _confusions(page, rows, CONFUSION_CELLS // len(report.questions))
    return {
        "id": key,
        "name": page.name,
        "items": annotations.n_items,
        "labels": len(annotations),
        "unlabeled": int((annotations.labels_per_item == 0).sum()),
        "active": int((annotations.labels_per_annotator > 0).sum()),
        "confidence": float(consensus.confidence.mean()),
        "expected": _expected_accuracy(page, report.plan),
        "measured": measures.measured(consensus, truth),
        "given": measures.truth_was_given(page) and page.truth is None,
        "gap": measures.calibration_error(bins),
        "fit": consensus.fit,
        "classes": tables.class_rows(page, CLASSES_SHOWN),
        "n_classes": annotations.n_classes,
        "people": rows,
        "crowd": crowd,
        "n_people": len(consensus.annotators.names),
        "selectable": len(confusions["people"]),
        "contested": tables.contested_rows(page, truth, ROWS),
        "n_contested": len(measures.contested(page.evidence, consensus)),
        "models": tables.model_rows(page),
        "together": together,
        "truth_known": bool(known.any()),
        "figures": figures,
        "confusions": confusions,
    }


def _expected_accuracy(page: QuestionPage, plan: Plan | None) -> tuple[float, str]:
    """Mean confidence of the labels in use, and which those are: the done items', else the labeled items'."""
    consensus, annotations = page.consensus, page.evidence.annotations
    if plan is not None and plan.done:
        done = {item.item for item in plan.done}
        rows = np.array([item in done for item in consensus.items])
        if rows.any():
            return float(consensus.confidence[rows].mean()), "mean confidence of the items done"
    rows = annotations.labels_per_item > 0
    if rows.any():
        return float(consensus.confidence[rows].mean()), "mean confidence of the items with labels"
    return float("nan"), "no item has a label yet"


def _confusions(page: QuestionPage, people: list[tables.AnnotatorRow], cells: int) -> dict[str, Any]:
    """What the one heat map of a question can show: all annotators pooled, and as many single ones as fit."""
    consensus, annotations = page.consensus, page.evidence.annotations
    confusion = consensus.annotators.confusion
    room = cells // (len(consensus.classes) * len(consensus.annotators.options))
    return {
        "classes": [plots.shown(name, 24) for name in consensus.classes],
        "options": [plots.shown(name, 24) for name in consensus.annotators.options],
        "pooled": plots.confusion_values(measures.pooled_confusion(annotations, consensus.probabilities)),
        "people": {str(row.code): plots.confusion_values(confusion[row.code]) for row in people[:room]},
    }


def _plan(plan: Plan, report: Report) -> dict[str, Any]:
    texts: dict[Name, str] = {}
    for page in report.questions:
        texts |= page.texts
    names = [page.name for page in report.questions]
    return {
        "asks": tables.ask_rows(plan, texts, ROWS),
        "n_asks": len(plan.asks),
        "summary": str(plan),
        "done": tables.done_rows(plan, texts, names, ROWS),
        "n_done": len(plan.done),
        "open": plan.open_items,
        "share": _done_share(plan),
        "reasons": tables.reasons(done.why for done in plan.done),
    }


def _done_share(plan: Plan) -> float:
    total = len(plan.done) + plan.open_items
    return len(plan.done) / total if total else float("nan")


def _template(name: str = "page.html.j2") -> Any:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"percent": percent, "count": count, "places": _places, "points": _points}
    environment.globals["colours"] = plots.COLOURS
    return environment.get_template(name)


def _files() -> Mapping[str, Any]:
    """Styles and plotly.js as they are: ours, not from outside."""
    from markupsafe import Markup
    from plotly.offline import get_plotlyjs

    css = Path(__file__).with_name("page.css").read_text(encoding="utf-8")
    return {"css": Markup(css), "plotly": Markup(get_plotlyjs())}


def _json(data: Any) -> Any:
    """JSON that is safe inside a script element: no "<", hence no end tag and no comment."""
    from markupsafe import Markup

    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("<", "\\u003c"))


def percent(share: float, digits: int = 1) -> str:
    """0.934 -> "93.4 %"; a dash where there is no number. Only 1 itself is 100 %, only 0 itself is 0 %."""
    if not np.isfinite(share):
        return "–"
    step = 10.0**-digits
    value = round(share * 100, digits)
    if share < 1:
        value = min(value, 100 - step)
    if share > 0:
        value = max(value, step)
    return f"{value:.{digits if 0 < share < 1 else 0}f}\u00a0%"


def count(number: float) -> str:
    """12345 -> "12,345"."""
    return f"{number:,.0f}"


def _places(value: float, digits: int) -> str:
    return f"{value:.{digits}f}" if np.isfinite(value) else "–"


def _points(share: float) -> str:
    """0.0345 -> "+3.5": a difference in points of a hundred."""
    return f"{round(share * 100, 1) + 0.0:+.1f}" if np.isfinite(share) else "–"
