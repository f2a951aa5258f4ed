"""Metrics of a run, and their description in words, for the history, `hitl status` and the report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from hitl.active.pending.blockers import (
    missing_in_words,
    missing_skills,
    waiting_for_absent,
    why_not_asked,
    why_nothing_is_asked,
)
from hitl.active.pending.outstanding import open_to_crew
from hitl.active.stopping import forecast, known_items, rules
from hitl.active.stopping.pool_state import PoolState
from hitl.crew import Budget, Crew
from hitl.formatting import counted
from hitl.models.analysis.audited_agreement import AuditedAgreement
from hitl.plan import DoneItems, Plan

DIGITS = 6
"""Number of decimals of recorded and pushed probabilities."""


def metrics_of(questions: Sequence[rules.Judged], plan: Plan, crew: Crew, budget: Budget) -> dict[str, Any]:
    """Return the metrics of a run for the history and `hitl status`, as JSON values.

    They are: numbers of items, labels (of all questions), annotators with labels, and done items with reasons; mean
    confidence; share of labels that agree with the consensus; expected accuracy with its interval; cost so far;
    forecast; why the project is done; why questions or annotators are left out; figures per model.
    """
    pool = PoolState.of(questions, budget)
    first, results = pool.annotations[0], [consensus for _, consensus in pool]
    labeled = [(evidence.annotations, consensus.labels) for evidence, consensus in pool if len(evidence.annotations)]
    agreement = [np.mean(annotations.label == label_n[annotations.item]) for annotations, label_n in labeled]
    ahead = None if plan.stop else forecast.forecast(pool, crew, budget)
    prices = [crew.cost_of(name) for name in first.annotators]
    lacks = missing_skills(pool.open_items(), crew)
    idle = why_nothing_is_asked(plan, crew, budget)
    if idle is not None and lacks and not open_to_crew(pool, crew, budget):
        others = plan.open_items - lacks.total()
        rest = f"; every annotator who may answer the {others:,} others that are open has" if others else ""
        idle = missing_in_words(lacks, crew) + rest
    return {
        "items": first.n_items,
        "labels": sum(len(given) for given in pool.annotations),
        "annotators": len({a.annotators[k] for a in pool.annotations for k in np.flatnonzero(a.labels_per_annotator)}),
        "done": len(plan.done),
        "reasons": dict(Counter(DoneItems.of(plan.done).why)),
        "confidence": round(float(np.mean([result.confidence.mean() for result in results])), DIGITS),
        "agreement": round(float(np.mean(agreement)), DIGITS) if agreement else None,
        "expected": asdict(pool.expected),
        "cost": float(np.dot(first.labels_per_annotator, prices)),
        "forecast": None if ahead is None else asdict(ahead),
        "stop": plan.stop,
        "lacking": None if plan.stop or not lacks else missing_in_words(lacks, crew),
        "idle": idle,
        "unasked": {str(name): why for name, why in why_not_asked(pool, plan, crew, budget).items()},
        "waits": waiting_for_absent(pool, plan, crew, budget),
        "models": _models(pool),
        "corrected": not any(result.design_effect.independent for result in results),
    }


def _models(pool: PoolState) -> dict[str, dict[str, Any]]:
    """Return model -> items predicted, temperature, and agreement with the consensus on items that have labels."""
    figures: dict[str, dict[str, Any]] = {}
    for evidence, consensus in pool:
        labeled = evidence.annotations.labels_per_item > 0
        for name, p_nj in evidence.probabilities.items():
            predicts = ~np.isnan(p_nj[:, 0])
            both = labeled & predicts
            agrees = float((p_nj[both].argmax(axis=1) == consensus.labels[both]).mean()) if both.any() else None
            figures[name] = {
                "items": int(predicts.sum()),
                "temperature": consensus.temperatures.get(name),
                "compared": int(both.sum()),
                "agrees": agrees,
            }
    return figures


def outlook(metrics: Mapping[str, Any]) -> list[str]:
    """Describe the expected accuracy and the remaining work."""
    lines = []
    if metrics.get("expected"):
        expected = rules.Expected(**metrics["expected"])
        lines.append(f"accuracy expected now: {expected}; {_checked(expected)}")
        if not expected.checked and not metrics.get("corrected", True):
            lines.append(f"caution: {TOO_SURE}")
        if metrics.get("audit"):
            audit = AuditedAgreement(**metrics["audit"])
            lines.append(
                f"audit: of {audit.drawn:,} questions about items drawn at random {audit.answered:,} are answered; "
                f"labels, as they stood when asked, agree with such answers in {audit.share:.1%} of all items (95 % "
                f"interval {audit.low:.1%} to {audit.high:.1%}). That is agreement, not accuracy: annotators err too"
            )
        lines.append(f"spent: {counted(metrics['labels'], 'label')}, cost {metrics['cost']:,g}")
    lines += [_of_model(name, said, metrics["items"]) for name, said in metrics.get("models", {}).items()]
    if metrics.get("stop"):
        lines.append(f"the project is done: {metrics['stop']}")
    elif metrics.get("idle"):
        lines.append(f"nothing is asked: {metrics['idle']}")
    elif metrics.get("forecast"):
        ahead = forecast.Forecast(**metrics["forecast"])
        lines.append(f"to come: {ahead}")
        if ahead.caution:
            lines.append(f"caution: {ahead.caution}")
    if metrics.get("waits"):
        lines.append(f"waiting: {metrics['waits']}")
    lines += without_questions(metrics)
    lacking = metrics.get("lacking")
    if lacking and lacking not in (metrics.get("idle") or ""):
        lines.append(f"left aside: {lacking}")
    return lines


NAMED = 5
"""Maximum number of annotators named in one line."""


def without_questions(metrics: Mapping[str, Any]) -> list[str]:
    """Return a line per reason why annotators are asked nothing, with their names."""
    by_reason: dict[str, list[str]] = {}
    for name, why in metrics.get("unasked", {}).items():
        by_reason.setdefault(why, []).append(name)
    lines = []
    for why, names in by_reason.items():
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        lines.append(f"no questions for {', '.join(names[:NAMED])}{more}: {why}")
    return lines


def expected_accuracy(question: rules.Judged) -> rules.Expected:
    """Return the expected accuracy of one question's labels, checked against ground truth if there is enough."""
    return PoolState.of([question], Budget()).expected


TOO_SURE = (
    "this method takes answers at their word and is surer than it is right on most crowds, so projects may end too "
    "early; for labels of whole items the default method corrects that, and 20 items of known truth check it "
    "(`hitl gold`)"
)


def _checked(expected: rules.Expected) -> str:
    if expected.unknowable:
        return f"not known: {expected.unknowable}"
    if not expected.checked:
        return f"unchecked: {expected.unchecked or known_items.too_few(0)}"
    return (
        f"checked on {expected.checked} items of known truth: {expected.wrong:.0f} would be wrong without it, "
        f"{expected.expected_wrong:.1f} were expected"
    )


def _of_model(name: str, said: Mapping[str, Any], items: int) -> str:
    """Describe a model in one line: items predicted, and agreement with the consensus."""
    parts = [f"model {name}: predicts {said['items']:,} of {items:,} items"]
    if said["agrees"] is not None:
        parts.append(f"agrees with the label of {said['agrees']:.1%} of {said['compared']:,} that annotators labeled")
    return f"{', '.join(parts)} (whether it helps: `hitl models`)"
