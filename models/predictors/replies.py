"""Replies of a language model behind the OpenAI protocol (chat completions): asked for, stored, paid within a budget.

Each reply is stored as it arrives, by a digest of what was asked. No reply that arrived is paid for again; after a
kill, at most the requests in flight are. Only the server that the settings name receives text.
"""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path
from threading import Condition
from typing import Any
from urllib.parse import urlsplit
from weakref import finalize

from hitl.errors import BadSettings, HitlError, StoreError, Unreachable
from hitl.formatting import hidden, remember
from hitl.models.predictors.features import digest_of
from hitl.models.predictors.predictor import LLM, required

RETRIES = 5
"""Retries by the SDK after 429, 5xx, a timeout or a lost connection. It waits longer each time, or as it is told."""

MAX_FAILURES = 10
"""Number of requests in a row that may fail after all retries before a run stops."""

OVERHEAD = 200
"""Maximum number of tokens that a server adds to the messages. A token of a message has at least one byte."""

IMAGE = 50_000
"""Maximum number of tokens that an image is assumed to count. Providers charge up to some 48,000."""

FEWER = 5
"""Alternatives of a token to ask for where a server refuses 20."""

FATAL = (401, 403, 404)


@dataclass(frozen=True, slots=True)
class Server:
    """A server, a model, and what they may cost.

    Attributes:
        base_url: address of the server, such as https://api.openai.com/v1.
        model: name of the model, as the server knows it.
        key: API key.
        concurrency: number of requests at a time.
        timeout: seconds that a request may take.
        max_tokens: maximum number of tokens of a reply.
        price: price of a million input and of a million output tokens.
        budget: maximum cost of all replies of one version, those of earlier runs included; None: no limit.
    """

    base_url: str
    model: str
    key: str
    concurrency: int = 8
    timeout: float = 60.0
    max_tokens: int = 64
    price: tuple[float, float] = (0.0, 0.0)
    budget: float | None = None

    def cost(self, input_tokens: int, output_tokens: int) -> float:
        """Return the price of these tokens."""
        return (input_tokens * self.price[0] + output_tokens * self.price[1]) / 1e6


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply: its text, and token -> log-probability where the answer begins (None if unknown)."""

    text: str
    alternatives: dict[str, float] | None
    input_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Usage:
    """Replies and tokens of all runs of one version, and how many replies this run found stored. No price: no cost."""

    version: str
    replies: int
    stored: int
    input_tokens: int
    output_tokens: int
    cost: float | None


@dataclass(frozen=True, slots=True)
class Prompt:
    """The question about an item: a text, and the address of an image ("" if there is none)."""

    text: str
    image: str = ""

    @property
    def content(self) -> Any:
        """Content of the user's message."""
        if not self.image:
            return self.text
        text = [{"type": "text", "text": self.text}] if self.text else []
        return [*text, {"type": "image_url", "image_url": {"url": self.image}}]


class Unanswered(Exception):
    """Nothing can be predicted for an item, for this reason. The others go on."""


class Replies:
    """Replies of a server to a system message and the prompts of items, stored in the SQLite file `path`.

    `version`: digest of the model and the prompt; replies of another one are not reused. `alternatives`: finds token ->
    log-probability of the answer in a text and its tokens. Raise BadSettings for an address that is none, MissingExtra
    without the SDK.
    """

    def __init__(
        self,
        server: Server,
        system: str,
        path: Path,
        version: str,
        alternatives: Callable[[str, Any], dict[str, float] | None] | None,
    ) -> None:
        self._openai = openai = required("openai", "--model openai:NAME", LLM)
        if urlsplit(server.base_url).scheme not in ("http", "https"):
            raise BadSettings("--base-url: expected the address of a server, such as https://api.openai.com/v1")
        # A redirect would send text to a server that nobody named.
        http = openai.DefaultHttpxClient(follow_redirects=False)
        named: dict[str, Any] = {"base_url": server.base_url, "api_key": remember(server.key), "http_client": http}
        self._client = openai.OpenAI(**named, timeout=server.timeout, max_retries=RETRIES)
        finalize(self, self._client.close)
        self._server, self._system, self._version, self._alternatives = server, system, version, alternatives
        self._parameters: dict[str, Any] = {"temperature": 0, "max_tokens": server.max_tokens}
        if alternatives is not None:
            self._parameters |= {"logprobs": True, "top_logprobs": 20}
        self._lock, self._failures, self._stored = Condition(), 0, 0
        self._reserved: list[float] = []
        self._fatal: HitlError | None = None
        self._over_budget = False
        self._path = path
        columns = "key PRIMARY KEY, version, item, text, alternatives, input_tokens, output_tokens"
        self._run(f"CREATE TABLE IF NOT EXISTS reply ({columns})")
        sums = "count(*), coalesce(sum(input_tokens), 0), coalesce(sum(output_tokens), 0)"
        self._totals = self._run(f"SELECT {sums} FROM reply WHERE version = ?", version)[0]  # nosec B608

    def usage(self) -> Usage:
        """Return the usage of this version, in this run and earlier ones."""
        n_replies, n_input, n_output = self._totals
        cost = self._server.cost(n_input, n_output) if any(self._server.price) else None
        return Usage(self._version, n_replies, self._stored, n_input, n_output, cost)

    def reply(self, item: str, prompt: Prompt, sample: int) -> Reply | None:
        """Return the stored reply, or ask for one; None beyond the budget.

        `sample`: 0, or from 1 on the number of a sample at temperature 1. Raise Unanswered if the server does not
        answer it, BadSettings if it refuses the key, the model or the address, and Unreachable if it no longer answers.
        """
        key = digest_of(self._version, item, prompt.text, prompt.image, sample)
        with self._lock:
            query = "SELECT text, alternatives, input_tokens, output_tokens FROM reply WHERE key = ?"
            for text, alternatives, *tokens in self._run(query, key):
                self._stored += 1
                return Reply(text, json.loads(alternatives), *tokens)
        characters = (self._system + prompt.text).encode()
        most = (len(characters) + OVERHEAD + IMAGE * bool(prompt.image), self._server.max_tokens)
        with self._reserve(self._server.cost(*most)) as affordable:
            if not affordable:
                return None
            reply = self._ask(prompt, min(sample, 1), most)
            text, alternatives, *tokens = astuple(reply)
            with self._lock:
                row = (key, self._version, item, text, json.dumps(alternatives), *tokens)
                self._run("INSERT INTO reply VALUES (?, ?, ?, ?, ?, ?, ?)", *row)
                self._totals = tuple(map(sum, zip(self._totals, (1, *tokens), strict=True)))
        return reply

    @contextmanager
    def _reserve(self, cost: float) -> Iterator[bool]:
        """Reserve the most that a request can cost. Yield False if the budget could be exceeded.

        Wait for the requests in flight before saying so: most cost less than was reserved for them.
        """
        budget = math.inf if self._server.budget is None else self._server.budget

        def fits() -> bool:
            return self._server.cost(*self._totals[1:]) + sum(self._reserved) + cost <= budget

        with self._lock:
            self._lock.wait_for(lambda: self._fatal or self._over_budget or not self._reserved or fits())
            if self._fatal is not None:
                raise self._fatal
            affordable = not self._over_budget and fits()
            self._over_budget = not affordable
            cost *= affordable
            self._reserved.append(cost)
        try:
            yield affordable
        finally:
            with self._lock:
                self._reserved.remove(cost)
                self._lock.notify_all()

    def _ask(self, prompt: Prompt, temperature: int, most: tuple[int, int]) -> Reply:
        openai, where = self._openai, f"the server {urlsplit(self._server.base_url).hostname}"
        try:
            completion = self._complete(prompt, temperature)
            choice, usage = completion.choices[0], completion.usage
            text = hidden(choice.message.content or "")
            tokens = choice.logprobs.content if choice.logprobs else None
            alternatives = self._alternatives(text, tokens) if self._alternatives and tokens else None
            # A server that does not count is assumed to have used the most.
            counts = most if usage is None else (int(usage.prompt_tokens), int(usage.completion_tokens))
        except (openai.APIError, ValueError, TypeError, AttributeError, IndexError, OverflowError) as error:
            status = getattr(error, "status_code", None)
            told = isinstance(error, openai.APIError)
            why = hidden(" ".join(str(error).split())[:200]) if told else "its reply is not of the OpenAI protocol"
            with self._lock:
                if status is not None and (300 <= status < 400 or status in FATAL):
                    self._fatal = BadSettings(
                        f"{where} refuses all requests for {self._server.model!r}: {status} {why}"
                    )
                    raise self._fatal from None
                if status is not None and status < 500 and status not in (408, 409, 429):
                    raise Unanswered(f"{where} refuses it: {why}") from None
                self._failures += 1
                if self._failures >= MAX_FAILURES:
                    stored = "the replies so far are stored; run it again to go on"
                    self._fatal = Unreachable(f"{where} no longer answers: {why}; {stored}")
                    raise self._fatal from None
            raise Unanswered(f"{where} does not answer: {why}") from None
        with self._lock:
            self._failures = 0
        return Reply(text, alternatives, *counts)

    def _complete(self, prompt: Prompt, temperature: int) -> Any:
        """Ask the server, without parameters that it refuses by name. Such a refusal is not charged."""
        messages = [{"role": "system", "content": self._system}, {"role": "user", "content": prompt.content}]
        while True:
            parameters = dict(self._parameters)
            own = parameters | ({"temperature": temperature} if "temperature" in parameters else {})
            try:
                return self._client.chat.completions.create(model=self._server.model, messages=messages, **own)
            except (self._openai.BadRequestError, self._openai.UnprocessableEntityError) as error:
                fewer = _without(parameters, str(getattr(error, "param", None) or error))
                if fewer == parameters:
                    raise
                self._parameters = fewer

    def _run(self, statement: str, *values: Any) -> list[Any]:
        try:
            with closing(sqlite3.connect(self._path)) as database, database:
                return database.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise StoreError(f"{self._path}: cannot be used to store replies: {error}") from None


def _without(parameters: Mapping[str, Any], refusal: str) -> dict[str, Any]:
    """Return the parameters without the one that a refusal names, or with a value that more servers accept."""
    fewer = dict(parameters)
    if "logprobs" in refusal and "logprobs" in fewer:
        if fewer["top_logprobs"] > FEWER:
            return fewer | {"top_logprobs": FEWER}
        del fewer["logprobs"], fewer["top_logprobs"]
    elif "max_tokens" in refusal and "max_tokens" in fewer:
        fewer["max_completion_tokens"] = fewer.pop("max_tokens")
    elif "temperature" in refusal:
        fewer.pop("temperature", None)
    return fewer
