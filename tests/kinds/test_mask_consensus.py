"""Consensus of masks: against network-ibcc on the sparse grid, VB-IBCC of pixels, and the truth that was drawn."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from hitl import Annotations, Evidence
from hitl.errors import BadAnnotations, BadSettings
from hitl.kinds.label_patterns import DrawnMasks, LabelPatterns, is_broad
from hitl.kinds.mask_consensus import ImageMasks, MaskConsensus
from hitl.kinds.mask_field import exponentials
from hitl.models import VBIBCC, NetworkIBCC
from tests.kinds.simulated_masks import Mask, crowd, dice

NO_THIN_PIXELS = 3 * np.log(1 / 3)
"""Log density, up to the same constant, of the shares of three classes among thin pixels where there are none."""


def drawn(masks: list[Mask], names: str = "abcde") -> list[DrawnMasks]:
    return [DrawnMasks(one, tuple(names[: len(one)])) for one in masks]


def grid(height: int, width: int) -> sparse.csr_array:
    at = np.arange(height * width).reshape(height, width)
    rows = np.concatenate([at[:, :-1].ravel(), at[:-1].ravel()])
    columns = np.concatenate([at[:, 1:].ravel(), at[1:].ravel()])
    half = sparse.coo_array((np.ones(rows.size), (rows, columns)), shape=(at.size, at.size))
    return sparse.csr_array(half + half.T)


def three_classes(height: int, width: int, seed: int) -> DrawnMasks:
    """Stripes of three classes; four annotators, some gaps, a patch that no annotator labeled."""
    rng = np.random.default_rng(seed)
    truth = np.broadcast_to(np.arange(width) * 3 // width, (height, width))
    labels = np.where(rng.random((4, height, width)) < 0.6, truth, rng.integers(3, size=(4, height, width)))
    labels[rng.random(labels.shape) < 0.2] = -1
    labels[:, 3:6, 3:6] = -1
    return DrawnMasks(labels.astype(np.int16), ("ann", "bob", "cid", "dee"))


def pixels(images: list[DrawnMasks], classes: tuple[str, ...]) -> Evidence:
    """Each pixel an item, linked to its neighbours."""
    labels = np.concatenate([image.labels.reshape(len(image.labels), -1).T for image in images])
    graph = sparse.csr_array(sparse.block_diag([grid(*image.labels.shape[1:]) for image in images]))
    return Evidence(Annotations.from_matrix(labels, classes=classes), graph=graph)


def beliefs(masks: ImageMasks) -> np.ndarray:
    return np.concatenate([masks.probabilities(i).reshape(-1, len(masks.classes)) for i in range(len(masks))])


@pytest.mark.parametrize("strength", [0.0, 0.4, 1.0])
def test_without_thin_pixels_it_is_network_ibcc_on_the_grid(strength: float) -> None:
    classes = ("sky", "sea", "sand")
    images = [three_classes(17, 30, 0), three_classes(9, 12, 1)]
    settings = {"strength": strength, "tolerance": 1e-12, "max_iterations": 2000}
    found = MaskConsensus(breadth=1, **settings).fit(images, classes)
    expected = NetworkIBCC(**settings).fit(pixels(images, classes))
    np.testing.assert_allclose(beliefs(found), expected.probabilities, atol=2e-4 if strength else 1e-6)
    assert found.fit.objective[-1] == pytest.approx(expected.fit.objective[-1] + NO_THIN_PIXELS, rel=1e-6)
    np.testing.assert_allclose(found.shares[0], expected.parameters["field_shares"], atol=1e-4)


def test_without_strength_it_is_vb_ibcc_of_pixels() -> None:
    """But for the class shares, which are at their mode; with many pixels that is no difference."""
    _, masks = crowd("boundary", 4, 256, 0)
    images = drawn(masks)
    found = MaskConsensus(strength=0, breadth=1, tolerance=1e-11).fit(images)
    evidence = pixels(images, ("background", "object"))
    expected = VBIBCC(tolerance=1e-11).fit(Evidence(evidence.annotations))
    np.testing.assert_allclose(beliefs(found), expected.probabilities, atol=2e-5)


@pytest.mark.parametrize("kind", ["pixel", "boundary", "missed", "invented", "spammer"])
def test_it_is_not_worse_than_votes_or_vb_ibcc_of_pixels(kind: str) -> None:
    truths, masks = crowd(kind, 6, 128, 11)
    found = MaskConsensus().fit(drawn(masks))
    alone = MaskConsensus(strength=0, breadth=1).fit(drawn(masks))
    ours = np.mean([dice(found.mask(i), truth) for i, truth in enumerate(truths)])
    votes = np.mean([dice(one.mean(axis=0) > 0.5, truth) for one, truth in zip(masks, truths, strict=True)])
    by_pixel = np.mean([dice(alone.mask(i), truth) for i, truth in enumerate(truths)])
    assert ours > max(votes, by_pixel) + (0.05 if kind == "pixel" else -0.02)


def test_the_order_of_images_and_annotators_says_nothing() -> None:
    _, masks = crowd("missed", 3, 64, 3)
    found = MaskConsensus().fit(drawn(masks))
    turned = MaskConsensus().fit([DrawnMasks(one[::-1], tuple("edcba")) for one in masks[::-1]])
    for i in range(3):
        np.testing.assert_allclose(found.probabilities(i), turned.probabilities(2 - i), atol=1e-5)


def test_images_may_have_other_sizes_and_annotators() -> None:
    truths, masks = crowd("pixel", 2, 96, 5)
    images = [DrawnMasks(masks[0][:4, :50], tuple("abcd")), DrawnMasks(masks[1][2:, :, 8:], tuple("cde"))]
    found = MaskConsensus().fit(images)
    assert found.mask(0).shape == (50, 96)
    assert found.probabilities(1).shape == (96, 88, 2)
    assert dice(found.mask(0), truths[0][:50]) > 0.9
    np.testing.assert_allclose(found.probabilities(0).sum(axis=2), 1, atol=1e-5)


def test_a_pixel_is_broad_where_a_square_of_one_code_holds_it() -> None:
    rng = np.random.default_rng(0)
    for side in (1, 2, 3, 5):
        code = np.kron(rng.integers(2, size=(9, 7)), np.ones((3, 4), dtype=np.int64)) ^ (rng.random((27, 28)) < 0.03)
        expected = np.zeros(code.shape, dtype=bool)
        for y in range(code.shape[0] - side + 1):
            for x in range(code.shape[1] - side + 1):
                square = code[y : y + side, x : x + side]
                if square.min() == square.max():
                    expected[y : y + side, x : x + side] = True
        np.testing.assert_array_equal(is_broad(code, side), expected)
    assert not is_broad(np.zeros((3, 9), dtype=np.int64), 4).any()


def test_patterns_stand_for_the_labels() -> None:
    rng = np.random.default_rng(1)
    labels = rng.integers(-1, 3, size=(30, 6, 7))  # more codes than a table of all could hold
    patterns = LabelPatterns.build([DrawnMasks(labels, tuple(range(30)))], ("x", "y", "z"), 1)
    annotations, code = patterns.annotations, patterns.code.reshape(6, 7)
    for y in range(6):
        for x in range(7):
            rows = annotations.item == code[y, x]
            assert dict(zip(annotations.annotator[rows], annotations.label[rows], strict=True)) == {
                k: labels[k, y, x] for k in range(30) if labels[k, y, x] >= 0
            }


def test_the_exponential_of_single_precision() -> None:
    logs = -np.geomspace(1e-6, 86, 10_000).astype(np.float32)
    found = logs.copy()
    exponentials(found, np.empty(len(logs), dtype=np.int32))
    np.testing.assert_allclose(found, np.exp(logs.astype(np.float64)), rtol=3e-7)


def test_what_cannot_be_combined_is_refused() -> None:
    with pytest.raises(BadAnnotations, match="height"):
        DrawnMasks(np.zeros((2, 3), dtype=int), ("a", "b"))
    with pytest.raises(BadAnnotations, match="different names"):
        DrawnMasks(np.zeros((2, 3, 3), dtype=int), ("a", "a"))
    with pytest.raises(BadAnnotations, match="below 2, got 5"):
        MaskConsensus().fit([DrawnMasks(np.full((2, 3, 3), 5), ("a", "b"))])
    with pytest.raises(BadAnnotations, match="expected images"):
        MaskConsensus().fit([])
    with pytest.raises(BadSettings):
        MaskConsensus(breadth=0)
    with pytest.raises(BadSettings):
        MaskConsensus(strength=-1)
