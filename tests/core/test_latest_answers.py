"""Which answers are kept, and in whose memory."""

from __future__ import annotations

import numpy as np
import pytest

from hitl.annotations import Annotations, latest_answers


def test_arrays_of_others_are_copied_and_can_be_changed_by_them() -> None:
    """What is read-only and nobody else's memory is kept; anything else is copied."""
    given = np.array([0, 1], np.int32)
    view = np.array([0, 0], np.int32)
    window = view.view()
    window.setflags(write=False)
    label = np.array([1, 0], np.int32)
    label.setflags(write=False)
    made = Annotations(given, window, label, ("a", "b"), ("ann",), ("x", "y"), ("x", "y"))
    given[0], view[0] = 1, 7
    assert made.item.tolist() == [0, 1]
    assert made.annotator.tolist() == [0, 0]
    assert made.label is label
    assert not made.item.flags.writeable


@pytest.mark.parametrize("seed", range(10))
def test_of_items_in_order_the_latest_answer_of_each_annotator_stays(seed: int) -> None:
    """As among items in any order, where all are sorted: here those alone whose annotators are not in order."""
    rng = np.random.default_rng(seed)
    item = np.sort(rng.integers(200, size=600)).astype(np.int32)
    annotator = rng.integers(8, size=600).astype(np.int32)
    few = rng.random(200) < 0.15  # of the others annotators are in order
    order = np.lexsort((np.where(few[item], 0, annotator), item))
    annotator, label = annotator[order], rng.integers(3, size=600).astype(np.int32)
    for seconds in (None, rng.random(600)):
        keep, contradicted = latest_answers(item, annotator, label, None, seconds)
        expected: dict[tuple[int, int], int] = {}
        for row in range(600):
            pair = (int(item[row]), int(annotator[row]))
            if seconds is None or pair not in expected or seconds[row] >= seconds[expected[pair]]:
                expected[pair] = row
        assert keep.tolist() == [expected[pair] for pair in sorted(expected)]
        others = [row for row in range(600) if label[row] != label[expected[int(item[row]), int(annotator[row])]]]
        assert sorted(contradicted.tolist()) == (others if seconds is None else [])
