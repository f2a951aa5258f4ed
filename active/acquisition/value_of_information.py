"""Value of answers: the expected number of additional right labels.

m answers a_1..m about an item with beliefs q, by an annotator with confusion matrix pi, gain on average

    G_m = sum over a_1..m of  max_j q_j prod_i pi[j, a_i]   -   max_j q_j   >= 0

A single answer often changes no label (G_1 = 0 if q is surer than the answer) although two or three that agree would.
So the value of an answer is the largest G_m / m. A project continues while the best next answer is worth its cost
(`best_next`), and asks only questions that are worth their cost (`pays`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from hitl.active.acquisition.scores import expected_accuracy_gain as accuracy_gain
from hitl.annotations import Floats
from hitl.consensus import AnnotatorReport, Consensus
from hitl.crew import Budget, Crew
from hitl.evidence import Evidence
from hitl.tables.shared_errors import as_array, diagonals, share_errors

SEQUENCES = 1024
"""Maximum number of answer sequences to evaluate: 10 answers with two options, 3 with ten."""

ITEMS, PEOPLE = 200, 10
"""Maximum numbers of items (least certain first) and annotators (most skill per cost first) to evaluate."""


def best_gain_per_label(q_nj: Floats, pi_jl: Floats, most: int) -> Floats:
    """Return (n,) the largest G_m / m over m <= `most` answers. SEQUENCES limits m too."""
    ahead = min(most, int(np.log(SEQUENCES) / np.log(max(pi_jl.shape[1], 2))))
    gains = [accuracy_gain(q_nj, pi_jl, m) / m for m in range(1, max(ahead, 1) + 1)]
    return np.asarray(np.max(gains, axis=0))


def best_next(
    questions: Sequence[tuple[Evidence, Consensus]], rows: npt.NDArray[np.intp], crew: Crew, budget: Budget
) -> tuple[float, float]:
    """Return for the best next answer about these items the right labels gained per unit of cost, and its cost.

    The search covers the least certain of the items `rows` and the annotators with the most skill per cost. Without
    items, return a gain of 0. With several questions per item, an annotator answers all of them at once, and the gains
    are averaged, as accuracy is.
    """
    confidence = np.mean([consensus.confidence[rows] for _, consensus in questions], axis=0)
    least = rows[np.argsort(confidence, kind="stable")[:ITEMS]]
    if not least.size:
        return 0.0, crew.default_cost
    cost_k = np.array(crew.prices)
    matrices = [crew_confusion(consensus, crew) for _, consensus in questions]
    # how much more often each annotator is right than a random guess
    skills = [np.maximum(diagonals(pi).mean(axis=1) - 1 / pi.shape[1], 1e-9) for pi in matrices]
    skill_k = np.mean(skills, axis=0)
    best = (0.0, float(cost_k.min()))
    for k in np.argsort(-skill_k / cost_k, kind="stable")[:PEOPLE]:
        gain_n = np.mean(
            [
                best_gain_per_label(consensus.probabilities[least], pi_kjl[k], budget.max_labels)
                for (_, consensus), pi_kjl in zip(questions, matrices, strict=True)
            ],
            axis=0,
        )
        best = max(best, (float(gain_n.max()) / float(cost_k[k]), float(cost_k[k])))
    return best


def pays(
    questions: Sequence[tuple[Evidence, Consensus]],
    item: npt.NDArray[np.integer],
    person: npt.NDArray[np.integer],
    crew: Crew,
    budget: Budget,
) -> npt.NDArray[np.bool_]:
    """Return (P,) True for each (item, annotator) pair whose answer is worth its cost.

    `item`: (P,) item codes. `person`: (P,) positions in the crew, 0 if it has no names. The gain is computed as in
    `best_next`.
    """
    cost_k = np.array(crew.prices)
    gain = np.zeros(len(item))
    for _, consensus in questions:
        pi_kjl = crew_confusion(consensus, crew)
        for k in np.unique(person):
            here = person == k
            q_nj = consensus.probabilities[item[here]]
            gain[here] += best_gain_per_label(q_nj, pi_kjl[k], budget.max_labels) / len(questions)
    return np.asarray((budget.value_per_label or np.inf) * gain >= cost_k[person])


def crew_confusion(consensus: Consensus, crew: Crew) -> Floats:
    """Return (K', J, L) confusion matrices of the crew. Newcomers get the average one.

    A crew without names counts as one average annotator.
    """
    learned = consensus.annotators
    place = {name: k for k, name in enumerate(learned.names)}
    if share_errors(learned.confusion) and learned.names:
        right_k = learned.confusion.right_k
        average = float(right_k @ _weights(learned))
        right = [right_k[place[name]] if name in place else average for name in crew.names] or [average]
        return as_array(learned.confusion.of(np.array(right)))
    average_jl = average_confusion(consensus)
    if not crew.names:
        return average_jl[None]
    return np.stack([learned.confusion[place[name]] if name in place else average_jl for name in crew.names])


def average_confusion(consensus: Consensus) -> Floats:
    """Return (J, L) the confusion matrix of the average annotator, weighted by number of labels.

    Before any label, this annotator is right 3 times out of 4, as the combiners' priors expect (`hitl.crew`).
    """
    learned = consensus.annotators
    if not learned.names:
        n_classes, n_options = len(learned.classes), len(learned.options)
        guess = np.full((n_classes, n_options), 0.25 / max(n_options - 1, 1))
        np.fill_diagonal(guess, 0.75)
        return guess
    if share_errors(learned.confusion):
        average = learned.confusion.right_k @ _weights(learned)
        return np.asarray(learned.confusion.of(np.array([average]))[0])
    return np.asarray(np.average(learned.confusion, axis=0, weights=learned.labels + 1.0))


def _weights(learned: AnnotatorReport) -> Floats:
    """Return (K,) the weight of each annotator in the average."""
    return np.asarray((learned.labels + 1.0) / (learned.labels + 1.0).sum())


def err_evenly(pi_jl: Floats) -> Floats:
    """Give every class the mean accuracy of the (J, L) matrix, and spread errors evenly over the other classes.

    Options that are not classes keep their mean probability.
    """
    j = len(pi_jl)
    even: Floats = np.tile(pi_jl.mean(axis=0), (j, 1))
    right = float(np.diagonal(pi_jl).mean())
    even[:, :j] = (1 - right - even[0, j:].sum()) / max(j - 1, 1)
    even[np.arange(j), np.arange(j)] = right
    return even
