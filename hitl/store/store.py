"""`Store`: the database behind one or several projects, and what is noted with each project.

Its other methods are where their tables are: `lease`, `answers` and `evidence` (what was pulled), `vectors` (features
made of it), `model_predictions` (learned from it), `results` (what was concluded, the outbox), `pushes` (what may be on
its way), `question_log` (what was ever asked) and `events` (what others are
told). Writes take a `Lease`, but for those of deliveries; each is one transaction that begins with the
fence. Reads take a project's name.
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
"""Characters of an error's message that are kept."""
MOST = 20
"""Errors of one cycle that are kept."""


@dataclass(frozen=True, slots=True)
class Failure:
    """When a cycle failed, with which error and message; `messages` are those of each thing that failed in it."""

    at: datetime
    error: str
    message: str
    messages: tuple[str, ...] = ()


class Store(EvidenceStore, Features, ModelPredictions, Results, QuestionLog, SentBack, Viewed, Pushes, Announced):
    """What was pulled, what was made of it, what was concluded, what must still be pushed.

    `url` is "sqlite:///folder/hitl.db" or "postgresql://user:password@host/database". Opening brings the schema up to
    date. A store may be used from several threads and processes; close it, or use it as a context manager.

    Raises StoreError when the database cannot be opened, here or later.

    Attributes:
        database: its connections, for what stands beside the store's own tables in the same database.
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
        """Where the last pull stopped; None: pull everything."""
        cursor: Cursor | None = self._noted("cursor", project)
        return cursor

    def source(self, project: str) -> str | None:
        """Where the project was pulled from; None before the first pull."""
        found = self._noted("source", project)
        return None if found is None else str(found)

    def sources(self) -> dict[str, str]:
        """Project -> where it was pulled from."""
        query = sa.select(projects.c.project, projects.c.source).where(projects.c.source.is_not(None))
        return {name: str(json.loads(source)) for name, source in self.database.rows(query)}

    def bind(self, lease: Lease, source: str, cursor: Cursor | None = None) -> None:
        """Keep where the project is pulled from, and where the next pull goes on there; None: from the beginning."""
        self._note(lease, source=json.dumps(source), cursor=None if cursor is None else json.dumps(cursor))

    def note_workplaces(self, lease: Lease, found: Pages) -> None:
        """Keep where annotators answer; written only where it is news."""
        if found != self.workplaces(lease.project):
            self._note(lease, workplaces=json.dumps(asdict(found)))

    def workplaces(self, project: str) -> Pages | None:
        """Where annotators answer, as the last cycle saw it; None before the first."""
        found = self._noted("workplaces", project)
        return None if found is None else Pages(**found)

    def make_mark(self, lease: Lease) -> str:
        """The mark of this store on what it orders for the project; drawn at random where there is none yet."""
        mark = self.mark(lease.project)
        if mark is None:
            mark = secrets.token_hex(4)
            self._note(lease, mark=json.dumps(mark))
        return mark

    def mark(self, project: str) -> str | None:
        """The mark that `make_mark` made, or None."""
        found = self._noted("mark", project)
        return None if found is None else str(found)

    def save_page(self, lease: Lease, page: Page) -> PullSummary:
        """Save rows and cursor together, or nothing. `hitl.store.pages` says which of two rows stays."""
        with self._fenced(lease) as connection:
            return pages.save(self.database, connection, lease, page)

    def revision(self, project: str) -> int:
        """How often a page has changed what is stored of the project."""
        query = sa.select(projects.c.revision).where(projects.c.project == project)
        return int(self.database.scalar(query) or 0)

    def note_look(self, lease: Lease) -> None:
        """A cycle has looked just now, and nothing had changed."""
        self._note(lease, looked_at=self.database.now())

    def looked_at(self, project: str) -> datetime | None:
        """When a cycle last found nothing new; None: none has."""
        query = sa.select(projects.c.looked_at).where(projects.c.project == project)
        at = self.database.scalar(query)
        return None if at is None else datetime.fromtimestamp(at, UTC)

    def problems(self, project: str) -> list[str]:
        """What the latest pull that brought a page could not understand (the first hundred)."""
        return list(map(str, self._noted("problems", project) or ()))

    def note_failure(self, lease: Lease, error: Exception | None, told: Announcement | None = None) -> None:
        """Why a cycle failed just now; None: it did not, and an older failure is over. `told`: who else is told."""
        said = None
        if error is not None:
            parts = error.parts[:MOST] if isinstance(error, HitlError) else ()
            each = {"message": str(error)[:LONGEST], "messages": [str(part)[:LONGEST] for part in parts or (error,)]}
            said = json.dumps({"at": time.time(), "error": type(error).__name__, **each})
        elif self.failure(lease.project) is None:
            return  # nothing to write, as nearly always
        with self._fenced(lease) as connection:
            mine = projects.c.project == lease.project
            connection.execute(sa.update(projects).where(mine).values(failure=said))
            announce(self.database, connection, lease.project, told or Announcement())

    def failure(self, project: str) -> Failure | None:
        """Why the last cycle failed; None when it did not, or when no cycle has noted it."""
        found = self._noted("failure", project)
        if found is None:
            return None
        at = datetime.fromtimestamp(found["at"], UTC)
        return Failure(at, found["error"], found["message"], tuple(found["messages"]))

    def _noted(self, column: str, project: str) -> Any:
        """What a column of the project's row says (JSON), or None."""
        text = self.database.scalar(sa.select(projects.c[column]).where(projects.c.project == project))
        return None if text is None else json.loads(text)

    def _note(self, lease: Lease, **values: Any) -> None:
        with self._fenced(lease) as connection:
            connection.execute(sa.update(projects).where(projects.c.project == lease.project).values(values))
