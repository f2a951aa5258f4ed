"""The P+L family on CIFAR-10H (Kerrigan 2021, tables 2 and 3, figure 2, appendices C and H).

    python -m tests.bench.bench_pl [--models resnet-110 ...] [--splits 25] [--save]

Protocol: each image's labels are shuffled once with a fixed seed and the first is taken; 25 splits 70/30; a method is
fitted on the first n of the 70 % and scored on the 30 %. ECE and class-wise ECE over 15 equal-mass bins. Error in
percent, mean over splits ± its standard error; NLL in nats an item; the median time of a fit. Which labels were drawn
matters more than which split: a standard error over splits of one draw does not show it. Three models together and two
labels an image are therefore also measured over fresh draws, ± over draws; these nothing was chosen on.

"model" is the network as it is and, with an n, at the temperature that n known items give it. "human" is one person's
label. "LR plain" has next to no pseudo-items, as the paper's. P+L-EM sees no truth, all others do.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
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

REFERENCE = {
    "resnet-110": {"P+L": (2.84, 2.73), "P+L-EM": (2.74, 2.82)},
    "resnet-low-acc": {"P+L": (4.11, 3.68), "P+L-EM": (4.19, 3.76)},
    "preresnet-110": {"P+L": (2.43, 2.34), "P+L-EM": (2.51, 2.55)},
}
"""Reference errors in percent at n = 10 and 5000, of another draw of the labels (4.62 % wrong)."""
BOTH, HALF, GAIN = ("P+L", "P+L-EM"), 5000, "better than the best single model by"
TOGETHER, TWO_LABELS = "together", "two human labels an image"

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


def run(
    models: Sequence[str],
    splits: int,
    sizes: Sequence[int] = SIZES,
    *,
    labels: int = 1,
    methods: Collection[str] = tuple(METHODS),
) -> Rows:
    """Run all methods with one model, or with several together."""
    truth, human = truths()[0], people(labels, 0)
    rows: dict[tuple[str, int], list[list[float]]] = {}
    for split in range(splits):
        train, test = split_of(split)
        held_out = evidence_of(test, human, models)
        nobody = np.zeros(len(held_out.annotations), dtype=bool)
        unlabeled = Evidence(held_out.annotations.select(nobody), held_out.probabilities)
        for n in sizes:
            told, untold = (evidence_of(train[:n], human, models, known) for known in (True, False))
            for name in methods:
                make, supervised = METHODS[name]
                found, learned = timed(make(), told if supervised else untold, held_out, test)
                rows.setdefault((name, n), []).append(found)
                if name == "P+L":
                    alone = make().apply(learned, unlabeled).probabilities
                    rows.setdefault(("model", n), []).append(figures_of(alone, test))
        wrong = 100 * np.mean(human[test] != truth[test, None])
        rows.setdefault(("human", 0), []).append([wrong, *[np.nan] * 4])
        for model in models:
            name = "model" if len(models) == 1 else model
            rows.setdefault((name, 0), []).append(figures_of(network(model)[test], test))
    return {key: np.array(values) for key, values in rows.items()}


def halves(models: Sequence[str], method: str, seed: int, labels: int = 1) -> list[float]:
    """Return the figures of every image, judged by a fit on the half that it is not in."""
    human, (make, supervised) = people(labels, seed), METHODS[method]
    order = np.random.default_rng(seed).permutation(len(truths()[0]))
    found = []
    for train, test in ((order[:HALF], order[HALF:]), (order[HALF:], order[:HALF])):
        learn_from = evidence_of(train, human, models, supervised)
        found.append(timed(make(), learn_from, evidence_of(test, human, models), test)[0])
    return [float(figure) for figure in np.mean(found, axis=0)]


def over_draws(models: Sequence[str], draws: int) -> Rows:
    """Run models together, each alone, and the first one with two labels: a row for each fresh draw of the labels."""
    rows: Rows = {}
    for name in BOTH:
        parts = [("models together", models, 1), *((model, (model,), 1) for model in models)]
        for part, some, labels in (*parts, (f"{models[0]}, two labels", models[:1], 2)):
            each = [halves(some, name, seed, labels) for seed in range(100, 100 + draws)]
            rows[f"{name}, {part}", HALF] = np.array(each)
        single = [rows[f"{name}, {model}", HALF] for model in models]
        rows[f"{name}: {GAIN}", HALF] = gain(rows[f"{name}, models together", HALF], single)
    return rows


def gain(together: np.ndarray, alone: Sequence[np.ndarray]) -> np.ndarray:
    """(runs, 5) how many points less the models together err than the best single one, paired by run; else NaN."""
    best = min(alone, key=lambda rows: rows[:, 0].mean())
    return np.where(np.arange(together.shape[1]) == 0, best - together, np.nan)


def own_cell(model: str, splits: int) -> Rows:
    """The paper's own cell: maximum likelihood on all of the 70 %."""
    human, found = people(1, 0), []
    for split in range(splits):
        train, test = split_of(split)
        learn_from = evidence_of(train, human, (model,), known=True)
        found.append(timed(MAXIMUM_LIKELIHOOD, learn_from, evidence_of(test, human, (model,)), test)[0])
    return {("P+L by maximum likelihood", TRAIN): np.array(found)}


def table(rows: Rows) -> list[str]:
    order = {name: place for place, name in enumerate(("human", "model", *MODELS, *METHODS))}
    cells = {}
    for name, n in sorted(rows, key=lambda row: (order.get(row[0], len(order)), row[1])):
        values = rows[name, n]
        cells[name, n] = dict(zip(FIGURES, values.mean(axis=0), strict=True))
        cells[name, n]["seconds"] = np.median(values[:, FIGURES.index("seconds")])
        cells[name, n]["±"] = values[:, 0].std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    return results.table(cells, 4)


def bars(figures: Mapping[str, Mapping[str, float]], draws: str) -> list[results.Bar]:
    """The bars on errors in percent, of what was measured."""
    found: list[results.Bar] = []
    for model, methods in REFERENCE.items():
        for name, limits in methods.items():
            for n, limit in zip((10, 5000), limits, strict=True):
                if (key := f"{model} {name} {n}") in figures:
                    claim = f"{model}, {name}, n = {n}"
                    found.append(results.at_most(claim, figures[key]["error"], limit + 0.05, ".2f"))
        ends = [figures[key]["error"] for n in (10, 5000) if (key := f"{model} P+L-EM {n}") in figures]
        if len(ends) == 2:
            claim = f"{model}, P+L-EM, n = 10 and n = 5000: points apart"
            found.append(results.at_most(claim, abs(ends[0] - ends[1]), 0.15, ".2f"))
    for which, gained, two in (
        ("mean of fresh draws", draws, f"{draws} P+L-EM, {MODELS[0]}, two labels {HALF}"),
        ("the table's one draw", TOGETHER, f"{MODELS[0]}, {TWO_LABELS} P+L-EM 5000"),
    ):
        if (key := f"{gained} P+L-EM: {GAIN} 5000") in figures:
            found.append(results.at_least(f"three models, points better ({which})", figures[key]["error"], 0.15, ".2f"))
        if two in figures:
            found.append(results.at_most(f"two labels, {MODELS[0]} ({which})", figures[two]["error"], 1.8, ".2f"))
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    options = results.options(
        __doc__, arguments, models=list(MODELS), splits=25, sizes=list(SIZES), methods=list(METHODS), draws=60
    )
    models, splits, largest = options.models, options.splits, (max(options.sizes),)
    page, figures = results.Page(), dict[str, dict[str, float]]()
    single: dict[str, Rows] = {}

    def section(title: str, rows: Rows) -> None:
        page.tell("", f"{title} ({len(next(iter(rows.values())))} runs)", *table(rows))
        for (name, n), values in rows.items():
            means = zip(FIGURES, values.mean(axis=0).tolist(), strict=True)
            figures[f"{title} {name} {n}"] = {key: mean for key, mean in means if not np.isnan(mean)}
            if n == TRAIN:
                figures[f"{title} {name} {n}"]["first split"] = float(values[0, 0])
                page.tell(f"{'':14s} the first split alone: {values[0, 0]:.2f}")

    for model in models:
        single[model] = run((model,), splits, options.sizes, methods=options.methods)
        section(model, single[model] | own_cell(model, splits))
    rows = run(models, splits, largest, methods=BOTH)
    alone = {name: [single[model][name, largest[0]] for model in models] for name in BOTH if name in options.methods}
    section(TOGETHER, rows | {(f"{m}: {GAIN}", n): gain(rows[m, n], alone[m]) for m in alone for n in largest})
    section(f"{models[0]}, {TWO_LABELS}", run(models[:1], splits, largest, labels=2, methods=BOTH))
    draws = f"{options.draws} fresh draws of the labels, each image judged by the other half"
    section(draws, over_draws(models, options.draws))
    page.held(*bars(figures, draws))
    if options.save:
        page.save("pl", figures)


if __name__ == "__main__":
    main()
