"""What a model that learns in the loop saves: human labels to the accuracy of all labels less half a point.

    python -m tests.bench.bench_learn                                 all sets, 10 seeds, logistic
    python -m tests.bench.bench_learn --sets labelme --seeds 3 --model gp
    python -m tests.bench.bench_learn --save                          also docs/benchmarks/learn.*
    python -m tests.bench.bench_learn --noise                         what it costs where features say nothing

The same policy (expected-gain) and combiner (default) with and without `[learn]`, on recorded labels; an answer that
was not recorded is not available. Both are measured against one target: the accuracy of the default with all labels and
no model, less half a point. Music and scenes bring features; texts get TF-IDF and SVD, as `[features] text` makes them.
rte asks what follows from what, of which such features say nothing: there it must do no harm. satellite and optdigits
are real items with twenty simulated annotators, right in 50 to 90 % of cases, errors spread evenly.

Noise: twenty features of standard normal noise an item, on crowds of many kinds, with 15 %, 40 % and all of their
labels. Something differs only where the model was kept though it knows nothing. With independent predictions that would
be one fit of 44 (`informative`); out of fold they are not quite independent, and it is some more.

Seconds are of a process with one thread. A run by `gp` takes a night.

No constant of the learner was chosen on these sets (LOGIT_VARIANCE is derived, folds are the usual five).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import product
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from hitl import score
from hitl.active.registry import policy
from hitl.active.replay.experiments import reordered
from hitl.active.replay.replay import Replay, Track, accuracy_of
from hitl.crew import Budget
from hitl.evidence import Evidence
from hitl.models import DefaultCombiner, Learned
from hitl.models.registry import combiner
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
        loss = [score.log_loss(fit.probabilities[known], recorded.truth[known], 1e-12) for fit in fits]
        found.append((right[0], right[1] - right[0], loss[0], loss[1] - loss[0], bool(fits[1].temperatures)))
    mean = np.mean(found, axis=0)
    keys = ("accuracy", "more", "log loss", "more log loss", "kept")
    return dict(zip(keys, map(float, mean), strict=True)) | {"least": float(np.min([one[1] for one in found]))}


def noise(seeds: int, save: bool) -> None:
    """Print the table of noise as features; `save`: also write docs/benchmarks/learn_noise.*."""
    page, figures = results.Page(), dict[str, Any]()
    for name, share in product(NOISE_SETS, SHARES):
        figures[f"{name} {share}"] = compared(name, share, seeds)
    page.tell(f"noise as features, {seeds} seeds: what is more with a model that learns; `least`: of any seed")
    page.tell(*results.table(figures, 4))
    keys = ("kept", "more", "more log loss")
    kept_in, more, loss = (float(np.mean([one[key] for one in figures.values()])) for key in keys)
    page.tell("", f"the model was kept in {kept_in:.1%} of the fits")
    page.held(
        results.at_least("accuracy with the model less accuracy alone, on average,", more, -0.002, "+.4f"),
        results.at_most("log loss with the model less log loss alone, on average,", loss, 0.01, "+.4f"),
    )
    if save:
        page.save("learn_noise", figures, f"bench_learn --noise --seeds {seeds} --save")


def figures_of(name: str, found: Sequence[Run], steps: int) -> dict[str, Any]:
    """The figures of one set."""
    evidence = SETS[name]()
    full = accuracy_of(combiner("default").fit(replace(evidence, truth=None, features=None)), evidence)
    target = full - max(WITHIN, 1 / int(evidence.known.sum()))
    ends = {which: float(np.mean([tracks[which].accuracy[-1] for tracks, _ in found])) for which in (LEARNING, ALONE)}
    return {
        "items": evidence.annotations.n_items,
        "labels": len(evidence.annotations),
        "target": target,
        "learning": needed([tracks[LEARNING] for tracks, _ in found], target),
        "alone": needed([tracks[ALONE] for tracks, _ in found], target),
        "accuracy at the end": ends[LEARNING],
        "accuracy at the end, alone": ends[ALONE],
        "seconds": float(np.median([seconds for _, seconds in found])),
        "seeds": len(found),
        "batches": steps,
    }


def bars(figures: Mapping[str, Any]) -> list[results.Bar]:
    """At most 0.7 of the labels on average, and 1.05 on each set."""
    found = []
    for which, words in (("first", "first reached"), ("mean", "in the mean"), ("stays", "for good")):
        ratio = {name: kept["learning"][which] / kept["alone"][which] for name, kept in figures.items()}
        mean = float(np.mean(list(ratio.values())))
        found.append(results.at_most(f"{words}: share of the labels alone, on average,", mean, 0.7, ".2f"))
        found.append(results.at_most_each(f"{words}: share of the labels alone", ratio, 1.05))
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    options = results.options(
        __doc__, arguments, sets=list(SETS), seeds=10, steps=50, model="logistic", workers=2, noise=False
    )
    if options.noise:
        return noise(options.seeds, options.save)
    page, figures, rows = results.Page(), {}, {}
    for name in options.sets:
        jobs = [Job(name, seed, options.model, options.steps) for seed in range(options.seeds)]
        runs = results.side_by_side(run, jobs, options.workers, one_thread)
        kept = figures[name] = figures_of(name, runs, options.steps)
        rows[name] = {key: kept[key] for key in ("items", "labels", "target", "seconds", "seeds", "batches")}
        for which in ("first", "mean", "stays"):
            ours, alone = kept["learning"][which], kept["alone"][which]
            rows[name] |= {which: ours, f"{which}, alone": alone, f"{which}, ratio": ours / alone}
    page.tell(f"expected-gain and default, with and without {options.model}: labels to the target")
    page.tell(*results.table(rows))
    page.held(*bars(figures))
    if options.save:
        title = "learn" if options.model == "logistic" else f"learn_{options.model.replace('-', '_')}"
        made = f"bench_learn --model {options.model} --seeds {options.seeds} --steps {options.steps} --save"
        page.save(title, figures, made)


if __name__ == "__main__":
    main()
