"""Send JSON requests to a server (httpx), with our errors.

Reads are repeated when the server does not answer; writes are not. Under a fence, every write first checks that the
lease is still held.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import httpx

from hitl.errors import Refused, Unreachable
from hitl.formatting import masked

WAITS = (1.0, 2.0, 4.0)
"""Seconds before each repetition of a read."""
SECONDS = 60.0
"""Seconds that a request waits for the next byte."""
ANYWHERE = "Check source.url and that the project is named as on the server"

Json = dict[str, Any]


class Rest:
    """Client of one server. `login`: user and password, or None; `token`: bearer token, or None.

    Methods raise Refused for 4xx responses, and Unreachable if no answer comes or the server fails.
    """

    name = "server"
    advice: ClassVar[Mapping[int, str]] = {}
    """Status of a refusal -> what to do about it."""

    def __init__(self, url: str, login: tuple[str, str] | None = None, token: str | None = None) -> None:
        self.url = url.rstrip("/")
        headers = {"Authorization": f"Bearer {token.strip()}"} if token else {}
        self._http = httpx.Client(base_url=self.url, auth=login, headers=headers, timeout=SECONDS)
        weakref.finalize(self, self._http.close)
        self._may_write: Callable[[], float] | None = None

    def fence(self, may_write: Callable[[], float] | None) -> None:
        """Call `may_write` before every write: it raises if writing is not allowed any more. None: no fence."""
        self._may_write = may_write

    def get(self, path: str, **parameters: Any) -> Json:
        """Return the JSON object at `path`."""
        return self._read("GET", path, params=parameters)

    def ask(self, path: str, **body: object) -> Json:
        """Return the JSON object that a POST to `path` answers, where the POST only reads."""
        return self._read("POST", path, json=body)

    def write(self, method: str, path: str, **body: object) -> Json:
        """Send a write, once, and return the JSON object of its answer; an empty one if it has no content."""
        if self._may_write is not None:
            self._may_write()
        return self._answer(method, path, json=body)

    def text(self, path: str) -> str:
        """Return the text at `path`."""
        return self._sent("GET", path).text.strip()

    def _read(self, method: str, path: str, **given: Any) -> Json:
        for wait in WAITS:
            try:
                return self._answer(method, path, **given)
            except Unreachable:
                time.sleep(wait)
        return self._answer(method, path, **given)

    def _answer(self, method: str, path: str, **given: Any) -> Json:
        response = self._sent(method, path, **given)
        if response.status_code == httpx.codes.NO_CONTENT:
            return {}
        try:
            answer = response.json()
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise Unreachable(f"{self.url}{path}: the answer is not of {self.name}. Is source.url its address?")
        return answer

    def _sent(self, method: str, path: str, **given: Any) -> httpx.Response:
        try:
            response = self._http.request(method, path, **given)
        except httpx.HTTPError as error:
            said = masked(str(error))
            raise Unreachable(f"{self.url}: no answer ({said}). Check that {self.name} runs there") from None
        code = response.status_code
        if code == httpx.codes.TOO_MANY_REQUESTS or code >= 500:
            raise Unreachable(f"{self.url}{path}: the server failed ({code}): {_said(response)}")
        if code >= 300:
            advice = self.advice.get(code, ANYWHERE)
            raise Refused(f"{self.url}{path}: refused ({code}): {_said(response)}. {advice}")
        return response


def _said(response: httpx.Response) -> str:
    """Return what the server said, on one line."""
    try:
        text = str(response.json()["message"])
    except (ValueError, KeyError, TypeError):
        text = response.text
    return masked(" ".join(text.split())[:300]).rstrip(".")
