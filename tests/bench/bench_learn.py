"""What a model that learns in the loop saves: human labels to the accuracy of all labels less half a point.

    python -m tests.bench.bench_learn                                 all sets, 10 seeds, logistic
    python -m tests.bench.bench_learn --sets labelme --seeds 3 --model gp
    python -m tests.bench.bench_learn --save                          also docs/benchmarks/learn.*
    python -m tests.bench.bench_learn --keep --save --seeds 20        only the seeds that are not saved yet
    python -m tests.bench.bench_learn --noise                         what it costs where features say nothing

The same policy (expected-gain) and combiner (default) with and without `[learn]`, on recorded labels; an answer that
was not recorded is not available. Both are measured against one target: the accuracy of the default with all labels and
no model, less half a point. Music and scenes bring features; texts get TF-IDF and SVD, as `[features] text` makes them.
rte asks what follows from what, of which such features say nothing: there it must do no harm. satellite and optdigits
are real items with twenty simulated annotators, right in 50 to 90 % of cases, errors spread evenly.

Noise: twenty features of standard normal noise an item, on crowds of many kinds, with 15 %, 40 % and all of their
labels. Something differs only where the model was kept though it knows nothing. With independent predictions that would
be one fit of 44 (`informative`); out of fold they are not quite independent, and it is some more.

With --keep a run that takes a night can take several: what was saved of the same seeds and batches is not made again,
and other sets stay in the table. Each seed is saved when it is done. Seconds are of a process with one thread.

No constant of the learner was chosen on these sets (LOGIT_VARIANCE is derived, folds are the usual five).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from hitl import score
from hitl.active.registry import policy
from hitl.active.replay.experiments import band, reordered
from hitl.active.replay.replay import Replay, Track, accuracy_of
from hitl.crew import Budget
from hitl.evidence import Evidence
from hitl.models import DefaultCombiner, Learned
from hitl.models.registry import combiner
from hitl.report.contents import Curve
from hitl.report.replay import ReplayReport, write_svg
from tests.bench import results
from tests.reference_data import crowd, simulated_crowd, with_features

SETS: Mapping[str, Callable[[], Evidence]] = {
    "music_genre": lambda: with_features("music_genre"),
    "labelme": lambda: with_features("labelme"),
    "sentence_polarity": lambda: with_features("sentence_polarity"),
    "rte": lambda: with_features("rte"),
    "satellite": lambda: simulated_crowd("satellite", 1000),
    "optdigits": lambda: simulated_crowd("optdigits", 1000),
}
NOISE_SETS = (
    "bluebirds",
    "rte",
    "tweet_sentiment",
    "weather_amt",
    "weather_cf",
    "face_sentiment",
    "music_genre",
    "labelme",
    "valence",
    "wsd",
    "sentence_polarity_amt",
    "reuters_crowd",
)
SHARES = (0.15, 0.4, 1.0)
FIGURES = ("more", "more log loss", "kept")

WITHIN = 0.005
ALONE, LEARNING = "annotators alone", "with a model that learns"


@dataclass(frozen=True)
class Job:
    """One pair of replays; plain values, for it travels to other processes."""

    data: str
    seed: int
    model: str
    steps: int


Run = tuple[dict[str, Track], float]
"""The tracks of both, and the processor seconds of the one that learns."""


def one_thread() -> None:
    """Several processes share the machine: libraries with a thread for each processor would wait for one another."""
    threadpool_limits(1)
    with suppress(ImportError):
        import_module("torch").set_num_threads(1)


def run(job: Job) -> Run:
    """Replay both."""
    rng = np.random.default_rng([job.seed, list(SETS).index(job.data)])
    evidence = reordered(SETS[job.data](), rng)
    batch = -(-len(evidence.annotations) // job.steps)
    budget = Budget(open_questions=batch, target_confidence=1.0, min_labels=0, max_labels=2**31 - 1)
    tracks: dict[str, Track] = {}
    for name, judge in ((ALONE, combiner("default")), (LEARNING, Learned(model=job.model))):
        began = time.process_time()
        found = Replay(judge, policy("expected-gain"), budget).run(evidence, job.seed)
        tracks[name] = Track(found.labels, found.cost, found.accuracy, found.done)
        seconds = time.process_time() - began
    return tracks, seconds


def needed(tracks: Sequence[Track], target: float) -> dict[str, float]:
    """Labels at which the target is first reached (median), reached in the mean, and reached for good (median)."""
    total = int(tracks[0].labels[-1])
    grid = np.unique(np.concatenate([track.labels for track in tracks]))
    mean = np.mean([track.accuracy[np.searchsorted(track.labels, grid, side="right") - 1] for track in tracks], axis=0)
    first = [_first(track.labels, track.accuracy, target, total) for track in tracks]
    stays = [(track.to_reach(target) or (total, 0.0))[0] for track in tracks]
    return {
        "first": float(np.median(first)),
        "mean": float(_first(grid, mean, target, total)),
        "stays": float(np.median(stays)),
    }


def _first(labels: Any, accuracy: Any, target: float, total: int) -> int:
    reached = np.flatnonzero(accuracy >= target - 1e-12)
    return int(labels[reached[0]]) if reached.size else total


def compared(name: str, share: float, seeds: int) -> dict[str, Any]:
    """Accuracy and log loss of annotators alone, what is more with the model, and how often it was kept."""
    recorded = crowd(name)
    assert recorded.truth is not None
    known, found = recorded.known, []
    for seed in range(seeds):
        rng = np.random.default_rng([seed, NOISE_SETS.index(name)])
        there = rng.random(len(recorded.annotations)) < share
        noise_nd = rng.normal(size=(recorded.annotations.n_items, 20))
        bare = replace(recorded, annotations=recorded.annotations.select(there), truth=None)
        fits = DefaultCombiner().fit(bare), Learned().fit(replace(bare, features=noise_nd))
        right = [score.accuracy(fit.probabilities[known], recorded.truth[known]) for fit in fits]
        loss = [
            -float(np.mean(np.log(np.maximum(fit.probabilities[known, recorded.truth[known]], 1e-12)))) for fit in fits
        ]
        found.append((right[0], right[1] - right[0], loss[0], loss[1] - loss[0], bool(fits[1].temperatures)))
    mean = np.mean(found, axis=0)
    keys = ("accuracy", "more", "log loss", "more log loss", "kept")
    return dict(zip(keys, map(float, mean), strict=True)) | {"least": float(np.min([one[1] for one in found]))}


def noise(seeds: int, save: bool) -> None:
    """Print the table of noise as features; `save`: also write docs/benchmarks/learn_noise.*."""
    lines = [
        f"noise as features, {seeds} seeds: what is more with a model that learns",
        f"{'set':24}{'labels':>8}{'accuracy':>10}{'more':>9}{'worst':>9}{'log loss':>10}{'more':>9}{'kept':>7}",
    ]
    print("\n".join(lines))
    figures: dict[str, Any] = {}
    for name in NOISE_SETS:
        for share in SHARES:
            kept = figures[f"{name} {share}"] = compared(name, share, seeds)
            lines.append(
                f"{name:24}{share:8.0%}{kept['accuracy']:10.4f}{kept['more']:+9.4f}{kept['least']:+9.4f}"
                f"{kept['log loss']:10.4f}{kept['more log loss']:+9.4f}{kept['kept']:7.0%}"
            )
            print(lines[-1], flush=True)
    more, loss, kept_in = (float(np.mean([one[key] for one in figures.values()])) for key in FIGURES)
    lines.append(f"\nthe model was kept in {kept_in:.1%} of the fits")
    asked = [
        ("accuracy on average: at most 0.002 lower", f"{more:+.4f}", more >= -0.002),
        ("log loss on average: at most 0.01 higher", f"{loss:+.4f}", loss <= 0.01),
    ]
    told = results.held(asked)
    print("\n".join(told))
    if save:
        results.save("learn_noise", [*lines, *told], figures, f"bench_learn --noise --seeds {seeds} --save")


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table; with --save also write docs/benchmarks/learn.*."""
    options = results.options(
        __doc__, arguments, sets=list(SETS), seeds=10, steps=50, model="logistic", workers=2, noise=False, keep=False
    )
    if options.noise:
        return noise(options.seeds, options.save)
    title = "learn" if options.model == "logistic" else f"learn_{options.model.replace('-', '_')}"
    figures: dict[str, Any] = earlier(title) if options.keep else {}
    for name in options.sets:
        kept = runs_of(figures.get(name, {}), options.steps)
        jobs = [Job(name, seed, options.model, options.steps) for seed in range(options.seeds) if seed not in kept]
        with ProcessPoolExecutor(options.workers, get_context("spawn"), one_thread) as pool:
            waiting = {pool.submit(run, job): job.seed for job in jobs}
            for future in as_completed(waiting):  # after each seed: a long run that ends early has not been for nothing
                kept[waiting[future]] = future.result()
                figures[name] = figures_of(name, kept, options.steps)
                if options.save:
                    saved(title, name, kept, figures, options)
        print(row(name, figures[name]), flush=True)
    print("\n".join(results.held(bars(figures))))


def saved(
    title: str, name: str, kept: Mapping[int, Run], figures: Mapping[str, Any], options: argparse.Namespace
) -> None:
    """Write the table of all sets, and the picture of one."""
    rows = {one: figures[one] for one in SETS if one in figures}
    model = options.model
    made = f"bench_learn --model {model} --seeds {options.seeds} --steps {options.steps} --keep --save"
    head = f"{'set':20}{'N':>6}{'labels':>8}{'target':>8}"
    lines = [
        f"expected-gain and default, with and without {model}",
        head
        + "".join(f"  {what:>9}{'alone':>8}{'ratio':>7}" for what in ("first", "in mean", "for good"))
        + "  cpu s  seeds  batches",
        *(row(one, found) for one, found in rows.items()),
    ]
    picture(title, name, list(kept.values()), model, made)
    results.save(title, [*lines, *results.held(bars(rows))], rows, made)


def earlier(title: str) -> dict[str, Any]:
    """The figures that were saved."""
    return results.load(title) if (results.FOLDER / f"{title}.json").exists() else {}


def runs_of(saved: Mapping[str, Any], steps: int) -> dict[int, Run]:
    """The runs that were saved of so many batches, by seeds."""
    if saved.get("batches") != steps or "runs" not in saved:
        return {}
    return {
        int(seed): ({which: _track(*one[which]) for which in (ALONE, LEARNING)}, one["seconds"])
        for seed, one in saved["runs"].items()
    }


def _track(labels: Sequence[int], accuracy: Sequence[float]) -> Track:
    """As it was saved: labels cost one each, and how many items were done is not kept."""
    return Track(np.array(labels), np.array(labels, float), np.array(accuracy), np.zeros(len(labels), np.int64))


def figures_of(name: str, kept: Mapping[int, Run], steps: int) -> dict[str, Any]:
    """What is kept of one set."""
    found = [kept[seed] for seed in sorted(kept)]
    evidence = SETS[name]()
    full = accuracy_of(combiner("default").fit(replace(evidence, truth=None, features=None)), evidence)
    target = full - max(WITHIN, 1 / int(evidence.known.sum()))
    return {
        "items": evidence.annotations.n_items,
        "labels": len(evidence.annotations),
        "target": target,
        "learning": needed([tracks[LEARNING] for tracks, _ in found], target),
        "alone": needed([tracks[ALONE] for tracks, _ in found], target),
        "accuracy at the end": float(np.mean([tracks[LEARNING].accuracy[-1] for tracks, _ in found])),
        "accuracy at the end, alone": float(np.mean([tracks[ALONE].accuracy[-1] for tracks, _ in found])),
        "seconds": float(np.median([seconds for _, seconds in found])),
        "seeds": len(found),
        "batches": steps,
        "runs": {
            str(seed): {which: [track.labels.tolist(), track.accuracy.tolist()] for which, track in tracks.items()}
            | {"seconds": seconds}
            for seed, (tracks, seconds) in sorted(kept.items())
        },
    }


def row(name: str, kept: Mapping[str, Any]) -> str:
    """One line of the table."""
    parts = f"{name:20}{kept['items']:6,}{kept['labels']:8,}{kept['target']:8.1%}"
    for which in ("first", "mean", "stays"):
        ours, theirs = kept["learning"][which], kept["alone"][which]
        parts += f"  {ours:9,.0f}{theirs:8,.0f}{ours / theirs:7.2f}"
    seconds = "-" if kept["seconds"] is None else f"{kept['seconds']:.0f}"
    return f"{parts}{seconds:>7}{kept['seeds']:7}{kept['batches']:9}"


def bars(figures: Mapping[str, Any]) -> list[tuple[str, str, bool]]:
    """The bars: 0.7 of the labels on average, 1.05 on the worst set."""
    found = []
    for which, words in (("first", "first reached"), ("mean", "in the mean"), ("stays", "for good")):
        ratio = {name: kept["learning"][which] / kept["alone"][which] for name, kept in figures.items()}
        mean, worst = float(np.mean(list(ratio.values()))), max(ratio, key=lambda name: ratio[name])
        found.append((f"{words}: at most 0.7 of the labels on average", f"{mean:.2f}", mean <= 0.7))
        found.append((f"{words}: at most 1.05 on each set", f"{ratio[worst]:.2f} on {worst}", ratio[worst] <= 1.05))
    return found


def picture(title: str, name: str, found: Sequence[Run], model: str, command: str) -> None:
    """Accuracy against labels of both, with bands over the seeds."""
    curves = []
    for which in (ALONE, LEARNING):
        one = band([tracks[which] for tracks, _ in found])
        curves.append(Curve(which, one.x, one.middle, one.low, one.high))
    report = ReplayReport(
        title=f"{name}: accuracy against labels",
        subtitle=f"{model}; {len(found)} seeds",
        by_labels=tuple(curves),
        by_cost=(),
        rows=(),
        band="10th to 90th in a hundred of the seeds",
        command=f"python -m tests.bench.{command}",
    )
    write_svg(report, Path(results.FOLDER) / f"{title}_{name}.svg")


if __name__ == "__main__":
    main()
