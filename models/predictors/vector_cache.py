"""Cache of embedding vectors in one SQLite file, keyed by the digest of their content and their embedder.

Each batch is one transaction, so a killed run resumes where it stopped.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hitl.annotations import Floats
from hitl.errors import BadInput
from hitl.models.predictors.features import align
from hitl.tables.vectors import packed, unpacked


class VectorCache:
    """Vectors of one embedder (`space`, see `loading.embedder_digest`).

    Raise BadInput if the file is something else.
    """

    def __init__(self, path: Path, space: str = "") -> None:
        self._path, self._space = path, space
        self._run("CREATE TABLE IF NOT EXISTS vector (space, digest, numbers, PRIMARY KEY (space, digest))", [()])

    @property
    def width(self) -> int | None:
        """D of the stored vectors; None if there are none."""
        rows = self._run("SELECT numbers FROM vector WHERE space = ? LIMIT 1", [(self._space,)])
        return unpacked([rows[0][0]]).shape[1] if rows else None

    def has(self, items: Sequence[str], digests: Sequence[str]) -> npt.NDArray[np.bool_]:
        """Return (N,) True for contents that have a vector."""
        stored = {digest for (digest,) in self._run("SELECT digest FROM vector WHERE space = ?", [(self._space,)])}
        return np.array([digest in stored for digest in digests], dtype=np.bool_)

    def add(self, items: Sequence[str], digests: Sequence[str], x_nd: Floats) -> None:
        """Store vectors (N, D)."""
        vectors = zip(digests, x_nd, strict=True)
        self._run("INSERT OR REPLACE INTO vector VALUES (?, ?, ?)", [(self._space, d, packed(x)) for d, x in vectors])

    def read(self, items: Sequence[str], digests: Sequence[str]) -> Floats:
        """Return (N, D), NaN for contents that have no vector."""
        query = "SELECT digest, numbers FROM vector WHERE space = ? AND digest IN (SELECT value FROM json_each(?))"
        rows = self._run(query, [(self._space, json.dumps(list(digests)))])
        return align([digest for digest, _ in rows], unpacked([numbers for _, numbers in rows]), digests)

    def _run(self, statement: str, parameters: Iterable[tuple[Any, ...]]) -> list[Any]:
        """Run a statement for each row of parameters, in one transaction, and return the last result."""
        try:
            with closing(sqlite3.connect(self._path)) as database, database:
                return [database.execute(statement, row).fetchall() for row in parameters][-1]
        except sqlite3.Error as error:
            raise BadInput(f"{self._path}: cannot be used as a cache of features: {error}; remove it") from None
