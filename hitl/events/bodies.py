"""An event as it is sent: JSON, or text for chat tools.

    json     {"type": "items.decided", "timestamp": "2026-11-23T12:00:00Z", "data": {...}}
    slack    {"text": "..."}, as Slack, Mattermost and others take it

Names come from users and platforms: in text they act on nothing. They stand in code quotes, where chat tools mention
nobody and know no markup; &, < and > are escaped, control characters spelled out, long ones cut.
"""

from __future__ import annotations

import json
import math
import os
import re
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from hitl.formatting import counted, plain
from hitl.store.events import Event

if TYPE_CHECKING:
    from hitl.settings import Settings

PING = "ping"
SHOWN = 80
"""Characters of a name in text."""

LONGEST = 500
"""Characters of a sentence: an error, a reason."""

LONGEST_TEXT = 3500
"""Characters of a text; Slack cuts at 4,000."""


DOTS = re.compile(r"~*\.{1,2}")
"""Names that browsers take out of an address, and those that could be taken for them where they are escaped."""


def path(part: object) -> str:
    """A name as a part of an address; `named` of the pages reads it.

    Example:
        >>> path("a/b"), path("..")
        ('a%2Fb', '~..')
    """
    name = str(part)
    return f"~{name}" if DOTS.fullmatch(name) else quote(name, safe="")


def page_of(base: str | None, project: str, *parts: object) -> str | None:
    """The address of a page of a project; None where nobody has said where the pages are.

    Example:
        >>> page_of("https://hitl.example/", "pets", "items", "a/b")
        'https://hitl.example/projects/pets/items/a%2Fb'
    """
    return None if base is None else "/".join((base.rstrip("/"), "projects", *map(path, (project, *parts))))


def body_of(kind: str, at: float, data: Mapping[str, Any]) -> str:
    """The body of an event that happened at this time; ASCII, so that it is the same bytes everywhere."""
    when = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return json.dumps({"type": kind, "timestamp": when, "data": _json(data)}, separators=(",", ":"), allow_nan=False)


def ping(project: str) -> Event:
    """An event that says that events arrive."""
    now = time.time()
    return Event(PING, now, body_of(PING, now, {"project": project}), ())


def as_sent(body: str, template: str) -> bytes:
    """What is sent of a body."""
    if template == "json":
        return body.encode()
    return json.dumps({"text": text_of(json.loads(body))}, separators=(",", ":")).encode()


def text_of(event: Mapping[str, Any]) -> str:
    """An event in words."""
    data = event["data"]
    said = _WORDS.get(event["type"], _unknown)(data)
    lines = f"*hitl* {_name(data.get('project', ''))}: {said}".split("\n")
    while len(lines) > 1 and sum(map(len, lines)) > LONGEST_TEXT:  # whole lines: half a name would act as markup
        lines = [*lines[:-2], "…"] if lines[-1] == "…" else [*lines[:-1], "…"]
    return "\n".join([*lines, *([_safe(data["url"])] if data.get("url") else [])])


def sentence(text: str, settings: Settings) -> str:
    """What was said of something, without secrets and not too long."""
    hidden = [value for name, value in os.environ.items() if name.startswith("HITL_") and _SECRET.search(name)]
    for one in settings.events:
        hidden += [one.address, *("" if one.secret is None else one.secret.get_secret_value()).split()]
    hidden += [] if settings.webhook_secret is None else [settings.webhook_secret.get_secret_value()]
    for secret in sorted(filter(lambda each: len(each) > 3, hidden), key=len, reverse=True):
        text = text.replace(secret, "***")
    text = plain(text)
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


_SECRET = re.compile(r"(TOKEN|SECRET|PASSWORD|EVENTS_\w+_URL)$")
"""How variables end whose values are not to be told."""


def _decided(data: Mapping[str, Any]) -> str:
    lines = [f"{counted(data['decided'], 'item')} decided"]
    lines[0] += f", {data['changed']:,} with another label than before" if data["changed"] else ""
    lines[0] += f"; {data['done']:,} of {data['of']:,} are done"
    for item in data["items"]:
        labels = ", ".join(_name(label) for label in item["labels"].values())
        line = f"• {_name(item['item'])}: {labels} ({item['confidence']:.0%})"
        lines.append(line + (f" {_safe(item['url'])}" if item.get("url") else ""))
    more = data["decided"] + data["changed"] - len(data["items"])
    return "\n".join([*lines, *([f"… and {more:,} more"] if more > 0 else [])])


def _drifted(data: Mapping[str, Any]) -> str:
    way = "better" if data["after"] > data["before"] else "worse"
    question = f" at {_name(data['question'])}" if data["question"] else ""
    since = f", since {data['since'][:10]}" if data["since"] else ""
    shares = f"{data['before']:.0%} right, then {data['after']:.0%}"
    return f"{_name(data['annotator'])} became {way}{question}: {shares}{since}"


def _reached(data: Mapping[str, Any]) -> str:
    what = f"the target of {_name(data['question'])} is reached" if data["question"] else "the project is done"
    return f"{what}: {_safe(data['why'])}"


def _failed(data: Mapping[str, Any]) -> str:
    return f"the cycle failed: {_name(data['message'], LONGEST)}"


def _recovered(data: Mapping[str, Any]) -> str:
    return f"cycles work again; they had failed since {data['failed_since']}"


def _left_out(data: Mapping[str, Any]) -> str:
    lines = [f"{counted(data['count'], 'thing was', 'things were')} left out that could not be understood"]
    return "\n".join([*lines, *(f"• {_name(text, LONGEST)}" for text in data["problems"])])


def _waits(data: Mapping[str, Any]) -> str:
    return f"a plan waits to be approved: {counted(data['questions'], 'question')}"


def _ping(data: Mapping[str, Any]) -> str:
    return "events arrive here"


def _unknown(data: Mapping[str, Any]) -> str:
    return "something happened that this version has no words for"


_WORDS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "items.decided": _decided,
    "annotator.drifted": _drifted,
    "target.reached": _reached,
    "cycle.failed": _failed,
    "cycle.recovered": _recovered,
    "items.left_out": _left_out,
    "plan.waits": _waits,
    PING: _ping,
}


def _name(name: object, longest: int = SHOWN) -> str:
    """A name in code quotes."""
    text = " ".join(plain(str(name)).split()).replace("`", "'")
    return f"`{_safe(text if len(text) <= longest else text[: longest - 1] + '…')}`"


def _safe(text: str) -> str:
    """Without what Slack takes for its own signs."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _json(value: Any) -> Any:
    """JSON values: no number that JSON does not know, nothing of numpy."""
    if isinstance(value, Mapping):
        return {str(key): _json(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_json(part) for part in value]
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
