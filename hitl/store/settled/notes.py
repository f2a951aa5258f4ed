"""Which items may have changed since what is settled of their answers was written (`settling`)."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from typing import Any

import numpy as np
import sqlalchemy as sa

from hitl.store.schema import settled

WHOLE, CHANGES, NOTED = "whole", "changes", "noted "

MOST = 8
"""What is settled is forgotten when more than one item in so many may have changed."""


def note(connection: sa.Connection, project: str, positions: Iterable[int]) -> None:
    """Note that the items at these positions may have changed."""
    columns = (settled.c.question, settled.c.part, settled.c.size, settled.c.upto)
    of: dict[str, list[Any]] = {}
    for row in connection.execute(sa.select(*columns).where(settled.c.project == project)).all():
        of.setdefault(row.question, []).append(row)
    places = np.sort(np.fromiter(positions, np.int64))
    for question, rows in of.items():
        old = places[places <= max(row.upto for row in rows)]  # what is newer is not settled yet
        whole = sum(row.size for row in rows if row.part == WHOLE)
        noted = len(old) + sum(row.size for row in rows if row.part.startswith(NOTED))
        if noted * MOST > whole:
            forget(connection, project, question)
        elif len(old):
            written = {"project": project, "question": question, "part": NOTED + secrets.token_hex(8)}
            values = written | {"size": len(old), "upto": -1, "changed": old.tobytes()}
            connection.execute(sa.insert(settled).values(values))


def forget(connection: sa.Connection, project: str, question: str) -> None:
    """Drop what is settled of a question."""
    mine = sa.and_(settled.c.project == project, settled.c.question == question)
    connection.execute(sa.delete(settled).where(mine))


def is_there(connection: sa.Connection, project: str) -> bool:
    """Whether anything of the project is settled."""
    query = sa.select(settled.c.part).where(settled.c.project == project).limit(1)
    return connection.execute(query).first() is not None
