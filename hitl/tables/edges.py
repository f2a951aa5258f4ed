"""Read the edges of an undirected graph, given by item names, and build the (N, N) matrix of their weights.

    a table            columns `item`, `neighbour` and, if edges differ in weight, `weight`
    a list             pairs (item, neighbour), or with a weight (item, neighbour, weight)
    a networkx graph   its edges, weighted by their attribute "weight", 1 for an edge without it

An edge counts in both directions, however it is written. If it appears several times, the largest weight counts.
Edges of weight 0, and edges from an item to itself, are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any

import numpy as np
import pyarrow as pa
from scipy import sparse

from hitl.errors import BadEvidence, BadTable
from hitl.tables.align import codes_in
from hitl.tables.columns import (
    as_names,
    as_typed_names,
    has_columns,
    numbers_of,
    require_columns,
    row_number,
    table_of,
    with_names,
)
from hitl.tables.encode import Name
from hitl.tables.read import name_of, place_in

ITEM, NEIGHBOUR, WEIGHT = "item", "neighbour", "weight"
COLUMNS = "A graph has the columns item and neighbour, and a column weight where edges differ in weight"


def names_items(graph: Any) -> bool:
    """Return True for a graph whose edges name their items: a table, a list or a networkx graph, but not a matrix."""
    return _is_networkx(graph) or has_columns(graph) or isinstance(graph, list | tuple)


def edge_table(graph: Any, where: str = "graph", item: str = ITEM) -> pa.Table:
    """Return a table of E edges: the columns `item` and `neighbour`, and `weight` if there is one.

    Raise BadTable, naming `where`, for anything that is not such a table, list or graph.

    Example:
        >>> from hitl.tables.edges import edge_table
        >>> edge_table([("a", "b"), ("b", "c", 2.0)]).to_pydict()
        {'item': ['a', 'b'], 'neighbour': ['b', 'c'], 'weight': [1.0, 2.0]}
    """
    if _is_networkx(graph):
        graph = [tuple(edge) for edge in graph.edges(data=WEIGHT, default=1.0)]
    if isinstance(graph, list | tuple) and not any(isinstance(row, Mapping) for row in graph):
        for number, row in enumerate(graph):
            place = f"{where}, {row_number(number)}"
            if not isinstance(row, list | tuple) or len(row) not in (2, 3):
                raise BadTable(f"{place}: got {row!r}; expected (item, neighbour) or (item, neighbour, weight)")
            if not all(isinstance(name, str | Integral) for name in row[:2]):
                raise BadTable(f"{place}: got {row[:2]!r}; expected names that are text or whole numbers")
        weights = pa.array([row[2] if len(row) == 3 else 1.0 for row in graph])
        graph = {item: [row[0] for row in graph], NEIGHBOUR: [row[1] for row in graph], WEIGHT: weights}
    table = table_of(graph, where)
    require_columns(table, [item, NEIGHBOUR], name_of(table, where), COLUMNS)
    return with_names(table, [item, NEIGHBOUR], as_typed_names)


def ends(table: pa.Table, item: str = ITEM) -> pa.ChunkedArray:
    """Return the (2 E,) names at the ends of the edges: first those in `item`, then those in `neighbour`."""
    both = [as_typed_names(table.column(name)) for name in (item, NEIGHBOUR)]
    if both[0].type != both[1].type:
        both = [as_names(column) for column in both]
    return pa.chunked_array([chunk for column in both for chunk in column.chunks], both[0].type)


def adjacency(table: pa.Table, items: Sequence[Name], where: str = "graph", item: str = ITEM) -> sparse.csr_array:
    """Return the symmetric (N, N) weights of the edges among these N items.

    Raise BadEvidence, naming the row, for an item that is not one of these, or a weight that is negative or no number;
    BadTable for a row without a name, and for weights that are text.

    Example:
        >>> from hitl.tables.edges import adjacency, edge_table
        >>> adjacency(edge_table([("a", "b"), ("b", "a", 3.0), ("c", "c")]), ("a", "b", "c")).toarray().tolist()
        [[0.0, 3.0, 0.0], [3.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    """
    n = len(items)
    if items and isinstance(items[0], str):
        table = with_names(table, [item, NEIGHBOUR])
    place_of = place_in(table, lambda row: f"{where}, {row_number(row)}")
    columns = (codes_in(table.column(name), tuple(items), place_of, name, repeats=True) for name in (item, NEIGHBOUR))
    one, other = (codes.astype(np.int64) for codes in columns)
    weight = np.ones(table.num_rows)
    if WEIGHT in table.column_names:
        weight = numbers_of(table.column(WEIGHT), f"{name_of(table, where)}, column {WEIGHT!r}")
    wrong = ~(np.isfinite(weight) & (weight >= 0))
    if wrong.any():
        row = int(np.argmax(wrong))
        text = "empty" if np.isnan(weight[row]) else f"{weight[row]:g}"
        raise BadEvidence(f"{place_of(row)}: the weight is {text}; expected a number of at least 0")
    counts = (one != other) & (weight > 0)
    one, other, weight = one[counts], other[counts], weight[counts]
    pair, place = np.unique(np.minimum(one, other) * n + np.maximum(one, other), return_inverse=True)
    largest = np.zeros(len(pair))
    np.maximum.at(largest, place, weight)
    half = sparse.csr_array((largest, np.divmod(pair, n)), shape=(n, n))
    return sparse.csr_array(half + half.T)


def _is_networkx(graph: Any) -> bool:
    return all(hasattr(graph, name) for name in ("edges", "nodes", "is_multigraph"))  # networkx is not imported
