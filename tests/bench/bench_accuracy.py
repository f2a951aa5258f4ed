"""Every combiner on every crowd set with truth: accuracy, log loss, calibration, AUC, seconds.

    python -m tests.bench.bench_accuracy [--methods default vb-ibcc ...] [--sets rte ...] [--draws 5] [--save]

No truth is known, except in the last table but one, where each of `--draws` seeded draws tells 50 items and the rest
are scored. Ties share the credit; ECE over clip(n / 20, 5, 15) equal-mass bins; majority probabilities are
(v + 1/J) / (m + 1). Sets that share items or people are one group: the mean over groups is that of their own means.
"Plain" is VB-IBCC with pseudo-counts 2 / 1 and no shared prior. Other packages: `make results`. The last table has
annotators who err independently (`honesty.crowds`), means over three seeds. Bars are those of the default.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.metrics import roc_auc_score

from hitl import score
from hitl.annotations import Annotations, Floats, Ints
from hitl.evidence import Evidence
from hitl.models import VBIBCC, DefaultCombiner, MajorityVote
from hitl.models.combiner import needs_of
from hitl.models.methods import COMBINERS
from hitl.models.registry import combiner
from tests.bench import results
from tests.reference_data import FOLDER, cifar10h_counts, cifar10h_truth, crowd

GROUPS = (
    ("bluebirds",),
    ("tweet_sentiment",),
    ("relevance_trec2010", "trec2010_binary"),
    ("adult_content",),
    ("fact_eval",),
    ("weather_cf", "weather_amt"),
    ("face_sentiment",),
    ("rte", "wsd", "valence"),
    ("sentence_polarity", "sentence_polarity_amt"),
    ("music_genre",),
    ("labelme",),
    ("reuters_crowd",),
    ("cifar10s", "cifar10h"),
    ("cifar10n",),
    ("conll2003_ner_crowd",),
)
SLOW = 30_000
"""Labels above which the samplers are left out."""
BASE = ("majority", "plain", "default")
SAMPLERS = {"gibbs-ibcc", "ebcc"}
MEASURES = ("accuracy", "log loss", "ECE", "AUC", "seconds")
TOLD = 50
Scores = npt.NDArray[np.float64]
Predictor = Callable[[Evidence], Floats]


def area_under_curve(probabilities: Any, truth: Any) -> float:
    """Mean over the classes that are sometimes true, and sometimes not; NaN without one."""
    classes = [j for j in range(probabilities.shape[1]) if 0 < (truth == j).sum() < len(truth)]
    return float(np.mean([roc_auc_score(truth == j, probabilities[:, j]) for j in classes])) if classes else np.nan


def load(name: str) -> Evidence:
    """A crowd set with its truth; the pooled labels of cifar10h are one anonymous crowd."""
    if name != "cifar10h":
        return crowd(name)
    counts, (truth, classes) = cifar10h_counts(), cifar10h_truth()
    item = np.repeat(np.arange(len(truth), dtype=np.int32), counts.sum(axis=1))
    label = np.concatenate([np.repeat(np.arange(len(classes), dtype=np.int32), row) for row in counts])
    people = np.zeros(len(item), np.int32)
    items = tuple(range(len(truth)))
    return Evidence(Annotations(item, people, label, items, ("people",), classes, classes, anonymous=0), truth=truth)


def measure(probabilities: Floats, truth: Ints, seconds: float = 0.0) -> Scores:
    """The five MEASURES."""
    bins = int(np.clip(len(truth) / 20, 5, 15))
    return np.array(
        [
            score.accuracy(probabilities, truth),
            score.log_loss(probabilities, truth),
            score.calibration_error(probabilities, truth, bins),
            area_under_curve(probabilities, truth),
            seconds,
        ]
    )


def methods(chosen: Sequence[str]) -> dict[str, Predictor]:
    """Name -> probabilities of evidence: chosen methods (none: all) that need labels alone, and those of BASE."""

    def predictor(made: Any) -> Predictor:
        return lambda evidence: made.fit(evidence).probabilities  # type: ignore[no-any-return]

    found = {"majority": MajorityVote(), "plain": VBIBCC(shared=False), "default": DefaultCombiner()}
    for name in COMBINERS:
        if name not in (*found, "dbcc", "edbcc") and not needs_of(made := combiner(name)):  # those: bench_satellite
            found[name] = made
    return {name: predictor(made) for name, made in found.items() if not chosen or name in (*BASE, *chosen)}


def untold(
    names: Sequence[str], predictors: Mapping[str, Predictor]
) -> tuple[dict[str, dict[str, Scores]], dict[str, float]]:
    """method -> set -> measures, without known truth; and set -> standard error of default - majority."""
    table: dict[str, dict[str, Scores]] = {name: {} for name in predictors}
    error = {}
    for name in names:
        evidence = load(name)
        known, truth = evidence.known, evidence.truth
        assert truth is not None
        right = {}
        for method, predict in predictors.items():
            if method in SAMPLERS and len(evidence.annotations) > SLOW:
                continue
            began = time.perf_counter()
            p = predict(Evidence(evidence.annotations))[known]
            table[method][name] = measure(p, truth[known], time.perf_counter() - began)
            right[method] = score.right(p, truth[known])
        difference = right["default"] - right["majority"]
        error[name] = float(difference.std(ddof=1) / np.sqrt(difference.size))
        print(f"{name:22s}" + "".join(f" {method} {table[method][name][0]:.4f}" for method in BASE), flush=True)
    return table, error


def told(names: Sequence[str], predictors: Mapping[str, Predictor], draws: int) -> dict[str, dict[str, Scores]]:
    """method -> set -> (draws, 5) measures on the rest, having seen the truth of 50 items."""
    table: dict[str, dict[str, Scores]] = {}
    for name in names:
        evidence = load(name)
        assert evidence.truth is not None
        gold = np.flatnonzero(evidence.known)
        for draw in range(draws):
            shown = np.random.default_rng(draw).choice(gold, TOLD, replace=False)
            truth = np.full_like(evidence.truth, -1)
            truth[shown] = evidence.truth[shown]
            rest = np.setdiff1d(gold, shown)
            for method, predict in predictors.items():
                found = measure(predict(replace(evidence, truth=truth))[rest], evidence.truth[rest])
                table.setdefault(method, {}).setdefault(name, np.empty((draws, 5)))[draw] = found
    return table


def grouped(scores: Mapping[str, Scores]) -> Scores:
    """Mean over groups of the mean over their sets."""
    present = [[scores[name] for name in group if name in scores] for group in GROUPS]
    return np.mean([np.mean(group, axis=0) for group in present if group], axis=0)


def simulated(seeds: int = 3) -> dict[str, Scores]:
    """Cell -> (2, 5) mean measures of majority vote and the default where annotators err independently."""
    from tests.bench.honesty.crowds import INDEPENDENT, SIMULATED  # which imports this module

    found = {}
    for name, drawn in SIMULATED[INDEPENDENT].items():
        each = []
        for evidence in map(drawn, range(seeds)):
            assert evidence.truth is not None
            fits = (made.fit(Evidence(evidence.annotations)) for made in (MajorityVote(), DefaultCombiner()))
            each.append([measure(fit.probabilities, evidence.truth) for fit in fits])
        found[name] = np.mean(each, axis=0)
    return found


def bars(
    table: Mapping[str, Mapping[str, Scores]],
    error: Mapping[str, float],
    known: Mapping[str, Mapping[str, Scores]],
    crowds: Mapping[str, Scores],
) -> list[results.Bar]:
    """The bars of the default combiner; sets of a group count once."""
    default, majority, plain = (table[method] for method in ("default", "majority", "plain"))
    gap = {name: default[name][0] - majority[name][0] for name in default}
    below = {name: round(100 * g, 2) for name, g in gap.items() if g < -0.005 - 2 * error[name]}
    worst = min(gap, key=lambda name: gap[name])
    ours, theirs = grouped(default), grouped(plain)
    groups = [here for group in GROUPS if (here := [name for name in group if name in default])]
    above = [np.mean([default[name][1] - majority[name][1] for name in group]) > 0 for group in groups]
    worse = sorted(name for name in default if default[name][1] > majority[name][1])
    share = 1 - float(np.mean(above))
    found = [
        ("on no set below majority by more than 0.5 points + 2 se", f"{below or 'none'}", not below),
        ("on none by more than 1.5 points", f"worst {worst} {100 * gap[worst]:+.2f}", bool(gap[worst] >= -0.015)),
        results.at_least("points above plain VB-IBCC, mean over groups,", 100 * (ours[0] - theirs[0]), 0.8, "+.2f"),
        results.at_most_of("ECE", "plain VB-IBCC's, mean over groups", ours[2], theirs[2], 0.5),
        (
            "log loss at most majority's on nine groups of ten",
            f"{share:.0%}; {len(default) - len(worse)} of {len(default)} sets, not {worse}",
            share >= 0.9,
        ),
    ]
    if known:
        means = {method: {name: each.mean(axis=0) for name, each in known[method].items()} for method in BASE}
        ours, theirs = grouped(means["default"]), grouped(means["plain"])
        lost = [name for name, mean in means["default"].items() if mean[1] > means["majority"][name][1]]
        share = 1 - len(lost) / len(means["default"])
        claim = "50 known items: log loss at most majority's on 95 % of sets"
        found.append(results.at_most_of("50 known items: ECE", "plain's, mean over groups", ours[2], theirs[2], 0.4))
        found.append((claim, f"{share:.0%}; not {lost}", share >= 0.95))
    over = {cell: round(float(b[1, 2] - b[0, 2]), 3) for cell, b in crowds.items() if b[1, 2] > b[0, 2]}
    figure = f"{len(crowds) - len(over)} of {len(crowds)} cells; not {over}"
    return [*found, ("independent annotators: ECE no worse than majority's", figure, not over)]


def report(scores: Mapping[str, Mapping[str, Scores]], names: Sequence[str]) -> list[str]:
    """A table for each measure, methods in rows; means of methods that were run on all sets."""
    lines = []
    for place, measure_name in enumerate(MEASURES):
        rows = {method: {name: found[name][place] for name in found} for method, found in scores.items()}
        for method in (method for method in rows if len(rows[method]) == len(names)):
            rows[method] |= {"mean": np.nanmean([*rows[method].values()]), "groups": grouped(scores[method])[place]}
        lines += ["", measure_name, *results.table(rows, 4)]
    return lines


def main(arguments: Sequence[str] | None = None) -> None:
    every = [name for group in GROUPS for name in group]
    options = results.options(__doc__, arguments, methods=(), sets=every, draws=5)
    names = [name for name in options.sets if (FOLDER / name).is_dir()]
    predictors = methods(options.methods)
    table, error = untold(names, predictors)
    page = results.Page()
    page.tell(*report(table, names))
    known = told(names, {name: predictors[name] for name in BASE}, options.draws) if options.draws else {}
    if known:
        page.tell("", "50 known items   accuracy  log loss       ECE   (means over sets)")
        for method, scores in known.items():
            means = np.mean([values.mean(axis=0) for values in scores.values()], axis=0)
            page.tell(f"{method:16s}" + "".join(f"{mean:10.4f}" for mean in means[:3]))
    crowds = simulated()
    rows = {
        cell: {
            f"{what}, {method}": both[row, place]
            for place, what in ((0, "accuracy"), (2, "ECE"))
            for row, method in enumerate(("majority", "default"))
        }
        for cell, both in crowds.items()
    }
    page.tell("", "independent annotators", *results.table(rows))
    page.held(*bars(table, error, known, crowds))
    if options.save:
        figures = {
            m: {n: dict(zip(MEASURES, map(float, v), strict=True)) for n, v in s.items()} for m, s in table.items()
        }
        page.save("accuracy", figures)


if __name__ == "__main__":
    main()
