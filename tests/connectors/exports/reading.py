"""Write an export as its tool would, and read it."""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hitl.connectors.exports import read_export
from hitl.connectors.exports.labels import Labels

COLUMNS = ("item", "annotator", "label")
Content = str | Sequence[Mapping[str, Any]] | Mapping[str, str]


def as_text(content: Content, suffix: str) -> str:
    """Text as it is, or records in the form that the suffix says."""
    if isinstance(content, str):
        return content
    if suffix in (".csv", ".tsv"):
        names = list(dict.fromkeys(name for row in content for name in row))
        file = io.StringIO()
        writer = csv.DictWriter(file, names, delimiter="\t" if suffix == ".tsv" else ",")
        writer.writeheader()
        writer.writerows(content)  # type: ignore[arg-type]
        return file.getvalue()
    return json.dumps(content) if suffix == ".json" else "\n".join(map(json.dumps, content)) + "\n"


def write(folder: Path, content: Content, name: str) -> Path:
    path = folder / name
    if isinstance(content, Mapping):
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for member, text in content.items():
                archive.writestr(member, text)
    else:
        path.write_text(as_text(content, path.suffix), encoding="utf-8")
    return path


def read(folder: Path, content: Content, name: str = "export.json", **more: Any) -> Labels:
    made = read_export(write(folder, content, name), COLUMNS, **more)
    assert made is not None
    return made


def answers(labels: Labels) -> dict[tuple[str, str | None], str]:
    """(item, annotator) -> label, the last row of each."""
    return {(row["item"], row["annotator"]): row["label"] for row in labels.table.to_pylist()}


def spans(labels: Labels) -> list[tuple[Any, ...]]:
    names = ("document", "annotator", "start", "end", "label")
    return [tuple(row[name] for name in names) for row in labels.table.to_pylist()]


def known(labels: Labels) -> dict[str, str]:
    return {} if labels.truth is None else {row["item"]: row["label"] for row in labels.truth.to_pylist()}
