"""Test whether annotators change over time, compared with the others' labels, and estimate accuracy in time windows.

Take annotator k's labels l_1, l_2, ... in order of time, the others' beliefs q_tj about their items (`leave_one_out`)
and one confusion matrix pi for the whole time. Shift its accuracy by d, equally in every class:

    p_d(l_t) = p(l_t) + d g(l_t)
    p(l) = sum_j q_j pi[j, l]        g(l) = q_l - sum_{j != l} q_j pi[j, l] / (1 - pi[j, j])

The score of each label u_t = g(l_t) / p(l_t) has mean 0 and variance i_t = sum_l g(l)^2 / p(l) while nothing changes.
The cumulative sum, tied down at both ends,

    B_t = (U_t - (I_t / I_T) U_T) / s        U_t = sum_{r <= t} u_r    I_t = sum_{r <= t} i_r
                                             s^2 = sum_t (u_t - i_t U_T / I_T)^2

is then nearly a Brownian bridge in I_t / I_T, and its p-value is that of Kolmogorov's distribution at max |B_t|,
corrected for the bridge's excursions between steps. The accuracy in any stretch of time is the overall accuracy plus
sum u / sum i over the stretch (one Fisher scoring step), ± 1.96 / sqrt(sum i).

Because a project is tested again and again, every doubling of the labels gets its own share of the error probability:

    p_any_look = min(1, LOOKS (1 + log2(T / LEAST_LABELS))^2 p)

is below 0.05 at any look for fewer than 5 % of constant annotators (simulated, looks every 5 labels up to 2,000).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import kolmogorov
from scipy.stats import false_discovery_control

from hitl.annotations import Annotations, Floats, Ints
from hitl.models.analysis.proportions import Z95
from hitl.models.annotators.leave_one_out import Others, some_rows

LEAST_LABELS, MOST_LABELS = 20, 2000
"""Minimum number of labels with a time for testing an annotator; maximum number used, spread evenly over time."""

WINDOW, MOST_WINDOWS = 20, 8
"""Minimum number of labels per window; maximum number of windows."""

FALSE_SHARE = 0.05
"""Maximum expected share of false alarms among all alarms, and of constant annotators with an alarm at any look."""

LEAST_EFFECT = 0.05
"""Smallest change of accuracy that is reported."""

BETWEEN = 0.5826
"""max |B_t| is raised by BETWEEN / sqrt(number of steps), to allow for excursions between steps (Siegmund 1985)."""

LOOKS = 4.0
"""Factor on the p-value: for several looks within a doubling s of the labels, and for the sum of 1 / s^2 over all s."""

SURE_OF_ROW = 0.995
"""Highest accuracy assumed for a class, so that one slip of a perfect annotator raises no alarm."""


@dataclass(frozen=True, eq=False)
class Windows:
    """Accuracy of an annotator in T windows of about equally many labels, with its 95 % interval.

    `start` and `end` are the times of each window's first and last label, in seconds since the epoch.
    """

    start: Floats
    end: Floats
    labels: Ints
    accuracy: Floats
    low: Floats
    high: Floats


@dataclass(frozen=True, eq=False)
class Change:
    """Most likely change of an annotator.

    Attributes:
        p_value, p_any_look: chance of a change this clear in a constant annotator, at one look and over all looks.
        when: time of the first label after the change, in seconds since the epoch.
        before, after: accuracy before and after the change, in [0, 1]. They are split where they differ most clearly,
            which overstates the difference.
        windows: accuracy in windows of time.
    """

    p_value: float
    p_any_look: float
    when: float
    before: float
    after: float
    windows: Windows

    @property
    def effect(self) -> float:
        """Gain of accuracy, in [-1, 1]."""
        return self.after - self.before


def find_changes(annotations: Annotations, others: Others, confusion_kjl: Floats) -> list[Change | None]:
    """Return the most likely change of each annotator; `confusion_kjl` (K, J, L) are matrices over the whole time.

    It is None with fewer than LEAST_LABELS labels with a time, or if all have the same time.
    """
    changes: list[Change | None] = [None] * annotations.n_annotators
    if annotations.time is None:
        return changes
    rows = some_rows(annotations, MOST_LABELS)
    rows = rows[np.isfinite(annotations.time[rows])]
    annotator = annotations.annotator[rows]
    for part in np.split(rows, np.flatnonzero(np.diff(annotator)) + 1):
        if len(part) >= LEAST_LABELS:
            k = int(annotations.annotator[part[0]])
            time, label = annotations.time[part], annotations.label[part]
            changes[k] = find_change(time, label, others.beliefs(part), confusion_kjl[k])
    return changes


def alarms(changes: list[Change | None]) -> npt.NDArray[np.bool_]:
    """Return (K,) True for annotators with a large change, significant among all tests and at any look."""
    alarm_k = np.zeros(len(changes), bool)
    tested = [k for k, change in enumerate(changes) if change is not None]
    made = [change for change in changes if change is not None]
    if made:
        significant = false_discovery_control([change.p_value for change in made]) <= FALSE_SHARE
        large = [change.p_any_look <= FALSE_SHARE and abs(change.effect) >= LEAST_EFFECT for change in made]
        alarm_k[tested] = significant & np.array(large)
    return alarm_k


def find_change(time: Floats, label: Ints, q_tj: Floats, pi_jl: Floats) -> Change | None:
    """Return the most likely change in T labels sorted by time, None if all have the same time."""
    moments = np.flatnonzero(np.diff(time) > 0)  # a change can only be between two different times
    if not moments.size:
        return None
    score_t, information_t, accuracy = scores(label, q_tj, pi_jl)
    u_t, i_t = np.cumsum(score_t), np.cumsum(information_t)
    spread = np.sum((score_t - information_t * u_t[-1] / i_t[-1]) ** 2)  # near i_t[-1] where the model is right
    bridge_t = np.abs(u_t - i_t / i_t[-1] * u_t[-1])[moments] / np.sqrt(max(spread, 1e-9))
    last = int(moments[bridge_t.argmax()])
    before = float(np.clip(accuracy + u_t[last] / i_t[last], 0, 1))
    after = float(np.clip(accuracy + (u_t[-1] - u_t[last]) / (i_t[-1] - i_t[last]), 0, 1))
    p_value = float(kolmogorov(bridge_t.max() + BETWEEN / np.sqrt(len(moments))))
    any_look = min(1.0, LOOKS * (1 + np.log2(max(1.0, len(time) / LEAST_LABELS))) ** 2 * p_value)

    start = np.linspace(0, len(time), max(1, min(MOST_WINDOWS, len(time) // WINDOW)) + 1).astype(int)
    u_w, i_w = np.add.reduceat(score_t, start[:-1]), np.add.reduceat(information_t, start[:-1])
    accuracy_w, half_w = accuracy + u_w / i_w, Z95 / np.sqrt(i_w)
    levels = (np.clip(level, 0, 1) for level in (accuracy_w, accuracy_w - half_w, accuracy_w + half_w))
    windows = Windows(time[start[:-1]], time[start[1:] - 1], np.diff(start).astype(np.int32), *levels)
    return Change(p_value, float(any_look), float(time[last + 1]), before, after, windows)


def scores(label: Ints, q_tj: Floats, pi_jl: Floats) -> tuple[Floats, Floats, float]:
    """Return (T,) scores of a shift in accuracy, (T,) their variances, and the overall accuracy.

    `label` (T,) are the answers, `q_tj` (T, J) the others' beliefs, `pi_jl` (J, L) the confusion matrix.
    """
    classes = np.arange(len(pi_jl))
    right_j = np.clip(pi_jl[classes, classes], 1 - SURE_OF_ROW, SURE_OF_ROW)
    wrong_jl = pi_jl.copy()
    wrong_jl[classes, classes] = 0.0
    wrong_jl += 1e-9  # rows without a wrong answer: all wrong answers are equally likely
    wrong_jl[classes, classes] = 0.0
    wrong_jl /= wrong_jl.sum(axis=1, keepdims=True)
    # einsum, not @: in thousands of small products the threads of a linear algebra library cost more than they save
    g_tl = -np.einsum("tj,jl->tl", q_tj, wrong_jl)
    g_tl[:, classes] += q_tj
    p_tl = np.einsum("tj,jl->tl", q_tj, wrong_jl * (1 - right_j)[:, None])
    p_tl[:, classes] += q_tj * right_j
    score_t = g_tl[np.arange(len(label)), label] / p_tl[np.arange(len(label)), label]
    information_t: Floats = np.sum(g_tl**2 / p_tl, axis=1)
    return score_t, np.maximum(information_t, 1e-9), float(q_tj.mean(axis=0) @ right_j)
