"""Does it help that a batch is diverse? A classifier learns from what people say, people are asked where it is unsure.

    python -m tests.bench.bench_diverse [--sets optdigits satellite music_genre] [--seeds 5] [--batches 10 50]

Reads optdigits (10 digits, 64 features), satellite (6 soils, 36) and music_genre (10 genres, 124) from HITL_DATA. Of
the first two a seed draws 1,000 training rows to label and ten people (simulated: eight right 70 to 95 % of the time,
two at random; no capacities). music_genre has 700 songs and the recorded answers of 44 people; a seed orders them anew,
so that ties fall differently. After every batch logistic regression is trained on the standardised features of the
items that have labels, with the labels that the people's answers give; it judges these items out of fold (3 folds) and
the others directly; its probabilities and the answers together give the consensus, by which the policy chooses the next
batch. All `diverse` of a seed meet the same items and people.

Told: the accuracy of all labels, and of the classifier on 1,000 (300) items that nobody is asked about; each as the
mean over the curve, after every batch, and at its end; means over the seeds. Beside them differences to the first
`diverse` by seed: mean and standard error. The truth scores only.

What was found: it helps in small batches while there are few labels, and costs in larger ones later on.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from hitl import score
from hitl.active.policy import ExpectedGain
from hitl.active.replay.answers import Answers, RecordedAnswers
from hitl.active.replay.experiments import reordered
from hitl.active.replay.simulated_annotators import Group, SimulatedAnswers, SimulatedCrew
from hitl.annotations import Floats, Ints
from hitl.consensus import Consensus
from hitl.crew import Budget, Crew
from hitl.errors import BadInput
from hitl.evidence import Evidence
from hitl.models import DefaultCombiner
from hitl.models.predictors.folds import Examples, OutOfFold, train
from hitl.models.predictors.inputs import Batch
from hitl.tables.read import read_table
from tests.bench import results
from tests.reference_data import crowd, features, folder

SETS = ("optdigits", "satellite", "music_genre")
ITEMS, HELD_OUT, FOLDS = 1_000, 1_000, 3
PEOPLE = (Group("good", 8, (0.7, 0.95)), Group("random", 2))


@dataclass(frozen=True, eq=False)
class Task:
    """Items to label (N, D) and held out, their classes, and people who have answered nothing yet."""

    x: Floats
    truth: Ints
    x_test: Floats
    truth_test: Ints
    classes: tuple[str, ...]
    answers: Answers

    @classmethod
    def of(cls, name: str, seed: int) -> Task:
        """Draw the items and people of this seed."""
        rng = np.random.default_rng([seed, SETS.index(name)])
        x, truth, classes = rows_of(name)
        if name == "music_genre":
            x_test, truth_test, _ = rows_of(name, "_test")
            evidence = reordered(crowd(name), rng)
            assert evidence.truth is not None
            here = [int(item) for item in evidence.annotations.items]
            answers: Answers = RecordedAnswers(evidence.annotations, rng)
            return cls(*scaled(x[here], x_test, evidence.truth, truth_test), classes, answers)
        training = np.array(read_table(folder(name) / "split.csv").column("split").to_pylist()) == "train"
        pool = rng.permutation(np.flatnonzero(training))[:ITEMS]
        test = rng.permutation(np.flatnonzero(~training))[:HELD_OUT]
        people = SimulatedCrew.draw(PEOPLE, len(classes), rng, 0.1)
        answers = SimulatedAnswers(people, truth[pool], tuple(range(ITEMS)), classes, seed)
        return cls(*scaled(x[pool], x[test], truth[pool], truth[test]), classes, answers)


def rows_of(name: str, part: str = "") -> tuple[Floats, Ints, tuple[str, ...]]:
    """(N, D) features, class codes and the class names."""
    x, labels = features(name, part)
    classes = tuple(sorted(map(str, set(labels))))
    return x, np.array([classes.index(str(label)) for label in labels], np.int32), classes


def scaled(x: Floats, x_test: Floats, truth: Ints, truth_test: Ints) -> tuple[Floats, Ints, Floats, Ints]:
    """Standardised by the items to label."""
    mean, deviation = x.mean(axis=0), x.std(axis=0) + 1e-9
    return (x - mean) / deviation, truth, (x_test - mean) / deviation, truth_test


def taught(x: Floats, evidence: Evidence, people: Consensus) -> OutOfFold | None:
    """The classifier that learned the people's consensus; None while there are too few labels."""
    from sklearn.linear_model import LogisticRegression

    rows = np.flatnonzero(evidence.annotations.labels_per_item)
    labels = [str(people.classes[people.codes[row]]) for row in rows]
    examples = Examples([str(row) for row in rows], x[rows], (), labels, [None] * len(rows))
    try:
        with warnings.catch_warnings():  # not converged after so many steps: good enough
            warnings.simplefilter("ignore")
            return train(lambda: LogisticRegression(C=0.1, max_iter=100), examples, FOLDS)
    except BadInput:  # fewer than two classes in a fold
        return None


def judged(model: OutOfFold, x: Floats, names: Sequence[str], classes: Sequence[str]) -> Floats:
    """(N, J) probabilities; a class that nobody has named yet has as little as one never seen."""
    found = model.predict(Batch(0, list(names), "features", x, (), [None] * len(x)))
    q = np.full((len(x), len(classes)), 1 / (model.models[0].examples + len(classes)))
    q[:, [list(classes).index(name) for name in model.classes]] = found
    return q / q.sum(axis=1, keepdims=True)


def run(name: str, seed: int, batch: int, diverse: float, most: int) -> tuple[Floats, Floats]:
    """(S,) accuracy of the labels, and of the classifier on held-out rows, after every batch."""
    task = Task.of(name, seed)
    answers, classes = task.answers, task.classes
    crew = answers.crew(Crew())
    policy = ExpectedGain(diverse=diverse)
    budget = Budget(open_questions=batch, target_confidence=1.0, min_labels=0, max_labels=99)
    labels_right, model_right = [], []
    while True:
        evidence = Evidence(answers.revealed(), features=task.x)
        consensus = DefaultCombiner().fit(Evidence(evidence.annotations))
        model = taught(task.x, evidence, consensus) if answers.spent else None
        held_out = np.full((len(task.x_test), len(classes)), 1 / len(classes))
        if model is not None:
            beside = judged(model, task.x, [str(row) for row in range(len(task.x))], classes)
            evidence = Evidence(evidence.annotations, {"classifier": beside}, features=task.x)
            consensus = DefaultCombiner().fit(replace(evidence, features=None))
            held_out = judged(model, task.x_test, [f"test {row}" for row in range(len(task.x_test))], classes)
        if answers.spent:
            labels_right.append(score.accuracy(consensus.probabilities, task.truth))
            model_right.append(score.accuracy(held_out, task.truth_test))
        if answers.spent >= most:
            return np.array(labels_right), np.array(model_right)
        plan = policy.plan([(evidence, consensus)], crew, budget)
        answers.reveal([(ask.item, ask.annotator) for ask in plan.asks])


PARTS = ("labels", "labels at the end", "classifier", "classifier at the end")


def figures_of(name: str, batch: int, most: int, diverse: Sequence[float], seeds: int) -> dict[str, Any]:
    """`diverse` -> by seed the PARTS, and seconds a seed."""
    found: dict[str, Any] = {}
    for times in diverse:
        began = time.perf_counter()
        curves = [run(name, seed, batch, times, most) for seed in range(seeds)]
        labels, model = (np.stack([curve[part] for curve in curves]) for part in (0, 1))
        columns = labels.mean(axis=1), labels[:, -1], model.mean(axis=1), model[:, -1]
        found[f"{times:g}"] = {part: column.tolist() for part, column in zip(PARTS, columns, strict=True)}
        found[f"{times:g}"]["seconds"] = (time.perf_counter() - began) / seeds
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    options = results.options(
        __doc__, arguments, sets=list(SETS), seeds=10, batches=[10, 50], diverse=[1.0, 2.0, 5.0, 10.0], rounds=30
    )
    page, figures, rows = results.Page(), {}, {}
    for name, batch in product(options.sets, options.batches):
        most = batch * options.rounds
        found = figures[f"{name}, batches of {batch}"] = figures_of(name, batch, most, options.diverse, options.seeds)
        first = found[f"{options.diverse[0]:g}"]
        for times, kept in found.items():
            row = rows[name, batch, times] = {"seconds": kept["seconds"]}
            for part in PARTS:
                gain = 100 * (np.array(kept[part]) - np.array(first[part]))
                spread = gain.std(ddof=1) / np.sqrt(len(gain)) if len(gain) > 1 else np.nan
                more = "" if kept is first else f" {gain.mean():+.1f} ± {spread:.1f}"
                row[part] = f"{np.mean(kept[part]):.1%}{more}"
    page.tell(f"people beside a logistic regression; {options.seeds} seeds; points above the first `diverse`")
    page.tell(*results.table(rows, 0))
    if options.save:
        page.save("diverse", figures)


if __name__ == "__main__":
    main()
