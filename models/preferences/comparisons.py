"""Comparisons of two items each, read from tables of pairs or of rankings.

A ranking of m items is m - 1 choices: the best of all, the best of the others, and so on (Plackett-Luce). A choice of
one among c items is read as c - 1 comparisons, each with the weight 2/c. Under equal strengths their score and their
information are those of the choice itself; as many comparisons of full weight would claim up to c/2 times as much (the
weights of Khetan & Oh 2016).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from hitl.annotations import Floats, Ints
from hitl.errors import BadTable
from hitl.tables.columns import as_text, require_columns, with_names
from hitl.tables.encode import annotator_codes, report_empty
from hitl.tables.read import place_in

RANKING = "ranking"
NAMES = ("left", "right", "winner", "annotator")
TIE = "tie"


@dataclass(frozen=True, eq=False)
class Comparisons:
    """M comparisons of N items by K annotators.

    Attributes:
        items: N names.
        left, right: (M,) codes of the compared items, never equal.
        outcome: (M,) 1 if the left item won, -1 if the right one did, 0 for a tie.
        annotators: K names.
        annotator: (M,) code of who compared.
        weight: (M,) in (0, 1]; below 1 for the comparisons that a ranking implies.
    """

    items: tuple[str, ...]
    left: Ints
    right: Ints
    outcome: Ints
    annotators: tuple[str, ...]
    annotator: Ints
    weight: Floats

    @classmethod
    def from_table(cls, table: pa.Table, where: str = "the table") -> Comparisons:
        """Read the columns left, right, winner, or the column ranking ("a > b = c"), and annotator if it is there.

        The winner is the name of an item, "left", "right" or "tie"; names come first. Rows without one are left out,
        with the warning EmptyLabels. Raise BadTable, naming the row, for anything else.
        """
        if {RANKING, "left", "right", "winner"} <= {*table.column_names}:
            raise BadTable(f"{where}: it has {RANKING} and left, right, winner; expected one of the two")
        answer = RANKING if RANKING in table.column_names else "winner"
        table = with_names(with_names(table, NAMES), [RANKING], as_text)
        require_columns(table, [answer] if answer == RANKING else ["left", "right", answer], where)
        place = place_in(table, lambda row: f"{where}, row {row}")
        answers = [(text or "").strip() for text in table.column(answer).to_pylist()]
        empty = [row for row, text in enumerate(answers) if not text]
        if empty:
            report_empty(len(empty), place(empty[0]), strict=False, what=answer)
        who, code, _ = annotator_codes(table, "annotator" if "annotator" in table.column_names else None)
        pairs = list[tuple[str, str, int, int, float]]()
        sides = [] if answer == RANKING else [table.column(name).to_pylist() for name in ("left", "right")]
        for row, text in enumerate(answers):
            try:
                if answer == RANKING:
                    pairs += [(*pair, code[row]) for pair in _pairs_of(text)]  # type: ignore[misc]
                elif text:
                    left, right = ((side[row] or "").strip() for side in sides)
                    pairs.append((left, right, _outcome(left, right, text), 1.0, code[row]))  # type: ignore[arg-type]
            except ValueError as error:
                raise BadTable(f"{place(row)}: {error}") from None
        if not pairs:
            raise BadTable(f"{where}: no comparisons; expected a row with a {answer}")
        left, right, outcome, weight, annotator = zip(*pairs, strict=True)
        items, codes = np.unique([*left, *right], return_inverse=True)
        there, annotator = np.unique(annotator, return_inverse=True)
        return cls(
            tuple(items.tolist()),
            codes[: len(outcome)].astype(np.int32),
            codes[len(outcome) :].astype(np.int32),
            np.array(outcome, np.int32),
            tuple(str(who[k]) for k in there),
            annotator.astype(np.int32),
            np.array(weight),
        )

    @property
    def counts(self) -> Ints:
        """(N,) number of comparisons of each item."""
        return np.bincount(np.append(self.left, self.right), minlength=len(self.items)).astype(np.int32)

    def groups(self) -> list[list[str]]:
        """Return the groups of items that comparisons connect, the largest first; one group if all can be compared."""
        size = len(self.items)
        graph = coo_array((np.ones(len(self.left)), (self.left, self.right)), (size, size))
        number, group = connected_components(graph, directed=False)
        found = [[self.items[n] for n in np.flatnonzero(group == g)] for g in range(number)]
        return sorted(found, key=len, reverse=True)


def _outcome(left: str, right: str, winner: str) -> int:
    if not left or not right:
        raise ValueError("an item has no name; expected one on the left and one on the right")
    if left == right:
        raise ValueError(f"{left!r} is compared with itself")
    outcome = {"left": 1, "right": -1, TIE: 0} | {left: 1, right: -1}
    if winner not in outcome:
        raise ValueError(f"winner {winner!r} is unknown; expected {left!r}, {right!r}, left, right or tie")
    return outcome[winner]


def _pairs_of(ranking: str) -> list[tuple[str, str, int, float]]:
    """Return better, worse, outcome and weight of the comparisons that a ranking like "a > b = c" implies."""
    if not ranking:
        return []
    levels = [[name.strip() for name in level.split("=")] for level in ranking.split(">")]
    names = [(name, depth) for depth, level in enumerate(levels) for name in level]
    if len({name for name, _ in names}) < len(names) or len(names) < 2 or not all(name for name, _ in names):
        raise ValueError(f"ranking {ranking!r}: expected two different items or more, as a > b = c")
    return [
        (one, other, int(depth != below), 2 / (len(names) - place))
        for place, (one, depth) in enumerate(names)
        for other, below in names[place + 1 :]
    ]
