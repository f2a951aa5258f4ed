"""A connector: a folder with labels.jsonl, one {"item", "annotator", "label"} a line; what is pushed goes beside it.

labels.jsonl    read; items.jsonl: {"item"}, items that nobody has labeled yet
pushed.json     written: "kind key" -> payload of every operation
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal, get_args

from hitl.errors import BadTable, Refused
from hitl.platform import (
    AnnotationRow,
    AnnotatorRow,
    Check,
    Connector,
    Cursor,
    ItemRow,
    Operation,
    OperationKind,
    Page,
    Question,
    Receipt,
)
from hitl.settings import SourceSettings
from hitl.tables.encode import natural_order

KINDS = get_args(OperationKind)
EPOCH = "1970-01-01T00:00:00Z"


class JsonLinesSettings(SourceSettings):
    """The keys of `[source]`: the folder."""

    kind: Literal["json-lines"] = "json-lines"
    path: str


class JsonLines(Connector):
    """A folder of JSON lines as source and sink."""

    Settings = JsonLinesSettings

    def __init__(self, folder: Path) -> None:
        self._labels, self._items, self._pushed = (
            folder / name for name in ("labels.jsonl", "items.jsonl", "pushed.json")
        )

    @classmethod
    def open(cls, settings: JsonLinesSettings, folder: Path) -> JsonLines:
        """The folder that `[source]` of a hitl.toml in `folder` names."""
        return cls(folder / settings.path)

    def questions(self) -> tuple[Question, ...]:
        """One: the label, of one of the classes seen."""
        classes = natural_order(list({row["label"] for row in self._rows(self._labels)}))
        return (Question("label", classes, classes),)

    def pull(self, cursor: Cursor | None) -> Iterator[Page]:
        """Everything on one page, unless nothing has changed."""
        labels, items, pushed = self._rows(self._labels), self._rows(self._items), self._read()
        digest = hashlib.sha256(json.dumps([labels, items, pushed]).encode()).hexdigest()
        if cursor and cursor.get("digest") == digest:
            return
        batches = [batch["items"] for place, batch in pushed.items() if place.startswith("add_items ")]
        added = [item["key"] for batch in batches for item in batch]
        keys = list(dict.fromkeys([*(row["item"] for row in (*labels, *items)), *added]))
        known = [batch["questions"]["label"] for place, batch in pushed.items() if place.startswith("gold ")]
        rows = [_answer(row["item"], row["annotator"], row["label"]) for row in labels]
        rows += [_answer(key, None, label) for batch in known for key, label in batch.items()]
        names = dict.fromkeys(row["annotator"] for row in labels)
        yield Page(
            {"digest": digest},
            items=tuple(ItemRow(key, {"item": key}, EPOCH) for key in keys),
            annotations=tuple(rows),
            annotators=tuple(AnnotatorRow(name, name) for name in names),
            live=frozenset(keys),
            total=len(keys),
        )

    def push(self, operations: Iterable[Operation]) -> Iterator[Receipt]:
        """Write each payload; nothing changes where it is there already. Raises Refused for an unknown operation."""
        for operation in operations:
            if operation.kind not in KINDS:
                raise Refused(f"operation {operation.kind!r} is unknown; expected one of {', '.join(KINDS)}")
            pushed, place = self._read(), f"{operation.kind} {operation.key}"
            payload = json.loads(json.dumps(operation.payload))
            changed = int(pushed.get(place) != payload)
            if changed:
                self._pushed.write_text(json.dumps(pushed | {place: payload}, indent=1), encoding="utf-8")
            yield Receipt(operation, changed)

    def check(self) -> list[Check]:
        """Whether the labels are there."""
        return [Check("labels", self._labels.is_file(), str(self._labels), fix="write the labels there, one a line")]

    def _read(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._pushed.read_text("utf-8")) if self._pushed.is_file() else {}
        return found

    def _rows(self, path: Path) -> list[dict[str, str]]:
        lines = path.read_text("utf-8").splitlines() if path.is_file() else []
        try:
            return [json.loads(line) for line in lines if line.strip()]
        except json.JSONDecodeError as error:
            raise BadTable(f"{path}: {error}; expected one JSON object a line") from None


def _answer(item: str, annotator: str | None, label: str) -> AnnotationRow:
    """A label, or a known truth where nobody gave it."""
    kind: Literal["answer", "gold"] = "gold" if annotator is None else "answer"
    return AnnotationRow(f"{item}/{annotator or kind}", item, "label", annotator, label, kind, EPOCH, EPOCH)
