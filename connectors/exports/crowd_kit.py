"""crowd-kit: a table of task, worker and label (in old versions performer)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hitl.connectors.exports.export import Answer, Export, choices_of, text_of


class CrowdKit:
    """Tables of crowd-kit."""

    title = "crowd-kit table"
    items, annotators = ("task", "task"), ("worker", "worker")

    def matches(self, kind: str, names: frozenset[str], first: Sequence[Mapping[str, Any]]) -> bool:
        """Return True for rows with a task, a worker and a label."""
        return {"task", "label"} <= names and not {"worker", "performer"}.isdisjoint(names)

    def answers(self, export: Export) -> Iterator[Answer]:
        """Yield the labels."""
        for record in export.records():
            with export.part(record):
                row = record.fields
                who = text_of(row["worker"] if "worker" in row else row["performer"])
                label = row["label"]
                yield Answer(export.item_of(row, row["task"]), "label", who, choices_of(label), isinstance(label, list))
