"""The graph of a project's items: edges between the user's own ids, from a file, or nearest neighbors by features."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from hitl.annotations import Floats
from hitl.tables.align import PROJECT, require_shared
from hitl.tables.edges import NEIGHBOUR, adjacency, edge_table, ends
from hitl.tables.read import read_table


@dataclass(frozen=True, eq=False)
class ProjectGraph:
    """Links between items.

    Attributes:
        adjacency: symmetric (N, N) weights.
        left_out: number of edges in the file that have an item outside the project.
    """

    adjacency: sparse.csr_array
    left_out: int = 0

    @property
    def edges(self) -> int:
        """Number of edges."""
        return int(self.adjacency.nnz) // 2

    @property
    def alone(self) -> int:
        """Number of items without an edge."""
        return int((np.diff(self.adjacency.indptr) == 0).sum())


def graph_of_file(path: str, item: str, own_ids: Sequence[str]) -> ProjectGraph:
    """Read the edges among the N items with these ids from a file with columns `item`, neighbour and optionally weight.

    Warns if some items of the file are not in the project. Raises BadEvidence if none is; BadTable or BadEvidence, with
    the line, for a wrong row.
    """
    table = edge_table(read_table(path, [item, NEIGHBOUR]), path, item)
    own, named = dict.fromkeys(own_ids), ends(table, item).unique().to_pylist()
    named = [name for name in named if name]
    require_shared(path, named, own, *PROJECT)
    others = [name for name in named if name not in own]
    n = len(own_ids)
    whole = adjacency(table, [*own_ids, *others], path, item)
    linked = sparse.csr_array(whole[:n, :n])
    return ProjectGraph(linked, int(whole.nnz - linked.nnz) // 2)


def graph_of_features(x_nd: Floats, neighbours: int) -> ProjectGraph:
    """Link each of N items to the `neighbours` items with the nearest features (N, D)."""
    from hitl.models.graphs.neighbours import nearest_neighbours

    return ProjectGraph(nearest_neighbours(x_nd, neighbours))
