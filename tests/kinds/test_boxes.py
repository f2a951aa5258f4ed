"""Boxes: clusters by hand, and simulated annotators who miss, invent and shift boxes."""

from __future__ import annotations

import numpy as np
import pytest

from hitl.errors import BadAnnotations, BadEvidence, BadSettings
from hitl.kinds.box_matching import (
    Box,
    BoxConsensus,
    Drawn,
    clustered,
    intersection_over_union,
    joined_boxes,
    votes_of,
    weighted_median,
)
from hitl.models import DefaultCombiner

CLASSES = ("cat", "dog", "cow")


def random_box(rng: np.random.Generator) -> Box:
    width, height = rng.uniform(8, 25, size=2)
    label = CLASSES[rng.integers(len(CLASSES))]
    return Box(rng.uniform(0, 100 - width), rng.uniform(0, 100 - height), width, height, label)


def crowd(seed: int, images: int = 60) -> tuple[list[list[Box]], list[Drawn]]:
    """Five annotators with noise of .3 to 3 units, who miss up to half of the objects and invent up to one an image."""
    rng = np.random.default_rng(seed)
    people = [(name, rng.uniform(0, 1)) for name in "abcde"]
    truths, drawn = [], []
    for _ in range(images):
        truth = [random_box(rng) for _ in range(rng.integers(1, 6))]
        said: Drawn = {}
        for name, skill in people:
            boxes = [moved(box, 3 - 2.7 * skill, 0.05 + 0.2 * (1 - skill), rng) for box in truth]
            boxes = [box for box in boxes if rng.random() > 0.05 + 0.45 * (1 - skill)]
            said[name] = [*boxes, *(random_box(rng) for _ in range(rng.poisson(1 - skill)))]
        truths.append(truth)
        drawn.append(said)
    return truths, drawn


def moved(box: Box, noise: float, confused: float, rng: np.random.Generator) -> Box:
    left, top, right, bottom = np.array(box.corners) + rng.normal(0, noise, 4)
    label = CLASSES[rng.integers(len(CLASSES))] if rng.random() < confused else box.label
    return Box(left, top, max(right - left, 1), max(bottom - top, 1), label)


def judged(found: list[list[Box]], truths: list[list[Box]]) -> tuple[float, float]:
    """Mean overlap of the matched boxes, and F1 of boxes with overlap above one half and the right label."""
    overlaps, right = [], 0
    for boxes, truth in zip(found, truths, strict=True):
        left = list(truth)
        for box in boxes:
            best = max(left, key=lambda one: intersection_over_union(one, box), default=None)
            if best is not None and intersection_over_union(best, box) > 0.5:
                overlaps.append(intersection_over_union(best, box))
                right += best.label == box.label
                left.remove(best)
    return float(np.mean(overlaps)), 2 * right / (sum(map(len, found)) + sum(map(len, truths)))


def majority(drawn: list[Drawn]) -> list[list[Box]]:
    """Clusters of more than half of the annotators; mean sides, most frequent label."""
    found = []
    for said in drawn:
        boxes = []
        for cluster in clustered(said, 0.5):
            if len(cluster) > len(said) / 2:
                left, top, right, bottom = np.mean([box.corners for box in cluster.values()], axis=0)
                labels = sorted(str(box.label) for box in cluster.values())
                boxes.append(Box(left, top, right - left, bottom - top, max(labels, key=labels.count)))
        found.append(boxes)
    return found


@pytest.mark.parametrize("seed", range(4))
def test_it_beats_the_average_annotator_and_the_majority(seed: int) -> None:
    truths, drawn = crowd(seed)
    overlap, f1 = judged(BoxConsensus().fit(drawn), truths)
    alone = [judged([list(said[name]) for said in drawn], truths) for name in "abcde"]
    assert overlap > np.mean([one[0] for one in alone])
    assert f1 > np.mean([one[1] for one in alone])
    votes = judged(majority(drawn), truths)
    assert overlap > votes[0]
    assert f1 > votes[1]


def test_the_order_of_annotators_says_nothing() -> None:
    _, drawn = crowd(5, images=10)
    turned: list[Drawn] = [dict(reversed(said.items())) for said in drawn]
    for one, other in zip(BoxConsensus().fit(drawn), BoxConsensus().fit(turned), strict=True):
        np.testing.assert_allclose([box.corners for box in one], [box.corners for box in other])
        assert [box.label for box in one] == [box.label for box in other]


def test_a_cluster_has_one_box_of_each_annotator() -> None:
    near, far = Box(0, 0, 10, 10, "cat"), Box(1, 0, 10, 10, "cat")
    found = clustered({"ann": [near, far], "bob": [near]}, 0.5)
    assert sorted(len(cluster) for cluster in found) == [1, 2]
    both = next(cluster for cluster in found if len(cluster) == 2)
    assert both["ann"] is near


def test_overlap_and_median() -> None:
    assert intersection_over_union(Box(0, 0, 2, 2, "a"), Box(1, 0, 2, 2, "a")) == pytest.approx(1 / 3)
    assert intersection_over_union(Box(0, 0, 2, 2, "a"), Box(5, 0, 2, 2, "a")) == 0
    assert weighted_median(np.array([3.0, 1.0, 2.0]), np.ones(3)) == 2
    assert weighted_median(np.array([3.0, 1.0]), np.ones(2)) == 2
    assert weighted_median(np.array([3.0, 1.0, 2.0]), np.array([5.0, 1.0, 1.0])) == 3


def test_without_boxes_there_are_no_objects() -> None:
    assert BoxConsensus().fit([{"ann": [], "bob": []}, {}]) == [[], []]


def test_what_cannot_be_combined_is_refused() -> None:
    with pytest.raises(BadAnnotations, match="area"):
        BoxConsensus().fit([{"ann": [Box(0, 0, 0, 1, "cat")]}])
    with pytest.raises(BadAnnotations, match="no label"):
        BoxConsensus().fit([{"ann": [Box(0, 0, 1, 1, "(nothing)")]}])
    with pytest.raises(BadSettings):
        BoxConsensus(overlap=1.5)
    with pytest.raises(BadEvidence, match="known boxes of image 5; expected a number below 1"):
        BoxConsensus().fit([{"ann": []}], {5: []})


@pytest.mark.parametrize("kinds", ["x", "xy"])
def test_one_annotator_an_image_is_not_sure_of_what_nobody_else_has_seen(kinds: str) -> None:
    """There nobody could say that there is nothing, so that it says nothing that nobody did."""
    drawn = [{f"ann{i % 3}": [Box(10, 10, 10, 10, kinds[i % len(kinds)])]} for i in range(60)]
    images = [joined_boxes(one, None) for one in drawn]
    consensus = DefaultCombiner().fit(votes_of(images))
    assert consensus.confidence.max() < 0.8
