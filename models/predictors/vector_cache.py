"""Numbers of what was embedded before, in a file on disk, by what they were made of: one row a content and embedder.

Each batch is one transaction: a run that was killed goes on where it stopped, and one that is given more items embeds
only those.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hitl.annotations import Floats
from hitl.errors import BadInput
from hitl.models.predictors.features import aligned
from hitl.tables.vectors import packed, unpacked


class VectorCache:
    """The numbers in one file that one embedder (`space`, see `embedders.identity`) has made.

    Raises BadInput where the file is there and is something else.
    """

    def __init__(self, path: Path, space: str) -> None:
        self._path, self._space = path, space
        with self._database() as database:
            database.execute("CREATE TABLE IF NOT EXISTS vector (space, digest, numbers, PRIMARY KEY (space, digest))")

    @property
    def width(self) -> int | None:
        """D of the numbers; None where there are none."""
        with self._database() as database:
            row = database.execute("SELECT numbers FROM vector WHERE space = ? LIMIT 1", [self._space]).fetchone()
        return None if row is None else unpacked([row[0]]).shape[1]

    def held(self, items: Sequence[str], digests: Sequence[str]) -> npt.NDArray[np.bool_]:
        """(N,) whether there are numbers made of this."""
        known = {digest for (digest,) in self._rows("digest", digests)}
        return np.array([digest in known for digest in digests], dtype=np.bool_)

    def add(self, items: Sequence[str], digests: Sequence[str], x_nd: Floats) -> None:
        """Keep numbers (N, D)."""
        rows = [(self._space, digest, packed(row)) for digest, row in zip(digests, x_nd, strict=True)]
        with self._database() as database:
            database.executemany("INSERT OR REPLACE INTO vector VALUES (?, ?, ?)", rows)

    def read(self, items: Sequence[str], digests: Sequence[str]) -> Floats:
        """(N, D) numbers, NaN where there are none."""
        held = self._rows("digest, numbers", digests)
        return aligned([digest for digest, _ in held], unpacked([numbers for _, numbers in held]), digests)

    def _rows(self, columns: str, digests: Sequence[str]) -> list[Any]:
        query = f"SELECT {columns} FROM vector WHERE space = ? AND digest IN (SELECT value FROM json_each(?))"  # nosec B608  # our own columns
        with self._database() as database:
            return database.execute(query, [self._space, json.dumps(list(digests))]).fetchall()

    @contextmanager
    def _database(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(sqlite3.connect(self._path)) as database, database:
                yield database
        except sqlite3.Error as error:
            raise BadInput(f"{self._path}: cannot be used as a cache of features: {error}; remove it") from None
