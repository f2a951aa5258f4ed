"""Build one page with the content of all tables, in columns, with a digest per item.

An answer's key is its item and annotator. An anonymous answer's key is its item, its label and a count of equal ones.
These keys stay the same when other rows are added or removed.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable
from functools import cached_property
from json.encoder import encode_basestring_ascii as in_quotes
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from hitl.connectors.table_columns import data_in, in_codes, number_of
from hitl.connectors.table_reading import QUESTION, Answers, Columns, Reading
from hitl.platform import AnnotationRow, AnnotatorRow, ColumnRows, Cursor, ItemRow, Page, PredictionRow

NEWEST = ""
"""Version of all rows. Files have no versions, so the store assigns one (`hitl.store.pages`)."""

Hashes = npt.NDArray[np.uint64]
Places = npt.NDArray[Any]

ANSWER, TRUTH, PREDICTION, ITEM = (np.uint64(0x9E3779B97F4A7C15 * n % 2**64) for n in (1, 3, 5, 7))
"""Salts that separate the parts of an item's digest."""


class TablePage:
    """Content of the tables about their N items."""

    def __init__(self, reading: Reading, answers: Answers, columns: Columns) -> None:
        self._of, self._answers, self._gold = columns, answers.table, reading.gold
        self._items, self._people = reading.items, tuple(sorted(answers.unique(columns.annotator)))
        self._predictions = [row for several in reading.predictions[0].values() for row in several]
        named = [] if self._items is None else [in_codes(self._items.column(columns.item)).dictionary]
        if self._answers.num_rows:
            named.append(pc.unique(self._answers.column(columns.item)).dictionary_decode())
        named += [_text(self._gold), _text(dict.fromkeys(row.item for row in self._predictions))]
        self.keys: pa.Array = pc.unique(pa.concat_arrays([each.cast(pa.string()) for each in named]))

    def page(self, cursor: Cursor, problems: Iterable[str], *, tell_live: bool, partial: bool) -> Page:
        """Return the page with this cursor; `tell_live`: list the existing items."""
        counts = (len(self.keys), self._answers.num_rows + len(self._gold), len(self._predictions))
        return Page(
            cursor=cursor,
            items=ColumnRows(_item_row, self._item_columns, counts[0]),
            annotations=ColumnRows(_annotation_row, self._annotation_columns, counts[1]),
            predictions=ColumnRows(_prediction_row, self._prediction_columns, counts[2]),
            annotators=tuple(AnnotatorRow(name, name) for name in self._people),
            live=frozenset(self.keys.to_pylist()) if tell_live else None,
            problems=tuple(problems),
            total=counts[0],
            partial=partial,
            digests=(self.keys, self._digests()),
        )

    @property
    def names_digest(self) -> str:
        """Digest of the set of items."""
        digest = hashlib.sha256()
        for buffer in self.keys.buffers():
            digest.update(buffer or b"")
        return digest.hexdigest()[:16]

    # -- rows of some items ------------------------------------------------------------------------------------

    def _item_columns(self, items: Places | None) -> pa.Table:
        keys = self.keys if items is None else self.keys.take(pa.array(items))
        data: dict[str, str] = {}
        if self._items is not None:
            rows, _ = _of_items(self._code(self._items.column(self._of.item)), items, len(self.keys))
            for row in self._items.take(pa.array(rows)).to_pylist():
                data[row[self._of.item]] = json.dumps(data_in(row, self._of.item))
        return pa.table({"key": keys, "data": _text(data.get(key, "{}") for key in keys.to_pylist())})

    def _annotation_columns(self, items: Places | None) -> pa.Table:
        rows, codes = _of_items(self._item_codes, items, len(self.keys))
        in_order = len(rows) == self._answers.num_rows and (np.diff(rows) == 1).all()
        table = self._answers if in_order else self._answers.take(pa.array(rows))
        gold_codes = self._code(pa.chunked_array([_text(self._gold)]))
        gold_rows, gold = _of_items(gold_codes, items, len(self.keys))
        label, who = self._named(table, self._of.label), self._named(table, self._of.annotator)
        names = self.keys.take(pa.array(codes))
        quoted = _in_quotes(names)
        by_name = pc.binary_join_element_wise(
            pa.scalar("["), quoted, pa.scalar(", "), _in_quotes(who), pa.scalar("]"), ""
        )
        made = {
            "key": pc.coalesce(by_name, self._anonymous_keys(codes, quoted, who, label)),
            "item": names,
            "question": pa.repeat(pa.scalar(QUESTION), len(codes)),
            "annotator": who,
            "label": label,
            "kind": pc.if_else(pc.is_null(label), "skip", "answer"),
            "duration": _durations(table),
        }
        truth = _text(self._gold.values()).take(pa.array(gold_rows))
        key = pc.binary_join_element_wise(
            pa.scalar("["), _in_quotes(self.keys.take(pa.array(gold))), pa.scalar(', null, "truth"]'), ""
        )
        known = {
            "key": key,
            "item": self.keys.take(pa.array(gold)),
            "question": pa.repeat(pa.scalar(QUESTION), len(gold)),
            "annotator": pa.nulls(len(gold), pa.string()),
            "label": truth,
            "kind": pa.array(["gold"] * len(gold), pa.string()),
            "duration": pa.nulls(len(gold), pa.float64()),
        }
        both = pa.concat_tables([pa.table(made), pa.table(known)])
        order = np.concatenate([codes, gold])
        if (np.diff(order) < 0).any():
            both = both.take(pa.array(np.argsort(order, kind="stable")))
        return both

    def _prediction_columns(self, items: Places | None) -> pa.Table:
        wanted = None if items is None else {*self.keys.take(pa.array(items)).to_pylist()}
        rows = [row for row in self._predictions if wanted is None or row.item in wanted]
        columns = {name: _text(getattr(row, name) for row in rows) for name in ("item", "model")}
        columns["question"] = pa.repeat(pa.scalar(QUESTION), len(rows))
        return pa.table(columns | {"probabilities": _text(json.dumps(dict(row.probabilities)) for row in rows)})

    # -- columns -----------------------------------------------------------------------------------------------

    @cached_property
    def _item_codes(self) -> Places:
        return self._code(self._answers.column(self._of.item)) if self._answers.num_rows else np.empty(0, np.int64)

    def _code(self, column: pa.ChunkedArray) -> Places:
        """Return the indices of names among the keys."""
        coded = in_codes(column)
        place = np.asarray(pc.index_in(coded.dictionary, value_set=self.keys).fill_null(-1))
        return place[np.asarray(coded.indices)] if len(coded) else np.empty(0, np.int64)

    def _named(self, table: pa.Table, name: str) -> pa.Array:
        """Return a column of labels or annotators, null for empty text."""
        if name not in table.column_names:
            return pa.nulls(table.num_rows, pa.string())
        column = pa.concat_arrays([*table.column(name).cast(pa.string()).chunks, _text(())])
        return pc.if_else(pc.equal(column, ""), pa.scalar(None, pa.string()), column)

    def _anonymous_keys(self, codes: Places, quoted: pa.Array, who: pa.Array, label: pa.Array) -> pa.Array:
        """Return keys of the anonymous answers, null for others."""
        keys = np.full(len(who), None, object)
        rows = np.flatnonzero(np.asarray(who.is_null()))
        if len(rows):
            coded = label.take(pa.array(rows)).dictionary_encode()
            named = [
                json.dumps(hashlib.sha256(name.encode()).hexdigest()[:16]) for name in coded.dictionary.to_pylist()
            ]
            said = np.array([*named, "null"], object)[np.asarray(coded.indices.fill_null(len(named)))]
            alike = pd.DataFrame({"item": codes[rows], "label": said}).groupby(["item", "label"]).cumcount() + 1
            items = quoted.take(pa.array(rows)).to_pylist()
            keys[rows] = [f"[{item}, null, {what}, {n}]" for item, what, n in zip(items, said, alike, strict=True)]
        return pa.array(keys, pa.string())

    # -- digests -----------------------------------------------------------------------------------------------

    def _digests(self) -> Hashes:
        """Return the (N,) digest of all rows of each item, independent of their order."""
        found = np.zeros(len(self.keys), np.uint64)
        if self._answers.num_rows:
            named = [
                name for name in (self._of.annotator, self._of.label, "duration") if name in self._answers.column_names
            ]
            _add(found, self._item_codes, _hashes(self._answers.select(named), ANSWER))
        if self._items is not None:
            others = self._items.drop_columns([self._of.item])
            _add(found, self._code(self._items.column(self._of.item)), _hashes(others, ITEM))
        if self._gold:
            known = pa.chunked_array([_text(self._gold)])
            _add(found, self._code(known), _hashes(pa.table({"label": _text(self._gold.values())}), TRUTH))
        if self._predictions:
            rows = self._prediction_columns(None)
            _add(found, self._code(rows.column("item")), _hashes(rows.drop_columns(["item"]), PREDICTION))
        return found


def _item_row(data: str, **row: Any) -> ItemRow:
    return ItemRow(data=json.loads(data), version=NEWEST, **row)


def _annotation_row(**row: Any) -> AnnotationRow:
    return AnnotationRow(version=NEWEST, created=NEWEST, **row)


def _prediction_row(probabilities: str, **row: Any) -> PredictionRow:
    return PredictionRow(probabilities=json.loads(probabilities), **row)


def _of_items(codes: Places, items: Places | None, n: int) -> tuple[Places, Places]:
    """Return the rows of these items, sorted by item, and the index of each row's item among the keys."""
    rows: Places = np.arange(len(codes))
    if items is not None:
        wanted = np.zeros(n, bool)
        wanted[items] = True
        rows = np.flatnonzero(wanted[codes])
    if (np.diff(codes[rows]) < 0).any():
        rows = rows[np.argsort(codes[rows], kind="stable")]
    return rows, codes[rows]


def _text(values: Iterable[str]) -> pa.Array:
    return pa.array(list(values), pa.string())


def _in_quotes(names: pa.Array) -> pa.Array:
    """Return names in JSON quotes, null for null."""
    coded = names.dictionary_encode()
    return _text(map(in_quotes, coded.dictionary.to_pylist())).take(coded.indices)


def _durations(table: pa.Table) -> pa.Array:
    if "duration" not in table.column_names:
        return pa.nulls(table.num_rows, pa.float64())
    coded = table.column("duration").combine_chunks()
    coded = coded.dictionary_encode() if not pa.types.is_dictionary(coded.type) else coded
    coded = pa.concat_arrays(coded.chunks) if isinstance(coded, pa.ChunkedArray) else coded
    numbers = [None if math.isnan(number := number_of(value)) else number for value in coded.dictionary.to_pylist()]
    return pa.array(numbers, pa.float64()).take(coded.indices)


def _hashes(table: pa.Table, part: np.uint64) -> Hashes:
    """Return (rows,) hashes of the columns' values, and of their names, types and order."""
    found = np.full(table.num_rows, part, np.uint64)
    for place, (field, column) in enumerate(zip(table.schema, table.columns, strict=True)):
        kind = "text" if pa.types.is_dictionary(field.type) else field.type
        (salt,) = pd.util.hash_array(np.array([f"{place} {kind} {field.name}"], object), categorize=False)
        found = _mixed(found + _values(column) * (salt | np.uint64(1)))
    return found


def _values(column: pa.ChunkedArray) -> Hashes:
    """Return (rows,) hashes of values, 0 for null."""
    try:
        coded = in_codes(column)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):  # nested values
        values = [None if value is None else json.dumps(value, default=str) for value in column.to_pylist()]
        coded = in_codes(pa.chunked_array([pa.array(values, pa.string())]))
    known = np.array(coded.dictionary.to_pylist(), object)
    hashes = np.append(
        pd.util.hash_array(known, categorize=False) if len(known) else np.empty(0, np.uint64), np.uint64(0)
    )
    found: Hashes = hashes[np.asarray(coded.indices.fill_null(len(known)))]
    return found


def _mixed(hashes: Hashes) -> Hashes:
    hashes = (hashes ^ (hashes >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    mixed: Hashes = hashes ^ (hashes >> np.uint64(33))
    return mixed


def _add(digests: Hashes, item: Places, hashes: Hashes) -> None:
    """Add the hashes of rows to the digests of their items."""
    if not len(item):
        return
    if (np.diff(item) < 0).any():
        order = np.argsort(item, kind="stable")
        item, hashes = item[order], hashes[order]
    starts = np.flatnonzero(np.diff(item, prepend=-1))
    digests[item[starts]] += np.add.reduceat(hashes, starts)
