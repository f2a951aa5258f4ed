"""The report of a stored project: the last judgement, and the history of its cycles."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from hitl.cycle import judge
from hitl.exchange import Question
from hitl.metrics import outlook
from hitl.report.contents import Cycle, QuestionPage, Report
from hitl.settings import Settings

if TYPE_CHECKING:
    from hitl.store import Store

LONGEST = 300


def stored_report(settings: Settings, store: Store, questions: tuple[Question, ...]) -> Report:
    """What is known now, judged now, with the history of recorded cycles. Raises BadInput when nothing is stored."""
    judgement = judge(settings, store, questions)
    table = store.items(settings.name)
    shown = {
        key: short_text(json.loads(data))
        for key, data in zip(table.column("item").to_pylist(), table.column("data").to_pylist(), strict=True)
    }
    pages = tuple(
        QuestionPage(name, judgement.evidence[name], judgement.results[name], shown) for name in judgement.evidence
    )
    history = tuple(
        Cycle(entry.number, _when(entry.recorded_at), _shares(entry.metrics)) for entry in store.cycles(settings.name)
    )
    ahead = tuple(outlook(judgement.metrics))
    return Report(settings.name, pages, judgement.plan, history=history, command="hitl report", outlook=ahead)


def short_text(data: Mapping[str, Any]) -> str:
    """What annotators see of an item, as one short line: its text fields."""
    parts = [value for value in data.values() if isinstance(value, str)]
    text = " — ".join(" ".join(part.split()) for part in parts)
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def _when(stamp: Any) -> datetime:
    return stamp if isinstance(stamp, datetime) else datetime.fromisoformat(str(stamp))


def _shares(metrics: Mapping[str, Any]) -> dict[str, float]:
    shares = {name: metrics[name] for name in ("labels", "confidence", "agreement") if metrics.get(name) is not None}
    return {**shares, "done": metrics["done"] / max(metrics["items"], 1)}
