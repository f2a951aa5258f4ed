"""Format results, names and counts for messages, and keep secrets out of them."""

from __future__ import annotations

import base64
import html
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from itertools import islice
from typing import Any
from urllib.parse import quote, quote_plus

UNKNOWN = "–"
"""Stands for a figure that is not known."""

NAMES = 8
"""Maximum number of names that `listed` shows."""

COMPARED = 10_000
"""Maximum number of names that `did_you_mean` looks at: comparing a million would take seconds."""


_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters that move a terminal's cursor, change colors, reverse letters or cannot be encoded.

Tabs and newlines are allowed.
"""

_PASSWORD = re.compile(r"(postgres\w*(?:\+\w+)?://[^\s/:@]*):\S*@|(://[^\s/:@]*):[^\s/@]*@")


def plain(text: str) -> str:
    """Make text safe for terminals: control characters become escapes, and passwords in URLs become stars."""
    return escaped(masked(text))


def escaped(text: str) -> str:
    """Replace control characters by escapes like \\u001b, which JSON decodes back."""
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def masked(text: str) -> str:
    """Replace the passwords in URLs, and all secrets that this process has read, by stars."""
    return hidden(_PASSWORD.sub(lambda found: f"{found[1] or found[2]}:***@", text))


class OneLineRepr:
    """Base of classes whose repr is `Name(<str>)`, on one line."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self})"


def shown_names(names: Mapping[str, str]) -> dict[str, str]:
    """Return key -> name, with the key appended if several keys have the same name.

    Example:
        >>> shown_names({"1": "ann", "2": "bob", "3": "ann"})
        {'1': 'ann (1)', '2': 'bob', '3': 'ann (3)'}
    """
    count = Counter(names.values())
    return {key: name if count[name] == 1 else f"{name} ({key})" for key, name in names.items()}


def counted(number: int, noun: str, several: str = "") -> str:
    """Format a count with its noun: 1 question, 1,200 questions.

    `several` is the plural, unless it is the noun with an s.
    """
    return f"{number:,} {noun if number == 1 else several or noun + 's'}"


def short(value: object) -> str:
    """Quote a value in a message, in at most 80 characters."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def sure(share: float, least: int = 0) -> str:
    """Format a confidence in %, with as few decimals as distinguish it from 100: `least` to three."""
    digits = next((digits for digits in range(least, 4) if round(share * 100, digits) < 100), 0)
    return f"{share * 100:.{digits}f}"


def listed(names: Sequence[Any]) -> str:
    """Join the first names: cat, dog, ... and 92 more."""
    more = f", ... and {len(names) - NAMES:,} more" if len(names) > NAMES else ""
    return ", ".join(map(str, names[:NAMES])) + more


def percent(share: float, digits: int = 1) -> str:
    """Format 0.934 as "93.4 %", NaN as a dash. Only exactly 1 is 100 %, and only exactly 0 is 0 %."""
    if not math.isfinite(share):
        return UNKNOWN
    if share in (0.0, 1.0):
        return f"{share:.0%}".replace("%", " %")
    step = 10.0**-digits
    return f"{min(max(round(share * 100, digits), step), 100 - step):.{digits}f} %"


def expected_fields(field: str, data: Sequence[Mapping[str, Any]]) -> str:
    """Return the end of a message about a field that no item has: the existing fields, and the most similar one."""
    fields = list(dict.fromkeys(name for one in data for name in one))
    if not fields:
        return "the items have no fields; expected some, such as the columns of items.csv in a folder of tables"
    return f"expected one of {', '.join(fields)}{did_you_mean(field, fields)}"


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return the end of a message about an unknown name: the most similar of the first names, or nothing.

    Example:
        >>> did_you_mean("Dawid_Skene", ["majority", "dawid-skene"])
        "; did you mean 'dawid-skene'?"
    """
    plain = {known.casefold(): known for known in islice(names, COMPARED)}
    near = get_close_matches(name.casefold(), plain, 1)
    return f"; did you mean {plain[near[0]]!r}?" if near else ""


# -- secrets -------------------------------------------------------------------------------------------------

SHORTEST = 8
"""Minimum length of a secret that is hidden, in characters. Shorter ones would also hide words and labels."""

_secrets: set[str] = set()


def remember(secret: str) -> str:
    """Hide this secret in all texts of this process from now on. Return it."""
    if len(secret) >= SHORTEST and secret not in _secrets:
        _secrets.add(secret)
        _pattern.cache_clear()
    return secret


def hidden(text: str) -> str:
    """Replace remembered secrets by stars: as they are, escaped, quoted, or encoded for a URL, HTML or base64."""
    return _pattern().sub("***", text) if _secrets else text


@cache
def _pattern() -> re.Pattern[str]:
    forms = {form for secret in _secrets for form in _forms(secret)}
    return re.compile("|".join(map(re.escape, sorted(forms, key=len, reverse=True))))


def _forms(secret: str) -> Iterator[str]:
    written = {secret, *_written(secret)}
    yield from written.union(*map(_written, written))  # for instance the repr of a JSON text
    content = secret.encode(errors="surrogatepass")
    for before in range(3):  # base64 depends on the number of bytes before; its ends, on those before and after
        yield base64.b64encode(b" " * before + content).decode().rstrip("=")[(0, 2, 3)[before] : -1]


def _written(text: str) -> set[str]:
    """Return the text as Python, JSON, URLs and HTML write it, without quotes around it."""
    escaped = {
        repr(text)[1:-1],
        repr(text.encode(errors="surrogatepass"))[2:-1],
        json.dumps(text)[1:-1],
        html.escape(text),
    }
    encoded = {quote(text, errors="replace"), quote(text, "", errors="replace"), quote_plus(text, errors="replace")}
    lower = {re.sub("%..", lambda code: code[0].lower(), one) for one in encoded}
    return escaped | encoded | lower
