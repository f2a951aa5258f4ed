"""The rows of the tables on the page; the template only lays them out."""

from __future__ import annotations

from collections import Counter
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
"""Annotators listed behind one answer to a contested item."""

OVERCONFIDENT, UNDERCONFIDENT = 1.1, 0.9
"""Temperatures beyond which a model's probabilities are called too high or too low."""


@dataclass(frozen=True)
class Vote:
    """One answer to an item: the share of the labels that give it, and its annotators, most accurate first."""

    option: int
    name: Name
    share: float
    annotators: Names


@dataclass(frozen=True)
class ContestedRow:
    """An item in doubt: who said what, the current label, and the known one if any."""

    item: Name
    votes: tuple[Vote, ...]
    label: Name
    confidence: float
    truth: Name | None


def annotator_rows(page: QuestionPage, most: int) -> list[dict[Hashable, Any]]:
    """The `most` annotators with most labels, most first.

    The columns of `AnnotatorReport.frame`, and `code`; `bits` of information a label carries; the typical wrong answer
    in words (`confusion`), and how `often` it occurs.
    """
    report = page.consensus.annotators
    true, said, often = typical_confusions(report.confusion, report.shares)
    order = np.argsort(-report.labels, kind="stable")[:most]
    found = report.frame().assign(
        code=np.arange(len(report.names)),
        bits=information(report.confusion, report.shares),
        often=np.where(report.labels > 0, often, 0.0),
    )
    rows = found.iloc[order].to_dict("records")
    for row in rows:
        said_for = f"says {report.options[said[row['code']]]} for {report.classes[true[row['code']]]}"
        often_said = f"{said_for}: {row['often'] * 100:.0f}\u00a0%" if row["often"] >= 0.005 else "hardly any"
        row["confusion"] = often_said if row["labels"] else "no labels yet"
    return rows


def contested_rows(page: QuestionPage, contested: npt.NDArray[np.intp], truth: Ints) -> list[ContestedRow]:
    """A row for each contested item."""
    consensus = page.consensus
    return [
        ContestedRow(
            item=consensus.items[n],
            votes=_votes(page, int(n)),
            label=consensus.classes[consensus.labels[n]],
            confidence=float(consensus.confidence[n]),
            truth=consensus.classes[truth[n]] if truth[n] >= 0 else None,
        )
        for n in contested
    ]


def model_rows(page: QuestionPage) -> list[dict[str, Any]]:
    """The models of the evidence and of the consensus.

    For each: how many items it predicts, how often the labels agree, and its temperature, also in words.
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
    """How many items carry each label, most frequent first."""
    count = np.bincount(page.consensus.labels, minlength=len(page.consensus.classes))
    order = np.argsort(-count, kind="stable")[:most]
    return [(page.consensus.classes[j], int(count[j])) for j in order]


def _votes(page: QuestionPage, n: int) -> tuple[Vote, ...]:
    """The answers to item n in the order of the options."""
    annotations, report = page.evidence.annotations, page.consensus.annotators
    rows = slice(annotations.item_start[n], annotations.item_start[n + 1])
    said = annotations.label[rows]
    skill = dict(zip(report.names, report.accuracy.tolist(), strict=True))
    votes = []
    for option, count in sorted(Counter(said.tolist()).items()):
        names = [annotations.annotators[k] for k in annotations.annotator[rows][said == option]]
        names.sort(key=lambda name: -skill.get(name, 0.0))
        votes.append(Vote(option, annotations.options[option], count / len(said), tuple(names)))
    return tuple(votes)


def _verdict(temperature: float) -> str:
    if np.isnan(temperature):
        return "not fitted"
    if temperature > OVERCONFIDENT:
        return "over-confident: counts for less than it claims"
    if temperature < UNDERCONFIDENT:
        return "under-confident: counts for more than it claims"
    return "about as sure as it should be"
