"""Replay several strategies several times, with the same annotators and seeds, in several processes.

The seed of each trial is a child of SeedSequence(seed). So its draws do not depend on the number of workers, trials and
strategies, and in trial s all strategies meet the same annotators.
"""

from __future__ import annotations

import math
import os
import signal
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, fields, is_dataclass, replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from threading import Thread
from typing import Any, Protocol

import numpy as np

from hitl.active.replay.answers import Answers, RecordedAnswers
from hitl.active.replay.replay import Replay, Track
from hitl.active.replay.simulated_annotators import Group, SimulatedAnswers, SimulatedCrew
from hitl.annotations import Floats
from hitl.errors import BadEvidence, IgnoredEvidence
from hitl.evidence import Evidence

FEW = 10
"""Number of seeds below which a band spans lowest to highest; otherwise it spans the 10th to 90th percentile."""

POINTS = 200
"""Number of points at which curves are compared."""

Job = tuple[str, int]
"""(name of the strategy, number of the seed)"""

Call = tuple["Source", Replay, np.random.SeedSequence]
"""Arguments of `one_trial`."""


class Source(Protocol):
    """Source of a replay's annotators."""

    def begin(self, rng: np.random.Generator, replay: Replay) -> tuple[Answers, Evidence, Replay]:
        """Return annotators who have not been asked yet, the evidence to add answers to, and the replay for them."""
        ...


@dataclass(frozen=True, eq=False)
class Recording:
    """Recorded answers of annotators.

    The seed breaks ties: it draws the order of items and annotators, and the order in which an anonymous pool answers.

    Example:
        >>> import numpy as np
        >>> from hitl.active import Recording, Replay, run_trials
        >>> from hitl.models import MajorityVote
        >>> from hitl.testing import crowd
        >>> evidence, _ = crowd(np.random.default_rng(0), n_items=20, known=1.0)
        >>> tracks = run_trials(Recording(evidence), {"gain": Replay(MajorityVote())}, seeds=2)
        >>> [len(evidence.annotations) - int(track.labels[-1]) for track in tracks["gain"]]  # not asked
        [0, 0]
    """

    evidence: Evidence

    def begin(self, rng: np.random.Generator, replay: Replay) -> tuple[Answers, Evidence, Replay]:
        """Return the recording, with nothing revealed."""
        evidence = reordered(self.evidence, rng)
        return RecordedAnswers(evidence.annotations, rng), evidence, replay


@dataclass(frozen=True, eq=False)
class Simulation:
    """Simulated annotators, drawn again for each seed, on items whose truth is known.

    Attributes:
        evidence: items with their truth and, if any, features or probabilities of models; its labels are ignored.
        groups: groups of annotators.
        correlation: how strongly annotators agree on which items are hard, in [0, 1).

    Example:
        >>> import numpy as np
        >>> from hitl.active import Group, Replay, Simulation, run_trials
        >>> from hitl.models import MajorityVote
        >>> from hitl.testing import crowd
        >>> evidence, _ = crowd(np.random.default_rng(0), n_items=20, known=1.0)
        >>> people = (Group("good", 4, accuracy=(0.7, 0.9)), Group("random", 1))
        >>> tracks = run_trials(Simulation(evidence, people), {"gain": Replay(MajorityVote(), most_labels=40)}, seeds=2)
        >>> [int(track.labels[-1]) for track in tracks["gain"]]
        [40, 40]
    """

    evidence: Evidence
    groups: tuple[Group, ...]
    correlation: float = 0.0

    def begin(self, rng: np.random.Generator, replay: Replay) -> tuple[Answers, Evidence, Replay]:
        """Draw a new crew: its confusion matrices and costs, and when annotators join."""
        annotations, truth = self.evidence.annotations, self.evidence.truth
        assert truth is not None
        if not self.evidence.known.all():
            row = int(np.argmin(self.evidence.known))
            raise BadEvidence(f"simulation: item {annotations.items[row]!r} has no truth; expected one for every item")
        people = SimulatedCrew.draw(self.groups, annotations.n_classes, rng, self.correlation)
        seed = int(rng.integers(2**63))
        answers = SimulatedAnswers(people, truth, annotations.items, annotations.classes, seed)
        known = replace(self.evidence, annotations=answers.revealed())
        return answers, known, replace(replay, responses=replace(replay.responses, joins=people.joins))


def reordered(evidence: Evidence, rng: np.random.Generator) -> Evidence:
    """Permute items and annotators, which affects only how ties are broken."""
    annotations = evidence.annotations
    item, person = rng.permutation(annotations.n_items), rng.permutation(annotations.n_annotators)
    place_n, place_k = np.argsort(item).astype(np.int32), np.argsort(person).astype(np.int32)
    moved = replace(
        annotations,
        item=place_n[annotations.item],
        annotator=place_k[annotations.annotator],
        items=tuple(annotations.items[n] for n in item),
        annotators=tuple(annotations.annotators[k] for k in person),
        anonymous=None if annotations.anonymous is None else int(place_k[annotations.anonymous]),
    )
    assert evidence.truth is not None
    return Evidence(
        moved,
        {name: rows[item] for name, rows in evidence.probabilities.items()},
        None if evidence.features is None else evidence.features[item],
        evidence.truth[item],
        None if evidence.sequence is None else evidence.sequence[item],
        None if evidence.graph is None else evidence.graph.tocsr()[item][:, item],
    )


@dataclass(frozen=True, eq=False)
class Band:
    """Accuracy of one strategy over its seeds: (P,) median, low and high at (P,) numbers of labels, or costs, `x`."""

    x: Floats
    middle: Floats
    low: Floats
    high: Floats


def run_trials(
    source: Source,
    replays: Mapping[str, Replay],
    seeds: int = 5,
    seed: int = 0,
    workers: int = 1,
    on_done: Callable[[int, int], None] | None = None,
    executor: Executor | None = None,
) -> dict[str, tuple[Track, ...]]:
    """Return strategy -> a track for each seed, in order. `on_done(replays done, total)` is called after each replay.

    `executor`, if given, replaces `workers`: one of `concurrent.futures`, or `get_executor()` of a Dask client.

    Example:
        >>> import numpy as np
        >>> from hitl.active import Evenly, Recording, Replay, run_trials
        >>> from hitl.models import MajorityVote
        >>> from hitl.testing import crowd
        >>> evidence, _ = crowd(np.random.default_rng(0), n_items=20, known=1.0)
        >>> strategies = {"gain": Replay(MajorityVote()), "even": Replay(MajorityVote(), Evenly())}
        >>> tracks = run_trials(Recording(evidence), strategies, seeds=2)
        >>> {name: len(seeds) for name, seeds in tracks.items()}
        {'gain': 2, 'even': 2}
    """
    children = np.random.SeedSequence(seed).spawn(seeds)
    # Interleave strategies, because they differ in speed.
    calls = {(name, rank): (source, replays[name], child) for rank, child in enumerate(children) for name in replays}
    tracks: dict[Job, Track] = {}
    with ExitStack() as stack:
        if executor is None and workers <= 1:
            finished = ((job, one_trial(*call)) for job, call in calls.items())
        else:
            pool = executor or stack.enter_context(_processes(workers))
            futures = {pool.submit(_single_threaded_trial, *call): job for job, call in calls.items()}
            if executor is not None:
                stack.callback(_cancel, futures)
            finished = ((futures[future], future.result()) for future in as_completed(futures))
        for job, track in finished:
            tracks[job] = track
            if on_done:
                on_done(len(tracks), len(calls))
    return {name: tuple(tracks[name, rank] for rank in range(seeds)) for name in replays}


def one_trial(source: Source, replay: Replay, seed: np.random.SeedSequence) -> Track:
    """Run one replay. Annotators, responses and policy have separate generators, so all strategies meet the same
    annotators.

    Warnings about unused evidence are suppressed, because each worker process would repeat them for every replay.
    """
    state = [int(word) for word in seed.generate_state(3)]
    answers, known, ready = source.begin(np.random.default_rng(state[0]), replay)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IgnoredEvidence)
        result = replace(ready, policy=seeded(ready.policy, state[1])).run_with(
            answers, known, np.random.default_rng(state[2])
        )
    return Track(result.labels, result.cost, result.accuracy, result.done, stopped=result.stopped)


@dataclass(frozen=True)
class Spent:
    """Labels and cost that a strategy needed to reach a target and not fall below it again, over its seeds.

    Attributes:
        labels, cost: (median, lowest, highest); a seed that did not reach the target counts as infinite.
        reached: number of seeds that reached it.
    """

    labels: tuple[float, float, float]
    cost: tuple[float, float, float]
    reached: int


def spent_to_reach(tracks: Sequence[Track], accuracy: float) -> Spent:
    """Return the labels and cost until this accuracy; a seed that never reached it counts as infinite.

    Example:
        >>> import numpy as np
        >>> from hitl.active import Recording, Replay, run_trials, spent_to_reach
        >>> from hitl.models import MajorityVote
        >>> from hitl.testing import crowd
        >>> evidence, _ = crowd(np.random.default_rng(0), n_items=20, known=1.0)
        >>> tracks = run_trials(Recording(evidence), {"gain": Replay(MajorityVote())}, seeds=2)
        >>> spent = spent_to_reach(tracks["gain"], 0.4)
        >>> spent.reached, len(spent.labels)  # median, lowest, highest
        (2, 3)
    """
    reached = [track.to_reach(accuracy) for track in tracks]
    labels, cost = (
        tuple(float(summary(values)) for summary in (np.median, np.min, np.max))
        for values in zip(*[(math.inf, math.inf) if one is None else one for one in reached], strict=True)
    )
    return Spent(
        (labels[0], labels[1], labels[2]), (cost[0], cost[1], cost[2]), sum(one is not None for one in reached)
    )


def band(tracks: Sequence[Track], over_cost: bool = False) -> Band:
    """Return the median accuracy over the tracks, and the band around it; an ended track keeps its last value."""
    spent = [track.cost if over_cost else track.labels.astype(np.float64) for track in tracks]
    x: Floats = np.linspace(0, max(float(one[-1]) for one in spent), POINTS, dtype=np.float64)
    value = np.stack([_held(x, one, track.accuracy) for one, track in zip(spent, tracks, strict=True)])
    low, high = (0.0, 1.0) if len(tracks) < FEW else (0.1, 0.9)
    return Band(x, np.median(value, axis=0), np.quantile(value, low, axis=0), np.quantile(value, high, axis=0))


def _held(x: Floats, spent: Floats, accuracy: Floats) -> Floats:
    """Return (P,) for each x the accuracy of the last step that had spent at most x."""
    return np.asarray(accuracy[np.searchsorted(spent, x * (1 + 1e-12), side="right") - 1])


def seeded(policy: Any, seed: int) -> Any:
    """Return the policy with this seed, or unchanged if it has no field `seed`."""
    has_seed = is_dataclass(policy) and any(field.name == "seed" for field in fields(policy))
    return replace(policy, seed=seed) if has_seed and not isinstance(policy, type) else policy


@contextmanager
def _processes(workers: int) -> Iterator[Executor]:
    """Yield worker processes that end when this process ends, and at once if it is interrupted.

    They are not forked, because threads of the parent (numba, BLAS) do not survive a fork.
    """
    context = get_context("spawn")
    workers_end, own_end = context.Pipe(duplex=False)
    with ProcessPoolExecutor(workers, context, _begin_worker, (workers_end,)) as pool:
        try:
            yield pool
        except BaseException:
            own_end.close()
            raise


def _begin_worker(workers_end: Connection) -> None:
    """Ignore Ctrl-C, which a terminal sends to all processes, and end with the parent instead."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with_parent, args=(workers_end,), daemon=True).start()


def _end_with_parent(workers_end: Connection) -> None:
    """Exit once the parent has closed its end of the pipe, which it also does by ending. Nothing is ever sent."""
    with suppress(EOFError):
        workers_end.recv()
    os._exit(1)


def _single_threaded_trial(source: Source, replay: Replay, seed: np.random.SeedSequence) -> Track:
    """Run a replay in one thread, because processes share the machine's cores."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import numba

    numba.set_num_threads(1)
    return one_trial(source, replay, seed)


def _cancel(futures: Iterable[Future[Track]]) -> None:
    for future in futures:
        future.cancel()
