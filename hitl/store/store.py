"""`Store`: the database behind one or more projects, and the state recorded per project.

Other methods are defined beside their tables: `lease`, `answers` and `evidence` (pulled data), `learned` (features and
predictions of trained models), `results` (results of runs), `outbox` (changes to push) and `events` (event delivery).
Writes of a run take a `Lease`; each is one transaction that begins with the fence. Items sent back to annotators, saved
searches and deliveries are written without a lease, because a run may hold it for long. Reads take a project's name.
"""

from __future__ import annotations

import json
import secrets
import time
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime

import sqlalchemy as sa

from hitl.errors import HitlError, public_name
from hitl.formatting import masked, shown_names
from hitl.plan import Rework
from hitl.platform import Cursor, Page, Pages, PullSummary, Question
from hitl.store import pages
from hitl.store.events import Announced, Announcement, announce
from hitl.store.evidence import EvidenceStore
from hitl.store.learned import Learned
from hitl.store.lease import Lease
from hitl.store.outbox import Outbox
from hitl.store.results import Results
from hitl.store.schema import annotation, rework, view
from hitl.store.schema import project as projects

LONGEST = 500
"""Maximum number of characters stored of an error's message."""
MOST = 20
"""Maximum number of errors stored per run."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Time, error class and message of a failed run; `messages` has one entry per error."""

    at: datetime
    error: str
    message: str
    messages: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SavedView:
    """A saved item search: its name, the URL query, who saved it and when (seconds since the epoch)."""

    name: str
    query: str
    by: str
    since: float


class Store(EvidenceStore, Learned, Results, Outbox, Announced):
    """Pulled data, derived data, results, and changes still to be pushed.

    `url` is "sqlite:///folder/hitl.db" or "postgresql://user:password@host/database". Opening upgrades the schema. A
    store may be used from several threads and processes; close it, or use it as a context manager.

    Raises StoreError if the database cannot be opened, here or later.

    Attributes:
        database: connection pool, also for other tables in the same database.
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

    # -- pulls ---------------------------------------------------------------------------------------------

    def cursor(self, project: str) -> Cursor | None:
        """Return the position where the last pull stopped, or None to pull everything."""
        cursor: Cursor | None = self._noted("cursor", project)
        return cursor

    def source(self, project: str) -> str | None:
        """Return where the project was pulled from, or None before the first pull."""
        place: str | None = self._noted("source", project)
        return place

    def sources(self) -> dict[str, str]:
        """Return project -> where it was pulled from."""
        query = sa.select(projects.c.project, projects.c.source).where(projects.c.source.is_not(None))
        return {name: str(json.loads(source)) for name, source in self.database.rows(query)}

    def bind(self, lease: Lease, source: str, cursor: Cursor | None = None) -> None:
        """Store where the project is pulled from, and the cursor of the next pull (None: from the beginning)."""
        self._note(lease, source=json.dumps(source), cursor=None if cursor is None else json.dumps(cursor))

    def save_page(self, lease: Lease, page: Page) -> PullSummary:
        """Save the rows and the cursor of a page in one transaction. `hitl.store.pages` says which of two rows wins."""
        with self._fenced(lease) as connection:
            return pages.save(self.database, connection, lease, page)

    def revision(self, project: str) -> int:
        """Return how many pages have changed the project's stored data."""
        query = sa.select(projects.c.revision).where(projects.c.project == project)
        return int(self.database.scalar(query) or 0)

    def note_questions(self, lease: Lease, questions: tuple[Question, ...]) -> None:
        """Store the questions that the project asks, if they have changed."""
        rows = [
            [each.name, [*each.classes], [*each.options], each.kind, each.field, each.conditional] for each in questions
        ]
        if rows != self._noted("questions", lease.project):
            self._note(lease, questions=json.dumps(rows))

    def questions(self, project: str) -> tuple[Question, ...] | None:
        """Return the questions as of the last pull, or None before the first."""
        rows = self._noted("questions", project)
        if rows is None:
            return None
        return tuple(Question(name, (*classes,), (*options,), *more) for name, classes, options, *more in rows)

    def changed_since_run(self, project: str) -> bool:
        """Return True if a pull has changed stored data since the last run."""
        last = self.last_cycle(project)
        return last is not None and last.revision not in (None, self.revision(project))

    def problems(self, project: str) -> list[str]:
        """Return unreadable annotations, and problems of the latest pull that brought a page (the first hundred)."""
        unreadable = [str(note) for note in self.notes(project) if note.is_skip]
        return [*map(str, self._noted("problems", project) or ()), *unreadable]

    # -- notes of runs -------------------------------------------------------------------------------------

    def note_workplaces(self, lease: Lease, workplaces: Pages) -> None:
        """Store the pages where annotators answer, if they have changed."""
        if workplaces != self.workplaces(lease.project):
            self._note(lease, workplaces=json.dumps(asdict(workplaces)))

    def workplaces(self, project: str) -> Pages | None:
        """Return the pages where annotators answer, as of the last run, or None before the first."""
        fields = self._noted("workplaces", project)
        return None if fields is None else Pages(**fields)

    def make_mark(self, lease: Lease) -> str:
        """Return the mark that identifies this store on the orders it pushes. Draw a random one at the first call."""
        mark = self.mark(lease.project)
        if mark is None:
            mark = secrets.token_hex(4)
            self._note(lease, mark=json.dumps(mark))
        return mark

    def mark(self, project: str) -> str | None:
        """Return the mark made by `make_mark`, or None."""
        mark: str | None = self._noted("mark", project)
        return mark

    def note_look(self, lease: Lease) -> None:
        """Record that a run has just found no changes."""
        self._note(lease, looked_at=self.database.now())

    def looked_at(self, project: str) -> datetime | None:
        """Return when a run last found no changes, or None."""
        query = sa.select(projects.c.looked_at).where(projects.c.project == project)
        at = self.database.scalar(query)
        return None if at is None else datetime.fromtimestamp(at, UTC)

    def note_failure(self, lease: Lease, error: Exception | None, told: Announcement | None = None) -> None:
        """Record that a run failed just now, or clear an older failure (None). `told`: events that report it."""
        note = None
        if error is not None:
            parts = (error.parts[:MOST] if isinstance(error, HitlError) else ()) or (error,)
            message, *messages = (masked(str(each))[:LONGEST] for each in (error, *parts))
            what = {"error": public_name(error), "message": message, "messages": messages}
            note = json.dumps({"at": time.time(), **what})
        elif self.failure(lease.project) is None:
            return  # the usual case: nothing to write
        with self._fenced(lease) as connection:
            mine = projects.c.project == lease.project
            connection.execute(sa.update(projects).where(mine).values(failure=note))
            announce(self.database, connection, lease.project, told or Announcement())

    def failure(self, project: str) -> Failure | None:
        """Return why the last run failed, or None if it succeeded or could not record why."""
        note = self._noted("failure", project)
        if note is None:
            return None
        at = datetime.fromtimestamp(note["at"], UTC)
        return Failure(at, note["error"], note["message"], tuple(note["messages"]))

    # -- items sent back to annotators ---------------------------------------------------------------------

    def annotator_names(self, project: str) -> dict[str, str]:
        """Return annotator's key on the platform -> name to show. If several share a name, the key is appended."""
        keys, names = (column.to_pylist() for column in self.annotators(project).columns)
        return shown_names(dict(zip(keys, names, strict=True)))

    def send_back(self, project: str, item: str, annotator: str, by: str, note: str = "") -> Rework:
        """Ask the annotator (a shown name) about the item (the platform's key), again or for the first time."""
        now, key = time.time(), self._annotator_key(project, annotator)
        theirs = (annotation.c.project == project, annotation.c.item == item, annotation.c.annotator == key)
        # Answers are compared with earlier ones, because the platform's clock may differ from ours.
        after = self.database.scalar(sa.select(sa.func.max(annotation.c.time)).where(*theirs))
        stored = {"project": project, "item": item, "annotator": key, "since": now, "note": note, "by": by}
        with self.database.write() as connection:
            self.database.upsert(connection, rework, [{**stored, "after": after or 0.0}])
        return Rework(item, annotator, now, note, by)

    def take_back(self, project: str, item: str, annotator: str) -> bool:
        """Stop asking the annotator about the item. Return True if it had been sent back to them."""
        key = self._annotator_key(project, annotator)
        this = (rework.c.project == project, rework.c.item == item, rework.c.annotator == key)
        return self.database.change(sa.delete(rework).where(*this)) > 0

    def sent_back(self, project: str) -> tuple[Rework, ...]:
        """Return all items sent back, answered or not, oldest first."""
        columns = (rework.c[name] for name in ("item", "annotator", "since", "note", "by"))
        query = sa.select(*columns).where(rework.c.project == project)
        rows = self.database.rows(query.order_by(rework.c.since, rework.c.item, rework.c.annotator))
        names = self.annotator_names(project) if rows else {}
        answered = {(item, who) for item, who, _, _ in self.replies(project)} if rows else set()
        shown = ((item, names.get(key, key), *more) for item, key, *more in rows)
        return tuple(replace(Rework(*row), answered=row[:2] in answered) for row in shown)

    def replies(self, project: str) -> list[tuple[str, str, str, str | None]]:
        """Return new answers to items sent back, oldest first: item, annotator (a shown name), question, label or None.

        An answer is new if it is later than all that the annotator had given when the item was sent back.
        """
        columns = (annotation.c.annotator, annotation.c.question, annotation.c.label)
        query = sa.select(rework.c.item, rework.c.annotator.label("asked"), *columns).where(
            rework.c.project == project,
            annotation.c.project == project,
            annotation.c.item == rework.c.item,
            annotation.c.deleted.is_(sa.false()),
            annotation.c.time > rework.c.after,
        )
        names = self.annotator_names(project)
        return [
            (row.item, names.get(row.asked, row.asked), row.question, row.label)
            for row in self.database.rows(query.order_by(annotation.c.time, annotation.c.annotation))
            if names.get(row.annotator, row.annotator) == names.get(row.asked, row.asked)
        ]

    def _annotator_key(self, project: str, shown: str) -> str:
        """Return the key of the annotator with this shown name, because names may change. Unknown: return the name."""
        return next((key for key, name in self.annotator_names(project).items() if name == shown), shown)

    # -- saved searches ------------------------------------------------------------------------------------

    def save_view(self, project: str, name: str, query: str, by: str) -> SavedView:
        """Save a search under this name. It replaces any other search with the same name."""
        saved = SavedView(name, query, by, time.time())
        with self.database.write() as connection:
            self.database.upsert(connection, view, [{"project": project, **asdict(saved)}])
        return saved

    def forget_view(self, project: str, name: str) -> bool:
        """Delete a search. Return True if it existed."""
        return self.database.change(sa.delete(view).where(view.c.project == project, view.c.name == name)) > 0

    def views(self, project: str) -> tuple[SavedView, ...]:
        """Return all searches of a project, by name."""
        columns = (view.c[name] for name in ("name", "query", "by", "since"))
        query = sa.select(*columns).where(view.c.project == project).order_by(view.c.name)
        return tuple(SavedView(*row) for row in self.database.rows(query))
