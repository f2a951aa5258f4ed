"""A truth prior whose items depend on each other."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hitl.annotations import Floats
from hitl.models.priors import Posterior


@dataclass(frozen=True, eq=False)
class ToyChain:
    """All items are one Markov chain: what a prior that ties items together looks like, by plain loops."""

    start_j: Floats
    step_ij: Floats

    def posterior(self, message_nj: Floats, counted_n: Any) -> Posterior:
        n, j = message_nj.shape
        forward, backward = np.zeros((n, j)), np.zeros((n, j))
        forward[0] = np.log(self.start_j) + message_nj[0]
        for i in range(1, n):
            forward[i] = np.logaddexp.reduce(forward[i - 1][:, None] + np.log(self.step_ij), axis=0) + message_nj[i]
        for i in range(n - 2, -1, -1):
            backward[i] = np.logaddexp.reduce(np.log(self.step_ij) + message_nj[i + 1] + backward[i + 1], axis=1)
        log_z = float(np.logaddexp.reduce(forward[-1]))
        pairs = np.zeros((j, j))
        for i in range(1, n):
            pairs += np.exp(forward[i - 1][:, None] + np.log(self.step_ij) + message_nj[i] + backward[i] - log_z)
        return Posterior(np.exp(forward + backward - log_z), log_z, pairs)

    def statistics(self, q_nj: Floats, counted_n: Any) -> Floats:
        return q_nj[:-1].T @ q_nj[1:]

    def learn(self, statistics: Floats) -> ToyChain:
        return replace(self, step_ij=(statistics + 0.1) / (statistics + 0.1).sum(axis=1, keepdims=True))

    def log_density(self) -> float:
        return float(0.1 * np.log(self.step_ij).sum())
