"""The page docs/results/field.md and the tables docs/benchmarks/field.txt, made from docs/benchmarks/field.json."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from tests.bench import results

PAGE = results.FOLDER.parent / "results" / "field.md"
OURS, MAJORITY, WHOLE = "hitl default", "hitl majority", "all"
MEASURES = ("accuracy", "log loss", "ECE")
JOSS = {
    "MajorityVote": (0.932, 0.536, 0.763),
    "Wawa": (0.951, 0.557, 0.766),
    "DawidSkene": (0.960, 0.615, 0.748),
    "GLAD": (0.948, 0.511, 0.760),
    "KOS": (0.933, None, None),
    "MACE": (0.950, 0.501, 0.763),
    "MMSR": (0.937, 0.425, 0.751),
}
"""Accuracies in crowd-kit's paper (JOSS 2024) on JOSS_SETS."""
JOSS_SETS = ("tweet_sentiment", "relevance_trec2010", "adult_content")
PTBCC = {
    "weather_cf": 0.8933,
    "fact_eval": 0.9010,
    "music_genre": 0.7943,
    "face_sentiment": 0.6558,
    "adult_content": 0.7718,
}
"""Accuracies of PTBCC per set, in the independent reproduction that matches the mean of Zhang et al. 2025, .7472."""


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    """Lines of a Markdown table."""
    lines = [list(columns), ["---"] * len(columns), *([str(cell) for cell in row] for row in rows)]
    return ["| " + " | ".join(line) + " |" for line in lines]


def figure(value: float | None) -> str:
    """Show three decimals, or nothing."""
    return "" if value is None or pd.isna(value) else f"{value:.3f}"


def scores(found: Mapping[str, Any]) -> pd.DataFrame:
    """Return a row of MEASURES per method, set and labels, of the fits that finished."""
    rows = [(*row[:3], *row[3]) for row in found["rows"] if not isinstance(row[3], str)]
    return pd.DataFrame(rows, columns=["method", "set", "labels", *MEASURES]).astype(dict.fromkeys(MEASURES, float))


def summary(whole: pd.DataFrame) -> list[str]:
    """Say where the default is first in log loss and where its accuracy is below that of majority vote."""
    loss = whole.pivot(index="set", columns="method", values="log loss")
    first, right = loss.idxmin(axis=1), whole.pivot(index="set", columns="method", values="accuracy")
    beaten = [name for name, method in first.items() if method != OURS]
    gap = 100 * (right[OURS] - right[MAJORITY])
    below = [f"`{name}` ({points:+.1f})" for name, points in gap.sort_values().items() if points < -1]
    n, least = len(loss) - len(beaten), 0.8 * len(loss)
    aim = "That meets the aim" if n >= least else "That misses the aim"
    lines = [
        f"- **Log loss:** hitl's default has the lowest one on **{n} of {len(loss)} sets**. {aim} that was set before the "
        "run, four sets in five (20 of 25; only these have labels and ground truth here).",
        f"- **Accuracy:** {'no set is' if not below else 'these sets are'} more than one point below majority vote"
        f"{': ' + ', '.join(below) if below else ''}.",
        "",
        "hitl is not first in log loss here:",
        "",
    ]
    rows = [(f"`{s}`", first[s], figure(loss.loc[s, first[s]]), figure(loss.loc[s, OURS])) for s in beaten]
    return [*lines, *table(("set", "first", "its log loss", "hitl's"), rows)]


def per_set(whole: pd.DataFrame, sizes: Mapping[str, Sequence[int]]) -> list[str]:
    """A row per set: its size, and the default beside majority vote and the best of all others."""
    rows = []
    for name, (items, labels, _, classes, known) in sizes.items():
        here = whole[whole["set"] == name].set_index("method")
        others = here.drop(OURS)
        row = [f"`{name}`", f"{items:,}", f"{labels:,}", classes, f"{known:,}", figure(here.loc[MAJORITY, "accuracy"])]
        for measure in MEASURES:
            best = others[measure].idxmax() if measure == "accuracy" else others[measure].idxmin()
            row += [figure(here.loc[OURS, measure]), f"{figure(others.loc[best, measure])} ({best})"]
        rows.append(row)
    columns = ["set", "items", "labels", "classes", "scored", "majority"]
    return table([*columns, *(f"{m}, {who}" for m in MEASURES for who in ("hitl", "best other"))], rows)


def means(here: pd.DataFrame) -> list[str]:
    """A row per method: means over the sets where it finished, beside the default's on the same sets."""
    ours, rows = here[here["method"] == OURS].set_index("set"), []
    for method, theirs in here.groupby("method", sort=False):
        same = ours.loc[theirs["set"]]
        cells = [pair for m in MEASURES for pair in (figure(theirs[m].mean()), figure(same[m].mean()))]
        if theirs["log loss"].isna().all():
            cells[3] = cells[5] = ""
        rows.append((method, len(theirs), *cells))
    rows.sort(key=lambda row: (row[0] != OURS, row[0]))
    return table(["method", "sets", *(name for m in MEASURES for name in (m, "hitl's"))], rows)


def published(whole: pd.DataFrame) -> list[str]:
    """A row per published accuracy."""
    at = whole.set_index(["method", "set"])["accuracy"]
    figures = [
        (f"crowd-kit {method}", name, value)
        for method, values in JOSS.items()
        for name, value in zip(JOSS_SETS, values, strict=True)
        if value is not None
    ]
    figures += [("hitl PTBCC", name, value) for name, value in PTBCC.items()]
    rows = []
    for method, name, value in figures:
        here = at.get((method, name))
        near = (
            "did not finish" if here is None else "yes" if abs(here - value) <= 0.002 + 1e-9 else f"{here - value:+.3f}"
        )
        rows.append((method, f"`{name}`", figure(value), figure(here), near))
    return table(("method", "set", "published", "here", "within .002"), rows)


def absences(found: Mapping[str, Any]) -> list[str]:
    """A row per method and reason why a fit has no figures, with the number of fits and the sets."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for method, name, _, outcome in found["rows"]:
        if isinstance(outcome, str):
            reasons.setdefault((method, outcome.split("\n")[0].replace("|", "/")), []).append(name)
    rows = [
        (
            method,
            reason,
            len(names),
            "all" if len(set(names)) == len(found["sets"]) else ", ".join(dict.fromkeys(names)),
        )
        for (method, reason), names in sorted(reasons.items())
    ]
    return table(("method", "reason", "fits", "sets"), rows)


TEXT = """\
# Results beside the field

Which open package gives the best labels, and the most honest confidence? {methods} methods of {packages} packages got the
same labels of {sets} public sets, without any ground truth and with their own settings. `make results` repeats it.

{summary}

The constants of hitl's default were chosen with these sets in view ([which, on which](../results.md#what-was-tuned-on-what));
no setting was changed for this page. Expect somewhat less on other data.

## Each set

Log loss is in nats, and a method that gives the truth probability 0 pays 34.5 for that item. ECE is the expected calibration
error over up to 15 bins. Ties share the credit. "Scored" counts the items whose ground truth is recorded. Best of all others
includes majority vote, VB-IBCC, Dawid–Skene and PTBCC as hitl implements them. [All figures](../benchmarks/field.txt)

{per_set}

`trec2010_binary` is left out because it is a second coding of `relevance_trec2010`, and `conll2003_ner_crowd` because its
tokens are no independent items.

## All labels: means

Beside each mean stands that of hitl's default on the same sets, because no method finished on more sets than it could.

{means}

{thin}

## Published figures

Accuracies that others published on these sets, and those measured here. Two differences explain most gaps: crowd-kit's paper
breaks ties at random where this page shares the credit, and here a repeated answer of the same annotator to the same item
counts once.{explained}

{published}

The table of PTBCC has the independent reproduction whose mean over eleven sets is .7472, as published; five of these sets are
here. hitl's `ptbcc` is its own implementation: no package has the model.

## What could not run

A fit is stopped after {limit:g} seconds, and its method is not tried on larger tables.

{absences}

PTBCC, FGBCC and BWA have no package that can be installed. PlantNet and TwoThird of peerannot leave items without a label.
CROWDLAB asks for a classifier; without one it gets the shares of the labels. [Beside a real
classifier](../results.md#beside-other-packages) it does better. Versions: {versions}.

## Add a method

Write one file in `tests/bench/field/methods/` with `PACKAGE`, the name of your package on PyPI, and `METHODS`, a name and a
function for each method. The function gets `annotations` and returns (N, J) probabilities in the order of `annotations.items`
and `annotations.classes`, or (N,) class codes. Install your package into `.venv/bench`, then run `make results`.
"""


def text(found: Mapping[str, Any]) -> str:
    """The whole page."""
    every = scores(found)
    whole = every[every["labels"] == WHOLE]
    thin = []
    for labels in ("1.2", "2", "3"):
        thin += [f"## {labels} labels per item: means", "", *means(every[every["labels"] == labels]), ""]
    parts = {
        "summary": summary(whole),
        "per_set": per_set(whole, found["sets"]),
        "means": means(whole),
        "thin": thin[:-1],
    }
    parts |= {"published": published(whole), "absences": absences(found)}
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    return TEXT.format(
        methods=len({row[0] for row in found["rows"]}),
        packages=len(found["versions"]),
        sets=len(found["sets"]),
        limit=found["limit"],
        versions=versions,
        explained="",
        **{name: "\n".join(lines) for name, lines in parts.items()},
    )


def write(found: Mapping[str, Any]) -> None:
    """Write the figures, all of them as text, and the page."""
    page, every = results.Page(), scores(found)
    for labels in dict.fromkeys(every["labels"]):
        for measure in MEASURES:
            here = every[every["labels"] == labels].pivot(index="method", columns="set", values=measure)
            page.tell("", f"{measure}, {labels} labels per item", *results.table(here, 4))
    (results.FOLDER / "field.txt").write_text("\n".join(["$ make results", *page]) + "\n")
    head = json.dumps({name: value for name, value in found.items() if name != "rows"})
    rows = ",\n".join(json.dumps(row) for row in found["rows"])
    (results.FOLDER / "field.json").write_text(f'{head[:-1]}, "rows": [\n{rows}\n]}}\n')
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(text(found))
