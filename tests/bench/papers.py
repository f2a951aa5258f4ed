"""What the settings of the papers give beside hitl's, for the methods in which the two differ.

    python -m tests.bench.papers [--parts crowds known satellite pl] [--save]

crowds     VB-IBCC on every crowd set of bench_accuracy, nothing known; means over its groups.
known      weighted majority on the same sets, 50 items known, five draws; scored on the rest.
satellite  EBCC, DBCC, EDBCC on the combined classifiers of bench_satellite (experiment 2), half of the items known;
           four draws.
pl         the P+L family on CIFAR-10H with resnet-110 by the protocol of bench_pl: 25 splits, fitted on n images
           (P+L-EM without their truth). NLL in nats, T the temperature.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hitl.evidence import Evidence
from hitl.models.registry import combiner, published
from tests.bench import bench_accuracy, bench_pl, bench_satellite, results
from tests.reference_data import FOLDER

DRAWS, KNOWN_DRAWS, SPLITS = 4, 5, 25
Figures = dict[str, dict[str, float]]
"""Row -> measure -> value."""


def both(name: str) -> dict[str, Any]:
    """Row -> the method with hitl's settings and with those of its paper."""
    return {name: combiner(name), f"{name} --paper": published(name)}


def sets() -> list[str]:
    """The crowd sets that are there."""
    return [name for group in bench_accuracy.GROUPS for name in group if (FOLDER / name).is_dir()]


def crowds() -> Figures:
    """VB-IBCC, nothing known."""
    found: Figures = {}
    for row, method in both("vb-ibcc").items():
        scores = {}
        for name in sets():
            evidence = bench_accuracy.load(name)
            assert evidence.truth is not None
            p = method.fit(Evidence(evidence.annotations)).probabilities
            scores[name] = bench_accuracy.measure(p[evidence.known], evidence.truth[evidence.known])
        found[row] = _accuracy_and_loss(bench_accuracy.grouped(scores))
    return found


def known() -> Figures:
    """Weighted majority, 50 items known."""
    methods = {"majority": combiner("majority")} | both("weighted-majority")
    predictors = {row: lambda evidence, m=method: m.fit(evidence).probabilities for row, method in methods.items()}
    told = bench_accuracy.told(sets(), predictors, KNOWN_DRAWS)
    means = {row: {name: v.mean(axis=0) for name, v in scores.items()} for row, scores in told.items()}
    return {row: _accuracy_and_loss(bench_accuracy.grouped(scores)) for row, scores in means.items()}


def _accuracy_and_loss(measures: np.ndarray) -> dict[str, float]:
    return {"accuracy": float(measures[0]), "log loss": float(measures[1])}


def satellite() -> Figures:
    """The methods of Kim & Ghahramani."""
    methods = {"majority": combiner("majority")}
    for name in ("ebcc", "dbcc", "edbcc"):
        methods |= both(name)
    means = {row: values.mean(axis=0) for row, values in bench_satellite.run(2, methods, DRAWS).items()}
    return {row: {"error": float(means[row][0]), "log loss": float(means[row][1])} for row in methods}


def pl() -> Figures:
    """The P+L family."""
    human, found = bench_pl.people(1, 0), {}
    for split in range(SPLITS):
        train, test = bench_pl.split_of(split)
        held_out = bench_pl.evidence_of(test, human, ("resnet-110",))
        for n in (10, 5000):
            told = bench_pl.evidence_of(train[:n], human, ("resnet-110",), known=True)
            for name in ("pl", "bayesian-pl", "pl-em"):
                learn_from = replace(told, truth=None) if name == "pl-em" else told
                for row, method in both(name).items():
                    figures, learned = bench_pl.timed(method, learn_from, held_out, test)
                    measured = [figures[0], figures[3], learned.temperatures["resnet-110"]]
                    found.setdefault(f"{row}, n = {n}", []).append(measured)
    means = {row: np.mean(values, axis=0) for row, values in found.items()}
    return {row: {"error %": float(e), "NLL": float(nll), "T": float(t)} for row, (e, nll, t) in means.items()}


PARTS: dict[str, Callable[[], Figures]] = {"crowds": crowds, "known": known, "satellite": satellite, "pl": pl}


def main(arguments: Sequence[str] | None = None) -> None:
    options = results.options(__doc__, arguments, parts=list(PARTS))
    figures = {part: PARTS[part]() for part in options.parts}
    page = results.Page()
    for part, rows in figures.items():
        page.tell("", part, *results.table(rows, 4))
    if options.save:
        page.save("papers", figures, "papers --save")


if __name__ == "__main__":
    main()
