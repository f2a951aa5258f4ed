"""Labels that come and go, against a dictionary that does the same."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hitl.annotations import ANONYMOUS, Annotations
from hitl.errors import BadAnnotations
from hitl.models.inference.mutable_annotations import GrowingLabels, roomy
from tests import oracles
from tests.tables import rows, said


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), pool=st.sampled_from([0, 6]))
def test_it_holds_what_was_said_and_not_withdrawn(seed: int, pool: int) -> None:
    rng = np.random.default_rng(seed)
    annotations = oracles.crowd(rng, 5, 3, 3, 4, pool=pool, unlabeled=1)[0].annotations
    labels, expected = GrowingLabels(annotations), said(annotations)
    for _ in range(120):
        item, annotator, option = f"n{rng.integers(9)}", f"k{rng.integers(7)}", int(rng.integers(4))
        if pool and rng.random() < 0.3:
            annotator = ANONYMOUS
        name = None if annotator == ANONYMOUS else annotator
        there = [row for row in expected if row[:2] == (item, name)]
        n, k = labels.item(item), labels.annotator(annotator)
        if there and rng.random() < 0.5:
            _, _, label = there[rng.integers(len(there))]
            labels.take(n, k, labels.option(label) if name is None else -1)
            expected.remove((item, name, label))
        else:
            labels.put(n, k, option)
            if name is not None:
                expected = [row for row in expected if row[:2] != (item, name)]
            expected.append((item, name, labels.options[option]))
        assert labels.count(n, k) == sum(row[:2] == (item, name) for row in expected)
        assert len(labels) == len(expected)
    now = labels.annotations()
    assert sorted(map(repr, said(now))) == sorted(map(repr, expected))
    assert now.items[:5] == annotations.items
    assert now.annotators[: annotations.n_annotators] == annotations.annotators
    np.testing.assert_array_equal(labels.labels_per_annotator, now.labels_per_annotator)
    np.testing.assert_array_equal(labels.all_cells(), now.cell)


def test_codes_never_change_and_strangers_join_at_the_end() -> None:
    labels = GrowingLabels(Annotations.from_frame(rows(("a", "ann", "x"), ("b", "bob", "y"))))
    assert [labels.item(name) for name in ("b", "c", "a", "c")] == [1, 2, 0, 2]
    assert [labels.annotator(name) for name in ("bob", "cem")] == [1, 2]
    assert (labels.items, labels.annotators) == (("a", "b", "c"), ("ann", "bob", "cem"))
    assert labels.find_item("nobody") == labels.find_annotator("nobody") == -1
    assert labels.annotations().labels_per_item.tolist() == [1, 1, 0]


def test_an_option_or_a_type_of_name_not_met_is_an_error() -> None:
    labels = GrowingLabels(Annotations.from_frame(rows(("a", "ann", "x"), ("b", "bob", "y"))))
    with pytest.raises(BadAnnotations, match="'z' is not one of the options"):
        labels.option("z")
    with pytest.raises(BadAnnotations, match="item 7"):
        labels.check_names([7], ["ann"])
    with pytest.raises(BadAnnotations, match="annotator 7"):
        labels.check_names(["a"], [7])


def test_rows_get_room_for_a_quarter_more() -> None:
    rows_nj = np.arange(6.0).reshape(3, 2)
    assert roomy(rows_nj, 3) is rows_nj
    larger = roomy(rows_nj, 100, -1)
    assert len(larger) >= 125
    np.testing.assert_array_equal(larger[:3], rows_nj)
    assert (larger[3:] == -1).all()
