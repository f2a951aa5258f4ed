"""Format results: one line where they are printed, the same line above the first rows in a notebook."""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hitl.platform import Operation

ROWS = 10
"""Rows that a notebook shows."""

NAMES = 8
"""Names that one line lists."""


_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""What moves a terminal's cursor, changes its colours or turns the order of letters; a tab and a new line stay."""

_PASSWORD = re.compile(r"(postgres\w*(?:\+\w+)?://[^\s/:@]*):\S*@|(://[^\s/:@]*):[^\s/@]*@")


def plain(text: str) -> str:
    """Words as a terminal may show them: control characters as \\u001b, passwords in addresses as stars."""
    return escaped(masked(text))


def escaped(text: str) -> str:
    """A text with control characters as \\u001b, which JSON reads back as they were."""
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def masked(text: str) -> str:
    """A text with stars in place of the passwords in its addresses."""
    return _PASSWORD.sub(lambda found: f"{found[1] or found[2]}:***@", text)


class OneLineRepr:
    """Print as one line, `Name(what __str__ says)`; a notebook shows `frame()` below it, if there is one."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self})"

    def _repr_html_(self) -> str:
        """For notebooks."""
        title, frame = f"<p>{html.escape(repr(self))}</p>", getattr(self, "frame", None)
        if frame is None:
            return title
        rows = frame()
        more = f"<p>{len(rows) - ROWS:,} more rows: frame()</p>" if len(rows) > ROWS else ""
        return title + str(rows.head(ROWS).to_html(index=False, border=0)) + more


def shown_names(names: Mapping[str, str]) -> dict[str, str]:
    """Key -> name, with the key where several have the name.

    Example:
        >>> shown_names({"1": "ann", "2": "bob", "3": "ann"})
        {'1': 'ann (1)', '2': 'bob', '3': 'ann (3)'}
    """
    count = Counter(names.values())
    return {key: name if count[name] == 1 else f"{name} ({key})" for key, name in names.items()}


def counted(number: int, noun: str, several: str = "") -> str:
    """A number and what it counts: 1 question, 1,200 questions; `several` where the plural takes more than an s."""
    return f"{number:,} {noun if number == 1 else several or noun + 's'}"


def listed(names: Sequence[Any]) -> str:
    """The first names of many: cat, dog, ... and 92 more."""
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
"""What an operation of each kind is about, for readers."""


def subject_of(operation: Operation) -> str:
    """What an operation is about: "questions of ann"."""
    return SUBJECTS[operation.kind] + (f" of {operation.key}" if operation.key else "")
