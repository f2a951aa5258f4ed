"""Build the tables that `hitl export` writes: labels with their sources, items, and questions.

    item_table      one row per item, with the data to label
    label_tables    one row per item; one row per part if annotators mark parts of items
    asked_table     one row per planned question

Columns of the labels of whole items:

    item                            the user's own id, or the platform's id if there is none
    task                            the platform's id, if any item has an id of the user
    label, confidence, p_<class>    from the consensus; label and confidence are empty while nothing supports a label
    labels, done, why, source       number of labels; whether and why the question is done; source of the label
    item_done                       with several questions: whether all of them are done
    ...                             the fields of the item's data, which annotators see
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hitl.kinds.kind import Judged, Kind, by_control, item_columns, kind_of
from hitl.models.combiner import has_basis
from hitl.operations import Judgement
from hitl.plan import DoneItems
from hitl.tables.encode import writable
from hitl.tables.times import iso_8601

KNOWN, ANNOTATORS, MODEL, BOTH, NOBODY = "ground truth", "annotators", "model", "annotators and model", "nobody"
"""Values of the column source."""


def label_tables(judgement: Judgement, items: pa.Table, names: Mapping[str, str]) -> dict[str, pa.Table]:
    """Return question -> table of its labels, for items in the consensus that still exist.

    The questions of a multiple choice form one table, named after the control (`Choices.table`).

    `judgement` names items by the platform's ids, and its evidence may be newer than its results. `items` comes from
    `Store.items`, `names` from `hitl.project.item_names`.
    """
    tables = {}
    for name, group in by_control(judgement.evidence, judgement.results).items():
        kind = kind_of(group[0].consensus)
        done = judgement.done.get(name, DoneItems.of(judgement.plan.done))
        whole = set(map(str, DoneItems.of(judgement.plan.done).items)) if judgement.done else None
        tables[name] = kind.table(group, names) if kind.of_parts else _table(kind, group, done, whole, items, names)
    return tables


def asked_table(asks: pa.Table, names: Mapping[str, str]) -> pa.Table:
    """Return `Store.asks` with the user's own ids, `since` as a column time (ISO 8601, UTC), and `labels` as consensus.

    In a table of labels, the column `labels` is a number.
    """
    columns = item_columns(asks.column("item").to_pylist(), names)
    columns |= {name: asks.column(name) for name in asks.column_names if name not in ("item", "since", "labels")}
    columns["consensus"] = asks.column("labels")
    columns["time"] = iso_8601(asks.column("since").to_numpy())
    return pa.table(columns)


def item_table(items: pa.Table, names: Mapping[str, str]) -> pa.Table:
    """Return one row per item of `Store.items`: the user's own id, and the fields of the item's data."""
    keys, data = (items.column(name).to_pylist() for name in _KEPT)
    columns: dict[str, Any] = {"item": pa.array([names.get(key, key) for key in keys], pa.string())}
    for field, values in _fields([json.loads(text) for text in data]).items():
        columns[_free(field, columns)] = values
    return pa.table(columns)


def _table(
    kind: Kind,
    group: Sequence[Judged],
    done: DoneItems,
    whole: Collection[str] | None,
    items: pa.Table,
    names: Mapping[str, str],
) -> pa.Table:
    """Build one row per stored item: its label, the source of the label, and the data shown to annotators.

    `done`: items for which this question is done; `whole`: items done in all questions, or None if there is only one.
    """
    stored = {key: json.loads(data) for key, data in zip(*(items.column(n).to_pylist() for n in _KEPT), strict=True)}
    judged = list(map(str, group[0].consensus.items))
    keys = [key for key in judged if key in stored]
    table = kind.table(group, names).filter(pa.array([key in stored for key in judged], pa.bool_()))
    evidence = [one.evidence for one in group]
    place = {str(item): n for n, item in enumerate(evidence[0].annotations.items)}
    rows = np.array([place[key] for key in keys], dtype=np.intp)
    # An answer to a multiple choice is stored as a label for each of its questions, but counts once.
    labels_n = np.max([known.annotations.labels_per_item for known in evidence], axis=0)[rows]
    predicted_n = np.any([known.predicted for known in evidence], axis=0)[rows]
    known_n = np.all([known.known for known in evidence], axis=0)[rows]
    cases = [known_n, (labels_n > 0) & predicted_n, labels_n > 0, predicted_n]
    source_n = np.select(cases, [KNOWN, BOTH, ANNOTATORS, MODEL], default=NOBODY)
    why = dict(zip(map(str, done.items), done.why, strict=True))
    based = pa.array(np.any([has_basis(one.evidence, one.consensus) for one in group], axis=0)[rows])
    columns = {name: table.column(name) for name in table.column_names}
    for name in {"label", "confidence"} & columns.keys():
        columns[name] = pc.if_else(based, columns[name], None)
    columns |= {
        "labels": pa.array(labels_n),
        "done": pa.array([key in why for key in keys], pa.bool_()),
        "why": pa.array([why.get(key) for key in keys], pa.string()),
        **({} if whole is None else {"item_done": pa.array([key in whole for key in keys], pa.bool_())}),
        "source": pa.array(source_n.astype(object), pa.string()),
    }
    for field, values in _fields([stored[key] for key in keys]).items():
        columns[_free(field, columns)] = values
    return pa.table(columns)


_KEPT = ("item", "data")


def _fields(data: Sequence[Mapping[str, Any]]) -> dict[str, pa.Array]:
    """Return the fields of the items' data as columns, null where an item lacks one."""
    fields = dict.fromkeys(field for one in data for field in one)
    return {field: _column([one.get(field) for one in data]) for field in fields}


def _column(values: list[Any]) -> pa.Array:
    """Return a column of these values. Lists, objects and mixed types become text (JSON)."""
    if not any(isinstance(value, list | dict) for value in values):
        try:
            column = pa.array(values)
            return column.cast(pa.string()) if pa.types.is_null(column.type) else column
        except (ValueError, TypeError, OverflowError):  # mixed types, or invalid text
            pass
    return pa.array([_as_text(value) for value in values], pa.string())


def _as_text(value: Any) -> str | None:
    return (
        None if value is None else writable(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
    )


def _free(field: str, columns: Mapping[str, Any]) -> str:
    """Return the field's name, or data_<name> if a column already has that name."""
    field = writable(field)
    while field in columns or field == "task":  # a task is always the platform's id
        field = f"data_{field}"
    return field
