"""How often a pull of suggestions is found, and how often one that is not there.

    python -m tests.bench.honesty.suggestions [--projects 2000] [--save]

Projects of 1,000 items and 20 annotators whose accuracies differ, as do the items' difficulties, and a model of about
the same accuracy. Answers under a suggestion are copies of it, with the probability that raises agreement by so many
points. "until two agree": from two to five answers per item, as a policy asks. A fifth of the items is answered without
a suggestion, as by default; in the rows "share .1", a tenth.

"found": a pull, "negative": the opposite. Where there is neither, intervals of 95 % find each in 2.5 % of projects. The
second table combines a twentieth of the projects by the default method, with all answers and as `hitl run` does,
without as many as are copies.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from hitl.annotations import Annotations
from hitl.evidence import Evidence
from hitl.models import DefaultCombiner
from hitl.models.analysis.anchoring import is_blind, model_answers, pull, pulls, randomized, thinned
from tests.bench import results

CLASSES, ANNOTATORS, ACCURACY = 3, 20, 0.8
SHARES = TENTH, FIFTH = 0.1, 0.2
PROJECTS = {
    f"{points} points, {name}": (points / 100, stops, share)
    for name, stops, share in (
        ("3 answers", False, FIFTH),
        ("until two agree", True, FIFTH),
        ("share .1", False, TENTH),
    )
    for points in (10, 0)
}
COLUMNS = ("found", "negative", "mean", "covers", "half width", "annotators found", "annotators cover")


def project(seed: int, effect: float, stops: bool, share: float, items: int = 1000) -> tuple[Any, ...]:
    """Return evidence, blind items, when each annotator saw the first and the last suggestion, and the truth."""
    rng = np.random.default_rng(seed)
    truth, ease = rng.integers(CLASSES, size=items), rng.normal(size=items)

    def answer(accuracy: np.ndarray | float) -> np.ndarray:  # (N,) with this accuracy on items of mean difficulty
        right = rng.random(items) < 1 / (1 + np.exp(-np.log(accuracy / (1 - accuracy)) - ease))
        return np.where(right, truth, (truth + rng.integers(1, CLASSES, items)) % CLASSES)

    model, skill = answer(ACCURACY), rng.beta(8, 2, ANNOTATORS)
    who = rng.random((items, ANNOTATORS)).argsort(axis=1)[:, : 5 if stops else 3]
    said = np.stack([answer(skill[column]) for column in who.T], axis=1)
    blind = np.array([is_blind(f"project {seed}", str(n), share) for n in range(items)])
    time = rng.random(said.shape)
    shown = np.broadcast_to(~blind[:, None], said.shape)
    copies = shown & (rng.random(said.shape) < effect / (1 - (said == model[:, None]).mean()))
    said = np.where(copies, model[:, None], said)
    if stops:
        asked = np.array([max(2, next((m for m in (2, 3, 4) if np.bincount(row[:m]).max() > 1), 5)) for row in said])
    else:
        asked = np.full(items, 3)
    n, m = np.nonzero(np.arange(said.shape[1]) < asked[:, None])
    rows = {"item": n, "annotator": who[n, m], "label": said[n, m], "time": time[n, m]}
    names = {"items": tuple(range(items)), "classes": tuple(range(CLASSES)), "time": "time"}
    labels = Annotations.from_frame(pd.DataFrame(rows), **names)
    sure = 1 / (1 + np.exp(-1.5 * (model == truth) - rng.normal(size=items)))  # that it is right, at half the odds
    sure_nj = np.where(np.eye(CLASSES)[model] > 0, 1 / CLASSES + (1 - 1 / CLASSES) * sure[:, None], 0)
    sure_nj += (sure_nj == 0) * (1 - sure_nj.sum(axis=1, keepdims=True)) / (CLASSES - 1)
    evidence = Evidence(labels, probabilities={"model": sure_nj})
    seen = (
        pd.DataFrame(rows)[shown[n, m]].groupby("annotator").time.agg(["min", "max"]).reindex(list(labels.annotators))
    )
    return evidence, blind, *seen.to_numpy(float).T, truth


def simulated(seed: int, effect: float, stops: bool, share: float) -> pd.DataFrame:
    """Return the answers of a simulated project that enter the comparison."""
    evidence, *drawn, _ = project(seed, effect, stops, share)
    return randomized(evidence, model_answers(evidence, {}), *drawn)


def figures(projects: int, effect: float, stops: bool, share: float) -> dict[str, float]:
    """Return COLUMNS over so many projects."""
    found = [pulls(simulated(seed, effect, stops, share)) for seed in range(projects)]
    overall, each = [one.overall for one in found], [own for one in found for own in one.annotators.values()]
    values: Iterator[float] = (
        float(np.mean(column))
        for column in (
            [one.low > 0 for one in overall],
            [one.high < 0 for one in overall],
            [one.effect for one in overall],
            [one.low <= effect <= one.high for one in overall],
            [(one.high - one.low) / 2 for one in overall],
            [one.low > 0 for one in each],
            [one.low <= effect <= one.high for one in each],
        )
    )
    return dict(zip(COLUMNS, values, strict=True))


def combined(projects: int, effect: float, stops: bool, share: float) -> dict[str, float]:
    """Return, with all answers and without copies, log loss, the share of right labels, and what is claimed of it."""
    rows = []
    for seed in range(projects):
        evidence, *drawn, truth = project(seed, effect, stops, share)
        answers = randomized(evidence, model_answers(evidence, {}), *drawn)
        row = []
        for known in (evidence, thinned(evidence, answers, pull(answers).copies_among_equal, str(seed))):
            found = DefaultCombiner().fit(known)
            p_n = found.probabilities[np.arange(len(truth)), truth]
            row += [-np.log(p_n).mean(), (found.labels == truth).mean(), found.confidence.mean()]
        rows.append(row)
    names = [f"{name}, {kind}" for kind in ("all", "without") for name in ("log loss", "right", "claimed")]
    return dict(zip(names, np.mean(rows, axis=0).tolist(), strict=True))


def main(arguments: Sequence[str] | None = None) -> None:
    options = results.options(__doc__, arguments, projects=2000)
    page = results.Page()
    found = {name: figures(options.projects, *kind) for name, kind in PROJECTS.items()}
    page.tell(f"{options.projects} projects each", *results.table(found))
    used = {name: combined(options.projects // 20, *kind) for name, kind in PROJECTS.items() if kind[2] == FIFTH}
    page.tell(*results.table(used))
    for name, row in used.items():
        gap = abs(row["claimed, without"] - row["right, without"])
        page.held(results.at_most(f"{name}: |claimed - right|", gap, 0.03))
    for name, row in found.items():
        if name.startswith("0"):
            page.held(results.at_most(f"{name}: a pull is found", row["found"], 0.05))
        elif name != "10 points, share .1":
            page.held(results.at_least(f"{name}: found", row["found"], 0.9))
    if options.save:
        page.save("suggestions", {"found": found, "consensus": used}, "honesty.suggestions --save")


if __name__ == "__main__":
    main()
