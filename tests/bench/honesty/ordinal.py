"""Classes in order: distance of labels from the truth, log loss and 90 % intervals, compared with two other methods.

    python -m tests.bench.honesty.ordinal [--seeds 5] [--save]

Recorded: relevance_trec2010 (4 grades), valence by its sign (3), and its scores in five and seven equal steps. The
classes of the two weather sets are in no order (the last two are "not about weather" and "cannot tell"): they show what
a wrong claim of an order costs. Simulated: `scales`, five labels an item. No truth is known to any method.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from hitl.annotations import Annotations
from hitl.evidence import Evidence
from hitl.models import DefaultCombiner, MeanScore, Ordinal
from hitl.tables.read import read_table
from tests.bench import results
from tests.bench.bench_accuracy import load
from tests.bench.honesty.scales import SCALES, scale
from tests.reference_data import folder

METHODS = (Ordinal(), DefaultCombiner(), MeanScore())
MEASURES = ("error", "log loss", "right", "confidence", "in 90 %", "width")
RECORDED = ("relevance_trec2010", "valence", "valence in 5", "valence in 7")
UNORDERED = ("weather_cf", "weather_amt")


def graded(steps: int) -> Evidence:
    """The scores of valence, from -100 to 100, in so many equal steps."""
    scores = read_table(folder("valence") / "scores.csv").to_pandas()
    truth = read_table(folder("valence") / "truth_scores.csv").to_pandas().set_index("item")["score"]
    edges = np.linspace(-100, 100, steps + 1)[1:-1]
    labels = scores.assign(label=np.searchsorted(edges, scores["score"].astype(float)))
    annotations = Annotations.from_frame(labels, items=tuple(truth.index), classes=tuple(range(steps)))
    return Evidence(annotations, truth=np.searchsorted(edges, truth.astype(float)))


def measures(evidence: Evidence) -> dict[str, list[float]]:
    """Method -> `MEASURES` on the items with truth."""
    assert evidence.truth is not None
    known, truth = evidence.known, evidence.truth
    found = {}
    for method in METHODS:
        consensus = method.fit(Evidence(evidence.annotations))
        away_n, (low_n, high_n) = np.abs(consensus.codes - truth), consensus.interval.T
        own_n = consensus.probabilities[np.arange(len(truth)), np.maximum(truth, 0)]
        columns = [away_n, -np.log(np.maximum(own_n, 1e-9)), away_n == 0, consensus.confidence]
        columns += [(low_n <= truth) & (truth <= high_n), high_n - low_n + 1]
        found[type(method).__name__] = [float(column[known].mean()) for column in columns]
    return found


def crowds(seeds: int) -> Iterator[tuple[str, list[Evidence]]]:
    """Name -> crowds whose measures are averaged."""
    for name in (*RECORDED, *UNORDERED):
        yield name, [graded(int(name[-1])) if " in " in name else load(name)]
    for kind in SCALES:
        yield kind, [scale(kind, seed) for seed in range(seeds)]


def main(arguments: Sequence[str] | None = None) -> None:
    options = results.options(__doc__, arguments, seeds=5)
    page, figures, rows = results.Page(), {}, {}
    for name, some in crowds(options.seeds):
        each = [measures(evidence) for evidence in some]
        for method in each[0]:
            mean = np.mean([one[method] for one in each], axis=0)
            rows[name, method] = dict(zip(MEASURES, mean.tolist(), strict=True))
            figures[f"{name} {method}"] = mean.round(4).tolist()
    page.tell(*results.table(rows))
    bars = []
    for name in (*RECORDED, *SCALES):
        ours, others = rows[name, "Ordinal"], [rows[name, other] for other in ("DefaultCombiner", "MeanScore")]
        for measure in ("error", "log loss"):
            best = round(min(other[measure] for other in others), 4)
            bars.append(results.at_most(f"{name}: {measure}", ours[measure], best))
    page.held(*bars)
    if options.save:
        page.save("ordinal", figures, "honesty.ordinal --save")


if __name__ == "__main__":
    main()
