"""Combine tables into a consensus in one call."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from inspect import signature
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hitl.annotations import Name, Names
from hitl.consensus import Consensus
from hitl.errors import BadSettings, GuessedOrder
from hitl.evidence import Evidence
from hitl.formatting import did_you_mean
from hitl.models.analysis.copied_accounts import count_copies_once
from hitl.models.combiner import Combiner, name_of
from hitl.models.mean_score import MeanScore, as_number
from hitl.models.methods import COMBINERS
from hitl.models.ordinal import Ordinal
from hitl.models.registry import chosen
from hitl.tables.columns import (
    Table,
    as_typed_names,
    has_columns,
    is_pandas,
    require_columns,
    table_of,
    values_of,
)
from hitl.tables.encode import natural_order
from hitl.tables.in_memory import Predictions, Truth, is_named, truth_table
from hitl.tables.layouts import melted


def combine(
    labels: Table,
    probabilities: Predictions | Mapping[str, Predictions] | None = None,
    truth: Truth | None = None,
    features: Table | None = None,
    *,
    graph: Any = None,
    sequence: Table | None = None,
    method: str | Combiner = "default",
    paper: bool = False,
    item: str = "item",
    annotator: str | None = "annotator",
    label: str = "label",
    classes: Sequence[Name] | npt.NDArray[Any] | None = None,
    options: Sequence[Name] | None = None,
    time: str | None = None,
    **settings: Any,
) -> Consensus:
    """Estimate the best label of every item, its confidence, and the accuracy of each annotator.

    Tables are DataFrames (pandas, polars), Arrow tables, Hugging Face datasets, dicts of columns or lists of dicts.

    Args:
        labels: table with one row per label and the columns item, annotator and label; or with one row per item and
            one column per annotator.
        probabilities: predictions of a model, as a table with the columns item and p_<class>, or as
            `(model.predict_proba(X), model.classes_)` with a row per item, in the order in which the labels first name
            them; `(array, classes, items)` names the items. For several models, a dict of model name -> predictions.
        truth: known answers: a dict of item -> label, a Series indexed by item, or a table of items and labels.
        features: table of the items' features, for methods that learn from them: item and numeric columns.
        graph: links between items, for methods that use a graph: a table with the columns item, neighbour and
            optionally weight, a list of pairs, or a networkx graph.
        sequence: the place of each item in a sequence, for methods that use one: a table of the item and two columns
            of integers, the number of the sequence and the position in it.
        method: name of the method, as in `hitl combine --method`, or a method itself, as `hitl.models.DawidSkene()`.
        paper: True to use the settings of the method's paper instead of hitl's defaults.
        item, annotator, label, time: names of the columns; annotator=None if annotators have no ids.
        classes: names of the classes; default: those of an ordered Categorical, or those in the tables. A label column
            that is an ordered Categorical has classes in order, which methods take into account (see `models.Ordinal`).
        options: allowed answers, if there are others besides the classes; default: those in the tables.
        settings: settings of the named method's class, which override all defaults.

    Raise BadInput, with the expected form, for malformed tables; BadSettings for an unknown method or setting.

    Example:
        >>> import hitl
        >>> labels = {"item": ["a", "a", "a", "b", "b"], "annotator": ["ann", "bob", "cy", "ann", "bob"],
        ...           "label": ["cat", "cat", "dog", "dog", "dog"]}
        >>> hitl.combine(labels).frame()["label"].tolist()
        ['cat', 'dog']
        >>> wide = {"item": ["a", "b"], "ann": ["cat", "dog"], "bob": ["cat", "dog"], "cy": ["dog", None]}
        >>> hitl.combine(wide, method="majority").confidence.round(3).tolist()
        [0.625, 0.833]
    """
    _require_no_mistyped(settings, method)
    fitted_by = method_of(method, settings, paper)
    table = table_of(labels, "labels")
    models = _models(probabilities)
    known = None if truth is None else truth_table(truth, item, label)
    given: Any = labels
    ordered = is_pandas(given, "DataFrame") and label in given and getattr(given[label].dtype, "ordered", False)
    if classes is None and ordered:
        classes = given[label].cat.categories
    kind = _kind_of_labels(table, item, label)
    classes = None if classes is None else [*classes]
    if classes is not None and values_of((), kind) is not None:
        classes = [*as_typed_names(pa.chunked_array([pa.array(classes)])).to_pylist()]
    columns: dict[str, Any] = {"annotator": annotator, "time": time}
    if annotator not in table.column_names and label not in table.column_names:
        require_columns(table, [item], "labels", "Name its columns with item=, annotator= and label=")
        table, columns = melted(table, [item, "annotator", label]), {"annotator": "annotator"}
    evidence = Evidence.from_tables(
        table,
        models,
        known,
        features,
        graph=graph,
        sequence=sequence,
        item=item,
        label=label,
        classes=classes,
        options=options,
        ordered=ordered,
        **columns,
    )
    if classes is None:
        warn_of_guessed_order(fitted_by, evidence.annotations.classes)
    found = fit(fitted_by, evidence)
    return replace(found, values=values_of(found.classes, kind))


def _kind_of_labels(table: pa.Table, item: str, label: str) -> pa.DataType:
    """Return the type of the labels in a long or a wide table; null if they have several."""
    columns = [label] if label in table.column_names else [name for name in table.column_names if name != item]
    kinds = {table.column(name).type for name in columns} - {pa.null()}
    kinds = {kind.value_type if pa.types.is_dictionary(kind) else kind for kind in kinds}
    return kinds.pop() if len(kinds) == 1 else pa.null()


def _require_no_mistyped(settings: Mapping[str, Any], method: str | Combiner) -> None:
    """Raise BadSettings for a setting that the method does not have and that is close to an argument of `combine`."""
    made = COMBINERS.load(method) if isinstance(method, str) and ":" not in method else None
    own = {field.name for field in fields(made)} if is_dataclass(made) else set[str]()
    arguments = set(signature(combine).parameters) - {"labels", "settings"}
    for name in settings:
        if name not in own and (meant := did_you_mean(name, sorted(arguments))):
            raise BadSettings(f"combine has no argument {name!r}{meant}")


def fit(method: Combiner, evidence: Evidence) -> Consensus:
    """Return the consensus of a method, to which copied accounts count once (`models.analysis.copied_accounts`).

    Raise BadSettings if a method of the user returns anything else.
    """
    once = count_copies_once(evidence)
    found: Any = method.fit(once)
    if not isinstance(found, Consensus):
        raise BadSettings(
            f"method {name_of(method)}: fit returned {type(found).__name__}; expected a hitl.Consensus of all items "
            "(hitl.testing.check_combiner checks a method)"
        )
    if once is not evidence:
        labels = evidence.annotations.labels_per_annotator
        found = replace(found, annotators=replace(found.annotators, labels=labels))
    unnamed = found.fit.method == "unknown"
    consensus: Consensus = replace(found, fit=replace(found.fit, method=name_of(method))) if unnamed else found
    return consensus


def warn_of_guessed_order(method: Combiner, names: Names, stacklevel: int = 3) -> None:
    """Warn if a method of ordered classes gets three or more words in alphabetical order, perhaps not theirs."""
    by_order = isinstance(method, Ordinal) or (isinstance(method, MeanScore) and method.scores is None)
    if (
        by_order
        and len(names) > 2
        and names == natural_order(names)
        and not np.isfinite([*map(as_number, names)]).all()
    ):
        warnings.warn(
            f"{name_of(method)} takes the classes to be in this order: {', '.join(map(str, names))}. If it is another, "
            "name the classes in order (--classes, classes=, source.classes); if they have none, use another method",
            GuessedOrder,
            stacklevel=stacklevel,
        )


def method_of(
    method: str | Combiner, settings: Mapping[str, Any] = MappingProxyType({}), paper: bool = False
) -> Combiner:
    """Return the method of a name with these settings, or the method itself."""
    if isinstance(method, str):
        return chosen(method, settings, paper)
    name = type(method).__name__
    if isinstance(method, type) or not hasattr(method, "fit"):
        made = f"; call it: {method.__name__}()" if isinstance(method, type) else ""
        raise BadSettings(f"method: got {name}; expected a name, such as 'vb-ibcc', or a method{made}")
    if settings or paper:
        raise BadSettings(
            f"method: {name} has its own settings; expected {', '.join(settings) or 'paper'} there, not beside it"
        )
    return method


def _models(given: Any) -> dict[str, Any]:
    """Return model name -> predictions. Those of a single model get the name "model"."""
    if given is None:
        return {}
    several = isinstance(given, Mapping) and all(
        has_columns(one) or is_named(one) or np.ndim(one) == 2 for one in given.values()
    )
    return {str(name): one for name, one in given.items()} if several else {"model": given}
