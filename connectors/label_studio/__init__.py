"""Pull from and push to Label Studio through label-studio-sdk.

    address               addresses as they are pasted
    client, replies       requests, retries, errors; shapes of responses
    config                labeling configuration -> form; controls and regions: results <-> labels
    pull, compare         read everything once, then changes; find changes that were missed
    push                  carry out operations, with predictions (order, consensus, model backend) and assign
    audit                 read the project independently, to compare it with the store
    server                a local Label Studio for tests and the demo

The SDK loads on the first request, not with this module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qsl, unquote, urlsplit

import httpx
from pydantic import Field

from hitl.connectors.label_studio import assign, audit, compare, doctor, predictions, pull, push, replies
from hitl.connectors.label_studio.address import read_address
from hitl.connectors.label_studio.client import REQUEST_SECONDS, WITHIN_LEASE, Client
from hitl.connectors.label_studio.config import NO_NAMES, Form, adapted, parse
from hitl.errors import BadSettings, MissingToken, Refused
from hitl.platform import (
    AnnotatorRow,
    Check,
    Connector,
    Cursor,
    Difference,
    Held,
    Operation,
    Page,
    Pages,
    Progress,
    Question,
    Receipt,
    Snapshot,
    silent,
)
from hitl.settings import SourceSettings
from hitl.settings.environment import secret
from hitl.settings.section import Seconds

__all__ = ["TOKEN", "LabelStudio", "LabelStudioSettings"]

FILES = ("/data/upload/", "/data/local-files/")
"""Path prefixes of uploaded files, and of files in folders that Label Studio is configured to serve."""

OVERLAP = 1800.0
"""Seconds by which the server's clock may go back, or a row may become visible late, without a change being missed."""

TOKEN = "HITL_LABEL_STUDIO_TOKEN"
"""Environment variable with the access token, which no file may contain."""


def read_token() -> str:
    """Return the access token. Raise MissingToken if it is not in the environment."""
    token = secret(TOKEN)
    if not token:
        raise MissingToken(
            f"{TOKEN} is not set; take the access token from Label Studio (Account & Settings), then export {TOKEN}=..."
        )
    return token


class LabelStudioSettings(SourceSettings):
    """Keys of `[source]` for Label Studio."""

    kind: Literal["label-studio"] = "label-studio"
    """Label Studio."""
    url: str = "http://localhost:8080"
    """Address of the server."""
    project: int = Field(gt=0)
    """Number of the project."""
    control: str | None = None
    """Control of the labeling config to use, if there are several."""
    abstain: tuple[str, ...] = ()
    """Choices that are no class, such as "Unsure"."""
    rename: dict[str, str] = Field(default_factory=dict)
    """Former name of a choice -> its name now, as `{ cat = "feline" }`."""
    key: str | None = Field(default=None, min_length=1)
    """Field of a task's data that holds your own id."""
    overlap: Seconds = OVERLAP
    """Time by which the server's clock may go back, or a row become visible late."""
    timeout: float = Field(default=REQUEST_SECONDS, gt=0)
    """Seconds per request. A read without a byte for a quarter of it is tried once more."""


class LabelStudio(Connector):
    """One project of a Label Studio server. The server is contacted only when needed.

    Methods raise Refused (the server refused; the message says what to do) and Unreachable (can be retried).

    Example:
        >>> from hitl.connectors import LabelStudio
        >>> connector = LabelStudio("http://localhost:8080", "my-access-token", project=12)
        >>> connector.project
        12
    """

    Settings = LabelStudioSettings

    @classmethod
    def open(cls, settings: LabelStudioSettings, folder: Path) -> LabelStudio:
        """Return the project that `[source]` names. Raises MissingToken if there is no token in the environment."""
        options = settings.model_dump(include={"control", "abstain", "rename", "key", "overlap", "timeout"})
        return cls(settings.url, read_token(), settings.project, **options)

    def __init__(
        self,
        url: str,
        token: str,
        project: int,
        *,
        control: str | None = None,
        abstain: Sequence[str] = (),
        rename: Mapping[str, str] = NO_NAMES,
        key: str | None = None,
        overlap: float = OVERLAP,
        page_size: int = 500,
        timeout: float | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        """Set the project and the controls to work with.

        `control` selects one control of the labeling configuration, and ignores the others; `abstain` names choices
        that are answers but not classes ("Unsure"); `rename` maps former names of choices to current ones; `key` names
        the field of a task's data that holds the user's own id, which new tasks get too; `overlap` is how many seconds
        the server's clock may go back; `timeout` is the maximum number of seconds for a whole request (default
        240), and a read without a byte is given up after a quarter of it; `transport` replaces the network in tests.
        """
        server, pasted = read_address(url)
        if pasted not in (None, project):
            raise BadSettings(f"source.url is the address of project {pasted}, and source.project is {project}")
        if page_size < 1:
            raise BadSettings(f"page_size {page_size}: expected a number of tasks, 500 for instance")
        self.client = Client(server, token, transport=transport, request_seconds=timeout)
        self.project = project
        self._controls = control, tuple(abstain), dict(rename)
        self._key = key
        self._overlap = timedelta(seconds=overlap)
        self._page_size = page_size
        self._reader: pull.Reader | None = None  # of the last pull

    @classmethod
    def create_project(cls, url: str, token: str, title: str, label_config: str) -> int:
        """Create a project and return its number. Raises Refused if the labeling configuration is invalid."""
        body = {"title": title, "label_config": label_config}
        return int(Client(url, token).post("/api/projects/", body, replies.WITH_ID)["id"])

    @cached_property
    def settings(self) -> Mapping[str, Any]:
        """Project settings as the server returns them (read once)."""
        return self.client.project(self.project)

    @cached_property
    def _form(self) -> tuple[Form, tuple[str, ...]]:
        return adapted(self.settings["label_config"], *self._controls)

    @property
    def form(self) -> Form:
        """Controls whose answers are pulled (read once)."""
        return self._form[0]

    def questions(self) -> tuple[Question, ...]:
        """Return the questions that the project asks about every task."""
        return self.form.questions

    def pull(self, cursor: Cursor | None) -> Iterator[Page]:
        """Read everything (cursor None) or what changed since the cursor. The caller may stop after any page.

        If the settings name a control or choice that the labeling configuration no longer has, a pull from a cursor
        ignores the name and reports it. A pull from the beginning raises BadSettings or Refused.
        """
        if cursor is None:
            parse(self.settings["label_config"], *self._controls)
        form, problems = self._form
        self._reader = pull.Reader(self.client, self.project, form, self._page_size)
        for page in pull.pages(self._reader, cursor):
            yield replace(page, problems=(*problems, *page.problems))
            problems = ()

    def compare(self, cursor: Cursor, held: Held) -> Iterator[Page]:
        """Read the tasks that differ from the store although no timestamp shows a change."""
        reader = self._reader or pull.Reader(self.client, self.project, self.form, self._page_size)
        return compare.pages(reader, cursor, held, self._overlap)

    def push(self, operations: Iterable[Operation]) -> Iterator[Receipt]:
        """Apply the operations to the project. Lazy: an operation is carried out when its receipt is requested."""
        return push.receipts(self.client, self.project, self.form, operations, self._key)

    def verify(self, operations: Iterable[Operation]) -> Iterator[Receipt]:
        """Push like `push`, but compare existing predictions one by one instead of by count."""
        return push.receipts(self.client, self.project, self.form, operations, self._key, whole=True)

    def check(self) -> Iterator[Check]:
        """Check connection, token, project, labeling configuration, and settings that affect the order of tasks."""
        return doctor.check(self.client, self.project, *self._controls, self._key)

    @property
    def place(self) -> str:
        """Server and project."""
        return f"{self.client.url}, project {self.project}"

    def annotators(self) -> tuple[AnnotatorRow, ...]:
        """Return the users of the server, as the last pull read them. In the Community edition all may annotate."""
        read = None if self._reader is None else self._reader.people_read
        return pull.annotators(self.client) if read is None else read

    def workplaces(self) -> Pages:
        """Return email -> URL of the annotator's tab, advice for annotators, and the project's title."""
        return Pages(assign.tabs(self.client, self.project), assign.ADVICE, str(self.settings["title"]))

    def marks(self) -> frozenset[str]:
        """Return the marks of the stores whose order is in the project."""
        return predictions.marks(self.client, self.project)

    def serves(self, address: str) -> bool:
        """Return True for an uploaded file of this server, or one in a folder that it serves."""
        return self._path_here(address) is not None

    def fetch(self, address: str) -> bytes:
        """Return the content of a file that this server has."""
        path = self._path_here(address)
        if path is None:
            raise Refused(f"{address}: not a file of {self.client.url}")
        return self.client.content(unquote(path), dict(parse_qsl(urlsplit(address).query)))

    def _path_here(self, address: str) -> str | None:
        """Return the path of an uploaded or local file on this server, or None for any other address."""
        here, there = urlsplit(self.client.url), urlsplit(address)
        if there.netloc and (there.scheme, there.netloc) != (here.scheme, here.netloc):
            return None
        path = there.path.removeprefix(here.path)
        return path if path.startswith(FILES) else None

    @property
    def lease_seconds(self) -> float:
        """Shortest lease that allows every request to finish."""
        return self.client.request_seconds / WITHIN_LEASE

    def fence(self, may_write: Callable[[], float] | None) -> None:
        """Call `may_write` before every write from now on. None removes the fence."""
        self.client.fence(may_write)

    def snapshot(self, progress: Progress = silent) -> Snapshot:
        """Read all tasks, answers and predictions, independently of `pull`."""
        return audit.snapshot(self.client, self.project, self.form, progress)

    def departures(self, operations: Sequence[Operation], progress: Progress = silent) -> Iterator[Difference]:
        """Find differences between the project and these operations, and leftovers of operations that are not there."""
        return audit.departures(self.client, self.project, self.form, operations, progress)

    def register_backend(self, url: str, password: str, user: str = "hitl") -> int:
        """Register `hitl serve` at this address as the project's model backend. Return the number of the backend.

        `url` is .../ml/<name of the project>, `password` an API token of hitl. Raises Refused if Label Studio cannot
        reach it.
        """
        return predictions.register_backend(self.client, self.project, url, user, password)
