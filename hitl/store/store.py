"""`Store`: the database behind one or more projects, and the state recorded per project.

Other methods are defined beside their tables: `lease`, `answers` and `evidence` (pulled data), `vectors` (features),
`model_predictions` (predictions of trained models), `results` (results and the outbox), `pushes` (pushes in progress),
`question_log` (all questions asked) and `events` (event delivery). Writes take a `Lease`, except those of deliveries;
each is one transaction that begins with the fence. Reads take a project's name.
"""

from __future__ import annotations

import json
import secrets
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from hitl.errors import HitlError
from hitl.platform import Cursor, Page, Pages, PullSummary
from hitl.store import pages
from hitl.store.events import Announced, Announcement, announce
from hitl.store.evidence import EvidenceStore
from hitl.store.lease import Lease
from hitl.store.model_predictions import ModelPredictions
from hitl.store.pushes import Pushes
from hitl.store.question_log import QuestionLog
from hitl.store.results import Results
from hitl.store.reworks import SentBack
from hitl.store.schema import project as projects
from hitl.store.vectors import Features
from hitl.store.views import Viewed

LONGEST = 500
"""Characters stored of an error's message."""
MOST = 20
"""Errors stored per run."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Time, error and message of a failed run; `messages` has one entry per error."""

    at: datetime
    error: str
    message: str
    messages: tuple[str, ...] = ()


class Store(EvidenceStore, Features, ModelPredictions, Results, QuestionLog, SentBack, Viewed, Pushes, Announced):
    """Pulled data, derived data, results, and changes still to be pushed.

    `url` is "sqlite:///folder/hitl.db" or "postgresql://user:password@host/database". Opening upgrades the schema. A
    store may be used from several threads and processes; close it, or use it as a context manager.

    Raises StoreError if the database cannot be opened, here or later.

    Attributes:
        database: its connections, for other tables in the same database.
    """

    def __repr__(self) -> str:
        return f"Store({self.database.name!r})"

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self.database.close()

    def cursor(self, project: str) -> Cursor | None:
        """Return the position where the last pull stopped, or None to pull everything."""
        cursor: Cursor | None = self._noted("cursor", project)
        return cursor

    def source(self, project: str) -> str | None:
        """Return where the project was pulled from, or None before the first pull."""
        found = self._noted("source", project)
        return None if found is None else str(found)

    def sources(self) -> dict[str, str]:
        """Return where each project was pulled from."""
        query = sa.select(projects.c.project, projects.c.source).where(projects.c.source.is_not(None))
        return {name: str(json.loads(source)) for name, source in self.database.rows(query)}

    def bind(self, lease: Lease, source: str, cursor: Cursor | None = None) -> None:
        """Store where the project is pulled from, and the cursor of the next pull (None: from the beginning)."""
        self._note(lease, source=json.dumps(source), cursor=None if cursor is None else json.dumps(cursor))

    def note_workplaces(self, lease: Lease, found: Pages) -> None:
        """Store the pages where annotators answer, if they have changed."""
        if found != self.workplaces(lease.project):
            self._note(lease, workplaces=json.dumps(asdict(found)))

    def workplaces(self, project: str) -> Pages | None:
        """Return the pages where annotators answer, as of the last run, or None before the first."""
        found = self._noted("workplaces", project)
        return None if found is None else Pages(**found)

    def make_mark(self, lease: Lease) -> str:
        """Return the mark of this store on the orders it pushes, drawing a random one if there is none yet."""
        mark = self.mark(lease.project)
        if mark is None:
            mark = secrets.token_hex(4)
            self._note(lease, mark=json.dumps(mark))
        return mark

    def mark(self, project: str) -> str | None:
        """Return the mark made by `make_mark`, or None."""
        found = self._noted("mark", project)
        return None if found is None else str(found)

    def save_page(self, lease: Lease, page: Page) -> PullSummary:
        """Save rows and cursor together, or nothing. See `hitl.store.pages` for which of two rows wins."""
        with self._fenced(lease) as connection:
            return pages.save(self.database, connection, lease, page)

    def revision(self, project: str) -> int:
        """Return how many pages have changed the project's stored data."""
        query = sa.select(projects.c.revision).where(projects.c.project == project)
        return int(self.database.scalar(query) or 0)

    def note_look(self, lease: Lease) -> None:
        """Record that a run has just found no changes."""
        self._note(lease, looked_at=self.database.now())

    def looked_at(self, project: str) -> datetime | None:
        """Return when a run last found no changes, or None."""
        query = sa.select(projects.c.looked_at).where(projects.c.project == project)
        at = self.database.scalar(query)
        return None if at is None else datetime.fromtimestamp(at, UTC)

    def problems(self, project: str) -> list[str]:
        """Return the problems of the latest pull that brought a page (the first hundred)."""
        return list(map(str, self._noted("problems", project) or ()))

    def note_failure(self, lease: Lease, error: Exception | None, told: Announcement | None = None) -> None:
        """Record that a run failed just now, or clear an older failure (None). `told`: events that report it."""
        said = None
        if error is not None:
            parts = error.parts[:MOST] if isinstance(error, HitlError) else ()
            each = {"message": str(error)[:LONGEST], "messages": [str(part)[:LONGEST] for part in parts or (error,)]}
            said = json.dumps({"at": time.time(), "error": type(error).__name__, **each})
        elif self.failure(lease.project) is None:
            return  # the usual case: nothing to write
        with self._fenced(lease) as connection:
            mine = projects.c.project == lease.project
            connection.execute(sa.update(projects).where(mine).values(failure=said))
            announce(self.database, connection, lease.project, told or Announcement())

    def failure(self, project: str) -> Failure | None:
        """Return why the last run failed, or None if it did not or did not record it."""
        found = self._noted("failure", project)
        if found is None:
            return None
        at = datetime.fromtimestamp(found["at"], UTC)
        return Failure(at, found["error"], found["message"], tuple(found["messages"]))

    def _noted(self, column: str, project: str) -> Any:
        """Return a JSON column of the project's row, or None."""
        text = self.database.scalar(sa.select(projects.c[column]).where(projects.c.project == project))
        return None if text is None else json.loads(text)

    def _note(self, lease: Lease, **values: Any) -> None:
        with self._fenced(lease) as connection:
            connection.execute(sa.update(projects).where(projects.c.project == lease.project).values(values))
