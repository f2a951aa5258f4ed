"""Every method on crowds whose properties are drawn at random, so that no method can have been tuned on them.

    python -m tests.bench.honesty.random_crowds [--crowds 400] [--first 1000] [--workers 2] [--save]

A crowd's seed draws its classes, items, annotators, labels per item, class shares, how evenly work is spread, the mean
accuracy, and one of these kinds:

    even            annotators differ in accuracy only, and errors spread evenly
    own errors      each annotator mistakes each class in a way of their own
    same errors     all annotators confuse the same classes, each independently
    recalls         classes differ in how often they are recognized, and all confuse the same ones
    guesses         half of the annotators answer at random, each with frequencies of their own
    one expert      one annotator is right in 97 %, the others are weak
    copies          every second annotator copies the one before, with probability .7, where both answer
    hard items      on one item in five, labels go to one wrong class with probability .6

A method sees no truth. A figure is the mean over crowds; `+-` is the standard error of the difference from the default.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from hitl import score
from hitl.annotations import Annotations, Floats
from hitl.evidence import Evidence
from hitl.models.registry import combiner
from tests.bench import results

METHODS = ("majority", "dawid-skene", "vb-ibcc", "glad", "mace", "ptbcc", "default")
KINDS = ("even", "own errors", "same errors", "recalls", "guesses", "one expert", "copies", "hard items")
COLUMNS = ("seed", "kind", "labels", "method", "accuracy", "log loss")


def crowd(seed: int) -> tuple[str, float, Evidence]:
    """Return the kind of a crowd, its labels per item, and its evidence."""
    rng = np.random.default_rng(seed)
    kind, classes = str(rng.choice(KINDS)), int(rng.choice([2, 3, 4, 5, 8, 15]))
    items, people = int(rng.choice([100, 300, 1000])), int(rng.choice([5, 10, 30, 80]))
    labels = min(float(rng.choice([1.5, 2, 3, 5, 8])), people)
    truth = rng.choice(classes, items, p=rng.dirichlet(np.full(classes, rng.choice([0.5, 2, 50]))))
    mean = max(float(rng.choice([0.55, 0.7, 0.85, 0.95])), 1.3 / classes)
    rows_kjl = confusion(kind, rng, np.clip(rng.normal(mean, 0.1, people), 0.02, 0.99), classes)
    work_k = rng.dirichlet(np.full(people, rng.choice([0.3, 1, 20]))) + 1e-6
    seen_n = np.where(rng.random(items) < (0.2 if kind == "hard items" else 0), (truth + 1) % classes, truth)
    rows = []
    for n in range(items):
        size = int(labels) + int(rng.random() < labels % 1)
        answers: dict[int, int] = {}
        for k in sorted(rng.choice(people, size, replace=False, p=work_k / work_k.sum()).tolist()):
            looks_like = seen_n[n] if rng.random() < 0.6 else truth[n]
            answers[k] = int(rng.choice(classes, p=rows_kjl[k, looks_like]))
            if kind == "copies" and k % 2 and k - 1 in answers and rng.random() < 0.7:
                answers[k] = answers[k - 1]
        rows += [(n, k, label) for k, label in answers.items()]
    frame = pd.DataFrame(rows, columns=["item", "annotator", "label"])
    annotations = Annotations.from_frame(frame, items=range(items), classes=range(classes))
    return kind, labels, Evidence(annotations, truth=truth.astype(np.int32))


def confusion(kind: str, rng: np.random.Generator, right_k: Floats, classes: int) -> npt.NDArray[np.float64]:
    """Return (K, J, L) chances of answers."""
    right_kj = np.repeat(right_k[:, None], classes, axis=1)
    if kind == "recalls":
        right_kj = np.clip(right_kj + rng.choice([-0.3, 0.0, 0.1], classes), 0.02, 0.99)
    shape = (len(right_k), classes, classes - 1)
    errors_kji = np.full(shape, 1 / (classes - 1))
    if kind == "own errors":
        errors_kji = rng.dirichlet(np.full(classes - 1, 0.5), shape[:2])
    elif kind in ("same errors", "recalls"):
        errors_kji = np.broadcast_to(rng.dirichlet(np.full(classes - 1, 0.5), classes), shape)
    rows_kjl = np.empty((*shape[:2], classes))
    for j in range(classes):
        rows_kjl[:, j, np.arange(classes) != j] = (1 - right_kj[:, j, None]) * errors_kji[:, j]
        rows_kjl[:, j, j] = right_kj[:, j]
    if kind == "guesses":
        guessing = rng.random(len(right_k)) < 0.5
        rows_kjl[guessing] = rng.dirichlet(np.full(classes, 0.3), guessing.sum())[:, None]
    if kind == "one expert":
        rows_kjl = 0.6 / classes + 0.4 * rows_kjl
        rows_kjl[0] = np.full((classes, classes), 0.03 / (classes - 1))
        np.fill_diagonal(rows_kjl[0], 0.97)
    return rows_kjl


def scored(seed: int) -> list[tuple[object, ...]]:
    """Return a row of COLUMNS for each method."""
    kind, labels, evidence = crowd(seed)
    assert evidence.truth is not None
    rows: list[tuple[object, ...]] = []
    for method in METHODS:
        q_nj = combiner(method).fit(Evidence(evidence.annotations)).probabilities
        figures = score.accuracy(q_nj, evidence.truth), score.log_loss(q_nj, evidence.truth)
        rows.append((seed, kind, labels, method, *figures))
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    options = results.options(__doc__, arguments, crowds=400, first=1000, workers=2)
    seeds = range(options.first, options.first + options.crowds)
    found = results.side_by_side(scored, list(seeds), options.workers)
    rows = pd.DataFrame([row for of_crowd in found for row in of_crowd], columns=list(COLUMNS))
    page, saved = results.Page(), {"crowds": options.crowds, "first": options.first}
    page.tell(f"{options.crowds} random crowds, seeds {seeds[0]} to {seeds[-1]}")
    for figure in ("accuracy", "log loss"):
        wide = rows.pivot(index="seed", columns="method", values=figure)[list(METHODS)]
        apart = wide.sub(wide["default"], axis=0)
        best = wide.eq(wide.max(axis=1) if figure == "accuracy" else wide.min(axis=1), axis=0)
        table = pd.DataFrame({"mean": wide.mean(), "+-": apart.sem(), "first in": best.mean()})
        for name in ("kind", "labels"):
            for value, part in rows.groupby(name):
                table[str(value)] = part.groupby("method")[figure].mean()
        page.tell("", figure, *results.table(table))
        saved[figure] = table["mean"].to_dict() | {"first": float(best["default"].mean())}
    if options.save:
        page.save("random_crowds", saved, "honesty.random_crowds --save")


if __name__ == "__main__":
    main()
