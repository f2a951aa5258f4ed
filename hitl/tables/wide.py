"""Wide tables, a row an item and a column an annotator, as long ones with a row a label.

item   ann   bob                item   annotator   label
a      cat   dog       ->       a      ann         cat
b            dog                a      bob         dog
                                b      bob         dog
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa

from hitl.errors import BadAnnotations
from hitl.tables.columns import empty_as_null, repeated, require_columns
from hitl.tables.encoding import Name, names_of
from hitl.tables.places import Place, name_of, place_in

LONG = ("item", "annotator", "label")
"""The columns of a long table."""

_INDEX = re.compile(r"Unnamed: \d+|__index_level_\d+__|")
"""Names that an index without one gets, in pandas and in the files that it writes."""

OTHERWISE = "Where each row is one label, name the columns: item=, annotator=, label="


def melted(table: pa.Table, item: str = "item", annotators: Sequence[str] | None = None) -> tuple[pa.Table, list[Name]]:
    """The long table, and the items in order, labeled or not; default annotators: all columns but the item's.

    Raises BadAnnotations where an item has two rows, or a column shares no label with the others or numbers the rows.
    """
    require_columns(table, [item, *(annotators or ())], name_of(table, "labels"))
    people = list(annotators) if annotators is not None else [name for name in table.column_names if name != item]
    items = empty_as_null(names_of(table.column(item)))
    named: list[Name] = items.to_pylist()
    _require_wide(named, item, people, place_in(table))
    if annotators is None:
        _require_no_index(people)
    labels = {name: empty_as_null(names_of(_typed(table.column(name)))) for name in people}
    if any(pa.types.is_string(column.type) for column in labels.values()):
        labels = {name: column.cast(pa.string()) for name, column in labels.items()}
    _require_common(labels)
    parts = [
        pa.table([items, pa.array([name] * len(items), pa.string()), column], names=LONG)
        for name, column in labels.items()
    ]
    long = pa.concat_tables(parts)
    return long.filter(long.column("label").is_valid()), named


def _require_wide(items: Sequence[Name], item: str, people: Sequence[str], place_of: Place) -> None:
    if None in items:
        raise BadAnnotations(f"{place_of(items.index(None))}: {item!r} is empty; expected a name in every row")
    twice = repeated(items)
    if twice is not None:
        raise BadAnnotations(
            f"item {twice!r} has two rows; expected one row for each item and a column for each annotator. {OTHERWISE}"
        )
    if not people:
        raise BadAnnotations(f"no column beside {item!r}; expected a column for each annotator")


def _require_no_index(people: Sequence[str]) -> None:
    """A column of row numbers, which pandas writes unless it is told not to, is no annotator."""
    index = next((name for name in people if _INDEX.fullmatch(name)), None)
    if index is not None:
        raise BadAnnotations(
            f"column {index!r} holds the row numbers of a table that pandas wrote, and no labels; read the file with "
            "index_col=0, or drop the column"
        )


def _require_common(labels: dict[str, pa.ChunkedArray]) -> None:
    """Each annotator gives answers that another one gives too; else a column holds something else."""
    found = {name: set(column.drop_null().unique().to_pylist()) for name, column in labels.items()}
    for name, own in found.items():
        others = set().union(*(values for other, values in found.items() if other != name))
        if own and others and own.isdisjoint(others):
            raise BadAnnotations(
                f"column {name!r} has no label in common with the other columns (for instance {min(map(str, own))!r}); "
                f"expected a column for each annotator. {OTHERWISE}"
            )


def _typed(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column without any value has no type: text."""
    return column.cast(pa.string()) if pa.types.is_null(column.type) else column
