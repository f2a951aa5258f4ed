"""Read the exports of other labeling tools as tables of labels. An importer per tool finds the answers.

Another package adds a tool by an entry point, a class as `hitl.connectors.exports.export.Importer` describes it:

    [project.entry-points."hitl.importers"]
    their-tool = "their_package.their_tool:TheirTool"
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from hitl.connectors.catalog import IMPORTERS, TABLE
from hitl.connectors.exports.export import Export, Importer
from hitl.connectors.exports.labels import Labels, labels_of
from hitl.connectors.exports.records import kind_of, records
from hitl.errors import BadTable
from hitl.formatting import listed
from hitl.tables.columns import BOXES_ELSEWHERE
from hitl.tables.read import READ
from hitl.tables.write import suffix_of

FIRST = 50
"""Records by which a format is recognized."""


def read_export(
    path: Path,
    columns: tuple[str, ...],
    *,
    format: str | None = None,
    question: str | None = None,
    item: str | None = None,
) -> Labels | None:
    """Read the export of another tool, or return None if the file is a table with these columns, or no known export.

    `columns` name the item, the annotator and the label; the result has them too. `format` is a name in IMPORTERS;
    otherwise the format is recognized by its fields. `question` chooses one of several questions, and `item` the field
    that names the items. Raise BadTable, naming the flag to use, if the format or the question is ambiguous.
    """
    if format == TABLE or not path.exists():
        return None
    kind = kind_of(path)
    if kind is None:
        if format is None:
            return None
        raise BadTable(f"{path}: not JSON, XML or a table; expected an export, as --format {format} says")
    export = Export(path, kind, lambda: records(path, kind, export.cannot_read), question, item)
    first = [record.fields for record in islice(export.records(), FIRST)]
    names = frozenset(name for fields in first for name in fields)
    if format is None and names.issuperset(columns):
        return None
    matching: dict[str, Importer] = {}
    for name in IMPORTERS if format is None else [format]:
        importer: Importer = IMPORTERS.load(name)()
        if format is not None or importer.matches(kind, names, first):
            matching[name] = importer
    if len(matching) > 1:
        titles = ", ".join(f"--format {name} ({importer.title})" for name, importer in matching.items())
        raise BadTable(f"{path}: may be an export of several tools; choose one: {titles}")
    for importer in matching.values():
        return labels_of(importer, export, columns)
    if kind == "table" or suffix_of(path) in READ:
        return None
    if {"images", "annotations", "categories"} <= names:
        raise BadTable(f"{path}: a COCO file, of boxes or masks. None of its answers are read. {BOXES_ELSEWHERE}")
    raise BadTable(
        f"{path}: no export that hitl knows; its records have the fields {listed(sorted(names)) or '(none)'}. Name the "
        f"format with --format, one of {', '.join(IMPORTERS)}; or save a table (.csv, .jsonl, .parquet) of item, "
        "annotator and label"
    )
