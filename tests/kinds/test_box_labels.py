"""Answers that draw boxes: evidence about whole images, by hand; and the consensus that comes back."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from hitl.consensus import AnnotatorReport, Consensus
from hitl.errors import BadInput
from hitl.evidence import Evidence
from hitl.kinds.box_matching import Box, BoxConsensus, clustered, joined_boxes, votes_of
from hitl.kinds.boxes import Boxes, BoxParts
from hitl.kinds.images import least_agreed
from hitl.kinds.kind import NOTHING
from hitl.models import VBIBCC, MajorityVote
from hitl.models.inference.missed_objects import misses
from hitl.parts import BoxTuple, boxes_as_label
from hitl.platform import Question
from tests.kinds.stored import combined, evidence_of

QUESTION = Question("box", ("cat", "dog"), ("cat", "dog"), kind="boxes", field="image")
LEFT, RIGHT, LOW = (0, 0, 20, 20), (60, 0, 20, 20), (0, 60, 20, 20)
Row = tuple[str, str | None, list[BoxTuple]]


def at(place: tuple[float, ...], kind: str, by: float = 0) -> BoxTuple:
    x, y, width, height = place
    return x + by, y, width, height, kind


def evidence(
    rows: list[Row],
    gold: dict[str, list[BoxTuple]] | None = None,
    items: str = "abcdefgh",
    question: Question = QUESTION,
) -> Evidence:
    """Answers (item, annotator, boxes) on images of 100 x 200 pixels, and known boxes."""
    listed = pa.table({"item": list(items), "data": ["{}"] * len(items)})
    labels = [boxes_as_label(100, 200, boxes) if boxes else boxes_as_label(0, 0, []) for *_, boxes in rows]
    missing = pa.array([None] * len(rows), pa.float64())
    answers = pa.table(
        {
            "item": pa.array([row[0] for row in rows], pa.string()),
            "annotator": pa.array([row[1] for row in rows], pa.string()),
            "label": pa.array(labels, pa.string()),
            "time": missing,
            "duration": missing,
        }
    )
    known = {item: boxes_as_label(0, 0, boxes) for item, boxes in (gold or {}).items()}
    truth = pa.table({"item": pa.array(known, pa.string()), "label": pa.array(known.values(), pa.string())})
    return evidence_of(question, listed, answers, truth, {"1": "ann"})


def said(known: Evidence) -> dict[tuple[str, str], str]:
    """Item and annotator -> label."""
    of = known.annotations
    rows = zip(of.item, of.annotator, of.label, strict=True)
    return {(str(of.items[n]), str(of.annotators[k])): str(of.options[code]) for n, k, code in rows}


def parts_of(known: Evidence) -> BoxParts:
    assert isinstance(known.parts, BoxParts)
    return known.parts


def test_an_image_stands_for_the_cluster_about_which_annotators_agree_least() -> None:
    """Left: three cats. Right: two of three. Low: a cat, a dog and nothing, so that the largest majority is one."""
    rows: list[Row] = [
        ("a", "1", [at(LEFT, "cat"), at(RIGHT, "dog"), at(LOW, "cat")]),
        ("a", "2", [at(LEFT, "cat", 1), at(RIGHT, "dog", 1), at(LOW, "dog", 1)]),
        ("a", "3", [at(LEFT, "cat", 2)]),
        ("b", "1", []),
        ("b", None, []),
        ("c", "1", [at(LOW, "dog"), at(RIGHT, "cat")]),
    ]
    known = evidence(rows)
    parts = parts_of(known)
    assert [len(image.clusters) for image in parts.images[:4]] == [3, 0, 2, 0]
    assert parts.cluster_i[:4].tolist() == [1, -1, 0, -1], "clusters are in the order of their places"
    assert known.annotations.annotators == ("(anonymous)", "2", "3", "ann")
    assert said(known) == {
        ("a", "ann"): "cat",
        ("a", "2"): "dog",
        ("a", "3"): NOTHING,
        ("b", "ann"): NOTHING,
        ("b", "(anonymous)"): NOTHING,
        ("c", "ann"): "dog",
    }
    assert known.annotations.classes == (NOTHING, "cat", "dog")
    assert parts.sizes[:2] == ((100, 200), (0, 0))
    assert not known.known.any()


@pytest.mark.parametrize(
    ("drawn", "stands"),
    [
        # one of four drew the first, three of four the second: the majority has three either way
        ([[0, 1], [1], [1], []], 1),
        # one of four drew each: the first
        ([[0], [1], [], []], 0),
        # two of four drew the second: no majority is smaller
        ([[0, 1], [1], [0], [0]], 1),
    ],
)
def test_of_equal_majorities_that_counts_which_more_of_them_drew(drawn: list[list[int]], stands: int) -> None:
    objects = [Box(*LEFT, "cat"), Box(*RIGHT, "cat")]
    image = joined_boxes({str(k): [objects[one] for one in own] for k, own in enumerate(drawn)}, None)
    assert least_agreed([image]).tolist() == [stands]


def test_known_boxes_are_matched_with_clusters() -> None:
    """The cat is right, the dog is none, and all of them missed the object below."""
    drawn = {"ann": [Box(*LEFT, "cat"), Box(*RIGHT, "dog")], "bob": [Box(2, 0, 20, 20, "dog")]}
    known = [Box(1, 0, 20, 20, "cat"), Box(*LOW, "dog")]
    image = joined_boxes(drawn, known)
    assert [len(cluster) for cluster in image.clusters] == [2, 1, 0]
    assert image.known == (known[0], None, known[1])
    votes = votes_of([image])
    assert votes.annotations.classes == (NOTHING, "cat", "dog")
    assert votes.truth is not None
    assert votes.truth.tolist() == [1, 0, 2]
    assert votes.annotations.label.tolist() == [1, 2, 2, 0, 0, 0]
    twice = joined_boxes(drawn, [known[0], Box(0, 0, 19, 20, "dog")])
    assert [None if box is None else box.label for box in twice.known or ()] == ["cat", None, "dog"], (
        "one box a cluster"
    )


def test_a_known_box_is_of_one_cluster_that_which_it_overlaps_most() -> None:
    drawn = {"ann": [Box(0, 0, 20, 20, "cat"), Box(5, 0, 20, 20, "cat")]}
    image = joined_boxes(drawn, [Box(4, 0, 20, 20, "cat")])
    assert [box is not None for box in image.known or ()] == [False, True]


def test_a_known_image_has_the_truth_of_the_cluster_it_stands_for() -> None:
    rows: list[Row] = [("a", "2", [at(LEFT, "cat"), at(RIGHT, "cat")]), ("a", "3", [at(LEFT, "cat"), at(RIGHT, "dog")])]
    known = evidence(rows, {"a": [at(LEFT, "cat"), at(RIGHT, "dog")]})
    assert known.truth is not None
    assert known.truth[0] == 2
    assert said(known) == {("a", "2"): "cat", ("a", "3"): "dog"}


def test_an_image_has_the_size_that_most_answers_tell() -> None:
    labels = [boxes_as_label(*size, []) for size in ((10, 20), (30, 20), (10, 20), (0, 0), (0, 0), (0, 0))]
    none = pa.table({"item": pa.array([], pa.string()), "label": pa.array([], pa.string())})
    columns = {
        "item": ["a"] * 6,
        "annotator": list("123456"),
        "label": labels,
        "time": [0.0] * 6,
        "duration": [0.0] * 6,
    }
    known = evidence_of(QUESTION, pa.table({"item": ["a"]}), pa.table(columns), none, {})
    assert parts_of(known).sizes == ((10, 20),)


def test_known_objects_count_as_they_are_known() -> None:
    """Nothing was drawn on the first image, and two objects are there: one of two images was looked at in full."""
    known = evidence([("a", "2", []), ("b", "2", [])], {"a": [at(LEFT, "cat"), at(LOW, "dog")]})
    found = combined(known, MajorityVote())
    miss = misses(found.annotators)[found.annotators.names.index("2")]
    assert found.probabilities[1, 0] == pytest.approx(((2 - miss) / 2) ** 3)


def test_a_known_image_has_its_known_boxes_exactly() -> None:
    rows: list[Row] = [("a", who, [at(LEFT, "cat", int(who))]) for who in "234"]
    rows += [("b", who, [at(LEFT, "dog")]) for who in "234"]
    known = evidence(rows, {"a": [at(LEFT, "dog", 0.1234), at(LOW, "cat")], "c": [at(LOW, "dog")], "d": []})
    assert known.truth is not None
    assert known.truth[:5].tolist() == [2, -1, 2, 0, -1]
    found = combined(known, VBIBCC())
    assert found.probabilities[:4].argmax(axis=1).tolist() == [2, 2, 2, 0]
    assert found.probabilities[[0, 2, 3]].max(axis=1).tolist() == [1, 1, 1]
    boxes = [
        (
            box.item,
            box.label,
            box.place["x"],
            box.place["y"],
            box.place["width"],
            box.place["height"],
            box.probability,
            box.marked,
            box.answers,
        )
        for box in found.parts
        if box.item != "b"
    ]
    assert boxes == [
        ("a", "cat", 0, 60, 20, 20, 1, 0, 3),
        ("a", "dog", 0.1234, 0, 20, 20, 1, 3, 3),
        ("c", "dog", 0, 60, 20, 20, 1, 0, 0),
    ]


def test_known_truth_says_who_misses_and_who_invents() -> None:
    """Bob misses every known object; without truth two annotators and one cannot be told apart."""
    rows: list[Row] = []
    for item in "abcdefgh":
        rows += [(item, "2", [at(LEFT, "cat")]), (item, "3", []), (item, "4", [])]
    told = combined(evidence(rows, {key: [at(LEFT, "cat")] for key in "abcdef"}), VBIBCC())
    by = dict(zip(told.annotators.names, told.annotators.confusion, strict=True))
    assert by["3"][1, 0] > 0.7 > 0.3 > by["2"][1, 0]
    assert [box.item for box in told.parts] == list("abcdefgh")
    untold = combined(evidence(rows), VBIBCC())
    assert untold.parts == ()


def report(confusion_kjl: list[list[list[float]]], share_j: list[float]) -> AnnotatorReport:
    pi_kjl = np.array(confusion_kjl)
    names = tuple("abc"[: len(pi_kjl)])
    classes = (NOTHING, "cat", "dog")
    return AnnotatorReport(names, classes, classes, pi_kjl, pi_kjl, np.ones(len(names), np.int64), np.array(share_j))


def test_annotators_miss_by_their_matrices_and_shares_of_kinds() -> None:
    """ann: 1/4 of .2 and 3/4 of .4 is .35; bob: .1."""
    of = report(
        [[[0.9, 0, 0.1], [0.2, 0.8, 0], [0.4, 0, 0.6]], [[1, 0, 0], [0.1, 0.9, 0], [0.1, 0, 0.9]]], [0.5, 0.125, 0.375]
    )
    np.testing.assert_allclose(misses(of), [0.35, 0.1])


def test_an_image_without_a_cluster_may_have_an_object_that_all_overlooked() -> None:
    rows: list[Row] = [(item, who, [at(LEFT, "cat")]) for item in "abcde" for who in "23"]
    rows += [("f", "2", []), ("g", "2", []), ("g", "3", [])]
    found = combined(evidence(rows), VBIBCC())
    people = dict(zip(found.annotators.names, found.annotators.confusion, strict=True))
    kinds = found.class_shares[1:] / found.class_shares[1:].sum()
    miss = {who: kinds @ pi[1:, 0] for who, pi in people.items()}
    there = sum(1 - found.probabilities[:5, 0])  # one cluster an image, which stands for it
    both = miss["2"] * miss["3"]
    looked = 6 * (1 - both) + (1 - miss["2"])
    assert found.probabilities[5, 0] == pytest.approx((looked / (looked + miss["2"])) ** (1 + there))
    assert found.probabilities[6, 0] == pytest.approx((looked / (looked + both)) ** (1 + there))
    np.testing.assert_allclose(found.probabilities[6, 1:], (1 - found.probabilities[6, 0]) * kinds)
    assert found.probabilities[6, 0] > found.probabilities[5, 0], "two looked"
    np.testing.assert_allclose(found.probabilities[7], found.class_shares)


def test_one_kind_is_there_or_not() -> None:
    rows: list[Row] = [(item, who, [at(LEFT, "cat")]) for item in "abc" for who in "234"]
    rows += [("d", "2", [at(LOW, "cat")]), ("d", "3", []), ("d", "4", []), ("e", "2", []), ("e", "3", [])]
    found = combined(evidence(rows, question=Question("box", ("cat",), ("cat",), kind="boxes", field="image")))
    assert found.classes == (NOTHING, "cat")
    assert [box.item for box in found.parts] == ["a", "b", "c"]
    assert found.probabilities[3:5].argmax(axis=1).tolist() == [0, 0]


def test_before_the_first_answer_every_class_is_as_likely() -> None:
    found = combined(evidence([]))
    np.testing.assert_allclose(found.probabilities, 1 / 3)
    assert found.parts == ()
    assert found.annotators.names == ()


def test_answers_without_any_box_are_answers() -> None:
    """Three empty images are no proof, but more and more likely to be empty."""
    known = evidence([(item, "1", []) for item in "abc"])
    found = combined(known)
    assert found.annotators.names == ("ann",)
    assert found.annotators.labels.tolist() == [3]
    assert found.parts == ()
    miss = 0.125  # a quarter of the answers are wrong, half of them as NOTHING
    looked = 3 * (1 - miss)
    assert found.probabilities[0, 0] == pytest.approx(looked / (looked + miss))
    assert Consensus.from_bytes(found.to_bytes()).parts == ()


def test_boxes_come_back() -> None:
    rows: list[Row] = []
    for item in "abcdefg":
        rows += [(item, who, [at(LEFT, "cat", by), at(RIGHT, "dog", -by)]) for who, by in (("1", 0), ("2", 1))]
        rows += [(item, "3", [at(LEFT, "cat", 0.5), at(LOW, "cat")])]
    found = combined(evidence(rows), VBIBCC())
    boxes = [box for box in found.parts if box.item == "c"]
    assert {(box.label, box.marked, box.answers) for box in boxes} == {("cat", 3, 3), ("dog", 2, 3)}
    assert all((box.place["image_width"], box.place["image_height"]) == (200, 100) for box in boxes)
    assert [box.probability for box in boxes] == sorted((box.probability for box in boxes), reverse=True)
    (cat,) = (box for box in boxes if box.label == "cat")
    assert cat.at("x", "y", "width", "height") == (0.5, 0, 20, 20), "the weighted median"
    assert found.annotators.labels.tolist() == [7, 7, 7]
    assert Consensus.from_bytes(found.to_bytes()).parts == found.parts
    assert found.judging(("z",), found.probabilities[:1]).parts == ()


def test_the_combiner_of_existence_is_a_choice() -> None:
    """Two of five drew it: by votes there is nothing, while two who are right elsewhere are believed."""
    sure = {who: [Box(*LEFT, "cat")] for who in "ab"}
    images = [
        {**sure, **{who: [Box(*LEFT, "cat")] if n % 2 else [Box(*LOW, "cat")] for who in "cde"}} for n in range(8)
    ]
    images += [{**sure, "c": [], "d": [], "e": []}]
    assert BoxConsensus(combiner=MajorityVote()).fit(images)[-1] == []
    assert len(BoxConsensus(combiner=MajorityVote(), existence=0.3).fit(images)[-1]) == 1


def test_fit_keeps_known_boxes() -> None:
    images = [{"ann": [Box(*LEFT, "cat")]}, {"ann": [Box(*LEFT, "cat")], "bob": [Box(*LEFT, "cat")]}]
    known = [Box(*LOW, "dog"), Box(1, 0, 20, 20, "dog")]
    assert BoxConsensus().fit(images, {0: known})[0] == sorted(known, key=lambda box: box.corners)
    assert BoxConsensus().fit([{}], {0: known})[0] == sorted(known, key=lambda box: box.corners)


def test_an_answer_that_says_no_boxes_is_named() -> None:
    with pytest.raises(BadInput, match="item a: boxes of 'cow'; expected one of cat, dog"):
        evidence([("a", "1", [at(LEFT, "cow")])])
    with pytest.raises(BadInput, match=r"item a: boxes of '\(nothing\)'"):
        evidence([("a", "1", [at(LEFT, NOTHING)])])
    listed = pa.table({"item": ["a"]})
    answer = {"item": ["a"], "annotator": ["1"], "label": ["good"], "time": [0.0], "duration": [0.0]}
    none = pa.table({"item": pa.array([], pa.string()), "label": pa.array([], pa.string())})
    with pytest.raises(BadInput, match="item a: a stored answer says no boxes"):
        evidence_of(QUESTION, listed, pa.table(answer), none, {})


def test_answers_are_a_table() -> None:
    table = Boxes().answers(evidence([("a", "1", [at(LEFT, "cat")]), ("b", "2", [])]), {"a": "photo"}).to_pylist()
    assert table[0] == {"item": "photo", "annotator": "ann", "label": "cat", "x": 0, "y": 0, "width": 20, "height": 20}
    assert table[1] == {"item": "b", "annotator": "2"} | dict.fromkeys(("label", "x", "y", "width", "height"))
    assert Boxes().answers(evidence([]), {}).num_rows == 0


def test_joining_is_by_the_mean_overlap_of_all_pairs() -> None:
    """By hand: b overlaps a and c by 16 / 24, and these share 12 / 28: c has a mean of .548 with a and b together."""
    a, b, c = (Box(by, 0, 20, 20, "cat") for by in (0, 4, 8))
    drawn = {"1": [a], "2": [b], "3": [c]}
    assert [len(cluster) for cluster in clustered(drawn, 0.54)] == [3]
    assert sorted(len(cluster) for cluster in clustered(drawn, 0.55)) == [1, 2]


def test_of_equal_overlaps_those_of_one_kind_are_joined() -> None:
    drawn = {"1": [Box(*LEFT, "cat"), Box(*LEFT, "dog")], "2": [Box(*LEFT, "dog")]}
    for turned in (drawn, dict(reversed(drawn.items()))):
        kinds = sorted(sorted(str(box.label) for box in one.values()) for one in clustered(turned, 0.5))
        assert kinds == [["cat"], ["dog", "dog"]]
