"""Store features of items, and predictions of classifiers trained on the labels.

Features have one row per item and space. A space identifies how features were computed: from which input, by which
model, trained on which data. Features of different spaces are never combined. Predictions have one table per question,
run and fold. A run is one training, identified by its inputs and its code.

Both are saved in batches, so that an interruption loses little. Once a set is complete, one transaction makes it the
current one and deletes the older ones. Until then, the older set is read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import pyarrow as pa
import sqlalchemy as sa

from hitl.annotations import Floats
from hitl.store.lease import Lease, Leased
from hitl.store.schema import model_prediction as folds
from hitl.store.schema import project as projects
from hitl.store.schema import vector
from hitl.tables.columns import as_stream, tables_in
from hitl.tables.matrices import packed, unpacked


@dataclass(frozen=True, slots=True)
class FeaturesNote:
    """Record of a complete set of features.

    Attributes:
        space: space of the features.
        settings: digest of the settings that they were computed with.
        together: item -> why it was left out when all items were embedded together.
        model: digest of the model that embeds items one by one, with weights and code; empty if there is none.
    """

    space: str
    settings: str
    together: Mapping[str, str] = field(default_factory=dict)
    model: str = ""


@dataclass(frozen=True, slots=True)
class Training:
    """A complete training.

    Attributes:
        run: digest that identifies the training.
        settings: digest of its settings.
        labels: number of labels and ground-truth answers at the time.
        items: number of items it was trained on.
        informs: True if it predicts better than the class shares; otherwise it is not used.
        agreement: fraction of those items whose consensus class is predicted out of fold, in [0, 1].
        made_by: digest of the user's training code and of the model that made the features; None if unknown.
    """

    run: str
    settings: str
    labels: int
    items: int
    informs: bool
    agreement: float
    made_by: str | None = None


class Learned(Leased):
    """Features of items, and predictions of models trained on the labels."""

    def vector_digests(self, project: str, space: str) -> dict[str, str]:
        """Return the digest of each item's feature input."""
        return dict(map(tuple, self.database.rows(_in(sa.select(vector.c.item, vector.c.digest), project, space))))

    def vector_width(self, project: str, space: str) -> int | None:
        """Return the number of features per item, or None if there are none."""
        row = self.database.scalar(_in(sa.select(vector.c.numbers), project, space).limit(1))
        return None if row is None else unpacked([bytes(row)]).shape[1]

    def vectors(self, project: str, space: str) -> tuple[list[str], Floats]:
        """Return N items and their features (N, D)."""
        table = self.database.table(_in(sa.select(vector.c.item, vector.c.numbers), project, space))
        return table.column("item").to_pylist(), unpacked(table.column("numbers").to_pylist())

    def save_vectors(self, lease: Lease, space: str, rows: Mapping[str, str], x_nd: Floats) -> None:
        """Save the features (N, D) of N items; `rows` maps each item to the digest of its input."""
        values = [
            {"project": lease.project, "space": space, "item": item, "digest": digest, "numbers": packed(numbers)}
            for (item, digest), numbers in zip(rows.items(), x_nd, strict=True)
        ]
        with self._fenced(lease) as connection:
            self.database.upsert(connection, vector, values)

    def features_note(self, project: str) -> FeaturesNote | None:
        """Return the record of the complete features, or None."""
        fields = self._noted("features", project)
        return None if fields is None else FeaturesNote(**fields)

    def note_features(
        self, lease: Lease, note: FeaturesNote | None, spaces: Sequence[str] = (), gone: Sequence[str] = ()
    ) -> None:
        """Record which features are complete (None: no features).

        Delete the features of all spaces that are not in `spaces`, and of the items in `gone`.
        """
        mine = vector.c.project == lease.project
        text = None if note is None else json.dumps(asdict(note))
        with self._fenced(lease) as connection:
            connection.execute(sa.delete(vector).where(mine, vector.c.space.not_in(spaces)))
            if gone:
                connection.execute(sa.delete(vector).where(mine, self.database.among(vector.c.item, gone)))
            connection.execute(sa.update(projects).where(projects.c.project == lease.project).values(features=text))

    def trainings(self, project: str) -> dict[str, Training]:
        """Return the last complete training per question."""
        return {name: Training(**fields) for name, fields in (self._noted("learned", project) or {}).items()}

    def predicted(self, project: str, question: str, run: str) -> dict[int, pa.Table]:
        """Return fold -> saved predictions of this run: item, p_<class>, ..."""
        of_run = (folds.c.project == project, folds.c.question == question, folds.c.run == run)
        rows = self.database.rows(sa.select(folds.c.fold, folds.c.predicted).where(*of_run))
        return {int(fold): tables_in(bytes(content))[0] for fold, content in rows}

    def save_predicted(self, lease: Lease, question: str, run: str, fold: int, predicted: pa.Table) -> None:
        """Save the predictions of one fold's model."""
        place = {"project": lease.project, "question": question, "run": run, "fold": str(fold)}
        with self._fenced(lease) as connection:
            self.database.upsert(connection, folds, [{**place, "predicted": as_stream(predicted)}])

    def note_trainings(self, lease: Lease, complete: Mapping[str, Training]) -> None:
        """Record these trainings (question -> training) as complete, and delete the predictions of all others."""
        text = json.dumps({name: asdict(one) for name, one in complete.items()})
        current = sa.tuple_(folds.c.question, folds.c.run).in_([(name, one.run) for name, one in complete.items()])
        with self._fenced(lease) as connection:
            connection.execute(sa.delete(folds).where(folds.c.project == lease.project, ~current))
            connection.execute(sa.update(projects).where(projects.c.project == lease.project).values(learned=text))


def _in(query: sa.Select[Any], project: str, space: str) -> sa.Select[Any]:
    return query.where(vector.c.project == project, vector.c.space == space).order_by(vector.c.item)
