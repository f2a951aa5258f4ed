"""A lock on a file, for the time that a folder is written."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hitl.errors import Busy


@contextmanager
def held(path: Path, written: str, kind: str = "folder") -> Iterator[None]:
    """The lock of a folder (or of another `kind`) that is `written`. Raises Busy where another process holds it."""
    with open(path, "wb") as lock:
        with suppress(ImportError):  # no fcntl on Windows: two at once are then the user's to avoid
            import fcntl

            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                ours = os.path.samestat(os.fstat(lock.fileno()), path.stat())  # who held it may have removed it
            except OSError:
                ours = False
            if not ours:
                raise Busy(f"{written}: another process writes it; wait for it, or name another {kind}") from None
        yield
