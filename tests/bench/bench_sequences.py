"""Chains of true classes: how near to the oracle, and what the passes cost. Spans have a page of their own.

    python -m tests.bench.bench_sequences                  all parts
    python -m tests.bench.bench_sequences --parts cost

simulated   ten annotators, four classes, sequences of 5 to 60 items; the oracle knows chain and annotators. Macro F.
cost        a million tokens in 50,000 sequences, 10 classes, 5 labels a token: seconds beside VB-IBCC of that table,
            as it is and with all iterations over all items
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hitl.annotations import Annotations
from hitl.evidence import Evidence
from hitl.models import VBIBCC, BSCSeq, DawidSkene, MajorityVote, SequentialDawidSkene, SequentialIBCC
from hitl.models.inference import em
from tests.bench import results
from tests.bench.scale.passes import many
from tests.models.sequences.test_sequential import macro_f, simulated

METHODS: dict[str, Any] = {
    "majority": MajorityVote(),
    "dawid-skene": DawidSkene(),
    "vb-ibcc": VBIBCC(),
    "sequential-dawid-skene": SequentialDawidSkene(),
    "sequential-ibcc": SequentialIBCC(),
    "bsc-seq": BSCSeq(),
}
METHODS_OF_CHAINS = {"sequential-dawid-skene", "sequential-ibcc", "bsc-seq"}
ALL_ITEMS = "vb-ibcc, all items"
"""VB-IBCC whose iterations all go over all items, as those of the chains do; it takes fewer itself."""
KINDS: dict[str, dict[str, Any]] = {"any chain": {}, "sticky, weak": {"sticky": 0.8, "right": (0.05, 0.45)}}

Part = tuple[list[str], dict[str, Any]]


def fitted(name: str, evidence: Evidence) -> Any:
    """What a method finds; those without a chain are not given the sequences."""
    method = METHODS[name]
    return method.fit(evidence if METHODS_OF_CHAINS & {name} else Evidence(evidence.annotations))


def near_the_oracle(seeds: int) -> Part:
    cells, figures = {}, {}
    for kind, options in KINDS.items():
        for n_items in (1_000, 10_000):
            scores: dict[str, list[float]] = {name: [] for name in [*METHODS, "oracle"]}
            for seed in range(seeds):
                evidence, truth, chain, log_pi_klj = simulated(n_items, seed, **options)
                for name in METHODS:
                    scores[name].append(macro_f(truth, fitted(name, evidence).probabilities))
                scores["oracle"].append(macro_f(truth, em.expectation(evidence, chain, log_pi_klj).q_nj))
            row = f"{kind}, {n_items}"
            behind = np.array(scores["oracle"]) - np.array(scores["sequential-dawid-skene"])
            figures[row] = {name: float(np.mean(one)) for name, one in scores.items()} | {"behind": float(behind.max())}
            cells[row] = {name: results.spread(one, 4) for name, one in scores.items()}
    return [*results.table(cells), f"macro F: means of {seeds} seeds (standard deviation)"], figures


def cost(seeds: int) -> Part:
    rng, n, j, k = np.random.default_rng(0), 1_000_000, 10, 300
    truth = np.repeat(rng.integers(j, size=n // 4), 4)
    item = np.repeat(np.arange(n, dtype=np.int32), 5)
    annotator = ((rng.integers(k, size=(n, 1)) + np.arange(5) * 7) % k).ravel().astype(np.int32)
    right = rng.random(item.size) < rng.uniform(0.5, 0.9, size=k)[annotator]
    label = np.where(right, truth[item], rng.integers(j, size=item.size)).astype(np.int32)
    names = tuple(range(j))
    annotations = Annotations(item, annotator, label, tuple(range(n)), tuple(range(k)), names, names)
    places = np.stack((np.arange(n) // 20, np.arange(n) % 20), axis=1)
    lines, seconds = ["a million tokens:"], {}
    for name in ("vb-ibcc", ALL_ITEMS, *sorted(METHODS_OF_CHAINS)):
        evidence = Evidence(annotations, sequence=places if name in METHODS_OF_CHAINS else None)
        method = METHODS["vb-ibcc" if name == ALL_ITEMS else name]
        replace(method, max_iterations=1).fit(evidence)  # compiles
        fit = (many(method, evidence) if name == ALL_ITEMS else method.fit(evidence)).fit
        seconds[name] = fit.seconds
        lines.append(f"{name:24}{fit.seconds:8.1f} s {fit.iterations:4} iterations")
    return lines, {"seconds": seconds}


def bars(figures: Mapping[str, Any]) -> list[results.Bar]:
    """The bars of the parts that were run."""
    found = []
    for name, row in figures.get("simulated", {}).items():
        limit = 0.002 if name.endswith("10000") else 0.03
        found.append(results.at_most(f"{name}: behind the oracle in each seed", row["behind"], limit))
    if of := figures.get("cost"):
        slowest = max(of["seconds"][name] for name in METHODS_OF_CHAINS)
        for other in ("vb-ibcc", ALL_ITEMS):
            claim = f"a million tokens: seconds, in terms of those of {other},"
            found.append(results.at_most(claim, slowest / of["seconds"][other], 4, ".1f"))
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    parts = {"simulated": near_the_oracle, "cost": cost}
    options = results.options(__doc__, arguments, parts=list(parts), seeds=5)
    page = results.Page()
    figures = page.parts(parts, options.parts, options.seeds)
    page.held(*bars(figures))
    if options.save:
        page.save("sequences", figures)


if __name__ == "__main__":
    main()
