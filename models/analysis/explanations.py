"""Say where labels alone cannot decide between two explanations, as known items can.

"Annotators overlook one class" and "items of the other class mislead them" give the same labels, however many there
are. The default combiner fits both (`hierarchical_dawid_skene`) and averages them.
"""

from __future__ import annotations

import numpy as np

from hitl.consensus import Consensus
from hitl.formatting import counted
from hitl.models.default import DEPENDENCE, READINGS

LEAST_SHARE, LEAST_ITEMS = 0.03, 10
"""Minimum share, and number, of items whose label depends on the explanation, of one pair of classes."""

DECIDED = 0.95
"""Weight of an explanation from which the other one is not mentioned."""

GOLD_ITEMS = 30
"""Number of known items that nearly always decide. They must be drawn at random: nearly all of the least certain items
may be of one class, which says little about the others.
"""


def explanations(consensus: Consensus) -> str | None:
    """Return a sentence about the two explanations of the labels, or None if one is decided or both agree."""
    labels_jj = consensus.parameters.get(READINGS)
    if labels_jj is None or consensus.parts or not labels_jj.any():
        return None
    apart_jj = labels_jj - np.diag(labels_jj.diagonal())
    a, b = np.unravel_index(int(apart_jj.argmax()), apart_jj.shape)
    items, weight = int(apart_jj[a, b]), float(consensus.parameters[DEPENDENCE][2])
    if items < max(LEAST_ITEMS, LEAST_SHARE * labels_jj.sum()) or not 1 - DECIDED < weight < DECIDED:
        return None
    usual, overlooked = consensus.classes[a], consensus.classes[b]
    return (
        f"Two explanations fit these labels: annotators overlook {overlooked!r}, and then {counted(items, 'item')} "
        f"labeled {usual!r} would be {overlooked!r}; or items of {usual!r} mislead several annotators alike. The "
        f"labels are a compromise. Ground truth of {GOLD_ITEMS} items drawn at random decides."
    )
