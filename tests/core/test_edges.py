"""Graphs whose edges name their items: a table, a list or a networkx graph is the matrix that it says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scipy import sparse

from hitl import Evidence
from hitl.annotations import Annotations
from hitl.errors import BadEvidence, BadTable
from hitl.tables.edges import NEIGHBOUR, adjacency, edge_table
from hitl.tables.read import read_table

PEOPLE = {"item": ["a", "b", "c"], "annotator": ["ann", "ann", "bob"], "label": ["x", "y", "x"]}
EDGES = [("c", "a", 2.0), ("b", "c", 0.5)]
MATRIX = [[0, 0, 2], [0, 0, 0.5], [2, 0.5, 0]]
COLUMNS = {"item": ["c", "b"], "neighbour": ["a", "c"], "weight": [2.0, 0.5]}
GIVEN = {
    "pairs": EDGES,
    "lists": [list(edge) for edge in EDGES],
    "dict": COLUMNS,
    "rows": [{"item": "c", "neighbour": "a", "weight": 2.0}, {"item": "b", "neighbour": "c", "weight": 0.5}],
    "pandas": pd.DataFrame(COLUMNS),
    "arrow": pa.table(COLUMNS),
    "arrow, chunks": pa.concat_tables([pa.table(COLUMNS).slice(0, 1), pa.table(COLUMNS).slice(1)]),
    "other columns too": {**COLUMNS, "kind": ["cites", "cites"]},
    "the other way round": [(two, one, weight) for one, two, weight in reversed(EDGES)],
}


@pytest.fixture
def annotations() -> Annotations:
    return Annotations.from_frame(PEOPLE)


def graph_of(annotations: Annotations, given: Any) -> Any:
    graph = Evidence(annotations, graph=given).graph
    assert isinstance(graph, sparse.csr_array)
    return graph.toarray()


@pytest.mark.parametrize("given", GIVEN.values(), ids=list(GIVEN))
def test_edges_are_aligned_by_the_names_of_their_items(annotations: Annotations, given: Any) -> None:
    np.testing.assert_array_equal(graph_of(annotations, given), MATRIX)


@pytest.mark.parametrize("kind", ["Graph", "DiGraph", "MultiGraph", "MultiDiGraph"])
def test_a_networkx_graph_is_aligned_by_its_nodes(annotations: Annotations, kind: str) -> None:
    networkx = pytest.importorskip("networkx")
    graph = getattr(networkx, kind)()
    graph.add_node("nobody labeled this, and it has no edge")
    graph.add_weighted_edges_from(EDGES)
    np.testing.assert_array_equal(graph_of(annotations, graph), MATRIX)
    plain = getattr(networkx, kind)([("b", "a")])
    np.testing.assert_array_equal(graph_of(annotations, plain), [[0, 1, 0], [1, 0, 0], [0, 0, 0]])


def test_without_weights_all_are_1_and_numbers_are_names_too(annotations: Annotations) -> None:
    assert graph_of(annotations, [("a", "b")]).tolist() == [[0, 1, 0], [1, 0, 0], [0, 0, 0]]
    assert graph_of(annotations, {"item": ["a"], "neighbour": ["b"]}).tolist() == [[0, 1, 0], [1, 0, 0], [0, 0, 0]]
    numbered = Annotations.from_matrix([[0, 1], [1, 0], [0, 0]])
    assert graph_of(numbered, [(0, np.int64(2))]).tolist() == [[0, 0, 1], [0, 0, 0], [1, 0, 0]]
    text = Annotations.from_frame({**PEOPLE, "item": ["7", "8", "9"]})
    assert graph_of(text, [(9, 7)]).tolist() == [[0, 0, 1], [0, 0, 0], [1, 0, 0]]


def test_the_largest_weight_counts_and_an_item_is_not_its_own_neighbour(annotations: Annotations) -> None:
    several = [("a", "b", 1.0), ("b", "a", 3.0), ("a", "b", 2.0), ("c", "c", 9.0), ("b", "c", 0.0)]
    assert graph_of(annotations, several).tolist() == [[0, 3, 0], [3, 0, 0], [0, 0, 0]]
    assert Evidence(annotations, graph=several).graph.nnz == 2
    assert Evidence(annotations, graph=[]).graph.nnz == 0


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ([("a", "b"), ("a", "q")], BadEvidence, "graph, row 1: neighbour 'q' is not among the 3 items"),
        ([("q", "a")], BadEvidence, "graph, row 0: item 'q' is not among the 3 items of the annotations"),
        ([("a", "b", 1.0), ("b", "c", -1.0)], BadEvidence, "graph, row 1: the weight is -1; expected a number of at"),
        ([("a", "b", np.inf)], BadEvidence, "graph, row 0: the weight is inf; expected a number of at least 0"),
        ({**COLUMNS, "weight": [1.0, None]}, BadEvidence, "graph, row 1: the weight is empty; expected a number"),
        ([("a", "b", np.nan)], BadEvidence, "graph, row 0: the weight is empty"),
        ({**COLUMNS, "weight": ["much", "little"]}, BadTable, "graph, column 'weight': not numeric"),
        ({"item": ["a", "b"], "neighbour": ["b", None]}, BadTable, "graph, row 1: the neighbour is empty"),
        ({"item": ["", "b"], "neighbour": ["b", "c"]}, BadTable, "graph, row 0: the item is empty; expected a name"),
        ([("a", "b"), ("c",)], BadTable, r"graph, row 1: got \('c',\); expected \(item, neighbour\) or \(item, neigh"),
        (["ab"], BadTable, "graph, row 0: got 'ab'; expected"),
        ([((0, 0), (0, 1))], BadTable, r"graph, row 0: got \(\(0, 0\), \(0, 1\)\); expected names that are text or"),
        ({"source": ["a"], "target": ["b"]}, BadTable, "graph: no column 'item'; found source, target. A graph has"),
        (7, BadEvidence, r"graph: expected a sparse \(3, 3\) matrix, got shape None"),
    ],
)
def test_edges_that_do_not_fit_say_where(annotations: Annotations, given: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        Evidence(annotations, graph=given)


def test_a_file_is_named_with_the_line(tmp_path: Path) -> None:
    path = tmp_path / "graph.csv"
    path.write_text("item,neighbour,weight\na,b,1\n\nb,q,1\n")
    with pytest.raises(BadEvidence, match=r"graph.csv, line 4: neighbour 'q' is not among"):
        adjacency(edge_table(read_table(path, ["item", NEIGHBOUR])), ("a", "b", "c"))
    path.write_text("item,neighbour,weight\na,b,1\nb,c,\n")
    with pytest.raises(BadEvidence, match=r"graph.csv, line 3: the weight is empty"):
        adjacency(edge_table(read_table(path, ["item", NEIGHBOUR])), ("a", "b", "c"))
    path.write_text("item,neighbour,weight\na,b,heavy\n")
    with pytest.raises(BadTable, match=r"graph.csv, column 'weight': not numeric"):
        adjacency(edge_table(read_table(path, ["item", NEIGHBOUR])), ("a", "b", "c"))


@pytest.mark.filterwarnings("ignore::hitl.errors.UnmatchedNames")
def test_the_items_of_edges_are_items_of_the_evidence() -> None:
    evidence = Evidence.from_tables(PEOPLE, graph=[("c", "d"), ("d", "e", 2.0)])
    assert evidence.annotations.items == ("a", "b", "c", "d", "e")
    assert dict(sparse.triu(evidence.graph).todok()) == {(2, 3): 1.0, (3, 4): 2.0}
    numbered = {"item": [1, 2], "annotator": [1, 1], "label": [0, 1]}
    assert Evidence.from_tables(numbered, graph=[(2, 3)]).annotations.items == (1, 2, 3)
    photo = {"photo": ["7", "7"], "annotator": ["ann", "bob"], "label": ["x", "y"]}
    edges = {"photo": [7], "neighbour": ["8"]}
    assert Evidence.from_tables(photo, graph=edges, item="photo").annotations.items == ("7", "8")
    matrix = sparse.csr_array([[0, 1, 0], [1, 0, 0], [0, 0, 0]])
    assert Evidence.from_tables(PEOPLE, graph=matrix).graph is matrix
    with pytest.raises(BadEvidence, match=r"graph: none of its 2 items is among the 3 annotated ones \(for instance"):
        Evidence.from_tables(PEOPLE, graph=[("k", "m")])
    with pytest.raises(BadEvidence, match="graph, row 0: neighbour 'd' is not among the 3 items"):
        Evidence.from_tables(PEOPLE, graph=[("c", "d")], items=["a", "b", "c"])


@pytest.mark.parametrize("form", ["lil", "dia", "dok", "coo", "csc", "bsr", "csr"])
def test_a_sparse_matrix_of_any_format_is_a_graph(form: str) -> None:
    made = sparse.csr_array(np.eye(3)[::-1]).asformat(form)
    labels = Annotations.from_matrix([[0], [1], [0]], classes=[0, 1])
    np.testing.assert_array_equal(Evidence(labels, graph=made).graph.toarray(), np.eye(3)[::-1])
