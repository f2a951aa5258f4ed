"""What classifiers predict that learn from the labels: a table a fold, and which training is the one to read.

A run is one training: what was learned from, by what. Its folds are saved one by one, so that a training that was
stopped goes on. When all are there, the project notes the run, and those before it are forgotten, in one transaction.
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
    """A training that is complete.

    Attributes:
        run: its digest.
        settings: digest of the settings that it was made by.
        labels: labels and known truths that there were.
        items: how many items it learned from.
        informs: whether what it predicts says more than the shares of the classes; if not, it is not used.
        agreement: share of these items of which it predicts the class of the consensus, out of fold, in [0, 1].
        made_by: digest of your code that learned, and of what made the features; None if it was not found.
    """

    run: str
    settings: str
    labels: int
    items: int
    informs: bool
    agreement: float
    made_by: str | None = None


class ModelPredictions(Leased):
    """What was learned from labels."""

    def trainings(self, project: str) -> dict[str, Training]:
        """Question -> its last complete training."""
        text = self.database.scalar(sa.select(projects.c.learned).where(projects.c.project == project))
        return {} if text is None else {name: Training(**one) for name, one in json.loads(text).items()}

    def predicted(self, project: str, question: str, run: str) -> dict[int, pa.Table]:
        """Fold -> what its model predicts: item, p_<class>. All that is saved of the run."""
        query = sa.select(folds.c.fold, folds.c.predicted).where(
            folds.c.project == project, folds.c.question == question, folds.c.run == run
        )
        return {int(row.fold): _unpacked(bytes(row.predicted)) for row in self.database.rows(query)}

    def save_predicted(self, lease: Lease, question: str, run: str, fold: int, predicted: pa.Table) -> None:
        """Keep what the model of one fold predicts."""
        place = {"project": lease.project, "question": question, "run": run, "fold": str(fold)}
        with self._fenced(lease) as connection:
            self.database.upsert(connection, folds, [{**place, "predicted": _packed(predicted)}])

    def note_trainings(self, lease: Lease, complete: Mapping[str, Training]) -> None:
        """These trainings are the ones to read, by question; of each question the folds of others are forgotten."""
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
