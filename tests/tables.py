"""Small annotation tables for tests, and what they say."""

from __future__ import annotations

from typing import Any

from hitl.annotations import Annotations


def rows(*triples: tuple[Any, Any, Any], **more: list[Any]) -> dict[str, list[Any]]:
    item, annotator, label = (list(column) for column in zip(*triples, strict=True))
    return {"item": item, "annotator": annotator, "label": label, **more}


def said(annotations: Annotations) -> list[tuple[Any, Any, Any]]:
    table = annotations.table()
    return list(zip(*(table.column(name).to_pylist() for name in ("item", "annotator", "label")), strict=True))
