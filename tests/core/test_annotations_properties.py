"""What holds of every table of annotations, whatever is in it."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hitl.annotations import Annotations
from hitl.errors import ConflictingLabels
from tests.tables import rows, said

TRIPLES = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 3), st.integers(0, 2)),
    min_size=1,
    max_size=25,
    unique_by=lambda t: t[:2],
)


@given(TRIPLES, st.randoms())
def test_the_order_of_the_rows_does_not_matter(triples: list[tuple[int, int, int]], random: Any) -> None:
    shuffled = list(triples)
    random.shuffle(shuffled)
    one, two = (Annotations.from_frame(rows(*t), items=range(5), classes=range(3)) for t in (triples, shuffled))
    for field in ("item", "annotator", "label"):
        np.testing.assert_array_equal(getattr(one, field), getattr(two, field))


@given(TRIPLES)
def test_starts_delimit_every_items_annotations(triples: list[tuple[int, int, int]]) -> None:
    annotations = Annotations.from_frame(rows(*triples), items=range(5), classes=range(3))
    start = annotations.item_start
    for n in range(5):
        labels = annotations.label[start[n] : start[n + 1]].tolist()
        expected = [label for item, _, label in sorted(triples, key=lambda t: t[:2]) if item == n]
        assert labels == expected
    assert (start[0], start[-1]) == (0, len(triples))


@given(
    st.lists(
        st.tuples(st.integers(0, 1), st.integers(0, 1), st.integers(0, 1), st.integers(0, 9)), min_size=1, max_size=12
    )
)
def test_the_kept_answer_is_the_latest_and_of_equals_the_last(quads: list[tuple[int, int, int, int]]) -> None:
    frame = rows(*(quad[:3] for quad in quads), at=[quad[3] for quad in quads])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConflictingLabels)
        annotations = Annotations.from_frame(frame, time="at", items=[0, 1], classes=[0, 1])
    kept = {(n, k): label for n, k, label in said(annotations)}
    expected = {}
    for n, k, label, _ in sorted(quads, key=lambda quad: quad[3]):
        expected[n, k] = label
    assert kept == expected
