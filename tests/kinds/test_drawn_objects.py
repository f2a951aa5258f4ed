"""Objects that annotators drew: areas, which of them are about the same thing, and how sure the masks are."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from hitl.evidence import Evidence
from hitl.kinds.drawn_objects import MOST, Codes, DrawnObjects, drawn_objects
from hitl.kinds.label_patterns import DrawnMasks
from hitl.kinds.masks import MaskParts
from hitl.kinds.run_length import decode, encode, opacity
from hitl.models import VBIBCC
from hitl.parts import drawn_as_label
from hitl.platform import Question
from tests.kinds.simulated_masks import crowd
from tests.kinds.stored import combined, evidence_of

CLASSES = ("background", "cat", "dog")


def square(*places: tuple[int, int, int, int]) -> Codes:
    """30 x 30 pixels with squares of 10: top, left, kind, and how far it is moved to the right."""
    codes = np.zeros((30, 30), np.int8)
    for top, left, kind, moved in places:
        codes[top : top + 10, left + moved : left + moved + 10] = kind
    return codes


def joined(*layers: Codes, known: Codes | None = None) -> DrawnObjects:
    names = tuple("abcdef"[: len(layers)])
    return drawn_objects(DrawnMasks(np.stack(layers), names), CLASSES, known)


def members(found: DrawnObjects) -> list[dict[object, object]]:
    return [{who: box.label for who, box in cluster.items()} for cluster in found.joined.clusters]


def test_areas_that_overlap_are_one_object_and_the_rest_are_others() -> None:
    found = joined(square((2, 2, 1, 0), (18, 18, 2, 0)), square((2, 2, 2, 1)), square((18, 18, 2, 2), (2, 16, 1, 0)))
    assert members(found) == [{"a": "cat", "b": "dog"}, {"c": "cat"}, {"a": "dog", "c": "dog"}]
    box = found.joined.clusters[0]["b"]
    assert (box.x, box.y, box.width, box.height) == (3, 2, 10, 10)
    shared = found.pixels[2]
    assert len(shared) == 10 * 12, "half of two drew all that one of them did"


def test_the_order_of_annotators_says_nothing() -> None:
    layers = [square((2, 2, 1, 0), (18, 18, 2, 0)), square((3, 5, 1, 0)), square((16, 18, 2, 2))]
    one, other = joined(*layers), joined(*layers[::-1])
    turned = {"a": "c", "b": "b", "c": "a"}
    assert members(one) == [{turned[str(who)]: kind for who, kind in each.items()} for each in members(other)]


def test_a_slip_of_the_brush_is_no_object_but_a_crack_is() -> None:
    slip = square((2, 2, 1, 0))
    slip[25, 3:6] = 1
    crack = np.zeros((30, 30), np.int8)
    crack[15, 2:28] = 1
    assert len(members(joined(slip))) == 1
    assert members(joined(crack, crack)) == [{"a": "cat", "b": "cat"}]


def test_a_texture_takes_no_more_than_the_largest_areas() -> None:
    dots = np.zeros((100, 100), np.int8)
    dots[::3, ::3] = 1
    assert len(members(joined(dots))) == MOST


def test_known_masks_are_matched_and_what_all_missed_is_an_object() -> None:
    found = joined(square((2, 2, 1, 0)), square(), known=square((2, 2, 2, 1), (18, 18, 1, 0)))
    assert members(found) == [{"a": "cat"}, {}]
    assert found.joined.truth(("(nothing)", "cat", "dog")) == [2, 1]


def evidence(masks: list[np.ndarray]) -> Evidence:
    rows = [
        (f"i{i}", f"a{k}", drawn_as_label(*mask.shape, [("cat", encode(mask > 0))] if (mask > 0).any() else []))
        for i, layers in enumerate(masks)
        for k, mask in enumerate(layers)
    ]
    item, annotator, label = (list(column) for column in zip(*rows, strict=True))
    empty = [None] * len(rows)
    answers = pa.table({"item": item, "annotator": annotator, "label": label, "time": empty, "duration": empty})
    gold = pa.table({"item": pa.array([], pa.string()), "label": pa.array([], pa.string())})
    question = Question("tag", ("cat",), ("cat",), kind="masks", field="image")
    return evidence_of(question, pa.table({"item": [f"i{i}" for i in range(len(masks))]}), answers, gold, {})


@pytest.mark.parametrize(("kind", "too_careful"), [("missed", 0.45), ("mixed", 0.2), ("speckled", 0.2)])
def test_pixels_are_hardly_surer_than_they_are_often_right(kind: str, too_careful: float) -> None:
    """Three annotators who miss or invent whole blobs; the field alone says .98 or more on all three kinds.

    Where they only miss, what one alone drew is right; of eight images the default does not believe that.
    """
    sure, right = [], []
    for seed in range(2):
        truths, masks = crowd(kind, 8, 128, seed, 3)
        for mask in combined(evidence(masks)).parts:
            opaque = opacity(mask.place["rle"], mask.place["height"], mask.place["width"])
            sure += (opaque[opaque > 0] / 255).tolist()
            right += (truths[int(str(mask.item)[1:])][opaque > 0] > 0).tolist()
    assert -too_careful < np.mean(sure) - np.mean(right) < 0.2
    assert np.mean(sure) < 0.9


def test_an_image_is_as_sure_as_the_object_its_annotators_agree_least_about() -> None:
    """Two of three drew the cat of the last image: that is what two of three say of any item."""
    full, none = square((2, 2, 1, 0)), square()
    masks = [np.stack([full] * 3)] * 3 + [np.stack([full, full, none])]
    known = evidence(masks)
    assert isinstance(known.parts, MaskParts)
    found = combined(known, VBIBCC())
    alone = VBIBCC().fit(Evidence(known.annotations))
    np.testing.assert_allclose(found.probabilities, alone.probabilities, atol=1e-9)
    last = [mask for mask in found.parts if mask.item == "i3"]
    assert decode(last[0].place["rle"], 30, 30)[5, 5]
    assert last[0].probability == pytest.approx(found.probabilities[3, 1], abs=0.05)
