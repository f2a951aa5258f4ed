"""Permanent log of every planned question, with its probability and the item's labels at the time.

Plans are deleted after some runs. A question is logged once, by the first run that plans it, and never changed: waiting
questions appear again in later plans. Its key is the item, the annotator and the time it was first asked.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import sqlalchemy as sa

from hitl.annotations import places_of
from hitl.consensus import Consensus
from hitl.plan import DoneItems, Plan
from hitl.store.database import Database
from hitl.store.lease import Leased
from hitl.store.schema import question_log as asks

NAMES = ("item", "annotator", "since", "probability", "check", "audit", "done", "labels")

ANYONE = ""
"""Key part used as the annotator of a question to anyone."""


class QuestionLog(Leased):
    """Read access to the question log."""

    def asks(self, project: str) -> pa.Table:
        """Return every question ever planned, in the order of the plans.

        Columns: cycle (the first that planned it), item, annotator (null: anyone), since (seconds since the epoch),
        probability (null: unknown), check, audit, done (True if the item was done then), labels (JSON text, question ->
        the item's label then).
        """
        return self._asked(asks.c.project == project)

    def audits(self, project: str) -> pa.Table:
        """Return the rows of `asks` that were audit questions."""
        return self._asked(sa.and_(asks.c.project == project, asks.c.audit.is_(sa.true())))

    def _asked(self, wanted: sa.ColumnElement[bool]) -> pa.Table:
        columns = [asks.c.number.label("cycle"), *(asks.c[name] for name in NAMES)]
        table = self.database.table(sa.select(*columns).where(wanted).order_by(asks.c.number, asks.c.position))
        annotator = [name or None for name in table.column("annotator").to_pylist()]
        place = table.column_names.index("annotator")
        return table.set_column(place, "annotator", pa.array(annotator, pa.string()))


def rows_of(project: str, plan: Plan, results: Mapping[str, Consensus]) -> list[dict[str, Any]]:
    """Return the questions of a plan as rows, without the run number."""
    asked = {ask.item for ask in plan.asks}
    done = _done_of(DoneItems.of(plan.done), asked, results)
    labels = {question: _labels(result, asked) for question, result in results.items()}
    return [
        {
            "project": project,
            "item": str(ask.item),
            "annotator": ANYONE if ask.annotator is None else str(ask.annotator),
            "since": float(ask.since),
            "position": position,
            "probability": ask.probability,
            "check": ask.check,
            "audit": ask.audit,
            "done": ask.item in done,
            "labels": json.dumps(
                {question: named[ask.item] for question, named in labels.items() if ask.item in named},
                ensure_ascii=False,
            ),
        }
        for position, ask in enumerate(plan.asks)
    ]


def write(database: Database, connection: sa.Connection, number: int, rows: Iterable[Mapping[str, Any]]) -> None:
    """Add the questions that are not logged yet."""
    new = [{**row, "number": number} for row in rows]
    if new:
        connection.execute(database.insert(asks).on_conflict_do_nothing(), new)


def _done_of(done: DoneItems, items: set[Any], results: Mapping[str, Consensus]) -> set[Any]:
    """Return the given items that are done."""
    if done.rows is None or not results:
        return items.intersection(done.items)
    row = places_of(next(iter(results.values())).items, items)
    among = np.isin(np.fromiter(row.values(), np.int64, len(row)), done.rows)
    return {item for item, is_done in zip(row, among.tolist(), strict=True) if is_done}


def _labels(result: Consensus, items: set[Any]) -> dict[Any, str]:
    """Return the consensus label of each given item."""
    return {item: str(result.classes[int(result.labels[row])]) for item, row in places_of(result.items, items).items()}
