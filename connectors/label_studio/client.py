"""Send requests to Label Studio through label-studio-sdk, with our errors, bounded retries and bulk reads.

Reads and idempotent writes (PATCH, DELETE) are retried. POST is not, because Label Studio has no upsert. A login page
has status 200 too, so a response is accepted only if it has the expected shape (replies.py), and an empty one only if
it comes twice. Tokens never appear in a message. A whole request has a time limit (httpx limits only the time between
two bytes), and a read that brings no byte is given up much earlier. Under a fence, every write first checks that the
lease is still held, and nothing is sent after it ends.
"""

from __future__ import annotations

import json
import logging
import re
import time
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from threading import Lock
from typing import Any
from urllib.parse import urlsplit

import httpx

from hitl.connectors.label_studio import replies
from hitl.connectors.label_studio.connections import BoundedTransport, within
from hitl.connectors.label_studio.replies import Shape, WrongShape
from hitl.errors import BadSettings, MissingExtra, Refused, Unreachable
from hitl.formatting import masked, remember

WAITS = (1.0, 2.0, 4.0, 8.0)
"""Seconds before each retry. A server may ask for longer waits (Retry-After), up to LONGEST_WAIT."""
LONGEST_WAIT = 30.0
REPEAT_SECONDS = 90.0
"""Seconds from the first request within which retries begin."""
REQUEST_SECONDS = 240.0
"""Default timeout of a whole request. A server that keeps sending is cut off."""
SILENT_SHARE = 0.25
"""Share of the timeout after which a read that brings no byte is given up. Writes get all of it, because Label Studio
answers a large one only when it is done.
"""
CHECK_SECONDS = 10.0
"""Seconds that the first requests of `hitl doctor` and `hitl init` wait for a byte."""
WITHIN_LEASE = 0.8
"""Share of the remaining lease time within which a write must be sent."""
IDS_A_REQUEST = 400
_LOCAL = ("127.0.0.1", "localhost", "::1")
_ADVICE = {
    400: "The request does not fit this project",
    401: "Check the token (HITL_LABEL_STUDIO_TOKEN); a new one: Label Studio > Account & Settings",
    403: "The token's user may not do this: invite the user to the project or use another token",
    404: "Check the address and the project number; the token's user must be able to see the project",
}
_LEGACY = (
    "Legacy tokens are disabled: use a Personal Access Token (Account & Settings > Personal Access Token), or let an "
    "administrator enable legacy tokens (Organization > API Tokens Settings)"
)
_AGAIN = "then give the same command again: it goes on where it stopped"
_REMOVED = "Deleted"
"""Address that Label Studio shows for a user who was removed from the organization."""
_GONE = f"Check that Label Studio runs and that source.url is its address; {_AGAIN}"
_FAILED = f"The log of Label Studio says why; {_AGAIN}"
_STRANGE = (
    "Is source.url the address of a Label Studio, and does a proxy with a login page let hitl's token pass? "
    "Then give the same command again: it goes on where it stopped"
)
_log = logging.getLogger(__name__)


class Missing(Refused):
    """Nothing exists at this address, or the token's user may not see it."""


class NoAnswer(Unreachable):
    """The response is not from Label Studio: a page, a redirect, or JSON of another shape."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}. {_STRANGE}")


@dataclass(frozen=True, slots=True)
class TaskPage:
    """Some tasks, in order of their ids. `total` is the number of these and all remaining ones."""

    tasks: list[dict[str, Any]]
    total: int

    @property
    def more(self) -> bool:
        """True if another page follows. A server may cap the page size, so a short page need not be the last."""
        return 0 < len(self.tasks) < self.total

    @property
    def last(self) -> int:
        """The highest id; 0 on an empty page."""
        return int(self.tasks[-1]["id"]) if self.tasks else 0


class Client:
    """Client of one Label Studio server with one token. Thread-safe.

    `transport` replaces the network; it stays open. Raises BadSettings for a token that no request can carry. Methods
    raise Refused for 4xx responses, and Unreachable if no response comes in time or the server fails.
    """

    def __init__(
        self,
        url: str,
        token: str,
        *,
        transport: httpx.BaseTransport | None = None,
        request_seconds: float | None = None,
    ) -> None:
        self.url = url.rstrip("/")
        self.request_seconds = REQUEST_SECONDS if request_seconds is None else request_seconds
        self._token = remember(token.strip())  # a secret made from a file ends with a line break
        if not re.fullmatch("[!-~]+", self._token):
            problem = "holds a space, a line break or a letter beyond ASCII" if self._token else "is empty"
            raise BadSettings(f"the token of Label Studio {problem}. {_ADVICE[401]}")
        self._waits: tuple[float, ...] = WAITS
        self._transport = transport
        self._connecting = Lock()
        self._may_write: Callable[[], float] | None = None

    def fence(self, may_write: Callable[[], float] | None) -> None:
        """Call `may_write` before every write from now on. It raises, or returns the seconds left. None: no fence."""
        self._may_write = may_write

    def brief(self) -> Client:
        """Return a client for checks: it waits CHECK_SECONDS for a byte, and does not retry."""
        seconds = min(CHECK_SECONDS / SILENT_SHARE, self.request_seconds)
        client = Client(self.url, self._token, transport=self._transport, request_seconds=seconds)
        client._waits = ()
        return client

    def get(self, path: str, shape: Shape = replies.ANYTHING, /, **parameters: object) -> Any:
        """Return the JSON response of GET `path`. An empty one is requested again."""
        answer = self._repeat("GET", path, shape, parameters)
        empty = answer in ([], {}) or (isinstance(answer, dict) and answer.get("tasks") == [])
        return self._repeat("GET", path, shape, parameters) if empty else answer

    def post(self, path: str, body: object, shape: Shape = replies.OBJECT, /, **parameters: object) -> Any:
        """Return the JSON response of POST `path`. Never retried."""
        return self._read(self._request("POST", path, parameters, body), shape)

    def patch(self, path: str, body: Mapping[str, object], *, unsaid: Collection[str] = ()) -> Any:
        """Return the object in the response of PATCH `path`. It must have all changed fields that are not `unsaid`."""
        changed = replies.having(frozenset(body) - frozenset(unsaid))
        return self._repeat("PATCH", path, changed, {}, body)

    def delete(self, path: str, body: object = None) -> None:
        """DELETE `path`."""
        self._repeat("DELETE", path, replies.NOTHING, {}, body)

    def content(self, path: str, parameters: Mapping[str, object]) -> bytes:
        """Return the bytes of GET `path`. Not retried, because Label Studio answers 500 for a lost file."""
        response = self._request("GET", path, parameters)
        is_page = response.headers.get("content-type", "").startswith("text/html")
        if is_page and not path.lower().endswith((".html", ".htm")):
            raise NoAnswer(f"{self.url} answered a web page instead of the file")
        return bytes(response.content)

    def call(self, method: Callable[[Any], Any]) -> Any:
        """Return the result of an SDK method: `client.call(lambda projects: projects.list())`."""
        with self._asking("the SDK", "SDK"):
            from label_studio_sdk.projects.client import ProjectsClient

            return method(ProjectsClient(client_wrapper=self._sdk))

    @cached_property
    def _sdk(self) -> Any:
        """The SDK's client wrapper, which signs requests and renews access tokens. Raises Refused for a bad token."""
        try:
            import label_studio_sdk  # noqa: F401
            from label_studio_sdk.core.api_error import ApiError
            from label_studio_sdk.core.client_wrapper import SyncClientWrapper
        except ImportError as error:
            raise MissingExtra(f'Label Studio needs {error.name}: pip install "hitl-toolkit[label-studio]"') from None
        connections = httpx.Client(
            timeout=self._timeout("GET"),
            follow_redirects=True,
            # Without a network in between, compression costs more than it saves.
            headers={"Accept-Encoding": "identity"} if urlsplit(self.url).hostname in _LOCAL else {},
            transport=self._transport or BoundedTransport(self.url),
        )
        if self._transport is None:  # a given one belongs to the caller, who may use it elsewhere
            weakref.finalize(self, connections.close)
        try:
            # The trailing slash keeps a sub-path when the SDK renews an access token.
            return SyncClientWrapper(
                base_url=self.url + "/", api_key=self._token, httpx_client=connections, max_retries=0
            )
        except ApiError as error:
            raise Refused(f"the token for {self.url} is not usable: {_detail(error.body)}. {_ADVICE[401]}") from None

    def _timeout(self, method: str) -> httpx.Timeout:
        silent = self.request_seconds * (SILENT_SHARE if method == "GET" else 1.0)
        return httpx.Timeout(self.request_seconds, connect=min(10.0, self.request_seconds), read=silent)

    @cached_property
    def community(self) -> bool:
        """True for the Community edition, which has no assignments."""
        version = self.get("/api/version/", replies.VERSION)
        return str(version.get("edition", "Community")).lower() == "community"

    def users(self) -> list[dict[str, Any]]:
        """Return the users of the server, without those who were removed from the organization."""
        return [user for user in self.get("/api/users/", replies.USERS) if user.get("email") != _REMOVED]

    def user(self, key: str) -> Mapping[str, Any] | None:
        """Return the user with this id, or None if there is none or they were removed from the organization."""
        try:
            user = dict(self.get(f"/api/users/{key}/", replies.USER)) if key.isdecimal() else None
        except Missing:
            return None
        return None if user is None or user.get("email") == _REMOVED else user

    def project(self, number: int) -> Mapping[str, Any]:
        """Return a project as the server describes it."""
        return dict(self.get(f"/api/projects/{number}/", replies.PROJECT))

    def tasks_page(
        self,
        project: int,
        include: Sequence[str],
        *,
        after: int = 0,
        filters: Sequence[Mapping[str, object]] = (),
        page_size: int = 500,
    ) -> TaskPage:
        """Return the next tasks with an id above `after` that pass the filters (keyset paging)."""
        above = where("id", "greater", "Number", after)
        query = {"filters": {"conjunction": "and", "items": [above, *filters]}, "ordering": ["tasks:id"]}
        text = json.dumps(query, separators=(",", ":"))
        asked = {"project": project, "fields": "all", "page": 1, "page_size": page_size, "query": text}
        page = self.get("/api/tasks", replies.tasks(include), include=",".join(include), **asked)
        if any(task["id"] <= after for task in page["tasks"]):  # if the filter is ignored, paging would never end
            raise NoAnswer(f"{self.url} answered GET /api/tasks with tasks that it gave before")
        return TaskPage(page["tasks"], page["total"])

    def tasks(
        self,
        project: int,
        include: Sequence[str],
        *,
        filters: Sequence[Mapping[str, object]] = (),
        page_size: int = 1000,
    ) -> Iterator[dict[str, Any]]:
        """Yield all tasks of a project that pass the filters, in order of their ids."""
        after = 0
        while True:
            page = self.tasks_page(project, include, after=after, filters=filters, page_size=page_size)
            yield from page.tasks
            if not page.more:
                return
            after = page.last

    def tasks_by_id(self, project: int, ids: Collection[int], include: Sequence[str]) -> dict[int, dict[str, Any]]:
        """Return the tasks that exist in the project, by id."""
        wanted = sorted(set(ids))
        tasks: dict[int, dict[str, Any]] = {}
        for start in range(0, len(wanted), IDS_A_REQUEST):
            some = where("id", "in_list", "Number", wanted[start : start + IDS_A_REQUEST])
            tasks.update({int(task["id"]): task for task in self.tasks(project, include, filters=[some])})
        if strange := tasks.keys() - set(wanted):
            raise NoAnswer(
                f"{self.url} answered GET /api/tasks with tasks that nobody asked for, {min(strange)} among them"
            )
        return tasks

    def map(self, function: Callable[[Any], Any], items: Sequence[Any], threads: int = 4) -> list[Any]:
        """Call `function` on each item, a few at a time. Raise the first error, and do not start the rest."""
        with ThreadPoolExecutor(threads) as pool:
            return list(pool.map(function, items))

    def _repeat(
        self, method: str, path: str, shape: Shape, parameters: Mapping[str, object], body: object = None
    ) -> Any:
        """Send a request that is safe to repeat, and return its response.

        A response of the wrong kind (`NoAnswer`) is retried only once, in case it was a temporary page of a proxy.
        """
        until, strange, tries = time.monotonic() + REPEAT_SECONDS, 0, 0
        while True:
            try:
                return self._read(self._request(method, path, parameters, body), shape)
            except Unreachable as error:
                strange += isinstance(error, NoAnswer)
                if strange == 2 or tries == len(self._waits):
                    raise
                wait = self._waits[tries] if error.retry_after is None else min(error.retry_after, LONGEST_WAIT)
                tries += 1
                if time.monotonic() + wait > until:
                    raise
            again = "no answer from %s, trying again in %.0f s (%d of %d)"
            _log.warning(again, self.url, wait, tries, len(self._waits))
            time.sleep(wait)

    @contextmanager
    def _asking(self, asked: str, method: str) -> Iterator[None]:
        """Limit the time of requests, ask the fence before writes, and convert errors of httpx and the SDK to ours."""
        with self._connecting:
            _ = self._sdk
        from label_studio_sdk.core.api_error import ApiError

        start = time.monotonic()
        sending = WITHIN_LEASE * self._may_write() if self._may_write is not None and method != "GET" else None
        try:
            with within(self.request_seconds, sending=sending):
                yield
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            why = _short(str(error) or type(error).__name__)
            if isinstance(error, httpx.ReadTimeout | httpx.ConnectTimeout):
                why = f"waited {time.monotonic() - start:.0f} s"
            raise Unreachable(f"{self.url} did not answer {asked}: {why}. {_GONE}") from None
        except ApiError as error:  # from an SDK method, or from renewing the access token
            raise self._error(asked, error.status_code or 401, _detail(error.body), None) from None
        except (ValueError, LookupError, TypeError, AttributeError) as error:  # from the SDK: unexpected
            raise NoAnswer(f"{self.url} did not answer {asked}: {_short(repr(error))}") from None

    def _request(self, method: str, path: str, parameters: Mapping[str, object], body: object = None) -> httpx.Response:
        content = None if body is None else json.dumps(body, ensure_ascii=False).encode("utf-8", "backslashreplace")
        asked = f"{method} {path}"
        with self._asking(asked, method):
            response: httpx.Response = self._sdk.httpx_client.request(
                path,
                method=method,
                params=dict(parameters) or None,
                content=content,
                headers={} if body is None else {"content-type": "application/json"},
                request_options={"timeout": self._timeout(method)},
            )
        if response.status_code >= 400:
            raise self._error(asked, response.status_code, _said(response), response.headers.get("retry-after"))
        if response.request.method != method:  # a redirect turned it into a GET
            target = _short(str(response.request.url.copy_with(query=None)))
            raise NoAnswer(f"{self.url} answered {asked} with a redirect to {target}")
        return response

    def _error(self, request: str, status: int, detail: str, retry_after: str | None) -> Exception:
        answer = f"Label Studio at {self.url} said {status} for {request}: {_short(detail).rstrip('.')}"
        if status >= 500 or status in (408, 429):
            is_hint = retry_after is not None and retry_after.isascii() and retry_after.isdigit()
            return Unreachable(f"{answer}. {_FAILED}", min(float(retry_after or 0), 86_400.0) if is_hint else None)
        advice = _LEGACY if "legacy" in detail.lower() else _ADVICE.get(status, _ADVICE[400])
        return (Missing if status == 404 else Refused)(f"{answer}. {advice}")

    def _read(self, response: httpx.Response, shape: Shape) -> Any:
        asked = f"{self.url} answered {response.request.method} {response.request.url.path}"
        try:
            return replies.read(shape, json.loads(response.content) if response.content else None)
        except WrongShape as error:
            raise NoAnswer(f"{asked} with JSON of another shape, answer{_short(str(error))}") from None
        except (ValueError, RecursionError):
            raise NoAnswer(f"{asked} with something that is not JSON") from None


def _short(text: str) -> str:
    """Return the beginning of what a server said, without the token that it may repeat."""
    return masked(text)[:400]


def where(column: str, operator: str, kind: str, value: object) -> dict[str, object]:
    """Return a filter of the Data Manager."""
    return {"filter": f"filter:tasks:{column}", "operator": operator, "type": kind, "value": value}


def _said(response: httpx.Response) -> str:
    try:
        return _detail(response.json())
    except ValueError:
        return str(response.reason_phrase)


def _detail(body: object) -> str:
    if not isinstance(body, dict):
        return str(body)
    errors = json.dumps(body["validation_errors"], ensure_ascii=False) if body.get("validation_errors") else ""
    return " ".join(part for part in (str(body.get("detail", "")), errors) if part) or str(body)
