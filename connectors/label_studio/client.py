"""Requests to Label Studio: label-studio-sdk's client with our errors, bounded retries and bulk reads.

Reads, and writes that say how something should be (PATCH, DELETE), are retried; POST is not, because Label
Studio has no upsert. An answer is believed only in the shape that it should have (replies.py), an empty list only when
it comes twice: a login page has status 200 too. Tokens never appear in a message.

While a lease is held (`fence`), every write first makes sure that it still is, and nothing is sent after its end.
"""

from __future__ import annotations

import json
import logging
import time
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from hitl.connectors.label_studio import replies
from hitl.connectors.label_studio.connections import bounded, within
from hitl.connectors.label_studio.replies import Reader, WrongShape
from hitl.errors import MissingExtra, Refused, Unreachable

if TYPE_CHECKING:
    import httpx  # type: ignore[import-not-found, unused-ignore]

WAITS = (1.0, 2.0, 4.0, 8.0)
"""Seconds before a request is repeated the first time, the second, ...; a server may name others (Retry-After)."""
LONGEST_WAIT = 30.0
LONGEST_HINT = 86_400.0
"""Seconds that a server may ask us to wait at most: what is more is no number of seconds."""
REPEAT_SECONDS = 60.0
"""How long after the first request it may be repeated."""
REQUEST_SECONDS = 240.0
"""How long one request may take in all, unless the settings say otherwise: a server that goes on sending is cut off."""
WITHIN_LEASE = 0.8
"""In which part of the time that a lease still has a write must be sent, if it is sent at all."""
IDS_A_REQUEST = 400
_NOT_READ = (ValueError, KeyError, TypeError, AttributeError)
"""What the SDK raises of an answer that is not what it expects."""
_LOCAL = ("127.0.0.1", "localhost", "::1")
_ADVICE = {
    400: "The request does not fit this project",
    401: "Check the token (HITL_LABEL_STUDIO_TOKEN); a new one: Label Studio > Account & Settings",
    403: "The token's user may not do this: invite the user to the project or use another token",
    404: "Check the address and the project number; the token's user must be able to see the project",
}
_GONE = (
    "Check that Label Studio runs and that source.url is its address; then give the same command again: it goes on "
    "where it stopped"
)
_FAILED = "The log of Label Studio says why; then give the same command again: it goes on where it stopped"
_STRANGE = (
    "Is source.url the address of a Label Studio, and does a proxy with a login page let hitl's token pass? "
    "Then give the same command again: it goes on where it stopped"
)
_log = logging.getLogger(__name__)
_LEGACY = (
    "Legacy tokens are disabled: use a Personal Access Token (Account & Settings > Personal Access Token), or let an "
    "administrator enable legacy tokens (Organization > API Tokens Settings)"
)


class Missing(Refused):
    """There is nothing at this address, or the token's user may not see it."""


class NoAnswer(Unreachable):
    """Something answered, but not Label Studio: a page, a redirect, JSON of another shape."""


@dataclass(frozen=True, slots=True)
class TaskPage:
    """Some tasks in order of their ids, and how many matched: these and those still to come."""

    tasks: list[dict[str, Any]]
    total: int

    @property
    def more(self) -> bool:
        """Whether there may be another page (a server may cap the page size, so a short page says nothing)."""
        return 0 < len(self.tasks) < self.total

    @property
    def last(self) -> int:
        """The highest id; 0 on an empty page."""
        return int(self.tasks[-1]["id"]) if self.tasks else 0


class Client:
    """One Label Studio, asked with one token. Safe to use from several threads.

    `transport` carries the requests in place of the network (tests).

    Methods raise Refused for 4xx answers, Unreachable when there is no answer in time or the server fails.
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
        self._token = token
        self._transport = transport
        self._connecting = Lock()
        self._quiet_until = 0.0
        self._may_write: Callable[[], float] | None = None

    def fence(self, may_write: Callable[[], float] | None) -> None:
        """Ask this before every write from now on: it raises where no more may be written, and gives for how many
        seconds more may be. None: writes are free.
        """
        self._may_write = may_write

    def get(self, path: str, reader: Reader = replies.anything, /, **parameters: object) -> Any:
        """The JSON answer of GET `path`, which the reader must know; that there is nothing is asked for twice."""
        answer = self._repeat("GET", path, parameters, reader=reader)
        nothing = answer in ([], {}) or (isinstance(answer, dict) and answer.get("tasks") == [])
        return self._repeat("GET", path, parameters, reader=reader) if nothing else answer

    def post(self, path: str, body: object, reader: Reader = replies.OBJECT, /, **parameters: object) -> Any:
        """The JSON answer of POST `path`, which the reader must know; never repeated."""
        return self._read(self._request("POST", path, parameters, body), reader)

    def patch(self, path: str, body: Mapping[str, object], *, unsaid: Collection[str] = ()) -> Any:
        """The JSON answer of PATCH `path`: the object as it is now, with what was to be changed among the rest.

        `unsaid`: what the server never tells, such as a password.
        """
        told = ((name, replies.anything) for name in body if name not in unsaid)
        return self._repeat("PATCH", path, {}, body, reader=replies.record_of(told))

    def content(self, path: str, parameters: Mapping[str, object]) -> bytes:
        """What GET `path` answers, as it is; not repeated, because Label Studio says of a lost file that it failed."""
        response = self._request("GET", path, parameters)
        page = response.headers.get("content-type", "").startswith("text/html")
        if page and not path.lower().endswith((".html", ".htm")):
            raise self._strange(response, "a web page instead of the file")
        content: bytes = response.content
        return content

    def delete(self, path: str, body: object = None) -> None:
        """DELETE `path`."""
        self._repeat("DELETE", path, {}, body, reader=replies.nothing)

    def call(self, what: Callable[[Any], Any]) -> Any:
        """What a method of the SDK returns, with our errors: `client.call(lambda sdk: sdk.users.list())`."""
        httpx = library()
        from label_studio_sdk.core.api_error import ApiError

        try:
            with self._within("SDK"):
                return what(self.sdk)
        except httpx.HTTPError as error:
            raise Unreachable(f"{self.url} did not answer: {self._safe(repr(error))}. {_GONE}") from None
        except ApiError as error:
            raise self._error("the SDK", error.status_code or 400, str(error.body), None) from None
        except _NOT_READ as error:
            raise NoAnswer(
                f"{self.url} did not answer as Label Studio does: {self._safe(repr(error))}. {_STRANGE}"
            ) from None

    @cached_property
    def sdk(self) -> Any:
        """label_studio_sdk.LabelStudio over the same connections. Raises MissingExtra, Refused for a bad token."""
        httpx = library()
        import label_studio_sdk
        from label_studio_sdk.core.api_error import ApiError

        # Compressing costs more than it saves when nothing crosses a network.
        encoding = {"Accept-Encoding": "identity"} if urlsplit(self.url).hostname in _LOCAL else {}
        connections = httpx.Client(
            timeout=httpx.Timeout(self.request_seconds, connect=min(10.0, self.request_seconds)),
            follow_redirects=True,
            headers=encoding,
            transport=self._transport,
        )
        bounded(connections)
        weakref.finalize(self, connections.close)
        make: Any = label_studio_sdk.LabelStudio
        try:
            # The trailing slash keeps a sub-path when the SDK renews an access token.
            return make(base_url=self.url + "/", api_key=self._token, httpx_client=connections, max_retries=0)
        except ApiError as error:
            raise Refused(f"the token for {self.url} is not usable: {error.body}. {_ADVICE[401]}") from None

    @cached_property
    def community(self) -> bool:
        """Whether this is the Community edition (no assignments)."""
        version = self.get("/api/version/", replies.version)
        return str(version.get("edition", "Community")).lower() == "community"

    def now(self) -> datetime:
        """The server's clock (whole seconds)."""
        found: datetime = self._repeat("GET", "/api/version/", {}, reader=replies.version, made=server_time)
        return found

    def users(self) -> list[dict[str, Any]]:
        """All who may annotate."""
        listed = self.get("/api/users/", replies.users)
        return list(replies.users(listed))

    def user(self, key: str) -> Mapping[str, Any] | None:
        """The user with this id; None where there is none."""
        if not key.isdecimal():
            return None
        try:
            answer: Mapping[str, Any] = self.get(f"/api/users/{key}/", replies.user)
        except Missing:
            return None
        return answer

    def project(self, number: int) -> Mapping[str, Any]:
        """A project as the server describes it."""
        answer: Mapping[str, Any] = self.get(f"/api/projects/{number}/", replies.PROJECT)
        return answer

    def tasks_page(
        self,
        project: int,
        include: Sequence[str],
        *,
        after: int = 0,
        filters: Sequence[Mapping[str, object]] = (),
        page_size: int = 500,
    ) -> TaskPage:
        """The next tasks with an id above `after` that pass the filters (keyset paging: nothing lost or doubled)."""
        above = where("id", "greater", "Number", after)
        query = {"filters": {"conjunction": "and", "items": [above, *filters]}, "ordering": ["tasks:id"]}
        parameters = {
            "project": project,
            "fields": "all",
            "page": 1,
            "page_size": page_size,
            "include": ",".join(include),
            "query": json.dumps(query, separators=(",", ":")),
        }
        body = self.get("/api/tasks", replies.tasks(include), **parameters)
        if any(task["id"] <= after for task in body["tasks"]):  # the filter was left aside: it would go on for ever
            raise NoAnswer(f"{self.url} answered GET /api/tasks with tasks that it gave before. {_STRANGE}")
        return TaskPage(body["tasks"], body["total"])

    def tasks(
        self,
        project: int,
        include: Sequence[str],
        *,
        filters: Sequence[Mapping[str, object]] = (),
        page_size: int = 1000,
    ) -> Iterator[dict[str, Any]]:
        """All tasks of a project that pass the filters, in order of their ids."""
        after = 0
        while True:
            page = self.tasks_page(project, include, after=after, filters=filters, page_size=page_size)
            yield from page.tasks
            if not page.more:
                return
            after = page.last

    def tasks_by_id(self, project: int, ids: Collection[int], include: Sequence[str]) -> dict[int, dict[str, Any]]:
        """Those of the tasks that exist in the project, by id."""
        wanted = sorted(set(ids))
        found: dict[int, dict[str, Any]] = {}
        for start in range(0, len(wanted), IDS_A_REQUEST):
            some = wanted[start : start + IDS_A_REQUEST]
            listed = self.tasks(project, include, filters=[where("id", "in_list", "Number", some)])
            found.update({int(task["id"]): task for task in listed})
        if strange := found.keys() - set(wanted):
            said = f"tasks that nobody asked for, {min(strange)} among them"
            raise NoAnswer(f"{self.url} answered GET /api/tasks with {said}. {_STRANGE}")
        return found

    def map(self, function: Callable[[Any], Any], items: Sequence[Any], threads: int = 4) -> list[Any]:
        """`function` of each item, a few at a time; the first error is raised, and what was not begun is left."""
        if not items:
            return []
        with ThreadPoolExecutor(min(threads, len(items))) as pool:
            results = [pool.submit(function, item) for item in items]
            try:
                return [result.result() for result in results]
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def _repeat(
        self,
        method: str,
        path: str,
        parameters: Mapping[str, object],
        body: object = None,
        *,
        reader: Reader,
        made: Callable[[httpx.Response], Any] | None = None,
    ) -> Any:
        """The answer to a request that may be repeated without harm; that it will be is logged as a warning.

        What something else than Label Studio answers is asked for once more: a page in between may be gone by then.
        """
        last, strange = time.monotonic() + REPEAT_SECONDS, 0

        def ask() -> Any:
            response = self._request(method, path, parameters, body)
            answer = self._read(response, reader)
            return answer if made is None else made(response)

        for again, usual in enumerate(WAITS, start=1):
            try:
                return ask()
            except Unreachable as error:
                strange += isinstance(error, NoAnswer)
                wait = usual if error.retry_after is None else min(error.retry_after, LONGEST_WAIT)
                if strange > 1 or time.monotonic() + wait > last:
                    raise
                self._warn(wait, f"trying again in {wait:.0f} s ({again} of {len(WAITS)})")
                time.sleep(wait)
        return ask()

    def _within(self, method: str) -> AbstractContextManager[None]:
        """The time that a request has. Raises where it would write and no more may be written."""
        if self._may_write is None or method == "GET":
            return within(self.request_seconds)
        return within(self.request_seconds, sending=WITHIN_LEASE * self._may_write())

    def _warn(self, wait: float, what: str) -> None:
        """Log that there was no answer, once for all threads that wait for one."""
        with self._connecting:
            now = time.monotonic()
            if now < self._quiet_until:
                return
            self._quiet_until = now + wait
        _log.warning("no answer from %s, %s", self.url, what)

    def _request(self, method: str, path: str, parameters: Mapping[str, object], body: object = None) -> httpx.Response:
        httpx = library()
        from label_studio_sdk.core.api_error import ApiError

        content = None if body is None else json.dumps(body, ensure_ascii=False).encode("utf-8", "backslashreplace")
        headers = {} if body is None else {"content-type": "application/json"}
        asked = f"{method} {path}"
        try:
            with self._connecting:
                sender = self.sdk._client_wrapper.httpx_client
            with self._within(method):
                response = sender.request(
                    path,
                    method=method,
                    params=dict(parameters) or None,
                    content=content,
                    headers=headers,
                    request_options={"timeout": self.request_seconds},
                )
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise Unreachable(f"{self.url} did not answer {asked}: {self._safe(repr(error))}. {_GONE}") from None
        except ApiError as error:  # renewing the access token failed
            raise self._error(asked, error.status_code or 401, str(error.body), None) from None
        except _NOT_READ as error:  # so did renewing it, with an answer that is none
            raise NoAnswer(f"{self.url} did not answer {asked}: {self._safe(repr(error))}. {_STRANGE}") from None
        if response.status_code >= 400:
            detail = _detail(response)
            raise self._error(asked, response.status_code, detail, response.headers.get("retry-after"))
        if response.request.method != method:  # a redirect has made a GET of it
            raise self._strange(response, f"{asked} with a redirect to {response.request.url.copy_with(query=None)}")
        return response  # type: ignore[no-any-return, unused-ignore]

    def _error(self, request: str, status: int, detail: str, retry_after: str | None) -> Exception:
        said = f"Label Studio at {self.url} said {status} for {request}: {self._safe(detail)}"
        if status >= 500 or status in (408, 429):
            said_when = retry_after is not None and retry_after.isascii() and retry_after.isdigit()
            hint = min(float(retry_after or 0), LONGEST_HINT) if said_when else None
            return Unreachable(f"{said}. {_FAILED}", hint)
        advice = _LEGACY if "legacy" in detail.lower() else _ADVICE.get(status, _ADVICE[400])
        return (Missing if status == 404 else Refused)(f"{said}. {advice}")

    def _safe(self, text: str) -> str:
        return text.replace(self._token, "***")[:400] if self._token else text[:400]

    def _read(self, response: httpx.Response, reader: Reader) -> Any:
        """The JSON of an answer, if the reader knows it."""
        asked = f"{response.request.method} {response.request.url.path}"
        if not response.content:
            answer = None
        else:
            try:
                answer = json.loads(response.content)
            except (ValueError, RecursionError):
                raise self._strange(response, f"{asked} with something that is not JSON") from None
        try:
            return reader(answer)
        except WrongShape as error:
            raise self._strange(response, f"{asked} with JSON of another shape, answer{error}") from None

    def _strange(self, response: httpx.Response, what: str) -> NoAnswer:
        return NoAnswer(f"{self.url} answered {self._safe(what)}. {_STRANGE}")


def where(column: str, operator: str, kind: str, value: object) -> dict[str, object]:
    """A filter of the Data Manager: the tasks whose column is so."""
    return {"filter": f"filter:tasks:{column}", "operator": operator, "type": kind, "value": value}


def server_time(response: httpx.Response) -> datetime:
    """The server's clock when it answered (whole seconds)."""
    try:
        return parsedate_to_datetime(response.headers["date"]).astimezone(UTC)
    except (KeyError, ValueError):
        return datetime.now(UTC)


def library() -> Any:
    """httpx, which loads with the first request. Raises MissingExtra."""
    try:
        import httpx
        import label_studio_sdk  # noqa: F401 - says here, in our words, that it is missing
    except ImportError as error:
        raise MissingExtra(f'Label Studio needs {error.name}: pip install "hitl-toolkit[label-studio]"') from None
    return httpx


def _detail(response: httpx.Response) -> str:
    try:
        body = response.json()
    except ValueError:
        return str(response.reason_phrase)
    if not isinstance(body, dict):
        return str(body)
    parts = [str(body.get("detail", ""))]
    if body.get("validation_errors"):
        parts.append(json.dumps(body["validation_errors"], ensure_ascii=False))
    return " ".join(part for part in parts if part) or str(body)
