"""The inner loops of `incremental`: items judged, and their beliefs added to the sums.

Labels are cells k L + l, those of an item n at `first[n]` to `first[n] + size[n]`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hitl.models.numerics.compiled import compiled


@compiled
def judge(
    items: Any,
    first: Any,
    size: Any,
    cells: Any,
    log_pi: Any,
    log_share: Any,
    log_item: Any,
    truth: Any,
    weight: Any,
    q: Any,
    counts: Any,
    shares: Any,
) -> None:
    """Beliefs of these items, and their changes added to the sums."""
    n_classes = q.shape[1]
    belief = np.empty(n_classes)
    for n in items:
        own = log_item[n if log_item.shape[0] > 1 else 0]
        for j in range(n_classes):
            belief[j] = log_share[j] + own[j]
        for m in range(first[n], first[n] + size[n]):
            term = log_pi[cells[m]]
            for j in range(n_classes):
                belief[j] += term[j]
        if truth[n] >= 0:
            belief[:] = -np.inf
            belief[truth[n]] = 0.0
        top = belief.max()
        total = 0.0
        for j in range(n_classes):
            belief[j] = np.exp(belief[j] - top)
            total += belief[j]
        for j in range(n_classes):
            new = belief[j] / total
            belief[j] = new - q[n, j]  # from here on: the change
            q[n, j] = new
        if weight[n] > 0:
            for j in range(n_classes):
                belief[j] *= weight[n]
                shares[j] += belief[j]
            for m in range(first[n], first[n] + size[n]):
                sums = counts[cells[m]]
                for j in range(n_classes):
                    sums[j] += belief[j]


@compiled
def add(items: Any, first: Any, size: Any, cells: Any, rows: Any, counts: Any, shares: Any) -> None:
    """Add a row (J,) for each item: to the shares, and once a label to the counts."""
    n_classes = rows.shape[1]
    for i, n in enumerate(items):
        for j in range(n_classes):
            shares[j] += rows[i, j]
        for m in range(first[n], first[n] + size[n]):
            sums = counts[cells[m]]
            for j in range(n_classes):
                sums[j] += rows[i, j]
