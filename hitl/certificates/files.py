"""Read and write the tables of an audit: the labels, what auditors answer, and the corrected labels.

labels     columns item, label, confidence (without it, all labels are doubted alike); others are shown to auditors
audit      columns item, answer, and what auditors see; never the label, because auditors should not know it
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from hitl.annotations import Floats
from hitl.certificates.certificate import UNKNOWN, Certificate, Labels
from hitl.errors import BadTable
from hitl.tables.columns import numbers_of, require_columns, require_names
from hitl.tables.names import similar
from hitl.tables.read import place_in, read_table
from hitl.tables.write import write_table

ANSWER = "answer"
OF_RESULTS = re.compile(r"item|label|confidence|p_.*|labels|done|why|source|item_done|low|high|answer")
"""Columns of results, which auditors do not see."""

SHOWN_DIGITS = 4
"""Decimals of the doubt that a certificate keeps."""


def read_labels(path: Path, groups: str | None = None) -> tuple[Labels, pa.Table]:
    """Read the labels to certify, and the columns for auditors. `groups`: column of classes or slices.

    Raises BadTable if a column is missing, an item is there twice or has no label, or a confidence is none.
    """
    return labels_in(read_table(path, ["item", "label"]), str(path), groups)


def labels_in(table: pa.Table, where: str, groups: str | None = None) -> tuple[Labels, pa.Table]:
    """Return the labels of a table, and its columns for auditors, as `read_labels`. `where`: its file, for messages."""
    require_columns(table, ["item", "label", *([groups] if groups else [])], where)
    items = require_names(table.column("item").to_pylist(), "item", where, place_in(table))
    labels = table.column("label").to_pylist()
    if None in labels:
        row = labels.index(None)
        raise BadTable(f"{place_in(table)(row)}: item {items[row]!r} has no label; leave out items without one")
    doubt: Floats = np.full(len(items), 0.5)
    if "confidence" in table.column_names:
        doubt = 1 - numbers_of(table.column("confidence"), f"{where}: column confidence")
        if not np.all((doubt >= 0) & (doubt <= 1)):
            row = int(np.argmax(~((doubt >= 0) & (doubt <= 1))))
            raise BadTable(f"{place_in(table)(row)}: the confidence must be a number between 0 and 1")
    group = [str(name) for name in table.column(groups).to_pylist()] if groups else []
    shown = [name for name in table.column_names if not OF_RESULTS.fullmatch(name)]
    rounded = tuple(np.round(doubt, SHOWN_DIGITS).tolist())
    made = Labels(items=tuple(items), labels=tuple(map(str, labels)), doubt=rounded, groups=tuple(group))
    return made, table.select(["item", *shown])


def read_answers(path: Path, certificate: Certificate) -> dict[str, str]:
    """Return item -> answer of the rows that have one. Empty if there is no such file.

    Raises BadTable if an item was not drawn or is there twice, or if an answer differs from a label of the audited
    table only in case or spaces.
    """
    if not path.exists():
        return {}
    table = read_table(path, ["item", ANSWER])
    require_columns(table, ["item", ANSWER], str(path))
    place = place_in(table)
    items = require_names(table.column("item").to_pylist(), "item", str(path), place)
    drawn = {certificate.labels.items[draw.item] for draw in certificate.audit.draws}
    answers: dict[str, str] = {}
    classes = dict.fromkeys(certificate.labels.labels)
    for row, (item, answer) in enumerate(zip(items, table.column(ANSWER).to_pylist(), strict=True)):
        if item not in drawn:
            raise BadTable(
                f"{place(row)}: item {item!r} was not drawn; answer only the items that hitl wrote there. If the file "
                "is of another audit, name another one with --answers"
            )
        if answer is not None and answer.strip():
            answers[item] = answer if answer in classes else answer.strip()
    for one, other in similar([*classes, *dict.fromkeys(answers.values())]):
        if (one in classes) != (other in classes):
            label, answer = (one, other) if one in classes else (other, one)
            raise BadTable(f"{path}: the answer {answer!r} is almost the label {label!r}; write it the same")
    return answers


def other_answers(certificate: Certificate) -> list[str]:
    """Return answers that are no label of the audited table, and may be misspelled."""
    given = {one for answer in certificate.answers for one in (answer.first, answer.second) if one is not None}
    return sorted(given - set(certificate.labels.labels) - {UNKNOWN})


def write_questions(path: Path, items: Sequence[str], shown: pa.Table) -> None:
    """Add rows for these items to the table that auditors fill in. Rows that are there stay as they are."""
    place = {item: row for row, item in enumerate(shown.column("item").to_pylist())}
    rows = shown.take(pa.array([place[item] for item in items], pa.int64()))
    rows = rows.add_column(1, ANSWER, pa.nulls(len(items), pa.string()))
    if path.exists():
        before = read_table(path, ["item", ANSWER])
        there = set(before.column("item").to_pylist())
        rows = rows.filter(pa.array([item not in there for item in items], pa.bool_()))
        if not rows.num_rows:
            return
        texts = [name for name in before.column_names if name in rows.column_names]
        for name in texts:  # a table that was read from CSV is all text
            kind = before.schema.field(name).type
            rows = rows.set_column(rows.column_names.index(name), name, rows.column(name).cast(kind))
        rows = pa.concat_tables([before, rows], promote_options="default")
    write_table(path, rows.replace_schema_metadata(None))


def write_corrected(path: Path, certificate: Certificate) -> None:
    """Write the audited labels with the corrections; no label where auditors could not say."""
    labels, corrections = certificate.labels, certificate.corrections()
    right = [corrections.get(item, label) for item, label in zip(labels.items, labels.labels, strict=True)]
    write_table(path, pa.table({"item": pa.array(labels.items), "label": pa.array(right, pa.string())}))
