"""Convert wide tables, one row per item and one column per annotator, to long ones with one row per label.

item   ann   bob                item   annotator   label
a      cat   dog       ->       a      ann         cat
b            dog                a      bob         dog
                                b      bob         dog
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from hitl.errors import BadAnnotations
from hitl.tables.columns import empty_as_null, repeated, require_columns
from hitl.tables.encoding import Name, names_of
from hitl.tables.places import name_of, place_in

LONG = ("item", "annotator", "label")
"""Columns of a long table."""

_INDEX = re.compile(r"Unnamed: \d+|__index_level_\d+__|")
"""Names of an unnamed index, in pandas and in the files that it writes."""

OTHERWISE = "Where each row is one label, name the columns: item=, annotator=, label="


def melted(table: pa.Table, item: str = "item", annotators: Sequence[str] | None = None) -> tuple[pa.Table, list[Name]]:
    """Return the long table, and the items in order, labeled or not; default annotators: all columns but the item's.

    Raise BadAnnotations if an item has two rows, or a column shares no label with the others or numbers the rows.
    """
    require_columns(table, [item, *(annotators or ())], name_of(table, "labels"))
    people = list(annotators) if annotators is not None else [name for name in table.column_names if name != item]
    column = empty_as_null(names_of(table.column(item)))
    items: list[Name] = column.to_pylist()
    if column.null_count:
        empty = int(np.argmax(np.asarray(column.is_null())))
        raise BadAnnotations(f"{place_in(table)(empty)}: {item!r} is empty; expected a name in every row")
    twice = repeated(items)
    if twice is not None:
        raise BadAnnotations(
            f"item {twice!r} has two rows; expected one row for each item and a column for each annotator. {OTHERWISE}"
        )
    if not people:
        raise BadAnnotations(f"no column beside {item!r}; expected a column for each annotator")
    index = next((name for name in people if _INDEX.fullmatch(name)), None) if annotators is None else None
    if index is not None:
        raise BadAnnotations(
            f"column {index!r} holds the row numbers of a table that pandas wrote, and no labels; read the file with "
            "index_col=0, or drop the column"
        )
    labels = {name: _labels(table.column(name)) for name in people}
    if any(pa.types.is_string(answers.type) for answers in labels.values()):
        labels = {name: answers.cast(pa.string()) for name, answers in labels.items()}
    _require_common(labels)
    parts = [
        pa.table([column, pa.array([name] * len(items), pa.string()), answers], names=LONG)
        for name, answers in labels.items()
    ]
    long = pa.concat_tables(parts)
    return long.filter(long.column("label").is_valid()), items


def _labels(column: pa.ChunkedArray) -> pa.ChunkedArray:
    typed = column.cast(pa.string()) if pa.types.is_null(column.type) else column  # a column without any value
    return empty_as_null(names_of(typed))


def _require_common(labels: dict[str, pa.ChunkedArray]) -> None:
    """Raise BadAnnotations for a column that shares no value with any other, because it holds something else."""
    values = {name: set(column.drop_null().unique().to_pylist()) for name, column in labels.items()}
    for name, own in values.items():
        others = set().union(*(theirs for other, theirs in values.items() if other != name))
        if own and others and own.isdisjoint(others):
            raise BadAnnotations(
                f"column {name!r} has no label in common with the other columns (for instance {min(map(str, own))!r}); "
                f"expected a column for each annotator. {OTHERWISE}"
            )
