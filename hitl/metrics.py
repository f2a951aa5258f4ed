"""Metrics of a run, and their description in words, for the history, `hitl status` and the report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np

from hitl.active.pending.blockers import (
    missing_in_words,
    missing_skills,
    no_annotator_left,
    waiting_for_absent,
    why_not_asked,
    why_nothing_is_asked,
)
from hitl.active.pending.outstanding import open_to_crew
from hitl.active.pool_state import PoolState
from hitl.active.stopping import forecast, known_items, rules
from hitl.active.stopping.project_stop import target_reached
from hitl.annotations import Floats, places_of
from hitl.crew import Budget, Crew
from hitl.formatting import counted, percent
from hitl.models.analysis.audited_agreement import AuditedAgreement
from hitl.models.analysis.explanations import explanations
from hitl.plan import DoneItems, Plan

DIGITS = 6
"""Number of decimals of recorded and pushed probabilities."""


def metrics_of(
    questions: Sequence[rules.Judged],
    plan: Plan,
    crew: Crew,
    budget: Budget,
    controls: Mapping[str, Sequence[int]] | None = None,
) -> dict[str, Any]:
    """Return the metrics of a run for the history and `hitl status`, as JSON values.

    `controls`: question that annotators answer -> positions of its questions; by default all are one.

    They are: numbers of items, labels (of all questions), annotators with labels, and done items with reasons; mean
    confidence; share of labels that agree with the consensus; believed accuracy; cost so far, and
    whether a price is set; forecast; why the project is done; why questions or annotators are left out; figures per
    model.
    """
    pool = PoolState.of(questions, budget)
    first, results = pool.annotations[0], [consensus for _, consensus in pool]
    labeled = [(evidence.annotations, consensus.codes) for evidence, consensus in pool if len(evidence.annotations)]
    agreement = [np.mean(annotations.label == label_n[annotations.item]) for annotations, label_n in labeled]
    answers = {  # question -> number of its answers; an answer with parts is in each of the layers
        place if evidence.parts is None else evidence.parts.question.name: len(evidence.annotations)
        for place, (evidence, _) in enumerate(pool)
    }
    ahead = None if plan.stop else forecast.forecast(pool, crew, budget)
    prices = [crew.cost_of(name) for name in first.annotators]
    lacks = missing_skills(pool.open_items(), crew)
    idle = why_nothing_is_asked(plan, crew, budget)
    if idle is not None and lacks and not open_to_crew(pool, crew, budget):
        others = plan.open_items - lacks.total()
        rest = f"; everyone who may answer the other {others:,} open items has done so" if others else ""
        idle = missing_in_words(lacks, crew) + rest
    return {
        "items": first.n_items,
        "labels": sum(answers.values()),
        "annotators": len({a.annotators[k] for a in pool.annotations for k in np.flatnonzero(a.labels_per_annotator)}),
        "done": len(plan.done),
        "reasons": dict(Counter(DoneItems.of(plan.done).why)),
        "confidence": round(float(np.mean([result.confidence.mean() for result in results])), DIGITS),
        "agreement": round(float(np.mean(agreement)), DIGITS) if agreement else None,
        "expected": asdict(pool.expected),
        "questions": questions_of(pool, plan, crew, controls or {"": range(len(pool))}),
        "asks": len(plan.asks),
        "target": budget.target_confidence,
        "max_labels": budget.max_labels,
        "reached": plan.stop is not None and (not pool.below.any() or target_reached(pool, budget)),
        "cost": float(np.dot(first.labels_per_annotator, prices)),
        "priced": bool(crew.cost) or crew.default_cost != 1,
        "forecast": None if ahead is None else asdict(ahead),
        "stop": plan.stop,
        "lacking": None if plan.stop or not lacks else missing_in_words(lacks, crew),
        "idle": idle,
        "unasked": {str(name): why for name, why in why_not_asked(pool, plan, crew, budget).items()},
        "waits": waiting_for_absent(pool, plan, crew, budget),
        "models": _models(pool),
        "corrected": not any(result.design_effect.independent for result in results),
    }


def questions_of(
    pool: PoolState, plan: Plan, crew: Crew, controls: Mapping[str, Sequence[int]]
) -> dict[str, dict[str, Any]]:
    """Return the progress of each question that annotators answer, as JSON values.

    Its keys: items; done, with reasons; known; stuck, the open items that no one is left to answer, and those among
    them without an answer (unlabeled) or with a question for anyone new (newcomers); asked, the other open items with a
    waiting question; below, the items below the target, open or at the label limit; lower, a target that would finish a
    good part of the stuck ones, and how many; the believed accuracy; explanations, sentences where labels alone cannot
    decide.
    """
    asked_n, named_n = np.zeros((2, len(pool.items)), dtype=bool)
    asked_n[list(places_of(pool.items, {ask.item for ask in plan.asks}).values())] = True
    named = {ask.item for ask in plan.asks if ask.annotator is not None}  # as of items that were sent back
    named_n[list(places_of(pool.items, named).values())] = True
    stuck_n = no_annotator_left(pool, crew) & ~named_n
    questions = {}
    for name, places in controls.items():
        part = pool.part(places)
        stuck = part.open & stuck_n
        confidence_n = part.confidence.min(axis=0)[stuck & (part.labels > 0)]
        questions[name] = {
            "items": len(part.items),
            "done": len(part.done),
            "reasons": dict(Counter(part.done.why)),
            "known": int(part.known.sum()),
            "asked": int((part.open & asked_n & ~stuck).sum()),
            "stuck": int(stuck.sum()),
            "unlabeled": int((stuck & (part.labels == 0)).sum()),
            "newcomers": int((stuck & asked_n).sum()),
            "below": int(part.below.sum()),
            "lower": _lower_target(confidence_n, pool.budget.target_confidence),
            "expected": asdict(part.expected),
            "explanations": [told for _, consensus in part if (told := explanations(consensus))],
        }
    return questions


def _lower_target(confidence: Floats, target: float) -> dict[str, Any] | None:
    """Return the highest target, in steps of 5 %, that a third of these items reach, and how many; None if none is."""
    for lower in np.arange(np.ceil(target * 20) - 1, 9, -1) / 20:
        reach = int((confidence >= lower).sum())
        if reach * 3 >= len(confidence) > 0:
            return {"target": round(float(lower), 2), "items": reach}
    return None


def _models(pool: PoolState) -> dict[str, dict[str, Any]]:
    """Return model -> items predicted, temperature, and agreement with the consensus on items that have labels."""
    figures: dict[str, dict[str, Any]] = {}
    for evidence, consensus in pool:
        labeled = evidence.annotations.labels_per_item > 0
        for name, p_nj in evidence.probabilities.items():
            predicts = ~np.isnan(p_nj[:, 0])
            both = labeled & predicts
            agrees = float((p_nj[both].argmax(axis=1) == consensus.codes[both]).mean()) if both.any() else None
            figures[name] = {
                "items": int(predicts.sum()),
                "temperature": consensus.temperatures.get(name),
                "compared": int(both.sum()),
                "agrees": agrees,
            }
    return figures


# -- the state in sentences --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Summary:
    """The state of a project in sentences, and one piece of advice. `hitl status`, report and pages show the same.

    Attributes:
        kind: "empty", "running", "stuck", "finished" or "failed".
        state: a sentence per question that annotators answer; before them why the last run failed.
        advice: what to do next; commands and settings are in backquotes.
    """

    kind: str
    state: tuple[str, ...]
    advice: str


def summary_of(
    metrics: Mapping[str, Any] | None, failure: tuple[str, str, datetime] | None = None, *, items: bool = True
) -> Summary:
    """Summarize the last successful run (None: none yet), and the error, message and time of a later failure.

    `items`: whether any items are still stored, without which there is nothing to export.
    """
    questions = {} if metrics is None else metrics.get("questions", {})
    if metrics is None or not questions:
        first = Summary(
            "empty", ("No run yet, so nothing has been combined or planned.",), "Start the first run: `hitl run`."
        )
    else:
        several = len(questions) > 1
        state = tuple(_state(name if several else "The project", one, metrics) for name, one in questions.items())
        first = Summary(_kind(questions, metrics), state, _advice(questions, metrics))
    if failure is None:
        return first
    kind, message, at = failure
    away, since = kind == "Unreachable", f"{at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    head = f"The platform could not be reached at {since}" if away else f"The last run failed at {since}"
    works = "; `hitl export` still works" if items else ""
    stored = "" if metrics is None else f" All figures are from the last successful run{works}."
    check = "Check its address and that it is up, then `hitl run`." if away else "Fix this, then `hitl run`."
    return Summary("failed", (sentence(f"{head}: {message}"), *first.state), f"{check}{stored}")


def _kind(questions: Mapping[str, Any], metrics: Mapping[str, Any]) -> str:
    if finished(metrics):
        return "finished"
    return "stuck" if metrics.get("stop") or any(map(_is_stuck, questions.values())) else "running"


def _is_stuck(question: Mapping[str, Any]) -> bool:
    return bool(question["stuck"] == question["items"] - question["done"] > 0)


def is_over(metrics: Mapping[str, Any]) -> bool:
    """Return True if nobody is left to ask about any open item, or the project has stopped for another reason."""
    opened = [one for one in metrics.get("questions", {}).values() if one["done"] < one["items"]]
    return metrics.get("stop") is not None or (bool(opened) and all(map(_is_stuck, opened)))


def _state(subject: str, question: Mapping[str, Any], metrics: Mapping[str, Any]) -> str:
    total, done, below, stuck = (question[key] for key in ("items", "done", "below", "stuck"))
    left, target = total - done, share(metrics["target"])
    progress = f"{done:,} of {counted(total, 'item')} {'is' if done == 1 else 'are'} done"
    if not total:
        return f"{subject} has no items yet."
    if not left:
        most = f"the limit of {counted(metrics['max_labels'], 'answer')}"
        short = f"; {below:,} of them stopped at {most}, below the target of {target}" if below else ""
        return f"{subject} is finished: all {counted(total, 'item')} are done{short}."
    if metrics.get("stop") and metrics["reached"]:
        return f"{subject} is finished: {progress}, and the labels have reached the target accuracy."
    if _is_stuck(question):
        empty = question["unlabeled"]
        without = f" ({empty:,} of them without an answer to this question)" if empty else ""
        who = "no annotator of the crew may answer" if metrics.get("lacking") else "everyone has answered or skipped"
        items = "the last open item" if left == 1 else f"all {left:,} open items"
        asked = question.get("newcomers", 0)
        new = f" {counted(asked, 'question')} {'waits' if asked == 1 else 'wait'} for someone new." if asked else ""
        return f"{subject} is stuck: {progress}, and {who} {items}{without}.{new} The target is {target}."
    if metrics.get("stop"):
        return f"{subject} has stopped: {progress}; {metrics['stop']}."
    waits = [f"{question['asked']:,} with a question waiting"] if question["asked"] else []
    waits += [f"{stuck:,} that everyone has answered"] if stuck else []
    why = f" ({', '.join(waits)})" if waits else ""
    return f"{subject} is in progress: {progress}, {left:,} {'is' if left == 1 else 'are'} open{why}."


def _advice(questions: Mapping[str, Any], metrics: Mapping[str, Any]) -> str:
    stuck = {name: one for name, one in questions.items() if _is_stuck(one)}
    if metrics.get("lacking"):
        return f"{sentence(metrics['lacking'])} Add an annotator who has them, or correct `crew.skills`."
    if stuck and not finished(metrics):
        lower = [(name, one["lower"]) for name, one in stuck.items() if one["lower"]]
        now = share(metrics["target"])
        lowered = ""
        if lower:
            name, best = max(lower, key=lambda pair: pair[1]["items"])
            more = f"{counted(best['items'], 'more item')}{f' of {name}' if len(questions) > 1 else ''}"
            lowered = f" lower `budget.target_confidence` from {now} to {share(best['target'])} ({more} would be done),"
        return f"Add an annotator,{lowered} or accept the labels as they are: `hitl export labels.csv`."
    if finished(metrics) or metrics.get("stop"):
        limited = sum(one["below"] for one in questions.values()) and not metrics["reached"]
        more = " To improve the others, raise `budget.max_labels`." if limited and finished(metrics) else ""
        return f"Download the labels: `hitl export labels.csv`.{more}"
    for reason in ("idle", "waits"):
        if metrics.get(reason):
            return sentence(metrics[reason])
    if metrics.get("asks"):
        waiting = "question is" if metrics["asks"] == 1 else "questions are"
        ended = sum(one["stuck"] for one in questions.values())
        more = " Where everyone has answered, add an annotator or send the item back on its page." if ended else ""
        return f"Wait for answers: {metrics['asks']:,} {waiting} waiting.{more}"
    return "Run `hitl run` to plan the next questions."


def share(value: float) -> str:
    """Format 0.95 as "95 %", 0.975 as "97.5 %"."""
    return f"{value * 100:.4g} %"


def sentence(text: str) -> str:
    """Begin with a capital letter, and end with a period."""
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def outlook(metrics: Mapping[str, Any]) -> list[str]:
    """Describe the accuracy so far, what was spent, and the remaining work, a sentence or two per line."""
    lines = []
    if metrics.get("expected"):
        expected = rules.Expected(**metrics["expected"])
        questions = metrics.get("questions", {})
        if len(questions) > 1:
            lines += [f"{name}: {_accuracy(rules.Expected(**one['expected']))}" for name, one in questions.items()]
        else:
            lines.append(_accuracy(expected))
        if not expected.checked and not metrics.get("corrected", True):
            lines.append(TOO_SURE)
        for name, one in questions.items():
            lines += [f"{name}: {told}" if len(questions) > 1 else told for told in one.get("explanations", ())]
        if metrics.get("audit"):
            audit = AuditedAgreement(**metrics["audit"])
            lines.append(
                f"Audit: {audit.answered:,} of {audit.drawn:,} questions about randomly drawn items are answered. "
                f"Labels agree with such answers on about {percent(audit.share)} of all items (95 % interval "
                f"{percent(audit.low)} to {percent(audit.high)}). This is agreement, not accuracy: annotators make "
                "mistakes too."
            )
        cost = f", cost {metrics['cost']:,g}" if metrics.get("priced") else ""
        lines.append(f"Spent: {counted(metrics['labels'], 'answer')}{cost}.")
    lines += [_of_model(name, said, metrics["items"]) for name, said in metrics.get("models", {}).items()]
    return [*lines, *remaining(metrics)]


def remaining(metrics: Mapping[str, Any]) -> list[str]:
    """Describe the remaining work, and why some annotators or items get no questions."""
    lines = []
    if metrics.get("stop"):
        done = finished(metrics)
        lines.append(f"The project {'is done' if done else 'has stopped'}: {metrics['stop']}.")
        if done:
            lines.append("That is what hitl believes; `hitl certify` proves by an audit how many labels are wrong.")
    elif metrics.get("idle"):
        lines.append(f"No questions are sent: {metrics['idle']}.")
    elif metrics.get("forecast"):
        ahead = forecast.Forecast(**metrics["forecast"])
        lines += filter(None, (str(ahead), ahead.caution))
    if metrics.get("waits"):
        lines.append(f"Waiting: {metrics['waits']}.")
    lines += without_questions(metrics)
    lacking = metrics.get("lacking")
    if lacking and lacking not in (metrics.get("idle") or ""):
        lines.append(f"Some items get no questions: {lacking}.")
    return lines


def finished(metrics: Mapping[str, Any]) -> bool:
    """Return True if the project has ended as planned: every item is done, or the accuracy has reached its target."""
    return metrics.get("stop") is not None and (metrics.get("reached", True) or metrics["done"] == metrics["items"])


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
        lines.append(f"No questions for {', '.join(names[:NAMED])}{more}: {why}.")
    return lines


def expected_accuracy(question: rules.Judged) -> rules.Expected:
    """Return the believed accuracy of one question's labels, checked against ground truth if there is enough."""
    return PoolState.of([question], Budget()).expected


TOO_SURE = (
    "This method is overconfident on most crowds, so the project may end too early. The default method corrects for "
    "that (labels of whole items only). 20 gold items (`hitl gold truth.csv`: item, label) check any method."
)


def _accuracy(expected: rules.Expected) -> str:
    believed = f"Believed accuracy: {expected} of the labels are right"
    if not expected.checked:
        return f"{believed}. Nothing checks that. {expected.unchecked or known_items.too_few(0)}"
    return (
        f"{believed}. From answers alone, {expected.wrong:.0f} of {expected.checked} gold items would be wrong "
        f"({expected.expected_wrong:.1f} were expected). If they were drawn at random, {percent(expected.low)} to "
        f"{percent(expected.high)} of all labels are right (95 % interval)."
    )


def _of_model(name: str, said: Mapping[str, Any], items: int) -> str:
    """Describe a model in one line: items predicted, and agreement with the consensus."""
    parts = [f"Model {name} predicts {said['items']:,} of {items:,} items"]
    if said["agrees"] is not None:
        parts.append(f"and agrees with {percent(said['agrees'])} of the {counted(said['compared'], 'label')} there")
    return f"{' '.join(parts)}. `hitl models` shows whether it helps."
