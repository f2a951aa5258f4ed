"""Appen (CrowdFlower, Figure Eight): the full report, a row per judgment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hitl.connectors.exports.export import Answer, Export, answer_columns, choices_of, is_true, text_of

GOLD = "_gold"


class Appen:
    """Full reports of Appen."""

    title = "Appen full report"
    items, annotators = ("unit", "_unit_id"), ("contributor", "_worker_id")

    def matches(self, kind: str, names: frozenset[str], first: Sequence[Mapping[str, Any]]) -> bool:
        """Return True for rows of judgments."""
        return {"_unit_id", "_worker_id"} <= names

    def answers(self, export: Export) -> Iterator[Answer]:
        """Yield the judgments that are not tainted, and the known answers of test questions."""
        names = dict.fromkeys(name for record in export.records() for name in record.fields)
        columns = [name for name in names if not name.startswith(("_", "orig_")) and not name.endswith(GOLD)]
        tested = [name for name in columns if f"{name}{GOLD}" in names]
        questions = answer_columns(export, "_unit_id", columns, tested)
        for record in export.records():
            row = record.fields
            with export.part(record):
                item, who = export.item_of(row, row.get("_unit_id")), text_of(row.get("_worker_id"))
                if is_true(row.get("_tainted")):
                    export.skipped["tainted judgment"] += 1
                    continue
                if is_true(row.get("_canary")):
                    export.skipped["hidden judgment"] += 1
                    continue
                for name in questions:
                    time = row.get("_created_at")
                    yield Answer(item, name, who, _choices(row.get(name)), time=time)
                    right = _choices(row.get(f"{name}{GOLD}"))
                    if len(right) > 1:  # each of them is accepted
                        export.skipped["known answer with several labels|known answers with several labels"] += 1
                    elif right:
                        yield Answer(item, name, None, right, known=True)


def _choices(cell: Any) -> tuple[str, ...]:
    """Return the lines of a cell: Appen writes one per ticked box."""
    return choices_of(cell.splitlines() if isinstance(cell, str) else cell)
