"""The first policy on rte without a model, over random orders of the items: does the demo's figure depend on luck?

    python -m tests.bench.bench_demo [--orders 10]

Replays the 164 recorded people (see `hitl demo`) with the default combiner until every item is done. Ties between
items are broken by their order, so the order is what varies.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hitl.active.replay.replay import Replay, ReplayResult, accuracy_of, spread_evenly
from hitl.annotations import Annotations, Floats
from hitl.crew import Budget
from hitl.demo.recorded import rte
from hitl.demo.replayed import TARGET
from hitl.evidence import Evidence
from hitl.models.default import DefaultCombiner
from hitl.models.majority import MajorityVote
from tests.bench import results


def reordered(recorded: Evidence, rng: np.random.Generator) -> Evidence:
    """The same recording with its items in a random order."""
    annotations = recorded.annotations
    order = rng.permutation(annotations.n_items)
    names = tuple(annotations.items[n] for n in order)
    assert recorded.truth is not None
    return Evidence(Annotations.from_frame(annotations.table(), items=names), truth=recorded.truth[order])


def run(recorded: Evidence, seed: int) -> ReplayResult:
    """One replay to the end."""
    replay = Replay(DefaultCombiner(), budget=Budget(open_questions=100, target_confidence=TARGET))
    rng = np.random.default_rng(seed)
    return replay.run(reordered(recorded, rng), rng)


def spread(values: Floats, form: str) -> str:
    """Mean ± standard deviation."""
    return f"{values.mean():{form}} ± {values.std(ddof=1):{form}}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Print labels and accuracy at the end of each replay."""
    options = results.options(__doc__, arguments, orders=10)
    recorded = rte()
    runs = [run(recorded, seed) for seed in range(options.orders)]
    labels = np.array([result.labels[-1] for result in runs])
    accuracy = np.array([result.accuracy[-1] for result in runs])
    evenly = [
        spread_evenly(recorded, MajorityVote(), [int(n)], np.random.default_rng(seed))[0]
        for seed, n in enumerate(labels)
    ]
    everything = accuracy_of(MajorityVote().fit(Evidence(recorded.annotations)), recorded)
    lines = [
        f"rte, {options.orders} random orders of the 800 items, all 8,000 recorded labels available",
        f"hitl           {spread(accuracy, '.4f')} right with {spread(labels, ',.0f')} labels",
        f"majority vote  {spread(np.array(evenly), '.4f')} right with as many labels spread evenly",
        f"majority vote  {everything:.4f} right with all 8,000",
    ]
    print("\n".join(lines))
    if options.save:
        figures = {"labels": float(labels.mean()), "accuracy": float(accuracy.mean()), "evenly": float(np.mean(evenly))}
        results.save("demo", lines, {**figures, "everything": everything})


if __name__ == "__main__":
    main()
