"""The first policy on rte without a model, over random orders of the items: does the demo's figure depend on luck?

    python -m tests.bench.bench_demo [--orders 10]

Replays the 164 recorded people (see `hitl demo`) with the default combiner until every item is done. Ties between
items are broken by their order, so the order is what varies.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hitl.active.replay.replay import Replay, accuracy_of, spread_evenly
from hitl.annotations import Annotations, Floats
from hitl.crew import Budget
from hitl.demo.recorded import rte
from hitl.demo.replayed import TARGET
from hitl.evidence import Evidence
from hitl.models.default import DefaultCombiner
from hitl.models.majority import MajorityVote
from tests.bench import results


def replayed(recorded: Evidence, seed: int) -> tuple[int, float, float]:
    """Labels and accuracy at the end of a replay in a random order; accuracy of as many labels spread evenly."""
    rng, annotations = np.random.default_rng(seed), recorded.annotations
    order = rng.permutation(annotations.n_items)
    names = tuple(annotations.items[n] for n in order)
    assert recorded.truth is not None
    evidence = Evidence(Annotations.from_frame(annotations.table(), items=names), truth=recorded.truth[order])
    replay = Replay(DefaultCombiner(), budget=Budget(open_questions=100, target_confidence=TARGET))
    found = replay.run(evidence, np.random.default_rng(seed))
    labels = int(found.labels[-1])
    evenly = spread_evenly(recorded, MajorityVote(), [labels], np.random.default_rng(seed))
    return labels, float(found.accuracy[-1]), float(evenly[0])


def main(arguments: Sequence[str] | None = None) -> None:
    options = results.options(__doc__, arguments, orders=10)
    recorded = rte()
    labels, accuracy, evenly = np.array([replayed(recorded, seed) for seed in range(options.orders)]).T
    everything = accuracy_of(MajorityVote().fit(Evidence(recorded.annotations)), recorded)

    def spread(values: Floats, form: str) -> str:
        return f"{values.mean():{form}} ± {values.std(ddof=1):{form}}"

    page = results.Page()
    page.tell(
        f"rte, {options.orders} random orders of the 800 items, all 8,000 recorded labels available",
        f"hitl           {spread(accuracy, '.4f')} right with {spread(labels, ',.0f')} labels",
        f"majority vote  {spread(evenly, '.4f')} right with as many labels spread evenly",
        f"majority vote  {everything:.4f} right with all 8,000",
    )
    if options.save:
        means = {"labels": labels.mean(), "accuracy": accuracy.mean(), "evenly": evenly.mean()}
        page.save("demo", means | {"everything": everything})


if __name__ == "__main__":
    main()
