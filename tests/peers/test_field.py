"""The methods that `make results` compares, how each is run, and its page."""

from __future__ import annotations

import os
from importlib.resources import files
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from hitl.annotations import Annotations, Ints
from hitl.evidence import Evidence
from hitl.models import MACE
from hitl.tables.read import read_table
from hitl.testing import crowd
from tests.bench import results
from tests.bench.field import methods, page
from tests.bench.field.__main__ import limited, measured
from tests.bench.field.tables import aligned

FITS, _ = methods.load()


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
    found = aligned(table, annotations)
    assert found.tolist() == [[0.8, 0.2, 0.0], [1 / 3, 1 / 3, 1 / 3], [0.5, 0.5, 0.0]]


@pytest.mark.parametrize("method", FITS)
def test_methods_find_the_truth_whatever_items_and_classes_are_called(method: str) -> None:
    """Those whose packages are installed: hitl's own, and in .venv/bench all of them."""
    if method == "peerannot WDS":
        pytest.skip("fails in peerannot 0.0.1.post43")
    rng = np.random.default_rng(0)
    classes = 2 if method.endswith("KOS") else 3
    evidence, truth = crowd(rng, n_items=60, n_annotators=5, n_classes=classes, accuracy=(0.7, 0.95))
    orders = rng.permutation(60), rng.permutation(evidence.annotations.n_classes)
    annotations = renamed(evidence.annotations, *orders)
    outcome = measured(FITS[method], Evidence(annotations, truth=np.argsort(orders[1])[truth[orders[0]]]))
    assert outcome[0] > 0.8, outcome


def test_every_file_of_the_folder_is_a_package_and_its_methods_have_names_of_their_own() -> None:
    assert methods.files() == ["cleanlab", "crowd_kit", "own", "peerannot", "potato"]
    assert {"hitl default", "hitl majority"} <= set(FITS)


def test_one_method_on_the_set_that_hitl_ships() -> None:
    folder = files("hitl.demo") / "data" / "rte"
    tables = (read_table(Path(str(folder / name))) for name in ("annotations.csv", "truth.csv"))
    evidence = Evidence.from_tables(next(tables), truth=next(tables))
    assert measured(FITS["hitl majority"], evidence)[0] == pytest.approx(0.8969, abs=1e-4)
    found = limited(60.0, measured, FITS["hitl majority"], evidence)
    assert found == measured(FITS["hitl majority"], evidence)


def forever() -> str:
    while True:
        pass


def test_a_fit_that_takes_too_long_or_fails_leaves_the_reason() -> None:
    evidence = Evidence(Annotations.from_matrix([[0, 1]]), truth=np.zeros(1, np.int32))
    assert limited(1, forever) == "stopped after 1 s of processor time"
    assert limited(60.0, measured, lambda _: 1 / 0, evidence) == "ZeroDivisionError: division by zero"
    assert limited(60.0, os._exit, 1) == "ended without a result"


def test_the_page_has_the_figures_of_the_file() -> None:
    assert page.PAGE.read_text() == page.text(results.load("field"))


def test_the_page_says_where_the_default_is_not_first_and_where_it_is_below_majority() -> None:
    rows = [
        ("hitl default", "one", "all", 0.9, 0.2, 0.1),
        ("hitl default", "two", "all", 0.5, 0.9, 0.3),
        ("hitl majority", "one", "all", 0.8, 0.3, 0.1),
        ("hitl majority", "two", "all", 0.511, 1.0, 0.1),
        ("labels alone", "one", "all", 1.0, None, None),
        ("better", "two", "all", 0.6, 0.8, 0.1),
    ]
    table = page.scores({"rows": [[*row[:3], list(row[3:])] for row in rows] + [["late", "one", "all", "stopped"]]})
    lines = "\n".join(page.summary(table))
    assert "**1 of 2 sets**" in lines
    assert "| `two` | better | 0.800 | 0.900 |" in lines
    assert "`two` (-1.1)" in lines
    assert "| labels alone | 1 | 1.000 | 0.900 |  |  |  |  |" in page.means(table)


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
    np.testing.assert_allclose(aligned(table, evidence.annotations), found.probabilities, atol=1e-3)
