"""Send data that a user supplies: new items, and ground truth.

    new_items, known_truth    a table -> one operation
    send                      outbox -> platform -> confirmed, under the project's lease

The operation is written to the store's outbox before it is sent. After a crash, the next run or command that pushes
sends it again, which changes nothing if the platform already has it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from hitl.cycle import pull
from hitl.errors import BadSettings, BadTable, HitlError, raise_all
from hitl.formatting import listed
from hitl.kinds.kind import kind_of, multiple_choices
from hitl.operations import push_collecting_errors
from hitl.platform import NO, YES, Connector, Operation, Progress, Question, Receipt, silent
from hitl.project import item_names, lease_seconds
from hitl.settings import Settings
from hitl.store import Store
from hitl.tables.columns import Place, require_columns, row_number
from hitl.tables.read import place_in


@dataclass(frozen=True)
class Sent:
    """Receipts of the platform, and problems of the pull that looked for unknown items, if there was one."""

    receipts: tuple[Receipt, ...]
    problems: tuple[str, ...] = ()


def new_items(table: pa.Table, item: str, where: str) -> Operation:
    """Turn the rows of a table into new items. The column `item` names them; annotators see the other columns.

    `where` is the table's file, for messages. Raises BadTable if the column is missing; BadSettings if an item has no
    name, or if two different rows have the same name.
    """
    require_columns(table, [item], where)
    rows = json.loads(json.dumps(table.to_pylist(), default=str))  # as stored in the outbox, with times as text
    unnamed = next((number for number, row in enumerate(rows) if not row[item]), None)
    if unnamed is not None:
        raise BadSettings(f"{place_in(table)(unnamed)}: the {item} is empty; every new item needs a unique name")
    first: dict[Any, int] = {}
    for number, row in enumerate(rows):
        if rows[first.setdefault(row[item], number)] != row:
            raise BadSettings(
                f"{place_in(table)(number)}: {row[item]!r} appears twice with different data; expected one row per item"
            )
    return Operation("add_items", Path(where).name, {"items": [{"key": row.pop(item), "data": row} for row in rows]})


def known_truth(table: pa.Table, questions: Sequence[Question], question: str | None, where: str) -> Operation:
    """Turn the columns item and label of a table into ground truth for one question (None: the only one).

    If `question` is a multiple choice, an item's labels list its right classes, as "art,law" or in several rows (empty:
    no class), and all other classes are wrong. For other questions, `Kind.truth` reads the labels.

    The table has the user's own ids; `send` replaces them by the platform's. Raises BadSettings if the question does
    not exist; BadTable if a label is not a class, or if an item of a question other than a multiple choice has two.
    """
    require_columns(table, ["item", "label"], where)
    place_of = place_in(table, lambda row: f"{where}, {row_number(row)}")
    by_name = {one.name: one for one in questions}
    classes_of = {one.name: one.classes for one in questions}
    controls = multiple_choices(classes_of)
    alone = [*controls, *(name for name in classes_of if not any(name in of.values() for of in controls.values()))]
    name = question or alone[0]
    if name not in {*classes_of, *controls} or (question is None and len(alone) > 1):
        said = "the project has several questions: add --question" if question is None else f"--question {question!r}"
        raise BadSettings(f"{said}; expected one of {', '.join(alone)}")
    if name in controls:
        rows = list(zip(table.column("item").to_pylist(), table.column("label").to_pylist(), strict=True))
        return Operation("gold", name, {"questions": _chosen(rows, controls[name], place_of)})
    labels = kind_of(by_name[name]).truth(table, by_name[name], where, place_of)
    return Operation("gold", name, {"questions": {name: labels}})


def _chosen(
    rows: Sequence[tuple[str, str | None]], questions: Mapping[str, str], place_of: Place
) -> dict[str, dict[str, str]]:
    """Return question -> item -> yes or no for a multiple choice. `questions`: class -> question."""
    right: dict[str, set[str]] = {}
    for row, (item, label) in enumerate(rows):
        whole = label is None or label in questions  # a class may have a comma in its name
        named = {label or ""} if whole else {name.strip() for name in str(label).split(",")}
        for name in sorted(named - {""} - set(questions)):
            raise BadTable(
                f"{place_of(row)}: label {name!r} is not one of {listed(list(questions))}; several are separated by "
                "commas"
            )
        right.setdefault(item, set()).update(named)
    return {
        question: {item: YES if name in chosen else NO for item, chosen in right.items()}
        for name, question in questions.items()
    }


def send(
    settings: Settings,
    store: Store,
    connector: Connector,
    operation: Operation,
    where: str,
    progress: Progress = silent,
) -> Sent:
    """Send one operation, after operations left over from earlier commands. `where` is its file, for messages.

    Raises BadTable if the operation is about items that the project does not have, or BadInput if two items have the
    same own id; in both cases it is not sent. Raises Refused if the platform rejects it. Raises Unreachable if the
    platform does not answer; the operation then stays in the outbox until the next push.
    """
    with store.lease(settings.name, seconds=lease_seconds(connector)) as lease:
        refused: list[HitlError] = []
        earlier = push_collecting_errors(lease, store, connector, progress, refused, by_hand=True)
        if any((each.kind, each.key) == (operation.kind, operation.key) for each in store.queued(settings.name)):
            raise_all(refused)  # otherwise this operation would replace the waiting one in the outbox
        problems: tuple[str, ...] = ()
        try:
            operation = on_platform(settings, store, operation, where)
        except BadTable:  # the unknown items may be new on the platform
            problems = pull(lease, store, connector, progress).problems
            operation = on_platform(settings, store, operation, where)
        store.queue(lease, [operation])
        progress("queued", 1, 1)
        sent = push_collecting_errors(lease, store, connector, progress, refused, by_hand=True)
        raise_all(refused)
        return Sent((*earlier, *sent), problems)


def on_platform(settings: Settings, store: Store, operation: Operation, where: str) -> Operation:
    """Replace the user's own ids in ground truth by the platform's keys. Return other operations unchanged.

    Raises BadTable if an item is not stored or has no such part, BadInput if two stored items have the same own id.
    """
    if operation.kind != "gold":
        return operation
    truth = operation.payload["questions"]
    keys = {name: key for key, name in item_names(settings, store).items()}
    missing = [item for labels in truth.values() for item in labels if item not in keys]
    if missing:
        more = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
        raise BadTable(
            f"{where}: item {missing[0]!r}{more} is not in the project, nothing was sent; expected the names that "
            "`hitl export` writes, or `hitl add` it first"
        )
    for question in (one for one in store.questions(settings.name) or () if kind_of(one).of_parts):
        for item, label in truth.get(question.name, {}).items():
            data = json.loads(store.data_of(settings.name, keys[item]) or "{}")
            if (why := kind_of(question).unusable([label], data.get(question.field))[0]) is not None:
                raise BadTable(f"{where}: item {item!r}: {why}; nothing was sent")
    by_key = {name: {keys[item]: label for item, label in labels.items()} for name, labels in truth.items()}
    return replace(operation, payload={**operation.payload, "questions": by_key})
