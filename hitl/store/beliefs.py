"""The consensus of a cycle in the store: what was learned of annotators, and the beliefs about the items.

Of many items the beliefs are stored by difference. A row is written where its label is another, or a belief moved by
more than `NEGLIGIBLE`, below which two beliefs are shown as the same; other rows stay as they were, so that what is
stored is never further from what was fitted, and has the same labels.

What a plan says of items that are done is their label and confidence, which the consensus has, and why: that alone is
stored beside it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import sqlalchemy as sa

from hitl.consensus import TIE, Consensus
from hitl.plan import DoneItems
from hitl.store import wholes
from hitl.store.schema import consensus
from hitl.tables import row_differences
from hitl.tables.coded import Coded, Numbers
from hitl.tables.encoding import CheckedNames
from hitl.tables.label_columns import CLOSE, MILLION
from hitl.tables.row_differences import Columns, RowsByDifference

NEGLIGIBLE = CLOSE / MILLION
"""By how much a belief may differ from the one that is stored."""

SURE = 0.51
"""A class of more probability is the label, before a step that is negligible and after it: no other comes near."""

PREFIX = "beliefs "
"""What the names of beliefs begin with; the place of the question follows."""


@dataclass(frozen=True)
class StoredForm:
    """Results as they are to be stored: a row of each question, and beliefs by difference."""

    rows: list[dict[str, Any]]
    beliefs: dict[str, RowsByDifference]
    items: dict[str, Callable[[], pa.Array]]


def form_of(connection: sa.Connection, project: str, results: Mapping[str, Consensus]) -> StoredForm:
    """The form of these results, beside what is stored."""
    large = {_name(place): result for place, result in enumerate(results.values()) if _is_large(result)}
    stored = wholes.rows_of(connection, project, large) if large else {}
    beliefs: dict[str, RowsByDifference] = {}
    items: dict[str, Callable[[], pa.Array]] = {}
    for name, result in large.items():
        assert isinstance(result.items, CheckedNames)
        digest = result.items.digest
        items[digest] = partial(getattr, result.items, "column")
        beliefs[name] = _followed(stored.get(name), digest, result)
    rows = [
        {"project": project, "position": place, "question": question, "packed": _packed(result, _name(place) in large)}
        for place, (question, result) in enumerate(results.items())
    ]
    return StoredForm(rows, beliefs, items)


def write(database: Any, connection: sa.Connection, project: str, number: int, form: StoredForm) -> None:
    """Store the results of the cycle with this number, in place of those before."""
    connection.execute(sa.delete(consensus).where(consensus.c.project == project))
    if form.rows:
        connection.execute(sa.insert(consensus), [row | {"number": number} for row in form.rows])
    gone = {name for name in wholes.names_in(connection, project) if name.startswith(PREFIX)} - form.beliefs.keys()
    wholes.forget(connection, project, gone)
    wholes.write(database, connection, project, form.beliefs, form.items)


def read(connection: sa.Connection, project: str, number: int) -> dict[str, Consensus]:
    """The results of this cycle."""
    query = sa.select(consensus.c.position, consensus.c.question, consensus.c.packed)
    mine = sa.and_(consensus.c.project == project, consensus.c.number == number)
    rows = connection.execute(query.where(mine).order_by(consensus.c.position)).all()
    beliefs = wholes.rows_of(connection, project, [_name(row.position) for row in rows])
    names: dict[str, CheckedNames] = {}
    found = {}
    for place, question, packed in rows:
        result, held = Consensus.from_bytes(bytes(packed), f"consensus of {question!r}"), beliefs.get(_name(place))
        if held is not None:
            if held.items not in names:
                names[held.items] = CheckedNames.trusted(wholes.items_of(connection, project, held.items))
            result = replace(result, items=names[held.items], probabilities=np.stack(held.columns, axis=1))
        found[question] = result
    return found


def _followed(before: RowsByDifference | None, items: str, result: Consensus) -> RowsByDifference:
    """The beliefs as they are to be stored after these."""
    columns = list(result.probabilities.T)
    if before is None or before.items != items or len(before.base) != len(columns):
        return RowsByDifference.whole(items, columns)
    return before.follow(columns, before.differing([*columns, result.labels, result.confidence], _have_moved))


def _have_moved(before: Columns, now: Columns) -> npt.NDArray[np.bool_]:
    """Where the beliefs of before are others than those of now, or have another label; labels and confidence follow."""
    *columns, labels, confidence = now
    moved = np.zeros(len(labels), bool)
    for own, column in zip(before, columns, strict=True):
        moved |= np.abs(own - column) > NEGLIGIBLE
    near = np.flatnonzero(~moved & (confidence < SURE))
    moved[near] = _labels(tuple(own[near] for own in before)) != labels[near]
    return moved


def _labels(columns: Columns) -> npt.NDArray[np.int32]:
    """As `Consensus.labels`."""
    best = reduce(np.maximum, columns) - TIE
    labels = np.empty(len(best), np.int32)
    for code, column in reversed([*enumerate(columns)]):
        labels[column >= best] = code
    return labels


def _is_large(result: Consensus) -> bool:
    return isinstance(result.items, CheckedNames) and len(result.items) >= row_differences.LEAST


def _packed(result: Consensus, by_difference: bool) -> bytes:
    """What is stored of a consensus beside beliefs that are stored by difference, or all of it."""
    if by_difference:
        result = replace(result, items=(), probabilities=np.empty((0, len(result.classes))))
    return result.to_bytes()


def _name(place: int) -> str:
    return f"{PREFIX}{place}"


# -- what is done ------------------------------------------------------------------------------------------


def reasons_of(done: DoneItems, results: Mapping[str, Consensus]) -> bytes | None:
    """Why each of the items is done, packed, where the consensus of the only question says all else; else None."""
    only = next(iter(results.values()), None)
    if only is None or len(results) > 1 or not _is_large(only) or done.rows is None:
        return None
    if not isinstance(done.labels, Coded) or not isinstance(done.why, Coded) or len(done.why.values) > 100:
        return None
    labels, sure = only.labels[done.rows], only.confidence[done.rows]
    if [*done.labels.values] != [(name,) for name in only.classes] or not np.array_equal(done.labels.codes, labels):
        return None
    if not np.array_equal(np.asarray(done.confidence, np.float64), sure):
        return None
    why = np.full(len(only.items), -1, np.int8)
    why[done.rows] = done.why.codes
    table = pa.table({"why": pa.array(why)}, metadata={"reasons": json.dumps([*done.why.values])})
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd", use_threads=False)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def done_by(table: pa.Table, results: Mapping[str, Consensus]) -> DoneItems | None:
    """What is done, from what `reasons_of` packed; None where it is another table."""
    reasons = (table.schema.metadata or {}).get(b"reasons")
    if reasons is None:
        return None
    (result,) = results.values()
    why = table.column("why").to_numpy()
    rows = np.flatnonzero(why >= 0)
    labels = Coded([(name,) for name in result.classes], result.labels[rows])
    confidence = Numbers(result.confidence[rows])
    return DoneItems(Coded(result.items, rows), labels, confidence, Coded(json.loads(reasons), why[rows]), rows)
