"""The P+L family on CIFAR-10H (Kerrigan 2021, tables 2 and 3, figure 2, appendices C and H).

    python -m tests.bench.bench_pl [--models resnet-110 ...] [--splits 25] [--save]

Protocol: each image's labels are shuffled once with a fixed seed and the first is taken; 25 splits 70/30; a method is
fitted on the first n of the 70 % and scored on the 30 %. ECE and class-wise ECE over 15 equal-mass bins. Error in
percent, mean over splits ± its standard error; NLL in nats an item; the mean time of a fit. Which labels were drawn
matters more than which split: a standard error over splits of one draw does not show it.

"model" is the network as it is and, with an n, at the temperature that n known items give it. "human" is one person's
label. "LR plain" has next to no pseudo-items, as the paper's. P+L-EM sees no truth, all others do.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from functools import cache
from typing import Any

import numpy as np

from hitl import score
from hitl.annotations import Annotations, Floats, Ints
from hitl.evidence import Evidence
from hitl.models import LL, LR, PL, PLEM, SP, BayesianPL
from hitl.models.calibration.temperature import LogTemperature
from tests.bench import results
from tests.reference_data import cifar10h_labels, cifar10h_probabilities, cifar10h_truth

MODELS = ("resnet-110", "resnet-low-acc", "preresnet-110")
SIZES = (10, 50, 100, 500, 5000)
TRAIN = 7000

METHODS: dict[str, tuple[Callable[[], Any], bool]] = {
    "P+L": (PL, True),
    "P+L-EM": (PLEM, False),
    "Bayesian": (BayesianPL, True),
    "SP": (SP, True),
    "L+L": (LL, True),
    "LR": (LR, True),
    "LR plain": (lambda: LR(pseudo_items=1e-3), True),
}
"""Name -> how it is made, and whether it learns from the truth."""

MAXIMUM_LIKELIHOOD = PL(off=1e-9, temperature=LogTemperature(mean=0.0, sd=1e3))
"""The paper's own cell: hardly any prior."""

FIGURES = ("error", "ece", "cwece", "nll", "seconds")
Rows = dict[tuple[str, int], np.ndarray]
"""(method, n; 0: fitted to nothing) -> (splits, 5): error %, ECE, cwECE, NLL, fit seconds; NaN where there is none."""


@cache
def truths() -> tuple[Ints, tuple[str, ...]]:
    return cifar10h_truth()


@cache
def people(labels: int, seed: int) -> Ints:
    """(N, labels) human labels of each image."""
    return np.array([drawn[:labels] for drawn in cifar10h_labels(seed)], dtype=np.int32)


@cache
def network(model: str) -> Floats:
    return cifar10h_probabilities(model)


def evidence_of(rows: Ints, human: Ints, models: Sequence[str], known: bool = False) -> Evidence:
    """Evidence of these images: human labels (N, labels), models' probabilities, and the truth if `known`."""
    truth, classes = truths()
    size, labels = len(rows), human.shape[1]
    annotations = Annotations(
        np.repeat(np.arange(size, dtype=np.int32), labels),
        np.zeros(size * labels, np.int32),
        human[rows].ravel(),
        tuple(range(size)),
        ("people",),
        classes,
        classes,
        anonymous=0,
    )
    return Evidence(annotations, {m: network(m)[rows] for m in models}, truth=truth[rows] if known else None)


def split_of(split: int) -> tuple[Ints, Ints]:
    """The 70 % and the 30 %."""
    order = np.random.default_rng(split).permutation(len(truths()[0]))
    return order[:TRAIN], order[TRAIN:]


def figures_of(probabilities: Floats, rows: Ints, seconds: float = np.nan) -> list[float]:
    truth = truths()[0][rows]
    return [
        100 * (1 - score.accuracy(probabilities, truth)),
        score.calibration_error(probabilities, truth),
        score.classwise_calibration_error(probabilities, truth),
        score.log_loss(probabilities, truth),
        seconds,
    ]


def timed(method: Any, learn_from: Evidence, judge: Evidence, test: Ints) -> tuple[list[float], Any]:
    """Return the figures of a method, and its fit."""
    began = time.perf_counter()
    learned = method.fit(learn_from)
    seconds = time.perf_counter() - began
    return figures_of(method.apply(learned, judge).probabilities, test, seconds), learned


def run(model: str, splits: int, sizes: Sequence[int] = SIZES, *, methods: Collection[str] = tuple(METHODS)) -> Rows:
    """Run all methods with one model."""
    truth, human = truths()[0], people(1, 0)
    rows: dict[tuple[str, int], list[list[float]]] = {}
    for split in range(splits):
        train, test = split_of(split)
        held_out = evidence_of(test, human, (model,))
        nobody = np.zeros(len(held_out.annotations), dtype=bool)
        unlabeled = Evidence(held_out.annotations.select(nobody), held_out.probabilities)
        for n in sizes:
            told, untold = (evidence_of(train[:n], human, (model,), known) for known in (True, False))
            for name in methods:
                make, supervised = METHODS[name]
                found, learned = timed(make(), told if supervised else untold, held_out, test)
                rows.setdefault((name, n), []).append(found)
                if name == "P+L":
                    alone = make().apply(learned, unlabeled).probabilities
                    rows.setdefault(("model", n), []).append(figures_of(alone, test))
        wrong = 100 * np.mean(human[test] != truth[test, None])
        rows.setdefault(("human", 0), []).append([wrong, *[np.nan] * 4])
        rows.setdefault(("model", 0), []).append(figures_of(network(model)[test], test))
    return {key: np.array(values) for key, values in rows.items()}


def own_cell(model: str, splits: int) -> Rows:
    """The paper's own cell: maximum likelihood on all of the 70 %."""
    human, found = people(1, 0), []
    for split in range(splits):
        train, test = split_of(split)
        learn_from = evidence_of(train, human, (model,), known=True)
        found.append(timed(MAXIMUM_LIKELIHOOD, learn_from, evidence_of(test, human, (model,)), test)[0])
    return {("P+L by maximum likelihood", TRAIN): np.array(found)}


def table(rows: Rows) -> list[str]:
    order = {name: place for place, name in enumerate(("human", "model", *METHODS))}
    cells = {}
    for name, n in sorted(rows, key=lambda row: (order.get(row[0], len(order)), row[1])):
        values = rows[name, n]
        cells[name, n] = dict(zip(FIGURES, values.mean(axis=0), strict=True))
        cells[name, n]["±"] = values[:, 0].std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    return results.table(cells, 4)


def main(arguments: Sequence[str] | None = None) -> None:
    options = results.options(
        __doc__, arguments, models=list(MODELS), splits=25, sizes=list(SIZES), methods=list(METHODS)
    )
    page, figures = results.Page(), {}
    for model in options.models:
        rows = run(model, options.splits, options.sizes, methods=options.methods) | own_cell(model, options.splits)
        page.tell("", f"{model} ({options.splits} runs)", *table(rows))
        for (name, n), values in rows.items():
            means = zip(FIGURES, values.mean(axis=0).tolist(), strict=True)
            figures[f"{model} {name} {n}"] = {key: mean for key, mean in means if not np.isnan(mean)}
    if options.save:
        page.save("pl", figures)


if __name__ == "__main__":
    main()
