"""Render the page from `page.html.j2`, with inline styles and script. `figures.js.j2` draws the figures.

The page loads nothing from the network, and its Content-Security-Policy forbids it. Names and texts are not trusted:
the template escapes all of them, and data for the script are JSON without a "<".
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Hashable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import hitl
from hitl.annotations import Name
from hitl.formatting import percent, sure
from hitl.models.analysis.complementarity import reliability
from hitl.report import annotators, measures, models, plots
from hitl.report.contents import QuestionPage, Report
from hitl.report.parts import parts_section
from hitl.tables.write import atomic

if TYPE_CHECKING:
    import jinja2
    from markupsafe import Markup

ROWS = 25
"""Maximum rows in the tables of contested items, questions to ask, done items, and flagged annotators."""

REASONS = 8
"""Maximum number of reasons listed for done items."""

TEXT_SHOWN = 300
"""Maximum characters shown of an item's text."""

CLASSES_SHOWN = 12
ANNOTATORS_SHOWN = 500
"""Maximum rows in the annotator tables of all questions together; each question has at least ROWS."""

CONFUSION_CELLS = 300_000
"""Maximum cells of the annotators' confusion matrices on the page, about 4 bytes each."""


def render(report: Report) -> str:
    """Render the report as one HTML page. Raise BadInput if evidence and consensus of a question do not match."""
    questions = [
        _question(f"q{rank}", page, len(report.questions)) for rank, page in enumerate(report.questions, start=1)
    ]
    figures = {key: value for question in questions for key, value in question.pop("figures").items()}
    if report.curves:
        figures["curves"] = plots.curves_figure(report.curves, "accuracy (% of items)")
    if len(report.history) > 1:
        figures["history"] = plots.history_figure(report.history)
    confusions = {question["id"]: question.pop("confusions") for question in questions}
    texts: dict[Name, str] = {item: text for page in report.questions for item, text in page.texts.items()}
    return document(
        "page.html.j2",
        {"figures": figures, "confusions": confusions},
        report=report,
        questions=questions,
        overview=_overview(report),
        verdict=verdict(report, questions),
        plan=report.plan,
        asked=Counter() if report.plan is None else Counter(ask.annotator for ask in report.plan.asks),
        reasons=[] if report.plan is None else Counter(done.why for done in report.plan.done).most_common(REASONS),
        texts=texts,
        generated=report.generated or datetime.now(UTC),
    )


def write(report: Report, path: str | Path) -> None:
    """Write the page to a file, completely or not at all."""
    write_text(path, render(report))


def templates() -> jinja2.Environment:
    """Return the Jinja environment of the templates in this folder."""
    import jinja2

    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    environment = jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= FILTERS
    environment.globals |= GLOBALS
    return environment


def document(template: str, data: Any, **content: Any) -> str:
    """Fill a template with `content`, inlining the styles and the script's `data`."""
    from markupsafe import Markup

    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    css = (Path(__file__).parent / "page.css").read_text(encoding="utf-8")
    return (
        templates()
        .get_template(template)
        .render(
            css=Markup(css),  # nosec B704  # our own file
            data=Markup(text.replace("<", "\\u003c")),  # nosec B704  # cannot contain an end tag or a comment
            version=hitl.__version__,
            **content,
        )
    )


def write_text(path: str | Path, text: str) -> None:
    """Write text to a file, completely or not at all. Invalid characters become question marks."""
    with atomic(path) as handle:
        handle.write(text.encode("utf-8", "replace"))


def _overview(report: Report) -> dict[str, int]:
    """Count over all questions. An item or annotator in several questions counts once."""
    annotations = [page.evidence.annotations for page in report.questions]
    known = [page.evidence.known for page in report.questions]
    return {
        "items": len({item for a in annotations for item in a.items}),
        "labels": sum(len(a) for a in annotations),
        "annotators": len({a.annotators[k] for a in annotations for k in np.flatnonzero(a.labels_per_annotator)}),
        "known": len({a.items[n] for a, k in zip(annotations, known, strict=True) for n in np.flatnonzero(k)}),
    }


def _question(key: str, page: QuestionPage, many: int) -> dict[str, Any]:
    """Return the values of one question for template and script. `many`: number of questions on the page."""
    consensus, annotations = page.consensus, page.evidence.annotations
    rows = measures.annotator_rows(page, max(ROWS, ANNOTATORS_SHOWN // many))
    contested = measures.contested(page.evidence, consensus)
    figures = {"confidence": plots.confidence_figure(consensus.confidence, annotations.n_classes)}
    truth = measures.held_out_truth(page)
    known = truth >= 0
    reliable = reliability(consensus.confidence[known], (consensus.codes == truth)[known])
    if known.any():
        figures["reliability"] = plots.reliability_figure(
            [("labels", reliable)], "confidence in the label (%)", "labels that are right (%)"
        )
    sections = {"crowd": annotators.annotators_section(page), "together": models.models_section(page)}
    for section in sections.values():
        figures |= {} if section is None else section.figures
    confusions = _confusions(page, rows, CONFUSION_CELLS // many)
    return {
        "id": key,
        "page": page,
        "unlabeled": int((annotations.labels_per_item == 0).sum()),
        "active": int((annotations.labels_per_annotator > 0).sum()),
        "accuracy": measures.accuracy_of(page, truth),
        "is_measured": bool(known.any()),
        "given": measures.truth_was_given(page) and page.truth is None,
        "gap": measures.calibration_error(reliable),
        "classes": measures.class_rows(page, CLASSES_SHOWN),
        "annotators": rows,
        "selectable": len(confusions["annotators"]),
        "contested": measures.contested_rows(page, contested[:ROWS], truth),
        "n_contested": len(contested),
        "parts": parts_section(page),
        "models": measures.model_rows(page),
        **sections,
        "figures": {f"{key}-{name}": figure for name, figure in figures.items()},
        "confusions": confusions,
    }


def _confusions(page: QuestionPage, rows: list[dict[Hashable, Any]], cells: int) -> dict[str, Any]:
    """Return confusion matrices for a heat map: the pooled one, and those of as many annotators as `cells` allows."""
    report = page.consensus.annotators
    room = cells // (len(report.classes) * len(report.options))
    pooled = measures.pooled_confusion(page.evidence.annotations, page.consensus.probabilities)
    return {
        "classes": [plots.shown(name, 24) for name in report.classes],
        "options": [plots.shown(name, 24) for name in report.options],
        "pooled": plots.confusion_values(pooled),
        "annotators": {str(row["code"]): plots.confusion_values(report.confusion[row["code"]]) for row in rows[:room]},
    }


# -- the first lines of the page ---------------------------------------------------------------------------


def verdict(report: Report, questions: Sequence[dict[str, Any]]) -> dict[str, list[str]]:
    """Return the summary of the page: heading -> sentences. `questions`: template values of the questions."""
    if not questions:
        return {}
    stands, helps, training, left = [], [], [], []
    if report.plan is not None and report.summary is None:
        done, total = len(report.plan.done), len(report.plan.done) + report.plan.open_items
        stands.append(f"{done:,} of {total:,} items are done.")
    for question in questions:
        name = f"{question['page'].name}: " if len(questions) > 1 else ""
        accuracy = question["accuracy"]
        if np.isnan(accuracy.value):
            stands.append(f"{name}The accuracy is not known: {accuracy.basis}.")
        else:
            stands.append(f"{name}Accuracy {accuracy.value * 100:.1f} % ({accuracy.account}).")
        helps.append(name + _helps(question["together"]))
        training.append(name + annotators.who_needs_training(question["crowd"]))
        counts = f"{question['unlabeled']:,} items without an answer, {question['n_contested']:,} contested items."
        left.append(name + counts)
    return {
        "Where does it stand?": stands,
        "Does the model help?": helps,
        "Who needs training?": training,
        **({} if report.suggestions is None else {"Do suggestions pull answers?": [str(report.suggestions.overall)]}),
        "What is left?": [*report.remaining] or left,
    }


def _helps(together: models.ModelsSection | None) -> str:
    if together is None:
        return "No model was given, or the method does not use it."
    return f"{together.profile.verdict}."


# -- filters of templates ----------------------------------------------------------------------------------


def count(number: float) -> str:
    """Format 12345 as "12,345"."""
    return f"{number:,.0f}"


def places(value: float, digits: int) -> str:
    """Format a number with this many decimals; NaN and infinity as a dash."""
    return f"{value:.{digits}f}" if np.isfinite(value) else "–"


def points(share: float) -> str:
    """Format a difference in percentage points: 0.0345 as "+3.5", NaN as a dash."""
    return f"{round(share * 100, 1) + 0.0:+.1f}" if np.isfinite(share) else "–"


def coded(text: str) -> Markup:
    """Mark up a message: text between backquotes becomes code, and no line breaks before a percent sign."""
    from markupsafe import Markup, escape

    text = text.replace(" %", "\u00a0%")
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return escape(text)
    return Markup("").join(Markup("<code>{}</code>").format(part) if n % 2 else part for n, part in enumerate(parts))


FILTERS: dict[str, Any] = {
    function.__name__: function for function in (count, places, points, coded, annotators.day, sure, plots.cut)
} | {"percent": lambda *share: percent(*share).replace(" ", "\u00a0")}
"""Template filters of reports. Some templates are also included in the service's pages."""

GLOBALS = {
    "colours": plots.COLOURS,
    "rows_shown": ROWS,
    "text_shown": TEXT_SHOWN,
    "names_shown": measures.NAMES_SHOWN,
    "together_shown": models.CLASSES,
}
