"""Boxes: matching by hand, evidence about whole images and the consensus that comes back, and simulated annotators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from hitl.consensus import AnnotatorReport, Consensus
from hitl.errors import BadAnnotations, BadInput
from hitl.evidence import Evidence
from hitl.kinds.boxes import BoxParts, combine_boxes, corners, match_boxes, weighted_median
from hitl.kinds.kind import NOTHING
from hitl.kinds.matching import Answers, Matched
from hitl.models import VBIBCC, DefaultCombiner, MajorityVote
from hitl.models.combiner import Combiner
from hitl.models.inference.missed_objects import misses
from hitl.parts import BoxTuple, boxes_as_label
from hitl.platform import Question
from tests.kinds.stored import combined, evidence_of

QUESTION = Question("box", ("cat", "dog"), ("cat", "dog"), kind="boxes", field="image")
LEFT, RIGHT, LOW = (0, 0, 20, 20), (60, 0, 20, 20), (0, 60, 20, 20)
Row = tuple[str, str | None, list[BoxTuple]]


def at(place: tuple[float, ...], label: str, by: float = 0) -> BoxTuple:
    x, y, width, height = place
    return x + by, y, width, height, label


def evidence(
    rows: list[Row],
    gold: dict[str, list[BoxTuple]] | None = None,
    items: str = "abcdefgh",
    question: Question = QUESTION,
) -> Evidence:
    """Answers (item, annotator, boxes) on images of 100 x 200 pixels, and known boxes."""
    labels = [boxes_as_label(100, 200, boxes) if boxes else boxes_as_label(0, 0, []) for *_, boxes in rows]
    known = {item: boxes_as_label(0, 0, boxes) for item, boxes in (gold or {}).items()}
    return evidence_of(question, items, [(*row[:2], label) for row, label in zip(rows, labels, strict=True)], known)


def labels_of(known: Evidence) -> dict[tuple[str, str], str]:
    """Item and annotator -> label."""
    of = known.annotations
    rows = zip(of.item, of.annotator, of.label, strict=True)
    return {(str(of.items[n]), str(of.annotators[k])): str(of.options[code]) for n, k, code in rows}


def parts_of(known: Evidence) -> BoxParts:
    assert isinstance(known.parts, BoxParts)
    return known.parts


# -- matching ----------------------------------------------------------------------------------------------


def matched(drawn: Mapping[str, Sequence[BoxTuple]], known: Sequence[BoxTuple] | None = None) -> Matched:
    """Match the boxes of one image."""
    classes = tuple(sorted({box[4] for boxes in (*drawn.values(), known or ()) for box in boxes}))
    owned = [*enumerate(drawn.values()), (-1, known or ())]
    rows = [(0, k, classes.index(box[4]), *box[:4]) for k, boxes in owned for box in boxes]
    pairs = np.array([(0, k) for k in range(len(drawn))])
    unknown = np.full(len(drawn), np.nan)
    answers = Answers(("image",), tuple(drawn), pairs, np.array([known is not None]), unknown, unknown)
    return match_boxes(rows, answers, classes)


def members(found: Matched) -> list[list[tuple[str, str]]]:
    """Annotator and label of the boxes of each cluster."""
    clusters: list[list[tuple[str, str]]] = [[] for _ in range(len(found))]
    for c, k, label in zip(found.cluster_m, found.annotator_m, found.label_m, strict=True):
        clusters[c].append((str(found.answers.annotators[k]), str(found.classes[label])))
    return [sorted(cluster) for cluster in clusters]


def test_joining_is_by_the_mean_overlap_of_all_pairs() -> None:
    """By hand: b overlaps a by 16 / 24; c has a mean of .548 with both if it is 8 away from a, and .490 if 9."""
    for by, sizes in ((8, [3]), (9, [1, 2])):
        drawn = {"1": [at(LEFT, "cat")], "2": [at(LEFT, "cat", 4)], "3": [at(LEFT, "cat", by)]}
        assert sorted(len(cluster) for cluster in members(matched(drawn))) == sizes


def test_of_equal_overlaps_those_of_one_label_are_joined() -> None:
    drawn = {"1": [at(LEFT, "cat"), at(LEFT, "dog")], "2": [at(LEFT, "dog")]}
    for turned in (drawn, dict(reversed(drawn.items()))):
        assert sorted(members(matched(turned))) == [[("1", "cat")], [("1", "dog"), ("2", "dog")]]


def test_a_cluster_has_one_box_of_each_annotator() -> None:
    found = matched({"ann": [at(LEFT, "cat"), at(LEFT, "cat", 1)], "bob": [at(LEFT, "cat")]})
    assert members(found) == [[("ann", "cat"), ("bob", "cat")], [("ann", "cat")]]
    assert found.place_md[found.cluster_m == 0].tolist() == [[0, 0, 20, 20]] * 2


def test_known_boxes_are_matched_with_clusters() -> None:
    """The cat is right, the dog is none, and all of them missed the object below."""
    drawn = {"ann": [at(LEFT, "cat"), at(RIGHT, "dog")], "bob": [at(LEFT, "dog", 2)]}
    found = matched(drawn, [at(LEFT, "cat", 1), at(LOW, "dog")])
    assert [len(cluster) for cluster in members(found)] == [2, 1, 0]
    assert found.known_c.tolist() == [0, -1, 1]
    assert found.known_place_cd[[0, 2]].tolist() == [[1, 0, 20, 20], [0, 60, 20, 20]]
    assert found.votes.annotations.classes == (NOTHING, "cat", "dog")
    assert found.votes.truth is not None
    assert found.votes.truth.tolist() == [1, 0, 2]
    assert found.votes.annotations.label.tolist() == [1, 2, 2, 0, 0, 0]
    twice = matched(drawn, [at(LEFT, "cat", 1), (0, 0, 19, 20, "dog")])
    assert twice.known_c.tolist() == [0, -1, 1], "one box a cluster"


def test_a_known_box_is_of_one_cluster_that_which_it_overlaps_most() -> None:
    found = matched({"ann": [at(LEFT, "cat"), at(LEFT, "cat", 5)]}, [at(LEFT, "cat", 4)])
    assert found.known_c.tolist() == [-1, 0]


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
    objects = [at(LEFT, "cat"), at(RIGHT, "cat")]
    found = matched({str(k): [objects[one] for one in own] for k, own in enumerate(drawn)})
    assert found.cluster_n.tolist() == [stands]


def test_the_weighted_median() -> None:
    assert weighted_median(np.array([3.0, 1.0, 2.0]), np.ones(3)) == 2
    assert weighted_median(np.array([3.0, 1.0]), np.ones(2)) == 2
    assert weighted_median(np.array([3.0, 1.0, 2.0]), np.array([5.0, 1.0, 1.0])) == 3


# -- evidence about images ---------------------------------------------------------------------------------


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
    assert parts.matched.item_c.tolist() == [0, 0, 0, 2, 2]
    assert parts.matched.cluster_n[:4].tolist() == [1, -1, 3, -1], "clusters are in the order of their places"
    assert known.annotations.annotators == ("(anonymous)", "2", "3", "ann")
    assert labels_of(known) == {
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


def test_a_known_image_has_the_truth_of_the_cluster_it_stands_for() -> None:
    rows: list[Row] = [("a", "2", [at(LEFT, "cat"), at(RIGHT, "cat")]), ("a", "3", [at(LEFT, "cat"), at(RIGHT, "dog")])]
    known = evidence(rows, {"a": [at(LEFT, "cat"), at(RIGHT, "dog")]})
    assert known.truth is not None
    assert known.truth[0] == 2
    assert labels_of(known) == {("a", "2"): "cat", ("a", "3"): "dog"}


def test_an_image_has_the_size_that_most_answers_tell() -> None:
    boxes = [at(LEFT, "cat"), at(RIGHT, "cat")]
    answers = [boxes_as_label(*size, boxes) for size in ((10, 20), (30, 20), (10, 20), (0, 0), (0, 0), (0, 0))]
    known = evidence_of(QUESTION, "a", [("a", str(k), answer) for k, answer in enumerate(answers)])
    assert parts_of(known).sizes == ((10, 20),)


def test_an_answer_that_says_no_boxes_is_named() -> None:
    for label, message in (("cow", "boxes of 'cow'; expected one of cat, dog"), (NOTHING, r"boxes of '\(nothing\)'")):
        with pytest.raises(BadInput, match=f"item a: {message}"):
            evidence([("a", "1", [at(LEFT, label)])])
    with pytest.raises(BadInput, match="item a: a stored answer says no boxes"):
        evidence_of(QUESTION, "a", [("a", "1", "good")])


# -- the consensus -----------------------------------------------------------------------------------------


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
    sides = ("x", "y", "width", "height")
    assert [
        (box.item, box.label, *box.at(*sides), box.probability, box.marked, box.answers)
        for box in found.parts
        if box.item != "b"
    ] == [
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
    assert combined(evidence(rows), VBIBCC()).parts == ()


def test_annotators_miss_by_their_matrices_and_shares_of_labels() -> None:
    """ann: 1/4 of .2 and 3/4 of .4 is .35; bob: .1."""
    pi_kjl = np.array([[[0.9, 0, 0.1], [0.2, 0.8, 0], [0.4, 0, 0.6]], [[1, 0, 0], [0.1, 0.9, 0], [0.1, 0, 0.9]]])
    classes, share_j = (NOTHING, "cat", "dog"), np.array([0.5, 0.125, 0.375])
    report = AnnotatorReport(("ann", "bob"), classes, classes, pi_kjl, pi_kjl, np.ones(2, np.int64), share_j)
    np.testing.assert_allclose(misses(report), [0.35, 0.1])


def test_an_image_without_a_cluster_may_have_an_object_that_all_overlooked() -> None:
    rows: list[Row] = [(item, who, [at(LEFT, "cat")]) for item in "abcde" for who in "23"]
    rows += [("f", "2", []), ("g", "2", []), ("g", "3", [])]
    found = combined(evidence(rows), VBIBCC())
    people = dict(zip(found.annotators.names, found.annotators.confusion, strict=True))
    shares = found.class_shares[1:] / found.class_shares[1:].sum()
    miss = {who: shares @ pi[1:, 0] for who, pi in people.items()}
    there = sum(1 - found.probabilities[:5, 0])  # one cluster an image, which stands for it
    both = miss["2"] * miss["3"]
    looked = 6 * (1 - both) + (1 - miss["2"])
    assert found.probabilities[5, 0] == pytest.approx((looked / (looked + miss["2"])) ** (1 + there))
    assert found.probabilities[6, 0] == pytest.approx((looked / (looked + both)) ** (1 + there))
    np.testing.assert_allclose(found.probabilities[6, 1:], (1 - found.probabilities[6, 0]) * shares)
    assert found.probabilities[6, 0] > found.probabilities[5, 0], "two looked"
    np.testing.assert_allclose(found.probabilities[7], found.class_shares)


def test_answers_without_any_box_are_answers() -> None:
    """Three empty images are no proof, but more and more likely to be empty."""
    found = combined(evidence([(item, "1", []) for item in "abc"]))
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


# -- in Python ---------------------------------------------------------------------------------------------

CLASSES = ("cat", "dog", "cow")
Drawn = dict[str, Sequence[BoxTuple]]


def crowd(seed: int, images: int = 60) -> tuple[list[list[BoxTuple]], list[Drawn]]:
    """Five annotators with noise of .3 to 3 units, who miss up to half of the objects and invent up to one an image."""
    rng = np.random.default_rng(seed)

    def random_box() -> BoxTuple:
        width, height = rng.uniform(8, 25, size=2).tolist()
        x, y = rng.uniform(0, 100 - width), rng.uniform(0, 100 - height)
        return float(x), float(y), width, height, CLASSES[rng.integers(len(CLASSES))]

    def moved(box: BoxTuple, skill: float) -> BoxTuple:
        left, top, right, bottom = (corners(np.array([box[:4]]))[0] + rng.normal(0, 3 - 2.7 * skill, 4)).tolist()
        label = CLASSES[rng.integers(len(CLASSES))] if rng.random() < 0.05 + 0.2 * (1 - skill) else box[4]
        return left, top, max(right - left, 1), max(bottom - top, 1), label

    skills = {name: float(rng.uniform(0, 1)) for name in "abcde"}
    truths, drawn = [], []
    for _ in range(images):
        truths.append([random_box() for _ in range(rng.integers(1, 6))])
        own: Drawn = {}
        for name, skill in skills.items():
            boxes = [moved(box, skill) for box in truths[-1] if rng.random() > 0.05 + 0.45 * (1 - skill)]
            own[name] = [*boxes, *(random_box() for _ in range(rng.poisson(1 - skill)))]
        drawn.append(own)
    return truths, drawn


def judged(images: Sequence[Sequence[BoxTuple]], truths: list[list[BoxTuple]]) -> tuple[float, float]:
    """Mean overlap of the matched boxes, and F1 of boxes with overlap above one half and the right label."""
    overlaps, right = [], 0

    def overlap(one: BoxTuple, other: BoxTuple) -> float:
        (a, b, c, d), (e, f, g, h) = corners(np.array([one[:4], other[:4]]))
        shared = max(0.0, min(c, g) - max(a, e)) * max(0.0, min(d, h) - max(b, f))
        return float(shared / (one[2] * one[3] + other[2] * other[3] - shared))

    for boxes, truth in zip(images, truths, strict=True):
        left = list(truth)
        for box in boxes:
            best = max(left, key=lambda one: overlap(one, box), default=None)
            if best is not None and overlap(best, box) > 0.5:
                overlaps.append(overlap(best, box))
                right += best[4] == box[4]
                left.remove(best)
    return float(np.mean(overlaps)), 2 * right / (sum(map(len, images)) + sum(map(len, truths)))


def combined_boxes(drawn: Sequence[Drawn], method: Combiner | None = None) -> list[list[BoxTuple]]:
    images = combine_boxes(drawn, method)
    return [[(*box.at("x", "y", "width", "height"), str(box.label)) for box in boxes] for boxes in images]


def majority(drawn: list[Drawn]) -> list[list[BoxTuple]]:
    """Clusters of more than half of the annotators; mean sides, most frequent label."""
    images = []
    for own in drawn:
        clusters = matched(own)
        boxes: list[BoxTuple] = []
        for c in np.flatnonzero(np.bincount(clusters.cluster_m) > len(own) / 2):
            rows = clusters.cluster_m == c
            label = clusters.classes[np.bincount(clusters.label_m[rows]).argmax()]
            boxes.append((*clusters.place_md[rows].mean(axis=0), str(label)))
        images.append(boxes)
    return images


@pytest.mark.parametrize("seed", range(2))
def test_it_beats_the_average_annotator_and_the_majority(seed: int) -> None:
    truths, drawn = crowd(seed)
    ours = judged(combined_boxes(drawn), truths)
    alone = [judged([own[name] for own in drawn], truths) for name in "abcde"]
    assert (np.array(ours) > np.mean(alone, axis=0)).all()
    assert (np.array(ours) > judged(majority(drawn), truths)).all()


def test_the_order_of_annotators_says_nothing() -> None:
    _, drawn = crowd(5, images=10)
    turned: list[Drawn] = [dict(reversed(own.items())) for own in drawn]
    for one, other in zip(combined_boxes(drawn), combined_boxes(turned), strict=True):
        np.testing.assert_allclose([box[:4] for box in one], [box[:4] for box in other])
        assert [box[4] for box in one] == [box[4] for box in other]


def test_in_python_the_method_is_a_choice_and_a_box_has_an_area() -> None:
    """Two of five drew the last but one, and three the last."""
    cat, low, empty = [(*LEFT, "cat")], [(*LOW, "cat")], list[BoxTuple]()
    images: list[Drawn] = [dict.fromkeys("ab", cat) | dict.fromkeys("cde", cat if n % 2 else low) for n in range(8)]
    images += [dict.fromkeys(drew, cat) | dict.fromkeys(none, empty) for drew, none in (("ab", "cde"), ("abc", "de"))]
    assert [len(boxes) for boxes in combine_boxes(images, MajorityVote())[-2:]] == [0, 1]
    assert combine_boxes([{"ann": [], "bob": []}, {}]) == [[], []]
    for wrong in ((0, 0, 0, 1, "cat"), (0, 0, 1e-9, 1, "cat"), ("0", 0, 1, 1, "cat"), (0, 0, 1, 1), (0, 0, 1, 1, 7)):
        with pytest.raises(BadAnnotations, match="image 0, annotator 'ann': expected a box with an area, as "):
            combine_boxes([{"ann": [wrong], "bob": [(0, 0, 1, 1, "cat")]}])  # type: ignore[list-item]


@pytest.mark.parametrize("labels", ["x", "xy"])
def test_one_annotator_an_image_is_not_sure_of_what_nobody_else_has_seen(labels: str) -> None:
    """There nobody could say that there is nothing, so that it says nothing that nobody did."""
    rows: list[Row] = [(chr(97 + i), f"ann{i % 3}", [at(LEFT, labels[i % len(labels)])]) for i in range(60)]
    question = Question("box", tuple(labels), tuple(labels), kind="boxes", field="image")
    items = "".join(chr(97 + i) for i in range(60))
    votes = parts_of(evidence(rows, items=items, question=question)).matched.votes
    assert DefaultCombiner().fit(votes).confidence.max() < 0.8
