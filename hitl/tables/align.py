"""Align tables that name their items with the items and classes of annotations.

Rows may be in any order, because they are matched by name. An item that is not one of the annotations' items, or that
appears twice, is an error. The message names the file and line if the table was read from a file.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hitl.annotations import Annotations, Floats, Ints, Name, Names
from hitl.errors import BadEvidence, BadTable, UnmatchedNames
from hitl.formatting import counted, listed
from hitl.tables.columns import (
    Place,
    as_names,
    as_typed_names,
    empty_as_null,
    is_text,
    numbers_of,
    require_columns,
    with_names,
)
from hitl.tables.encode import natural_order, places_of
from hitl.tables.limits import FEWER_NUMBERS, require_memory
from hitl.tables.matrices import ITEM, read_probabilities, vectors_of
from hitl.tables.names import likeness
from hitl.tables.read import name_of, place_in

_INTEGER = r"^(0|-?[1-9]\d{0,17})$"
"""Integer as text, in its only spelling."""


PROJECT = ("items of the project", "the ids that `hitl export` writes")
"""Items that a file of a project is matched with, and the ids expected in it (`require_shared`)."""


# -- before the annotations are built ----------------------------------------------------------------------


def alike(*tables: tuple[pa.Table, Sequence[str]]) -> list[pa.Table]:
    """Return tables, each given with its columns of names, with these columns of one type, so that 7 matches "7".

    They are integers if the first table has integers and all text in the others is such, and otherwise text.
    """
    columns = [table.column(name) for table, names in tables for name in names]
    texts = [column for column in columns if is_text(column.type)]
    if not texts or len(texts) == len(columns):
        return [table for table, _ in tables]
    are_integers = pa.types.is_integer(columns[0].type) and all(
        pc.all(pc.match_substring_regex(column.unique(), _INTEGER)).as_py() is not False for column in texts
    )
    convert = _as_integers if are_integers else as_names
    return [with_names(table, names, convert) for table, names in tables]


def _as_integers(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.int64()) if is_text(column.type) else column


def union_of_items(labels: pa.Table, others: Mapping[str, pa.ChunkedArray], item: str) -> Names:
    """Return the items of all tables, annotated ones first. `others` maps the name of a table to its items.

    Warn if a table lacks some annotated items and has other items. Raise BadEvidence if it has none in common.
    """
    pool = dict.fromkeys(_unique(labels.column(item)))
    labeled = dict(pool)
    for where, column in others.items():
        names = _unique(column)
        require_shared(where, names, labeled, stacklevel=5)
        pool.update(dict.fromkeys(names))
    return tuple(pool)


def union_of_classes(
    labels: pa.ChunkedArray, models: Mapping[str, pa.Table], truth: Mapping[str, pa.ChunkedArray]
) -> Names:
    """Return the classes named in labels, `p_<class>` columns and truth, in natural order.

    `models` and `truth` map the name of a table to it, or to its labels.

    Warn of classes that no annotation has. Raise BadEvidence if a class is a number in one table and text in another.
    """
    classes = dict.fromkeys(_unique(labels))
    used = {likeness(name) for name in classes}
    others: dict[str, Collection[Name]] = {where: _p_columns(table, classes) for where, table in models.items()}
    others |= {where: _unique(column) for where, column in truth.items()}
    for where, names in others.items():
        strange = [name for name in names if likeness(name) not in used]
        if strange and classes:
            warnings.warn(
                f"{where}: no annotator has used {listed(strange)}, which counts as a class too; "
                "if that is wrong, fix the name, or list the classes (--classes, in Python classes=)",
                UnmatchedNames,
                stacklevel=4,
            )
        classes.update(dict.fromkeys(names))
    as_written = {str(name): name for name in classes}
    if len(as_written) < len(classes):
        twice = next(name for name in classes if as_written[str(name)] != name)
        raise BadEvidence(
            f"the class {twice!r} is a number in one table and text in another; expected one type of label everywhere"
        )
    return natural_order(list(classes))


def filled(table: pa.Table, label: str) -> pa.Table:
    """Return the rows whose label is not empty. An empty label means that the truth is unknown."""
    return table.filter(empty_as_null(as_typed_names(table.column(label))).is_valid())


# -- with the annotations ----------------------------------------------------------------------------------


def probabilities_of(annotations: Annotations, model: str, table: pa.Table) -> tuple[Floats, Place]:
    """Return (N, J) probabilities, NaN for items without a row, and a function that names an item's row in messages.

    Classes without a column p_<class> get 0, because the model does not know them. Raise BadEvidence for unknown or
    repeated items, and for columns of unknown classes.
    """
    where = name_of(table, f"probabilities {model!r}")
    require_columns(table, [ITEM], where)
    place_of = place_in(table, lambda _: where)
    classes = annotations.classes
    columns = _p_columns(table, dict.fromkeys(classes))
    if not columns or any(name not in classes for name in columns):
        raise BadEvidence(
            f"{where}: columns p_<class> name {listed(sorted(map(str, columns)))}; "
            f"expected the classes {listed(sorted(map(str, classes)))}"
        )
    rows = codes_in(table.column(ITEM), annotations.items, place_of)
    require_memory(where, 3 * 8 * annotations.n_items * annotations.n_classes, instead=FEWER_NUMBERS)
    values = np.full((annotations.n_items, annotations.n_classes), np.nan)
    for code, name in enumerate(classes):
        if name in columns:
            values[rows, code] = numbers_of(table.column(columns[name]), f"{where}, column {columns[name]!r}")
    predicts = ~np.isnan(values).all(axis=1)
    values[np.ix_(predicts, [name not in columns for name in classes])] = 0.0
    row_of = np.zeros(annotations.n_items, np.int64)
    row_of[rows] = np.arange(len(rows))
    return values, lambda item: f"{place_of(int(row_of[item]))}: item {annotations.items[item]!r}"


def features_of(annotations: Annotations, table: pa.Table, item: str, called: str = "features") -> Floats:
    """Return (N, D) features in the order of the items; an item that is not in the table has a row of NaN."""
    where = name_of(table, called)
    names, x_md = vectors_of(table, where, item)
    rows = codes_in(pa.chunked_array([pa.array(names)]), annotations.items, lambda _: where)
    require_memory(where, 2 * 8 * annotations.n_items * x_md.shape[1], instead=FEWER_NUMBERS)
    x_nd = np.full((annotations.n_items, x_md.shape[1]), np.nan)
    x_nd[rows] = x_md
    return x_nd


def places_of_items(annotations: Annotations, table: pa.Table, item: str) -> npt.NDArray[np.int64]:
    """Return (N, 2) sequence and position of each item. Raise BadEvidence for an item without them."""
    x_nd = features_of(annotations, table, item, "sequence")
    bad = np.flatnonzero((x_nd != np.floor(x_nd)).any(axis=1))
    if bad.size:
        raise BadEvidence(
            f"{name_of(table, 'sequence')}: item {annotations.items[bad[0]]!r} has no place; expected a row for each "
            "item, with two whole numbers: its sequence and its position there"
        )
    return x_nd.astype(np.int64)


def truth_of(annotations: Annotations, table: pa.Table, item: str, label: str) -> Ints:
    """Return (N,) class codes from a table of items and labels; -1 for items without a row or with an empty label."""
    numbers = np.flatnonzero(empty_as_null(as_typed_names(table.column(label))).is_valid())
    place_of = place_in(table, lambda _: "truth")
    table = table.take(numbers)
    rows = codes_in(table.column(item), annotations.items, lambda row: place_of(int(numbers[row])))
    names, codes = codes_among(table.column(label), annotations.classes)
    if (codes < 0).any():
        first = int(np.argmax(codes < 0))
        raise BadEvidence(
            f"{place_of(int(numbers[first]))}: item {annotations.items[rows[first]]!r} is {names[first]!r}; "
            f"expected one of the classes: {listed(annotations.classes)}"
        )
    truth = np.full(annotations.n_items, -1, np.int32)
    truth[rows] = codes
    return truth


def _unique(column: pa.ChunkedArray) -> list[Name]:
    names: list[Name] = empty_as_null(as_typed_names(column)).drop_null().unique().to_pylist()
    return names


def _p_columns(table: pa.Table, like: Mapping[Name, None]) -> dict[Name, str]:
    """Map classes to their `p_<class>` columns; a class is a number if the labels are numbers, and `True` is "true"."""
    columns = {column[2:]: column for column in table.column_names if column.startswith("p_")}
    if like and like.keys() <= {"true", "false"}:
        return {name.lower() if name in ("True", "False") else name: column for name, column in columns.items()}
    numeric = bool(like) and all(isinstance(name, int) for name in like)
    return {
        int(name) if numeric and name.removeprefix("-").isdigit() else name: column for name, column in columns.items()
    }


def codes_among(column: pa.ChunkedArray, among: Names) -> tuple[list[Name], Ints]:
    """Return the names in a column, and (rows,) their positions in `among`; -1 for names that are not in it."""
    names: list[Name] = as_typed_names(column).to_pylist()
    place = places_of(among, names)
    return names, np.fromiter((place.get(name, -1) for name in names), dtype=np.int32, count=len(names))


def codes_in(
    column: pa.ChunkedArray, items: Names, place_of: Place, kind: str = "item", *, repeats: bool = False
) -> Ints:
    """Return (rows,) positions in `items` of a column of names.

    Raise BadTable for an empty name, BadEvidence for an unknown one or, unless `repeats`, one that appears twice.
    """
    names, codes = codes_among(empty_as_null(as_typed_names(column)), items)
    for row in np.flatnonzero(codes < 0)[:1].tolist():
        if names[row] is None:
            raise BadTable(f"{place_of(row)}: the {kind} is empty; expected a name in every row")
        raise BadEvidence(
            f"{place_of(row)}: {kind} {names[row]!r} is not among the {len(items)} items of the annotations"
        )
    count = np.bincount(codes, minlength=len(items))
    if not repeats and (count > 1).any():
        twice = int(np.argmax(count > 1))
        second = int(np.flatnonzero(codes == twice)[1])
        raise BadEvidence(f"{place_of(second)}: item {items[twice]!r} appears twice; expected one row")
    return codes


# -- with the items of a project ----------------------------------------------------------------------------


def by_question(
    path: str | Path, key_of: Mapping[str, str], classes: Mapping[str, Sequence[Name]]
) -> dict[str, pa.Table]:
    """Return question -> table of item and p_<class>, from a file that names its items by the user's own ids.

    `key_of` maps the user's own id of an item to the project's key; rows of other items are left out. `classes` maps a
    question to its classes. The columns p_<class> belong to the question that has all of these classes. For yes/no
    questions, which have names of the form "<control>=<class>", the column p_<class> is the probability of yes. Warn if
    some items are not in the project. Raise BadEvidence if none is, and BadTable if no question or several match.
    """
    table = read_probabilities(path, classes=next(iter(classes.values())) if len(classes) == 1 else None)
    require_columns(table, [ITEM], str(path))
    names = as_names(table.column(ITEM)).to_pylist()
    require_shared(str(path), dict.fromkeys(names), key_of, *PROJECT)
    rows = [row for row, name in enumerate(names) if name in key_of]
    keys, table = pa.array([key_of[names[row]] for row in rows]), table.take(rows)
    columns = {name.removeprefix("p_"): table.column(name) for name in table.column_names if name.startswith("p_")}
    fitting = [question for question, names in classes.items() if columns.keys() <= set(map(str, names))]
    ticked = {question.partition("=")[2]: question for question in classes if "=" in question}
    if len(fitting) == 1:
        return {fitting[0]: pa.table({ITEM: keys} | {f"p_{name}": column for name, column in columns.items()})}
    if fitting or not columns.keys() <= ticked.keys():
        asked = "; ".join(f"{question}: {', '.join(map(str, names))}" for question, names in classes.items())
        raise BadTable(f"{path}: its columns p_{', p_'.join(columns)} fit no single question; there are {asked}")
    return {
        ticked[name]: pa.table({ITEM: keys, "p_yes": yes, "p_no": pc.subtract(1.0, pc.cast(yes, pa.float64()))})
        for name, yes in columns.items()
    }


# -- items that two tables share ----------------------------------------------------------------------------


@dataclass
class Match:
    """Numbers of items of a table and of those that it is expected to have.

    Attributes:
        names: number of items of the table.
        expected: number of expected items.
        matched: number of items that are both.
        strange: up to three items of the table that are not expected.
        instance: an expected item.
    """

    names: int = 0
    expected: int = 0
    matched: int = 0
    strange: list[Name] = field(default_factory=list)
    instance: Name = ""

    def add(self, names: Iterable[Name], expected: Collection[Name]) -> None:
        """Count distinct items of a table, or of a part that holds all rows of its items."""
        names = list(names)
        strange = [name for name in names if name not in expected]
        self.names, self.expected = self.names + len(names), self.expected + len(expected)
        self.matched += len(names) - len(strange)
        self.strange = [*self.strange, *strange][:3]
        self.instance = self.instance or next(iter(expected), "")

    def describe(self, where: str, which: str) -> str | None:
        """Describe the items that are not expected; None if there are none.

        A table that has all expected items may have others: they are a pool of items without labels.
        """
        others = self.names - self.matched
        if not others or self.matched == self.expected:
            return None
        return (
            f"{where}: {self.matched:,} of its {counted(self.names, 'item')} {_be(self.matched)} among the "
            f"{self.expected:,} {which}, {others:,} {_be(others)} not, for instance "
            f"{', '.join(map(repr, self.strange))}; if they are misspelled, write them as there"
        )

    def require(self, where: str, which: str, ids: str, stacklevel: int) -> None:
        """Warn if some items match and others do not. Raise BadEvidence, naming the expected `ids`, if none does."""
        if self.names and self.expected and not self.matched:
            raise BadEvidence(
                f"{where}: none of its {counted(self.names, 'item')} is among the {self.expected:,} {which} "
                f"(for instance {self.strange[0]!r}, unlike {self.instance!r}); expected {ids}"
            )
        message = self.describe(where, which)
        if message is not None:
            warnings.warn(message, UnmatchedNames, stacklevel=stacklevel)


def require_shared(
    where: str,
    names: Iterable[Name],
    expected: Collection[Name],
    which: str = "annotated ones",
    ids: str = "the same item names",
    stacklevel: int = 2,
) -> None:
    """Match the distinct items of a table with those that it is `expected` to have (`Match.require`)."""
    match = Match()
    match.add(names, expected)
    match.require(where, which, ids, stacklevel)


def _be(number: int) -> str:
    return "is" if number == 1 else "are"
