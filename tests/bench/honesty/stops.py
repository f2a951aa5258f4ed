"""What a target accuracy promises: whether it is there at the stop, and how many labels that takes.

    python -m tests.bench.honesty.stops [--seeds 5] [--sets rte independent ...] [--save]

Stops (`honesty.watched`): real crowds with named annotators and simulated ones (`honesty.crowds`), 600 items with known
truth of each at most; targets .80, .90, .95; without known truth, and with 30 gold items that three annotators answer
each before the first plan. A replay goes to the last recorded label: 30 batches, of at most a label for every third
item. A seed draws the items, the gold items and the simulated crowds.

Every item done (`honesty.finished`): labels of the default beside VB-IBCC's where annotators err independently.

A run is one crowd, seed and target. Shares of runs have the standard error of as many independent ones; runs of one
crowd are alike, so that the crowds are named on which the target was missed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import Any

import numpy as np
import pandas as pd

from hitl.active.replay.stop_rule import GOLD_LABELS
from tests.bench import results
from tests.bench.honesty.crowds import INDEPENDENT, POOLED, REAL, SIMULATED, Source, sources
from tests.bench.honesty.finished import THEIRS, Cell, finished
from tests.bench.honesty.watched import INTERVAL, NEAR, TARGETS, UNKNOWABLE, Row, watched

GOLD = (0, 30)
MISSED, TIMES, TIMES_TO_DONE = 0.05, 1.5, 1.4
"""Share of stops that may be below the target; labels in terms of the oracle's, and of VB-IBCC's."""
ALIKE, LOST = 0.01, 0.10
"""Accuracies at the end that differ by less are taken as equal; one that is so much lower is of no use."""
SEEDS_TO_DONE = {200: 3, 1000: 3, 5000: 1}
"""Items -> seeds of replays until every item is done, at most: large ones take long and differ little."""
ALL = "all"
WHO = ("our", "their")
Bars = list[tuple[str, str, bool]]


def cells(crowds: Sequence[Source]) -> list[Cell]:
    """The independent ones of these, with the first seeds."""
    there = {(source.name, source.seed) for source in crowds if source.kind == INDEPENDENT}
    seeds = sorted({seed for _, seed in there})
    found = [
        Cell(classes, items, accuracy, seed)
        for items in (5000, 1000, 200)
        for classes in (2, 4, 8)
        for accuracy in (0.6, 0.75, 0.9)
        for seed in seeds
        if seed < SEEDS_TO_DONE[items]
    ]
    return [cell for cell in found if (str(cell), cell.seed) in there]


def collected(crowds: Sequence[Source], workers: int) -> tuple[list[Row], list[Row]]:
    """Rows of `watched`, and of `finished`; with a line when a job is done."""
    stops: list[Row] = []
    ends: list[Row] = []
    began = time.perf_counter()
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        jobs: dict[Future[Any], str] = {
            pool.submit(finished, cell, theirs): f"{cell}, {cell.seed}, {theirs}"
            for cell in cells(crowds)
            for theirs in THEIRS
        }
        to_done = set(jobs)
        jobs |= {pool.submit(watched, crowd, gold): f"{crowd.name}, {crowd.seed}" for crowd in crowds for gold in GOLD}
        for done, job in enumerate(as_completed(jobs), 1):
            if job in to_done:
                ends.append(job.result())
            else:
                stops += job.result()
            print(f"{done:4d}/{len(jobs)} {time.perf_counter() - began:6.0f} s  {jobs[job]}", flush=True)
    return stops, ends


# -- stops ---------------------------------------------------------------------------------------------------


def judged(rows: Sequence[Row]) -> pd.DataFrame:
    """One row a run: those of `watched`, and what they say.

    stopped     whether it stopped
    below       whether the true accuracy at the stop was below the target
    reachable   whether the oracle stops
    ratio       labels at the stop in terms of the oracle's; NaN where one of both does not stop
    """
    frame = pd.DataFrame(rows)
    numbers = ["labels", "oracle", "claimed", "sure", "true", "others"]
    frame[numbers] = frame[numbers].astype(float)
    stopped = frame["labels"].notna()
    return frame.assign(
        stopped=stopped,
        below=stopped & (frame["true"] < frame["target"] - NEAR),
        reachable=frame["oracle"].notna(),
        ratio=frame["labels"] / frame["oracle"].clip(lower=1),
    )


def summary(runs: pd.DataFrame) -> dict[str, Any]:
    """Counts and means of some runs; a mean of nothing is None."""
    stops, missed = runs[runs["stopped"]], runs[runs["below"]]
    reachable = runs[runs["reachable"]]
    never = reachable[~reachable["stopped"]]
    ratio = runs["ratio"].dropna()
    return {
        "runs": len(runs),
        "stopped": len(stops),
        "below": len(missed),
        "claimed": _mean(stops["claimed"]),
        "true": _mean(stops["true"]),
        "most missing": _mean((missed["target"] - missed["true"]).nlargest(1)),
        "missed on": {str(name): int(n) for name, n in missed["set"].value_counts().items()},
        "refused": {why: int((runs["why"] == why).sum()) for why in (UNKNOWABLE, INTERVAL)},
        "reachable": len(reachable),
        "never though reachable": {why: int((never["why"] == why).sum()) for why in (UNKNOWABLE, INTERVAL)},
        "never though surely reachable": int((never["end"] >= never["target"] + 0.02).sum()),
        "ratio": _mean(ratio),
        "ratio quantiles": {f"{q:g}": float(ratio.quantile(q)) for q in (0.1, 0.5, 0.9) if len(ratio)},
        "within": int((ratio <= TIMES).sum()),
        "ratios": len(ratio),
    }


def _mean(values: pd.Series[float]) -> float | None:
    return float(values.mean()) if len(values) else None


def tables(runs: pd.DataFrame) -> tuple[list[str], dict[str, Any]]:
    """Lines of a table for no gold items and for some, by kind and by target; and figures: gold -> row -> summary."""
    lines: list[str] = []
    figures: dict[str, Any] = {}
    for gold, of_gold in runs.groupby("gold"):
        kept = figures[f"{gold} gold"] = {name: summary(some) for name, some in _parts(of_gold)}
        lines += [
            "",
            f"{f'{gold} gold items':24s}{'':21s}{'':9s}{'when it stops':19s}   {'it never stops':18s} "
            f"{'labels / oracle':22s} {'truth reached, but it never stops':s}",
            f"{'':24s}{'runs':>7s}{'stopped':>8s}{'below':>6s}{'share':>6s}{'most':>6s} {'claimed':>8s}{'true':>7s}"
            f"   {'unknowable':>11s}{'interval':>9s}  {'mean':>5s}{'10 %':>6s}{'50 %':>6s}{'90 %':>6s}"
            f"   of {'unknowable':>11s}{'interval':>9s}{'by 2 points':>12s}",
            *(_line(name, found) for name, found in kept.items()),
        ]
        missed = kept[ALL]["missed on"]
        told = ", ".join(f"{name} {count}" for name, count in missed.items())
        lines.append(f"below the target on {len(missed)} of {of_gold['set'].nunique()} crowds: {told or 'none'}")
        lines += _beyond_gold(of_gold) if gold else []
    return lines, figures


def _beyond_gold(runs: pd.DataFrame) -> list[str]:
    """Gold items alone can tell the commonest class, which may be right often enough: an oracle asks nothing then."""
    asks = runs["oracle"] > runs["gold"] * GOLD_LABELS
    without = int((runs["ratio"].notna() & ~asks).sum())
    ratio = runs["ratio"][asks].dropna()
    if not without or ratio.empty:
        return []
    return [
        f"without the {without} runs in which the oracle needs no label but those of gold items: labels / oracle "
        f"{ratio.mean():.2f} in the mean, {ratio.quantile(0.9):.2f} at 90 %"
    ]


def _parts(runs: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """All, each target, real ones and simulated ones, each real group and each family."""
    real = runs["kind"] == REAL
    found = [(ALL, runs), *((f"target {target:.2f}", runs[runs["target"] == target]) for target in TARGETS)]
    found += [("real", runs[real]), ("simulated", runs[~real])]
    found += [(f"  {group}", some) for group, some in runs[real].groupby("group", sort=False)]
    found += [(f"  {kind}", runs[runs["kind"] == kind]) for kind in SIMULATED]
    return [(name, some) for name, some in found if len(some)]


def _line(name: str, found: dict[str, Any]) -> str:
    share = found["below"] / found["stopped"] if found["stopped"] else None
    never, q = found["never though reachable"], found["ratio quantiles"]
    return (
        f"{name:24s}{found['runs']:7d}{found['stopped']:8d}{found['below']:6d}{_number(share, 6)}"
        f"{_number(found['most missing'], 6)} {_number(found['claimed'], 8, 3)}{_number(found['true'], 7, 3)}"
        f"   {found['refused'][UNKNOWABLE]:11d}{found['refused'][INTERVAL]:9d}  {_number(found['ratio'], 5)}"
        + "".join(_number(q.get(at), 6) for at in ("0.1", "0.5", "0.9"))
        + f"{found['reachable']:5d} {never[UNKNOWABLE]:11d}{never[INTERVAL]:9d}"
        f"{found['never though surely reachable']:12d}"
    )


def _number(value: float | None, width: int, digits: int = 2) -> str:
    return f"{'-':>{width}s}" if value is None else f"{value:{width}.{digits}f}"


# -- every item done -----------------------------------------------------------------------------------------


def to_done(rows: Sequence[Row]) -> pd.DataFrame:
    """Cells: means over seeds of what `compared` says, and of ratios: labels of the default in terms of the other's.

    ratio           to equal accuracy
    ratio, sound    the same where the other ends less than ten points below the default (NaN: nowhere)
    ratio at done   of all labels, where both end within a point of each other
    ratio asked on  all labels of the default, in terms of the other's, asked on, to the same accuracy; 1, which is more
                    than it is, where the other does not get there with as many labels
    sound, alike, gets there    shares of the seeds
    """
    frame = pd.DataFrame(rows)
    lead = frame["our accuracy"] - frame["their accuracy"]
    ratio, on = frame["our to equal"] / frame["their to equal"].clip(lower=1), frame["asked on"].astype(float)
    made = {
        "asked on": on,
        "ratio": ratio,
        "ratio, sound": ratio.where(lead < LOST),
        "ratio at done": (frame["our labels"] / frame["their labels"]).where(lead.abs() <= ALIKE),
        "ratio asked on": (frame["our labels"] / on.clip(lower=1)).fillna(1.0),
        "sound": (lead < LOST).astype(float),
        "alike": (lead.abs() <= ALIKE).astype(float),
        "gets there": on.notna().astype(float),
    }
    return frame.assign(**made).drop(columns="seed").groupby(["theirs", "cell"], sort=False).mean()


def table_of_cells(means: pd.DataFrame, theirs: str) -> list[str]:
    """A line for each cell."""
    lines = [
        "",
        f"every item done, independent annotators: labels an item and true accuracy, the default beside {theirs}",
        f"{'':26s}{'default':>15s}{theirs:>17s}   {'at equal accuracy':29s} ten points or more below"
        "   both within a point   asked on",
        f"{'':26s}" + f"{'labels':>8s}{'true':>7s}  " * 2 + f"{'true':>7s}{'labels':>8s}{'other':>8s}{'ratio':>6s}"
        f"{'of seeds':>25s}{'of seeds':>16s}{'ratio':>6s}{'gets there':>13s}{'ratio':>6s}",
    ]
    for cell, mean in means.iterrows():
        items = int(str(cell).split("N=")[1].split()[0])
        ends = "".join(f"{mean[f'{who} labels'] / items:8.2f}{mean[f'{who} accuracy']:7.3f}  " for who in WHO)
        equal = "".join(f"{mean[f'{who} to equal'] / items:8.2f}" for who in WHO)
        last = None if np.isnan(mean["ratio at done"]) else float(mean["ratio at done"])
        lines.append(
            f"{cell:26s}{ends}{mean['equal accuracy']:7.3f}{equal}{mean['ratio']:6.2f}{1 - mean['sound']:25.0%}"
            f"{mean['alike']:16.0%}{_number(last, 6)}{mean['gets there']:13.0%}{mean['ratio asked on']:6.2f}"
        )
    return lines


# -- bars ----------------------------------------------------------------------------------------------------


def bars(runs: pd.DataFrame, means: pd.DataFrame | None) -> Bars:
    """(what is asked, what was found, whether it holds), of what there is."""
    found: Bars = []
    for gold, of_gold in runs.groupby("gold"):
        real = of_gold["kind"] == REAL
        for name, some in (("all crowds", of_gold), ("real crowds", of_gold[real]), ("simulated", of_gold[~real])):
            if some["stopped"].any():
                found.append(_rarely_below(f"{gold} gold items, {name}", some))
    with_gold = runs[(runs["gold"] == max(GOLD))]
    if with_gold["ratio"].notna().any():
        found += _near_oracle(with_gold)
    for theirs in THEIRS if means is not None else ():
        found += _near_independent(means.loc[theirs], theirs)
    return found


def _rarely_below(which: str, runs: pd.DataFrame) -> tuple[str, str, bool]:
    stops, below = int(runs["stopped"].sum()), int(runs["below"].sum())
    most = MISSED + 2 * float(np.sqrt(MISSED * (1 - MISSED) / stops))
    asked = f"{which}: at most {MISSED:.0%} of the stops (+ 2 standard errors) below the target"
    share = f"{below / len(runs):.1%} of all {len(runs)} runs"
    told = f"{below / stops:.1%} ({below} of {stops} stops, {share}; at most {most:.1%})"
    return asked, told, below / stops <= most


def _near_oracle(runs: pd.DataFrame) -> Bars:
    ratio = runs["ratio"].dropna()
    worst = runs.loc[ratio.idxmax()]
    mean, within = float(ratio.mean()), int((ratio <= TIMES).sum())
    reachable = int(runs["reachable"].sum())
    asked = f"{max(GOLD)} gold items: at most {TIMES} x the labels of the oracle"
    return [
        (f"{asked}, in the mean of the runs where both stop", f"{mean:.2f} ({len(ratio)} runs)", mean <= TIMES),
        (
            f"{asked}, in each run where the oracle stops",
            f"in {within} of {reachable}; {reachable - len(ratio)} never stop, and the most is {worst['ratio']:.1f} on "
            f"{worst['set']}",
            within == reachable,
        ),
    ]


def _near_independent(means: pd.DataFrame, theirs: str) -> Bars:
    found: Bars = []
    for words, which in (
        ("to equal accuracy", "ratio"),
        (f"to equal accuracy where it ends less than {100 * LOST:.0f} points lower", "ratio, sound"),
        ("to done where both end within a point", "ratio at done"),
        ("to done and its own, asked on, to the same accuracy", "ratio asked on"),
    ):
        ratio = means[which].dropna()
        if len(ratio):
            asked = f"at most {TIMES_TO_DONE} x the labels of {theirs}, {words}"
            mean, most = float(ratio.mean()), float(ratio.max())
            found.append((f"{asked}, mean over {len(ratio)} cells", f"{mean:.2f}", mean <= TIMES_TO_DONE))
            found.append((f"{asked}, in each cell", f"most {most:.2f} at {ratio.idxmax()}", most <= TIMES_TO_DONE))
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables and the bars; with --save also write docs/benchmarks/stops.*."""
    options = results.options(__doc__, arguments, seeds=5, sets=(), workers=1)
    for threads in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS"):
        os.environ[threads] = "1"  # of the workers, which are started anew
    crowds = [source for source in sources(options.sets or None, options.seeds) if source.name != POOLED]
    lines, figures = reported(*collected(crowds, options.workers), options.seeds)
    print("\n".join(lines))
    if options.save:
        results.save("stops", lines, figures, f"honesty.stops --seeds {options.seeds} --save")


def reported(stops: Sequence[Row], ends: Sequence[Row], seeds: int) -> tuple[list[str], dict[str, Any]]:
    """Lines of the page, and its figures."""
    runs, means = judged(stops), to_done(ends) if ends else None
    table, figures = tables(runs)
    asked = bars(runs, means)
    lines = [f"{seeds} seeds, {len(runs):,} runs", *table]
    done: dict[str, Any] = {}
    for theirs in THEIRS if means is not None else ():
        lines += table_of_cells(means.loc[theirs], theirs)
        done[theirs] = {str(cell): dict(mean.dropna()) for cell, mean in means.loc[theirs].iterrows()}
    held = {what: {"found": figure, "holds": bool(ok)} for what, figure, ok in asked}
    return [*lines, *results.held(asked)], {"stops": figures, "every item done": done, "bars": held}


if __name__ == "__main__":
    main()
