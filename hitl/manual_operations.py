"""What a lead sends to the platform by hand: new items, and the known truth of items.

    new_items, known_truth    a table -> one operation
    send                      outbox -> platform -> confirmed, under the project's lease

The operation is in the store's outbox before it is sent: after a crash the next command that writes
sends it again, and a platform that has it already is left as it is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from hitl.cycle import pull, pushed
from hitl.errors import BadSettings, BadTable, HitlError, raise_all
from hitl.export import multiple_choices
from hitl.formatting import listed
from hitl.platform import (
    BOX_DIGITS,
    NO,
    YES,
    BoxTuple,
    Connector,
    Operation,
    Progress,
    Question,
    Receipt,
    boxes_as_label,
    silent,
    spans_as_label,
)
from hitl.project import item_names, lease_seconds
from hitl.tables.columns import require_columns
from hitl.tables.places import Place, place_in, row_number
from hitl.timelines.segment_rows import segment_in

if TYPE_CHECKING:
    from hitl.settings import Settings
    from hitl.store import Store


@dataclass(frozen=True)
class Sent:
    """What the platform confirmed, and what a pull on the way did not understand."""

    receipts: tuple[Receipt, ...]
    problems: tuple[str, ...] = ()


def new_items(table: pa.Table, item: str, where: str) -> Operation:
    """The rows of a table as new items: the column `item` names them, the others are what annotators see.

    `where` is the file of the table, for messages. Raises BadTable where the column is not there, BadSettings where a
    row has no name, or another one says something else of its item.
    """
    require_columns(table, [item], where)
    rows = json.loads(json.dumps(table.to_pylist(), default=str))  # as the outbox keeps them: a time is text
    unnamed = next((number for number, row in enumerate(rows) if not row[item]), None)
    if unnamed is not None:
        raise BadSettings(f"{place_in(table)(unnamed)}: the {item} is empty; every new item needs a name of its own")
    first: dict[Any, int] = {}
    for number, row in enumerate(rows):
        if rows[first.setdefault(row[item], number)] != row:
            raise BadSettings(
                f"{place_in(table)(number)}: {row[item]!r} is there before, with other data; expected one row"
            )
    return Operation("add_items", Path(where).name, {"items": [{"key": row.pop(item), "data": row} for row in rows]})


def known_truth(table: pa.Table, questions: Sequence[Question], question: str | None, where: str) -> Operation:
    """The columns item and label of a table as known truth of one question (None: the only one).

    `question` may name a multiple choice: then a label names the classes that are right, as "art,law" or in a row each
    (empty: none of them), and it says of all others that they are wrong. Of a question about parts of texts, or about
    stretches of time, the rows are known spans, in columns start, end and label; all of them empty: there is none. Of a
    question about boxes on images the rows are known boxes, in columns x, y, width, height (percent of the image) and
    label.

    The items go by the names that their user has for them; `send` puts the platform's in their place.
    Raises BadSettings for a question that is not asked, BadTable for a label that is no class or an item named twice.
    """
    require_columns(table, ["item", "label"], where)
    place_of = place_in(table, lambda row: f"{where}, {row_number(row)}")
    by_name = {one.name: one for one in questions}
    classes_of = {one.name: one.classes for one in questions}
    controls = multiple_choices(classes_of)
    alone = [*controls, *(name for name in classes_of if not any(name in of.values() for of in controls.values()))]
    name = question or alone[0]
    if name not in {*classes_of, *controls} or (question is None and len(alone) > 1):
        raise BadSettings(f"--question: expected one of {', '.join(alone)}")
    if name in by_name and by_name[name].image is not None:
        raise BadSettings(f"{name}: known masks are not read from a table; mark an annotation as ground truth there")
    if name in by_name and by_name[name].boxes is not None:
        return Operation("gold", name, {"questions": {name: _known_boxes(table, by_name[name], where, place_of)}})
    if name in by_name and by_name[name].line is not None:
        return Operation("gold", name, {"questions": {name: _known_segments(table, by_name[name], where, place_of)}})
    if name in by_name and by_name[name].text is not None:
        return Operation("gold", name, {"questions": {name: _known_spans(table, by_name[name], where, place_of)}})
    rows = list(zip(table.column("item").to_pylist(), table.column("label").to_pylist(), strict=True))
    if name in controls:
        return Operation("gold", name, {"questions": _chosen(rows, controls[name], place_of)})
    labels: dict[str, str] = {}
    for row, (item, label) in enumerate(rows):
        if item in labels:
            raise BadTable(f"{place_of(row)}: item {item!r} appears twice; expected one row for each item")
        if label in (None, ""):
            raise BadTable(f"{place_of(row)}: the label is empty; leave out items whose truth is not known")
        if label not in classes_of[name]:
            raise BadTable(f"{place_of(row)}: label {label!r} is not one of {listed(classes_of[name])}")
        labels[item] = label
    return Operation("gold", name, {"questions": {name: labels}})


_SPAN = ["item", "start", "end", "label"]


def _known_spans(table: pa.Table, question: Question, where: str, place_of: Place) -> dict[str, str]:
    """Item -> its spans as a label."""
    require_columns(table, ["start", "end"], where, f"{question.name!r} asks about parts of texts")
    spans: dict[str, list[tuple[int, int, str]]] = {}
    for row, given in enumerate(table.select(_SPAN).to_pylist()):
        said: list[Any] = [None if part == "" else part for part in given.values()]
        item, start, end, label = said
        own = spans.setdefault(item, [])
        if start is None and end is None and label is None:
            continue
        if not (str(start).isdecimal() and str(end).isdecimal() and int(start) < int(end)):
            raise BadTable(f"{place_of(row)}: {start!r} to {end!r} is no part of a text; expected 0 <= start < end")
        if label not in question.classes:
            raise BadTable(f"{place_of(row)}: label {label!r} is not one of {listed(question.classes)}")
        own.append((int(start), int(end), label))
    return {item: spans_as_label(own) for item, own in spans.items()}


def _known_boxes(table: pa.Table, question: Question, where: str, place_of: Place) -> dict[str, str]:
    """Item -> its boxes as a label."""
    sides = ["x", "y", "width", "height"]
    require_columns(table, sides, where, f"{question.name!r} asks about boxes, in percent of the image")
    boxes: dict[str, list[BoxTuple]] = {}
    for row, given in enumerate(table.select(["item", *sides, "label"]).to_pylist()):
        item, *place, label = (None if part == "" else part for part in given.values())
        own = boxes.setdefault(str(item), [])
        if label is None and place == [None] * 4:
            continue
        if label not in question.classes:
            raise BadTable(f"{place_of(row)}: label {label!r} is not one of {listed(question.classes)}")
        box = _within(place)
        if box is None:
            raise BadTable(
                f"{place_of(row)}: x, y, width, height are {', '.join(map(str, place))}; expected a box with an area "
                "from 0 to 100 percent of the image"
            )
        own.append((*box, label))
    return {item: boxes_as_label(0, 0, own) for item, own in boxes.items()}


def _within(place: Sequence[Any]) -> tuple[float, float, float, float] | None:
    """x, y, width and height as numbers; None where they are no box within the image."""
    try:
        x, y, width, height = map(float, place)
    except (TypeError, ValueError):
        return None
    area = round(min(width, height), BOX_DIGITS) > 0  # as far as a label tells
    slack = 10.0**-BOX_DIGITS
    return (x, y, width, height) if area and min(x, y) >= 0 and max(x + width, y + height) <= 100 + slack else None


def _known_segments(table: pa.Table, question: Question, where: str, place_of: Place) -> dict[str, str]:
    """Item -> its stretches of time as a label."""
    require_columns(table, ["start", "end"], where, f"{question.name!r} asks about stretches of time")
    found: dict[str, list[Any]] = {}
    for row, (item, start, end, label) in enumerate(zip(*(table.column(n).to_pylist() for n in _SPAN), strict=True)):
        try:
            segment = segment_in(start, end, label or None)
        except ValueError as error:
            raise BadTable(f"{place_of(row)}: {error}") from None
        if segment is not None and label not in question.classes:
            raise BadTable(f"{place_of(row)}: label {label!r} is not one of {listed(question.classes)}")
        found.setdefault(item, []).extend([] if segment is None else [segment])
    return {item: spans_as_label(own) for item, own in found.items()}


def _chosen(
    rows: Sequence[tuple[str, str | None]], questions: Mapping[str, str], place_of: Place
) -> dict[str, dict[str, str]]:
    """Question -> item -> yes or no, of a multiple choice (class -> question)."""
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
    """Send one operation, after what an earlier command could not send; `where` is its file, for messages.

    Sends nothing and raises BadTable where it is the truth of items that the project does not have, and BadInput where
    two items have one own id. Raises Refused where the platform says no, and Unreachable where it does not answer: then
    the operation waits in the outbox for the next command that writes.
    """
    with store.lease(settings.name, seconds=lease_seconds(connector)) as lease:
        refused: list[HitlError] = []
        earlier = pushed(lease, store, connector, progress, refused, by_hand=True)
        if any((each.kind, each.key) == (operation.kind, operation.key) for each in store.queued(settings.name)):
            raise_all(refused)  # in the outbox this one would take the place of the one that waits
        problems: tuple[str, ...] = ()
        if _missing(operation, _keys(settings, store, operation)):
            problems = pull(lease, store, connector, progress).problems  # they may be new
        operation = on_platform(settings, store, operation, where)
        store.queue(lease, [operation])
        progress("queued", 1, 1)
        sent = pushed(lease, store, connector, progress, refused, by_hand=True)
        raise_all(refused)
        return Sent((*earlier, *sent), problems)


def on_platform(settings: Settings, store: Store, operation: Operation, where: str) -> Operation:
    """The operation with the platform's keys in place of own ids.

    Raises BadTable where it says the truth of items that are not stored, BadInput where two items have one own id.
    """
    keys = _keys(settings, store, operation)
    missing = _missing(operation, keys)
    if missing:
        more = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
        raise BadTable(
            f"{where}: item {missing[0]!r}{more} is not in the project, nothing was sent; expected the names that "
            "`hitl export` writes, or `hitl add` it first"
        )
    if not _truth(operation):
        return operation
    by_key = {name: {keys[item]: label for item, label in labels.items()} for name, labels in _truth(operation).items()}
    return replace(operation, payload={**operation.payload, "questions": by_key})


def _keys(settings: Settings, store: Store, operation: Operation) -> Mapping[str, str]:
    """Name -> platform's key of the stored items; nothing for an operation that names none of them."""
    return {name: key for key, name in item_names(settings, store).items()} if _truth(operation) else {}


def _missing(operation: Operation, keys: Mapping[str, str]) -> list[str]:
    """The items whose truth an operation says and that are not stored."""
    return [item for labels in _truth(operation).values() for item in labels if item not in keys]


def _truth(operation: Operation) -> Mapping[str, Mapping[str, str]]:
    """Question -> item -> label of an operation that says known truth."""
    return operation.payload.get("questions", {}) if operation.kind == "gold" else {}
