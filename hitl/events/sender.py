"""Send due events to the addresses of `[[events]]`, during `hitl schedule` and `hitl serve` and after single commands.

    2xx                  delivered; the next event for this address is sent at once
    410                  the receiver has unsubscribed: nothing is sent until `hitl events --test` succeeds
    other status, none   retried after `PAUSES` with some jitter, or later if the receiver says so; finally given up

Each address has its own thread, so a slow or dead receiver delays no other address, run or page. After a failed
attempt, other events for the address wait for the next check of the queue. A request ends at its timeout even if the
receiver hangs, answers byte by byte, or never stops sending. Redirects are not followed, because a signed event must go
to the configured address. Descriptions of an attempt include the response status, but neither the address nor the
response body.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import random
import socket
import ssl
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from hitl.errors import StoreError
from hitl.events.bodies import as_sent, ping
from hitl.store.events import Counted, Delivery, Event

if TYPE_CHECKING:
    from hitl.settings import Settings
    from hitl.settings.events import EventSettings
    from hitl.store import Store

SECONDS = 15.0  # timeout of a request, in seconds
HELD = 4 * SECONDS
"""Seconds for which a sender locks a delivery. If it is not settled by then, the sender must have been killed."""
PAUSES = (5.0, 5 * 60.0, 30 * 60.0, 2 * 3600.0, 5 * 3600.0, 10 * 3600.0, 14 * 3600.0, 20 * 3600.0, 24 * 3600.0)
"""Seconds before the second attempt, the third, and so on: the schedule of the Standard Webhooks specification."""
JITTER = 0.2  # maximum share by which a pause is lengthened at random
LONGEST_WAIT = 24 * 3600.0  # maximum seconds that a receiver may ask us to wait
KEPT_WAITING = 5 * 24 * 3600.0
"""Seconds after which an event is given up if it cannot be sent: its address lacks a setting or was removed."""
TURN = 2.0  # seconds between two checks of the queue
OFF = "the address answered 410 (gone): nothing more is sent to it; when it takes events again: `hitl events --test`"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Answer:
    """Outcome of a request.

    Attributes:
        status: HTTP status, or None if there was no response.
        said: description of the outcome.
        retry_after: seconds that the receiver asks to wait, or None.
    """

    status: int | None
    said: str
    retry_after: float | None = None

    @property
    def arrived(self) -> bool:
        """True if the receiver accepted the request."""
        return self.status is not None and 200 <= self.status < 300


def ask(method: str, url: str, headers: Mapping[str, str], body: bytes | None, seconds: float) -> Answer:
    """Send one request, which ends after `seconds`. Network errors are not raised, but described in the answer."""
    import httpx

    async def sent() -> Answer:
        try:
            async with (
                httpx.AsyncClient(
                    verify=ssl.create_default_context(), trust_env=False, timeout=0.9 * seconds
                ) as client,
                asyncio.timeout(seconds),  # httpx limits each read, but a receiver could make reads without end
                client.stream(method, url, headers={"User-Agent": "hitl", **headers}, content=body) as response,
            ):
                phrase = httpx.codes.get_reason_phrase(response.status_code)
                wait = _retry_after(response.headers.get("retry-after", ""))
                return Answer(response.status_code, f"{response.status_code} {phrase}".strip(), wait)
        finally:
            await asyncio.sleep(0)  # let the event loop finish closing connections

    try:
        return asyncio.run(sent())
    except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
        return Answer(None, _in_words(error, seconds))


def signed(identity: str, at: int, body: bytes, keys: Sequence[bytes]) -> dict[str, str]:
    """Return the headers of a request, with a signature for each key as Standard Webhooks specifies.

    `identity`: id of the event. `at`: time of the attempt, in seconds since the epoch.
    """
    from standardwebhooks import Webhook

    headers = {"webhook-id": identity, "webhook-timestamp": str(at)}
    when, text = datetime.fromtimestamp(at, UTC), body.decode()
    if keys:
        headers["webhook-signature"] = " ".join(Webhook(key).sign(identity, when, text) for key in keys)
    return headers


def _retry_after(text: str) -> float | None:
    """Parse a Retry-After header, which has seconds or a date, to seconds from now. Return None if it has neither."""
    if text.isascii() and text.isdigit():
        return float(text[:9])
    with suppress(ValueError, TypeError, OverflowError):
        return max(parsedate_to_datetime(text).timestamp() - time.time(), 0.0)
    return None


def _in_words(error: BaseException | None, seconds: float) -> str:
    """Explain why there is no response, from the first known error in the chain of causes."""
    import httpx

    while error is not None:
        if isinstance(error, TimeoutError | httpx.TimeoutException):
            return f"no answer within {seconds:g} s"
        if isinstance(error, ssl.SSLCertVerificationError):
            return f"its certificate is not trusted: {error.verify_message}"
        if isinstance(error, ssl.SSLError):
            return f"no secure connection: {error.reason or 'TLS failed'}"
        if isinstance(error, socket.gaierror):
            return "no such host"
        if isinstance(error, ConnectionRefusedError):
            return "Connection refused"
        if isinstance(error, httpx.RemoteProtocolError):
            silent = "without sending" in str(error)
            return "the connection was closed without an answer" if silent else "what answers does not speak HTTP"
        error = error.__cause__ or error.__context__
    return "the connection failed"


def pause(attempts: int, retry_after: float | None = None) -> float:
    """Return the seconds to wait after this many attempts, or longer if the receiver asks for it (`LONGEST_WAIT`)."""
    jittered = PAUSES[attempts - 1] * random.uniform(1.0, 1.0 + JITTER)  # nosec B311
    return max(jittered, min(retry_after or 0.0, LONGEST_WAIT))


@dataclass(frozen=True)
class Address:
    """One address of a project, and the store that queues its events."""

    store: Store
    project: str
    to: EventSettings

    @property
    def digest(self) -> str:
        """Digest of the URL, to detect that it has changed."""
        return hashlib.sha256(self.to.address.encode()).hexdigest()[:16]

    def send(self, it: Delivery | Event, seconds: float) -> Answer:
        """Send an event within `seconds`, and return the outcome. An event that cannot be formatted is not sent."""
        try:
            body = as_sent(it.body, self.to.template)
        except Exception as error:
            _log.exception("events of %s for %s: %s cannot be written", self.project, self.to.name, it.kind)
            return Answer(None, f"hitl cannot write this event ({type(error).__name__}: {error})")
        headers = signed(it.event if isinstance(it, Delivery) else it.id, int(time.time()), body, self.to.keys)
        return ask("POST", self.to.address, {"Content-Type": "application/json", **headers}, body, seconds)

    def reach(self) -> Answer:
        """Send a HEAD request, without an event. Any status in the answer shows that the address can be reached."""
        return ask("HEAD", self.to.address, {}, None, SECONDS)

    def test(self) -> Answer:
        """Send a ping outside the queue. If it is accepted, an address that was turned off by 410 is active again."""
        answer = self.send(ping(self.project), SECONDS)
        if answer.arrived:
            self.store.switch(self.project, self.to.name, self.digest, off=False)
        return answer

    def turn(self, until: float, stop: threading.Event) -> None:
        """Send due events in order, until none is left, one fails, or time is up.

        Time is up if `until` (of `time.monotonic`) is near, or if `stop` is set. If the address lacks a setting, only
        give up events older than `KEPT_WAITING`.
        """
        store, project, name = self.store, self.project, self.to.name
        if self.to.lacks is not None:
            said = f"given up: {self.to.lacks}"
            if store.give_up(project, name, said, before=time.time() - KEPT_WAITING):
                _log.warning("events of %s for %s are %s", project, name, said)
            return
        while not stop.is_set() and (left := until - time.monotonic()) > 1.0:
            it = store.claim(project, name, HELD)
            if it is None:
                return
            if store.is_off(project, name, self.digest):
                store.not_sent(project, it)
                store.give_up(project, name, OFF)
                return
            if not self.settle(it, self.send(it, min(SECONDS, left))):
                return

    def settle(self, it: Delivery, answer: Answer) -> bool:
        """Record the outcome of an attempt. Return True if it was delivered."""
        store, project, name = self.store, self.project, self.to.name
        if answer.arrived:
            store.arrived(project, it, answer.said)
        elif answer.status == HTTPStatus.GONE:
            store.switch(project, name, self.digest, off=True)
            store.lost(project, it, OFF)
            _log.warning("events of %s for %s: %s", project, name, OFF)
        elif it.attempts > len(PAUSES):
            store.lost(project, it, f"given up after {it.attempts} attempts: {answer.said}")
            _log.warning("events of %s for %s: %s given up: %s", project, name, it.kind, answer.said)
        else:
            store.later(project, it, answer.said, pause(it.attempts, answer.retry_after))
        return answer.arrived


def addresses_of(settings: Settings, store: Store) -> tuple[Address, ...]:
    """Return the addresses that a project sends events to."""
    return tuple(Address(store, settings.name, one) for one in settings.events)


def address_rows(settings: Settings, store: Store) -> list[dict[str, Any]]:
    """Return the addresses of a project and their counts of events, as JSON values without secrets."""
    counts = store.count_deliveries(settings.name)
    return [
        {"address": to.name, "at": to.shown, "lacks": to.lacks, **asdict(counts.get(to.name, Counted()))}
        for to in settings.events
    ]


def forget_others(settings: Settings, store: Store) -> None:
    """Give up events older than `KEPT_WAITING` for addresses that are no longer in the settings."""
    named = {one.name for one in settings.events}
    for name, count in store.count_deliveries(settings.name).items():
        if count.waiting and name not in named:
            before = time.time() - KEPT_WAITING
            store.give_up(settings.name, name, "given up: this address is no longer in hitl.toml", before)


class Sender:
    """Send the events of some projects, with a thread per address, until stopped.

    If `seconds` is given, each thread sends the events that are due, for at most this time, and ends.
    """

    def __init__(self, projects: Iterable[tuple[Settings, Store]], seconds: float | None = None) -> None:
        self._projects, self._seconds, self._stop = tuple(projects), seconds, threading.Event()
        self.threads = [
            threading.Thread(target=self._send, args=(one,), name=f"hitl events {one.to.name}", daemon=True)
            for project in self._projects
            for one in addresses_of(*project)
        ]

    def start(self) -> None:
        """Start the threads."""
        for project in self._projects:
            forget_others(*project)
        for thread in self.threads:
            thread.start()

    def stop(self, seconds: float = 2.0) -> None:
        """Stop the threads, and wait up to `seconds` for requests in progress. Unfinished ones are sent again later."""
        self._stop.set()
        self.join(seconds)

    def join(self, seconds: float) -> None:
        """Wait up to `seconds` for the threads to end."""
        until = time.monotonic() + seconds
        for thread in self.threads:
            if thread.ident is not None:
                thread.join(max(until - time.monotonic(), 0.0))

    def _send(self, address: Address) -> None:
        until = time.monotonic() + self._seconds if self._seconds else float("inf")
        while not self._stop.is_set():
            try:
                address.turn(until, self._stop)
            except StoreError as error:
                _log.warning("events of %s: %s", address.project, error)
            except Exception:  # the next turn may succeed, whatever the error is
                _log.exception("events of %s for %s", address.project, address.to.name)
            if self._seconds is not None:
                return
            self._stop.wait(TURN)


def deliver(settings: Settings, store: Store, seconds: float = 10.0) -> None:
    """Send due events for at most `seconds`. Other events wait for the next call."""
    if not settings.events:
        return
    sender = Sender([(settings, store)], seconds)
    try:
        sender.start()
    except StoreError as error:
        _log.warning("events of %s: %s", settings.name, error)
    sender.join(seconds + 1.0)


@contextmanager
def delivering(settings: Settings, store: Store) -> Iterator[None]:
    """Return a context that sends due events at its end, even if an error is raised in it."""
    try:
        yield
    finally:
        deliver(settings, store)
