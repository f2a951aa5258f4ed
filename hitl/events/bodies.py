"""Format an event as it is sent: JSON, or text for chat tools.

    json     {"type": "items.decided", "timestamp": "2026-11-23T12:00:00.000Z", "data": {...}}
    slack    {"text": "..."}, for Slack, Mattermost and other chat tools

Names come from users and platforms, and must not act as markup or mention anyone in a chat. So they are put in
backquotes, where chat tools ignore markup and mentions. In addition, &, < and > are escaped, control characters become
escapes such as \\u001b, and long names are cut.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from hitl.formatting import counted, percent, plain
from hitl.store.events import Event

PING = "ping"
SHOWN = 80  # maximum characters of a name in a text
LONGEST = 500  # maximum characters of an error or a problem
LONGEST_TEXT = 3500
"""Maximum number of characters of a text, without the URL at its end. Slack cuts texts at 4,000."""

DOTS = re.compile(r"~*\.{1,2}")
"""Names that browsers drop from a path ("." and ".."), and names that look like their escaped form ("~.")."""


def path(part: object) -> str:
    """Escape a name for use as one segment of a URL path. `named` of the web pages decodes it."""
    name = str(part)
    return f"~{name}" if DOTS.fullmatch(name) else quote(name, safe="")


def page_of(base: str | None, project: str, *parts: object) -> str | None:
    """Return the URL of a page of a project, or None if no base URL is set."""
    return None if base is None else "/".join((base.rstrip("/"), "projects", *map(path, (project, *parts))))


def body_of(kind: str, at: float, data: Mapping[str, Any]) -> str:
    """Return the JSON text of an event. It is ASCII, so its bytes do not depend on an encoding.

    `at`: time of the event, in seconds since the epoch.
    """
    when = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    body = {"type": kind, "timestamp": when, "data": json_value(data)}
    return json.dumps(body, separators=(",", ":"), allow_nan=False)


def ping(project: str) -> Event:
    """Return a test event."""
    now = time.time()
    return Event(PING, now, body_of(PING, now, {"project": project}), ())


def as_sent(body: str, template: str) -> bytes:
    """Return the bytes to send for a JSON `body` (`body_of`), in the format of the `template`."""
    if template == "json":
        return body.encode()
    return json.dumps({"text": text_of(json.loads(body))}, separators=(",", ":")).encode()


def text_of(event: Mapping[str, Any]) -> str:
    """Describe an event in words. Raises KeyError for an unknown kind of event."""
    data = event["data"]
    lines = [f"*hitl* {_name(data['project'])}: {_first_line(event['type'], data)}", *_more_lines(event["type"], data)]
    while len(lines) > 1 and sum(map(len, lines)) > LONGEST_TEXT:  # a name cut in half would lose its end quote
        lines = [*lines[:-2], "…"] if lines[-1] == "…" else [*lines[:-1], "…"]
    return "\n".join([*lines, *([_safe(data["url"])] if data.get("url") else [])])


def _first_line(kind: str, data: Mapping[str, Any]) -> str:
    if kind == "items.decided":
        newly = f"{counted(data['decided'], 'item')} newly decided" if data["decided"] else ""
        changed = f"{counted(data['changed'], 'decided item')} changed label" if data["changed"] else ""
        question = f"{_name(data['question'])}: " if data.get("question") else ""
        news = ", ".join(filter(None, (newly, changed)))
        return f"{question}{news}; {data['done']:,} of {data['of']:,} items are done"
    if kind == "annotator.drifted":
        way = "better" if data["after"] > data["before"] else "worse"
        question = f" at {_name(data['question'])}" if data["question"] else ""
        since = f", since {data['since'][:10]}" if data["since"] else ""
        shares = f"{percent(data['before'], 0)} right, then {percent(data['after'], 0)}"
        return f"{_name(data['annotator'])} became {way}{question}: {shares}{since}"
    if kind == "target.reached":
        reached = f"the target of {_name(data['question'])} is reached" if data["question"] else "the project is done"
        return f"{reached}: {_safe(data['why'])}"
    if kind == "project.stopped":
        return f"stopped below the target. {_safe(' '.join([*data['state'], data['advice']]))}"
    if kind == "run.failed":
        return f"the run failed: {_name(data['message'], LONGEST)}"
    if kind == "run.recovered":
        return f"runs succeed again; they had failed since {data['failed_since']}"
    if kind == "items.left_out":
        return f"{counted(data['count'], 'thing was', 'things were')} left out because they could not be read"
    if kind == "plan.waits":
        return f"a plan waits for approval: {counted(data['questions'], 'question')}"
    return {PING: "events arrive here"}[kind]


def _more_lines(kind: str, data: Mapping[str, Any]) -> list[str]:
    if kind == "items.left_out":
        return [f"• {_name(text, LONGEST)}" for text in data["problems"]]
    if kind != "items.decided":
        return []
    lines = []
    for item in data["items"]:
        labels = ", ".join(_name(label) for label in item["labels"].values())
        url = f" {_safe(item['url'])}" if item.get("url") else ""
        lines.append(f"• {_name(item['item'])}: {labels} ({percent(item['confidence'], 0)}){url}")
    more = data["decided"] + data["changed"] - len(data["items"])
    return [*lines, f"… and {more:,} more"] if more > 0 else lines


def sentence(text: str) -> str:
    """Replace secrets in a text by stars, escape control characters, and cut it to `LONGEST` characters."""
    text = plain(text)
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def json_value(value: Any) -> Any:
    """Convert to JSON values. NaN and infinity become None, numpy types Python types, other objects text."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): json_value(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(part) for part in value]
    return value if value is None or isinstance(value, str | int | bool) else str(value)


def _name(name: object, longest: int = SHOWN) -> str:
    text = " ".join(plain(str(name)).split()).replace("`", "'")
    return f"`{_safe(text if len(text) <= longest else text[: longest - 1] + '…')}`"


def _safe(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
