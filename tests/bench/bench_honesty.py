"""Does the default combiner say how sure it may be, on crowds that it was not made for? A protocol.

    python -m tests.bench.bench_honesty [--seeds 5] [--sets rte independent ...] [--save]

Real crowds and simulated ones (`honesty.crowds`), whole and with 1.2, 2, 3 and 5 labels an item left at random, without
known truth except in "30 known". Crowds of less than 1,000 known items are thinned 20 times. A set counts once: figures
are means over its seeds, then over sets. `gap` is accuracy less majority vote's on the same labels, in points; `over`
is confidence less accuracy; ECE over clip(n / 20, 5, 15) equal-mass bins. Other packages: `make results`.

It cannot be tuned to: the fractions and seeds are fixed, and a constant that was chosen on these sets, UNTRACED_RHO, is
chosen again without each group and scored on that group (`honesty.left_out`).

Intervals: how often the true accuracy of a project, of the items whose truth is recorded, is in the interval that the
same items expect; and how often the share of right answers of an annotator with ten labels or more on such items is in
theirs, whose width is beside that of an exact binomial interval that knows the truth (Jeffreys).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import beta

from hitl.evidence import Evidence
from hitl.models.default import DefaultCombiner
from tests.bench import results
from tests.bench.honesty.crowds import INDEPENDENT, LATER, REAL, SIMULATED, THINNED, WHOLE, Source, often, sources
from tests.bench.honesty.left_out import left_out
from tests.bench.honesty.scored import FIGURES, KNOWN, METHODS, TEMPERED, Row, beside, scored, scored_with_known

LABELS = (*(f"{labels:g}" for labels in THINNED), WHOLE, KNOWN)
FEWEST = 10


def by_set(rows: Sequence[Row]) -> pd.DataFrame:
    """Means over seeds: index (kind, labels, method, set), columns FIGURES and `gap`, accuracy less majority's."""
    others = beside([row for row in rows if row[5] not in TEMPERED], "majority")
    majority = others.drop_duplicates(["kind", "labels", "set", "seed"]).assign(method="majority")
    for figure in FIGURES:
        majority[figure] = majority[f"{figure} of majority"]
    frame = pd.concat([majority, others])
    frame["gap"] = frame["accuracy"] - frame["accuracy of majority"]
    return frame.groupby(["kind", "labels", "method", "set"])[[*FIGURES, "gap"]].mean()


def tables(sets: pd.DataFrame) -> tuple[list[str], dict[str, Any]]:
    """Lines of a table for each kind of crowd, and its figures: kind -> labels -> method -> mean of each figure."""
    lines: list[str] = []
    figures: dict[str, Any] = {}
    for kind in (kind for kind in (REAL, KNOWN, *SIMULATED) if kind in sets.index.get_level_values("kind")):
        there = set(sets.loc[kind].index.droplevel("set"))
        rows = {}
        for labels, method in (pair for pair in product(LABELS, METHODS) if pair in there):
            here = sets.loc[(kind, labels, method)]
            means = here.mean().to_dict() | {"sets": len(here)}
            figures.setdefault(kind, {}).setdefault(labels, {})[method] = means
            lowest = ", ".join(f"{name} {100 * gap:+.1f}" for name, gap in here["gap"].nsmallest(3).items())
            rows[labels, method] = means | {"gap": 100 * means["gap"], "lowest gaps": lowest}
        lines += ["", kind, *results.table(rows, 4)]
    return lines, figures


def bars(rows: Sequence[Row]) -> list[results.Bar]:
    """The bars of the default combiner, of what there is."""
    sets = by_set(rows)
    found: list[results.Bar] = []
    there = set(sets.index.droplevel("set"))

    def nowhere_below(kind: str, labels: str, claim: str, points: float) -> None:
        gap = 100 * sets.loc[(kind, labels, "default"), "gap"]
        below = gap[gap < -points - 1e-7]
        lowest = ", ".join(f"{name} {one:+.2f}" for name, one in gap.nsmallest(max(len(below), 1)).items())
        found.append((claim, lowest if len(below) else f"lowest {lowest}", not len(below)))

    for labels in (labels for labels in ("1.2", "2", "3") if (REAL, labels, "default") in there):
        mean = sets.loc[(REAL, labels)].groupby("method").mean()
        for figure, other in (("log loss", "weighted-majority"), ("ECE", "majority")):
            ours, theirs = mean.loc["default", figure], mean.loc[other, figure]
            claim = f"{labels} labels an item: {figure} at most {other}'s"
            found.append((claim, f"{ours:.4f} / {theirs:.4f}", bool(ours <= theirs)))
        nowhere_below(REAL, labels, f"{labels} labels an item: nowhere more than 1 point below majority", 1.0)
    if (REAL, WHOLE, "default") in there:
        mean = sets.loc[(REAL, WHOLE, "default")].mean()
        found.append(results.at_most("all labels: mean ECE", mean["ECE"], 0.066))
        found.append(results.at_least("all labels: mean accuracy", mean["accuracy"], 0.8387))
        nowhere_below(REAL, WHOLE, "all labels: nowhere more than 1.2 points below majority", 1.2)
    if (KNOWN, KNOWN, "default") in there:
        nowhere_below(KNOWN, KNOWN, f"{KNOWN}: nowhere more than 0.5 points below majority on the rest", 0.5)
    if (INDEPENDENT, WHOLE, "default") in there:
        ours, bayes = (sets.loc[(INDEPENDENT, WHOLE, method)] for method in ("default", "vb-ibcc"))
        found.append(results.at_most("independent: mean ECE", ours["ECE"].mean(), 0.03))
        found.append(results.at_most("independent: mean |confidence - accuracy|", ours["over"].abs().mean(), 0.02))
        loss, least = ours["log loss"].mean(), bayes["log loss"].mean()
        claim = "independent: log loss at most VB-IBCC's + 0.005"
        found.append((claim, f"{loss:.4f} / {least:.4f}", bool(loss <= least + 0.005)))
    return found + of_later(sets) + unbeaten(rows)


def of_later(sets: pd.DataFrame) -> list[results.Bar]:
    """The bars on kinds of crowds that an audit found to fail."""
    found: list[results.Bar] = []
    there = set(sets.index.droplevel("set"))

    def figure(kind: str, labels: str, method: str, name: str) -> float:
        return float(sets.loc[(kind, labels, method), name].mean())

    if ("overlooked", "3", "default") in there:
        ours, vote, bayes = (figure("overlooked", "3", m, "accuracy") for m in ("default", "majority", "vb-ibcc"))
        claim = "overlooked, 3 labels: at least 40 % of the way from majority to VB-IBCC"
        found.append((claim, f"{ours:.3f} of {vote:.3f} to {bayes:.3f}", ours >= vote + 0.4 * (bayes - vote)))
        for labels in ("3", "5", WHOLE):
            ours, bayes = (figure("overlooked", labels, m, "log loss") for m in ("default", "vb-ibcc"))
            claim = f"overlooked, {labels} labels: log loss at most VB-IBCC's"
            found.append((claim, f"{ours:.4f} / {bayes:.4f}", ours <= bayes))
    if ("hard negatives", "3", "default") in there:
        for labels, points in (("3", 2.0), ("5", 2.0), (WHOLE, 2.0), (KNOWN, 0.5)):
            claim = f"hard negatives, {labels} labels: at most {points:g} points below majority"
            found.append(results.at_least(claim, 100 * figure("hard negatives", labels, "default", "gap"), -points))
    for kind, labels, most in (
        ("confused", "5", 0.05),
        ("confused", WHOLE, 0.03),
        ("misleading", WHOLE, 0.08),
        ("misleading", KNOWN, 0.04),
    ):
        if (kind, labels, "default") in there:
            claim = f"{kind}, {labels} labels: |confidence - accuracy|"
            found.append(results.at_most(claim, abs(figure(kind, labels, "default", "over")), most))
    return found


def unbeaten(rows: Sequence[Row]) -> list[results.Bar]:
    """On real crowds, is the default below every other method in mean log loss and ECE, on the same sets and seeds?"""
    pairs = beside([row for row in rows if row[0] == REAL and row[5] not in TEMPERED], "default")
    found: list[results.Bar] = []
    for labels in (labels for labels in LABELS if labels in set(pairs["labels"])):
        means = pairs[pairs["labels"] == labels].groupby(["method", "set"]).mean(numeric_only=True)
        mean = means.groupby("method").mean()
        which = "all labels" if labels == WHOLE else f"{labels} labels an item"
        for figure in ("log loss", "ECE"):
            above = mean[mean[f"{figure} of default"] >= mean[figure]]
            not_below = ", ".join(
                f"{m} {row[f'{figure} of default']:.4f} / {row[figure]:.4f}" for m, row in above.iterrows()
            )
            claim = f"{which}: mean {figure} below that of each of {len(mean)} other methods"
            found.append((claim, f"not {not_below}" if not_below else "all", not not_below))
    return found


# -- intervals -----------------------------------------------------------------------------------------------


def covered(source: Source) -> list[dict[str, float | str]]:
    """A row for each thinning of a crowd: are the annotators' true accuracies in their intervals?"""
    rows: list[dict[str, float | str]] = []
    for labels, evidence in source.tables():
        consensus, known, truth = DefaultCombiner().fit(Evidence(evidence.annotations)), evidence.known, evidence.truth
        assert truth is not None
        row: dict[str, float | str] = {"kind": source.kind, "labels": labels, "set": source.name}
        row |= {"annotators in": np.nan, "width": np.nan}
        a = evidence.annotations
        n = np.bincount(a.annotator, known[a.item], a.n_annotators)
        r = np.bincount(a.annotator, known[a.item] & (truth[a.item] == a.label), a.n_annotators)
        some = n >= FEWEST
        if some.any():
            low, high = (end[some] for end in consensus.annotators.interval)
            share, wrong = r[some] / n[some], n[some] - r[some]
            exact = beta.ppf(0.975, r[some] + 0.5, wrong + 0.5) - beta.ppf(0.025, r[some] + 0.5, wrong + 0.5)
            row["annotators in"] = float(((low <= share) & (share <= high)).mean())
            row["width"] = float((high - low).mean() / exact.mean())
        rows.append(row)
    return rows


def table_of_intervals(rows: Sequence[dict[str, float | str]]) -> list[str]:
    """Lines: kinds x labels, means over the sets of the means over seeds."""
    means = pd.DataFrame(rows).groupby(["kind", "labels", "set"]).mean()
    lines = ["", "share of annotators' intervals that hold the truth, and their width / the exact ones'"]
    return [*lines, *results.table(means.groupby(["kind", "labels"]).mean(), 2)]


def main(arguments: Sequence[str] | None = None) -> None:
    options = results.options(__doc__, arguments, seeds=5, sets=(), workers=2)
    crowds = sources(options.sets or None, options.seeds)
    recorded = [source for source in crowds if source.kind == REAL]
    later = [source for source in crowds if source.kind in LATER]
    jobs = ((scored, often(crowds)), (scored_with_known, [*recorded, *later]))
    rows = [row for work, some in jobs for found in results.side_by_side(work, some, options.workers) for row in found]
    intervals = [row for found in results.side_by_side(covered, crowds, options.workers) for row in found]
    table, figures = tables(by_set(rows))
    without, chosen = left_out(rows)
    page = results.Page()
    page.tell(f"{options.seeds} seeds, {len(rows):,} scores", *table, *table_of_intervals(intervals), *without)
    page.held(*bars(rows))
    if options.save:
        kept = {"tables": figures, "left out": chosen}
        page.save("honesty", kept, f"bench_honesty --seeds {options.seeds} --save")


if __name__ == "__main__":
    main()
