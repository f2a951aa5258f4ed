"""Which items to label again: ActiveLab beside hitl's policy, with one classifier, from 1.2 labels an item on.

Each item has one label, one in five a second one; then come ROUNDS batches of equal size, to 3 labels an item (labelme,
which has no more than three: to 2.4). Answers are recorded ones. Whoever is next answers an item, in an order that is
the same for all strategies of a seed, so that they differ by the items alone; "hitl, and whom" also chooses which of
those who labeled the item to ask. No item gets more than MOST labels. The classifier is trained once, on the first
labels, and is the same for all.

    ActiveLab         the items of lowest score
    hitl              expected gain by the default with the classifier
    hitl, and whom    the same, of people by name
    evenly            an item with fewest labels, drawn among equals

After each batch the labels are judged by the default with the classifier, and by CROWDLAB with the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from hitl import score
from hitl.active.policy import ExpectedGain
from hitl.active.replay.answers import Pair, RecordedAnswers
from hitl.annotations import Annotations, Floats
from hitl.crew import Budget, Crew
from hitl.evidence import Evidence
from hitl.models.default import DefaultCombiner
from tests.bench import results
from tests.bench.honesty.crowds import real, thinned
from tests.bench.human_and_model.combined import Job, Row
from tests.bench.human_and_model.crowdlab import active_lab, crowdlab
from tests.bench.human_and_model.crowds import classified, majority_labels
from tests.reference_data import inputs

ROUNDS, FIRST, ITEMS = 10, 1.2, 600
MOST: Mapping[str, int] = {"rte": 5, "sentence_polarity": 5, "labelme": 3, "music_genre": 5}
"""Labels of an item, at most; items with fewer recorded ones are left out."""
LAST: Mapping[str, float] = {"labelme": 2.4}
"""Labels an item at the end, where it is not 3."""

ACTIVE_LAB, HITL, WHOM, EVENLY = "ActiveLab", "hitl", "hitl, and whom", "evenly"
STRATEGIES = (ACTIVE_LAB, HITL, WHOM, EVENLY)
JUDGES = ("default with model", "CROWDLAB")


def pool(name: str, seed: int) -> Evidence:
    """At most ITEMS items with MOST labels each, both drawn by the seed."""
    whole, most = real(name), MOST[name]
    rng = np.random.default_rng([seed, 2])
    enough = np.flatnonzero((whole.annotations.labels_per_item >= most) & whole.known)
    kept = np.sort(rng.permutation(enough)[:ITEMS])
    assert whole.truth is not None
    a, place_n = whole.annotations, np.full(whole.annotations.n_items, -1, np.int32)
    place_n[kept] = np.arange(len(kept))
    some = a.select(place_n[a.item] >= 0)
    items = tuple(a.items[n] for n in kept)
    table = Annotations(place_n[some.item], some.annotator, some.label, items, a.annotators, a.classes, a.options)
    return thinned(Evidence(table, truth=whole.truth[kept]), most, rng)


def curves(job: Job) -> list[Row]:
    """(set, seed, strategy, judge, round, labels an item, accuracy) of every strategy."""
    recorded = pool(job.name, job.seed)
    n_items, found = recorded.annotations.n_items, []
    batch = round((LAST.get(job.name, 3.0) - FIRST) * n_items / ROUNDS)
    for strategy in STRATEGIES:
        answers = first_labels(recorded.annotations, job.seed)
        first = answers.revealed()
        label_n = majority_labels(first, np.random.default_rng([job.seed, 1]))
        p_nj = classified(inputs(job.name, first.items), label_n, first.n_classes, job.seed)
        for place in range(ROUNDS + 1):
            annotations = answers.revealed()
            for judge, accuracy in _accuracies(recorded, annotations, p_nj).items():
                found.append((job.name, job.seed, strategy, judge, place, len(annotations) / n_items, accuracy))
            if place < ROUNDS:
                rng = np.random.default_rng([job.seed, place])
                asks = choose(strategy, answers, p_nj, batch, MOST[job.name], rng)
                assert answers.reveal(asks) == batch, "every ask is answered, and the batch is full"
    return found


def first_labels(annotations: Annotations, seed: int) -> RecordedAnswers:
    """One label of each item, and of one in five a second; the others waiting in an order of the seed's."""
    answers = RecordedAnswers(annotations, np.random.default_rng([seed, 3]))
    answers.reveal([(item, None) for item in annotations.items])
    again = np.random.default_rng([seed, 4]).permutation(annotations.n_items)[
        : round((FIRST - 1) * annotations.n_items)
    ]
    answers.reveal([(annotations.items[n], None) for n in again])
    return answers


def _accuracies(recorded: Evidence, annotations: Annotations, p_nj: Floats) -> dict[str, float]:
    assert recorded.truth is not None
    ours = DefaultCombiner().fit(Evidence(annotations, {"classifier": p_nj})).probabilities
    label_n, _ = crowdlab(annotations, p_nj)
    right = score.accuracy(ours, recorded.truth), float(np.mean(label_n == recorded.truth))
    return dict(zip(JUDGES, right, strict=True))


# -- strategies ----------------------------------------------------------------------------------------------


def choose(
    strategy: str, answers: RecordedAnswers, p_nj: Floats, batch: int, most: int, rng: np.random.Generator
) -> list[Pair]:
    """Whom to ask what: `batch` pairs, of items with fewer than `most` labels."""
    annotations = answers.revealed()
    if strategy == ACTIVE_LAB:
        return lowest(annotations, active_lab(annotations, p_nj), batch, most)
    if strategy == EVENLY:
        return lowest(annotations, annotations.labels_per_item + rng.random(annotations.n_items), batch, most)
    evidence = Evidence(annotations, {"classifier": p_nj})
    crew = answers.crew(Crew()) if strategy == WHOM else Crew()
    budget = Budget(open_questions=batch, target_confidence=1.0, min_labels=0, max_labels=most)
    plan = ExpectedGain().plan([(evidence, DefaultCombiner().fit(evidence))], crew, budget)
    return [(ask.item, ask.annotator) for ask in plan.asks]


def lowest(annotations: Annotations, score_n: npt.NDArray[Any], batch: int, most: int) -> list[Pair]:
    """The items of lowest score (N,) that have fewer than `most` labels, each to anyone."""
    open_n = np.flatnonzero(annotations.labels_per_item < most)
    first = open_n[np.argsort(score_n[open_n], kind="stable")[:batch]]
    return [(annotations.items[n], None) for n in first]


# -- compared ------------------------------------------------------------------------------------------------


def tables(rows: Sequence[Row]) -> tuple[list[str], dict[str, Any], list[results.Bar]]:
    """Lines of a table for each set, its curves (set -> judge -> strategy -> accuracies), and bars."""
    frame = pd.DataFrame(rows, columns=["set", "seed", "strategy", "judge", "round", "labels", "accuracy"])
    mean = frame.groupby(["set", "judge", "strategy", "round"])["accuracy"].mean()
    seeds = frame[frame["round"] > 0].groupby(["set", "judge", "strategy", "seed"])["accuracy"].mean()
    lines: list[str] = []
    bars: list[results.Bar] = []
    kept: dict[str, Any] = {}
    for name in dict.fromkeys(frame["set"]):
        labels = frame[frame["set"] == name].groupby("round")["labels"].mean()
        kept[name], told = {"labels an item": [float(at) for at in labels]}, {}
        for judge, strategy in product(JUDGES, STRATEGIES):
            curve, area = mean.loc[(name, judge, strategy)], seeds.loc[(name, judge, strategy)]
            kept[name].setdefault(judge, {})[strategy] = [float(at) for at in curve]
            told[judge, strategy] = {f"{n:.2f}": at for n, at in zip(labels, curve, strict=True)}
            told[judge, strategy] |= {"mean": area.mean(), "±": area.std(ddof=1)}
        lines += ["", f"{name}, by labels an item", *results.table(told)]
        pairs = [
            (f"judged by {judge}", (judge, ours), (judge, ACTIVE_LAB)) for judge in JUDGES for ours in (HITL, WHOM)
        ]
        for which, ours, theirs in (*pairs, ("each judged by its own", (JUDGES[0], HITL), (JUDGES[1], ACTIVE_LAB))):
            claim = f"{name}, {which}: mean accuracy of '{ours[1]}' at least ActiveLab's"
            mean_of = [told[key]["mean"] for key in (ours, theirs)]
            bars.append((claim, f"{mean_of[0]:.4f} / {mean_of[1]:.4f}", bool(mean_of[0] >= mean_of[1])))
    return lines, kept, bars
