"""Item features: one row per item and space, and which space is complete.

A space is one way of computing features: the input, the model and its training data. Numbers of two spaces are never
combined. Rows are saved in batches. When all are saved, the project switches to the new space and deletes the others,
in one transaction. Until then the older space is read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import sqlalchemy as sa

from hitl.annotations import Floats
from hitl.store.lease import Lease, Leased
from hitl.store.schema import project as projects
from hitl.store.schema import vector
from hitl.tables.matrices import packed, unpacked


@dataclass(frozen=True, slots=True)
class FeaturesNote:
    """Which features are complete.

    Attributes:
        space: the space they are stored in.
        settings: digest of their settings.
        together: items left out when all items were processed together, and why.
        model: digest of the model that embeds items one by one, with weights and code; empty if there is none.
    """

    space: str
    settings: str
    together: Mapping[str, str] = field(default_factory=dict)
    model: str = ""


class Features(Leased):
    """Item features."""

    def vector_digests(self, project: str, space: str) -> dict[str, str]:
        """Return the digest of each item's feature input."""
        query = sa.select(vector.c.item, vector.c.digest)
        return {row.item: row.digest for row in self.database.rows(_in(query, project, space))}

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
        """Return which features are complete, or None."""
        query = sa.select(projects.c.features).where(projects.c.project == project)
        text = self.database.scalar(query)
        return None if text is None else FeaturesNote(**json.loads(text))

    def note_features(
        self, lease: Lease, note: FeaturesNote | None, spaces: Sequence[str] = (), gone: Sequence[str] = ()
    ) -> None:
        """Record that these features are complete. Delete all other spaces except `spaces`, and the items `gone`."""
        mine = vector.c.project == lease.project
        text = None if note is None else json.dumps(asdict(note))
        with self._fenced(lease) as connection:
            connection.execute(sa.delete(vector).where(mine, vector.c.space.not_in(list(spaces))))
            if gone:
                connection.execute(sa.delete(vector).where(mine, self.database.among(vector.c.item, gone)))
            connection.execute(sa.update(projects).where(projects.c.project == lease.project).values(features=text))


def _in(query: sa.Select[Any], project: str, space: str) -> sa.Select[Any]:
    return query.where(vector.c.project == project, vector.c.space == space).order_by(vector.c.item)
