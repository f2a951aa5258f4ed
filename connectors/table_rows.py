"""Rows of tables as rows of a platform: what they are called, and what numbers in them say."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Mapping
from json.encoder import encode_basestring_ascii as in_quotes
from typing import Any

from hitl.platform import AnnotationRow

NEWEST = ""
"""The version of all rows. A file keeps none: the store gives one (`hitl.store.pages`), no clock of this machine."""


class Keys:
    """Makes the rows of some items' answers, whose keys stay when other rows come or go.

    An answer is named by its item and annotator. An anonymous one is named by its item and what it says, and by a count
    where others say the same.
    """

    def __init__(self, item: str, annotator: str, label: str, question: str) -> None:
        self._item, self._annotator, self._label, self._question = item, annotator, label, question
        self._alike: Counter[tuple[str, str | None]] = Counter()

    def row(self, said: Mapping[str, Any]) -> AnnotationRow:
        """The answer of a row."""
        item, person, label = said[self._item], said.get(self._annotator), said[self._label] or None
        if person:
            key = f"[{in_quotes(item)}, {in_quotes(person)}]"  # as JSON has a list of two, in a fourth of the time
        else:
            self._alike[item, label] += 1
            key = anonymous_key(item, label, self._alike[item, label])
        seconds = number_of(said.get("duration"))
        duration = None if math.isnan(seconds) else seconds
        kind: Any = "skip" if label is None else "answer"
        return AnnotationRow(key, item, self._question, person, label, kind, NEWEST, NEWEST, duration)


def anonymous_key(item: str, label: str | None, count: int) -> str:
    """The key of an anonymous answer."""
    said = None if label is None else hashlib.sha256(label.encode()).hexdigest()[:16]
    return json.dumps([item, None, said, count])


def is_nothing(value: Any) -> bool:
    """Whether a field holds no number."""
    return value is None or str(value).lower() == "nan"


def number_of(value: Any) -> float:
    """A number, NaN for anything else."""
    if value is None:
        return math.nan
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan
