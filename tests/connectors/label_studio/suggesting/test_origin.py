"""Whether an annotation began as a suggestion: what Label Studio writes, and what it never would."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hitl.connectors.label_studio.controls import began_as_suggestion
from hitl.platform import AnnotationRow, ItemRow, Page
from hitl.store import Store
from tests.connectors.label_studio.conftest import choice

NOW = "2026-11-23T20:00:00Z"


@pytest.mark.parametrize(
    ("origins", "expected"),
    [
        (["manual"], False),
        (["prediction"], True),
        (["prediction-changed"], True),
        (["manual", "prediction"], True),
        ([None], None),
        ([], None),
        ([7, {"a": 1}, ["prediction"]], False),
    ],
)
def test_the_origin_tells(origins: list[Any], expected: bool | None) -> None:
    result = [{**choice("good")[0], "origin": origin} for origin in origins]
    assert began_as_suggestion(result) is expected


@pytest.mark.parametrize(
    "result", [None, "prediction", {"origin": "prediction"}, [None, "prediction", 3], choice("good")]
)
def test_what_has_no_origin_tells_nothing(result: object) -> None:
    assert began_as_suggestion(result) is None


def test_it_is_kept_counted_and_changed(tmp_path: Path) -> None:
    def page(*suggested: bool | None) -> Page:
        rows = tuple(
            AnnotationRow(f"{n}", "1", "q", f"ann{n}", "good", "answer", NOW, NOW, suggested=told)
            for n, told in enumerate(suggested)
        )
        return Page(cursor={}, items=(ItemRow("1", {"text": "a"}, NOW),), annotations=rows, live=frozenset("1"))

    with Store(f"sqlite:///{tmp_path}/hitl.db") as store, store.lease("p") as lease:
        store.save_page(lease, page(None, None))
        assert store.suggested("p") == (0, 0)
        assert store.save_page(lease, page(True, False, None)).changed > 0
        assert store.suggested("p") == (2, 1)
        assert store.save_page(lease, page(True, False, None)).changed == 0
