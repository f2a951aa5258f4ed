"""The P+L family on CIFAR-10H (Kerrigan 2021, tables 2 and 3, figure 2, appendices C and H).

    python -m tests.bench.bench_pl [--models resnet-110 ...] [--splits 25] [--labels 2] [--three] [--save]

Protocol: each image's labels are shuffled once with a fixed seed and the first is taken; 25 splits 70/30; a method is
fitted on the first n of the 70 % and scored on the 30 %. ECE and class-wise ECE over 15 equal-mass bins. Error in
percent, mean over splits ± its standard error; NLL in nats an item; the median time of a fit. Which labels were drawn
matters more than which split: a standard error over splits of one draw does not show it. So what several models and
two labels give is also measured over fresh draws, ± over draws.

"model" is the network as it is and, with an n, at the temperature that n known items give it. "human" is what one
person says. "LR plain" has next to no pseudo-items, as the paper's. P+L-EM sees no truth, all others do.
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

MAXIMUM_LIKELIHOOD = PL(off=1e-9, temperature=LogTemperature(mean=0.0, sd=1e3))
"""The paper's own cell: hardly any prior."""

Rows = dict[tuple[str, int], np.ndarray]
"""(method, n; 0: fitted to nothing) -> (splits, 5): error %, ECE, cwECE, NLL, fit seconds; NaN where there is none."""


@cache
def truths() -> tuple[Ints, tuple[str, ...]]:
    return cifar10h_truth()


@cache
def people(labels: int, seed: int) -> Ints:
    """(N, labels) what people say of each image."""
    return np.array([drawn[:labels] for drawn in cifar10h_labels(seed)], dtype=np.int32)


@cache
def network(model: str) -> Floats:
    return cifar10h_probabilities(model)


def evidence_of(rows: Ints, human: Ints, models: Sequence[str], known: bool = False) -> Evidence:
    """These images with what people (N, labels) and models say of them, and the truth if `known`."""
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
    """The figures of a method, and what it learned."""
    began = time.perf_counter()
    learned = method.fit(learn_from)
    seconds = time.perf_counter() - began
    return figures_of(method.apply(learned, judge).probabilities, test, seconds), learned


def run(
    model: str | Sequence[str],
    splits: int,
    label_seed: int = 0,
    sizes: Sequence[int] = SIZES,
    *,
    labels: int = 1,
    methods: Collection[str] = tuple(METHODS),
) -> Rows:
    """All methods with one model, or with several together."""
    models = (model,) if isinstance(model, str) else tuple(model)
    truth, human = truths()[0], people(labels, label_seed)
    rows: dict[tuple[str, int], list[list[float]]] = {}
    for split in range(splits):
        train, test = split_of(split)
        held_out = evidence_of(test, human, models)
        for n in sizes:
            told, untold = (evidence_of(train[:n], human, models, known) for known in (True, False))
            for name in methods:
                make, supervised = METHODS[name]
                found, learned = timed(make(), told if supervised else untold, held_out, test)
                rows.setdefault((name, n), []).append(found)
                if name == "P+L":
                    alone = make().apply(learned, _unlabeled(held_out)).probabilities
                    rows.setdefault(("model", n), []).append(figures_of(alone, test))
        wrong = 100 * np.mean(human[test] != truth[test, None])
        rows.setdefault(("human", 0), []).append([wrong, *[np.nan] * 4])
        for name in models:
            at = "model" if len(models) == 1 else name
            rows.setdefault((at, 0), []).append(figures_of(network(name)[test], test))
    return {key: np.array(values) for key, values in rows.items()}


def _unlabeled(evidence: Evidence) -> Evidence:
    nobody = np.zeros(len(evidence.annotations), dtype=bool)
    return Evidence(evidence.annotations.select(nobody), evidence.probabilities)


def own_cell(model: str, splits: int, label_seed: int = 0) -> Rows:
    """The paper's own cell: maximum likelihood on all of the 70 %."""
    human, found = people(1, label_seed), []
    for split in range(splits):
        train, test = split_of(split)
        learn_from = evidence_of(train, human, (model,), known=True)
        found.append(timed(MAXIMUM_LIKELIHOOD, learn_from, evidence_of(test, human, (model,)), test)[0])
    return {("P+L by maximum likelihood", TRAIN): np.array(found)}


def table(rows: Rows) -> list[str]:
    """Lines to print."""
    order = {name: place for place, name in enumerate(("human", "model", *MODELS, *METHODS))}
    lines = ["method             n    error %         ECE     cwECE     NLL    fit ms"]
    for (name, n), values in sorted(rows.items(), key=lambda row: (order.get(row[0][0], len(order)), row[0][1])):
        mean = values.mean(axis=0)
        se = values[:, 0].std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
        cells = [f"{mean[1]:.4f}", f"{mean[2]:.4f}", f"{mean[3]:.3f}", f"{1000 * np.median(values[:, 4]):.1f}"]
        ece, classwise, nll, ms = ("" if cell == "nan" else cell for cell in cells)
        line = f"{name:14s} {n or '':>5}   {mean[0]:5.2f} ±{se:.2f}   {ece:>7s}   {classwise:>7s}  {nll:>6s}   {ms:>7s}"
        lines.append(line.rstrip())
    return lines


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table of each model; with --save also write docs/benchmarks/pl.*."""
    options = results.options(
        __doc__,
        arguments,
        models=list(MODELS),
        splits=25,
        sizes=list(SIZES),
        methods=list(METHODS),
        labels=1,
        label_seed=0,
        three=False,
    )
    drawn = {"label_seed": options.label_seed, "labels": options.labels}
    both, largest = ("P+L", "P+L-EM"), (max(options.sizes),)
    few = {"sizes": largest, "methods": both} if options.three else {"sizes": options.sizes, "methods": options.methods}
    sections: dict[str, Rows] = {model: run(model, options.splits, **few, **drawn) for model in options.models}
    if not options.three and options.labels == 1:
        for model in options.models:
            sections[model] |= own_cell(model, options.splits, options.label_seed)
    if options.three or options.save:
        rows = run(options.models, options.splits, sizes=largest, methods=both, **drawn)
        sections["together"] = rows | gains(rows, [sections[model] for model in options.models])
    if options.save:
        two = run(options.models[0], options.splits, options.label_seed, largest, labels=2, methods=both)
        sections[f"{options.models[0]}, two human labels an image"] = two
        sections[DRAWS] = over_draws(options.models, both)
    lines, figures = written(sections)
    lines += results.held(bars(figures))
    print("\n".join(lines))
    if options.save:
        results.save("pl", lines, figures)


NOTES = {
    "resnet-110": {"P+L": (2.84, 2.73), "P+L-EM": (2.74, 2.82)},
    "resnet-low-acc": {"P+L": (4.11, 3.68), "P+L-EM": (4.19, 3.76)},
    "preresnet-110": {"P+L": (2.43, 2.34), "P+L-EM": (2.51, 2.55)},
}
"""Reference errors in percent at n = 10 and 5000, of another draw of the labels (4.62 % wrong)."""

DRAWN, HALF = range(100, 160), 5000
DRAWS = f"{len(DRAWN)} fresh draws of the labels, each image judged by the other half"
"""One draw of the labels differs from another by more than splits of one draw do: these nothing was chosen on."""


def bars(figures: Mapping[str, Any]) -> list[tuple[str, str, bool]]:
    """(what is asked, what was found, whether it holds), of what was measured."""
    found = []

    def asked(what: str, key: str, limit: float, least: bool = False) -> None:
        if key in figures:
            error = figures[key]["error"]
            holds = error >= limit if least else error <= limit
            found.append((f"{what} at {'least' if least else 'most'} {limit:.2f}", f"{error:.2f}", holds))

    for model, methods in NOTES.items():
        for name, errors in methods.items():
            for n, error in zip((10, 5000), errors, strict=True):
                asked(f"{model}, {name}, n = {n}", f"{model} {name} {n}", error + 0.05)
        ends = [figures.get(f"{model} P+L-EM {n}", {}).get("error") for n in (10, 5000)]
        if None not in ends:
            apart = abs(ends[0] - ends[1])
            found.append((f"{model}, P+L-EM, n = 10 within 0.15 of 5000", f"{apart:.2f}", apart <= 0.15))
    gain = "P+L-EM: better than the best single model by 5000"
    asked("three models, points better (mean of fresh draws)", f"{DRAWS} {gain}", 0.15, least=True)
    asked("two labels, resnet-110 (mean of fresh draws)", f"{DRAWS} P+L-EM, resnet-110, two labels 5000", 1.8)
    asked("three models, points better (the table's one draw)", f"together {gain}", 0.15, least=True)
    asked("two labels, resnet-110 (the table's one draw)", "resnet-110, two human labels an image P+L-EM 5000", 1.8)
    return found


def over_draws(models: Sequence[str], methods: Collection[str]) -> Rows:
    """What several models and two labels give, over fresh draws of the labels: a row a draw."""
    found: dict[tuple[str, int], list[list[float]]] = {}
    for seed in DRAWN:
        for name in methods:
            together = halves(models, name, seed)
            alone = [halves((model,), name, seed) for model in models]
            two = halves(models[:1], name, seed, labels=2)
            for key, figures in {
                f"{name}, models together": together,
                **{f"{name}, {model}": one for model, one in zip(models, alone, strict=True)},
                f"{name}, {models[0]}, two labels": two,
            }.items():
                found.setdefault((key, HALF), []).append(figures)
    rows = {key: np.array(values) for key, values in found.items()}
    for name in methods:
        together_d = {(name, HALF): rows[f"{name}, models together", HALF]}
        rows |= gains(together_d, [{(name, HALF): rows[f"{name}, {model}", HALF]} for model in models])
    return rows


def halves(models: Sequence[str], method: str, seed: int, labels: int = 1) -> list[float]:
    """The figures of every image, judged by what the half that it is not in has taught."""
    human, (make, supervised) = people(labels, seed), METHODS[method]
    order = np.random.default_rng(seed).permutation(len(truths()[0]))
    found = []
    for train, test in ((order[:HALF], order[HALF:]), (order[HALF:], order[:HALF])):
        learn_from = evidence_of(train, human, models, supervised)
        found.append(timed(make(), learn_from, evidence_of(test, human, models), test)[0])
    return [float(figure) for figure in np.mean(found, axis=0)]


def gains(together: Rows, alone: Sequence[Rows]) -> Rows:
    """How much less than the best single model with the same method the models together err: (runs, 5), paired."""
    found = {}
    for (name, n), values in together.items():
        if name in METHODS:
            best = min((rows[name, n] for rows in alone), key=lambda single: single[:, 0].mean())
            gain = np.full(values.shape, np.nan)
            gain[:, 0] = best[:, 0] - values[:, 0]
            found[f"{name}: better than the best single model by", n] = gain
    return found


def written(sections: Mapping[str, Rows]) -> tuple[list[str], dict[str, Any]]:
    """Lines for people and figures for tests, of all sections."""
    lines: list[str] = []
    figures: dict[str, Any] = {}
    for title, rows in sections.items():
        size = len(next(iter(rows.values())))
        lines += ["", f"{title} ({size} runs)", *table(rows)]
        for (name, n), values in rows.items():
            names = ("error", "ece", "cwece", "nll", "seconds")
            told = {key: float(mean) for key, mean in zip(names, values.mean(axis=0), strict=True) if mean == mean}
            figures[f"{title} {name} {n}"] = told
            if n == TRAIN:
                told["first split"] = float(values[0, 0])
                lines.append(f"{'':14s} the first split alone: {values[0, 0]:.2f}")
    return lines, figures


if __name__ == "__main__":
    main()
