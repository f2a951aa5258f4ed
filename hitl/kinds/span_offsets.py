"""Find a span of a text by the words it quotes, if its offsets were counted in another way.

Offsets here count code points. Browsers count UTF-16 units, others count bytes, a line break of two characters as one,
or letters with their accents as one character or as two.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import accumulate

_BREAK = re.compile(r"(?:\s|\\[nr])+")
"""White space. Label Studio writes a line break in a quote as a backslash and an n."""


def place_quoted(text: str, start: int, end: int, quoted: str) -> tuple[tuple[int, int], str] | None:
    """Return start and end of a span in code points, and how they were found, "" if they are as given.

    White space is not compared. Return None if the text has other words there, unless exactly one place has the quoted
    ones: by another way to count, or in the whole text.

    Example:
        >>> place_quoted("🎉🎉🎉 Ada met Ada", 7, 10, "Ada")
        ((4, 7), 'offsets counted in UTF-16 units')
    """
    words = _words(quoted)
    if not words:
        return (start, end), ""
    if _words(text[start:end]) == words:
        return ((start, end), "") if end <= len(text) else ((start, len(text)), "cut at the end of the text")
    places: dict[tuple[int, int], str] = {}
    for how in _WIDTHS:
        place = _code_points(text, how, start), _code_points(text, how, end)
        if _words(text[slice(*place)]) == words:
            places.setdefault(place, f"offsets counted in {how}")
    if not places:
        places = dict.fromkeys(_occurrences(text, quoted), "placed where the text has the quoted words")
    return next(iter(places.items())) if len(places) == 1 else None


def _words(text: str) -> list[str]:
    return [word for word in _BREAK.split(unicodedata.normalize("NFC", text)) if word]


def _occurrences(text: str, quoted: str) -> Iterator[tuple[int, int]]:
    for form in dict.fromkeys((quoted, *(unicodedata.normalize(form, quoted) for form in ("NFC", "NFD")))):
        pattern = _BREAK.pattern.join(re.escape(word) for word in _BREAK.split(form) if word)
        yield from (match.span(1) for match in re.finditer(f"(?=({pattern}))", text))


def _code_points(text: str, how: str, offset: int) -> int:
    """Convert an offset that was counted in this way; an offset within a code point becomes the one before it."""
    return max(bisect_right(_offsets(text, how), offset) - 1, 0)


@lru_cache(maxsize=16)
def _offsets(text: str, how: str) -> list[int]:
    """Return the offset of each code point, and of the end, counted in this way."""
    return [*accumulate(map(_WIDTHS[how], text, "\0" + text, text[1:] + "\0"), initial=0)]


Width = Callable[[str, str, str], int]
"""Character, the one before it, the one after it -> by how much it raises the offset."""


def _utf16(char: str, _before: str, _after: str) -> int:
    return 2 if char > "\uffff" else 1


def _one_break(char: str, _before: str, after: str) -> int:
    return int(char + after != "\r\n")


def _two_breaks(char: str, before: str, _after: str) -> int:
    return 2 if char == "\n" and before != "\r" else 1


_WIDTHS: dict[str, Width] = {
    "UTF-16 units": _utf16,
    "bytes": lambda char, *_: len(char.encode("utf-8", "surrogatepass")),
    "line breaks of one character": _one_break,
    "line breaks of two characters": _two_breaks,
    "UTF-16 units with line breaks of one character": lambda *around: _utf16(*around) * _one_break(*around),
    "UTF-16 units with line breaks of two characters": lambda *around: _utf16(*around) + _two_breaks(*around) - 1,
    "composed letters (NFC)": lambda char, *_: int(not unicodedata.combining(char)),
    "decomposed letters (NFD)": lambda char, *_: len(unicodedata.normalize("NFD", char)),
}
