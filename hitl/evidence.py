"""`Evidence`: the annotations and everything else that is known, aligned to their items.

probabilities[model]   N x J, a row is a distribution over the classes, or all NaN where the model abstains
truth                  (N,) code of the known class, -1 where unknown
features               N x D, a row is finite, or all NaN where the item has none
sequence               N x 2: which sequence, which position
graph                  sparse symmetric N x N adjacency
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hitl.annotations import Annotations, Floats, Ints, Name, Names
from hitl.errors import BadEvidence
from hitl.formatting import OneLineRepr, counted, listed
from hitl.tables import edges
from hitl.tables.arrow import has_columns, is_pandas, table_of
from hitl.tables.columns import empty_as_null, numbers_of, require_columns, with_text
from hitl.tables.encoding import names_of, natural_order, places_of, warn_of_similar
from hitl.tables.places import Place, name_of, place_in
from hitl.tables.probabilities import ROW_TOLERANCE as ROW_TOLERANCE
from hitl.tables.vectors import vectors_of

if TYPE_CHECKING:
    import pandas as pd

    from hitl.platform import Question

ITEM = "item"  # column of a table that is given in place of an array


class Parts(Protocol):
    """Parts that annotators marked within the items, in the form of their kind of answer (`hitl.kinds`)."""

    @property
    def question(self) -> Question:
        """The question that asks for them."""
        ...


@dataclass(frozen=True, eq=False, repr=False)
class Evidence(OneLineRepr):
    """What is known, aligned to `annotations.items`; checked when built.

    A table is aligned by its names, in whatever order it is: items by its column "item" or its pandas index, classes by
    its columns. An array has no names: its rows are those of `annotations.items`, its columns `annotations.classes`.

    Attributes:
        annotations: who said what.
        probabilities: for each model an (N, J) array of class probabilities, NaN in the rows where the model abstains;
            or a table with columns `p_<class>` or `<class>`.
        features: (N, D) numbers, NaN in the rows of items without features, else finite; or None.
        truth: (N,) known class codes, -1 where unknown (all -1 when None is given); or a pandas Series of codes or of
            class names, by item.
        sequence: (N, 2) integers, sequence and position, or None.
        graph: sparse symmetric (N, N) non-negative weights; or edges by the names of their items: a table with columns
            item, neighbour and perhaps weight, a list of pairs, a networkx graph (`hitl.tables.edges`); or None.
        parts: what annotators marked within the items; labels are then of its least certain part. Else None.

    Raises BadEvidence, naming the field and the item.

    Example:
        >>> from hitl import Evidence
        >>> labels = {"item": ["a", "b"], "annotator": ["ann", "ann"], "label": ["cat", "dog"]}
        >>> resnet = {"item": ["a", "c"], "p_cat": [0.9, 0.2], "p_dog": [0.1, 0.8]}
        >>> Evidence.from_tables(labels, {"resnet": resnet}).annotations.items
        ('a', 'b', 'c')
    """

    annotations: Annotations
    probabilities: Mapping[str, Floats] = field(default_factory=dict)
    features: Floats | None = None
    truth: Ints | None = None
    sequence: npt.NDArray[np.int64] | None = None
    graph: Any = None
    parts: Parts | None = None

    def __post_init__(self) -> None:
        n = self.annotations.n_items
        if not isinstance(self.probabilities, Mapping):
            raise BadEvidence(
                f"probabilities: expected a dict with one array for each model, got {type(self.probabilities).__name__}"
            )
        checked = {name: self._check_probabilities(name, rows) for name, rows in self.probabilities.items()}
        object.__setattr__(self, "probabilities", checked)
        truth = np.full(n, -1, np.int32) if self.truth is None else _truth(self.annotations, self.truth)
        object.__setattr__(self, "truth", self._check_truth(truth))
        if self.features is not None:
            features = np.asarray(_rows_by_name(self.annotations, "features", self.features), dtype=np.float64)
            self._check_rows("features", features, 2)
            bad = np.flatnonzero(~np.isfinite(features).all(axis=1) & ~np.isnan(features).all(axis=1))
            if bad.size:
                raise BadEvidence(
                    f"features: {self._item(int(bad[0]))} is not finite; expected numbers, or a row of NaN for none"
                )
            object.__setattr__(self, "features", features)
        if self.sequence is not None:
            sequence = np.asarray(_rows_by_name(self.annotations, "sequence", self.sequence))
            self._check_rows("sequence", sequence, 2)
            if sequence.shape[1] != 2 or not np.issubdtype(sequence.dtype, np.integer):
                raise BadEvidence(f"sequence: expected integers ({n}, 2), got {sequence.dtype} {sequence.shape}")
            object.__setattr__(self, "sequence", sequence.astype(np.int64))
        if self.graph is not None:
            self._check_graph()

    @classmethod
    def trusted(
        cls,
        annotations: Annotations,
        probabilities: Mapping[str, Floats],
        truth: Ints,
        sequence: npt.NDArray[np.int64] | None = None,
    ) -> Evidence:
        """What was checked before it was written, as it is: neither looked at nor copied. For tables on disk."""
        made = object.__new__(cls)
        none = dict.fromkeys(("features", "graph", "parts"))
        vars(made).update(none, annotations=annotations, probabilities=probabilities, truth=truth, sequence=sequence)
        return made

    @classmethod
    def from_tables(
        cls,
        annotations: Any,
        probabilities: Mapping[str, Any] | None = None,
        truth: Any = None,
        features: Any = None,
        *,
        graph: Any = None,
        item: str = "item",
        label: str = "label",
        classes: Any = None,
        options: Any = None,
        items: Any = None,
        **columns: Any,
    ) -> Evidence:
        """From tables that name their items: annotations, `p_<class>` columns a model, known labels, features, edges.

        The items are those of all tables together, the classes those of the annotations, the `p_` columns
        and the truth together, unless `items`, `classes` or `options` fix them. Probability and truth tables
        share the names of the item and label columns; an empty truth is not known. Features are all other columns of
        their table: numbers, or lists of numbers. A graph is what `Evidence` takes: the items of its edges are items
        too; a matrix is in the order of `items`. Raises BadEvidence when a table has no item in common with the rest.
        """
        labels = table_of(annotations, "annotations")
        require_columns(labels, [item, label], name_of(labels, "annotations"))
        tables = {
            name: _like(labels, table_of(table, f"probabilities {name!r}"), item)
            for name, table in (probabilities or {}).items()
        }
        known = None if truth is None else _like(labels, table_of(truth, "truth"), item, label)
        for name, table in tables.items():
            require_columns(table, [item], name_of(table, f"probabilities {name!r}"))
            if not any(column.startswith("p_") for column in table.column_names):
                where = name_of(table, f"probabilities {name!r}")
                raise BadEvidence(f"{where}: no column p_<class>; found {', '.join(table.column_names)}")
        if known is not None:
            require_columns(known, [item, label], name_of(known, "truth"))
        seen = None if features is None else _like(labels, table_of(features, "features"), item)
        linked = _edges(labels, graph, item) if edges.names_items(graph) else None
        if tables or any(
            given is not None for given in (known, seen, linked)
        ):  # else the annotations name all there is
            filled = None if known is None else known.filter(_are_filled(known, label))
            others = {name_of(table, f"probabilities {name!r}"): table for name, table in tables.items()}
            others |= {} if filled is None or known is None else {name_of(known, "truth"): filled}
            others |= {} if seen is None else {name_of(seen, "features"): seen}
            others |= {} if linked is None else {name_of(linked, "graph"): pa.table({item: edges.ends(linked, item)})}
            items = items if items is not None else _union_of_items(labels, others, item)
            if classes is None and options is None:
                classes = _union_of_classes(labels, tables, filled, label)
                warn_of_similar(classes)
        built = Annotations.from_frame(
            labels, item=item, label=label, items=items, classes=classes, options=options, **columns
        )
        return cls(
            built,
            {name: _align_probabilities(built, name, table, item) for name, table in tables.items()},
            features=None if seen is None else _align_features(built, seen, item),
            truth=None if known is None else _align_truth(built, known, item, label),
            graph=graph if linked is None else edges.adjacency(linked, built.items, item=item),
        )

    @cached_property
    def known(self) -> npt.NDArray[np.bool_]:
        """(N,) where the truth is known."""
        assert self.truth is not None
        known: npt.NDArray[np.bool_] = self.truth >= 0
        known.setflags(write=False)
        return known

    @cached_property
    def predicted(self) -> npt.NDArray[np.bool_]:
        """(N,) items that a model predicts."""
        predicted = np.zeros(self.annotations.n_items, dtype=bool)
        for p_nj in self.probabilities.values():
            predicted |= ~np.isnan(p_nj[:, 0])
        predicted.setflags(write=False)
        return predicted

    @cached_property
    def featured(self) -> npt.NDArray[np.bool_]:
        """(N,) items that have features."""
        featured = np.zeros(self.annotations.n_items, dtype=bool)
        if self.features is not None:
            featured |= ~np.isnan(self.features).any(axis=1)
        featured.setflags(write=False)
        return featured

    @property
    def kind(self) -> str:
        """Name of the kind of answer."""
        return "choices" if self.parts is None else self.parts.question.kind

    def frame(self) -> pd.DataFrame:
        """One row an item: item, labels, truth where any is known, and for each model its most probable class."""
        import pandas as pd

        names = np.array([*map(str, self.annotations.classes), None], dtype=object)
        columns: dict[str, Any] = {"item": self.annotations.items, "labels": self.annotations.labels_per_item}
        if self.known.any():
            columns["truth"] = names[self.truth]
        for name, p_nj in self.probabilities.items():
            columns[name] = names[np.where(np.isnan(p_nj[:, 0]), -1, p_nj.argmax(axis=1))]
        return pd.DataFrame(columns)

    def __str__(self) -> str:
        parts = [f"probabilities of {', '.join(self.probabilities)}"] if self.probabilities else []
        parts += [f"known truth of {counted(int(self.known.sum()), 'item')}"] if self.known.any() else []
        parts += [name for name in ("features", "sequence", "graph") if getattr(self, name) is not None]
        return "; ".join([str(self.annotations), *parts])

    def _item(self, row: int) -> str:
        return f"row {row} (item {self.annotations.items[row]!r})"

    def _check_rows(self, name: str, values: npt.NDArray[Any], ndim: int) -> None:
        n = self.annotations.n_items
        if values.ndim != ndim or values.shape[0] != n:
            raise BadEvidence(f"{name}: expected {n} rows, one for each item in order, got shape {values.shape}")

    def _check_probabilities(self, model: str, rows: npt.ArrayLike) -> Floats:
        name = f"probabilities[{model!r}]"
        if has_columns(rows):
            rows = _align_probabilities(self.annotations, model, _with_items(name, rows, self.annotations), ITEM)
        try:
            values = np.array(rows, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise BadEvidence(f"{name}: {error}; expected an (N, J) array of numbers") from None
        self._check_rows(name, values, 2)
        if values.shape[1] != self.annotations.n_classes:
            raise BadEvidence(
                f"{name}: expected {self.annotations.n_classes} columns, one for each class, got {values.shape[1]}"
            )
        _require_distributions(values, lambda row: f"{name}: {self._item(row)}")
        predicts = ~np.isnan(values).all(axis=1)
        values[predicts] /= values[predicts].sum(axis=1, keepdims=True)
        values.setflags(write=False)
        return values

    def _check_truth(self, truth: npt.NDArray[Any]) -> Ints:
        self._check_rows("truth", truth, 1)
        upper = self.annotations.n_classes
        if not np.issubdtype(truth.dtype, np.integer):
            raise BadEvidence(f"truth: has type {truth.dtype}; expected integer class codes, -1 where unknown")
        bad = np.flatnonzero((truth < -1) | (truth >= upper))
        if bad.size:
            raise BadEvidence(f"truth: {self._item(int(bad[0]))} is {truth[bad[0]]}; expected -1 <= code < {upper}")
        codes: Ints = truth.astype(np.int32)
        codes.setflags(write=False)
        return codes

    def _check_graph(self) -> None:
        n = self.annotations.n_items
        if hasattr(self.graph, "tocsr"):  # of the many formats of sparse matrices one
            object.__setattr__(self, "graph", self.graph.tocsr())
        if edges.names_items(self.graph):
            named = edges.adjacency(edges.edge_table(self.graph), self.annotations.items)
            object.__setattr__(self, "graph", named)
        if getattr(self.graph, "shape", None) != (n, n):
            raise BadEvidence(
                f"graph: expected a sparse ({n}, {n}) matrix, got shape {getattr(self.graph, 'shape', None)}"
            )
        # Not "> 0" and "< 0": a NaN must fail too.
        if not (abs(self.graph - self.graph.T).max() == 0 and self.graph.min() >= 0):
            raise BadEvidence("graph: expected a symmetric matrix of non-negative weights")


def _require_distributions(values: Floats, named: Place) -> None:
    """Raise BadEvidence, with the name of the row, unless each row is a distribution or all NaN."""
    predicts = ~np.isnan(values).all(axis=1)
    checks = (
        (~np.isfinite(values).all(axis=1), "is not finite; expected numbers, or a row of NaN for no prediction"),
        ((values < 0).any(axis=1), "has a negative probability; expected values in [0, 1]"),
        (np.abs(values.sum(axis=1) - 1) > ROW_TOLERANCE, "sums to {total:.6g}; expected 1"),
    )
    for wrong, message in checks:
        bad = np.flatnonzero(wrong & predicts)
        if bad.size:
            raise BadEvidence(f"{named(int(bad[0]))} {message.format(total=values[bad[0]].sum())}")


def _are_filled(table: pa.Table, label: str) -> pa.ChunkedArray:
    """Where the table has a label; an empty truth is not known."""
    return empty_as_null(names_of(table.column(label))).is_valid()


def _with_items(where: str, given: Any, annotations: Annotations) -> pa.Table:
    """The table with a column of items: its own, else the index of a pandas DataFrame."""
    indexed = is_pandas(given, "DataFrame") and ITEM not in given.columns
    table = table_of(given.rename_axis(index=ITEM).reset_index() if indexed else given, where)
    hint = f"An array without names is taken in the order of annotations.items, {annotations.items[0]!r} first"
    require_columns(table, [ITEM], where, hint)
    if isinstance(annotations.items[0], str):
        table = with_text(table, [ITEM])
    known = set(annotations.items)
    unknown = [name for name in names_of(table.column(ITEM)).to_pylist() if name not in known]
    if indexed and unknown:
        raise BadEvidence(
            f"{where}: its index names {unknown[0]!r}, which is no item ({annotations.items[0]!r} is one); set "
            f"the items as its index, or add a column {ITEM!r}. {hint}"
        )
    return table


def _rows_by_name(annotations: Annotations, where: str, given: Any) -> Any:
    """(N, D) of a table in the order of the items, all of which it has; anything without names as it is."""
    if not has_columns(given):
        return given
    table = _with_items(where, given, annotations)
    rows = _rows_of(annotations, table.column(ITEM), lambda _: where)
    if len(rows) < annotations.n_items:
        row = int(np.flatnonzero(np.bincount(rows, minlength=annotations.n_items) == 0)[0])
        raise BadEvidence(f"{where}: no row for item {annotations.items[row]!r}; expected one for every item")
    columns = [np.asarray(table.column(name)) for name in table.column_names if name != ITEM]
    return np.stack(columns, axis=1)[np.argsort(rows)]


def _truth(annotations: Annotations, given: Any) -> npt.NDArray[Any]:
    """(N,) class codes of a pandas Series by item, of codes or of class names; of an array as it is."""
    if not is_pandas(given, "Series"):
        return np.asarray(given)
    table = _with_items("truth", given.rename("label").to_frame(), annotations)
    if pa.types.is_string(table.column("label").type):
        return _align_truth(annotations, table, ITEM, "label")
    truth = np.full(annotations.n_items, -1, np.asarray(given).dtype)
    truth[_rows_of(annotations, table.column(ITEM), lambda _: "truth")] = np.asarray(given)
    return truth


def _edges(labels: pa.Table, graph: Any, item: str) -> pa.Table:
    """The edges, their items as text where the labels have text."""
    table = edges.edge_table(graph, "graph", item)
    are_text = pa.types.is_string(names_of(labels.column(item)).type)
    return with_text(table, [item, edges.NEIGHBOUR]) if are_text else table


def _like(labels: pa.Table, table: pa.Table, *names: str) -> pa.Table:
    """The table with these columns as text where the labels have text: 7 is the "7" of a file that was read as text."""
    for name in names:
        if name in table.column_names and pa.types.is_string(names_of(labels.column(name)).type):
            table = with_text(table, [name])
    return table


def _unique(column: pa.ChunkedArray) -> list[Name]:
    names: list[Name] = names_of(column).drop_null().unique().to_pylist()
    return names


def _union_of_items(annotations: pa.Table, tables: Mapping[str, pa.Table], item: str) -> Names:
    others = {where: _unique(table.column(item)) for where, table in tables.items()}
    pool = dict.fromkeys(_unique(annotations.column(item)))
    labeled = set(pool)
    for where, names in others.items():
        if labeled and names and labeled.isdisjoint(names):
            raise BadEvidence(
                f"{where}: none of its {len(names)} items is among the {len(labeled)} annotated ones "
                f"(for instance {names[0]!r} beside {next(iter(pool))!r}); expected the same item names"
            )
        pool.update(dict.fromkeys(names))
    return tuple(pool)


def _union_of_classes(
    annotations: pa.Table, models: Mapping[str, pa.Table], known: pa.Table | None, label: str
) -> Names:
    found = dict.fromkeys(_unique(annotations.column(label)))
    for table in models.values():
        found.update(dict.fromkeys(_p_columns(table, found)))
    if known is not None:
        found.update(dict.fromkeys(_unique(known.column(label))))
    as_written = {str(name): name for name in found}
    if len(as_written) < len(found):
        twice = next(name for name in found if as_written[str(name)] != name)
        raise BadEvidence(
            f"the class {twice!r} is a number in one table and text in another; expected one type of label everywhere"
        )
    return natural_order(list(found))


def _p_columns(table: pa.Table, like: Mapping[Name, None]) -> dict[Name, str]:
    """class -> column for the `p_<class>` columns; a class is a number where the labels are numbers."""
    columns = [column for column in table.column_names if column.startswith("p_")]
    numeric = bool(like) and all(isinstance(name, int) for name in like)
    return {
        int(column[2:]) if numeric and column[2:].removeprefix("-").isdigit() else column[2:]: column
        for column in columns
    }


def _class_columns(table: pa.Table, classes: Names, item: str) -> dict[Name, str]:
    """class -> column, for columns named as the classes are."""
    named = {str(name): name for name in classes}
    return {named.get(column, column): column for column in table.column_names if column != item}


def _codes(column: pa.ChunkedArray, among: Names) -> tuple[list[Name], Ints]:
    """The (rows,) names of a column and their places among some names, -1 where they are not among them."""
    names: list[Name] = names_of(column).to_pylist()
    place = places_of(among, names)
    return names, np.fromiter((place.get(name, -1) for name in names), dtype=np.int32, count=len(names))


def _rows_of(annotations: Annotations, column: pa.ChunkedArray, place_of: Place) -> Ints:
    """(rows,) item codes of a column of item names, which must be among the items, each once."""
    names, rows = _codes(column, annotations.items)
    if (rows < 0).any():
        first = int(np.flatnonzero(rows < 0)[0])
        raise BadEvidence(
            f"{place_of(first)}: item {names[first]!r} is not among the {annotations.n_items} items of the annotations"
        )
    count = np.bincount(rows, minlength=annotations.n_items)
    if (count > 1).any():
        twice = int(np.argmax(count > 1))
        second = int(np.flatnonzero(rows == twice)[1])
        raise BadEvidence(f"{place_of(second)}: item {annotations.items[twice]!r} appears twice; expected one row")
    return rows


def _align_probabilities(annotations: Annotations, model: str, table: pa.Table, item: str) -> Floats:
    where = name_of(table, f"probabilities {model!r}")
    place_of = place_in(table, lambda _: where)
    columns = _p_columns(table, dict.fromkeys(annotations.classes)) or _class_columns(table, annotations.classes, item)
    absent = [name for name in annotations.classes if name not in columns]
    extra = [name for name in columns if name not in annotations.classes]
    if extra or len(absent) == annotations.n_classes:
        raise BadEvidence(
            f"{where}: columns p_<class> name {listed(sorted(map(str, columns)))}; "
            f"expected the classes {listed(sorted(map(str, annotations.classes)))}"
        )
    rows = _rows_of(annotations, table.column(item), place_of)
    values = np.full((annotations.n_items, annotations.n_classes), np.nan)
    for code, name in enumerate(annotations.classes):
        if name in columns:
            values[rows, code] = numbers_of(table.column(columns[name]), f"{where}, column {columns[name]!r}")
    predicts = ~np.isnan(values).all(axis=1)
    unknown = [name not in columns for name in annotations.classes]  # classes the model does not know
    values[np.ix_(predicts, unknown)] = 0.0
    if name_of(table, ""):  # its lines can be named here only; `Evidence` checks the rows of any table
        _require_distributions(values[rows], lambda row: f"{place_of(row)}: item {annotations.items[rows[row]]!r}")
    return values


def _align_features(annotations: Annotations, table: pa.Table, item: str) -> Floats:
    """(N, D) in the order of the items; a row of NaN for one that the table lacks."""
    where = name_of(table, "features")
    names, x_md = vectors_of(table, where, item)
    rows = _rows_of(annotations, pa.chunked_array([pa.array(names)]), lambda _: where)
    x_nd = np.full((annotations.n_items, x_md.shape[1]), np.nan)
    x_nd[rows] = x_md
    return x_nd


def _align_truth(annotations: Annotations, table: pa.Table, item: str, label: str) -> Ints:
    numbers = np.flatnonzero(_are_filled(table, label))
    known = place_in(table, lambda _: "truth")
    table = table.take(numbers)

    def place_of(row: int) -> str:
        return known(int(numbers[row]))

    rows = _rows_of(annotations, table.column(item), place_of)
    names, codes = _codes(table.column(label), annotations.classes)
    if (codes < 0).any():
        first = int(np.argmax(codes < 0))
        raise BadEvidence(
            f"{place_of(first)}: item {annotations.items[rows[first]]!r} is {names[first]!r}; "
            f"expected one of the classes: {listed(annotations.classes)}"
        )
    truth = np.full(annotations.n_items, -1, np.int32)
    truth[rows] = codes
    return truth
