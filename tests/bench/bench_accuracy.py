"""Every combiner on every crowd set with truth: accuracy, log loss, calibration, AUC, seconds.

    python -m tests.bench.bench_accuracy [--methods default vb-ibcc ...] [--sets rte ...] [--draws 5] [--save]

Nobody sees the truth, except in the last table but one, where each of `--draws` seeded draws tells 50 items and the
rest are scored. Ties share the credit; ECE over clip(n / 20, 5, 15) equal-mass bins; majority probabilities are
(v + 1/J) / (m + 1). Sets that share items or people are one group: the mean over groups is that of their own means.
"Plain" is VB-IBCC with pseudo-counts 2 / 1 and no shared prior. Bars are those the default combiner is held to.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt

from hitl import score
from hitl.annotations import Annotations, Floats, Ints
from hitl.evidence import Evidence
from hitl.models import VBIBCC, DefaultCombiner, MajorityVote
from hitl.models.combiner import needs_of
from hitl.models.registry import COMBINERS, combiner
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
SAMPLERS = {"gibbs-ibcc", "ebcc", "dbcc", "edbcc"}
MEASURES = ("accuracy", "log loss", "ECE", "AUC", "seconds")
TOLD = 50
Scores = npt.NDArray[np.float64]
Predictor = Callable[[Evidence], Floats]


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
            score.area_under_curve(probabilities, truth),
            seconds,
        ]
    )


def methods(chosen: Iterable[str] | None) -> dict[str, Predictor]:
    """Name -> probabilities of evidence: those that need labels alone, and crowd-kit's where installed."""

    def ours(made: Any) -> Predictor:
        return lambda evidence: made.fit(evidence).probabilities  # type: ignore[no-any-return]

    elsewhere = {"dbcc", "edbcc"}  # bench_satellite
    found = {"majority": ours(MajorityVote()), "plain": ours(VBIBCC(shared=False)), "default": ours(DefaultCombiner())}
    for name in COMBINERS:
        made = combiner(name)
        if name not in found and name not in elsewhere and not needs_of(made):
            found[name] = ours(made)
    if find_spec("crowdkit"):
        found |= {"crowd-kit DS": crowd_kit("DawidSkene", n_iter=100), "crowd-kit GLAD": crowd_kit("GLAD")}
    return found if chosen is None else {name: found[name] for name in found if name in chosen}


def crowd_kit(name: str, **settings: Any) -> Predictor:
    """A peer: probabilities of one of crowd-kit's aggregators."""

    def predict(evidence: Evidence) -> Floats:
        from crowdkit import aggregation

        a = evidence.annotations
        frame = a.table().to_pandas().rename(columns={"item": "task", "annotator": "worker"})
        found = getattr(aggregation, name)(**settings).fit(frame).probas_
        p: Floats = found.reindex(index=list(a.items), columns=list(a.classes)).fillna(0.0).to_numpy(copy=True)
        p[p.sum(axis=1) == 0] = 1.0
        return p / p.sum(axis=1, keepdims=True)

    return predict


def untold(
    names: Sequence[str], predictors: Mapping[str, Predictor]
) -> tuple[dict[str, dict[str, Scores]], dict[str, float]]:
    """method -> set -> measures, nobody having seen the truth; and set -> standard error of default - majority."""
    table: dict[str, dict[str, Scores]] = {name: {} for name in predictors}
    error = {}
    for name in names:
        evidence = load(name)
        known, truth = evidence.known, evidence.truth
        assert truth is not None
        rights = {}
        for method, predict in predictors.items():
            if method in SAMPLERS and len(evidence.annotations) > SLOW:
                continue
            began = time.perf_counter()
            p = predict(Evidence(evidence.annotations))[known]
            table[method][name] = measure(p, truth[known], time.perf_counter() - began)
            rights[method] = score.right(p, truth[known])
        difference = rights["default"] - rights["majority"]
        error[name] = float(difference.std(ddof=1) / np.sqrt(difference.size))
        print(
            f"{name:22s}" + "".join(f" {m} {table[m][name][0]:.4f}" for m in ("majority", "plain", "default")),
            flush=True,
        )
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


def independent(size: int, accuracy: float, classes: int, seed: int) -> tuple[Evidence, Ints]:
    """Annotators who err independently: 5 labels an item, accuracies Beta-spread about `accuracy`."""
    rng = np.random.default_rng(seed)
    people = max(20, size // 20)
    truth = rng.integers(classes, size=size).astype(np.int32)
    right = rng.beta(10 * accuracy, 10 * (1 - accuracy), size=people)
    annotator = np.concatenate([rng.choice(people, 5, replace=False) for _ in range(size)])
    item = np.repeat(np.arange(size), 5)
    wrong = (truth[item] + rng.integers(1, classes, size=item.size)) % classes
    label = np.where(rng.random(item.size) < right[annotator], truth[item], wrong)
    frame = {"item": item, "annotator": annotator, "label": label}
    return Evidence(Annotations.from_frame(frame, items=range(size), classes=range(classes))), truth


def simulated(seeds: int = 3) -> dict[str, Scores]:
    """ "J size accuracy" -> (2, 5) mean measures of majority vote and the default on independent annotators."""
    table = {}
    for classes in (2, 4, 8):
        for size in (200, 1000, 5000):
            for accuracy in (0.6, 0.75, 0.9):
                found = []
                for seed in range(seeds):
                    evidence, truth = independent(size, accuracy, classes, seed)
                    both = (MajorityVote(), DefaultCombiner())
                    found.append([measure(c.fit(evidence).probabilities, truth) for c in both])
                table[f"J={classes} N={size} accuracy={accuracy}"] = np.mean(found, axis=0)
    return table


def grouped(scores: Mapping[str, Scores]) -> Scores:
    """Mean over groups of the mean over their sets."""
    present = [[scores[name] for name in group if name in scores] for group in GROUPS]
    return np.mean([np.mean(group, axis=0) for group in present if group], axis=0)


def bars(
    table: Mapping[str, Mapping[str, Scores]],
    error: Mapping[str, float],
    known: Mapping[str, Mapping[str, Scores]],
    crowds: Mapping[str, Scores],
) -> list[tuple[str, str, bool]]:
    """(what is asked, what was found, whether it holds) of the default combiner; sets of a group count once."""
    default, majority, plain = (table[m] for m in ("default", "majority", "plain"))
    gap = {name: default[name][0] - majority[name][0] for name in default}
    below = {name: g for name, g in gap.items() if g < -0.005 - 2 * error[name]}
    worst = min(gap, key=lambda name: gap[name])
    means = {name: grouped(scores) for name, scores in (("default", default), ("plain", plain))}
    gain, ece, ece_plain = means["default"][0] - means["plain"][0], means["default"][2], means["plain"][2]
    groups = [[name for name in group if name in default] for group in GROUPS]
    lost = [g for g in groups if g and np.mean([default[n][1] - majority[n][1] for n in g]) > 0]
    share = 1 - len(lost) / sum(1 for g in groups if g)
    worse = sorted(name for name in default if default[name][1] > majority[name][1])
    found = [
        ("on no set below majority by more than 0.5 points + 2 se", f"{below or 'none'}", not below),
        ("on none by more than 1.5 points", f"worst {worst} {100 * gap[worst]:+.2f}", gap[worst] >= -0.015),
        ("at least 0.8 points above plain VB-IBCC, mean over groups", f"{100 * gain:+.2f}", bool(gain >= 0.008)),
        (
            "ECE at most half of plain VB-IBCC's, mean over groups",
            f"{ece:.4f} / {ece_plain:.4f}",
            bool(ece <= 0.5 * ece_plain),
        ),
        (
            "log loss at most majority's on nine groups of ten",
            f"{100 * share:.0f} %; {len(default) - len(worse)} of {len(default)} sets, not {worse}",
            share >= 0.9,
        ),
    ]
    if known:
        averages = ({n: v.mean(axis=0) for n, v in known[m].items()} for m in ("default", "plain"))
        ece, ece_plain = (grouped(average)[2] for average in averages)
        lost = [n for n, v in known["default"].items() if v[:, 1].mean() > known["majority"][n][:, 1].mean()]
        share = 1 - len(lost) / len(known["default"])
        found += [
            (
                "50 known items: ECE at most 0.4 of plain's, mean over groups",
                f"{ece:.4f} / {ece_plain:.4f}",
                bool(ece <= 0.4 * ece_plain),
            ),
            (
                "50 known items: log loss at most majority's on 95 % of sets",
                f"{100 * share:.0f} %; not {lost}",
                share >= 0.95,
            ),
        ]
    excess = {cell: both[1, 2] - both[0, 2] for cell, both in crowds.items()}
    over = {cell: round(float(e), 3) for cell, e in excess.items() if e > 0}
    found.append(
        (
            "independent annotators: ECE no worse than majority's",
            f"{len(excess) - len(over)} of {len(excess)} cells; not {over}",
            not over,
        )
    )
    return found


def report(table: Mapping[str, Mapping[str, Scores]], names: Sequence[str]) -> list[str]:
    """A table for each measure, methods in rows."""
    lines = []
    for place, measure_name in enumerate(MEASURES):
        lines += ["", f"{measure_name:16s}" + "".join(f"{name[:9]:>10s}" for name in names) + "      mean    groups"]
        for method, scores in table.items():
            cells = "".join(f"{scores[name][place]:10.4f}" if name in scores else f"{'-':>10s}" for name in names)
            complete = all(name in scores for name in names)
            mean = (
                f"{np.nanmean([scores[n][place] for n in names]):10.4f}{grouped(scores)[place]:10.4f}"
                if complete
                else ""
            )
            lines.append(f"{method:16s}{cells}{mean}")
    return lines


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables and the bars; with --save also write docs/benchmarks/accuracy.*."""
    options = results.options(
        __doc__, arguments, methods=(), sets=[name for group in GROUPS for name in group], draws=5
    )
    names = [name for name in options.sets if (FOLDER / name).is_dir()]
    base = ["majority", "plain", "default"]
    predictors = methods(base + options.methods if options.methods else None)
    table, error = untold(names, predictors)
    known = told(names, {name: predictors[name] for name in base}, options.draws) if options.draws else {}
    crowds = simulated()
    lines = report(table, names)
    if known:
        lines += ["", "50 known items   accuracy  log loss       ECE   (means over sets)"]
        lines += [
            f"{m:16s}" + "".join(f"{np.mean([v[:, i].mean() for v in s.values()]):10.4f}" for i in range(3))
            for m, s in known.items()
        ]
    lines += ["", "independent annotators          accuracy: majority default    ECE: majority default"]
    lines += [f"{cell:32s}{b[0, 0]:18.3f}{b[1, 0]:8.3f}{b[0, 2]:18.3f}{b[1, 2]:8.3f}" for cell, b in crowds.items()]
    lines += results.held(bars(table, error, known, crowds))
    print("\n".join(lines))
    if options.save:
        figures = {
            m: {n: dict(zip(MEASURES, map(float, v), strict=True)) for n, v in s.items()} for m, s in table.items()
        }
        results.save("accuracy", lines, figures)


if __name__ == "__main__":
    main()
