"""The utility of each pair of item and annotator, as a policy sees it.

    v_nk  =  b_k sum over open questions of ( A_nk + information I_nk )
    b_k   =  1 + weight sqrt( r_k / (1 + labels of k) )

r_k in [0, 1]: all labels that k has given and can give, in those of the annotator with most. What is learned of an
annotator is worth as much as they can still be asked. Where nothing is known of anybody, labels come in proportion to
r_k, as they would without a plan; one annotator as able as the other has r_k = 1.

A and I of `expected_gain`, at beliefs that take every answer at its word; where annotators cost differently, v_nk /
cost_k is what a unit of cost buys.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hitl.active.acquisition.expected_gain import (
    Gains,
    Measure,
    Question,
    accuracy_bound,
    accuracy_gain,
    information_bound,
    information_gain,
)
from hitl.active.stopping.pool_state import PoolState
from hitl.active.stopping.rules import OPEN
from hitl.annotations import Floats
from hitl.crew import Crew
from hitl.models.dependence.design_effect import beliefs_for_gain


def utility(pool: PoolState, matrices: Sequence[Floats], information: float) -> Gains:
    """Build the gains by these confusion matrices (K', J, L), one per question; closed questions bring nothing."""
    parts = [
        Question(beliefs_for_gain(evidence, consensus), pi_kjl, state == OPEN)
        for (evidence, consensus), state, pi_kjl in zip(pool, pool.states, matrices, strict=True)
    ]
    return Gains(measure(information), parts)


def measure(information: float) -> Measure:
    """Gain in right labels and `information` a nat."""
    return Measure(
        lambda q, pi: accuracy_gain(q, pi) + information * information_gain(q, pi),
        lambda q, pi: accuracy_bound(q, pi) + information * information_bound(q, pi),
    )


def exploration(given_k: Floats, able_k: Floats, weight: float) -> Floats:
    """Return (K',) b_k: how much more each counts for what is not known of them.

    `given_k` labels of each so far, `able_k` open items that each can be asked about; inf: a pool, never at an end.
    """
    all_k = given_k + able_k
    reach_k = np.minimum(all_k / max(all_k[np.isfinite(all_k)].max(initial=0), 1), 1)
    b_k: Floats = 1 + weight * np.sqrt(reach_k / (1 + given_k))
    return b_k


def labels_of(pool: PoolState, crew: Crew) -> Floats:
    """Return (K',) how many labels each of the crew has given, averaged over the questions."""
    labels = np.zeros(len(crew.names))
    for _, consensus in pool:
        labels_by_name = dict(zip(consensus.annotators.names, consensus.annotators.labels.tolist(), strict=True))
        labels += [labels_by_name.get(name, 0) for name in crew.names]
    return labels / len(pool)
