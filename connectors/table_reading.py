"""Read each table once: items, answers, known truth, predictions and classes.

Rows with `start` and `end` are spans, of texts if items.* has a column `text`, else of recordings. All spans that an
annotator marks in an item become one label (`hitl.parts.spans_as_label`). A row without a span marks nothing.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hitl.annotations import Name
from hitl.connectors.table_files import MODELS, TableFiles, stem
from hitl.errors import BadTable
from hitl.evidence import ROW_TOLERANCE
from hitl.formatting import counted
from hitl.kinds.span_tables import span_rows
from hitl.parts import Place as SpanEnd
from hitl.parts import spans_as_label
from hitl.platform import PredictionRow, Question
from hitl.tables.columns import Place, require_columns, unread_boxes
from hitl.tables.encode import latest_answers, likeness, natural_order, seconds_of, similar
from hitl.tables.matrices import read_probabilities
from hitl.tables.read import place_in, read_table

QUESTION = "label"

TEXT, RECORDING = "text", "recording"
"""Columns of items.* for the text, and for the address of the recording (optional)."""


@dataclass(frozen=True)
class Columns:
    """Names of the columns, and the labels that are classes (empty: all labels except those in `abstain`)."""

    item: str
    annotator: str
    label: str
    time: str | None
    classes: tuple[str, ...]
    abstain: tuple[str, ...]

    @property
    def digest(self) -> str:
        """Digest that changes if the same files would be read differently."""
        return hashlib.sha256(repr(self).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Answers:
    """Valid rows of annotations.*, with item, annotator and label dictionary-encoded, and problems in words."""

    table: pa.Table
    problems: tuple[str, ...] = ()

    def unique(self, column: str) -> list[str]:
        """Return the distinct values of a column, without empty texts."""
        if column not in self.table.column_names:
            return []
        return [value for value in pc.unique(self.table.column(column)).to_pylist() if value]

    def count_labels(self, column: str) -> int:
        """Return the number of answers that are not skips."""
        counts = self.table.column(column).value_counts().to_pylist() if column in self.table.column_names else []
        return sum(row["counts"] for row in counts if row["values"])


class Reading:
    """Content of all tables. Raises BadTable, with the line, if it cannot be read."""

    def __init__(self, files: TableFiles, columns: Columns) -> None:
        self._files, self._of = files, columns
        self._tables: dict[str, pa.Table | None] = {}

    def table(self, name: str) -> pa.Table | None:
        """Return a table as it was read, or None if there is no such file."""
        if name not in self._tables:
            of = self._of
            text = [of.item] if name in ("items", "added_items") else [of.item, of.annotator, of.label]
            path = self._files.find(name)
            self._tables[name] = None if path is None else read_table(path, text)
        return self._tables[name]

    # -- content -----------------------------------------------------------------------------------------------

    @cached_property
    def items(self) -> pa.Table | None:
        """Last row of each item in items.* and added_items.*; None if neither file exists."""
        tables = []
        for name in ("items", "added_items"):
            if (table := self.table(name)) is not None:
                require_columns(table, [self._of.item], name)
                _require_storable(in_codes(table.column(self._of.item)), self._of.item, place_in(table), filled=True)
                tables.append(_as_json(table).replace_schema_metadata(None))
        if not tables:
            return None
        try:
            whole = pa.concat_tables(tables, promote_options="default")
        except (pa.ArrowInvalid, pa.ArrowTypeError):  # a column's type differs between the tables
            whole = pa.Table.from_pylist([*(row for table in tables for row in table.to_pylist())])
        names = in_codes(whole.column(self._of.item))
        last = np.zeros(len(names.dictionary), np.int64)
        last[np.asarray(names.indices)] = np.arange(len(names))  # the last row of each item wins
        return whole if len(last) == len(names) else whole.take(pa.array(last))

    @cached_property
    def texts(self) -> dict[Name, str]:
        """Item -> its text, for items that have one."""
        if self.items is None or TEXT not in self.items.column_names:
            return {}
        pairs = zip(*(self.items.column(name).to_pylist() for name in (self._of.item, TEXT)), strict=True)
        return {key: str(text) for key, text in pairs if text is not None}

    @cached_property
    def answers(self) -> Answers:
        """Answers. If an annotator has several about an item, the latest counts, or without times the last row."""
        return self.answers_but(0)

    def answers_but(self, last: int) -> Answers:
        """Return the answers, leaving out the `last` rows at the end of the table."""
        of, table = self._of, self.table("annotations")
        if table is None:
            return Answers(pa.table({}))
        table = table.slice(0, max(table.num_rows - last, 0))
        times = [] if of.time is None else [of.time]
        if self.marks_parts:
            table = self._spans_joined(table, [of.annotator, *times])
        require_columns(table, [of.item, of.label, *times], str(self._files.find("annotations")))
        place_of = place_in(table)
        legal, problems = self._legal(table.column(of.label), place_of)
        named = [name for name in (of.item, of.annotator, of.label) if name in table.column_names]
        coded = {name: in_codes(table.column(name)) for name in named}
        for name, column in coded.items():
            _require_storable(column, name, place_of, legal, filled=name == of.item)
        rows = np.flatnonzero(legal)
        if of.annotator in coded:
            item, annotator, label = (_codes(coded[name])[rows] for name in (of.item, of.annotator, of.label))
            seconds = seconds_of(table.column(of.time), of.time)[rows] if of.time else None
            keep, contradicted = latest_answers(item, annotator, label, len(coded[of.annotator].dictionary), seconds)
            rows = rows[np.sort(keep)]
            if len(contradicted):
                problems.append(
                    f"{len(contradicted)} rows contradict an earlier answer of the same annotator; the last row wins"
                )
        answers = pa.table(coded | {name: table.column(name) for name in table.column_names if name == "duration"})
        return Answers(answers if len(rows) == len(answers) else answers.take(pa.array(rows)), tuple(problems))

    @cached_property
    def gold(self) -> dict[str, str]:
        """Item -> its known truth."""
        item, label, classes = self._of.item, self._of.label, self._of.classes
        truth: dict[str, str] = {}
        for name in ("truth", "gold"):
            table = self.table(name)
            if table is None:
                continue
            require_columns(table, [item, label], name)
            table = self._spans_joined(table, []) if _has_spans(table) else table
            place_of = place_in(table)
            for column in (item, label):
                _require_storable(in_codes(table.column(column)), column, place_of, filled=True)
            pairs = zip(table.column(item).to_pylist(), table.column(label).to_pylist(), strict=True)
            for number, (key, value) in enumerate(pairs):
                if classes and not self.marks_parts and value not in classes:
                    raise BadTable(
                        f"{place_of(number)}: {value!r} is no class; expected one of {', '.join(classes)} "
                        "(source.classes)"
                    )
                truth[key] = value
        return truth

    @cached_property
    def predictions(self) -> tuple[list[PredictionRow], list[str]]:
        """Prediction rows, and problems in words. Invalid distributions are left out, as are rows without values."""
        rows: list[PredictionRow] = []
        problems: list[str] = []
        for model, table in self._models.items():
            require_columns(table, [self._of.item], f"{MODELS}{model}")
            place_of = place_in(table)
            _require_storable(in_codes(table.column(self._of.item)), self._of.item, place_of)
            for number, row in enumerate(table.to_pylist()):
                key = row[self._of.item]
                stated = {name[2:]: value for name, value in row.items() if name.startswith("p_")}
                if key and stated and all(value is None or str(value).lower() == "nan" for value in stated.values()):
                    continue
                shares = {name: number_of(value) for name, value in stated.items()}
                if key and shares and abs(sum(shares.values()) - 1) <= ROW_TOLERANCE and min(shares.values()) >= 0:
                    rows.append(PredictionRow(key, QUESTION, model, shares))
                else:
                    problems.append(f"model {model}, {place_of(number)}: no distribution over the classes; left out")
        return rows, problems

    @cached_property
    def marks_parts(self) -> bool:
        """True if annotations are parts of texts or time segments."""
        return _has_spans(self.table("annotations"))

    def question(self, kept: Sequence[str] = ()) -> Question:
        """Return the only question. Unless configured, its classes are all labels and `p_` columns seen, and `kept`."""
        of = self._of
        parts: tuple[str, ...] = ()
        if self.marks_parts:
            parts = ("spans", TEXT) if self.texts else ("time_spans", RECORDING)
        if of.classes:
            return Question(QUESTION, of.classes, of.classes + of.abstain, *parts)
        names: dict[str, None] = dict.fromkeys(kept)
        for name in ("annotations", "truth", *(() if parts else ("gold",))):  # gold.csv has spans as JSON, not classes
            table = self.table(name)
            if table is not None:
                require_columns(table, [of.label], str(self._files.find(name)))
                names |= dict.fromkeys(value for value in pc.unique(table.column(of.label)).to_pylist() if value)
        for table in self._models.values():
            names |= dict.fromkeys(name[2:] for name in table.column_names if name.startswith("p_"))
        classes = tuple(natural_order([name for name in names if name not in of.abstain]))
        return Question(QUESTION, classes, classes + of.abstain, *parts)

    def counted(self) -> dict[str, int]:
        """Return the number of rows per table."""
        models = Counter(f"{MODELS}{row.model}" for row in self.predictions[0])
        items = 0 if self.items is None else self.items.num_rows
        return {"annotations": self.answers.table.num_rows, "items": items, "truth": len(self.gold), **models}

    def doubts(self, answers: Answers) -> list[str]:
        """Return warnings about columns that are not read, and about names in any table that may be misspelled."""
        of, table = self._of, self.table("annotations")
        columns = [] if table is None else table.column_names
        warnings = []
        others = [name for name in columns if name not in {of.item, of.label, of.time, "duration", "start", "end"}]
        if others and of.annotator not in others:
            who = others[0] if len(others) == 1 else f"one of {', '.join(others)}"
            warnings.append(
                f"annotations.* has no column {of.annotator!r}, so all answers are anonymous; if {who} "
                "names who answered, set source.annotator in hitl.toml"
            )
        if (boxes := unread_boxes(columns)) is not None:
            warnings.append(f"annotations: {boxes}")
        pairs = {"the annotators": [*similar(sorted(answers.unique(of.annotator)))]}
        if not of.classes and not self.marks_parts:
            labels = answers.unique(of.label)
            pairs["the labels"] = [*similar(sorted(labels))]
            usual = {*labels, *(name for row in self.predictions[0] for name in row.probabilities)}
            strange = {label: key for key, label in reversed(self.gold.items()) if usual and label not in usual}
            warnings += [
                f"known truth of item {key!r}: no annotator has ever said {label!r}, which is a new class now; "
                "if it is none, fix it, and name the classes in hitl.toml: source.classes"
                for label, key in strange.items()
            ]
        return warnings + [_alike(what, own) for what, own in (pairs | self._similar_items(answers)).items() if own]

    def _similar_items(self, answers: Answers) -> dict[str, list[tuple[Name, Name]]]:
        """Return source -> (usual name, other spelling) of items in known truth or predictions."""
        if not self.gold and not self.predictions[0]:
            return {}
        named = {*answers.unique(self._of.item)}
        named |= {*(self.items.column(self._of.item).to_pylist() if self.items is not None else ())}
        strange = [("known truth: the items", key) for key in self.gold if key not in named]
        strange += [(f"model {row.model}: the items", row.item) for row in self.predictions[0] if row.item not in named]
        usual = {likeness(name): name for name in named} if strange else {}
        pairs: dict[str, list[tuple[Name, Name]]] = {}
        for what, key in strange:
            if (like := likeness(key)) in usual:
                pairs.setdefault(what, []).append((usual[like], key))
        return pairs

    @cached_property
    def _models(self) -> dict[str, pa.Table]:
        item = self._of.item
        named = self.table("items") if self._files.is_folder else None
        order = named.column(item).to_pylist() if named is not None and item in named.column_names else None
        models: dict[str, pa.Table] = {}
        for path in self._files.models():
            model = stem(path).removeprefix(MODELS)
            if model in models:
                raise BadTable(f"{path}: another file of the same name is there; expected one for each model")
            models[model] = read_probabilities(path, item, items=order, classes=self._of.classes or None)
        return models

    def _spans_joined(self, table: pa.Table, others: Sequence[str]) -> pa.Table:
        """Return one row per item and combination of values in the columns `others`, with all its spans as one label.

        Raises BadTable, with the row, for a span outside the item's text, or an invalid time segment.
        """
        item, label = self._of.item, self._of.label
        rows = span_rows(table, "annotations", (item, None, label), self.texts or None)
        marked: dict[tuple[Any, ...], list[tuple[SpanEnd, SpanEnd, str]]] = {}
        for (key, _, span), *other in zip(rows, *(table.column(name).to_pylist() for name in others), strict=True):
            marked.setdefault((key, *other), []).extend([] if span is None else [(span[0], span[1], str(span[2]))])
        columns = list(zip(*marked, strict=True)) or [()] * (1 + len(others))
        named = {name: pa.array(columns[place]) for place, name in enumerate((item, *others))}
        return pa.table({**named, label: pa.array([spans_as_label(one) for one in marked.values()], pa.string())})

    def _legal(self, labels: pa.ChunkedArray, place_of: Place) -> tuple[npt.NDArray[np.bool_], list[str]]:
        """Return a (rows,) mask of labels that are empty or one of the given classes, and warnings about the others."""
        if not self._of.classes or self.marks_parts:
            return np.ones(len(labels), bool), []
        legal = np.asarray(pc.is_in(labels, value_set=pa.array([*self._of.classes, "", None], pa.string())), dtype=bool)
        warnings = [
            f"{place_of(int(row))}: {labels[int(row)].as_py()!r} is not one of source.classes; left out"
            for row in np.flatnonzero(~legal)
        ]
        return legal, warnings


def _has_spans(table: pa.Table | None) -> bool:
    return table is not None and {"start", "end"} <= set(table.column_names)


def _alike(what: str, pairs: Sequence[tuple[Name, Name]]) -> str:
    """Return a warning about names that may be the same, with the first pair as example."""
    more = f", as {counted(len(pairs) - 1, 'other pair')} are" if len(pairs) > 1 else ""
    one, other = pairs[0]
    return f"{what} {one!r} and {other!r} are taken as two{more}; if they are one, write them alike"


# -- columns -------------------------------------------------------------------------------------------------


def in_codes(column: pa.ChunkedArray) -> pa.DictionaryArray:
    """Dictionary-encode a column as text, with values in order of first appearance."""
    kind = pa.dictionary(pa.int32(), pa.string())
    if column.type == kind:
        return pa.concat_arrays([*column.unify_dictionaries().chunks, pa.array([], kind)][: column.num_chunks or 1])
    # One chunk is encoded ten times faster than many. It may exceed 2 GB, the limit of `pa.string()`.
    coded = column.cast(pa.string()).cast(pa.large_string()).combine_chunks().dictionary_encode()
    return pa.DictionaryArray.from_arrays(coded.indices, coded.dictionary.cast(pa.string()))


def _codes(column: pa.DictionaryArray) -> npt.NDArray[np.int32]:
    """Return the codes. Null and empty text get the code after the last."""
    names = column.dictionary
    codes, empty = np.asarray(column.indices.fill_null(len(names))), pc.index(names, "").as_py()
    return codes if empty < 0 else np.where(codes == empty, np.int32(len(names)), codes)


def _require_storable(
    coded: pa.DictionaryArray,
    name: str,
    place_of: Place,
    rows: npt.NDArray[np.bool_] | None = None,
    *,
    filled: bool = False,
) -> None:
    """Raise BadTable for the first of these rows with a NUL character or, if `filled`, without a name."""
    names = coded.dictionary
    cut = np.flatnonzero(np.asarray(pc.match_substring(names, "\0"), dtype=bool))
    if not filled and not len(cut):
        return
    codes = _codes(coded)
    empty = (codes == len(names)) & filled
    wrong = np.flatnonzero((empty | np.isin(codes, cut)) & (True if rows is None else rows))
    if len(wrong):
        first = int(wrong[0])
        problem = "is empty; expected a name in every row"
        if not empty[first]:
            problem = "holds a NUL character, which no database keeps; remove it"
        raise BadTable(f"{place_of(first)}: the {name} {problem}")


def _as_json(table: pa.Table) -> pa.Table:
    """Convert times, decimals and bytes in a table to text, because the data of items is stored as JSON."""
    for place, field in enumerate(table.schema):
        if _is_of_json(field.type):
            continue
        try:
            values = json.loads(json.dumps(table.column(place).to_pylist(), default=str))
        except (ArithmeticError, ValueError) as error:  # a year past 9999, or an unknown time zone
            raise BadTable(f"items.*: the column {field.name!r} cannot be read: {error}; save it as text") from None
        try:
            column = pa.array(values)
        except (pa.ArrowInvalid, pa.ArrowTypeError):  # values without a single type become text
            column = pa.array([None if value is None else json.dumps(value) for value in values], pa.string())
        table = table.set_column(place, field.name, column)
    return table


def _is_of_json(kind: pa.DataType) -> bool:
    inner = [kind.value_type] if pa.types.is_dictionary(kind) else [kind.field(n).type for n in range(kind.num_fields)]
    if inner:
        return all(map(_is_of_json, inner))
    same = pa.types.is_string, pa.types.is_large_string, pa.types.is_boolean, pa.types.is_null
    return any(holds(kind) for holds in (*same, pa.types.is_integer, pa.types.is_floating)) or kind == pa.struct([])


def number_of(value: Any) -> float:
    """Return a number, or NaN for anything else."""
    try:
        return math.nan if value is None else float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan
