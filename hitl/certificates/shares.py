"""Estimate shares of N labels from known items: how many are right, in all and by group; how many of each class; how
much better one set of labels is than another."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from hitl.active.guarantees.intervals import FEW, Interval, drawn_share, share_of
from hitl.annotations import Floats
from hitl.certificates.certificate import Labels
from hitl.errors import BadSettings

RIGHT = "labels that are right"


def estimated(
    labels: Labels,
    truth: Mapping[str, str],
    probabilities: Mapping[str, Floats],
    confidence: float,
    chances: Mapping[str, float] | None = None,
) -> list[tuple[str, Interval]]:
    """Return (what, interval) of each share; empty if no item is known.

    `truth`: item -> right label, of items drawn at random. `probabilities`: class -> (N,) believed probabilities; for
    other classes the belief is whether the label says so. `chances`: item -> the chance with which it was drawn, if
    chances were unequal; shares of groups with fewer than FEW known items are then left out. Raises BadSettings if the
    labels were made from this truth.
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
    chance_n = None if chances is None else np.array([chances[labels.items[n]] for n in rows])

    def share(what: str, true_n: Floats, belief_n: Floats, counted_n: npt.NDArray[np.bool_]) -> None:
        """Add the share of the counted items for which something is true, known for `rows`, believed for all."""
        here = counted_n[rows]
        mean, size, known = float(belief_n[counted_n].mean()), int(counted_n.sum()), belief_n[rows][here]
        if chance_n is None and here.any():
            found.append((what, share_of(true_n[here], known, mean, size, confidence)))
        elif chance_n is not None and here.sum() >= FEW:
            found.append((what, drawn_share(true_n[here], known, chance_n[here], mean, size, confidence)))

    found: list[tuple[str, Interval]] = []
    sure_n, everywhere = 1 - doubt_n, np.ones(len(label_n), bool)
    share(RIGHT, is_right, sure_n, everywhere)
    group_n = np.array(labels.groups or [""] * len(label_n), object)
    for group in dict.fromkeys(labels.groups):
        share(f"{RIGHT}, {group}", is_right, sure_n, group_n == group)
    for name in sorted({*labels.labels, *right_n.tolist()}):
        belief_n = probabilities.get(name, (label_n == name).astype(float))
        share(f"items of class {name}", (right_n == name).astype(float), belief_n, everywhere)
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
