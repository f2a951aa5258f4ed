"""Estimate shares of N labels from known items: how many are right, in all and by group; how many of each class."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hitl.active.guarantees.intervals import Interval, share_of
from hitl.annotations import Floats
from hitl.certificates.certificate import Labels
from hitl.errors import BadSettings

RIGHT = "labels that are right"


def estimated(
    labels: Labels, truth: Mapping[str, str], probabilities: Mapping[str, Floats], confidence: float
) -> list[tuple[str, Interval]]:
    """Return (what, interval) of each share; empty if no item is known.

    `truth`: item -> right label, of items drawn at random. `probabilities`: class -> (N,) believed probabilities; for
    other classes the belief is whether the label says so. Raises BadSettings if the labels were made from this truth.
    """
    rows = np.array([n for n, item in enumerate(labels.items) if item in truth], np.int64)
    if not rows.size:
        return []
    right_n = np.array([truth[labels.items[n]] for n in rows], object)
    label_n, doubt_n = np.array(labels.labels, object), np.array(labels.doubt)
    is_right = (label_n[rows] == right_n).astype(float)
    if is_right.all() and not doubt_n[rows].any() and doubt_n.any():
        raise BadSettings(
            "the labels of all known items are certain and right, so they were combined with this truth; combine "
            "without --truth, and estimate from that"
        )
    sure_n = 1 - doubt_n
    found = [(RIGHT, share_of(is_right, sure_n[rows], float(sure_n.mean()), len(label_n), confidence))]
    group_n = np.array(labels.groups or [""] * len(label_n), object)
    for group in dict.fromkeys(labels.groups):
        own = group_n == group
        here = own[rows]
        if here.any():
            interval = share_of(
                is_right[here], sure_n[rows][here], float(sure_n[own].mean()), int(own.sum()), confidence
            )
            found.append((f"{RIGHT}, {group}", interval))
    for name in sorted({*labels.labels, *right_n.tolist()}):
        belief_n = probabilities.get(name, (label_n == name).astype(float))
        is_class = (right_n == name).astype(float)
        interval = share_of(is_class, belief_n[rows], float(belief_n.mean()), len(label_n), confidence)
        found.append((f"items of class {name}", interval))
    return found
