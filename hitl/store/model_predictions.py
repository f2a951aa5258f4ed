"""Predictions of classifiers trained on the labels: one table per fold, and the training to read.

A run is one training, identified by its inputs and its code. Its folds are saved one by one, so that an interrupted
training can resume. When all are saved, the project records the run and earlier runs are deleted, in one transaction.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

import pyarrow as pa
import sqlalchemy as sa

from hitl.store.lease import Lease, Leased
from hitl.store.schema import model_prediction as folds
from hitl.store.schema import project as projects


@dataclass(frozen=True, slots=True)
class Training:
    """A complete training.

    Attributes:
        run: its digest.
        settings: digest of its settings.
        labels: number of labels and ground-truth answers at the time.
        items: number of items it was trained on.
        informs: True if it predicts better than the class shares; otherwise it is not used.
        agreement: share of these items whose consensus class it predicts out of fold, in [0, 1].
        made_by: digest of the user's training code and of the model that made the features; None if not found.
    """

    run: str
    settings: str
    labels: int
    items: int
    informs: bool
    agreement: float
    made_by: str | None = None


class ModelPredictions(Leased):
    """Predictions of models trained on the labels."""

    def trainings(self, project: str) -> dict[str, Training]:
        """Return the last complete training per question."""
        text = self.database.scalar(sa.select(projects.c.learned).where(projects.c.project == project))
        return {} if text is None else {name: Training(**one) for name, one in json.loads(text).items()}

    def predicted(self, project: str, question: str, run: str) -> dict[int, pa.Table]:
        """Return all saved predictions of the run, per fold: item, p_<class>."""
        query = sa.select(folds.c.fold, folds.c.predicted).where(
            folds.c.project == project, folds.c.question == question, folds.c.run == run
        )
        return {int(row.fold): _unpacked(bytes(row.predicted)) for row in self.database.rows(query)}

    def save_predicted(self, lease: Lease, question: str, run: str, fold: int, predicted: pa.Table) -> None:
        """Save the predictions of one fold's model."""
        place = {"project": lease.project, "question": question, "run": run, "fold": str(fold)}
        with self._fenced(lease) as connection:
            self.database.upsert(connection, folds, [{**place, "predicted": _packed(predicted)}])

    def note_trainings(self, lease: Lease, complete: Mapping[str, Training]) -> None:
        """Record these trainings, by question, as the ones to read, and delete all other folds."""
        text = json.dumps({name: asdict(one) for name, one in complete.items()})
        mine = folds.c.project == lease.project
        with self._fenced(lease) as connection:
            for question, one in complete.items():
                others = (folds.c.question == question, folds.c.run != one.run)
                connection.execute(sa.delete(folds).where(mine, *others))
            connection.execute(sa.delete(folds).where(mine, folds.c.question.not_in(list(complete))))
            connection.execute(sa.update(projects).where(projects.c.project == lease.project).values(learned=text))


def _packed(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def _unpacked(content: bytes) -> pa.Table:
    return pa.ipc.open_stream(content).read_all()
