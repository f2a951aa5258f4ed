"""Spans are found by the words they quote, in whichever units their offsets were counted."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hitl.kinds.span_offsets import place_quoted

COUNTED: dict[str, Callable[[str], int]] = {
    "code points": len,
    "UTF-16 units": lambda before: len(before.encode("utf-16-le")) // 2,
    "bytes": lambda before: len(before.encode()),
    "line breaks of one character": lambda before: len(before.replace("\r\n", "\n")),
}
TEXTS = st.text(st.sampled_from("ab 🎉é"), max_size=12).map(lambda text: text.replace("b ", "b\r\n"))


@pytest.mark.parametrize("counted", COUNTED)
@given(before=TEXTS, after=TEXTS, again=st.booleans())
def test_a_quoted_span_is_found_or_refused_and_never_elsewhere(
    counted: str, before: str, after: str, again: bool
) -> None:
    words = "Ada Bo"
    text = f"{before} {words} {after}" + f" {words}" * again
    start, end = (COUNTED[counted](text[:place]) for place in (len(before) + 1, len(before) + 1 + len(words)))
    placed = place_quoted(text, start, end, words)
    if placed is not None:
        (first, last), how = placed
        assert text[first:last] == words
        assert bool(how) is ((first, last) != (start, end))
    if not again:
        assert placed is not None
        assert placed[0][0] == len(before) + 1


@given(text=TEXTS, start=st.integers(0, 12), end=st.integers(1, 13))
def test_words_that_the_text_does_not_have_have_no_place(text: str, start: int, end: int) -> None:
    assume(start < end)
    assert place_quoted(text, start, end, "Ada") is None
    assert place_quoted(f"Ada {text} Ada", 100, 103, "Ada") is None, "it has them twice"


@pytest.mark.parametrize("counted", COUNTED)
@pytest.mark.parametrize("nth", [0, 1, 2])
def test_words_that_the_text_has_several_times_are_placed_by_the_way_of_counting(counted: str, nth: int) -> None:
    before = "🎉é🎉🎉\r\n\r\n🎉 " + "Ada met " * nth
    text = before + "Ada met Ada met Ada"
    start, end = (COUNTED[counted](text[:place]) for place in (len(before), len(before) + 3))
    placed = place_quoted(text, start, end, "Ada")
    assert placed is not None
    assert placed[0] == (len(before), len(before) + 3)
