"""GLAD (Whitehill, Ruvolo, Wu, Bergsma & Movellan 2009): abilities of annotators and easiness of items.

    p(l_nk = z_n) = sigmoid(a_k b_n)          other classes share the rest evenly
    a_k ~ N(ability, ability_sd^2)            ln b_n ~ N(log_easiness, easiness_sd^2)        z_n ~ uniform

An annotator of ability 0 is right with probability 1/2, and so is everyone on an item of easiness near 0. With
x = a_k b_n, s = sigmoid(x), g = ln b and beliefs q, the log posterior of a and g

    F = sum_n ln sum_j (1/J) prod_k p(l_nk | z_n = j)  +  ln p(a)  +  ln p(g)

has the derivatives

    dF/da_k = sum_n (q_n[l_nk] - s) b_n - (a_k - ability) / ability_sd^2
    dF/dg_n = sum_k (q_n[l_nk] - s) x   - (g_n - log_easiness) / easiness_sd^2

which are those of the expected log joint in the paper's M-step. So L-BFGS on F ends where the paper's EM ends, with one
pass over the labels per step and no inner loop. It begins at the means of the priors, where the most probable classes
are those of the majority vote. Means and standard deviations of 1 are those of crowd-kit, whose accuracies it has.

Items are predicted at the best easiness given the abilities. Answers that are no class ("unsure") carry no information.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

from hitl.annotations import Annotations, Floats, Names
from hitl.consensus import Consensus
from hitl.evidence import Evidence
from hitl.models.combiner import array_bytes, concluded, used
from hitl.models.inference.warm_start import require_learned, require_same_classes
from hitl.models.majority import report_of_votes
from hitl.models.numerics import kernels
from hitl.models.numerics.checks import check_settings, require_between
from hitl.models.numerics.clamping import observe

ABILITY, EASINESS = "ability", "easiness"
"""Names of the consensus parameters: (K,) abilities a and (N,) easiness b of the predicted items."""

CORRECTIONS = 20
"""Steps that L-BFGS remembers. With 20 it takes fewer iterations than with its usual 10."""

WIDTH = 6.0
"""Largest distance of ln b from the mean of its prior, in standard deviations. Larger steps of L-BFGS may overflow."""

ROUNDS, POINTS = 8, 9
"""Search for an item's best ln b: rounds, and points per round."""


@dataclass(frozen=True, slots=True)
class GLAD:
    """Abilities of annotators and easiness of items, by maximum a posteriori.

    The result's `parameters` are the "ability" (K,) of each annotator and the "easiness" (N,) of each item, > 0.

    Attributes:
        ability, ability_sd: mean and standard deviation of the prior of abilities, > 0.
        log_easiness, easiness_sd: mean and standard deviation of the prior of an item's log easiness; the latter > 0.
        tolerance: optimization stops when moving any parameter by its posterior standard deviation would gain less
            than this, in nats.

    Example:
        >>> from hitl import Annotations, Evidence, models
        >>> evidence = Evidence(Annotations.from_matrix([[0, 0, 1], [1, 1, -1], [1, 1, 0]]))
        >>> models.GLAD().fit(evidence).labels.tolist()
        [0, 1, 1]
    """

    uses: ClassVar[frozenset[str]] = frozenset({"truth"})

    ability: float = 1.0
    ability_sd: float = 1.0
    log_easiness: float = 1.0
    easiness_sd: float = 1.0
    tolerance: float = 1e-6
    max_iterations: int = 1000

    def __post_init__(self) -> None:
        check_settings(self, log_easiness=partial(require_between, low=-math.inf))

    def memory(self, evidence: Evidence) -> int:
        """Estimate the bytes that a fit takes at its peak. L-BFGS stores CORRECTIONS pairs of steps and gradients."""
        annotations = evidence.annotations
        parameters = annotations.n_items + annotations.n_annotators
        return array_bytes(annotations, 3, 4) + 8 * (2 * CORRECTIONS + 12) * parameters

    def fit(self, evidence: Evidence, *, start: Consensus | None = None) -> Consensus:
        """Maximize the log posterior from the means of the priors, or from `start`."""
        evidence = used(self, evidence)
        began = time.perf_counter()
        posterior = Posterior(self, evidence)
        begin = np.concatenate(self._begin(evidence.annotations, start))
        scale = posterior.scale()
        trace: list[float] = []
        found = minimize(
            lambda scaled: posterior.loss(scaled, scale),
            begin / scale,
            jac=True,
            method="L-BFGS-B",
            bounds=posterior.bounds() / scale[:, None],
            callback=lambda intermediate_result: trace.append(-float(intermediate_result.fun)),
            options={"maxiter": self.max_iterations, "maxfun": 10 * self.max_iterations, "maxcor": CORRECTIONS}
            | {"gtol": self.tolerance, "ftol": 1e-15},
        )
        ability_k, log_easiness_n = posterior.parts(found.x * scale)
        q_nj, _, _ = posterior.beliefs(ability_k, log_easiness_n)
        people = report_of_votes(evidence.annotations, q_nj)
        parameters = {ABILITY: ability_k, EASINESS: np.exp(log_easiness_n)}
        objective = tuple(trace) or (-float(found.fun),)  # no iteration at all if it begins at the optimum
        fit: dict[str, Any] = {"objective": objective, "converged": len(trace) < self.max_iterations}
        return concluded(self, began, evidence, q_nj, people, parameters=parameters, **fit)

    def apply(self, consensus: Consensus, evidence: Evidence) -> Consensus:
        """Predict other items at their best easiness, with the learned abilities; new annotators have the prior's."""
        require_same_classes(consensus, evidence)
        require_learned(consensus, ABILITY)
        posterior, ability_k = Posterior(self, evidence), self._abilities(evidence.annotations, consensus)
        log_easiness_n = posterior.best_easiness(ability_k)
        q_nj, _, _ = posterior.beliefs(ability_k, log_easiness_n)
        judged = consensus.judging(evidence.annotations.items, q_nj)
        return replace(judged, parameters={**consensus.parameters, EASINESS: np.exp(log_easiness_n)})

    def _begin(self, annotations: Annotations, start: Consensus | None) -> tuple[Floats, Floats]:
        """Return (K,) abilities and (N,) log easiness of `start`; the means of the priors where it has none."""
        if start is None or start.classes != annotations.classes or not start.parameters.keys() >= {ABILITY, EASINESS}:
            ability_k = np.full(annotations.n_annotators, self.ability)
            return ability_k, np.full(annotations.n_items, self.log_easiness)
        log_easiness_n = np.log(start.parameters[EASINESS])
        return self._abilities(annotations, start), matched(
            start.items, log_easiness_n, annotations.items, self.log_easiness
        )

    def _abilities(self, annotations: Annotations, learned: Consensus) -> Floats:
        """Return (K,) learned abilities of these annotators; the prior's mean for new ones."""
        return matched(learned.annotators.names, learned.parameters[ABILITY], annotations.annotators, self.ability)


def matched(names: Names, values: Floats, wanted: Names, default: float) -> Floats:
    """Return the values under the wanted names, `default` for unknown ones."""
    known = dict(zip(names, values.tolist(), strict=True))
    return np.array([known.get(name, default) for name in wanted], dtype=np.float64)


class Posterior:
    """Log posterior of the abilities (K,) and log easiness (N,), given the labels that name a class."""

    def __init__(self, settings: GLAD, evidence: Evidence) -> None:
        annotations = evidence.annotations
        rows = np.flatnonzero(annotations.label < annotations.n_classes)
        self._settings, self._evidence = settings, evidence
        self._item, self._annotator = annotations.item[rows], annotations.annotator[rows]
        self._cell = self._item.astype(np.int64) * annotations.n_classes + annotations.label[rows]
        self._shape = annotations.n_items, annotations.n_classes

    def beliefs(self, ability_k: Floats, log_easiness_n: Floats) -> tuple[Floats, Floats, Floats]:
        """Return (N, J) beliefs, (N,) log evidence of each item, and x = a b of each label."""
        n_items, n_classes = self._shape
        x_m = ability_k[self._annotator] * np.exp(log_easiness_n)[self._item]
        wrong_m = -np.logaddexp(0.0, x_m) - np.log(n_classes - 1)
        odds_m = x_m + np.log(n_classes - 1)
        message_nj = np.bincount(self._cell, odds_m, n_items * n_classes).reshape(self._shape).astype(np.float64)
        message_nj += np.bincount(self._item, wrong_m, n_items)[:, None]
        even = np.full((1, n_classes), -np.log(n_classes))
        q_nj, log_z_n = kernels.beliefs(observe(message_nj, self._evidence), even, out=message_nj)
        return q_nj, log_z_n, x_m

    def parts(self, both: Floats) -> tuple[Floats, Floats]:
        """Split (K + N,) parameters into abilities and log easiness."""
        return both[: both.size - self._shape[0]], both[both.size - self._shape[0] :]

    def scale(self) -> Floats:
        """Return (K + N,) posterior standard deviations of the parameters near the means of the priors.

        In these units L-BFGS takes a fifth of the iterations, because annotators have many more labels than items.
        """
        settings, annotations = self._settings, self._evidence.annotations
        x = settings.ability * math.exp(settings.log_easiness)
        spread = float(expit(x) * expit(-x))
        told_k = annotations.labels_per_annotator * spread * math.exp(2 * settings.log_easiness)
        told_n = annotations.labels_per_item * spread * x**2
        precision = told_k + settings.ability_sd**-2, told_n + settings.easiness_sd**-2
        return np.asarray(np.concatenate(precision) ** -0.5)

    def bounds(self) -> Floats:
        """Return (K + N, 2) bounds of the parameters: none of abilities, `WIDTH` of log easiness."""
        settings, annotations = self._settings, self._evidence.annotations
        span = WIDTH * settings.easiness_sd * np.array([-1.0, 1.0])
        free, near = np.array([-np.inf, np.inf]), settings.log_easiness + span
        return np.repeat([free, near], [annotations.n_annotators, annotations.n_items], axis=0)

    def loss(self, scaled: Floats, scale: Floats) -> tuple[float, Floats]:
        """Return minus the log posterior, up to a constant, and its gradient, at parameters (K + N,) times `scale`."""
        settings = self._settings
        ability_k, log_easiness_n = self.parts(scaled * scale)
        q_nj, log_z_n, x_m = self.beliefs(ability_k, log_easiness_n)
        off_k = (ability_k - settings.ability) / settings.ability_sd
        off_n = (log_easiness_n - settings.log_easiness) / settings.easiness_sd
        rise_m = q_nj.ravel()[self._cell] - expit(x_m)
        rise_k = np.bincount(self._annotator, rise_m * np.exp(log_easiness_n)[self._item], ability_k.size)
        rise_n = np.bincount(self._item, rise_m * x_m, log_easiness_n.size)
        value = log_z_n.sum() - 0.5 * (off_k @ off_k + off_n @ off_n)
        gradient = rise_k - off_k / settings.ability_sd, rise_n - off_n / settings.easiness_sd
        return -float(value), -np.concatenate(gradient) * scale

    def best_easiness(self, ability_k: Floats) -> Floats:
        """Return (N,) log easiness of each item with the highest posterior given the abilities."""
        settings = self._settings
        center_n, width = np.full(self._shape[0], settings.log_easiness), WIDTH * settings.easiness_sd
        for _ in range(ROUNDS):
            tried = [center_n + width * step for step in np.linspace(-1, 1, POINTS)]
            value_tn = [
                self.beliefs(ability_k, log_easiness_n)[1]
                - 0.5 * ((log_easiness_n - settings.log_easiness) / settings.easiness_sd) ** 2
                for log_easiness_n in tried
            ]
            center_n = np.choose(np.argmax(value_tn, axis=0), tried)
            width *= 2 / (POINTS - 1)
        return center_n
