"""Features in the store: kept exactly, one space read at a time, and only by whom holds the lease."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hitl import cycle
from hitl.connectors.tables import Tables
from hitl.models.predictors.transforms import tfidf_svd
from hitl.settings import FeatureSettings
from hitl.store import Store
from hitl.store.learned import FeaturesNote
from hitl.tables.matrices import packed, unpacked
from tests.projects import folder_with_tables, settings


def test_numbers_come_back_exactly() -> None:
    x_nd = np.array([[0.5, -2.0, 2.0**100], [0.1, 1e300, 5e-324], [0.0, -0.0, np.float32(0.1)]])
    rows = [packed(row) for row in x_nd]
    assert [len(row) for row in rows] == [13, 25, 13]
    assert unpacked(rows).tobytes() == x_nd.tobytes()
    assert unpacked([]).shape == (0, 0)


def test_a_space_is_kept_until_another_is_complete(store: Store) -> None:
    x_nd = np.random.default_rng(0).standard_normal((3, 4))
    with store.lease("p") as lease:
        store.save_vectors(lease, "old", {"a": "1", "b": "2"}, x_nd[:2])
        store.note_features(lease, FeaturesNote("old", "s"), ["old"])
        store.save_vectors(lease, "new", {"b": "3"}, x_nd[2:])
        assert store.features_note("p") == FeaturesNote("old", "s")
        items, found = store.vectors("p", "old")
        assert (items, found.tolist()) == (["a", "b"], x_nd[:2].tolist())
        assert store.vector_digests("p", "new") == {"b": "3"}
        assert (store.vector_width("p", "old"), store.vector_width("p", "none")) == (4, None)
        store.save_vectors(lease, "new", {"b": "4", "ü": "5"}, x_nd[:2])
        store.note_features(lease, FeaturesNote("new", "t", {"c": "empty"}), ["new"], ["ü"])
    assert store.features_note("p") == FeaturesNote("new", "t", {"c": "empty"})
    assert store.vectors("p", "old")[0] == []
    assert store.vector_digests("p", "new") == {"b": "4"}
    assert store.vectors("p", "new")[1].tolist() == x_nd[:1].tolist()


def test_a_cycle_makes_features_once_over_this_database(store: Store, tmp_path: Path) -> None:
    folder = folder_with_tables(tmp_path / "p")
    chosen = settings(features=FeatureSettings(text="text", dimensions=3))
    first = cycle.run(chosen, store, Tables(folder)).judgement.evidence["label"]
    expected = tfidf_svd([f"text {name}" for name in first.annotations.items], 3)
    np.testing.assert_allclose(first.features, expected, atol=1e-12)
    note = store.features_note("p")
    again = cycle.run(chosen, store, Tables(folder))
    assert again.changed == 0
    assert store.features_note("p") == note
    assert np.array_equal(again.judgement.evidence["label"].features, first.features)
