"""Toloka: the TSV file of a pool's responses, a row per task of an assignment."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hitl.connectors.exports.export import Answer, Export, choices_of, text_of

INPUT, OUTPUT, GOLDEN = "INPUT:", "OUTPUT:", "GOLDEN:"
TASK, WORKER, STATUS = "ASSIGNMENT:task_id", "ASSIGNMENT:worker_id", "ASSIGNMENT:status"
ANSWERED = ("APPROVED", "ACCEPTED", "SUBMITTED")


class Toloka:
    """Responses of Toloka."""

    title = "Toloka TSV"
    items, annotators = ("task", TASK), ("Toloker", WORKER)

    def matches(self, kind: str, names: frozenset[str], first: Sequence[Mapping[str, Any]]) -> bool:
        """Return True for rows with a worker and an output."""
        return WORKER in names and any(name.startswith(OUTPUT) for name in names)

    def answers(self, export: Export) -> Iterator[Answer]:
        """Yield the outputs of accepted or submitted assignments, and the known answers of control tasks."""
        for record in export.records():
            row, status = record.fields, str(record.fields.get(STATUS) or "SUBMITTED").upper()
            if status not in ANSWERED:
                export.skipped[f"{status.lower()} assignment"] += 1
                continue
            with export.part(record):
                inputs = {name: str(row[name]) for name in row if name.startswith(INPUT) and row[name] is not None}
                item = export.item_of(row, row.get(TASK) or " | ".join(inputs.values()))
                export.item_field = None if row.get(TASK) else ", ".join(inputs)
                who, time = text_of(row.get(WORKER)), row.get("ASSIGNMENT:submitted")
                for name, cell in row.items():
                    values, several = _values(cell)
                    if name.startswith(OUTPUT):
                        yield Answer(item, name.removeprefix(OUTPUT), who, values, several, time=time)
                    elif name.startswith(GOLDEN) and values:
                        yield Answer(item, name.removeprefix(GOLDEN), None, values, several, known=True)


def _values(cell: Any) -> tuple[tuple[str, ...], bool]:
    """Return the values of a cell, and True if it holds a list, which Toloka writes as JSON."""
    if isinstance(cell, str) and cell.startswith("["):
        return choices_of(json.loads(cell)), True
    return choices_of([] if isinstance(cell, dict) else cell), False
