"""Format results, names and counts for messages."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hitl.platform import Operation

NAMES = 8
"""Maximum number of names that `listed` shows."""


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
    """Replace the passwords in URLs by stars."""
    return _PASSWORD.sub(lambda found: f"{found[1] or found[2]}:***@", text)


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


def listed(names: Sequence[Any]) -> str:
    """Join the first names: cat, dog, ... and 92 more."""
    more = f", ... and {len(names) - NAMES:,} more" if len(names) > NAMES else ""
    return ", ".join(map(str, names[:NAMES])) + more


SUBJECTS = {
    "consensus": "consensus",
    "order": "order of the items",
    "assign": "questions",
    "labels_wanted": "labels wanted",
    "add_items": "items",
    "gold": "known truth",
}
"""Subject of each kind of operation, for messages."""


def subject_of(operation: Operation) -> str:
    """Describe the subject of an operation: "questions of ann"."""
    return SUBJECTS[operation.kind] + (f" of {operation.key}" if operation.key else "")


def expected_fields(field: str, data: Sequence[Mapping[str, Any]]) -> str:
    """Return the end of a message about a field that no item has: the existing fields, and the most similar one."""
    fields = list(dict.fromkeys(name for one in data for name in one))
    near = get_close_matches(field, fields, 1)
    meant = f"; did you mean {near[0]!r}?" if near else ""
    return f"expected one of {', '.join(fields)}{meant}"
