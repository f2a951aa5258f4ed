"""Build the report of a stored project: the current consensus, and the history of its runs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hitl.cycle import judge
from hitl.learning.suggestions import pulls_of_suggestions
from hitl.metrics import outlook, remaining, summary_of
from hitl.platform import Question
from hitl.project import item_names
from hitl.report.contents import Cycle, QuestionPage, Report
from hitl.settings import Settings

if TYPE_CHECKING:
    from hitl.annotations import Name
    from hitl.store import Store


def stored_report(settings: Settings, store: Store, questions: tuple[Question, ...]) -> Report:
    """Fit the stored data and return the report, with the history of runs. Raise BadInput if nothing is stored."""
    names = item_names(settings, store)
    judged = judge(settings, store, questions)
    pulls = pulls_of_suggestions(settings, store, judged.evidence)
    judgement = judged.named(names)
    table = store.items(settings.name)
    items = zip(table.column("item").to_pylist(), table.column("data").to_pylist(), strict=True)
    texts: dict[Name, str] = {names[key]: text_of(json.loads(data)) for key, data in items}
    pages = tuple(
        QuestionPage(name, evidence, judgement.results[name], texts, least_accuracy=settings.crew.least_accuracy)
        for name, evidence in judgement.evidence.items()
    )
    cycles = store.cycles(settings.name)
    history = tuple(Cycle(cycle.number, cycle.recorded_at, shares(cycle.metrics)) for cycle in cycles)
    failure = store.failure(settings.name)
    summary = summary_of(judgement.metrics, None if failure is None else (failure.error, failure.message, failure.at))
    return Report(
        settings.name,
        pages,
        judgement.plan,
        history=history,
        summary=summary,
        outlook=tuple(outlook(judgement.metrics)),
        remaining=tuple(remaining(judgement.metrics)),
        suggestions=pulls,
        command="hitl report",
    )


def text_of(data: Mapping[str, Any]) -> str:
    """Join the text fields of an item into one line."""
    return " — ".join(" ".join(value.split()) for value in data.values() if isinstance(value, str))


def shares(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Return the metrics of a run that the history shows."""
    means = {name: metrics[name] for name in ("labels", "confidence", "agreement") if metrics.get(name) is not None}
    return {**means, "done": metrics["done"] / max(metrics["items"], 1)}
