"""Explain an item's label: who answered what, the weight of each answer, and what would change the label.

    weight of an answer s of annotator k    ln C[k, label, s] - ln C[k, other, s]      `other`: the second best label

C are the confusion matrices of the consensus. An answer with a weight above 0 supports the label. Weights add up if
annotators are independent. If they share errors, the consensus discounts the sum (`Consensus.design_effect`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hitl.annotations import Floats
from hitl.service.web.snapshot import QuestionView

SMALLEST = 1e-12
BELIEFS = 12  # maximum classes shown with their probability

ANSWER = ("annotator", "said", "accuracy", "low", "high", "weight", "time")  # columns of an answer


@dataclass(frozen=True)
class Story:
    """Explanation of one item's label.

    Attributes:
        label, other: the label and the second best one; None if there is only one class.
        beliefs: classes with a nonzero probability, the most probable first.
        answers: a row per answer: annotator, said, accuracy (with low and high), weight, time.
        models: a row per model: its name, its label and probability, and its probability of our label.
        typical: number of answers `other` by typical annotators that would flip the label; None if no number would.
    """

    label: str
    other: str | None
    beliefs: Sequence[tuple[str, float]]
    answers: Sequence[Mapping[str, Any]]
    models: Sequence[Mapping[str, Any]]
    typical: int | None

    @property
    def facts(self) -> dict[str, Any]:
        """JSON values for programs."""
        beliefs = [{"label": name, "probability": p} for name, p in self.beliefs]
        models = list(self.models)
        return {
            "beliefs": beliefs, "models": models, "second_best": self.other, "answers_that_turn_it": self.typical
        }  # fmt: skip


def story_of(view: QuestionView, n: int) -> Story:
    """Explain the label of the item in row n."""
    consensus = view.consensus
    q_j, label, names = consensus.probabilities[n], int(consensus.labels[n]), list(map(str, consensus.classes))
    ranks = [j for j in np.argsort(-q_j, kind="stable").tolist() if j != label]
    other = ranks[0] if ranks else None
    return Story(
        names[label],
        None if other is None else names[other],
        [(names[j], float(q_j[j])) for j in [label, *ranks][:BELIEFS]],
        _answers(view, n, label, other),
        _models(view, n, label),
        None if other is None else _typical(view, n, q_j, label, other),
    )


def _answers(view: QuestionView, n: int, label: int, other: int | None) -> list[dict[str, Any]]:
    """List the answers to item n, largest weight first. Weights compare class `label` with class `other`."""
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
    """Return how many answers `other`, with the crowd's mean confusion matrix, would flip the label."""
    report = view.consensus.annotators
    if view.truth[n] >= 0 or len(report.options) <= other or not len(report.names):
        return None
    weights = np.maximum(report.labels, 0) if report.labels.any() else np.ones(len(report.names))
    each = _weight(np.average(report.confusion, axis=0, weights=weights), other, label, other)
    if each <= 0:
        return None
    best, second = max(float(q_j[label]), SMALLEST), max(float(q_j[other]), SMALLEST)
    return max(1, math.ceil(math.log(best / second) / each + 1e-9))
