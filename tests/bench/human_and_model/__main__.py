"""Annotators and one classifier together, on texts, scenes and music: hitl beside CROWDLAB and ActiveLab of cleanlab.

    make bench-crowdlab
    python -m tests.bench.human_and_model [--sets rte labelme] [--seeds 5] [--curves 3] [--save]

Reads rte, sentence_polarity, labelme and music_genre from HITL_DATA. `combined` says how good labels are by people, by
the classifier and by both; `relabelled` which items are labeled again. Nobody sees the truth. The four crowds are
among those on which the default for annotators alone was chosen; nothing was chosen on what is measured here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any

from tests.bench import results
from tests.bench.human_and_model import combined, relabelled
from tests.bench.human_and_model.combined import Job, Row
from tests.bench.human_and_model.crowds import SETS

WHY = """Where hitl is worse, and why:
rte        TF-IDF says nothing of entailment: the classifier is right on one pair of two. The default sees that it knows
           nothing: labels are within half a point of people alone. CROWDLAB's with up to three labels are 2 to
           12 points below people alone.
labelme    The classifier learned the annotators' errors, and the default takes it to be independent of them: accuracy
           is above CROWDLAB's, but it is .08 to .10 too sure. CROWDLAB averages instead of multiplying and is less sure
           everywhere: better here, too unsure on most others.
music      Accuracy with the classifier is up to .4 points below people alone with two and three labels, 9 points above
           with 1.2; log loss is .10 to .45 lower. With three labels it is .11 too sure, people alone are .12.
""".splitlines()
"""Of the figures kept; counts and what was tried were measured beside them."""


def main(arguments: Sequence[str] | None = None) -> None:
    options = results.options(__doc__, arguments, sets=list(SETS), seeds=5, curves=3, workers=2)
    if not find_spec("cleanlab"):
        raise SystemExit("cleanlab is not installed; make bench-crowdlab brings an environment that has it")
    page, asked = results.Page(), list[results.Bar]()

    def measured(work: Callable[[Job], list[Row]], tables: Any, seeds: int) -> Any:
        jobs = [Job(name, seed) for name in options.sets for seed in range(seeds)]
        lines, figures, bars = tables(
            [row for rows in results.side_by_side(work, jobs, options.workers) for row in rows]
        )
        page.tell(*lines, "")
        asked.extend(bars)
        return figures

    page.tell(f"labels judged together, {options.seeds} seeds: mean ± standard deviation")
    figures = {"together": measured(combined.scored, combined.tables, options.seeds)}
    page.tell(f"items labeled again, {options.curves} seeds: accuracy after each batch, and its mean over the batches")
    figures["again"] = measured(relabelled.curves, relabelled.tables, options.curves)
    page.held(*asked)
    page.tell("", *WHY)
    if options.save:
        page.save("human_and_model", figures, "human_and_model --save")


if __name__ == "__main__":
    main()
