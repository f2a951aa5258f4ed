"""Weighted sum: weighted majority with votes that count in degrees, the other baseline of Simpson et al. 2011.

    p[n, j] ∝ sum over labels (n, k, j) of w_k  +  s/J            w_k ∝ beta ^ (mean loss of k x `horizon`)

as in `weighted_majority`, but an answer is not simply right or wrong: its loss is the share of the others' weight
that is for other classes (0 or 1 if the truth is known). In their algorithm for numeric predictions,
Littlestone & Warmuth 1994 multiply a weight by a factor between beta^loss and 1 - (1 - beta) loss; here it is
beta^loss. An annotator who is outvoted narrowly loses little, so weights depend smoothly on the answers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hitl.annotations import Floats
from hitl.models.weighted_majority import Loss, WeightedVotes


@dataclass(frozen=True, slots=True)
class WeightedSum(WeightedVotes):
    """Votes weighted by how little others contradict; settings as in `WeightedMajority`.

    Example:
        >>> from hitl import Annotations, Evidence
        >>> from hitl.models import WeightedSum
        >>> evidence = Evidence(Annotations.from_matrix([[0, 0, 1], [1, 1, -1], [1, 1, 0]]))
        >>> WeightedSum().fit(evidence).labels.tolist()
        [0, 1, 1]
    """

    @property
    def loss(self) -> Loss:
        """Share of the others' weight against an answer."""
        return contradicted


def contradicted(others_rj: Floats, label_r: npt.NDArray[np.intp]) -> Floats:
    """Return (R,) share of the others' weight that is for another class."""
    share: Floats = 1 - others_rj[np.arange(label_r.size), label_r] / others_rj.sum(axis=1)
    return share
