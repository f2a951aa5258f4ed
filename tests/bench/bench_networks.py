"""Fields on graphs: documents that cite each other, songs and scenes with like features, and what the sweeps cost.

    python -m tests.bench.bench_networks                 all parts
    python -m tests.bench.bench_networks --parts cost

citations   cora and pubmed: ten classifiers of scikit-learn, each trained on so many random documents, label all that
            have words (of pubmed 1,060 of 19,717). Macro F of all documents with a label; ten draws.
features    music_genre and labelme: each item linked to those with the nearest features (standardised, Euclidean)
steps       60 small graphs, some of which say nothing: fits by long steps of the strengths beside fits by half steps
cost        a million items and four million edges, 10 classes, 5 labels an item: seconds beside VB-IBCC, as it is and
            with all iterations over all items

No constant was chosen on these sets. The strength is learned from the labels; no truth is seen.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
from scipy import sparse
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Perceptron, RidgeClassifier
from sklearn.metrics import f1_score
from sklearn.naive_bayes import BernoulliNB, GaussianNB, MultinomialNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

from hitl.annotations import Annotations, Ints
from hitl.evidence import Evidence
from hitl.models import VBIBCC, DawidSkene, DefaultCombiner, MajorityVote, NetworkDawidSkene, NetworkIBCC
from hitl.models.graphs.neighbours import nearest_neighbours
from hitl.models.priors.graph_field import QUICKEST, GraphField
from hitl.tables.read import read_table
from tests import reference_data
from tests.bench import results
from tests.bench.scale.passes import many

ALONE = {"majority": MajorityVote(), "dawid-skene": DawidSkene(), "vb-ibcc": VBIBCC(), "default": DefaultCombiner()}
LINKED = {
    "network, icm": NetworkDawidSkene(approximation="icm"),
    "network, mean field": NetworkDawidSkene(),
    "network, bp": NetworkDawidSkene(approximation="belief-propagation"),
    "network-ibcc": NetworkIBCC(),
}
TRAINED_ON = (60, 150)
NEIGHBOURS = (5, 10, 20)

ALL_ITEMS = "vb-ibcc, all items"
"""VB-IBCC whose iterations all go over all items, as those of the others do; it takes fewer itself."""

Part = tuple[list[str], dict[str, Any]]


def said(words: Any, truth: Ints, trained_on: int, seed: int) -> Ints:
    """(N, 10) labels of the classifiers of Traganitis & Giannakis 2019, each trained on other documents."""
    rng, columns = np.random.default_rng(seed), []
    for model in (
        LogisticRegression(),
        RidgeClassifier(),
        Perceptron(random_state=seed),
        BernoulliNB(),
        MultinomialNB(),
        DecisionTreeClassifier(random_state=seed),
        KNeighborsClassifier(5),
        LinearSVC(C=0.1, random_state=seed),
        RandomForestClassifier(50, random_state=seed),
        GaussianNB(),
    ):
        rows = rng.choice(len(truth), trained_on, replace=False)
        seen = words.toarray() if isinstance(model, GaussianNB) else words
        columns.append(model.fit(seen[rows], truth[rows]).predict(seen))
    return np.stack(columns, axis=1).astype(np.int32)


def documents(name: str) -> tuple[Any, Ints, Ints, sparse.csr_array]:
    """Words (n, D) of some documents, their rows (n,), the classes of all (N,) and the citations (N, N)."""
    path = reference_data.folder(name)
    truth = read_table(path / "truth.csv")
    items, labels = truth.column("item").to_pylist(), truth.column("label").to_pylist()
    row = {item: n for n, item in enumerate(items)}
    classes = sorted(set(labels))
    kept = np.load(path / "features.npz", allow_pickle=True)
    words = sparse.csr_matrix((kept["data"], kept["indices"], kept["indptr"]), shape=tuple(kept["shape"]))
    edges = read_table(path / "edges.csv")
    ends = [[row[item] for item in edges.column(side).to_pylist()] for side in ("source", "target")]
    half = sparse.csr_array((np.ones(len(ends[0])), ends), shape=(len(items), len(items)))
    linked = half.maximum(half.T)
    linked.data[:] = 1.0
    rows = np.array([row[str(item)] for item in kept["items"]], dtype=np.int32)
    return words, rows, np.array([classes.index(label) for label in labels], dtype=np.int32), linked


def citations(seeds: int) -> Part:
    cells, figures = {}, {}
    for name in ("cora", "pubmed"):
        words, rows, truth, linked = documents(name)
        for trained_on in TRAINED_ON:
            scores: dict[str, list[float]] = {}
            for seed in range(seeds):
                labels = np.full((len(truth), 10), -1, dtype=np.int32)
                labels[rows] = said(words, truth[rows], trained_on, seed)
                annotations = Annotations.from_matrix(labels, classes=list(range(truth.max() + 1)))
                for method, combiner in (ALONE | LINKED).items():
                    evidence = Evidence(annotations, graph=linked if method in LINKED else None)
                    found = combiner.fit(evidence).codes[rows]
                    scores.setdefault(method, []).append(float(f1_score(truth[rows], found, average="macro")))
            row = f"{name}, {trained_on}"
            figures[row] = {method: float(np.mean(one)) for method, one in scores.items()}
            cells[row] = {method: results.spread(one) for method, one in scores.items()}
    return [*results.table(cells), f"macro F: means of {seeds} draws (standard deviation)"], figures


def features(seeds: int) -> Part:
    figures: dict[str, Any] = {}
    for name in ("music_genre", "labelme"):
        evidence, truth = reference_data.with_features(name), reference_data.crowd(name).truth
        assert evidence.features is not None
        assert truth is not None
        known = truth >= 0
        bare = Evidence(evidence.annotations)

        def right(combiner: Any, given: Evidence, known: Any = known, truth: Ints = truth) -> float:
            return float((combiner.fit(given).codes == truth)[known].mean())

        alone = {method: right(combiner, bare) for method, combiner in ALONE.items()}
        for k in NEIGHBOURS:
            given = Evidence(evidence.annotations, graph=nearest_neighbours(evidence.features, k))
            linked = {method: right(combiner, given) for method, combiner in LINKED.items()}
            figures[f"{name}, {k}"] = alone | linked
    return ["accuracy, by the nearest neighbors that are linked", *results.table(figures)], figures


def small(seed: int) -> tuple[Evidence, Ints]:
    """Few items, some of them with few labels, and a graph that says more or less of them."""
    rng = np.random.default_rng(seed)
    n, j, k = int(rng.integers(20, 800)), int(rng.integers(2, 6)), int(rng.integers(3, 12))
    share, alike = rng.uniform(0.1, 0.9), rng.choice([0, 0.3, 0.7, 0.95])
    truth = rng.integers(j, size=n).astype(np.int32)
    ends = rng.integers(n, size=(2, int(n * rng.uniform(0.5, 6))))
    chosen = rng.random(ends.shape[1]) < alike
    for c in set(truth[ends[0][chosen]]):
        own = chosen & (truth[ends[0]] == c)
        ends[1][own] = rng.choice(np.flatnonzero(truth == c), own.sum())
    ends = ends[:, ends[0] != ends[1]]
    half = sparse.csr_array((np.ones(ends.shape[1]), ends), shape=(n, n))
    right = rng.random((n, k)) < rng.uniform(0.2, 0.9, size=k)
    labels = np.where(right, truth[:, None], rng.integers(j, size=(n, k)))
    labels[rng.random((n, k)) > share] = -1
    return Evidence(Annotations.from_matrix(labels, classes=list(range(j))), graph=half.maximum(half.T)), truth


def steps(seeds: int) -> Part:
    even, found = GraphField.even.__func__, dict[str, list[list[float]]]()  # type: ignore[attr-defined]
    for seed in range(60):
        evidence, truth = small(seed)
        for name, quickest in (("half steps", 1.0), ("long steps", QUICKEST)):
            begun = classmethod(lambda of, *given, most=quickest: replace(even(of, *given), quickest=most))
            with patch.object(GraphField, "even", begun):
                for method in (NetworkDawidSkene(), NetworkIBCC()):
                    fit = method.fit(evidence)
                    row = [fit.fit.iterations, fit.fit.objective[-1] / len(truth), float((fit.codes == truth).mean())]
                    found.setdefault(name, []).append(row)
    columns = ("iterations", "objective an item", "right")
    figures = {name: dict(zip(columns, np.mean(rows, axis=0), strict=True)) for name, rows in found.items()}
    more = np.subtract(found["long steps"], found["half steps"])
    for name, ends in (("long less half, least", more.min(axis=0)), ("long less half, most", more.max(axis=0))):
        figures[name] = dict(zip(columns, ends, strict=True))
    return results.table(figures, 4), figures


def cost(seeds: int) -> Part:
    rng, n, j, k = np.random.default_rng(0), 1_000_000, 10, 300
    truth = np.repeat(rng.integers(j, size=n // 20), 20)
    item = np.repeat(np.arange(n, dtype=np.int32), 5)
    annotator = ((rng.integers(k, size=(n, 1)) + np.arange(5) * 7) % k).ravel().astype(np.int32)
    right = rng.random(item.size) < rng.uniform(0.3, 0.7, size=k)[annotator]
    label = np.where(right, truth[item], rng.integers(j, size=item.size)).astype(np.int32)
    annotations = Annotations(
        item, annotator, label, tuple(range(n)), tuple(range(k)), tuple(range(j)), tuple(range(j))
    )
    near = np.arange(n) + rng.integers(1, 4, size=(4, n)) + 3 * np.arange(4)[:, None]
    ends = np.concatenate([[np.arange(n), other % n] for other in near], axis=1)
    half = sparse.csr_array((np.ones(ends.shape[1]), ends), shape=(n, n))
    linked = half.maximum(half.T)
    seconds, lines = dict[str, float](), [f"{linked.nnz // 2:,} edges"]
    for name, method in (
        ("vb-ibcc", VBIBCC()),
        (ALL_ITEMS, VBIBCC()),
        ("network-dawid-skene", NetworkDawidSkene()),
        ("network-ibcc", NetworkIBCC()),
    ):
        evidence = Evidence(annotations, graph=None if name in ("vb-ibcc", ALL_ITEMS) else linked)
        replace(method, max_iterations=1).fit(evidence)  # compiles
        found = many(method, evidence) if name == ALL_ITEMS else method.fit(evidence)
        seconds[name] = found.fit.seconds
        ratio, share = seconds[name] / seconds["vb-ibcc"], (found.codes == truth).mean()
        told = f"{found.fit.iterations:5} iterations {ratio:8.2f} x vb-ibcc "
        if ALL_ITEMS in seconds:
            told += f"{seconds[name] / seconds[ALL_ITEMS]:8.2f} x that over all items "
        told += f"  right {share:.3f}"
        lines.append(f"{name:24}{seconds[name]:8.1f} s {told}")
    return lines, seconds


def main(arguments: Sequence[str] | None = None) -> None:
    parts = {"citations": citations, "features": features, "steps": steps, "cost": cost}
    options = results.options(__doc__, arguments, parts=list(parts), seeds=10)
    page = results.Page()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        figures = page.parts(parts, options.parts, options.seeds)
    if options.save:
        page.save("networks", figures)


if __name__ == "__main__":
    main()
