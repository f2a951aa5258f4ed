"""How many passes' time a fit of 10 million labels takes.

    python -m tests.bench.scale.passes [--sizes M L] [--save]

A pass is the time of `bench_speed`'s gather and scatter in the same run, the best of its turns; so are fits. What is
first compiled or made of a table once (a first fit) does not count; everything else that a fit does counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from hitl.evidence import Evidence
from tests.bench import results
from tests.bench.bench_speed import METHODS, SIZES, best, crowd, passes


def main(arguments: Sequence[str] | None = None) -> None:
    options = results.options(__doc__, arguments, sizes=["M", "L"], rounds=3)
    page, figures = results.Page(), dict[str, float]()
    for size in options.sizes:
        evidence = Evidence(crowd(*SIZES[size])[0])
        work: dict[str, Any] = dict(passes(evidence.annotations))
        work |= {name: partial(method().fit, evidence) for name, method in METHODS.items()}
        took = best(work, options.rounds)
        one = figures[f"{size} pass s"] = took["gather"] + took["scatter"]
        page.tell("", f"{size}: " + "{:,} items, {:,} annotators, {} labels an item, {} classes".format(*SIZES[size]))
        page.tell(f"  a pass {1000 * one:.1f} ms")
        for name, method in METHODS.items():
            figures[f"{size} {name} passes"] = took[name] / one
            number = method().fit(evidence).fit.iterations
            page.tell(f"  {name:12} {took[name]:8.3f} s, {took[name] / one:5.1f} passes' time, {number} iterations")
    if options.save:
        page.save("scale_passes", figures, "scale.passes --save")


if __name__ == "__main__":
    main()
