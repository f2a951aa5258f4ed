"""`Evidence`: the annotations and all other input data, with one row per item of the annotations.

probabilities[model]   (N, J): each row is a distribution over the classes, or all NaN if the model abstains
truth                  (N,): code of the true class, -1 if unknown
features               (N, D): each row is finite, or all NaN if the item has no features
sequence               (N, 2): number of the sequence, and position in it
graph                  (N, N): sparse symmetric adjacency
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hitl.annotations import Annotations, Floats, Ints, annotation_table
from hitl.crew import EXPECTED_ACCURACY
from hitl.errors import BadEvidence
from hitl.formatting import OneLineRepr, counted
from hitl.tables import align, edges
from hitl.tables.columns import Table, as_typed_names, has_columns, require_columns, table_of, with_names
from hitl.tables.encode import Name
from hitl.tables.in_memory import Predictions, Truth, predictions_tables, truth_table
from hitl.tables.matrices import ITEM, require_distributions
from hitl.tables.names import require_no_list, warn_of_similar, with_classes
from hitl.tables.read import name_of, place_in

if TYPE_CHECKING:
    from hitl.platform import Question


class Parts(Protocol):
    """Parts that annotators marked within the items, in the format of their kind of answer (`hitl.kinds`)."""

    @property
    def question(self) -> Question:
        """The question that asks for the parts."""
        ...


@dataclass(frozen=True, eq=False, repr=False)
class Evidence(OneLineRepr):
    """Input data of a fit, checked when built.

    Rows of arrays are in the order of `annotations.items`, columns of probabilities in the order of
    `annotations.classes`. Use `from_tables` for tables, which are aligned by name.

    Attributes:
        annotations: labels given by annotators.
        probabilities: model -> (N, J) array of class probabilities, NaN in rows where the model abstains; or an Arrow
            table with columns item and `p_<class>`.
        features: (N, D) numbers, finite, or NaN in the whole row of an item without features; or None.
        truth: (N,) true class codes, -1 where unknown (all -1 if None is given).
        sequence: (N, 2) integers: number of the sequence, and position in it; or None.
        graph: sparse symmetric (N, N) non-negative weights; or edges by item name: a table with columns item, neighbour
            and optionally weight, a list of pairs, a networkx graph (`hitl.tables.edges`); or None.
        parts: parts that annotators marked within the items, or None. If given, the label of an item is about its
            least certain part.
        hidden: (N,) True for items about which the question need not be asked, because most annotators did not see it;
            or None.

    Raises BadEvidence, which names the field and the item.

    Example:
        >>> from hitl import Evidence
        >>> labels = {"item": ["a", "b"], "annotator": ["ann", "ann"], "label": ["cat", "dog"]}
        >>> resnet = {"item": ["a", "b", "c"], "p_cat": [0.9, 0.4, 0.2], "p_dog": [0.1, 0.6, 0.8]}
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
    hidden: npt.NDArray[np.bool_] | None = None

    def __post_init__(self) -> None:
        n = self.annotations.n_items
        if not isinstance(self.probabilities, Mapping):
            raise BadEvidence(
                f"probabilities: expected a dict with one array for each model, got {type(self.probabilities).__name__}"
            )
        for name in ("truth", "features", "sequence"):
            value = getattr(self, name)
            if has_columns(value) or hasattr(value, "iloc"):
                raise BadEvidence(
                    f"{name}: got {type(value).__name__}; expected an array in the order of annotations.items, "
                    f"{self.annotations.items[0]!r} first; Evidence.from_tables takes tables"
                )
        checked = {name: self._check_probabilities(name, rows) for name, rows in self.probabilities.items()}
        object.__setattr__(self, "probabilities", checked)
        truth = np.full(n, -1, np.int32) if self.truth is None else np.asarray(self.truth)
        object.__setattr__(self, "truth", self._check_truth(truth))
        if self.features is not None:
            features = np.asarray(self.features, dtype=np.float64)
            self._check_rows("features", features, 2)
            bad = np.flatnonzero(~np.isfinite(features).all(axis=1) & ~np.isnan(features).all(axis=1))
            if bad.size:
                raise BadEvidence(
                    f"features: {self._item(int(bad[0]))} is not finite; expected numbers, or a row of NaN for none"
                )
            object.__setattr__(self, "features", features)
        if self.sequence is not None:
            sequence = np.asarray(self.sequence)
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
        """Build without checking or copying, from data that was checked before it was stored."""
        made = object.__new__(cls)
        none = dict.fromkeys(("features", "graph", "parts", "hidden"))
        vars(made).update(none, annotations=annotations, probabilities=probabilities, truth=truth, sequence=sequence)
        return made

    @classmethod
    def from_tables(
        cls,
        annotations: Table,
        probabilities: Mapping[str, Predictions] | None = None,
        truth: Truth | None = None,
        features: Table | None = None,
        *,
        graph: Any = None,
        sequence: Table | None = None,
        item: str = "item",
        label: str = "label",
        classes: Sequence[Name] | None = None,
        options: Sequence[Name] | None = None,
        items: Sequence[Name] | None = None,
        ordered: bool = False,
        **columns: Any,
    ) -> Evidence:
        """Build from tables with item names: annotations, `p_<class>` columns per model, true labels, features, edges.

        Truth may also be a dict or Series, and predictions an array with its classes (`hitl.tables.in_memory`).

        The items are those of all tables, and the classes those of the annotations, the `p_` columns and the truth,
        unless `items`, `classes` or `options` fix them. `item` and `label` name columns in all tables. An empty label
        in the truth means unknown. Features are all columns of their table except the item: numbers, or lists of
        numbers. `graph` is anything that `Evidence` accepts; the items of edges count as items too, and a matrix must
        follow the order of the items. `sequence` has the item and two columns of integers. `ordered` says that the
        classes are in order. Raises BadEvidence if a table has no item in common with the annotations.
        """
        others = (columns.get("annotator", "annotator"), columns.get("time"), columns.get("duration"))
        labels = annotation_table(annotations, (item, label, others[0]), others[1:])

        def table(given: Any, name: str, *names: str) -> pa.Table:
            made = table_of(given, name)
            require_columns(made, names, name_of(made, name))
            return with_classes(with_names(made, names, as_typed_names))

        predictions = predictions_tables(probabilities or {}, labels, item, label, items, classes)
        models = {name: f"probabilities {name!r}" for name in predictions}
        tables = {where: table(predictions[name], where, item) for name, where in models.items()}
        for where, model in tables.items():
            if not any(column.startswith("p_") for column in model.column_names):
                found = ", ".join(model.column_names)
                raise BadEvidence(f"{name_of(model, where)}: no column p_<class>; found {found}")
        if truth is not None:
            tables["truth"] = table(truth_table(truth, item, label), "truth", item, label)
        if features is not None:
            tables["features"] = table(features, "features", item)
        if sequence is not None:
            tables["sequence"] = table(sequence, "sequence", item)
        if edges.names_items(graph):
            tables["graph"] = edges.edge_table(graph, "graph", item)
        names = ([item, edges.NEIGHBOUR] if where == "graph" else [item] for where in tables)
        labels, *made_alike = align.alike((labels, [item]), *zip(tables.values(), names, strict=True))
        tables = dict(zip(tables, made_alike, strict=True))
        if "truth" in tables:
            labels, tables["truth"] = align.alike((labels, [label]), (tables["truth"], [label]))
        if tables:  # otherwise the annotations name all items and classes
            told = {where: align.filled(made, label) if where == "truth" else made for where, made in tables.items()}
            named = {
                name_of(made, where): edges.ends(made, item) if where == "graph" else made.column(item)
                for where, made in told.items()
            }
            items = items if items is not None else align.union_of_items(labels, named, item)
            if classes is None and options is None:
                of_models = {name_of(tables[where], where): tables[where] for where in models.values()}
                known = told.get("truth")
                truths = {} if known is None else {name_of(known, "truth"): known.column(label)}
                classes = align.union_of_classes(labels.column(label), of_models, truths)
                require_no_list(label, classes, labels.column(label), place_in(labels))
                warn_of_similar("labels", classes)
        built = Annotations.from_table(
            labels, item=item, label=label, items=items, classes=classes, options=options, **columns
        )

        def aligned(where: str, align_with: Callable[..., Any], *more: Any) -> Any:
            return align_with(built, tables[where], item, *more) if where in tables else None

        return cls(
            built.as_ordered() if ordered else built,
            {name: _with_column(tables[where], item) for name, where in models.items()},
            features=aligned("features", align.features_of),
            truth=aligned("truth", align.truth_of, label),
            sequence=aligned("sequence", align.places_of_items),
            graph=edges.adjacency(tables["graph"], built.items, item=item) if "graph" in tables else graph,
        )

    def with_judges(self, judges: Collection[str]) -> Evidence:
        """Count the answers of these annotators as predictions of models, as those of language models should be.

        Annotators are taken to err each for themselves, so three copies of one outvote everybody else. Models are
        taken to err together, and calibrated. An answer is a prediction of EXPECTED_ACCURACY before that. Answers that
        are no class are left out, and so are names that are no annotators'. Parts of items stay as they are. The
        judges are no annotators of the result.
        """
        labels = self.annotations
        wanted = [k for k, name in enumerate(labels.annotators) if str(name) in judges and self.parts is None]
        models = dict(self.probabilities)
        for k in wanted:
            rows = (labels.annotator == k) & (labels.label < labels.n_classes)
            p_nj = np.full((labels.n_items, labels.n_classes), np.nan)
            p_nj[labels.item[rows]] = (1 - EXPECTED_ACCURACY) / (labels.n_classes - 1)
            p_nj[labels.item[rows], labels.label[rows]] = EXPECTED_ACCURACY
            models[str(labels.annotators[k])] = p_nj
        if not wanted:
            return self
        people, stays = labels.select(~np.isin(labels.annotator, wanted)), np.ones(labels.n_annotators, bool)
        stays[wanted] = False
        code_k = np.cumsum(stays) - 1
        people = replace(
            people,
            annotator=code_k[people.annotator],
            annotators=tuple(labels.annotators[k] for k in np.flatnonzero(stays)),
            anonymous=None if labels.anonymous in (None, *wanted) else int(code_k[labels.anonymous]),
        )
        return replace(self, annotations=people, probabilities=models)

    @cached_property
    def known(self) -> npt.NDArray[np.bool_]:
        """(N,) True for items with ground truth."""
        assert self.truth is not None
        known: npt.NDArray[np.bool_] = self.truth >= 0
        known.setflags(write=False)
        return known

    @cached_property
    def predicted(self) -> npt.NDArray[np.bool_]:
        """(N,) True for items with a model prediction."""
        predicted = np.zeros(self.annotations.n_items, dtype=bool)
        for p_nj in self.probabilities.values():
            predicted |= ~np.isnan(p_nj[:, 0])
        predicted.setflags(write=False)
        return predicted

    @property
    def supported(self) -> npt.NDArray[np.bool_]:
        """(N,) True for items with ground truth, or with a label or a prediction unless the question is hidden."""
        given = (self.annotations.labels_per_item > 0) | self.predicted
        return self.known | (given if self.hidden is None else given & ~self.hidden)

    @cached_property
    def featured(self) -> npt.NDArray[np.bool_]:
        """(N,) True for items with features."""
        featured = np.zeros(self.annotations.n_items, dtype=bool)
        if self.features is not None:
            featured |= ~np.isnan(self.features).any(axis=1)
        featured.setflags(write=False)
        return featured

    @property
    def kind(self) -> str:
        """Name of the kind of answer (`hitl.kinds`)."""
        return "choices" if self.parts is None else self.parts.question.kind

    def __str__(self) -> str:
        parts = [f"probabilities of {', '.join(self.probabilities)}"] if self.probabilities else []
        parts += [f"ground truth of {counted(int(self.known.sum()), 'item')}"] if self.known.any() else []
        parts += [name for name in ("features", "sequence", "graph") if getattr(self, name) is not None]
        return "; ".join([str(self.annotations), *parts])

    def _item(self, row: int) -> str:
        return f"row {row} (item {self.annotations.items[row]!r})"

    def _check_rows(self, name: str, values: npt.NDArray[Any], ndim: int) -> None:
        n = self.annotations.n_items
        if values.ndim != ndim or values.shape[0] != n:
            raise BadEvidence(f"{name}: expected {n} rows, one for each item in order, got shape {values.shape}")

    def _check_probabilities(self, model: str, rows: Any) -> Floats:
        name = f"probabilities {model!r}"
        if isinstance(rows, pa.Table):
            values, named = align.probabilities_of(self.annotations, model, rows)
        elif has_columns(rows) or hasattr(rows, "iloc"):
            raise BadEvidence(
                f"{name}: got {type(rows).__name__}; expected an array or an Arrow table; "
                "Evidence.from_tables takes tables"
            )
        else:
            try:
                values, named = np.array(rows, dtype=np.float64), lambda row: f"{name}: {self._item(row)}"
            except (TypeError, ValueError) as error:
                raise BadEvidence(f"{name}: {error}; expected an (N, J) array of numbers") from None
        self._check_rows(name, values, 2)
        if values.shape[1] != self.annotations.n_classes:
            raise BadEvidence(
                f"{name}: expected {self.annotations.n_classes} columns, one for each class, got {values.shape[1]}"
            )
        require_distributions(values, named, BadEvidence)
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
        if hasattr(self.graph, "tocsr"):  # convert any sparse format to CSR
            object.__setattr__(self, "graph", self.graph.tocsr())
        if edges.names_items(self.graph):
            named = edges.adjacency(edges.edge_table(self.graph), self.annotations.items)
            object.__setattr__(self, "graph", named)
        if getattr(self.graph, "shape", None) != (n, n):
            raise BadEvidence(
                f"graph: expected a sparse ({n}, {n}) matrix, got shape {getattr(self.graph, 'shape', None)}"
            )
        # Written so that NaN fails too, unlike "> 0" and "< 0".
        if not (abs(self.graph - self.graph.T).max() == 0 and self.graph.min() >= 0):
            raise BadEvidence("graph: expected a symmetric matrix of non-negative weights")


def _with_column(table: pa.Table, item: str) -> pa.Table:
    """Rename the item column to "item"."""
    names = [ITEM if name == item else name for name in table.column_names]
    return table.rename_columns(names).replace_schema_metadata(table.schema.metadata)
