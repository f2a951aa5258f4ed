"""Tables of pairs and rankings as comparisons."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pyarrow as pa
import pytest

from hitl.errors import BadTable, EmptyLabels
from hitl.models.preferences.comparisons import Comparisons


def rows(given: Comparisons) -> list[tuple[str, str, int, str, float]]:
    columns = (given.left, given.right, given.outcome, given.annotator, given.weight)
    return [
        (given.items[i], given.items[j], int(o), given.annotators[k], float(w))
        for i, j, o, k, w in zip(*columns, strict=True)
    ]


def test_pairs_are_read_by_name_and_by_side() -> None:
    table = {"left": ["a", "b", "a", "c", "left"], "right": ["b", "c", "c", "a", "right"]}
    table |= {"winner": ["b", "left", "tie", "right", "right"], "annotator": ["x", "x", "y", "y", "y"]}
    assert rows(Comparisons.from_table(pa.table(table))) == [
        ("a", "b", -1, "x", 1),
        ("b", "c", 1, "x", 1),
        ("a", "c", 0, "y", 1),
        ("c", "a", -1, "y", 1),
        ("left", "right", -1, "y", 1),
    ]


def test_names_may_be_numbers() -> None:
    given = Comparisons.from_table(pa.table({"left": [1, 2], "right": [2, 3], "winner": [1.0, 3.0]}))
    assert (given.items, given.outcome.tolist()) == (("1", "2", "3"), [1, -1])


def test_the_name_of_an_item_comes_before_a_side() -> None:
    given = Comparisons.from_table(pa.table({"left": ["right"], "right": ["b"], "winner": ["right"]}))
    assert given.outcome.tolist() == [1]
    assert given.annotators == ("(anonymous)",)


def test_a_row_without_a_winner_is_left_out() -> None:
    table = pa.table({"left": ["a", "a"], "right": ["b", "c"], "winner": [None, "a"], "annotator": ["x", "y"]})
    with pytest.warns(EmptyLabels, match="row 0"):
        given = Comparisons.from_table(table)
    assert (given.items, given.annotators) == (("a", "c"), ("y",))


def test_a_ranking_has_ties_and_weights() -> None:
    given = Comparisons.from_table(pa.table({"ranking": ["c > a=b", "a>c"], "annotator": ["x", "y"]}))
    assert rows(given) == [
        ("c", "a", 1, "x", 2 / 3),
        ("c", "b", 1, "x", 2 / 3),
        ("a", "b", 0, "x", 1),
        ("a", "c", 1, "y", 1),
    ]
    assert given.counts.tolist() == [3, 2, 3]


def test_rankings_have_the_score_and_information_of_plackett_luce_under_equal_strengths() -> None:
    """All rankings of four items enumerated: choices of one among the rest beside the weighted comparisons."""
    n, missing = 4, np.zeros((4, 4))
    for order in permutations(range(n)):
        given = Comparisons.from_table(pa.table({"ranking": [" > ".join(map(str, order))]}))
        score, of_pairs, information, of_choices = np.zeros(n), np.zeros(n), np.zeros((n, n)), np.zeros((n, n))
        for i, j, weight in zip(given.left, given.right, given.weight, strict=True):
            x = np.eye(n)[i] - np.eye(n)[j]
            of_pairs += weight * x / 2
            information += weight * np.outer(x, x) / 4
        for place in range(n - 1):
            rest = np.eye(n)[list(order[place:])].sum(axis=0)
            p = rest / rest.sum()
            score += np.eye(n)[order[place]] - p
            of_choices += np.diag(p) - np.outer(p, p)
        assert of_pairs == pytest.approx(score)
        missing += information - of_choices
    assert np.abs(missing).max() < 1e-12  # the information is that of the choices on average


def test_groups_are_what_comparisons_connect() -> None:
    table = {"left": ["a", "d", "b", "f"], "right": ["b", "e", "c", "d"], "winner": ["left"] * 4}
    assert Comparisons.from_table(pa.table(table)).groups() == [["a", "b", "c"], ["d", "e", "f"]]
    table = {"left": ["a", "b"], "right": ["b", "c"], "winner": ["left"] * 2}
    assert len(Comparisons.from_table(pa.table(table)).groups()) == 1


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"left": ["a", "a"], "right": ["b", "b"], "winner": ["a", "x"]}, "row 1: winner 'x' is unknown"),
        ({"left": ["a"], "right": ["a"], "winner": ["a"]}, "row 0: 'a' is compared with itself"),
        ({"left": ["a"], "right": [None], "winner": ["a"]}, "row 0: an item has no name"),
        ({"left": ["a"], "winner": ["a"]}, "no column 'right'"),
        ({"ranking": ["a > b > a"]}, "row 0: ranking 'a > b > a'"),
        ({"ranking": ["a"]}, "two different items or more"),
        ({"ranking": ["a > > b"]}, "two different items or more"),
        (
            {
                "left": pa.array([], pa.string()),
                "right": pa.array([], pa.string()),
                "winner": pa.array([], pa.string()),
            },
            "no comparisons",
        ),
    ],
)
def test_bad_rows_are_named(table: dict[str, list[str]], message: str) -> None:
    with pytest.raises(BadTable, match=message):
        Comparisons.from_table(pa.table(table))
