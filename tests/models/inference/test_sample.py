"""A sample of items is the same however they come, and is a table like any other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hitl.annotations import Annotations
from hitl.evidence import Evidence
from hitl.models.inference import sample as sample_module
from hitl.models.inference.sample import Sample
from tests import oracles
from tests.dependent_labels import everywhere, some_crowd


def sample_of(evidence: Evidence) -> Sample:
    """Sample with beliefs that depend on an item's name alone."""
    classes = evidence.annotations.n_classes
    places = [int(str(name).lstrip("n")) for name in items(evidence)]
    q_nj = np.array([np.random.default_rng(place).dirichlet(np.ones(classes)) for place in places])
    return Sample.of(evidence, lambda _: q_nj)


def items(evidence: Evidence) -> tuple[Any, ...]:
    return tuple(evidence.annotations.items)


def part(evidence: Evidence, rows: Any) -> Evidence:
    """These items, in this order; classes, options and annotators keep their codes."""
    a, place = evidence.annotations, {n: i for i, n in enumerate(rows)}
    kept = [m for m in range(len(a)) if a.item[m] in place]
    item = np.array([place[a.item[m]] for m in kept], np.int32)
    names = tuple(a.items[n] for n in rows)
    table = Annotations(
        item, a.annotator[kept], a.label[kept], names, a.annotators, a.classes, a.options, anonymous=a.anonymous
    )
    return Evidence(table, truth=evidence.truth[np.array(rows)])


@everywhere
@pytest.mark.parametrize("most", [7, 100])
def test_shards_in_any_order_give_the_sample_of_the_whole(shape: dict[str, Any], most: int) -> None:
    evidence, _, _ = some_crowd(shape, known=0.3)
    order = np.random.default_rng(0).permutation(len(items(evidence)))
    parts = [part(evidence, rows) for rows in (order[:11], order[11:30], order[30:])]
    whole = sample_of(evidence).first(most)
    pieces = (sample_of(parts[0]) + sample_of(parts[1]) + sample_of(parts[2])).first(most)
    np.testing.assert_array_equal(pieces.key_n, whole.key_n)
    np.testing.assert_array_equal(pieces.labels_n, whole.labels_n)
    key, times = np.unique(sample_of(evidence).key_n, return_counts=True)
    unique = np.isin(whole.key_n, key[times == 1])
    np.testing.assert_array_equal(pieces.q_nj[unique], whole.q_nj[unique])
    np.testing.assert_array_equal(pieces.truth_n[unique], whole.truth_n[unique])
    options = evidence.annotations.n_options
    np.testing.assert_array_equal(pieces.votes(options), whole.votes(options))


def test_many_shards_leave_no_more_items_than_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample_module, "ITEMS", 10)
    evidence, _, _ = some_crowd({})
    both = sample_of(part(evidence, range(20))) + sample_of(part(evidence, range(20, 40)))
    np.testing.assert_array_equal(both.key_n, sample_of(evidence).key_n)
    assert len(both.key_n) == 10


def test_votes_and_table_have_the_labels_of_the_items() -> None:
    evidence, _, _ = some_crowd({"asked": 0.5, "n_options": 6, "unlabeled": 3}, known=0.2)
    sample, a = sample_of(evidence), evidence.annotations
    table = sample.evidence(a)
    assert table.annotations.n_items == np.count_nonzero(a.labels_per_item)
    expected = sorted(
        sorted((int(k), int(option)) for k, option in zip(a.annotator[a.item == n], a.label[a.item == n], strict=True))
        for n in range(a.n_items)
        if a.labels_per_item[n]
    )
    people = [int(k) for k in np.unique(a.annotator)]
    t = table.annotations
    found = sorted(
        sorted(
            (people[k], int(option)) for k, option in zip(t.annotator[t.item == n], t.label[t.item == n], strict=True)
        )
        for n in range(t.n_items)
    )
    assert found == expected
    np.testing.assert_array_equal(sample.votes(a.n_options).sum(axis=0), np.bincount(a.label, minlength=a.n_options))


def test_a_sample_of_many_items_is_spread_over_all_of_them() -> None:
    """Not the first ones: those that were labeled first may be of one kind."""
    rng = np.random.default_rng(0)
    item = np.repeat(np.arange(4000, dtype=np.int32), 2)
    annotator = np.concatenate([rng.choice(60, 2, replace=False) for _ in range(4000)]).astype(np.int32)
    late = item >= 2000
    label = np.where(late, rng.integers(2, 4, 8000), rng.integers(0, 2, 8000)).astype(np.int32)
    names = oracles.names("k", 60)
    table = Annotations(item, annotator, label, tuple(range(4000)), names, tuple("abcd"), tuple("abcd"))
    sample = Sample.of(Evidence(table), lambda _: np.full((4000, 4), 0.25)).first(400)
    share = (sample.label_m >= 2).mean()
    assert share == pytest.approx(0.5, abs=0.08)
