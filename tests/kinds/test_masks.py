"""Answers that draw over images: their objects, evidence about whole images, and the consensus that comes back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hitl.consensus import Consensus
from hitl.errors import BadInput
from hitl.evidence import Evidence
from hitl.export import label_tables
from hitl.kinds.kind import NOTHING
from hitl.kinds.masks import MOST, Codes, MaskParts, draw_objects
from hitl.kinds.run_length import decode, encode, opacity
from hitl.models import VBIBCC
from hitl.operations import Judgement
from hitl.parts import drawn_as_label
from hitl.plan import Plan
from hitl.platform import Question
from tests.kinds.simulated_masks import crowd, dice
from tests.kinds.stored import combined, evidence_of

QUESTION = Question("tag", ("cat", "dog"), ("cat", "dog"), kind="masks", field="image")
Row = tuple[str, str | None, str]


def square(*places: tuple[int, int, int, int]) -> Codes:
    """30 x 30 pixels with squares of 10: top, left, class, and how far it is moved to the right."""
    codes = np.zeros((30, 30), np.int16)
    for top, left, code, moved in places:
        codes[top : top + 10, left + moved : left + moved + 10] = code
    return codes


def answer(label: str | None, mask: Any) -> str:
    return drawn_as_label(*mask.shape, [] if label is None else [(label, encode(mask))])


def evidence(rows: list[Row], gold: dict[str, str] | None = None, items: str = "abcdefgh") -> Evidence:
    return evidence_of(QUESTION, items, rows, gold)


def inner(first: int = 3, last: int = 17) -> Any:
    """A square within 20 x 20 pixels."""
    mask = np.zeros((20, 20), bool)
    mask[first:last, first:last] = True
    return mask


# -- objects of one image ----------------------------------------------------------------------------------


def members(*layers: Codes, owners: tuple[int, ...] = (0, 1, 2)) -> list[dict[int, int]]:
    """Annotator -> class of the objects of each cluster; -1: known."""
    marks, cluster_p, _ = draw_objects(layers, owners[: len(layers)], 3)
    clusters: list[dict[int, int]] = [{} for _ in range(int(cluster_p.max()) + 1)]
    for c, mark in zip(cluster_p.tolist(), marks.tolist(), strict=True):
        clusters[c][mark[1]] = 1 + mark[2]
    return clusters


def test_areas_that_overlap_are_one_object_and_the_rest_are_others() -> None:
    layers = square((2, 2, 1, 0), (18, 18, 2, 0)), square((2, 2, 2, 1)), square((18, 18, 2, 2), (2, 16, 1, 0))
    assert members(*layers) == [{0: 1, 1: 2}, {2: 1}, {0: 2, 2: 2}]
    marks, cluster_p, pixels = draw_objects(layers, (0, 1, 2), 3)
    assert marks[(cluster_p == 0) & (marks[:, 1] == 1), 3:].tolist() == [[3, 2, 10, 10]]
    assert len(pixels[2]) == 10 * 12, "half of two drew all that one of them did"


def test_a_slip_of_the_brush_is_no_object_but_a_crack_is() -> None:
    slip, crack = square((2, 2, 1, 0)), np.zeros((30, 30), np.int16)
    slip[25, 3:6] = 1
    crack[15, 2:28] = 1
    assert len(members(slip)) == 1
    assert members(crack, crack) == [{0: 1, 1: 1}]


def test_a_texture_takes_no_more_than_the_largest_areas() -> None:
    dots = np.zeros((100, 100), np.int16)
    dots[::3, ::3] = 1
    assert len(members(dots)) == MOST


def test_known_masks_are_matched_and_what_all_missed_is_an_object() -> None:
    known = square((2, 2, 2, 1), (18, 18, 1, 0))
    assert members(square((2, 2, 1, 0)), square(), known, owners=(0, 1, -1)) == [{0: 1, -1: 2}, {-1: 1}]


# -- evidence ----------------------------------------------------------------------------------------------


def test_evidence_is_about_images() -> None:
    one = inner()
    rows: list[Row] = [("a", "1", answer("cat", one)), ("a", "2", answer(None, one)), ("b", None, answer("dog", one))]
    known = evidence(rows, {"c": answer("dog", one), "d": answer(None, one)})
    own = known.annotations
    assert own.annotators == ("(anonymous)", "2", "ann")
    assert {
        (own.items[n], own.annotators[k]): own.options[c]
        for n, k, c in zip(own.item, own.annotator, own.label, strict=True)
    } == {("a", "ann"): "cat", ("a", "2"): NOTHING, ("b", "(anonymous)"): "dog"}
    assert known.truth is not None
    assert known.truth[2:4].tolist() == [2, 0], "the known dog, and nothing"
    assert isinstance(known.parts, MaskParts)
    assert known.parts.drawn[2] is None


def test_what_cannot_be_read_is_named() -> None:
    sizes: list[Row] = [("a", str(k), answer("cat", np.ones((4, width), bool))) for k, width in enumerate((4, 6))]
    with pytest.raises(BadInput, match="item a: one annotator drew on an image of 4 x 4 pixels, another on one of 6 x"):
        evidence(sizes)
    with pytest.raises(BadInput, match="item a: a stored answer says no masks"):
        evidence([("a", "1", "good")])
    with pytest.raises(BadInput, match="item a: masks of 'cow'; expected one of cat, dog"):
        evidence([("a", "1", answer("cow", np.ones((4, 4), bool)))])


# -- the consensus -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["boxes", "masks"])
def test_before_the_first_answer_every_class_is_as_likely(kind: str) -> None:
    found = combined(evidence_of(Question("tag", ("cat", "dog"), ("cat", "dog"), kind, "image"), "abc", []))
    np.testing.assert_allclose(found.probabilities, 1 / 3)
    assert found.parts == ()
    assert found.annotators.names == ()


def test_masks_come_back() -> None:
    truths, masks = crowd("missed", 8, 64, 3, 4)
    rows: list[Row] = [
        (item, str(k), answer("cat", masks[i][k] > 0)) for i, item in enumerate("abcdefg") for k in range(4)
    ]
    found = combined(evidence(rows))
    shown = {mask.item: decode(mask.place["rle"], mask.place["height"], mask.place["width"]) for mask in found.parts}
    assert set(shown) == set("abcdefg")
    alone = np.mean([dice(masks[i][k], truths[i]) for i in range(7) for k in range(4)])
    ours = np.mean([dice(shown["abcdefg"[i]].astype(np.int8), truths[i]) for i in range(7)])
    assert ours > alone + 0.1
    assert all(0.4 < mask.probability < 0.99 for mask in found.parts), "two of four drew some of them"
    for mask in found.parts:  # a pixel is as opaque as it is probable
        opaque = opacity(mask.place["rle"], mask.place["height"], mask.place["width"]) / 255
        assert opaque[opaque > 0].mean() == pytest.approx(mask.probability, abs=1 / 32)
    assert found.annotators.labels.tolist() == [7] * 4
    assert found.probabilities[7].tolist() == pytest.approx(found.class_shares.tolist())
    assert Consensus.from_bytes(found.to_bytes()).parts == found.parts


@pytest.mark.parametrize(("kind", "too_careful"), [("missed", 0.45), ("mixed", 0.2), ("speckled", 0.2)])
def test_pixels_are_hardly_surer_than_they_are_often_right(kind: str, too_careful: float) -> None:
    """Three annotators who miss or invent whole blobs; the field alone says .98 or more on all three kinds.

    Where they only miss, what one alone drew is right; of eight images the default does not believe that.
    """
    sure, right = [], []
    for seed in range(2):
        truths, masks = crowd(kind, 8, 128, seed, 3)
        rows: list[Row] = [
            (item, str(k), answer("cat" if mask.any() else None, mask > 0))
            for item, layers in zip("abcdefgh", masks, strict=True)
            for k, mask in enumerate(layers)
        ]
        for mask in combined(evidence(rows)).parts:
            opaque = opacity(mask.place["rle"], mask.place["height"], mask.place["width"])
            sure += (opaque[opaque > 0] / 255).tolist()
            right += (truths["abcdefgh".index(str(mask.item))][opaque > 0] > 0).tolist()
    assert -too_careful < np.mean(sure) - np.mean(right) < 0.2
    assert np.mean(sure) < 0.9


def test_an_image_is_as_sure_as_the_object_its_annotators_agree_least_about() -> None:
    """Two of three drew the cat of the last image: that is what two of three say of any item."""
    full = square((2, 2, 1, 0)) > 0
    rows: list[Row] = [
        (item, str(k), answer(None if (item, k) == ("d", 2) else "cat", full)) for item in "abcd" for k in range(3)
    ]
    known = evidence(rows, items="abcd")
    found = combined(known, VBIBCC())
    alone = VBIBCC().fit(Evidence(known.annotations))
    np.testing.assert_allclose(found.probabilities, alone.probabilities, atol=1e-9)
    last = [mask for mask in found.parts if mask.item == "d"]
    assert decode(last[0].place["rle"], 30, 30)[5, 5]
    assert last[0].probability == pytest.approx(found.probabilities[3, 1], abs=0.05)


def test_a_known_image_has_its_known_masks() -> None:
    """With other answers, and without any; and one that is known to be empty."""
    known = inner(5, 12)
    rows: list[Row] = [("a", str(k), answer("cat", inner())) for k in range(3)] + [("c", "0", answer("cat", inner()))]
    gold = {"a": answer("dog", known), "b": answer("cat", known), "c": answer(None, inner())}
    found = combined(evidence(rows, gold))
    shown = [(mask.item, mask.label, mask.probability) for mask in found.parts]
    assert shown == [("a", "dog", 1.0), ("b", "cat", 1.0)]
    for mask in found.parts:
        np.testing.assert_array_equal(decode(mask.place["rle"], 20, 20), known)
    assert found.probabilities[2].tolist() == [1, 0, 0]


def test_two_hundred_labels_are_told_apart() -> None:
    labels = tuple(f"label {n}" for n in range(200))
    mask = np.eye(9, dtype=bool)
    mask[2:7, 2:7] = True
    rows: list[Row] = [("a", who, answer("label 180", mask)) for who in "123"]
    found = combined(evidence_of(Question("tag", labels, labels, kind="masks", field="image"), "a", rows))
    assert [one.label for one in found.parts] == ["label 180"]


def test_an_export_has_the_images_that_were_judged_with_answers_and_are_still_there() -> None:
    mask, labels = inner(), {"a": "cat", "b": "dog", "c": None}
    rows: list[Row] = [(item, str(k), answer(label, mask)) for item, label in labels.items() for k in range(3)]
    result = combined(evidence(rows, items="abcd"))
    rows = [row for row in rows if row[0] != "b"] + [("d", str(k), answer("cat", mask)) for k in range(3)]
    judgement = Judgement({"tag": evidence(rows, items="acd")}, {"tag": result}, Plan((), (), 0))
    table = label_tables(judgement, None, {})["tag"]
    assert table.select(["item", "label"]).to_pylist() == [{"item": "a", "label": "cat"}, {"item": "c", "label": None}]
