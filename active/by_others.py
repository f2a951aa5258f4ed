"""Confusion matrices judged by everybody else, so that nobody is flattered by their own labels.

    pi_k[j, l]  ∝  a_jl  +  sum over annotations m = (n, k, l) of  w_m q_mj        w_m = 1 - H(q_m) / ln J

q_m is what the others believe of the item of annotation m (`leave_one_out`). Asked again and again, an annotator
whose labels shape the consensus agrees with it, looks good, and is asked again (Rodrigues 2014, 3.3, who leave the own
labels out of eqs. 8 and 10; for eq. 12). The paper counts every label alike. Where the others know nothing (an item
with one label, and no model) it would count as an error nearly as often as not; w_m counts it as far as they know.
`a` is what was learned of people in general, or the average person, worth LABELS labels of each class.

(The likelihood of the own answers under q_m would be no cure: its EM gives each label the posterior that includes it.)
"""

from __future__ import annotations

import numpy as np

from hitl.active.acquisition.scores import entropy
from hitl.active.acquisition.value_of_information import average_confusion
from hitl.annotations import Floats
from hitl.consensus import Consensus
from hitl.crew import Crew
from hitl.errors import BadInput
from hitl.evidence import Evidence
from hitl.models.annotators.leave_one_out import Others

LABELS = 4.0
"""Labels of each class that the average person is worth as a prior."""


def confusion_by_others(evidence: Evidence, consensus: Consensus, crew: Crew) -> Floats:
    """(K', J, L) confusion matrices of the crew, judged by all labels but their own; newcomers like the average.

    One for the average person where the crew has no names. Raises BadInput where the consensus is about other
    annotators than the evidence.
    """
    annotations, learned = evidence.annotations, consensus.annotators
    if learned.names != annotations.annotators:
        raise BadInput("judged by others: the consensus lists other annotators than the evidence; expected the same")
    n_people, n_options = len(learned.names), len(learned.options)
    q_mj = Others(evidence, consensus).beliefs(np.arange(len(annotations)))
    q_mj *= np.maximum(1 - entropy(q_mj) / np.log(q_mj.shape[1]), 0.0)[:, None]
    cell_m = annotations.annotator.astype(np.int64) * n_options + annotations.label
    counts = [np.bincount(cell_m, weight_m, n_people * n_options) for weight_m in q_mj.T]
    prior_jl = LABELS * average_confusion(consensus) if learned.prior is None else learned.prior
    alpha_kjl = np.stack(counts).reshape(q_mj.shape[1], n_people, n_options).transpose(1, 0, 2) + prior_jl
    # The last is everybody together: somebody not met yet, and whoever comes.
    alpha_kjl = np.append(alpha_kjl, [(alpha_kjl - prior_jl).sum(axis=0) + prior_jl], axis=0)
    pi_kjl: Floats = alpha_kjl / alpha_kjl.sum(axis=2, keepdims=True)
    place = {name: k for k, name in enumerate(learned.names)}
    rows = [place.get(name, n_people) for name in crew.names] or [n_people]
    return pi_kjl[rows]
