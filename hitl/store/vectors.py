"""Features made of items: one row an item in each space, and which space is complete.

A space is one way of making them: what is seen, by which model, learned on what. Numbers of two spaces never stand
beside each other. Rows are saved in batches as they are made. When all are there, the project notes the space as the
one to read and forgets the others, in one transaction: until then the older one is read.
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
from hitl.tables.vectors import packed, unpacked


@dataclass(frozen=True, slots=True)
class FeaturesNote:
    """Which features are complete.

    Attributes:
        space: where they are.
        settings: digest of the settings that they were made by.
        together: items that were left out when all were seen together, and why.
        model: digest of the model that makes numbers of each item by itself, with weights and code; empty: of none.
    """

    space: str
    settings: str
    together: Mapping[str, str] = field(default_factory=dict)
    model: str = ""


class Features(Leased):
    """What was made of items."""

    def vector_digests(self, project: str, space: str) -> dict[str, str]:
        """Item -> digest of what its numbers were made of."""
        query = sa.select(vector.c.item, vector.c.digest)
        return {row.item: row.digest for row in self.database.rows(_in(query, project, space))}

    def vector_width(self, project: str, space: str) -> int | None:
        """How many numbers each item has; None where there is none."""
        row = self.database.scalar(_in(sa.select(vector.c.numbers), project, space).limit(1))
        return None if row is None else unpacked([bytes(row)]).shape[1]

    def vectors(self, project: str, space: str) -> tuple[list[str], Floats]:
        """N items and their numbers (N, D)."""
        table = self.database.table(_in(sa.select(vector.c.item, vector.c.numbers), project, space))
        return table.column("item").to_pylist(), unpacked(table.column("numbers").to_pylist())

    def save_vectors(self, lease: Lease, space: str, rows: Mapping[str, str], x_nd: Floats) -> None:
        """Save the numbers (N, D) of N items, given with the digest of what they were made of."""
        values = [
            {"project": lease.project, "space": space, "item": item, "digest": digest, "numbers": packed(numbers)}
            for (item, digest), numbers in zip(rows.items(), x_nd, strict=True)
        ]
        with self._fenced(lease) as connection:
            self.database.upsert(connection, vector, values)

    def features_note(self, project: str) -> FeaturesNote | None:
        """Which features are complete; None where none are."""
        query = sa.select(projects.c.features).where(projects.c.project == project)
        text = self.database.scalar(query)
        return None if text is None else FeaturesNote(**json.loads(text))

    def note_features(
        self, lease: Lease, note: FeaturesNote | None, spaces: Sequence[str] = (), gone: Sequence[str] = ()
    ) -> None:
        """These features are complete; of others only those in these spaces are kept, without the items `gone`."""
        mine = vector.c.project == lease.project
        text = None if note is None else json.dumps(asdict(note))
        with self._fenced(lease) as connection:
            connection.execute(sa.delete(vector).where(mine, vector.c.space.not_in(list(spaces))))
            if gone:
                connection.execute(sa.delete(vector).where(mine, self.database.among(vector.c.item, gone)))
            connection.execute(sa.update(projects).where(projects.c.project == lease.project).values(features=text))


def _in(query: sa.Select[Any], project: str, space: str) -> sa.Select[Any]:
    return query.where(vector.c.project == project, vector.c.space == space).order_by(vector.c.item)
