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
from collections.abc import Mapping, Sequence

import numpy as np

from hitl import score
from hitl.annotations import Annotations, Floats, Ints
from hitl.evidence import Evidence
from hitl.models.combiner import Combiner
from hitl.models.registry import combiner
from hitl.tables.read import read_table
from tests.bench import results
from tests.reference_data import features, folder

METHODS: dict[str, Combiner] = {
    "majority": combiner("majority"),
    "dawid-skene": combiner("dawid-skene"),
    "vb-ibcc": combiner("vb-ibcc"),
    "vb-ibcc 2/1": combiner("vb-ibcc", shared=False),
    "gibbs-ibcc": combiner("gibbs-ibcc"),
    "ebcc": combiner("ebcc"),
    "ebcc h=0.5": combiner("ebcc", hard=0.5),
    "dbcc": combiner("dbcc"),
    "edbcc": combiner("edbcc"),
}
"""The defaults, and the settings of the papers where those are not the defaults."""


def satellite() -> tuple[Floats, Ints, np.ndarray, tuple[str, ...]]:
    """Standardised (N, 36) features, class codes, whether a row is for training, and the class names."""
    x, names = features("satellite")
    classes = tuple(sorted(set(names)))
    split = read_table(folder("satellite") / "split.csv")  # in the order of the features
    train = np.array(split.column("split").to_pylist()) == "train"
    x = (x - x[train].mean(axis=0)) / x[train].std(axis=0)
    return x, np.array([classes.index(name) for name in names], np.int32), train, classes


def predictions(experiment: int) -> tuple[Ints, Ints, tuple[str, ...]]:
    """(N, K) class codes the base classifiers give the test rows, the truth, and the class names."""
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.linear_model import LogisticRegression
    from sklearn.svm import SVC
    from sklearn.tree import DecisionTreeClassifier

    x, y, train, classes = satellite()
    every = np.flatnonzero(train)
    if experiment == 1:
        quarters = np.array_split(np.random.default_rng(0).permutation(every), 4)
        taught = [(DecisionTreeClassifier(criterion="entropy", random_state=0), rows) for rows in quarters]
    else:
        models = (
            DecisionTreeClassifier(criterion="entropy", random_state=0),
            SVC(kernel="poly", degree=2, C=100.0),
            LogisticRegression(max_iter=2000),
            LinearDiscriminantAnalysis(),
        )
        taught = [(model, every) for model in models]
    said = [classifier.fit(x[rows], y[rows]).predict(x[~train]) for classifier, rows in taught]
    return np.stack(said, axis=1).astype(np.int32), y[~train], classes


def run(experiment: int, methods: Mapping[str, Combiner], draws: int) -> dict[str, np.ndarray]:
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
        for row, method in methods.items():
            began = time.perf_counter()
            consensus = method.fit(evidence)
            seconds = time.perf_counter() - began
            p, told = consensus.probabilities[~known], truth[~known]
            mixing = consensus.fit.mixing
            rhat = np.nan if mixing is None else max(mixing.rhat.values())
            error = 1 - score.accuracy(p, told)
            found.setdefault(row, []).append([error, score.log_loss(p, told), rhat, seconds])
            print(f"{experiment} {draw} {row}: {error:.4f} in {seconds:.1f} s", file=sys.stderr, flush=True)
    return {name: np.array(rows) for name, rows in found.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    options = results.options(__doc__, arguments, draws=10, methods=list(METHODS))
    wanted = {row: METHODS[row] for row in METHODS if row == "majority" or row in options.methods}
    page, figures = results.Page(), {}
    for experiment in (1, 2):
        table, rows = run(experiment, wanted, options.draws), {}
        for name, values in table.items():
            error, gain = values[:, 0], table["majority"][:, 0] - values[:, 0]
            rows[name] = {
                what: f"{one.mean():.4f} ± {one.std(ddof=1) / np.sqrt(len(one)):.4f}"
                for what, one in (("error", error), ("below majority", gain))
            }
            rows[name] |= {"log loss": values[:, 1].mean(), "R-hat": values[:, 2].max(), "s": np.median(values[:, 3])}
            figures[f"{experiment} {name}"] = round(float(error.mean()), 5)
        page.tell("", f"Experiment {experiment} ({options.draws} draws)", *results.table(rows))
    if options.save:
        page.save("satellite", figures)


if __name__ == "__main__":
    main()
