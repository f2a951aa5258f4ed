"""The rows of the tables on the page; the template only lays them out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hitl.annotations import Name
from hitl.models.analysis.information import information
from hitl.plan import Plan
from hitl.report.contents import QuestionPage
from hitl.report.measures import contested, typical_confusions

NAMES_SHOWN = 12
"""Annotators listed behind one answer to a contested item."""

TEXT_SHOWN = 300
"""Characters of an item's text."""

OVERCONFIDENT, UNDERCONFIDENT = 1.1, 0.9
"""Temperatures beyond which a model's probabilities are called too high or too low."""


@dataclass(frozen=True)
class AnnotatorRow:
    """One annotator: accuracy with its 95 % interval; bits of information a label carries; the typical wrong answer in
    words, and how often it occurs."""

    code: int
    name: Name
    labels: int
    accuracy: float
    low: float
    high: float
    bits: float
    confusion: str
    often: float


@dataclass(frozen=True)
class Vote:
    """One answer to an item: who gave it (names shown, how many more) and the share of the labels."""

    option: int
    name: Name
    count: int
    share: float
    people: tuple[Name, ...]
    more: int


@dataclass(frozen=True)
class ContestedRow:
    """An item in doubt: who said what, the current label, and the known one if any."""

    item: Name
    text: str
    votes: tuple[Vote, ...]
    label: Name
    confidence: float
    truth: Name | None


@dataclass(frozen=True)
class AskRow:
    """One question of the plan."""

    item: Name
    text: str
    annotator: Name | None
    gain: float
    right: float
    why: str


@dataclass(frozen=True)
class DoneRow:
    """One finished item."""

    item: Name
    text: str
    labels: str
    confidence: float
    why: str


@dataclass(frozen=True)
class ModelRow:
    """One model: how many items it speaks of, how often the labels agree, and its temperature in words."""

    name: str
    items: int
    agreement: float
    temperature: float
    verdict: str


@dataclass(frozen=True)
class ClassRow:
    """One class: how many items carry its label."""

    name: Name
    items: int
    share: float


def annotator_rows(page: QuestionPage, most: int) -> list[AnnotatorRow]:
    """The `most` annotators with most labels, most first."""
    people = page.consensus.annotators
    order = np.argsort(-people.labels, kind="stable")[:most]
    low, high = people.interval
    bits = information(people.confusion, people.shares)
    true, said, often = typical_confusions(people.confusion, people.shares)
    return [
        AnnotatorRow(
            code=int(k),
            name=people.names[k],
            labels=int(people.labels[k]),
            accuracy=float(people.accuracy[k]),
            low=float(low[k]),
            high=float(high[k]),
            bits=float(bits[k]),
            confusion=_in_words(
                int(people.labels[k]), people.options[said[k]], people.classes[true[k]], float(often[k])
            ),
            often=float(often[k]) if people.labels[k] else 0.0,
        )
        for k in order
    ]


def contested_rows(page: QuestionPage, truth: Any, most: int) -> list[ContestedRow]:
    """The `most` items in most doubt."""
    consensus = page.consensus
    return [
        ContestedRow(
            item=consensus.items[n],
            text=short_text(page.texts, consensus.items[n]),
            votes=_votes(page, int(n)),
            label=consensus.classes[consensus.labels[n]],
            confidence=float(consensus.confidence[n]),
            truth=consensus.classes[truth[n]] if truth[n] >= 0 else None,
        )
        for n in contested(page.evidence, consensus)[:most]
    ]


def ask_rows(plan: Plan, texts: Mapping[Name, str], most: int) -> list[AskRow]:
    """The first `most` questions of the plan."""
    return [
        AskRow(ask.item, short_text(texts, ask.item), ask.annotator, ask.gain, ask.right, ask.why)
        for ask in plan.asks[:most]
    ]


def done_rows(plan: Plan, texts: Mapping[Name, str], questions: Sequence[str], most: int) -> list[DoneRow]:
    """The first `most` finished items; with several questions each label stands behind its question."""
    return [
        DoneRow(done.item, short_text(texts, done.item), _labels(done.labels, questions), done.confidence, done.why)
        for done in plan.done[:most]
    ]


def reasons(whys: Iterable[str], most: int = 8) -> list[tuple[str, int]]:
    """The most frequent reasons, with their counts."""
    return Counter(whys).most_common(most)


def model_rows(page: QuestionPage) -> list[ModelRow]:
    """The models of the evidence and of the consensus."""
    rows = []
    for name in dict.fromkeys((*page.evidence.probabilities, *page.consensus.temperatures)):
        values = page.evidence.probabilities.get(name)
        spoken = np.zeros(len(page.consensus.items), bool) if values is None else ~np.isnan(values[:, 0])
        same = values is not None and values[spoken].argmax(axis=1) == page.consensus.labels[spoken]
        temperature = page.consensus.temperatures.get(name, float("nan"))
        agreement = float(np.mean(same)) if spoken.any() else float("nan")
        rows.append(ModelRow(name, int(spoken.sum()), agreement, temperature, _verdict(temperature)))
    return rows


def class_rows(page: QuestionPage, most: int) -> list[ClassRow]:
    """How many items carry each label, most frequent first."""
    count = np.bincount(page.consensus.labels, minlength=len(page.consensus.classes))
    order = np.argsort(-count, kind="stable")[:most]
    return [ClassRow(page.consensus.classes[j], int(count[j]), float(count[j] / count.sum())) for j in order]


def short_text(texts: Mapping[Name, str], item: Name) -> str:
    """The text of an item, cut to TEXT_SHOWN characters; empty where there is none."""
    text = texts.get(item, "")
    return text if len(text) <= TEXT_SHOWN else text[: TEXT_SHOWN - 1] + "…"


def _votes(page: QuestionPage, n: int) -> tuple[Vote, ...]:
    """The answers to item n in the order of the options; behind each its annotators, most accurate first."""
    annotations = page.evidence.annotations
    rows = slice(annotations.item_start[n], annotations.item_start[n + 1])
    people, said = annotations.annotator[rows], annotations.label[rows]
    skill = dict(zip(page.consensus.annotators.names, page.consensus.annotators.accuracy.tolist(), strict=True))
    votes = []
    for option, count in sorted(Counter(said.tolist()).items()):
        names = [annotations.annotators[k] for k in people[said == option]]
        names.sort(key=lambda name: -skill.get(name, 0.0))
        more = max(0, count - NAMES_SHOWN)
        votes.append(
            Vote(option, annotations.options[option], count, count / len(said), tuple(names[: len(names) - more]), more)
        )
    return tuple(votes)


def _in_words(labels: int, said: Name, true: Name, often: float) -> str:
    if not labels:
        return "no labels yet"
    return f"says {said} for {true}: {often * 100:.0f}\u00a0%" if often >= 0.005 else "hardly any"


def _labels(labels: Sequence[Name], questions: Sequence[str]) -> str:
    if len(labels) == len(questions) > 1:
        return ", ".join(f"{question}: {label}" for question, label in zip(questions, labels, strict=True))
    return ", ".join(map(str, labels))


def _verdict(temperature: float) -> str:
    if np.isnan(temperature):
        return "not fitted"
    if temperature > OVERCONFIDENT:
        return "over-confident: counts for less than it claims"
    if temperature < UNDERCONFIDENT:
        return "under-confident: counts for more than it claims"
    return "about as sure as it should be"
