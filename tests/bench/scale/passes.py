"""How many passes a fit of 10 million labels takes, and where it ends beside a fit that passes over all items only.

    python -m tests.bench.scale.passes [--sizes M L] [--no-crowds] [--save]

A pass is the time of `bench_speed`'s gather and scatter by item in the same run, the best of its turns; so are fits.
What is first compiled or made of a table once (a first fit) does not count; everything else that a fit does counts.

    few     as fitted
    many    the same method with no working set
    end     many, with a tolerance of 1e-11 nats an item, begun where few and where many ended: two ends, that differ
            where there are several tops

The crowds are those of `bench.honesty`, fitted as if they were large: what matters there is where fits end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from hitl.consensus import Consensus
from hitl.evidence import Evidence
from hitl.models.inference import working_set
from hitl.models.priors import Same
from tests.bench import results
from tests.bench.bench_speed import METHODS, SIZES, best, crowd, passes
from tests.bench.honesty.crowds import SIMULATED

MOST_PASSES, FAR, SAME = 12, 1e-4, 0.9999


@contextmanager
def paying(rule: Callable[..., bool]) -> Iterator[None]:
    """Use another rule of when a working set pays."""
    kept, working_set.pays = working_set.pays, rule
    try:
        yield
    finally:
        working_set.pays = kept


def many(method: Any, evidence: Evidence, start: Consensus | None = None) -> Consensus:
    """Fit without a working set."""
    with paying(lambda *_: False):
        fitted: Consensus = method.fit(evidence, start=start)
    return fitted


def apart(one: Consensus, other: Consensus) -> dict[str, float]:
    """How far two fits are from each other; objective in nats an item."""
    far_n = np.abs(one.probabilities - other.probabilities).max(axis=1)
    return {
        "same labels": float((one.codes == other.codes).mean()),
        "mean belief": float(far_n.mean()),
        "largest belief": float(far_n.max()),
        "items beyond 1e-4": float((far_n > FAR).mean()),
        "objective": (one.fit.objective[-1] - other.fit.objective[-1]) / len(far_n),
    }


def beside(method: Any, evidence: Evidence, few: Consensus) -> tuple[Consensus, dict[str, dict[str, float]]]:
    """Return the fit by many passes, and how far both are from each other and from where each ends."""
    whole, exact = many(method(), evidence), method(tolerance=1e-11, max_iterations=3000)
    end_of_few, end_of_many = (many(exact, evidence, start) for start in (few, whole))
    return whole, {
        "few - many": apart(few, whole),
        "few - its end": apart(few, end_of_few),
        "many - its end": apart(whole, end_of_many),
        "end of few - of many": apart(end_of_few, end_of_many),
    }


def of_size(size: str, rounds: int, page: results.Page) -> dict[str, Any]:
    """Tell the passes' time of each method on a table of `bench_speed`, and where it ends."""
    evidence = Evidence(crowd(*SIZES[size])[0])
    work: dict[str, Any] = dict(passes(evidence.annotations))
    for name, method in METHODS.items():
        work |= {f"{name} few": partial(method().fit, evidence), f"{name} many": partial(many, method(), evidence)}
    took = best(work, rounds)
    one = took["gather"] + took["scatter by item"]
    page.tell("", f"{size}: " + "{:,} items, {:,} annotators, {} labels an item, {} classes".format(*SIZES[size]))
    page.tell(f"  a pass {1000 * one:.1f} ms")
    figures: dict[str, Any] = {"pass s": one}
    for name, method in METHODS.items():
        few = method().fit(evidence)
        whole, ends = beside(method, evidence, few)
        figures[name] = {"few passes": took[f"{name} few"] / one, "many passes": took[f"{name} many"] / one} | ends
        for kind, fitted in (("few", few), ("many", whole)):
            key, iterations = f"{name} {kind}", fitted.fit.iterations
            page.tell(
                f"  {key:17} {took[key]:8.3f} s, {took[key] / one:5.1f} passes' time, {iterations} over all items"
            )
        page.tell(*results.table(ends, 7))
    return figures


def of_crowds(seeds: int, page: results.Page) -> dict[str, Any]:
    """Tell where fits of crowds of other kinds end: means; of the objectives the least."""
    rows = {}
    for kind, name in ((kind, name) for kind in SIMULATED for name in METHODS):
        found: list[dict[str, float]] = []
        for evidence in (
            Evidence(draw(seed).annotations) for draw in SIMULATED[kind].values() for seed in range(seeds)
        ):
            with paying(lambda labels, cells, prior: isinstance(prior, Same)):
                few = METHODS[name]().fit(evidence)
            whole, ends = beside(METHODS[name], evidence, few)
            found.append(
                {
                    "objective": ends["few - many"]["objective"],
                    "of ends": ends["end of few - of many"]["objective"],
                    "far, few": ends["few - its end"]["mean belief"],
                    "far, many": ends["many - its end"]["mean belief"],
                    "labels, few": ends["few - its end"]["same labels"],
                    "labels, many": ends["many - its end"]["same labels"],
                    "passes, few": few.fit.iterations,
                    "passes, many": whole.fit.iterations,
                }
            )
        frame = pd.DataFrame(found)
        rows[f"{kind}, {name}"] = frame.mean().to_dict() | frame[["objective", "of ends"]].min().to_dict()
    page.tell("", "crowds of other kinds, as if they were large (means; objective in nats an item: worst)")
    page.tell(*results.table(rows, 7))
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    options = results.options(__doc__, arguments, sizes=["M", "L"], rounds=3, no_crowds=False, seeds=1)
    page, bars = results.Page(), list[results.Bar]()
    figures: dict[str, Any] = {size: of_size(size, options.rounds, page) for size in options.sizes}
    if not options.no_crowds:
        figures["crowds"] = of_crowds(options.seeds, page)
    for name in METHODS if "L" in figures else ():
        found = figures["L"][name]
        gap = found["few - many"]
        bars.append(results.at_most(f"L {name} passes' time", found["few passes"], MOST_PASSES, ".1f"))
        bars.append(results.at_least(f"L {name} labels of all passes", gap["same labels"], SAME, ".6f"))
        bars.append(results.at_most(f"L {name} mean belief beside all passes", gap["mean belief"], FAR, ".1e"))
    page.held(*bars)
    if options.save:
        page.save("scale_passes", figures, "scale.passes --save")


if __name__ == "__main__":
    main()
