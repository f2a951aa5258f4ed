"""Every message is in tests/data/messages.txt, where it can be read, and is plain English."""

from __future__ import annotations

import re
from functools import cache

import pytest

from tests.cli.messages import KEPT
from tests.cli.messages import messages as read

messages = cache(read)


def test_the_kept_messages_are_those_of_the_source() -> None:
    """Read what changed, then: .venv/test/bin/python -m tests.cli.messages"""
    kept, found = KEPT.read_text().splitlines(), messages()
    assert [line for line in found if line not in kept] == []
    assert [line for line in kept if line not in found] == []
    assert found == kept


@pytest.mark.parametrize(
    "word", ["strangers?", "told", "teach(es)?", "untold", "voices?", "nobody", "somebody", "whoever"]
)
def test_words_that_are_no_terms_of_the_field_are_in_no_message(word: str) -> None:
    texts = [line for line in messages() if re.search(rf"\b{word}\b", line.partition(": ")[2], re.IGNORECASE)]
    assert texts == []


def test_no_message_says_a_where_it_means_for_each() -> None:
    """ "one row an item" is read twice."""
    loose = re.compile(r"\bone (?:\w+ )?an? (?:annotation|annotator|class|fold|item|label|model|column)\b")
    assert [line for line in messages() if loose.search(line)] == []
