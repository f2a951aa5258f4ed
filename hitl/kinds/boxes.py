"""Boxes on an image: an answer is all boxes that one annotator drew on one image.

    cluster     boxes of different annotators, joined while their overlap exceeds `OVERLAP` (see `matching`)
    existence   a method for items gives the probability that a cluster is of each class, or nothing; it learns who
                misses objects and who invents them
    place       each side is the weighted median of the sides of the cluster's boxes; an annotator's weight is the mean
                overlap of their boxes with other boxes in the same clusters

Known boxes of an image (ground truth) are matched with its clusters, those that overlap most first. The true class of a
cluster is the class of its known box, or "(nothing)" without one. A known box that matches no cluster becomes a cluster
without members: an object that all annotators of the image missed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from hitl.annotations import Floats, Name, Names
from hitl.consensus import Consensus
from hitl.errors import BadAnnotations, BadTable
from hitl.evidence import Evidence
from hitl.formatting import listed
from hitl.kinds.kind import Marked, PartsKind, Place, StoredAnswers
from hitl.kinds.matching import (
    Answers,
    Indices,
    Marks,
    Matched,
    Size,
    judge_images,
    link,
    match,
    of_other_images,
    read_images,
    within_groups,
)
from hitl.models.combiner import Combiner
from hitl.models.registry import combiner
from hitl.parts import BOX_DIGITS, BoxTuple, Part, boxes_as_label, boxes_in
from hitl.platform import Question
from hitl.tables.columns import require_columns
from hitl.tables.encode import natural_order

SIDES = ("x", "y", "width", "height")

OVERLAP = 0.5
"""Intersection over union, in [0, 1], above which boxes are of one object; for clusters, its mean over pairs."""

SHAPE = 0.02
"""Relative difference of the proportions of images up to which they count as one image in several sizes."""


@dataclass(frozen=True, eq=False)
class BoxParts:
    """Boxes of N images.

    Attributes:
        question: the question.
        matched: clusters of boxes; a place is x, y, width and height.
        drawn: annotator -> their boxes, for each of the N images.
        sizes: size of each of the N images.
    """

    question: Question
    matched: Matched
    drawn: tuple[Mapping[Name, Sequence[Marked]], ...]
    sizes: tuple[Size, ...]


class Boxes(PartsKind):
    """Boxes, in percent of the image."""

    noun: ClassVar[str] = "boxes"
    columns: ClassVar[Mapping[str, pa.DataType | None]] = {
        "label": None,
        "confidence": None,
        **dict.fromkeys(SIDES, pa.float64()),
        "marked": None,
        "answers": None,
        "image_width": pa.int64(),
        "image_height": pa.int64(),
    }

    def read(self, answer: str) -> list[Marked]:
        height, width, boxes = boxes_in(answer)
        size = {"image_width": width, "image_height": height}
        return [{"label": label, **dict(zip(SIDES, place, strict=True)), **size} for *place, label in boxes]

    def write(self, parts: Iterable[Marked]) -> str:
        parts = list(parts)
        height, width = (parts[0]["image_height"], parts[0]["image_width"]) if parts else (0, 0)
        boxes = [(part["x"], part["y"], part["width"], part["height"], str(part["label"])) for part in parts]
        return boxes_as_label(height, width, boxes)

    def unusable(self, answers: Sequence[str | None], data: object) -> list[str | None]:
        """Boxes are percent of the image, so they fit an image of another size, but not one of another shape."""
        sizes = [None if answer is None else boxes_in(answer)[:2] for answer in answers]
        return of_other_images(
            [size if size and min(size) > 0 else None for size in sizes],
            lambda one, other: abs(one[0] * other[1] - one[1] * other[0]) <= SHAPE * one[0] * other[1],
        )

    def shown(self, part: Part) -> dict[str, Any]:
        return super().shown(part) | {side: round(part.place[side], BOX_DIGITS) for side in SIDES}

    def evidence(self, stored: StoredAnswers) -> dict[str, Evidence]:
        question, images = stored.question, read_images(self, stored)
        code = {label: number for number, label in enumerate(question.classes)}
        annotator = {name: k for k, name in enumerate(images.answers.annotators)}
        owned = [(n, annotator[who], boxes) for n, own in enumerate(images.drawn) for who, boxes in own.items()]
        owned += [(n, -1, boxes) for n, boxes in images.known.items()]
        rows = [(n, k, code[box["label"]], *(box[side] for side in SIDES)) for n, k, boxes in owned for box in boxes]
        matched = match_boxes(rows, images.answers, question.classes)
        sizes = [Counter[Size]() for _ in images.drawn]
        for n, _, boxes in owned:
            sizes[n].update({(box["image_height"], box["image_width"]) for box in boxes})
        parts = BoxParts(question, matched, images.drawn, tuple(map(_size, sizes)))
        return {question.name: matched.evidence(parts)}

    def consensus(self, evidence: Evidence, method: Combiner) -> Consensus:
        """Fit the method to the clusters, and place the objects that probably exist, most certain first.

        Images with ground truth get their known boxes.
        """
        parts, items = evidence.parts, evidence.annotations.items
        assert isinstance(parts, BoxParts)
        matched = parts.matched
        judged, q_cj = judge_images(evidence, matched, method)
        marked_c, answers_n = np.bincount(matched.cluster_m, minlength=len(matched)), matched.answers.answers_n
        boxes: list[tuple[int, Part]] = []
        for c, code, place, p in _place_objects(matched, q_cj):
            n = int(matched.item_c[c])
            sides = dict(zip(SIDES, place, strict=True))
            sides |= {"image_width": parts.sizes[n][1], "image_height": parts.sizes[n][0]}
            boxes.append((n, Part(items[n], matched.classes[code], sides, p, int(marked_c[c]), int(answers_n[n]))))
        boxes.sort(key=lambda pair: (pair[0], -pair[1].probability, *pair[1].at(*SIDES)))
        return replace(judged, parts=tuple(box for _, box in boxes))

    def answers(self, evidence: Evidence, names: Mapping[str, str]) -> pa.Table:
        """Return one row per box of each answer, and one row without a box for an answer without boxes."""
        assert isinstance(evidence.parts, BoxParts)
        rows: list[Marked] = []
        for item, drawn in zip(evidence.annotations.items, evidence.parts.drawn, strict=True):
            for who, boxes in drawn.items():
                rows += [
                    {"item": names.get(str(item), str(item)), "annotator": str(who), **box} for box in boxes or [{}]
                ]
        text, numbers = ("item", "annotator", "label"), dict.fromkeys(SIDES, pa.float64())
        return pa.Table.from_pylist(rows, pa.schema(dict.fromkeys(text, pa.string()) | numbers))

    def truth(self, table: pa.Table, question: Question, where: str, place_of: Place) -> dict[str, str]:
        """Read the columns item, x, y, width, height (percent of the image) and label.

        A row that has only the item means that its image has no boxes, unless other rows have some.
        """
        require_columns(table, SIDES, where, f"{question.name!r} asks about boxes, in percent of the image")
        boxes: dict[str, list[BoxTuple]] = {}
        for row, given in enumerate(table.select(["item", *SIDES, "label"]).to_pylist()):
            item, *place, label = (None if part == "" else part for part in given.values())
            own = boxes.setdefault(str(item), [])
            if label is None and place == [None] * 4:
                continue
            if label not in question.classes:
                raise BadTable(f"{place_of(row)}: label {label!r} is not one of {listed(question.classes)}")
            box = _within(place)
            if box is None:
                raise BadTable(
                    f"{place_of(row)}: x, y, width, height are {', '.join(map(str, place))}; expected a box with an "
                    "area from 0 to 100 percent of the image"
                )
            own.append((*box, label))
        return {item: boxes_as_label(0, 0, own) for item, own in boxes.items()}


def _within(place: Sequence[Any]) -> tuple[float, float, float, float] | None:
    """Return x, y, width and height as numbers, or None unless they are a box within the image."""
    try:
        x, y, width, height = map(float, place)
    except (TypeError, ValueError):
        return None
    area = round(min(width, height), BOX_DIGITS) > 0  # to the precision of a label
    slack = 10.0**-BOX_DIGITS
    return (x, y, width, height) if area and min(x, y) >= 0 and max(x + width, y + height) <= 100 + slack else None


def _size(sizes: Counter[Size]) -> Size:
    """Return the size that most answers report, the largest if tied. Boxes are in percent, so they fit any size."""
    return max(((count, size) for size, count in sizes.items() if min(size) > 0), default=(0, (0, 0)))[1]


# -- the objects -------------------------------------------------------------------------------------------


def match_boxes(rows: Sequence[tuple[Any, ...]], answers: Answers, classes: Names) -> Matched:
    """Match boxes. Each row is a box: codes of item, annotator (-1: ground truth) and class, x, y, width, height."""
    column_7 = np.array(rows, np.float64).reshape(-1, 7).T
    item, annotator, label = column_7[:3].astype(np.int64)
    place = column_7[3:].T
    order = np.lexsort((label, *corners(place).T[::-1], item))
    marks = Marks(item[order], annotator[order], label[order], place[order])
    cluster_s, count = np.empty(len(order), np.int64), 0
    for own in np.split(np.arange(len(order)), np.flatnonzero(np.diff(marks.item_s)) + 1):
        cluster_s[own] = count + _clusters(Marks(*(column[own] for column in marks)))
        count = int(cluster_s[own].max(initial=-1)) + 1
    return match(marks, cluster_s, answers, classes)


def _clusters(marks: Marks) -> Indices:
    """Return (S,) the cluster of each box of one image. Known boxes that all annotators missed come last."""
    drawn, known = np.flatnonzero(marks.annotator_s >= 0), np.flatnonzero(marks.annotator_s < 0)
    corner_s4, cluster_s = corners(marks.place_sd), np.full(len(marks.item_s), -1, np.int64)
    overlap_bb = np.triu(overlap_of(corner_s4[drawn, None], corner_s4[drawn]), 1)
    pair_e2 = np.argwhere(overlap_bb > 0)
    columns = np.arange(len(drawn)), marks.label_s[drawn], marks.annotator_s[drawn]
    cluster_b = link(pair_e2, overlap_bb[tuple(pair_e2.T)], *columns, OVERLAP)
    cluster_s[drawn] = cluster_b
    in_cluster_cb = np.arange(cluster_b.max(initial=-1) + 1)[:, None] == cluster_b
    mean_ck = in_cluster_cb @ overlap_of(corner_s4[drawn, None], corner_s4[known]) / in_cluster_cb.sum(1)[:, None]
    taken = set[int]()
    for place in np.argsort(-mean_ck, axis=None, kind="stable").tolist():
        c, k = divmod(place, len(known))
        if mean_ck[c, k] > OVERLAP and c not in taken and cluster_s[known[k]] < 0:
            cluster_s[known[k]] = c
            taken.add(c)
    missed = np.flatnonzero(cluster_s < 0)
    cluster_s[missed] = len(in_cluster_cb) + np.arange(len(missed))
    return cluster_s


def _place_objects(matched: Matched, q_cj: Floats) -> Iterator[tuple[int, int, list[float], float]]:
    """Yield cluster, class, place and probability of each object.

    If an image has ground truth these are its known objects, otherwise those that probably exist.
    """
    weight_m = _agreement(matched)[matched.annotator_m]
    first_c, last_c = (np.searchsorted(matched.cluster_m, np.arange(len(matched)), side) for side in ("left", "right"))
    for c, known in enumerate(matched.answers.known_n[matched.item_c].tolist()):
        if known and matched.known_c[c] >= 0:
            yield c, int(matched.known_c[c]), matched.known_place_cd[c].tolist(), 1.0
        elif not known and q_cj[c, 0] <= 0.5:
            own, code = slice(first_c[c], last_c[c]), int(q_cj[c, 1:].argmax())
            side_4m = corners(matched.place_md[own]).T
            left, top, right, bottom = (weighted_median(side, weight_m[own]) for side in side_4m)
            yield c, code, [left, top, right - left, bottom - top], float(q_cj[c, 1 + code])


def _agreement(matched: Matched) -> Floats:
    """Return (K,) mean overlap of an annotator's boxes with others in their clusters.

    One pseudo-pair with the mean overlap of all pairs counts for each annotator.
    """
    corner_m4, count = corners(matched.place_md), len(matched.answers.annotators)
    rows = np.arange(len(corner_m4))
    later = np.searchsorted(matched.cluster_m, matched.cluster_m, side="right") - rows - 1
    one = np.repeat(rows, later)
    other = one + 1 + within_groups(later)
    overlap_e = overlap_of(corner_m4[one], corner_m4[other])
    usual = float(overlap_e.mean()) if len(overlap_e) else 1.0
    both = matched.annotator_m[np.concatenate((one, other))]
    pairs_k = np.bincount(both, minlength=count)
    return (np.bincount(both, np.tile(overlap_e, 2), minlength=count) + usual) / (pairs_k + 1)


def weighted_median(value_k: Floats, weight_k: Floats) -> float:
    """Return the value at half of the total weight, or the midpoint of two values if half lies on either side."""
    order = np.argsort(value_k, kind="stable")
    value_k, reached_k = value_k[order], np.cumsum(weight_k[order]) / np.sum(weight_k)
    at = int(np.searchsorted(reached_k, 0.5 - 1e-12))
    if abs(reached_k[at] - 0.5) < 1e-12 and at + 1 < len(value_k):
        return float(value_k[at] + value_k[at + 1]) / 2
    return float(value_k[at])


def corners(place_s4: Floats) -> Floats:
    """Return (S, 4) left, top, right and bottom of boxes (S, 4) x, y, width and height."""
    return np.concatenate((place_s4[:, :2], place_s4[:, :2] + place_s4[:, 2:]), axis=1)


def overlap_of(one: Floats, other: Floats) -> Floats:
    """Return the intersection over union, in [0, 1], of boxes given by their `corners` (..., 4)."""
    side = np.minimum(one[..., 2:], other[..., 2:]) - np.maximum(one[..., :2], other[..., :2])
    shared = np.maximum(side, 0).prod(axis=-1)
    area = (one[..., 2:] - one[..., :2]).prod(axis=-1) + (other[..., 2:] - other[..., :2]).prod(axis=-1)
    overlap: Floats = shared / (area - shared)
    return overlap


# -- boxes in Python ---------------------------------------------------------------------------------------


def combine_boxes(
    images: Sequence[Mapping[Name, Sequence[BoxTuple]]], method: Combiner | None = None
) -> list[list[Part]]:
    """Return the objects of each image, most certain first.

    `images` has, for each image, annotator -> their boxes (x, y, width, height, label). Raise BadAnnotations for
    anything else, for a box without an area, or with a number that is not finite.

    Example:
        >>> from hitl.kinds.boxes import combine_boxes
        >>> drawn = {who: [(10, 10, 20, 20, "cat")] for who in ("ann", "bob", "eve")}
        >>> [(box.label, box.at("x", "y", "width", "height")) for box in combine_boxes([drawn])[0]]
        [('cat', (10.0, 10.0, 20.0, 20.0))]
    """
    rows = [(n, str(who), own) for n, drawn in enumerate(images) for who, own in drawn.items()]
    for n, who, own in rows:
        for drawn_box in own:
            sides = drawn_box[:4]
            is_box = len(drawn_box) == 5 and isinstance(drawn_box[4], str) and all(isinstance(s, Real) for s in sides)
            if not (is_box and np.isfinite(sides).all() and min(sides[2:]) >= 10**-BOX_DIGITS):
                raise BadAnnotations(
                    f"image {n}, annotator {who!r}: expected a box with an area, as (x, y, width, height, label), "
                    f"got {drawn_box}"
                )
    objects: list[list[Part]] = [[] for _ in images]
    classes = natural_order(list({box[4] for *_, own in rows for box in own}))
    if classes:
        columns = {"item": [n for n, *_ in rows], "annotator": [who for _, who, _ in rows]}
        columns |= {"label": [boxes_as_label(0, 0, own) for *_, own in rows]}
        answers = pa.table(columns | dict.fromkeys(("time", "duration"), pa.nulls(len(rows))))
        items = pa.table({"item": range(len(images))})
        stored = StoredAnswers(
            Question("boxes", classes, classes, "boxes"), {}, lambda: items, lambda: answers, answers.schema.empty_table
        )
        (evidence,) = Boxes().evidence(stored).values()
        for box in Boxes().consensus(evidence, method or combiner("default")).parts:
            objects[int(str(box.item))].append(box)
    return objects
