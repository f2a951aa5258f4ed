"""Rows of the tables on the page. The template only lays them out."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hitl.annotations import Ints, Name, Names
from hitl.models.analysis.information import information
from hitl.report.contents import QuestionPage
from hitl.report.measures import typical_confusions

NAMES_SHOWN = 12
"""Annotators listed per answer to a contested item."""

OVERCONFIDENT, UNDERCONFIDENT = 1.1, 0.9
"""Temperatures beyond which a model is called over- or underconfident."""


@dataclass(frozen=True)
class Vote:
    """One answer to an item: its share of the labels, and its annotators, most accurate first."""

    option: int
    name: Name
    share: float
    annotators: Names


@dataclass(frozen=True)
class ContestedRow:
    """A contested item: its answers, current label, and ground truth if known."""

    item: Name
    votes: tuple[Vote, ...]
    label: Name
    confidence: float
    truth: Name | None


def annotator_rows(page: QuestionPage, most: int) -> list[dict[Hashable, Any]]:
    """Return the `most` annotators with most labels, in that order.

    The columns are those of `AnnotatorReport.frame`, plus `code`, the `bits` of information per label, the typical
    wrong answer in words (`confusion`), and how `often` it occurs.
    """
    report = page.consensus.annotators
    true, option, often = typical_confusions(report.confusion, report.shares)
    order = np.argsort(-report.labels, kind="stable")[:most]
    table = report.frame().assign(
        code=np.arange(len(report.names)),
        bits=information(report.confusion, report.shares),
        often=np.where(report.labels > 0, often, 0.0),
    )
    rows = table.iloc[order].to_dict("records")
    for row in rows:
        answer, truth = report.options[option[row["code"]]], report.classes[true[row["code"]]]
        typical = (
            f"says {answer} for {truth}: {row['often'] * 100:.0f}\u00a0%" if row["often"] >= 0.005 else "hardly any"
        )
        row["confusion"] = typical if row["labels"] else "no labels yet"
    return rows


def contested_rows(page: QuestionPage, contested: npt.NDArray[np.intp], truth: Ints) -> list[ContestedRow]:
    """Return a row per contested item."""
    consensus, annotations, report = page.consensus, page.evidence.annotations, page.consensus.annotators
    skill = dict(zip(report.names, report.accuracy.tolist(), strict=True))

    def votes(n: int) -> tuple[Vote, ...]:
        rows = slice(annotations.item_start[n], annotations.item_start[n + 1])
        labels, found = annotations.label[rows], []
        for option in np.unique(labels).tolist():
            names = [annotations.annotators[k] for k in annotations.annotator[rows][labels == option]]
            names.sort(key=lambda name: -skill.get(name, 0.0))
            found.append(Vote(option, annotations.options[option], len(names) / len(labels), tuple(names)))
        return tuple(found)

    return [
        ContestedRow(
            consensus.items[n],
            votes(int(n)),
            consensus.classes[consensus.labels[n]],
            float(consensus.confidence[n]),
            consensus.classes[truth[n]] if truth[n] >= 0 else None,
        )
        for n in contested
    ]


def model_rows(page: QuestionPage) -> list[dict[str, Any]]:
    """Return the models of the evidence and of the consensus.

    Each has the number of items it predicts, its agreement with the labels, and its temperature, also in words.
    """
    rows = []
    for name in dict.fromkeys((*page.evidence.probabilities, *page.consensus.temperatures)):
        values = page.evidence.probabilities.get(name, np.full((len(page.consensus.items), 1), np.nan))
        predicted = ~np.isnan(values[:, 0])
        same = values[predicted].argmax(axis=1) == page.consensus.labels[predicted]
        temperature = page.consensus.temperatures.get(name, float("nan"))
        row = {"name": name, "items": len(same), "agreement": same.mean() if len(same) else float("nan")}
        rows.append(row | {"temperature": temperature, "verdict": _verdict(temperature)})
    return rows


def class_rows(page: QuestionPage, most: int) -> list[tuple[Name, int]]:
    """Return the number of items per label, most frequent first."""
    count = np.bincount(page.consensus.labels, minlength=len(page.consensus.classes))
    order = np.argsort(-count, kind="stable")[:most]
    return [(page.consensus.classes[j], int(count[j])) for j in order]


def _verdict(temperature: float) -> str:
    if np.isnan(temperature):
        return "not fitted"
    if temperature > OVERCONFIDENT:
        return "over-confident: counts for less than it claims"
    if temperature < UNDERCONFIDENT:
        return "under-confident: counts for more than it claims"
    return "about as sure as it should be"
