"""Soft labels: log loss on answers of people that were left out, beside beliefs, votes and the annotator model.

    python -m tests.bench.honesty.soft_labels [--seeds 10] [--save]

Recorded sets with five labels per item or more, and at most 3,000 items of each. One answer of every item with three or
more is left out; the consensus and the soft labels have not seen it. `belief` is the consensus's (99 %, the rest even),
`votes` are shares of the answers with one answer more, spread as all answers are, `annotators` what the annotator
model expects of a random annotator given the belief. Simulated: annotators who see one class in each item, or
two classes in a fifth of them; `truth` is the distribution that answers are drawn from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hitl.annotations import Annotations, Floats, Ints
from hitl.consensus import Consensus
from hitl.evidence import Evidence
from hitl.models import DefaultCombiner
from hitl.models.analysis.disagreement import disagreement
from tests.bench import results
from tests.bench.bench_accuracy import load

SETS = (
    *("adult_content", "bluebirds", "cifar10s", "face_sentiment", "fact_eval", "relevance_trec2010", "rte"),
    *("sentence_polarity", "sentence_polarity_amt", "tweet_sentiment", "valence", "weather_amt", "weather_cf", "wsd"),
)
LARGEST, LEAST = 3000, 3
PREDICTIONS = ("belief", "votes", "annotators", "soft")


@dataclass(frozen=True, eq=False)
class LeftOut:
    """Annotations without one answer of each large item, and these answers: item and label."""

    annotations: Annotations
    item: Ints
    label: Ints


def subset(answers: Annotations, rows: Ints) -> Annotations:
    """These answers, of the same items and annotators."""
    columns = (answers.item[rows], answers.annotator[rows], answers.label[rows])
    names = (answers.items, answers.annotators, answers.classes, answers.options)
    return Annotations(*columns, *names, anonymous=answers.anonymous)


def left_out(answers: Annotations, seed: int) -> LeftOut:
    """Leave out one random answer of each item that has LEAST or more, of LARGEST random items."""
    rng = np.random.default_rng(seed)
    chosen = np.isin(answers.item, rng.permutation(answers.n_items)[:LARGEST])
    order = np.lexsort((rng.random(len(answers)), answers.item))
    first = order[answers.item_start[:-1][answers.labels_per_item >= LEAST]]
    is_out = np.isin(np.arange(len(answers)), first)
    out = np.flatnonzero(is_out & chosen)
    return LeftOut(subset(answers, np.flatnonzero(~is_out & chosen)), answers.item[out], answers.label[out])


def predictions(annotations: Annotations, consensus: Consensus) -> dict[str, Floats]:
    """Prediction -> (N, L) probabilities of one more answer to each item."""
    shape, people = (annotations.n_items, annotations.n_options), consensus.annotators
    counts = np.zeros(shape)
    np.add.at(counts, (annotations.item, annotations.label), 1)
    belief = np.full(shape, 0.01 / shape[1])
    belief[:, : annotations.n_classes] += 0.99 * consensus.probabilities
    votes = (counts + counts.sum(axis=0) / counts.sum()) / (counts.sum(axis=1, keepdims=True) + 1)
    mean_jl = np.tensordot(people.labels / people.labels.sum(), np.asarray(people.confusion), 1)
    soft = disagreement(Evidence(annotations), consensus).shares
    return dict(zip(PREDICTIONS, (belief, votes, consensus.probabilities @ mean_jl, soft), strict=True))


def losses(answers: Annotations, seed: int, **more: Floats) -> dict[str, float]:
    """Prediction -> log loss on the left out answers. `more`: predictions that know the truth."""
    given = left_out(answers, seed)
    found = predictions(given.annotations, DefaultCombiner().fit(Evidence(given.annotations))) | more
    return {name: float(-np.log(p_nl[given.item, given.label]).mean()) for name, p_nl in found.items()}


def simulated(seed: int, two: float, items: int = 600, people: int = 30, labels: int = 7) -> tuple[Annotations, ...]:
    """Answers of annotators of accuracy .65 to .95 on three classes, the truth about all answers, and mixed items.

    In a share `two` of the items people see two classes, three fifths of them the first.
    """
    rng, one = np.random.default_rng(seed), np.eye(3)
    mixed_n, first = rng.random(items) < two, rng.integers(3, size=items)
    second = (first + rng.integers(1, 3, items)) % 3
    seen_nj = np.where(mixed_n[:, None], 0.6 * one[first] + 0.4 * one[second], one[first])
    skill_k = rng.uniform(0.65, 0.95, people)
    pi_kjl = one * skill_k[:, None, None] + (1 - one) * (1 - skill_k[:, None, None]) / 2
    who = rng.random((items, people)).argsort(axis=1)[:, :labels]
    p_nml = np.einsum("nj,nmjl->nml", seen_nj, pi_kjl[who])
    label = (rng.random((items, labels, 1)) > p_nml.cumsum(axis=2)).sum(axis=2)
    names = (tuple(range(items)), tuple(range(people)), tuple("abc"), tuple("abc"))
    answers = Annotations(np.repeat(np.arange(items), labels), who.ravel(), label.ravel(), *names)
    return answers, seen_nj @ pi_kjl.mean(axis=0), mixed_n  # type: ignore[return-value]


def main(arguments: Sequence[str] | None = None) -> None:
    options = results.options(__doc__, arguments, seeds=10)
    rows, page = {}, results.Page()
    for name in SETS:
        answers = load(name).annotations
        rows[name] = [losses(answers, seed) for seed in range(options.seeds)]
    for name, two in (("simulated, one class", 0.0), ("simulated, two in a fifth", 0.2)):
        crowds = [(seed, simulated(seed, two)) for seed in range(options.seeds)]
        rows[name] = [losses(answers, seed, truth=truth) for seed, (answers, truth, _) in crowds]
    means = {name: {key: float(np.mean([row[key] for row in of])) for key in of[0]} for name, of in rows.items()}
    means["mean of recorded"] = {key: float(np.mean([means[name][key] for name in SETS])) for key in PREDICTIONS}
    page.tell(f"log loss of one answer, mean over {options.seeds} draws", *results.table(means, 4))
    overall = means["mean of recorded"]
    for other in PREDICTIONS[:-1]:
        page.held(results.at_most_of("soft, mean of recorded", other, overall["soft"], overall[other], 1))
    worse = {name: row["soft"] - min(row[other] for other in PREDICTIONS[:-1]) for name, row in means.items()}
    page.held(results.at_most_each("loss above the best of the others", worse, 0.005, ".4f"))
    if options.save:
        page.save("soft_labels", means, "honesty.soft_labels --save")


if __name__ == "__main__":
    main()
