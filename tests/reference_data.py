"""The real data sets that tests and benchmarks read: one folder a set, found through HITL_DATA."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hitl.annotations import Annotations, Floats, Ints, Name
from hitl.evidence import Evidence
from hitl.models.predictors.transforms import tfidf_svd
from hitl.tables.matrices import read_vectors
from hitl.tables.read import read_table

FOLDER = Path(os.environ.get("HITL_DATA", Path(__file__).parents[2] / "shared" / "data"))


def folder(name: str) -> Path:
    """The folder of a set; skips the test where it is absent."""
    path = FOLDER / name
    if not path.is_dir():
        pytest.skip(f"data set {name!r} is not in {FOLDER} (set HITL_DATA)")
    return path


def features(name: str, part: str = "") -> tuple[Floats, list[str]]:
    """(N, D) features, NaN in empty cells, and the N labels; `part` is "_test" for a test set of its own."""
    table = read_table(folder(name) / f"features{part}.csv.gz")
    columns = [table.column(column).to_pylist() for column in table.column_names if column != "item"]
    values = np.array([[np.nan if cell in ("", None) else float(cell) for cell in column] for column in columns]).T
    truth = read_table(folder(name) / f"truth{part}.csv")
    label = dict(zip(truth.column("item").to_pylist(), truth.column("label").to_pylist(), strict=True))
    return values, [label[item] for item in table.column("item").to_pylist()]


def crowd(name: str) -> Evidence:
    """Annotations and truth of a crowd set."""
    path = folder(name)
    found = next(path.glob("annotations.csv*"))
    truth = next(path.glob("truth.csv*"))
    return Evidence.from_tables(read_table(found), truth=read_table(truth))


def without_truth(evidence: Evidence) -> Evidence:
    """The same evidence as somebody sees it who does not know the truth."""
    return Evidence(evidence.annotations, evidence.probabilities)


def cifar10h_truth() -> tuple[Ints, tuple[str, ...]]:
    """(N,) class codes and the class names."""
    table = read_table(folder("cifar10h") / "truth.csv")
    names = table.column("label").to_pylist()
    classes = tuple(sorted(set(names)))
    return np.array([classes.index(name) for name in names], dtype=np.int32), classes


def cifar10h_probabilities(model: str) -> Floats:
    """(N, J) class probabilities of a model."""
    table = read_table(folder("cifar10h") / f"probabilities_{model}.csv.gz")
    columns = [np.asarray(table.column(name).cast("float64")) for name in table.column_names if name.startswith("p_")]
    values = np.stack(columns, axis=1)
    return values / values.sum(axis=1, keepdims=True)


def cifar10h_counts() -> Ints:
    """(N, J) how many people gave each class."""
    table = read_table(folder("cifar10h") / "counts.csv.gz")
    columns = [np.asarray(table.column(name).cast("int64")) for name in table.column_names if name.startswith("n_")]
    counts: Ints = np.stack(columns, axis=1)
    return counts


def cifar10h_labels(seed: int) -> list[Ints]:
    """For each image its recorded human labels in a seeded random order."""
    rng = np.random.default_rng(seed)
    return [rng.permutation(np.repeat(np.arange(10, dtype=np.int32), row)) for row in cifar10h_counts()]


def anonymous(labels: Ints, classes: tuple[str, ...]) -> Annotations:
    """One label an item by a pool of people without ids."""
    n = len(labels)
    return Annotations(
        np.arange(n, dtype=np.int32),
        np.zeros(n, np.int32),
        labels,
        tuple(range(n)),
        ("people",),
        classes,
        classes,
        anonymous=0,
    )


def inputs(name: str, items: Sequence[Name]) -> np.ndarray[Any, Any]:
    """(N,) texts or (N, D) features of a set, in the order of the items."""
    path = folder(name)
    if (path / "texts.csv.gz").exists():
        table = read_table(path / "texts.csv.gz")
        columns = [table.column(column).to_pylist() for column in table.column_names if column != "item"]
        names, rows = table.column("item").to_pylist(), [" ".join(map(str, row)) for row in zip(*columns, strict=True)]
        values = np.array(rows, dtype=object)
    else:
        names, values = read_vectors(next(path.glob("features.*")))
    row = {str(item): n for n, item in enumerate(names)}
    return values[[row[str(item)] for item in items]]


def with_features(name: str) -> Evidence:
    """The same with features: those of the set, or TF-IDF and SVD of its texts as `[features] text` makes them."""
    evidence = crowd(name)
    if not (folder(name) / "texts.csv.gz").exists():
        return replace(evidence, features=inputs(name, evidence.annotations.items))
    names = read_table(folder(name) / "texts.csv.gz").column("item").to_pylist()
    row = {str(item): n for n, item in enumerate(names)}
    x_nd = tfidf_svd(list(inputs(name, names)))
    return replace(evidence, features=x_nd[[row[str(item)] for item in evidence.annotations.items]])


def simulated_crowd(name: str, n_items: int, seed: int = 0) -> Evidence:
    """Items and features of a set without annotators, five labels each of twenty simulated ones, right in .5 to .9."""
    path, rng = folder(name), np.random.default_rng(seed)
    names, x_nd = read_vectors(path / "features.csv.gz")
    table = read_table(path / "truth.csv")
    known = dict(zip(map(str, table.column("item").to_pylist()), table.column("label").to_pylist(), strict=True))
    rows = rng.permutation(len(names))[:n_items]
    classes = sorted(set(known.values()))
    accuracy, said = rng.uniform(0.5, 0.9, 20), []
    for row in rows:
        for who in rng.permutation(20)[:5]:
            others = [one for one in classes if one != known[names[row]]]
            right = rng.random() < accuracy[who]
            said.append((names[row], f"a{who}", known[names[row]] if right else others[rng.integers(len(others))]))
    columns = dict(zip(("item", "annotator", "label"), zip(*said, strict=True), strict=True))
    truth = {"item": [names[row] for row in rows], "label": [known[names[row]] for row in rows]}
    features = {"item": [names[row] for row in rows], "features": list(x_nd[rows])}
    return Evidence.from_tables({key: list(value) for key, value in columns.items()}, None, truth, features)
