"""Utility of each pair of item and annotator, as used by a policy.

    v_nk  =  b_k sum over open questions of ( A_nk + information I_nk )
    b_k   =  1 + weight sqrt( r_k / (1 + labels of k) )

r_k in [0, 1]: all labels that k has given and can give, relative to the annotator with the most. Learning about an
annotator pays off only while they can still be asked. A and I are from `expected_gain`, at beliefs that take every
answer at face value.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hitl.active.acquisition.expected_gain import ACCURACY, INFORMATION, Gains, Measure, Question
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
    measure = Measure(
        lambda q, pi: ACCURACY.gain(q, pi) + information * INFORMATION.gain(q, pi),
        lambda q, pi: ACCURACY.bound(q, pi) + information * INFORMATION.bound(q, pi),
    )
    return Gains(measure, parts)


def exploration(given_k: Floats, able_k: Floats, weight: float) -> Floats:
    """Return (K',) b_k, the bonus for little-known annotators.

    `given_k` labels of each so far, `able_k` open items that each can be asked about; inf: a pool, which never runs
    out.
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
