"""How many passes a fit of 10 million labels takes, and where it ends beside a fit that passes over all items only.

    python -m tests.bench.scale.passes [--sizes M L] [--no-crowds] [--save]

A pass is the time of `bench_speed`'s gather and scatter by item in the same run, the best of its turns; so are fits.
What is first compiled or made of a table once (a first fit) does not count; everything else that a fit does counts.

    few     as fitted
    many    the same method with no working set and the fixed point for the shared prior, as before
    end     many, with a tolerance of 1e-11 nats an item, begun where few and where many ended: two ends, that differ
            where there are several tops

The crowds are those of `bench.honesty`, fitted as if they were large: what matters there is where fits end.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numba import get_num_threads

from hitl.consensus import Consensus
from hitl.evidence import Evidence
from hitl.models.dawid_skene import DawidSkene
from hitl.models.inference import working_set
from hitl.models.priors import Same
from hitl.models.vb_ibcc import VBIBCC
from tests.bench import results
from tests.bench.bench_speed import SIZES, best, crowd, passes
from tests.bench.honesty.crowds import SIMULATED

METHODS: dict[str, Any] = {"dawid-skene": DawidSkene, "vb-ibcc": VBIBCC}
MOST_PASSES, FAR, SAME = 12.0, 1e-4, 0.9999


@contextmanager
def paying(rule: Any) -> Iterator[None]:
    """With another rule of when a working set pays."""
    kept, working_set.pays = working_set.pays, rule
    try:
        yield
    finally:
        working_set.pays = kept


def many(method: Any, evidence: Evidence, start: Consensus | None = None) -> Consensus:
    with paying(lambda *_: False):
        fitted: Consensus = method.fit(evidence, start=start)
    return fitted


def apart(one: Consensus, other: Consensus) -> dict[str, float]:
    """How far two fits are from each other."""
    far_n = np.abs(one.probabilities - other.probabilities).max(axis=1)
    return {
        "same labels": float((one.labels == other.labels).mean()),
        "mean belief": float(far_n.mean()),
        "largest belief": float(far_n.max()),
        "items beyond 1e-4": float((far_n > FAR).mean()),
        "objective": (one.fit.objective[-1] - other.fit.objective[-1]) / len(far_n),
    }


def told(name: str, found: dict[str, float]) -> str:
    return f"  {name:26} " + "  ".join(f"{key} {value:.7g}" for key, value in found.items())


def of_size(size: str, rounds: int) -> tuple[list[str], dict[str, float]]:
    evidence = Evidence(crowd(*SIZES[size])[0])
    work: dict[str, Any] = dict(passes(evidence.annotations))
    del work["scatter by annotator"]
    for name, method in METHODS.items():
        work[f"{name} few"] = lambda method=method: method().fit(evidence)
        work[f"{name} many"] = lambda method=method: many(method(), evidence)
    took = best(work, rounds)
    one = took["gather"] + took["scatter by item"]
    lines = ["", f"{size}: " + "{:,} items, {:,} annotators, {} labels an item, {} classes".format(*SIZES[size])]
    lines += [f"  a pass {1000 * one:.1f} ms"]
    figures = {f"{size} pass s": one}
    for name, method in METHODS.items():
        few_, many_ = method().fit(evidence), many(method(), evidence)
        exact = method(tolerance=1e-11, max_iterations=3000)
        for kind, fitted in (("few", few_), ("many", many_)):
            figures[f"{size} {name} {kind} passes"] = took[f"{name} {kind}"] / one
            lines.append(
                f"  {name} {kind:5} {took[f'{name} {kind}']:8.3f} s, {took[f'{name} {kind}'] / one:5.1f} passes' time, "
                f"{fitted.fit.iterations} times over all items"
            )
        ends = {"few": many(exact, evidence, few_), "many": many(exact, evidence, many_)}
        found = {
            "few - many": apart(few_, many_),
            "few - its end": apart(few_, ends["few"]),
            "many - its end": apart(many_, ends["many"]),
            "end of few - of many": apart(ends["few"], ends["many"]),
        }
        lines += [told(key, value) for key, value in found.items()]
        for key, row in found.items():
            figures |= {f"{size} {name} {key}, {what}": value for what, value in row.items()}
    return lines, figures


def of_crowds(seeds: int) -> tuple[list[str], dict[str, float]]:
    lines, figures = ["", "crowds of other kinds, as if they were large (means; objective in nats an item: worst)"], {}
    for kind, named in SIMULATED.items():
        for name, method in METHODS.items():
            rows: list[dict[str, float]] = []
            for make in named.values():
                for seed in range(seeds):
                    evidence = Evidence(make(seed).annotations)
                    with paying(lambda labels, cells, prior: isinstance(prior, Same)):
                        few_ = method().fit(evidence)
                    many_ = many(method(), evidence)
                    exact = method(tolerance=1e-11, max_iterations=3000)
                    ends = many(exact, evidence, few_), many(exact, evidence, many_)
                    rows.append(
                        {
                            "objective": apart(few_, many_)["objective"],
                            "of ends": apart(*ends)["objective"],
                            "far, few": apart(few_, ends[0])["mean belief"],
                            "far, many": apart(many_, ends[1])["mean belief"],
                            "labels, few": apart(few_, ends[0])["same labels"],
                            "labels, many": apart(many_, ends[1])["same labels"],
                            "passes, few": few_.fit.iterations,
                            "passes, many": many_.fit.iterations,
                        }
                    )
            found = {key: float(np.mean([row[key] for row in rows])) for key in rows[0]}
            found["objective"], found["of ends"] = (min(row[key] for row in rows) for key in ("objective", "of ends"))
            lines.append(told(f"{kind}, {name}", found))
            figures |= {f"{kind} {name} {key}": value for key, value in found.items()}
    return lines, figures


def bars(figures: dict[str, float]) -> list[tuple[str, str, bool]]:
    """(what is asked, what was found, whether it holds) of the large table."""
    found = []
    for name in METHODS:
        if (taken := figures.get(f"L {name} few passes")) is not None:
            found.append((f"L {name} passes' time at most {MOST_PASSES:g}", f"{taken:.1f}", taken <= MOST_PASSES))
            same = figures[f"L {name} few - many, same labels"]
            found.append((f"L {name} labels of all passes at least {SAME}", f"{same:.6f}", same >= SAME))
            for what in ("mean belief", "largest belief"):
                far = figures[f"L {name} few - many, {what}"]
                found.append((f"L {name} {what} beside all passes at most {FAR:g}", f"{far:.1e}", far <= FAR))
    return found


def main() -> None:
    options = results.options(__doc__, None, sizes=["M", "L"], rounds=3, no_crowds=False, seeds=1)
    lines = [f"{os.cpu_count()} cores, {get_num_threads()} threads, other load {os.getloadavg()[0]:.1f}"]
    figures: dict[str, float] = {}
    print(lines[0])
    parts = [lambda size=size: of_size(size, options.rounds) for size in options.sizes]
    if not options.no_crowds:
        parts.append(lambda: of_crowds(options.seeds))
    for part in parts:
        more, found = part()
        print("\n".join(more), flush=True)
        lines += more
        figures |= found
    more = results.held(bars(figures))
    print("\n".join(more))
    lines += more
    if options.save:
        results.save("scale_passes", lines, figures, "scale.passes --save")


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        main()
