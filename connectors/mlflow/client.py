"""Send requests to an MLflow server (REST, httpx), with our errors, and read traces, questions and review queues.

Reads are repeated when the server does not answer; writes are not, because MLflow has no conditional write and a
repeated POST is a second row. Under a fence, every write first checks that the lease is still held.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import httpx

from hitl.errors import Refused, Unreachable
from hitl.formatting import masked

WAITS = (1.0, 2.0, 4.0)
"""Seconds before each repetition of a read."""
SECONDS = 60.0
"""Seconds that a request waits for the next byte."""
PAGE = 500
"""Traces of a request; MLflow refuses more."""
API = "/api/3.0/mlflow"

Json = dict[str, Any]


class Client:
    """Client of one MLflow server. `login`: user and password, or None; `token`: bearer token, or None.

    Methods raise Refused for 4xx responses, and Unreachable if no answer comes or the server fails.
    """

    def __init__(self, url: str, login: tuple[str, str] | None = None, token: str | None = None) -> None:
        self.url = url.rstrip("/")
        headers = {"Authorization": f"Bearer {token.strip()}"} if token else {}
        self._http = httpx.Client(base_url=self.url, auth=login, headers=headers, timeout=SECONDS)
        weakref.finalize(self, self._http.close)
        self._may_write: Callable[[], float] | None = None

    def fence(self, may_write: Callable[[], float] | None) -> None:
        """Call `may_write` before every write: it raises if writing is not allowed any more. None: no fence."""
        self._may_write = may_write

    def get(self, path: str, **parameters: object) -> Json:
        """Return the JSON object at `path`."""
        return self._read("GET", path, params=parameters)

    def ask(self, path: str, **body: object) -> Json:
        """Return the JSON object that a POST to `path` answers, where the POST only reads."""
        return self._read("POST", path, json=body)

    def write(self, method: str, path: str, **body: object) -> Json:
        """Send a write, once, and return the JSON object of its answer."""
        if self._may_write is not None:
            self._may_write()
        return self._answer(method, path, json=body)

    def version(self) -> str:
        """Return the server's version."""
        return self._sent("GET", "/version").text.strip()

    def pages(self, path: str, field: str, **parameters: object) -> Iterator[Json]:
        """Yield the rows in `field` of every page of a list."""
        token = ""
        while True:
            page = self.get(f"{API}/{path}", **parameters, **({"page_token": token} if token else {}))
            yield from page.get(field, [])
            token = page.get("next_page_token", "")
            if not token:
                return

    def traces(self, experiment: str, token: str | None) -> tuple[list[Json], str | None]:
        """Return a page of traces with their assessments, oldest first, and the token of the next page."""
        where = {"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": {"experiment_id": experiment}}
        more = {"page_token": token} if token else {}
        answer = self.ask(
            f"{API}/traces/search", locations=[where], max_results=PAGE, order_by=["timestamp_ms ASC"], **more
        )
        return answer.get("traces", []), answer.get("next_page_token") or None

    def infos(self, traces: Sequence[str]) -> Iterator[Json]:
        """Yield these traces with their assessments; those that do not exist are left out."""
        for start in range(0, len(traces), PAGE):
            ids = traces[start : start + PAGE]
            yield from self.ask(f"{API}/traces/batchGetInfos", trace_ids=list(ids)).get("trace_infos", [])

    def _read(self, method: str, path: str, **given: Any) -> Json:
        for wait in WAITS:
            try:
                return self._answer(method, path, **given)
            except Unreachable:
                time.sleep(wait)
        return self._answer(method, path, **given)

    def _answer(self, method: str, path: str, **given: Any) -> Json:
        response = self._sent(method, path, **given)
        try:
            answer = response.json()
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise Unreachable(
                f"{self.url}{path}: the answer is not that of an MLflow server. Is source.url its address?"
            )
        return answer

    def _sent(self, method: str, path: str, **given: Any) -> httpx.Response:
        try:
            response = self._http.request(method, path, **given)
        except httpx.HTTPError as error:
            raise Unreachable(f"{self.url}: no answer ({masked(str(error))}). Check that MLflow runs there") from None
        if response.status_code == 429 or response.status_code >= 500:
            raise Unreachable(f"{self.url}{path}: the server failed ({response.status_code}): {_said(response)}")
        if response.status_code >= 300:
            raise Refused(f"{self.url}{path}: refused ({response.status_code}): {_said(response)}. {_advice(response)}")
        return response


def _said(response: httpx.Response) -> str:
    """Return what the server said, on one line."""
    try:
        text = str(response.json()["message"])
    except (ValueError, KeyError, TypeError):
        text = response.text
    return masked(" ".join(text.split())[:300]).rstrip(".")


def _advice(response: httpx.Response) -> str:
    if response.status_code == 401:
        return "Set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN"
    if response.status_code == 403:
        return "hitl's account needs the permission EDIT on the experiment, and MANAGE to make questions"
    return "Check source.url and source.experiment"
