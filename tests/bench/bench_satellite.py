"""Classifier combination on Statlog Landsat (Kim & Ghahramani 2012, table 2): errors of every combiner.

    python -m tests.bench.bench_satellite [--draws 10] [--methods gibbs-ibcc ebcc ...]

Protocol: standardised features, base classifiers trained on the rows with split = train; of the 2,000 test rows 1,000
drawn at random are known labels, the error is that on the other 1,000; mean over draws ± its standard error.
Experiment 1: one tree on each of four disjoint quarters of the training rows. Experiment 2: tree (entropy), SVM
(polynomial kernel of degree 2, C = 100), logistic regression, linear discriminant, each on all training rows. The
difference is to majority vote on the same draws. R-hat is the worst over draws and monitored quantities.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from hitl import score
from hitl.annotations import Annotations, Floats, Ints
from hitl.evidence import Evidence
from hitl.models.registry import COMBINERS, combiner
from hitl.tables.read import read_table
from tests.bench import results
from tests.reference_data import folder

METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "majority": ("majority", {}),
    "dawid-skene": ("dawid-skene", {}),
    "vb-ibcc": ("vb-ibcc", {}),
    "vb-ibcc 2/1": ("vb-ibcc", {"shared": False}),
    "gibbs-ibcc": ("gibbs-ibcc", {}),
    "ebcc": ("ebcc", {}),
    "ebcc h=0.5": ("ebcc", {"hard": 0.5}),
    "dbcc": ("dbcc", {}),
    "edbcc": ("edbcc", {}),
}
"""Row of the table -> method and settings: the defaults, and what the papers say where that is not the default."""


def satellite() -> tuple[Floats, Ints, np.ndarray, tuple[str, ...]]:
    """Standardised (N, 36) features, class codes, whether a row is for training, and the class names."""
    path = folder("satellite")
    features, truth, split = (read_table(path / name) for name in ("features.csv.gz", "truth.csv", "split.csv"))
    columns = [name for name in features.column_names if name != "item"]
    x = np.stack([np.asarray(features.column(name).cast("float64")) for name in columns], axis=1)
    names = [str(name) for name in truth.column("label").to_pylist()]
    classes = tuple(sorted(set(names)))
    train = np.array(split.column("split").to_pylist()) == "train"
    assert features.column("item").equals(truth.column("item"))
    assert features.column("item").equals(split.column("item"))
    x = (x - x[train].mean(axis=0)) / x[train].std(axis=0)
    return x, np.array([classes.index(name) for name in names], np.int32), train, classes


def predictions(experiment: int) -> tuple[Ints, Ints, tuple[str, ...]]:
    """(N, K) class codes the base classifiers give the test rows, the truth, and the class names."""
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.linear_model import LogisticRegression
    from sklearn.svm import SVC
    from sklearn.tree import DecisionTreeClassifier

    x, y, train, classes = satellite()
    if experiment == 1:
        quarters = np.array_split(np.random.default_rng(0).permutation(np.flatnonzero(train)), 4)
        taught = [(DecisionTreeClassifier(criterion="entropy", random_state=0), rows) for rows in quarters]
    else:
        every = np.flatnonzero(train)
        taught = [
            (DecisionTreeClassifier(criterion="entropy", random_state=0), every),
            (SVC(kernel="poly", degree=2, C=100.0), every),
            (LogisticRegression(max_iter=2000), every),
            (LinearDiscriminantAnalysis(), every),
        ]
    said = [classifier.fit(x[rows], y[rows]).predict(x[~train]) for classifier, rows in taught]
    return np.stack(said, axis=1).astype(np.int32), y[~train], classes


def run(experiment: int, wanted: Sequence[str], draws: int) -> dict[str, np.ndarray]:
    """Row -> (draws, 4): error, log loss, worst R-hat (nan without chains), fit seconds."""
    said, truth, classes = predictions(experiment)
    annotations = Annotations.from_matrix(said, classes)
    found: dict[str, list[list[float]]] = {
        f"C{k + 1}": [[float(np.mean(said[:, k] != truth)), np.nan, np.nan, 0.0]] * draws for k in range(said.shape[1])
    }
    for draw in range(draws):
        known = np.zeros(len(truth), dtype=bool)
        known[np.random.default_rng(draw).permutation(len(truth))[: len(truth) // 2]] = True
        evidence = Evidence(annotations, truth=np.where(known, truth, -1))
        for row in wanted:
            method, settings = METHODS[row]
            began = time.perf_counter()
            consensus = combiner(method, **settings).fit(evidence)
            seconds = time.perf_counter() - began
            p, told = consensus.probabilities[~known], truth[~known]
            mixing = consensus.fit.mixing
            rhat = np.nan if mixing is None else max(mixing.rhat.values())
            error = 1 - score.accuracy(p, told)
            found.setdefault(row, []).append([error, score.log_loss(p, told), rhat, seconds])
            print(f"{experiment} {draw} {row}: {error:.4f} in {seconds:.1f} s", file=sys.stderr, flush=True)
    return {name: np.array(rows) for name, rows in found.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print both tables; with --save also write docs/benchmarks/satellite.*."""
    options = results.options(__doc__, arguments, draws=10, methods=list(METHODS))
    there = [row for row in METHODS if METHODS[row][0] in COMBINERS]
    wanted = [row for row in there if row == "majority" or row in options.methods]
    lines: list[str] = []
    figures: dict[str, float] = {}
    for experiment in (1, 2):
        lines += [
            "",
            f"Experiment {experiment} ({options.draws} draws)",
            "method          error          below majority    log loss   R-hat   fit s",
        ]
        table = run(experiment, wanted, options.draws)
        votes = table["majority"][:, 0]
        for name, values in table.items():
            error, gain = values[:, 0], votes - values[:, 0]
            root = np.sqrt(len(error))
            line = (
                f"{name:14s} {error.mean():.4f} ±{error.std(ddof=1) / root:.4f}  {gain.mean():+.4f} "
                f"±{gain.std(ddof=1) / root:.4f}   {values[:, 1].mean():7.3f}   "
                f"{values[:, 2].max():6.3f}  {np.median(values[:, 3]):6.2f}"
            )
            lines.append(line.replace("nan", "  -"))
            figures[f"{experiment} {name}"] = round(float(error.mean()), 5)
    print("\n".join(lines))
    if options.save:
        results.save("satellite", lines, figures)


if __name__ == "__main__":
    main()
