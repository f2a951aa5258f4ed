"""Active learning with GPC-MA: which item is labeled next, and by whom (Rodrigues 2014, section 4.3, figure 2).

    python -m tests.bench.bench_gpc_active                              ionosphere and music_genre
    python -m tests.bench.bench_gpc_active --sets ionosphere --seeds 10

    random       any item, any annotator
    item         the items nearest to the boundary (eq. 11), any annotator
    both         these, each by the annotator most likely to be right about it (eq. 12)
    both, loo    the same, annotators judged without their own labels (section 3.3)

Figures are the mean AUC on the test items after so many queries, ten at a time; items without labels come first.

music_genre: each genre against the rest is a task of its own, as in the paper, with one length for all features. It
begins with one recorded label of each of 200 songs; a query reveals one more recorded label, so that annotators are
those who have labeled the song. ionosphere: 70 % of the items and the seven annotators of bench_gpc, who answer
anything; it begins with 50 labels. A run is flipped where its last AUC is below one half. Each fit goes on from the
last one on music_genre, and begins anew on ionosphere.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.metrics import roc_auc_score

from hitl.active.acquisition.scores import chance_right, latent_uncertainty
from hitl.annotations import Annotations, Floats, Ints
from hitl.consensus import Consensus
from hitl.evidence import Evidence
from hitl.models.gpc_ma import GPCMA
from tests import reference_data
from tests.bench import results
from tests.bench.bench_gpc import POSITIVE, SENSITIVITY, SPECIFICITY

STRATEGIES = {"random": False, "item": False, "both": False, "both, loo": True}
"""Strategy -> whether annotators are judged without their own labels."""

QUERIES, BATCH = 300, 10
SHOWN = (0, 50, 100, 200, 300)


@dataclass(frozen=True, slots=True)
class OneOfTen(GPCMA):
    """With the prior that `GPCMA` itself has of a question about one class of ten: few answers are false positives."""

    def pseudo_counts(self, annotations: Annotations) -> Floats:
        """(2, 2) sensitivities as of two classes; wrong answers spread over nine classes."""
        right, wrong = self.right - 1, self.wrong - 1
        return np.array([[right + wrong - wrong / 9, wrong / 9], [wrong, right]])


@dataclass(frozen=True)
class Task:
    """Items with and without recorded answers, of two classes: features, answers (N, K) or -1, and the test items."""

    x_nd: Floats
    answer_nk: Ints
    truth: Ints
    test: slice
    begun: int
    warm: bool


def ionosphere(seed: int) -> list[Task]:
    """One task; everybody can answer everything."""
    x_nd, label = reference_data.features("ionosphere")
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(label))
    truth = np.array([int(one == POSITIVE["ionosphere"]) for one in label])[order]
    train = int(0.7 * len(truth))
    said = (rng.random((len(truth), 7)) < np.where(truth[:, None] == 1, SENSITIVITY, 1 - SPECIFICITY)).astype(int)
    said[train:] = -1
    return [Task(x_nd[order], said, truth, slice(train, None), 50, False)]


def music(seed: int) -> list[Task]:
    """A task for each genre; answers are those recorded."""
    evidence = reference_data.crowd("music_genre")
    given, classes = evidence.annotations, evidence.annotations.classes
    x_nd = np.vstack([reference_data.features("music_genre", part)[0] for part in ("", "_test")])
    label = [one for part in ("", "_test") for one in reference_data.features("music_genre", part)[1]]
    tasks = []
    for j, name in enumerate(classes):
        answer_nk = np.full((len(x_nd), given.n_annotators), -1)
        answer_nk[given.item, given.annotator] = given.label == j
        truth = np.array([int(one == name) for one in label])
        tasks.append(Task(x_nd, answer_nk, truth, slice(given.n_items, None), 200, True))
    return tasks


def run(task: Task, strategy: str, seed: int) -> list[float]:
    """Test AUC before the first and after each batch of queries."""
    rng, n = np.random.default_rng(seed), task.test.start
    left_nk = task.answer_nk[:n] >= 0
    said = np.full(task.answer_nk.shape, -1)

    def reveal(item: int, annotator: int) -> None:
        said[item, annotator], left_nk[item, annotator] = task.answer_nk[item, annotator], False

    for item in rng.choice(np.flatnonzero(left_nk.any(axis=1)), task.begun, replace=False):
        reveal(item, rng.choice(np.flatnonzero(left_nk[item])))
    method = (OneOfTen if task.warm else GPCMA)(leave_one_out=STRATEGIES[strategy], tolerance=1e-3)
    found: Consensus | None = None
    trace = []
    for asked in range(0, QUERIES + 1, BATCH):
        evidence = Evidence(Annotations.from_matrix(said, classes=[0, 1]), features=task.x_nd)
        found = method.fit(evidence, start=found if task.warm else None)
        trace.append(float(roc_auc_score(task.truth[task.test], found.probabilities[task.test, 1])))
        if asked < QUERIES:
            for item in chosen(found, said[:n], left_nk, strategy, rng):
                reveal(item, answering(found, item, left_nk[item], strategy, rng))
    return trace


def chosen(
    found: Consensus, said_nk: Ints, left_nk: np.ndarray, strategy: str, rng: np.random.Generator
) -> Sequence[int]:  # type: ignore[type-arg]
    """The items of a batch: those with fewest labels first, of these the nearest to the boundary, or any."""
    score_n = rng.random(len(said_nk))
    if strategy != "random":
        kept = found.parameters
        score_n = latent_uncertainty(kept["latent mean"][0], kept["latent variance"][0])[: len(said_nk)]
    order = np.lexsort((-score_n, (said_nk >= 0).sum(axis=1)))
    return [int(item) for item in order if left_nk[item].any()][:BATCH]


def answering(found: Consensus, item: int, may_k: np.ndarray, strategy: str, rng: np.random.Generator) -> int:  # type: ignore[type-arg]
    """The annotator: whoever is most likely right, or anyone."""
    able = np.flatnonzero(may_k)
    if not strategy.startswith("both"):
        return int(rng.choice(able))
    right_k = chance_right(found.probabilities[item][None], found.annotators.confusion[able])[0]
    return int(able[np.argmax(right_k)])


SETS: dict[str, Callable[[int], list[Task]]] = {"ionosphere": ionosphere, "music_genre": music}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table; with --save also write docs/benchmarks/gpc_active.*."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=list(SETS))
    parser.add_argument("--seeds", type=int, default=0, help="runs of each set (default: 10 of ionosphere, 1 of music)")
    parser.add_argument("--genres", type=int, default=10, help="how many of music_genre's tasks")
    parser.add_argument("--strategies", nargs="+", default=list(STRATEGIES), choices=list(STRATEGIES))
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--keep", action="store_true", help="keep the saved figures of the other set")
    parser.add_argument("--save", action="store_true", help="write docs/benchmarks/gpc_active.txt and .json")
    options = parser.parse_args(arguments)
    figures: dict[str, Any] = results.load("gpc_active") if options.keep else {}
    for name in options.sets:
        seeds = options.seeds or {"ionosphere": 10, "music_genre": 1}[name]
        of = f" of {options.genres} genres" if name == "music_genre" else ""
        figures[name] = {"runs": f"{seeds} run{'' if seeds == 1 else 's'}{of}"}
        for strategy in options.strategies:
            numbers = range(options.first, options.first + seeds)
            tasks = [(task, seed) for seed in numbers for task in SETS[name](seed)[: options.genres]]
            traces = np.array([run(task, strategy, seed) for task, seed in tasks])
            at = [round(float(traces[:, after // BATCH].mean()), 4) for after in SHOWN]
            figures[name][strategy] = [*at, int((traces[:, -1] < 0.5).sum())]
            print(described(name, figures[name])[-1], flush=True)
    lines = [line for name in SETS if name in figures for line in described(name, figures[name])]
    told = results.held(bars(figures))
    print("\n".join([*lines, *told]))
    if options.save:
        results.save("gpc_active", [*lines, *told], figures)


def described(name: str, rows: dict[str, Any]) -> list[str]:
    """The table of a set."""
    lines = ["", f"{name}, {rows['runs']}: mean test AUC after queries"]
    lines.append(f"{'':12}{''.join(f'{after:8}' for after in SHOWN)}   flipped")
    for strategy in (strategy for strategy in STRATEGIES if strategy in rows):
        *at, flipped = rows[strategy]
        lines.append(f"{strategy:12}{''.join(f'{auc:8.3f}' for auc in at)}{flipped:10}")
    return lines


def bars(figures: dict[str, Any]) -> list[tuple[str, str, bool]]:
    """The bars of the issue, of the sets that were run."""
    told = []
    of = figures.get("ionosphere", {}).get("both, loo")
    if of:
        after, last, flipped = of[SHOWN.index(100)], of[SHOWN.index(300)], of[-1]
        found = f"{after:.3f} / {last:.3f}, {flipped} flipped"
        told.append(
            (
                "ionosphere: .896 / .979 after 100 / 300, none flipped",
                found,
                after >= 0.896 and last >= 0.979 and not flipped,
            )
        )
    of = figures.get("music_genre", {})
    if {"both, loo", "item", "random"} <= set(of):
        mean = [float(np.mean(of[strategy][1:-1])) for strategy in ("both, loo", "item", "random")]
        order = ", ".join(f"{one:.3f}" for one in mean)
        told.append(
            ("music_genre: both > item > random, mean of the columns", order, mean == sorted(mean, reverse=True))
        )
        gain = of["both, loo"][-2] / of["random"][-2] - 1
        told.append(("music_genre: 10 % above random after 300", f"{gain:+.1%}", gain >= 0.1))
    return told


if __name__ == "__main__":
    main()
