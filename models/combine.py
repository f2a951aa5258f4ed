"""Combine tables into a consensus in one call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hitl.annotations import Name
from hitl.consensus import Consensus
from hitl.errors import BadInput, BadSettings
from hitl.evidence import Evidence
from hitl.models.registry import chosen
from hitl.tables.align import alike
from hitl.tables.columns import as_typed_names, has_columns, table_of, with_names
from hitl.tables.wide import items_of, melted


def combine(
    labels: Any,
    probabilities: Any = None,
    truth: Any = None,
    *,
    method: str = "default",
    paper: bool = False,
    item: str = "item",
    annotator: str | None = "annotator",
    label: str = "label",
    classes: Sequence[Name] | None = None,
    options: Sequence[Name] | None = None,
    time: str | None = None,
    **settings: Any,
) -> Consensus:
    """Estimate the best label of every item, its confidence, and the accuracy of each annotator.

    Tables are DataFrames (pandas, polars), Arrow tables, Hugging Face datasets, dicts of columns or lists of dicts.

    Args:
        labels: table with one row per label and the columns item, annotator and label; or with one row per item and
            one column per annotator.
        probabilities: predictions of a model, as a table with the columns item and p_<class>; for several models a
            dict of model name -> table.
        truth: table of items with known truth, with the columns item and label.
        method: name of the method, as in `hitl combine --method`.
        paper: True to use the settings of the method's paper instead of hitl's defaults.
        item, annotator, label, time: names of the columns; annotator=None if annotators have no ids.
        classes: names of the classes; default: those in the tables.
        options: allowed answers, if there are others besides the classes; default: those in the tables.
        settings: settings of the method's class, which override all defaults.

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
    if not isinstance(method, str):
        raise BadSettings(
            f"method: got {type(method).__name__}; expected a name, such as 'vb-ibcc', with settings beside it. A "
            "method itself has fit: method.fit(hitl.Evidence.from_tables(labels))"
        )
    table = table_of(labels, "labels")
    models = {} if probabilities is None else _models(probabilities)
    known = None if truth is None else table_of(truth, "truth")
    columns: dict[str, Any] = {"annotator": annotator, "time": time}
    items: Sequence[Name] | None = None
    if annotator not in table.column_names and label not in table.column_names:
        tables = {"labels": table} | {f"probabilities {name!r}": each for name, each in models.items()}
        tables |= {"truth": known}
        tables = {name: each for name, each in tables.items() if each is not None and item in each.column_names}
        table, *others = alike(*((with_names(each, [item], as_typed_names), [item]) for each in tables.values()))
        items = items_of(table, dict(zip([*tables][1:], others, strict=True)), item)
        table, columns = melted(table, item).rename_columns([item, "annotator", label]), {"annotator": "annotator"}
    evidence = Evidence.from_tables(
        table, models, known, item=item, label=label, classes=classes, options=options, items=items, **columns
    )
    return chosen(method, settings, paper).fit(evidence)


def _models(given: Any) -> dict[str, Any]:
    """Return model name -> table. A single table gets the name "model"."""
    several = isinstance(given, Mapping) and all(has_columns(table) for table in given.values())
    if not several and not has_columns(given):
        raise BadInput(
            f"probabilities: got {type(given).__name__}; expected a table with the columns item and p_<class>, or a "
            "dict of one such table a model. For an array, make hitl.Evidence(annotations, {'model': array})"
        )
    named = given if several else {"model": given}
    return {str(name): table_of(table, f"probabilities {name!r}") for name, table in named.items()}
