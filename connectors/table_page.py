"""Put the content of all tables on one page, as columns, with a digest per item.

The key of an answer consists of its item and annotator. The key of an anonymous answer consists of its item, its label,
and a number that counts equal answers. So the keys do not change when other rows are added or removed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from functools import cached_property
from json.encoder import encode_basestring_ascii as in_quotes
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from hitl.connectors.table_columns import in_codes, number_of
from hitl.connectors.table_reading import QUESTION, Answers, Columns, Reading
from hitl.platform import AnnotationRow, AnnotatorRow, ColumnRows, Cursor, ItemRow, Page, PredictionRow

NEWEST = ""
"""Version and creation time of all rows. Files have neither, so the store sets them (`hitl.store.pages`)."""

Places = npt.NDArray[Any]
"""Indices of items in `TablePage.keys`."""


class TablePage:
    """Content of the tables about N items, whose names are `keys`."""

    def __init__(self, reading: Reading, answers: Answers, columns: Columns) -> None:
        self._of, self._answers, self._items = columns, answers.table, reading.items
        self._people = tuple(sorted(answers.unique(columns.annotator)))
        self._gold = pa.table({"item": _text(reading.gold), "label": _text(reading.gold.values())})
        predicted = reading.predictions[0]
        self._predictions = pa.table(
            {
                "item": _text(row.item for row in predicted),
                "model": _text(row.model for row in predicted),
                "question": pa.repeat(pa.scalar(QUESTION), len(predicted)),
                "probabilities": _text(json.dumps(dict(row.probabilities)) for row in predicted),
            }
        )
        named = [] if self._items is None else [in_codes(self._items.column(columns.item)).dictionary]
        if self._answers.num_rows:
            named.append(pc.unique(self._answers.column(columns.item)).dictionary_decode())
        named += [table.column("item").combine_chunks() for table in (self._gold, self._predictions)]
        self.keys: pa.Array = pc.unique(pa.concat_arrays([each.cast(pa.string()) for each in named]))

    def page(self, cursor: Cursor, problems: Iterable[str], *, tell_live: bool, partial: bool) -> Page:
        """Return the page with this cursor and these problems.

        `tell_live`: list the existing items on the page, so that all others are deleted. `partial`: rows may be
        missing, so nothing is deleted.
        """
        count = self._answers.num_rows + self._gold.num_rows
        return Page(
            cursor=cursor,
            items=ColumnRows(
                lambda data, **row: ItemRow(data=json.loads(data), version=NEWEST, **row),
                self._item_rows,
                len(self.keys),
            ),
            annotations=ColumnRows(
                lambda **row: AnnotationRow(created=NEWEST, version=NEWEST, **row), self._annotation_rows, count
            ),
            predictions=ColumnRows(
                lambda probabilities, **row: PredictionRow(probabilities=json.loads(probabilities), **row),
                lambda items: self._rows_of(self._predictions, self._code(self._predictions.column("item")), items)[0],
                self._predictions.num_rows,
            ),
            annotators=tuple(AnnotatorRow(name, name) for name in self._people),
            live=frozenset(self.keys.to_pylist()) if tell_live else None,
            problems=tuple(problems),
            total=len(self.keys),
            partial=partial,
            digests=(self.keys, self._digests()),
        )

    @property
    def names_digest(self) -> str:
        """Digest of the item names, in their order."""
        digest = hashlib.sha256()
        for buffer in self.keys.buffers():
            digest.update(buffer or b"")
        return digest.hexdigest()[:16]

    # -- rows of some items, in their order --------------------------------------------------------------------

    def _item_rows(self, items: Places | None) -> pa.Table:
        keys = self.keys if items is None else self.keys.take(pa.array(items))
        data: dict[str, str] = {}
        if self._items is not None:
            item = self._of.item
            table, _ = self._rows_of(self._items, self._code(self._items.column(item)), items)
            for row in table.to_pylist():
                shown = {name: value for name, value in row.items() if name != item and value is not None}
                data[row[item]] = json.dumps(shown)
        return pa.table({"key": keys, "data": _text(data.get(key, "{}") for key in keys.to_pylist())})

    def _annotation_rows(self, items: Places | None) -> pa.Table:
        table, codes = self._rows_of(self._answers, self._item_codes, items)
        gold, gold_codes = self._rows_of(self._gold, self._code(self._gold.column("item")), items)
        label, who = self._named(table, self._of.label), self._named(table, self._of.annotator)
        names, gold_names = self.keys.take(pa.array(codes)), self.keys.take(pa.array(gold_codes))
        quoted = _in_quotes(names)
        by_name = pc.binary_join_element_wise("[", quoted, ", ", _in_quotes(who), "]", "")
        answers = {
            "key": pc.coalesce(by_name, self._anonymous_keys(codes, quoted, who, label)),
            "item": names,
            "annotator": who,
            "label": label,
            "kind": pc.if_else(pc.is_null(label), "skip", "answer"),
            "duration": _durations(table),
        }
        truth = {
            "key": pc.binary_join_element_wise("[", _in_quotes(gold_names), ', null, "truth"]', ""),
            "item": gold_names,
            "annotator": pa.nulls(len(gold_names), pa.string()),
            "label": gold.column("label"),
            "kind": pa.repeat(pa.scalar("gold"), len(gold_names)),
            "duration": pa.nulls(len(gold_names), pa.float64()),
        }
        both, order = pa.concat_tables([pa.table(answers), pa.table(truth)]), np.concatenate([codes, gold_codes])
        both = both.append_column("question", pa.repeat(pa.scalar(QUESTION), len(both)))
        return both.take(pa.array(np.argsort(order, kind="stable"))) if (np.diff(order) < 0).any() else both

    def _rows_of(self, table: pa.Table, codes: Places, items: Places | None) -> tuple[pa.Table, Places]:
        """Return the rows of these items (None: of all), sorted by item, and (R,) the index of each row's item.

        `codes` holds these indices for all rows of the table.
        """
        if items is not None:
            wanted = np.zeros(len(self.keys), bool)
            wanted[items] = True
            rows = np.flatnonzero(wanted[codes])
            table, codes = table.take(pa.array(rows)), codes[rows]
        if (np.diff(codes) < 0).any():
            order = np.argsort(codes, kind="stable")
            table, codes = table.take(pa.array(order)), codes[order]
        return table, codes

    # -- columns -----------------------------------------------------------------------------------------------

    @cached_property
    def _item_codes(self) -> Places:
        return self._code(self._answers.column(self._of.item)) if self._answers.num_rows else np.empty(0, np.int64)

    def _code(self, column: pa.ChunkedArray) -> Places:
        """Return (R,) the index in `keys` of each name, -1 if it is not there."""
        if not len(column):
            return np.empty(0, np.int64)
        coded = in_codes(column)
        place = np.asarray(pc.index_in(coded.dictionary, value_set=self.keys).fill_null(-1))
        return np.asarray(place[np.asarray(coded.indices)])

    def _named(self, table: pa.Table, name: str) -> pa.Array:
        """Return a column of labels or annotators, null for empty text and if there is no such column."""
        if name not in table.column_names:
            return pa.nulls(table.num_rows, pa.string())
        column = table.column(name).cast(pa.string()).combine_chunks()
        return pc.if_else(pc.equal(column, ""), pa.scalar(None, pa.string()), column)

    def _anonymous_keys(self, codes: Places, quoted: pa.Array, who: pa.Array, label: pa.Array) -> pa.Array:
        """Return the keys of anonymous answers, null for other answers."""
        keys = np.full(len(who), None, object)
        rows = np.flatnonzero(np.asarray(who.is_null()))
        if len(rows):
            coded = label.take(pa.array(rows)).dictionary_encode()
            named = [
                json.dumps(hashlib.sha256(name.encode()).hexdigest()[:16]) for name in coded.dictionary.to_pylist()
            ]
            labels = np.array([*named, "null"], object)[np.asarray(coded.indices.fill_null(len(named)))]
            alike = pd.DataFrame({"item": codes[rows], "label": labels}).groupby(["item", "label"]).cumcount() + 1
            items = quoted.take(pa.array(rows)).to_pylist()
            keys[rows] = [f"[{item}, null, {what}, {n}]" for item, what, n in zip(items, labels, alike, strict=True)]
        return pa.array(keys, pa.string())

    def _digests(self) -> npt.NDArray[np.uint64]:
        """Return (N,) a digest per item of all its rows in all tables, whatever their order."""
        digests = np.zeros(len(self.keys), np.uint64)
        parts = [("truth", self._gold, "item"), ("prediction", self._predictions, "item")]
        parts += [] if self._items is None else [("item", self._items, self._of.item)]
        for part, table, item in parts:
            np.add.at(digests, self._code(table.column(item)), _hashes(table.drop_columns([item]), part))
        if self._answers.num_rows:
            np.add.at(digests, self._item_codes, _hashes(self._answers.drop_columns([self._of.item]), "answer"))
        return digests


def _text(values: Iterable[str]) -> pa.Array:
    return pa.array(list(values), pa.string())


def _in_quotes(names: pa.Array) -> pa.Array:
    """Return names as JSON strings, null for null."""
    coded = names.dictionary_encode()
    return _text(map(in_quotes, coded.dictionary.to_pylist())).take(coded.indices)


def _durations(table: pa.Table) -> pa.Array:
    if "duration" not in table.column_names:
        return pa.nulls(table.num_rows, pa.float64())
    coded = in_codes(table.column("duration"))
    return pa.array([number_of(value) for value in coded.dictionary.to_pylist()], pa.float64(), from_pandas=True).take(
        coded.indices
    )


def _hashes(table: pa.Table, part: str) -> npt.NDArray[np.uint64]:
    """Return (R,) a hash per row of its values, of `part`, and of the columns' names, types and order."""
    kinds = ["text" if pa.types.is_dictionary(field.type) else str(field.type) for field in table.schema]
    (salt,) = pd.util.hash_array(np.array([f"{part} {kinds} {table.column_names}"], object), categorize=False)
    frame = pd.DataFrame(index=range(table.num_rows))
    for name, column in zip(table.column_names, table.columns, strict=True):
        if pa.types.is_nested(column.type):
            values = [None if value is None else json.dumps(value, default=str) for value in column.to_pylist()]
            column = pa.chunked_array([pa.array(values, pa.string())])
        coded = in_codes(column)
        frame[name] = pd.Categorical.from_codes(coded.indices.fill_null(-1).to_numpy(), coded.dictionary.to_pylist())
    hashes = pd.util.hash_pandas_object(frame, index=False).to_numpy() if kinds else np.zeros(len(frame), np.uint64)
    mixed = np.asarray((hashes ^ salt) * np.uint64(0x9E3779B97F4A7C15), np.uint64)
    return np.asarray(mixed ^ (mixed >> np.uint64(32)), np.uint64)
