"""Whether the default combiner says how sure it may be, on crowds that it was not made for: a protocol.

    python -m tests.bench.bench_honesty [--seeds 5] [--sets rte independent ...] [--peers] [--save]

Real crowds and simulated ones (`honesty.crowds`), whole and with 1.2, 2, 3 and 5 labels an item left at random; nobody
sees the truth, except in "30 known". Crowds of less than 1,000 known items are thinned 20 times. A set counts once:
figures are means over its seeds, then over sets. `gap` is accuracy less majority vote's on the same labels, in points;
`over` is confidence less accuracy; ECE over clip(n / 20, 5, 15) equal-mass bins. `--peers` instead compares
crowd-kit's aggregators with the default on what they were given (`honesty.peers`; `make bench-peers`).

It cannot be tuned to: the fractions and seeds are fixed, what holds must hold at every one of them, and the one
constant that was chosen on these sets, EXPECTED, is chosen again without each group and scored on that group. Beside
that: how often the intervals of projects and of annotators hold what is true (`honesty.intervals`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import Any

import numpy as np
import pandas as pd

from tests.bench import results
from tests.bench.honesty import peers
from tests.bench.honesty.crowds import INDEPENDENT, REAL, SIMULATED, THINNED, WHOLE, Source, often, sources
from tests.bench.honesty.intervals import covered
from tests.bench.honesty.intervals import table as table_of_intervals
from tests.bench.honesty.left_out import left_out
from tests.bench.honesty.scored import FIGURES, KNOWN, METHODS, TEMPERED, Scores, told, untold

LABELS = (*(f"{labels:g}" for labels in THINNED), WHOLE, KNOWN)
THIN = ("1.2", "2", "3")
Bars = list[tuple[str, str, bool]]


def collected(crowds: Sequence[Source], draws: int, workers: int) -> Scores:
    """All scores, worked out side by side, with a line when a crowd is done."""
    found, began = Scores(), time.perf_counter()
    named = {source.name: source for source in crowds if source.kind == REAL}
    asked = [Source(REAL, source.group, source.name, draw) for source in named.values() for draw in range(draws)]
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        jobs: dict[Future[Scores], str] = {
            pool.submit(untold, source): f"{source.name}, seed {source.seed}" for source in crowds
        }
        jobs |= {pool.submit(told, source): f"{source.name}, {KNOWN}, draw {source.seed}" for source in asked}
        for done, job in enumerate(as_completed(jobs), 1):
            found.add(job.result())
            print(f"{done:4d}/{len(jobs)} {time.perf_counter() - began:6.0f} s  {jobs[job]}", flush=True)
    return found


def by_set(frame: pd.DataFrame) -> pd.DataFrame:
    """Means over seeds: index (kind, labels, method, set), columns FIGURES and `gap`; the grid of rho left out."""
    methods = frame[~frame["method"].isin(list(TEMPERED))]
    return methods.groupby(["kind", "labels", "method", "set"])[[*FIGURES, "gap"]].mean()


def tables(sets: pd.DataFrame) -> tuple[list[str], dict[str, Any]]:
    """Lines of a table for each kind of crowd, and its figures: kind -> labels -> method -> mean of each figure."""
    lines, figures = [], {}
    for kind in (REAL, KNOWN, *SIMULATED):
        if kind not in sets.index.get_level_values("kind"):
            continue
        lines += ["", f"{kind:15s}{'method':18s}sets accuracy    gap  log loss     ECE    over   lowest gaps"]
        kept: dict[str, dict[str, dict[str, float]]] = {}
        for labels, method in _cells(sets.loc[kind]):
            here = sets.loc[(kind, labels, method)]
            mean = here.mean()
            lowest = ", ".join(f"{name} {100 * gap:+.1f}" for name, gap in here["gap"].nsmallest(3).items())
            lines.append(
                f"{labels:15s}{method:18s}{len(here):4d}{mean['accuracy']:9.4f}{100 * mean['gap']:+7.2f}"
                f"{mean['log loss']:10.4f}{mean['ECE']:8.4f}{mean['over']:+8.3f}   {lowest}".replace(
                    "+nan", "   -"
                ).replace("nan", "  -")
            )
            of_method = {name: float(value) for name, value in mean.items() if not np.isnan(value)}
            kept.setdefault(labels, {})[method] = of_method | {"sets": len(here)}
        figures[kind] = kept
    return lines, figures


def _cells(of_kind: pd.DataFrame) -> list[tuple[str, str]]:
    there = set(of_kind.index.droplevel("set"))
    return [(labels, method) for labels in LABELS for method in METHODS if (labels, method) in there]


# -- bars ----------------------------------------------------------------------------------------------------


def bars(frame: pd.DataFrame) -> Bars:
    """(what is asked, what was found, whether it holds) of the default combiner, of what there is."""
    sets = by_set(frame)
    kinds = set(sets.index.get_level_values("kind"))
    found: Bars = []
    if REAL in kinds:
        found += thin(sets.loc[REAL]) + whole(sets.loc[REAL])
    if KNOWN in kinds:
        name, gap = f"{KNOWN}: nowhere more than 0.5 points below majority on the rest", _gap(sets, KNOWN, KNOWN)
        found.append(_nowhere(name, gap, 0.005))
    if INDEPENDENT in kinds:
        found += without_shared_errors(sets.loc[(INDEPENDENT, WHOLE)])
    return found + unbeaten(frame) if REAL in kinds else found


def thin(sets: pd.DataFrame) -> Bars:
    """Real crowds with few labels an item."""
    found: Bars = []
    for labels in (labels for labels in THIN if labels in sets.index.get_level_values("labels")):
        mean = sets.loc[labels].groupby("method").mean()
        for figure, other in (("log loss", "weighted-majority"), ("ECE", "majority")):
            ours, theirs = mean.loc["default", figure], mean.loc[other, figure]
            asked = f"{labels} labels an item: {figure} at most {other}'s"
            found.append((asked, f"{ours:.4f} / {theirs:.4f}", bool(ours <= theirs)))
        gap = sets.loc[(labels, "default"), "gap"]
        found.append(_nowhere(f"{labels} labels an item: nowhere more than 1 point below majority", gap, 0.01))
    return found


def whole(sets: pd.DataFrame) -> Bars:
    """Real crowds with all of their labels."""
    here = sets.loc[(WHOLE, "default")]
    error, right = float(here["ECE"].mean()), float(here["accuracy"].mean())
    return [
        (f"all labels: mean ECE at most 0.066 ({len(here)} sets)", f"{error:.4f}", error <= 0.066),
        (f"all labels: mean accuracy at least 0.8387 ({len(here)} sets)", f"{right:.4f}", right >= 0.8387),
        _nowhere("all labels: nowhere more than 1.2 points below majority", here["gap"], 0.012),
    ]


def without_shared_errors(sets: pd.DataFrame) -> Bars:
    """Cells of annotators who err independently, with all labels."""
    ours, bayes = sets.loc["default"], sets.loc["vb-ibcc"]
    error, over = float(ours["ECE"].mean()), float(ours["over"].abs().mean())
    loss, least = float(ours["log loss"].mean()), float(bayes["log loss"].mean())
    return [
        (f"independent: mean ECE at most 0.03 ({len(ours)} cells)", f"{error:.4f}", error <= 0.03),
        ("independent: mean |confidence - accuracy| at most 0.02", f"{over:.4f}", over <= 0.02),
        ("independent: log loss at most VB-IBCC's + 0.005", f"{loss:.4f} / {least:.4f}", loss <= least + 0.005),
    ]


def unbeaten(frame: pd.DataFrame) -> Bars:
    """Whether the default is below every other method in mean log loss and ECE, on the sets and seeds of the other."""
    real = frame[(frame["kind"] == REAL) & ~frame["method"].isin(list(TEMPERED))]
    same = ["labels", "set", "seed"]
    ours = real[real["method"] == "default"].set_index(same)[["log loss", "ECE"]].add_suffix(" of default")
    paired = real[real["method"] != "default"].dropna().join(ours, on=same)
    found: Bars = []
    for labels in (labels for labels in LABELS if labels in set(paired["labels"])):
        means = paired[paired["labels"] == labels].groupby(["method", "set"]).mean(numeric_only=True)
        mean = means.groupby("method").mean()
        for figure in ("log loss", "ECE"):
            not_below = mean[mean[f"{figure} of default"] >= mean[figure]]
            pairs = zip(not_below.index, not_below[f"{figure} of default"], not_below[figure], strict=True)
            told = ", ".join(f"{method} {ours:.4f} / {theirs:.4f}" for method, ours, theirs in pairs)
            which = "all labels" if labels == WHOLE else f"{labels} labels an item"
            asked = f"{which}: mean {figure} below that of each of {len(mean)} other methods"
            found.append((asked, f"not {told}" if told else "all", not told))
    return found


def _gap(sets: pd.DataFrame, kind: str, labels: str) -> pd.Series[float]:
    return sets.loc[(kind, labels, "default"), "gap"]


def _nowhere(asked: str, gap: pd.Series[float], allowed: float) -> tuple[str, str, bool]:
    """Whether no set is more than `allowed` below majority vote; those that are, or the lowest."""
    below = gap[gap < -allowed - 1e-9].sort_values()
    named = below if len(below) else gap.nsmallest(1)
    told = ", ".join(f"{name} {100 * points:+.2f}" for name, points in named.items())
    return asked, told if len(below) else f"lowest {told}", not len(below)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables and the bars; with --save also write docs/benchmarks/honesty.*."""
    options = results.options(__doc__, arguments, seeds=5, draws=5, sets=(), peers=False, workers=2)
    if options.peers:
        return beside_peers(options.sets or None, options.workers, options.save)
    found = collected(often(sources(options.sets or None, options.seeds)), options.draws, options.workers)
    frame = found.frame()
    lines = [f"{options.seeds} seeds, {len(frame):,} scores"]
    table, figures = tables(by_set(frame))
    without, chosen = left_out(frame)
    asked = bars(frame)
    with ProcessPoolExecutor(options.workers, get_context("spawn")) as pool:
        intervals = [row for rows in pool.map(covered, sources(options.sets or None, options.seeds)) for row in rows]
    lines += [*table, *table_of_intervals(intervals), *without, *results.held(asked)]
    print("\n".join(lines))
    if options.save:
        held = {what: {"found": figure, "holds": bool(ok)} for what, figure, ok in asked}
        command = f"bench_honesty --seeds {options.seeds} --save"
        results.save("honesty", lines, {"tables": figures, "left out": chosen, "bars": held}, command)


def beside_peers(sets: Sequence[str] | None, workers: int, save: bool) -> None:
    """Print the tables of the peers; `save`: also write docs/benchmarks/honesty_peers.*."""
    asked = peers.installed()
    if not asked:
        raise SystemExit("crowd-kit is not installed; make bench-peers brings an environment that has it")
    crowds = [source for source in sources(sets, 1) if source.kind == REAL]
    found, began = peers.Beside(), time.perf_counter()
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        jobs = {pool.submit(peers.beside, source, asked): source.name for source in crowds}
        for done, job in enumerate(as_completed(jobs), 1):
            found.add(job.result())
            print(f"{done:4d}/{len(jobs)} {time.perf_counter() - began:6.0f} s  {jobs[job]}", flush=True)
    table, figures, better = peers.compared(peers.paired(found.rows))
    lines = [
        "crowd-kit's aggregators; beside each mean the default's on the same crowds, and on how many that is better;",
        "a truth that is given probability 0 costs 34.5 nats",
        *table,
        *peers.absences(found.absent),
        *results.held(better),
    ]
    print("\n".join(lines))
    if save:
        held = {what: {"found": figure, "holds": bool(ok)} for what, figure, ok in better}
        results.save("honesty_peers", lines, {"tables": figures, "bars": held}, "bench_honesty --peers --save")


if __name__ == "__main__":
    main()
