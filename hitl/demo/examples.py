"""`hitl example`: folders with labels, predictions, ground truth and a hitl.toml, on which every command runs as it is.

`rte` holds the recorded labels of real annotators. All other sets are simulated with a fixed seed, and say so.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hitl.annotations import Floats, Ints
from hitl.demo.recorded import rte, texts
from hitl.errors import BadSettings
from hitl.tables.write import atomic

GOLD = 30
"""Number of items, drawn at random, whose ground truth a run may use. The truth of all items is in all_truth.csv."""

PEOPLE = ("ann", "bob", "cy", "dee", "eli", "fay", "gus", "hal")
ACCURACY = (0.95, 0.9, 0.88, 0.85, 0.8, 0.75, 0.7)
"""Chance that an annotator is right about an item that is not hard. The last of PEOPLE answers at random."""

HARD, ON_HARD = 0.15, 0.6
"""Share of items that mislead everyone, and how much less often annotators and models are right about them."""


@dataclass(frozen=True)
class Simulated:
    """A simulated set. `model`: a model that predicts all items. `settings`: more lines of hitl.toml.

    The first `labeled` items have three labels each, the others none.
    """

    about: str
    classes: tuple[str, ...]
    items: int = 300
    labeled: int = 300
    model: str | None = None
    ordered: bool = False
    words: Mapping[str, Sequence[str]] = field(default_factory=dict)
    settings: str = ""


TOPICS = {
    "economy": ("bank", "market", "shares", "profit", "prices", "trade", "budget", "wages"),
    "science": ("study", "planet", "cells", "telescope", "vaccine", "climate", "laser", "fossil"),
    "sports": ("coach", "final", "goal", "league", "striker", "season", "medal", "referee"),
}
COMMON = (
    "new",
    "after",
    "over",
    "says",
    "first",
    "year",
    "plan",
    "record",
    "city",
    "two",
    "more",
    "against",
    "report",
    "last",
    "talks",
    "big",
)
REAL = "rte"
SIMULATED = {
    "photos": Simulated("photos of animals, and a network's predictions", ("cat", "dog", "fox"), model="resnet"),
    "answers": Simulated("answers of a chatbot, and a language model as judge", ("bad", "good"), model="judge"),
    "headlines": Simulated(
        "headlines of three topics, with texts to learn from",
        tuple(TOPICS),
        labeled=100,
        words=TOPICS,
        settings='\n[features]\ntext = "text"\n\n[learn]\nmodel = "logistic"\n',
    ),
    "ratings": Simulated(
        "ratings from 1 to 5",
        ("1", "2", "3", "4", "5"),
        ordered=True,
        settings='\n[combine]\nmethod = "ordinal"\n',
    ),
}
ABOUT = {REAL: "800 pairs of sentences, labeled by 164 real annotators (Snow et al. 2008)"} | {
    name: f"{example.about} (simulated)" for name, example in SIMULATED.items()
}
"""Name of each example -> its description."""

Rows = list[tuple[Any, ...]]


def write(name: str, folder: Path) -> dict[str, int]:
    """Write an example into a new or empty folder. Return file name -> number of rows.

    Raises BadSettings for an unknown name, and for a folder that holds anything.
    """
    if name not in ABOUT:
        raise BadSettings(f"example {name!r} is unknown; expected one of {', '.join(ABOUT)}")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise BadSettings(f"{folder} exists and is not an empty folder; name another one: `hitl example {name} FOLDER`")
    tables = _recorded() if name == REAL else _simulated(SIMULATED[name])
    folder.mkdir(parents=True, exist_ok=True)
    for file, (header, *rows) in tables.items():
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([header, *rows])
        with atomic(folder / file) as target:
            target.write(text.getvalue().encode())
    settings = f'name = "{name}"\n\n[source]\nkind = "tables"\npath = "."\n'
    if name in SIMULATED:
        settings += f"\n[crew]\nannotators = {json.dumps(PEOPLE)}\n{SIMULATED[name].settings}"
    with atomic(folder / "hitl.toml") as target:
        target.write(settings.encode())
    return {file: len(rows) - 1 for file, rows in tables.items()}


def _recorded() -> dict[str, Rows]:
    recorded = rte()
    assert recorded.truth is not None
    annotations = recorded.annotations
    rows = [(row["item"], row["annotator"], row["label"]) for row in annotations.table().to_pylist()]
    truth = [annotations.classes[code] for code in recorded.truth]
    shown = [(item, data["text"], data["hypothesis"]) for item, data in texts().items()]
    return _tables(rows, annotations.items, truth, ("text", "hypothesis"), shown)


def _simulated(example: Simulated) -> dict[str, Rows]:
    rng = np.random.default_rng(0)
    classes, n_classes = example.classes, len(example.classes)
    items = [f"item-{number}" for number in range(1, example.items + 1)]
    truth = rng.integers(n_classes, size=example.items, dtype=np.int32)
    hard = rng.random(example.items) < HARD
    rows: Rows = []
    for n, item in enumerate(items[: example.labeled]):
        for k in sorted(rng.choice(len(PEOPLE), size=3, replace=False)):
            right = 1 / n_classes if k == len(ACCURACY) else ACCURACY[k] * (ON_HARD if hard[n] else 1.0)
            rows.append((item, PEOPLE[k], classes[rng.choice(n_classes, p=_answers(truth[n], right, example))]))
    shown: Rows = []
    if example.words:
        shown = [(item, _headline(rng, example.words[classes[truth[n]]])) for n, item in enumerate(items)]
    tables = _tables(rows, items, [classes[code] for code in truth], ("text",) if shown else (), shown)
    if example.model is not None:
        probabilities = _predicted(rng, truth, hard, n_classes)
        header = ("item", *(f"p_{name}" for name in classes))
        predicted = [(item, *p_j) for item, p_j in zip(items, probabilities.tolist(), strict=True)]
        tables[f"probabilities_{example.model}.csv"] = [header, *predicted]
    return tables


def _answers(true: int, right: float, example: Simulated) -> Floats:
    """Return (J,) the chance of each answer about an item of class `true`."""
    distance = np.abs(np.arange(len(example.classes)) - true)
    wrong = np.where(distance == 0, 0.0, np.exp(-1.5 * distance) if example.ordered else 1.0)
    return np.where(distance == 0, right, (1 - right) * wrong / wrong.sum())


def _predicted(rng: np.random.Generator, truth: Ints, hard: Any, n_classes: int) -> Floats:
    """Return (N, J) probabilities of a model that is right about four in five items, and too sure of itself."""
    signal = np.where(hard, 0.5, 1.6)[:, None] * np.eye(n_classes)[truth]
    p_nj = np.exp(2.0 * (signal + rng.normal(scale=0.8, size=signal.shape)))
    return np.asarray(np.round(p_nj / p_nj.sum(axis=1, keepdims=True), 6))


def _headline(rng: np.random.Generator, topic: Sequence[str]) -> str:
    words = [*rng.choice(topic, size=2, replace=False), *rng.choice(COMMON, size=4, replace=False)]
    return " ".join(str(word) for word in rng.permutation(words)).capitalize()


def _tables(
    rows: Rows, items: Iterable[Any], truth: list[str], fields: tuple[str, ...], shown: Rows
) -> dict[str, Rows]:
    """Return file name -> header and rows: labels, items with their fields, ground truth of some and of all items."""
    known = list(zip(items, truth, strict=True))
    gold = np.sort(np.random.default_rng(1).choice(len(known), size=GOLD, replace=False))
    tables: dict[str, Rows] = {"annotations.csv": [("item", "annotator", "label"), *rows]}
    if shown:
        tables["items.csv"] = [("item", *fields), *shown]
    tables["truth.csv"] = [("item", "label"), *(known[n] for n in gold)]
    tables["all_truth.csv"] = [("item", "label"), *known]
    return tables
