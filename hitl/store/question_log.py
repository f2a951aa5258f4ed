"""Every question that was ever planned, with its probability and the labels that stood then; never forgotten.

Plans are forgotten after some cycles. A question is written once, by the first cycle that plans it, and stays as it was
then: those that wait come again in the next plans. It is named by its item, its annotator and when it was first asked.
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
"""The annotator of a question to anyone, as a part of the key."""


class QuestionLog(Leased):
    """What was asked."""

    def asks(self, project: str) -> pa.Table:
        """Every question ever planned, in the order of the plans.

        Columns: cycle (the first that planned it), item, annotator (null: anyone), since (seconds since the epoch),
        probability (null: not known), check, audit, done (whether the item was done then), labels (JSON text, question
        -> the label that the item had then).
        """
        return self._asked(asks.c.project == project)

    def audits(self, project: str) -> pa.Table:
        """Those of `asks` that were asked for an audit."""
        return self._asked(sa.and_(asks.c.project == project, asks.c.audit.is_(sa.true())))

    def _asked(self, wanted: sa.ColumnElement[bool]) -> pa.Table:
        columns = [asks.c.number.label("cycle"), *(asks.c[name] for name in NAMES)]
        table = self.database.table(sa.select(*columns).where(wanted).order_by(asks.c.number, asks.c.position))
        annotator = [name or None for name in table.column("annotator").to_pylist()]
        place = table.column_names.index("annotator")
        return table.set_column(place, "annotator", pa.array(annotator, pa.string()))


def rows_of(project: str, plan: Plan, results: Mapping[str, Consensus]) -> list[dict[str, Any]]:
    """The questions of a plan, as rows without the number of the cycle."""
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
    """Add the questions that are not there yet."""
    new = [{**row, "number": number} for row in rows]
    if new:
        connection.execute(database.insert(asks).on_conflict_do_nothing(), new)


def _done_of(done: DoneItems, items: set[Any], results: Mapping[str, Consensus]) -> set[Any]:
    """Those of these items that are done."""
    if done.rows is None or not results:
        return items.intersection(done.items)
    row = places_of(next(iter(results.values())).items, items)
    among = np.isin(np.fromiter(row.values(), np.int64, len(row)), done.rows)
    return {item for item, is_done in zip(row, among.tolist(), strict=True) if is_done}


def _labels(result: Consensus, items: set[Any]) -> dict[Any, str]:
    """The consensus label of each of these items."""
    return {item: str(result.classes[int(result.labels[row])]) for item, row in places_of(result.items, items).items()}
