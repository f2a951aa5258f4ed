"""Estimate shares of N labels from known items: how many are right, in all and by group; how many of each class; how
much better one set of labels is than another."""

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


def difference(labels: Labels, other: Labels, truth: Mapping[str, str], confidence: float) -> Interval:
    """Estimate how much more often `labels` are right than `other`, in [-1, 1], on the items that both label.

    It is the share of items where only the first is right, less that where only the second is. Each has an interval of
    (1 + confidence) / 2, so that both hold with `confidence` (Bonferroni). Raises BadSettings if no item is known.
    """
    place = {item: n for n, item in enumerate(other.items)}
    pairs = [(n, place[item]) for n, item in enumerate(labels.items) if item in place]
    known_n = np.array([labels.items[n] in truth for n, _ in pairs], bool)
    if not known_n.any():
        raise BadSettings("no known item has a label in both tables; expected the same names of items")
    rows, other_rows = np.array(pairs).T
    label_n, other_n = (np.array(one.labels, object)[own] for one, own in ((labels, rows), (other, other_rows)))
    sure_n, other_sure_n = (1 - np.array(one.doubt)[own] for one, own in ((labels, rows), (other, other_rows)))
    right_n = np.array([truth.get(labels.items[n]) for n in rows], object)
    shares = []
    for own_n, own_sure_n, else_n, else_sure_n in (
        (label_n, sure_n, other_n, other_sure_n),
        (other_n, other_sure_n, label_n, sure_n),
    ):
        believed_n = np.where(own_n == else_n, 0.0, own_sure_n * (1 - else_sure_n))
        only_n = ((own_n == right_n) & (else_n != right_n)).astype(float)[known_n]
        mean = float(believed_n.mean())
        shares.append(share_of(only_n, believed_n[known_n], mean, len(rows), (1 + confidence) / 2))
    first, second = shares
    return Interval(first.share - second.share, first.low - second.high, first.high - second.low, first.known)
