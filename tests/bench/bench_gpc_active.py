"""Active learning with GPC-MA: which item is labeled next, and by whom (Rodrigues 2014, section 4.3, figure 2).

    python -m tests.bench.bench_gpc_active                              ionosphere and music_genre
    python -m tests.bench.bench_gpc_active --sets ionosphere --seeds 10

    random       any item, any annotator
    item         the items nearest to the boundary (eq. 11), any annotator
    both         these, each by the annotator most likely to be right about it (eq. 12)
    both, others the same, annotators chosen by how often they agree with what all else says of their items
                 (`by_others`)
    both, loo    the same, the method itself judges annotators without their own labels (section 3.3)

Figures are the mean AUC on the test items after so many queries, ten at a time; items without labels come first.

music_genre: each genre against the rest is a task of its own, as in the paper, with one length for all features. It
begins with one recorded label of each of 200 songs; a query reveals one recorded label of another song, so that
annotators are those who have labeled it. ionosphere: 70 % of the items and the seven annotators of bench_gpc, who
answer anything; it begins with 50 labels. A run is flipped where its last AUC is below one half. Each fit goes on from
the last one on music_genre, and begins anew on ionosphere.

What can be expected at most: `limits` are the test AUC of a process that is given the truth of all training items, and
of the method with every label that anybody can give, on the same splits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import softmax
from sklearn.metrics import roc_auc_score

from hitl.active.acquisition.scores import chance_right, entropy, latent_uncertainty
from hitl.annotations import Annotations, Floats, Ints
from hitl.consensus import Consensus
from hitl.evidence import Evidence
from hitl.models.gpc_ma import GPCMA, GPCGold
from tests import reference_data
from tests.bench import results
from tests.bench.bench_gpc import POSITIVE, SENSITIVITY, SPECIFICITY

STRATEGIES = {"random": False, "item": False, "both": False, "both, others": False, "both, loo": True}
"""Strategy -> whether the method judges annotators without their own labels."""

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
        reveal(item, rng.choice(np.flatnonzero(left_nk[item]), 1)[0])
    method = (OneOfTen if task.warm else GPCMA)(leave_one_out=STRATEGIES[strategy], tolerance=1e-3)
    found: Consensus | None = None
    trace = []
    for asked in range(0, QUERIES + 1, BATCH):
        evidence = Evidence(Annotations.from_matrix(said, classes=[0, 1]), features=task.x_nd)
        found = method.fit(evidence, start=found if task.warm else None)
        trace.append(float(roc_auc_score(task.truth[task.test], found.probabilities[task.test, 1])))
        if asked < QUERIES:
            skill_kjl = by_others(evidence, found) if strategy == "both, others" else found.annotators.confusion
            for item in chosen(found, said[:n], left_nk, strategy, rng):
                reveal(item, answering(found, skill_kjl, item, left_nk[item], strategy, rng))
    return trace


def limits(seeds: int) -> list[float]:
    """Mean test AUC over the splits of ionosphere: with the truth of all training items, and with all labels."""
    found = []
    for task in (ionosphere(seed)[0] for seed in range(seeds)):
        annotations, test = Annotations.from_matrix(task.answer_nk, classes=[0, 1]), task.test
        told = task.truth.astype(np.int32)
        told[test] = -1
        evidence = Evidence(annotations, features=task.x_nd)
        fits = GPCGold(tolerance=1e-3).fit(replace(evidence, truth=told)), GPCMA(tolerance=1e-3).fit(evidence)
        found.append([roc_auc_score(task.truth[test], fit.probabilities[test, 1]) for fit in fits])
    return [round(float(one), 4) for one in np.mean(found, axis=0)]


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


def by_others(evidence: Evidence, found: Consensus) -> Floats:
    """(K, J, L) confusion matrices, each label judged by the features and the other labels of its item.

    A label counts 1 - H(q) / ln J, where q are the beliefs of all else about its item.
    """
    a = evidence.annotations
    log_q_mj = np.log(found.probabilities[a.item] + 1e-300) - np.log(
        found.annotators.confusion[a.annotator, :, a.label]
    )
    q_mj = softmax(log_q_mj, axis=1)
    alpha_klj = np.tile([[8.0, 3.0], [3.0, 8.0]], (a.n_annotators, 1, 1))
    weight_m = np.maximum(1 - entropy(q_mj) / np.log(a.n_classes), 0.0)
    np.add.at(alpha_klj, (a.annotator, a.label), q_mj * weight_m[:, None])
    return np.asarray((alpha_klj / alpha_klj.sum(axis=1, keepdims=True)).transpose(0, 2, 1))


def answering(
    found: Consensus,
    skill_kjl: Floats,
    item: int,
    may_k: np.ndarray,  # type: ignore[type-arg]
    strategy: str,
    rng: np.random.Generator,
) -> int:
    """The annotator: whoever is most likely right, or anyone."""
    able = np.flatnonzero(may_k)
    if not strategy.startswith("both"):
        return int(rng.choice(able))
    right_k = chance_right(found.probabilities[item][None], skill_kjl[able])[0]
    return int(able[np.argmax(right_k)])


SETS: dict[str, Callable[[int], list[Task]]] = {
    "ionosphere": ionosphere,
    "music_genre": music,
}


def one(run_of: tuple[str, str, int, int]) -> list[float]:
    """The trace of a strategy on one task of a set."""
    name, strategy, seed, number = run_of
    return run(SETS[name](seed)[number], strategy, seed)


def summary(traces: Floats) -> dict[str, Any]:
    """Means and deviations of traces (seeds, tasks, batches)."""
    by_seed = traces.mean(axis=1)[:, [after // BATCH for after in SHOWN]]
    deviation = by_seed.std(axis=0, ddof=1) if len(by_seed) > 1 else np.full(by_seed.shape[1], np.nan)
    return {
        "seeds": len(traces),
        "tasks": traces.shape[1],
        "mean": by_seed.mean(axis=0).round(4).tolist(),
        "deviation": deviation.round(4).tolist(),
        "flipped": int((traces[:, :, -1] < 0.5).sum()),
    }


def bars(name: str, found: Mapping[str, Mapping[str, Any]]) -> list[results.Bar]:
    """The bars of one set; the second of ionosphere and the last of music_genre are above what all labels give."""
    if name == "ionosphere" and "both" in found:
        mean = dict(zip(SHOWN, found["both"]["mean"], strict=True))
        return [
            *(
                results.at_least(f"{name}, both, after {n}", mean[n], least, ".3f")
                for n, least in ((100, 0.896), (300, 0.979))
            ),
            results.at_most(f"{name}, both: flipped", found["both"]["flipped"], 0, "d"),
        ]
    if name != "music_genre" or not {"both", "item", "random"} <= set(found):
        return []
    means = np.array([found[strategy]["mean"] for strategy in ("both", "item", "random")])
    bars: list[results.Bar] = []
    for where, (both, item, random) in (
        ("mean of the columns", means[:, 1:].mean(axis=1)),
        ("after 300", means[:, -1]),
    ):
        figure = f"{both:.3f}, {item:.3f}, {random:.3f}"
        bars.append((f"{name}: both > item > random, {where}", figure, bool(both > item > random)))
    return [
        *bars,
        results.at_least(f"{name}: both over random after 300", means[0, -1] / means[2, -1] - 1, 0.1, "+.1%"),
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    options = results.options(
        __doc__, arguments, sets=list(SETS), seeds=10, genres=10, strategies=list(STRATEGIES), workers=2
    )
    page, figures, asked = results.Page(), dict[str, Any](), list[results.Bar]()
    for name in options.sets:
        tasks, figures[name], rows = min(options.genres, len(SETS[name](0))), {}, {}
        for strategy in options.strategies:
            runs = [(name, strategy, seed, task) for seed in range(options.seeds) for task in range(tasks)]
            traces = results.side_by_side(one, runs, options.workers)
            found = figures[name][strategy] = summary(np.array(traces).reshape(options.seeds, tasks, -1))
            pairs = zip(SHOWN, found["mean"], found["deviation"], strict=True)
            rows[strategy] = {str(after): f"{mean:.3f} ({spread:.3f})" for after, mean, spread in pairs}
            rows[strategy]["flipped"] = f"{found['flipped']} of {len(runs)}"
        page.tell("", f"{name}: mean test AUC after queries (standard deviation over {options.seeds} seeds)")
        page.tell(*results.table(rows))
        asked += bars(name, figures[name])
        if name == "ionosphere":
            truth, every = figures["limits"] = limits(options.seeds)
            page.tell(f"limits: the truth of all training items gives {truth:.4f}, all 1,715 labels {every:.4f}")
        if name == "music_genre":
            page.tell("limits: all 2,945 labels give .958, the true genres .970 (bench_gpc)")
    page.held(*asked)
    if options.save:
        page.save("gpc_active", figures)


if __name__ == "__main__":
    main()
