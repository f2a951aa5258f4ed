"""Answers that draw over images: evidence about whole images, and the consensus that comes back."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from hitl.consensus import Consensus
from hitl.errors import BadInput
from hitl.evidence import Evidence
from hitl.export import label_tables
from hitl.kinds.masks import MaskParts
from hitl.kinds.run_length import decode, encode, opacity
from hitl.operations import Judgement
from hitl.parts import drawn_as_label, drawn_in
from hitl.plan import Plan
from hitl.platform import Question
from tests.kinds.simulated_masks import crowd, dice
from tests.kinds.stored import combined, evidence_of

QUESTION = Question("tag", ("cat", "dog"), ("cat", "dog"), kind="masks", field="image")


def answer(kind: str | None, mask: np.ndarray) -> str:  # type: ignore[type-arg]
    return drawn_as_label(*mask.shape, [] if kind is None else [(kind, encode(mask))])


def evidence(rows: list[tuple[str, str | None, str]], gold: list[tuple[str, str]], items: str = "abcdefgh") -> Evidence:
    listed = pa.table({"item": list(items), "data": ["{}"] * len(items)})
    columns = {name: [row[place] for row in rows] for place, name in enumerate(("item", "annotator", "label"))}
    missing = pa.array([None] * len(rows), pa.float64())
    answers = pa.table({**columns, "time": missing, "duration": missing})
    known = pa.table({"item": [item for item, _ in gold], "label": [label for _, label in gold]})
    return evidence_of(QUESTION, listed, answers, known, {"1": "ann"})


def test_labels_say_what_was_drawn() -> None:
    mask = np.eye(5, 7, dtype=bool)
    height, width, masks = drawn_in(answer("cat", mask))
    assert (height, width, masks[0][0]) == (5, 7, "cat")
    np.testing.assert_array_equal(decode(masks[0][1], 5, 7), mask)


def test_evidence_is_about_images() -> None:
    one, other = np.zeros((20, 20), bool), np.zeros((20, 20), bool)
    one[3:17, 3:17] = True
    rows = [("a", "1", answer("cat", one)), ("a", "2", answer(None, other)), ("b", None, answer("dog", one))]
    known = evidence(rows, [("c", answer("dog", one)), ("d", answer(None, one))])
    said = known.annotations
    assert said.annotators == ("(anonymous)", "2", "ann")
    told = {
        (said.items[n], said.annotators[k]): said.options[c]
        for n, k, c in zip(said.item, said.annotator, said.label, strict=True)
    }
    assert told == {("a", "ann"): "cat", ("a", "2"): "(nothing)", ("b", "(anonymous)"): "dog"}
    assert known.truth is not None
    assert known.truth[2:4].tolist() == [2, 0], "the known dog, and nothing"
    assert isinstance(known.parts, MaskParts)
    assert known.parts.drawn[2] is None


def test_annotators_of_one_image_saw_the_same_size() -> None:
    rows = [("a", "1", answer("cat", np.ones((4, 4), bool))), ("a", "2", answer("cat", np.ones((4, 6), bool)))]
    with pytest.raises(
        BadInput, match="item a: one annotator drew on an image of 4 x 4 pixels, another on one of 6 x 4"
    ):
        evidence(rows, [])


def test_before_the_first_answer_every_class_is_as_likely() -> None:
    found = combined(evidence([], []))
    np.testing.assert_allclose(found.probabilities, 1 / 3)
    assert found.parts == ()
    assert found.annotators.names == ()


def test_an_answer_that_says_no_masks_is_named() -> None:
    with pytest.raises(BadInput, match="item a: a stored answer says no masks"):
        evidence([("a", "1", "good")], [])
    with pytest.raises(BadInput, match="item a: masks of 'cow'; expected one of cat, dog"):
        evidence([("a", "1", answer("cow", np.ones((4, 4), bool)))], [])


def test_masks_come_back() -> None:
    truths, masks = crowd("missed", 8, 64, 3, 4)
    rows = [
        (item, str(k), answer("cat", masks[i][k] > 0)) for i, item in enumerate("abcdefgh") for k in range(4) if i < 7
    ]
    found = combined(evidence(rows, []))
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


def test_a_known_pixel_has_its_class() -> None:
    mask = np.zeros((20, 20), bool)
    mask[3:17, 3:17] = True
    rows = [("a", str(k), answer("cat", mask)) for k in range(3)] + [("b", "0", answer("cat", mask))]
    found = combined(evidence(rows, [("b", answer(None, mask))]))
    assert found.probabilities[1].tolist() == [1, 0, 0]


def test_a_known_image_has_its_known_masks() -> None:
    """With other answers, and without any."""
    drawn, known = np.zeros((20, 20), bool), np.zeros((20, 20), bool)
    drawn[3:17, 3:17] = True
    known[5:12, 5:12] = True
    rows = [("a", str(k), answer("cat", drawn)) for k in range(3)]
    found = combined(evidence(rows, [("a", answer("dog", known)), ("b", answer("cat", known))]))
    shown = [(mask.item, mask.label, mask.probability) for mask in found.parts]
    assert shown == [("a", "dog", 1.0), ("b", "cat", 1.0)]
    for mask in found.parts:
        np.testing.assert_array_equal(decode(mask.place["rle"], 20, 20), known)


def test_two_hundred_kinds_are_told_apart() -> None:
    kinds = tuple(f"kind {n}" for n in range(200))
    question = Question("tag", kinds, kinds, kind="masks", field="image")
    mask = np.eye(9, dtype=bool)
    mask[2:7, 2:7] = True
    listed = pa.table({"item": ["a"], "data": ["{}"]})
    said = [answer("kind 180", mask)] * 3
    missing = pa.array([None] * 3, pa.float64())
    rows = {"item": ["a"] * 3, "annotator": ["1", "2", "3"], "label": said, "time": missing, "duration": missing}
    none = pa.table({"item": pa.array([], pa.string()), "label": pa.array([], pa.string())})
    found = combined(evidence_of(question, listed, pa.table(rows), none, {"1": "ann", "2": "bob", "3": "cyd"}))
    assert [one.label for one in found.parts] == ["kind 180"]


def test_an_export_has_the_images_that_were_judged_with_answers_and_are_still_there() -> None:
    mask = np.zeros((20, 20), bool)
    mask[3:17, 3:17] = True
    rows = [
        (item, str(k), answer(kind, mask))
        for item, kind in {"a": "cat", "b": "dog", "c": None}.items()
        for k in range(3)
    ]
    result = combined(evidence(rows, [], "abcd"))
    rows = [row for row in rows if row[0] != "b"] + [("d", str(k), answer("cat", mask)) for k in range(3)]
    judgement = Judgement({"tag": evidence(rows, [], "acd")}, {"tag": result}, Plan((), (), 0))
    table = label_tables(judgement, None, {})["tag"]
    assert table.select(["item", "label"]).to_pylist() == [
        {"item": "a", "label": "cat"},
        {"item": "c", "label": None},
    ]
