"""Read each table once: items, answers, ground truth, predictions and classes.

Rows with `start` and `end` are spans, of texts if items.* has a column `text`, else of recordings. All spans that an
annotator marks in an item become one label (`hitl.parts.spans_as_label`). A row without a span marks nothing.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hitl.annotations import Name
from hitl.connectors.table_columns import as_json, codes_of_names, in_codes, number_of, require_storable
from hitl.connectors.table_files import MODELS, TableFiles, stem
from hitl.errors import BadTable
from hitl.formatting import listed
from hitl.kinds.span_tables import span_rows
from hitl.parts import Place as SpanEnd
from hitl.parts import spans_as_label
from hitl.platform import PredictionRow, Question
from hitl.tables.align import Match
from hitl.tables.columns import Place, require_columns, unread_boxes
from hitl.tables.encode import latest_answers, natural_order
from hitl.tables.matrices import read_probabilities, row_sums_to_one
from hitl.tables.names import (
    OTHER,
    NameReader,
    TextRules,
    describe_pairs,
    likeness,
    missing_looking,
    require_no_list,
    similar,
)
from hitl.tables.read import place_in, read_table
from hitl.tables.times import seconds_of

QUESTION = "label"

TEXT, RECORDING = "text", "recording"
"""Columns of items.* for the text, and for the address of the recording (optional)."""


@dataclass(frozen=True)
class Columns:
    """Names of the columns, the labels that are classes (empty: all except those in `abstain`), and rules for text."""

    item: str
    annotator: str
    label: str
    time: str | None
    classes: tuple[str, ...]
    abstain: tuple[str, ...]
    rules: TextRules = TextRules()

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
        self._files, self._of, self._reader = files, columns, NameReader(columns.rules)
        self._reader.names("label", (*columns.classes, *columns.abstain))  # their spelling counts first
        self._tables: dict[str, pa.Table | None] = {}

    def table(self, name: str) -> pa.Table | None:
        """Return a table as it was read, or None if there is no such file."""
        if name not in self._tables:
            if name != "annotations":
                self.table("annotations")  # its spelling counts before that of others
            of = self._of
            kinds = {of.item: "item"}
            if name not in ("items", "added_items"):
                kinds |= {of.annotator: "annotator", of.label: "label"} | ({of.time: OTHER} if of.time else {})
            path = self._files.find(name)
            self._tables[name] = None if path is None else self._reader.clean(read_table(path, [*kinds]), kinds)
        return self._tables[name]

    # -- content -----------------------------------------------------------------------------------------------

    @cached_property
    def items(self) -> pa.Table | None:
        """Last row of each item in items.* and added_items.*; None if neither file exists."""
        tables = []
        for name in ("items", "added_items"):
            if (table := self.table(name)) is not None:
                require_columns(table, [self._of.item], name)
                require_storable(in_codes(table.column(self._of.item)), self._of.item, place_in(table), filled=True)
                tables.append(as_json(table).replace_schema_metadata(None))
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
        times, unreadable = [] if of.time is None else [of.time], list[BadTable]()
        if self.marks_parts:
            table, unreadable = self._spans_joined(table, [of.annotator, *times])
        require_columns(table, [of.item, of.label, *times], str(self._files.find("annotations")))
        place_of = place_in(table)
        legal, problems = self._legal(table.column(of.label), place_of)
        problems += [f"{error}; the answer counts as a skip" for error in unreadable]
        named = [name for name in (of.item, of.annotator, of.label) if name in table.column_names]
        coded = {name: in_codes(table.column(name)) for name in named}
        if not of.classes and not self.marks_parts:
            require_no_list(of.label, coded[of.label].dictionary.to_pylist(), table.column(of.label), place_of)
        for name, column in coded.items():
            require_storable(column, name, place_of, legal, filled=name == of.item)
        rows = np.flatnonzero(legal)
        if of.annotator in coded:
            item, annotator, label = (codes_of_names(coded[name])[rows] for name in (of.item, of.annotator, of.label))
            first = of.rules.day_first
            seconds = seconds_of(table.column(of.time), of.time, first, place_of)[rows] if of.time else None
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
        """Item -> its ground truth."""
        item, label, classes = self._of.item, self._of.label, self._of.classes
        truth: dict[str, str] = {}
        for name in ("truth", "gold"):
            table = self.table(name)
            if table is None:
                continue
            require_columns(table, [item, label], name)
            if _has_spans(table):
                table, unreadable = self._spans_joined(table, [])
                for error in unreadable:
                    raise error
            place_of = place_in(table)
            for column in (item, label):
                require_storable(in_codes(table.column(column)), column, place_of, filled=column == item)
            pairs = zip(table.column(item).to_pylist(), table.column(label).to_pylist(), strict=True)
            given: dict[str, str] = {}
            for number, (key, value) in enumerate(pairs):
                if not value:
                    continue  # the truth is not known
                if not self.marks_parts and (value not in classes if classes else value in self._of.abstain):
                    expected = f"one of {', '.join(classes)} (source.classes)" if classes else "none of source.abstain"
                    raise BadTable(f"{place_of(number)}: {value!r} is no class; expected {expected}")
                if given.setdefault(key, value) != value:
                    raise BadTable(f"{place_of(number)}: {item} {key!r} appears twice; expected one label each")
            truth |= given
        return truth

    @cached_property
    def predictions(self) -> tuple[list[PredictionRow], list[str]]:
        """Prediction rows, and problems in words. Invalid distributions are left out, as are rows without values."""
        rows: list[PredictionRow] = []
        problems: list[str] = []
        for model, table in self._models.items():
            require_columns(table, [self._of.item], f"{MODELS}{model}")
            place_of = place_in(table)
            require_storable(in_codes(table.column(self._of.item)), self._of.item, place_of)
            for number, row in enumerate(table.to_pylist()):
                key = row[self._of.item]
                stated = {name[2:]: value for name, value in row.items() if name.startswith("p_")}
                if key and stated and all(value is None or str(value).lower() == "nan" for value in stated.values()):
                    continue
                shares = {name: number_of(value) for name, value in stated.items()}
                if key and shares and min(shares.values()) >= 0 and row_sums_to_one([*shares.values()]):
                    rows.append(PredictionRow(key, QUESTION, model, shares))
                else:
                    problems.append(f"model {model}, {place_of(number)}: no distribution over the classes; left out")
        return rows, problems

    @cached_property
    def marks_parts(self) -> bool:
        """True if annotations are parts of texts or time segments."""
        return _has_spans(self.table("annotations"))

    def question(self, kept: Sequence[str] = ()) -> Question:
        """Return the only question. Unless configured, its classes are all labels and `p_` columns seen, and `kept`.

        `kept` are labels that are stored. Those outside the configured classes are answers, but no classes.
        """
        of = self._of
        kind, field = "choices", ""
        if self.marks_parts:
            kind, field = ("spans", TEXT) if self.texts else ("time_spans", RECORDING)
        if of.classes:
            others = tuple(name for name in (*of.abstain, *kept) if name not in of.classes)
            return Question(QUESTION, of.classes, (*of.classes, *dict.fromkeys(others)), kind, field)
        names: dict[str, None] = dict.fromkeys(kept)
        with_gold = () if self.marks_parts else ("gold",)  # gold.csv has spans as JSON, not classes
        for name in ("annotations", "truth", *with_gold):
            table = self.table(name)
            if table is not None:
                require_columns(table, [of.label], str(self._files.find(name)))
                names |= dict.fromkeys(value for value in pc.unique(table.column(of.label)).to_pylist() if value)
        for table in self._models.values():
            names |= dict.fromkeys(name[2:] for name in table.column_names if name.startswith("p_"))
        classes = tuple(natural_order([name for name in names if name not in of.abstain]))
        return Question(QUESTION, classes, classes + of.abstain, kind, field)

    def counted(self) -> dict[str, int]:
        """Return the number of rows per table."""
        models = Counter(f"{MODELS}{row.model}" for row in self.predictions[0])
        items = 0 if self.items is None else self.items.num_rows
        return {"annotations": self.answers.table.num_rows, "items": items, "truth": len(self.gold), **models}

    def new_classes(self, answers: Answers, former: Collection[str]) -> list[str]:
        """Return a warning for each class that is new and has one label: a typo, or a file that is cut."""
        of = self._of
        if of.classes or self.marks_parts or not former or of.label not in answers.table.column_names:
            return []
        labels = answers.table.column(of.label)
        usual = {None, "", *former, *of.abstain}
        single = {row["values"] for row in labels.value_counts().to_pylist() if row["counts"] == 1} - usual
        rows = zip(labels.to_pylist(), answers.table.column(of.item).to_pylist(), strict=True) if single else ()
        item_of = {name: item for name, item in rows if name in single}
        return [
            f"annotations: new class {name!r} (1 label, item {item!r}); if it is a typo, or the file is cut there, fix "
            "it, or name the classes in hitl.toml: source.classes"
            for name, item in item_of.items()
        ]

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
            if doubtful := missing_looking(labels):
                warnings.append(
                    f"annotations: the labels {listed(doubtful)} look like missing answers; if they are, set source.na"
                )
            warnings += [
                f"ground truth of item {key!r}: no annotator has ever said {label!r}, which is a new class now; "
                "if it is none, fix it, and name the classes in hitl.toml: source.classes"
                for label, key in strange.items()
            ]
        return [*warnings, *(describe_pairs(what, own) for what, own in pairs.items() if own), *self._doubtful(answers)]

    def _doubtful(self, answers: Answers) -> Iterator[str]:
        """Yield warnings about items in ground truth or predictions that no other table has."""
        others: dict[str, dict[Name, None]] = {"ground truth": dict.fromkeys(self.gold)} if self.gold else {}
        for row in self.predictions[0]:
            others.setdefault(f"model {row.model}", {})[row.item] = None
        named = {*answers.unique(self._of.item)} if others else set()
        named |= {*(self.items.column(self._of.item).to_pylist() if self.items is not None and others else ())}
        usual: dict[str, Name] = {}
        for what, names in others.items():
            strange = [name for name in names if name not in named]
            usual = usual or ({likeness(name): name for name in named} if strange else {})
            alike = [(usual[like], key) for key in strange if (like := likeness(key)) in usual]
            match = Match()
            match.add(names, named)
            if alike:
                yield describe_pairs(f"{what}: the items", alike)
            elif message := match.describe(what, "of the other tables"):
                yield message

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
            self.table("annotations")  # its spelling counts first
            table = read_probabilities(path, item, items=order, classes=self._of.classes or None)
            models[model] = self._reader.clean_probabilities(table, item)
        return models

    def _spans_joined(self, table: pa.Table, others: Sequence[str]) -> tuple[pa.Table, list[BadTable]]:
        """Return one row per item and combination of values in the columns `others`, with all its spans as one label.

        The label is null if one of the spans is outside the item's text or no stretch of time; an error says which.
        """
        item, label = self._of.item, self._of.label
        rows = span_rows(table, "annotations", (item, None, label), self.texts or None)
        marked: dict[tuple[Any, ...], list[tuple[SpanEnd, SpanEnd, str]]] = {}
        errors: dict[tuple[Any, ...], BadTable] = {}
        for (key, _, span), *other in zip(rows, *(table.column(name).to_pylist() for name in others), strict=True):
            spans = marked.setdefault((key, *other), [])
            if isinstance(span, BadTable):
                errors.setdefault((key, *other), span)
            elif span is not None:
                spans.append((span[0], span[1], str(span[2])))
        columns = list(zip(*marked, strict=True)) or [()] * (1 + len(others))
        named = {name: pa.array(columns[place]) for place, name in enumerate((item, *others))}
        labels = [None if key in errors else spans_as_label(spans) for key, spans in marked.items()]
        return pa.table({**named, label: pa.array(labels, pa.string())}), list(errors.values())

    def _legal(self, labels: pa.ChunkedArray, place_of: Place) -> tuple[npt.NDArray[np.bool_], list[str]]:
        """Return a (rows,) mask of labels that are empty, classes or in source.abstain, and warnings about others."""
        if not self._of.classes or self.marks_parts:
            return np.ones(len(labels), bool), []
        expected = pa.array([*self._of.classes, *self._of.abstain, "", None], pa.string())
        legal = np.asarray(pc.is_in(labels, value_set=expected), dtype=bool)
        warnings = [
            f"{place_of(row)}: {labels[row].as_py()!r} is left out: add it to source.classes or correct the label"
            for row in np.flatnonzero(~legal).tolist()
        ]
        return legal, warnings


def _has_spans(table: pa.Table | None) -> bool:
    return table is not None and {"start", "end"} <= set(table.column_names)
