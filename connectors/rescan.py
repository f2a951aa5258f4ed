"""Pull from a server that tells neither changes nor deletions: read everything, and yield the pages that have changed.

The cursor holds a digest of every page of the last pull. A page with one of these digests is not yielded. At the end
of a pull that began at the first page, an empty page says which items exist.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from typing import Any

from hitl.crew import EXPECTED_ACCURACY
from hitl.platform import AnnotationRow, AnnotatorRow, Cursor, ItemRow, Page, PredictionRow, Question

Json = dict[str, Any]
Read = Callable[[str | None], tuple[list[Json], str | None]]
"""Token (None: the first page) -> rows of the page, and the token of the next or None."""
Rated = tuple[AnnotationRow, AnnotatorRow, bool]
"""An answer, who gave it, and True if that is a judge: a language model or code."""


def rescanned(
    cursor: Cursor | None,
    questions: Sequence[Question],
    read: Read,
    key_of: Callable[[Json], str],
    told: Callable[[Json], object],
    page_of: Callable[[list[Json], Cursor], Page],
) -> Iterator[Page]:
    """Yield pages of what has changed since the cursor.

    `key_of` a row is its item; `told` is what counts as its content, as JSON values, without what hitl writes itself.
    """
    before = dict(cursor or {})
    token = before.get("token")
    names = sorted([question.name, *map(str, question.options)] for question in questions)
    known = set(before.get("pages", ())) if before.get("questions") == names else set()
    done: list[str] = list(before.get("done", ())) if token else []
    whole, seen, changed = not token, dict[str, None](), bool(token)
    for page, after in _read_ahead(read, token):
        rows = [row for row in page if key_of(row) not in seen]  # an item that was added meanwhile moves others on
        seen |= dict.fromkeys(map(key_of, rows))
        done.append(sha256(json.dumps([*map(told, rows)], sort_keys=True).encode()).hexdigest()[:32])
        if rows and done[-1] not in known:
            changed = True
            yield page_of(rows, {"token": after, "done": done, "pages": list(known), "questions": names})
    live = sha256("".join(sorted(seen)).encode()).hexdigest()
    if changed or live != before.get("live") or before.get("questions") != names:
        end = {"pages": done, "live": live if whole else None, "questions": names}
        yield Page(end, live=frozenset(seen) if whole else None)


def page_of(cursor: Cursor, items: Sequence[ItemRow], rows: Sequence[Rated], questions: Mapping[str, Question]) -> Page:
    """Return the page of these items and answers. Judges err together, so their answers are predictions of models."""
    people = [(row, rater) for row, rater, is_judge in rows if not is_judge]
    return Page(
        cursor,
        items=items,
        annotations=[row for row, _ in people],
        predictions=[
            PredictionRow(row.item, row.question, rater.name, _shares(questions[row.question], row.label))
            for row, rater, is_judge in rows
            if is_judge and row.label is not None
        ],
        annotators=list({rater.key: rater for _, rater in people}.values()),
        problems=tuple(
            f"{row.item}: {row.note}; this prediction of {rater.name} is left out"
            for row, rater, is_judge in rows
            if is_judge and row.note
        ),
        latest=True,
    )


def _shares(question: Question, label: str) -> dict[str, float]:
    """Return the probabilities that a judge's answer stands for before calibration, as `Evidence.with_judges`."""
    rest = (1 - EXPECTED_ACCURACY) / (len(question.classes) - 1)
    return {str(name): EXPECTED_ACCURACY if name == label else rest for name in question.classes}


def _read_ahead(read: Read, token: str | None) -> Iterator[tuple[list[Json], str | None]]:
    """Yield pages with the token of the next, which is read meanwhile."""
    with ThreadPoolExecutor(1) as ahead:
        page = ahead.submit(read, token)
        while True:
            rows, token = page.result()
            if token is not None:
                page = ahead.submit(read, token)
            yield rows, token
            if token is None:
                return
