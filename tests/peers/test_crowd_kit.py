"""What the honesty benchmark asks of crowd-kit's aggregators, and how it compares them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from hitl.annotations import Annotations, Ints
from hitl.evidence import Evidence
from hitl.models import MACE
from hitl.testing import crowd
from tests.bench.honesty import peers
from tests.bench.honesty.scored import beside


def renamed(annotations: Annotations, item_order: Ints, class_order: Ints) -> Annotations:
    """The same labels with items and classes in another order, under names that sort in neither."""
    items = tuple(f"item {(7 * n) % 101}" for n in range(annotations.n_items))
    classes = tuple("dbca"[j] for j in range(annotations.n_classes))
    a, place_n, place_j = annotations, np.argsort(item_order), np.argsort(class_order)
    names = tuple(items[n] for n in item_order), tuple(classes[j] for j in class_order)
    item, label = place_n[a.item].astype(np.int32), place_j[a.label].astype(np.int32)
    return Annotations(item, a.annotator, label, names[0], a.annotators, names[1], names[1])


def test_a_table_of_a_peer_is_put_in_the_order_of_the_annotations() -> None:
    annotations = Annotations.from_matrix([[0, 1], [1, 1], [0, 2]], classes=["z", "a", "m"])
    table = pd.DataFrame({"a": [0.5, 0.2], "z": [0.5, 0.8]}, index=[2, 0])  # no class m, no item 1
    found = peers.aligned(table, annotations)
    assert found.tolist() == [[0.8, 0.2, 0.0], [1 / 3, 1 / 3, 1 / 3], [0.5, 0.5, 0.0]]


@pytest.mark.parametrize("peer", peers.PEERS)
def test_peers_find_the_truth_whatever_items_and_classes_are_called(peer: str) -> None:
    pytest.importorskip("crowdkit", reason="crowd-kit is in the bench extra")
    rng = np.random.default_rng(0)
    evidence, truth = crowd(rng, n_items=60, n_annotators=5, n_classes=2 if peer == "KOS" else 3, accuracy=(0.7, 0.95))
    orders = rng.permutation(60), rng.permutation(evidence.annotations.n_classes)
    p_nj = peers.predicted(peer, renamed(evidence.annotations, *orders))
    right = np.mean(orders[1][p_nj.argmax(axis=1)] == truth[orders[0]])
    assert right > 0.8
    np.testing.assert_allclose(p_nj.sum(axis=1), 1.0)


@pytest.mark.filterwarnings("ignore")
def test_mace_is_crowd_kits_where_annotators_appear_in_the_order_of_their_names() -> None:
    """In any other order crowd-kit 1.4 gives annotators the spam of others."""
    pytest.importorskip("crowdkit", reason="crowd-kit is in the bench extra")
    from crowdkit.aggregation import MACE as CrowdKitMACE

    evidence, _ = crowd(np.random.default_rng(1), n_items=80, n_annotators=8, n_classes=3, accuracy=(0.3, 0.9))
    frame = evidence.annotations.table().to_pandas().rename(columns={"item": "task", "annotator": "worker"})
    classes = pd.factorize(frame["label"])[1]
    for column in ("worker", "label"):
        frame[column] = [f"{code:03d}" for code in pd.factorize(frame[column])[0]]
    table = CrowdKitMACE(n_restarts=1, n_iter=400).fit_predict_proba(frame)
    table.columns = [classes[int(code)] for code in table.columns]
    found = MACE(tolerance=1e-12, max_iterations=5000).fit(Evidence(evidence.annotations))
    np.testing.assert_allclose(peers.aligned(table, evidence.annotations), found.probabilities, atol=1e-3)


def test_a_peer_is_compared_with_the_default_on_its_own_crowds_alone() -> None:
    def row(name: str, method: str, right: float, loss: float, error: float) -> tuple[object, ...]:
        return ("real", name, name, "2", 0, method, right, loss, error, 0.0)

    rows = [
        row("one", "default", 0.9, 0.2, 0.1),
        row("two", "default", 0.5, 0.9, 0.3),
        row("one", "GLAD", 0.8, 0.3, 0.05),
        row("one", "KOS", 0.95, np.nan, np.nan),
        row("two", "KOS", 0.4, np.nan, np.nan),
    ]
    lines, kept, _ = peers.compared(beside(rows, "default"))
    assert kept["2"]["GLAD"]["log loss"] == {"peer": 0.3, "default": 0.2, "better on": 1}
    assert kept["2"]["KOS"]["accuracy"] == {"peer": pytest.approx(0.675), "default": 0.7, "better on": 1}
    assert "log loss" not in kept["2"]["KOS"]
    assert sum("2 labels an item" in line for line in lines) == 1
