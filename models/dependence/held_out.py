"""How much tempering the labels themselves can bear.

Hold out one label of an item. The others' posterior, tempered as if their item pulled all annotators with strength c,

    p_c(l | others) = sum_j q_c(j) pi_kjl        q_c(j)  ∝  exp( ln q0_n(j without the label) / T'_n(c) )

predicts it worse than the best c does, the more so the larger c. On real crowds the best c is near 0: annotators who
are all misled alike predict one another well, so held-out labels cannot say how low confidence must be. They do say
how low it can be. The strength taken is the largest that loses at most TOLERANCE of what others tell of a label,

    loss(c) = (max_c s(c) - s(c)) / (max_c s(c) - s_blind)

with s the mean log probability of held-out labels, and s_blind that by the class shares alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hitl.annotations import Annotations, Floats
from hitl.models.numerics.compiled import compiled

TOLERANCE = 0.05
GRID = np.array([0.0, 0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0])
"""Strengths that are tried; between them the loss is interpolated."""

ENOUGH = 50_000
"""Labels to hold out; of a larger table those of evenly spread items."""

LEAST = 1e-3
"""What is left at least of a Dirichlet parameter when a label's own count is taken back."""


def bearable_strength(
    annotations: Annotations,
    log_q0_nj: Floats,
    learned_nj: Floats,
    delta_m: Floats,
    alpha_kjl: Floats,
    log_pi_klj: Floats,
    share_j: Floats,
) -> float:
    """The largest strength of GRID, interpolated, that the labels bear; 1 where they tell nothing of one another.

    log_q0_nj (N, J) log posterior under independence, learned_nj (N, J) the beliefs that matrices were learned from,
    delta_m (M,) separations, alpha_kjl and log_pi_klj the annotators' Dirichlet parameters and the log of their means,
    share_j (J,) class shares.
    """
    score_c, blind = scores(annotations, log_q0_nj, learned_nj, delta_m, alpha_kjl, log_pi_klj, share_j, GRID)
    best = int(score_c.argmax())
    known = score_c[best] - blind
    if not known > 1e-6:
        return 1.0
    loss_c = (score_c[best] - score_c) / known
    unbearable = np.flatnonzero(loss_c[best:] > TOLERANCE)
    if not unbearable.size:
        return float(GRID[-1])
    last = best + int(unbearable[0])
    return float(np.interp(TOLERANCE, loss_c[last - 1 : last + 1], GRID[last - 1 : last + 1]))


def scores(
    annotations: Annotations,
    log_q0_nj: Floats,
    learned_nj: Floats,
    delta_m: Floats,
    alpha_kjl: Floats,
    log_pi_klj: Floats,
    share_j: Floats,
    strength_c: Floats,
) -> tuple[Floats, float]:
    """(C,) mean log probability of held-out labels at each strength, and that by the class shares alone; nats.

    A label's own count is taken back from its annotator; only items with two labels or more are held out from.
    """
    labels_n = annotations.labels_per_item
    every = max(1, int(labels_n[labels_n > 1].sum()) // ENOUGH)
    sums = np.zeros(strength_c.size + 1)
    held_out = _held_out(
        annotations.item_start,
        annotations.annotator,
        annotations.label,
        every,
        np.ascontiguousarray(log_q0_nj),
        np.ascontiguousarray(learned_nj),
        delta_m,
        alpha_kjl,
        alpha_kjl.sum(axis=2),
        np.ascontiguousarray(log_pi_klj),
        share_j,
        strength_c,
        sums,
    )
    sums /= max(held_out, 1)
    return sums[:-1], float(sums[-1])


@compiled
def _held_out(
    start: Any,
    annotator: Any,
    label: Any,
    every: int,
    log_q: Any,
    learned: Any,
    delta: Any,
    alpha: Any,
    total: Any,
    log_pi: Any,
    share: Any,
    strength: Any,
    sums: Any,
) -> int:
    classes = log_q.shape[1]
    others, chance, belief = np.empty(classes), np.empty(classes), np.empty(classes)
    temperature = np.empty(strength.shape[0])
    held_out = 0
    for n in range(0, log_q.shape[0], every):
        labels = start[n + 1] - start[n]
        if labels < 2:
            continue
        for c in range(strength.shape[0]):
            correlation = 0.0
            for row in range(start[n], start[n + 1]):
                correlation += 1 - 1 / (1 + strength[c] * delta[row])
            temperature[c] = 1 + (labels - 2) * correlation / labels
        for row in range(start[n], start[n + 1]):
            k, option = annotator[row], label[row]
            blind = 0.0
            for j in range(classes):
                others[j] = log_q[n, j] - log_pi[k, option, j]
                left = max(alpha[k, j, option] - learned[n, j], LEAST)
                chance[j] = left / max(total[k, j] - learned[n, j], left)
                blind += share[j] * chance[j]
            sums[-1] += np.log(blind)
            for c in range(strength.shape[0]):
                _softmax(others, temperature[c], belief)
                predicted = 0.0
                for j in range(classes):
                    predicted += belief[j] * chance[j]
                sums[c] += np.log(predicted)
            held_out += 1
    return held_out


@compiled
def _softmax(logits: Any, temperature: float, out: Any) -> None:
    top = logits.max()
    mass = 0.0
    for j in range(out.shape[0]):
        out[j] = np.exp((logits[j] - top) / temperature)
        mass += out[j]
    for j in range(out.shape[0]):
        out[j] /= mass
