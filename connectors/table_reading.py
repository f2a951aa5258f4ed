"""Read the tables at one point in time, each once: items, answers, known truth, predictions, classes."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hitl.connectors import table_spans
from hitl.connectors.table_columns import (
    as_json,
    data_in,
    in_codes,
    is_nothing,
    nul_error,
    number_of,
    require_filled,
    require_storable,
)
from hitl.connectors.table_files import TableFiles, stem
from hitl.errors import BadTable
from hitl.evidence import ROW_TOLERANCE
from hitl.formatting import counted
from hitl.platform import PredictionRow, Question
from hitl.tables.columns import require_columns
from hitl.tables.encoding import likeness, natural_order, seconds_of, similar
from hitl.tables.files import read_table
from hitl.tables.places import Place, place_in
from hitl.tables.probabilities import read_probabilities
from hitl.tables.unread_places import box_in

QUESTION = "label"

FEW_ROWS = 10
"""Maximum rows per item for which all pairs of its rows are compared."""

Ints = npt.NDArray[np.int64]


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
    """Valid rows of annotations.*, with item, annotator and label as codes; and problems in words."""

    table: pa.Table
    problems: tuple[str, ...] = ()

    def unique(self, column: str) -> list[str]:
        """Return the distinct values of a column, without empty texts."""
        if column not in self.table.column_names:
            return []
        return [value for value in pc.unique(self.table.column(column)).to_pylist() if value]

    def count_labels(self, column: str) -> int:
        """Count the answers that are labels, not skips."""
        if not self.table.num_rows:
            return 0
        counts = pc.value_counts(self.table.column(column)).to_pylist()
        return sum(each["counts"] for each in counts if each["values"])


NO_ANSWERS = Answers(pa.table({}))


class Reading:
    """Content of all tables. Raises BadTable, with the line, if it cannot be read."""

    def __init__(self, files: TableFiles, columns: Columns) -> None:
        self._files, self._of = files, columns
        self._tables: dict[str, pa.Table | None] = {}

    @cached_property
    def items(self) -> pa.Table | None:
        """Last row of each item in items.* and added_items.*; None without any."""
        tables = [found for name in ("items", "added_items") if (found := self._named_items(name)) is not None]
        if not tables:
            return None
        plain = [table.replace_schema_metadata(None) for table in tables]
        try:
            whole = pa.concat_tables(plain, promote_options="default")
        except (pa.ArrowInvalid, pa.ArrowTypeError):  # a column's type differs between the tables
            whole = pa.Table.from_pylist([*(row for table in plain for row in table.to_pylist())])
        names = in_codes(whole.column(self._of.item))
        last = np.zeros(len(names.dictionary), np.int64)
        last[np.asarray(names.indices)] = np.arange(len(names))  # the last row of each item wins
        return whole if len(last) == len(names) else whole.take(pa.array(last))

    @cached_property
    def answers(self) -> Answers:
        """Answers. Of two by the same annotator, the later one counts, or the last row."""
        return self.answers_but(0)

    def answers_but(self, last: int) -> Answers:
        """Return the answers without this many of the last rows."""
        of = self._of
        table = self.table("annotations")
        if table is None:
            return NO_ANSWERS
        table = table.slice(0, max(table.num_rows - last, 0))
        if self.marks_parts:
            others = [of.annotator, *([of.time] if of.time else [])]
            table = table_spans.as_answers(table, self.data(), of.item, of.label, others)
        needed = [of.item, of.label, *([of.time] if of.time else [])]
        require_columns(table, needed, str(self._files.find("annotations")))
        place_of = place_in(table)
        legal, problems = self._legal(table.column(of.label), place_of)
        seconds = seconds_of(table.column(of.time), of.time) if of.time else None
        coded = {
            name: in_codes(table.column(name))
            for name in (of.item, of.annotator, of.label)
            if name in table.schema.names
        }
        require_filled(coded[of.item], legal, of.item, place_of)
        for name in coded.keys() - {of.item}:
            require_storable(coded[name], name, place_of)
        duration = {"duration": table.column("duration")} if "duration" in table.column_names else {}
        wins, contradicted = self._winners(coded, legal, seconds)
        if contradicted:
            problems.append(
                f"{contradicted} rows contradict an earlier answer of the same annotator; the last row wins"
            )
        rows = pa.table(coded | duration)
        return Answers(rows if wins.all() else rows.filter(pa.array(wins)), tuple(problems))

    @cached_property
    def gold(self) -> dict[str, str]:
        """Item -> its known truth."""
        item, label, classes = self._of.item, self._of.label, self._of.classes
        known: dict[str, str] = {}
        for name in ("truth", "gold"):
            table = self.table(name)
            if table is not None:
                require_columns(table, [item, label], name)
                if table_spans.are_in(table):
                    table = table_spans.as_answers(table, self.data(), item, label)
                pairs = zip(table.column(item).to_pylist(), table.column(label).to_pylist(), strict=True)
                place_of = place_in(table)
                for number, (key, value) in enumerate(pairs):
                    if not key or not value:
                        what = label if key else item
                        raise BadTable(f"{place_of(number)}: the {what} is empty; expected both in every row")
                    if "\0" in key or "\0" in value:
                        raise nul_error(item if "\0" in key else label, place_of(number))
                    if classes and not self.marks_parts and value not in classes:
                        raise BadTable(
                            f"{place_of(number)}: {value!r} is no class; expected one of {', '.join(classes)} "
                            "(source.classes)"
                        )
                    known[key] = value
        return known

    @cached_property
    def predictions(self) -> tuple[dict[str, list[PredictionRow]], list[str]]:
        """Prediction rows by item, and problems in words. Invalid distributions are left out; an empty row abstains."""
        grouped: dict[str, list[PredictionRow]] = {}
        problems: list[str] = []
        for model, table in self._models.items():
            require_columns(table, [self._of.item], f"probabilities_{model}")
            place_of = place_in(table)
            for number, row in enumerate(table.to_pylist()):
                key = row[self._of.item]
                if key and "\0" in key:
                    raise nul_error(self._of.item, place_of(number))
                stated = {name[2:]: value for name, value in row.items() if name.startswith("p_")}
                if key and stated and all(is_nothing(value) for value in stated.values()):
                    continue
                shares = {name: number_of(value) for name, value in stated.items()}
                if key and shares and abs(sum(shares.values()) - 1) <= ROW_TOLERANCE and min(shares.values()) >= 0:
                    grouped.setdefault(key, []).append(PredictionRow(key, QUESTION, model, shares))
                else:
                    problems.append(f"model {model}, {place_of(number)}: no distribution over the classes; left out")
        return grouped, problems

    @cached_property
    def marks_parts(self) -> bool:
        """True if annotations are parts of texts or time segments."""
        return table_spans.are_in(self.table("annotations"))

    def question(self, kept: tuple[str, ...] = ()) -> Question:
        """Return the only question. Unless configured, its classes are all labels and probability columns seen, and
        `kept`.
        """
        of, parts = self._of, self._parts()
        if of.classes:
            return Question(QUESTION, of.classes, of.classes + of.abstain, *parts)
        found: dict[str, None] = dict.fromkeys(kept)
        for name in ("annotations", "truth", *(() if parts else ("gold",))):  # known spans are complete answers
            table = self.table(name)
            if table is not None:
                require_columns(table, [of.label], str(self._files.find(name)))
                found |= dict.fromkeys(value for value in pc.unique(table.column(of.label)).to_pylist() if value)
        for table in self._models.values():
            found |= dict.fromkeys(name[2:] for name in table.column_names if name.startswith("p_"))
        classes = tuple(natural_order([name for name in found if name not in of.abstain]))
        return Question(QUESTION, classes, classes + of.abstain, *parts)

    def counted(self, answers: Answers) -> dict[str, int]:
        """Return the number of rows per table."""
        models = Counter(f"probabilities_{row.model}" for several in self.predictions[0].values() for row in several)
        items = 0 if self.items is None else self.items.num_rows
        return {"annotations": answers.table.num_rows, "items": items, "truth": len(self.gold), **models}

    def strange_truth(self, labels: Iterable[str]) -> list[str]:
        """Return warnings about known labels that no annotator uses: rare classes, or typos."""
        usual = {*labels}
        usual |= {name for several in self.predictions[0].values() for row in several for name in row.probabilities}
        if self._of.classes or not usual or self.marks_parts:
            return []
        strange = {label: item for item, label in reversed(self.gold.items()) if label not in usual}
        return [
            f"known truth of item {item!r}: no annotator has ever said {label!r}, which is a new class now; "
            "if it is none, mend it, and name the classes in hitl.toml: source.classes"
            for label, item in strange.items()
        ]

    def doubts(self, answers: Answers) -> list[str]:
        """Return warnings about names that may be misspelled, in any table."""
        people = alike("the annotators", [*similar(sorted(answers.unique(self._of.annotator)))])
        labels = self.similar_labels(answers.unique(self._of.label))
        return [*self._if_anonymous(), *filter(None, [self._boxes(), people]), *labels, *self._strange_items(answers)]

    def _boxes(self) -> str | None:
        """Return a warning about boxes on images, which can only be read from Label Studio."""
        table = self.table("annotations")
        found = None if table is None else box_in(table.column_names)
        return None if found is None else f"annotations: {found}"

    def similar_labels(self, labels: Iterable[str]) -> list[str]:
        """Return warnings about labels that count as two classes but may be the same."""
        found = "" if self._of.classes or self.marks_parts else alike("the labels", [*similar(sorted(labels))])
        return [found] if found else []

    def _strange_items(self, answers: Answers) -> list[str]:
        """Return warnings about items that known truth, or a model, spells differently than the answers and items."""
        if not self.gold and not self.predictions[0]:
            return []
        named = {*answers.unique(self._of.item)}
        named |= {*(self.items.column(self._of.item).to_pylist() if self.items is not None else ())}
        models: dict[str, list[str]] = {}
        for key, several in self.predictions[0].items():
            for row in several if key not in named else ():
                models.setdefault(f"model {row.model}: the items", []).append(key)
        strange = {"known truth: the items": [key for key in self.gold if key not in named], **models}
        if not any(strange.values()):
            return []
        known = {likeness(name): name for name in named}
        told = []
        for what, keys in strange.items():
            told.append(alike(what, [(known[like], key) for key in keys if (like := likeness(key)) in known]))
        return [*filter(None, told)]

    def data(self) -> dict[str, Mapping[str, Any]]:
        """Return item -> data that annotators see."""
        rows = [] if self.items is None else self.items.to_pylist()
        return {row[self._of.item]: data_in(row, self._of.item) for row in rows}

    def table(self, name: str) -> pa.Table | None:
        """Return a table as it was read, or None."""
        if name not in self._tables:
            of = self._of
            text = [of.item] if name in ("items", "added_items") else [of.item, of.annotator, of.label]
            path = self._files.find(name)
            self._tables[name] = None if path is None else read_table(path, text)
        return self._tables[name]

    def _named_items(self, name: str) -> pa.Table | None:
        table = self.table(name)
        if table is not None:
            require_columns(table, [self._of.item], name)
            every = np.ones(table.num_rows, bool)
            require_filled(in_codes(table.column(self._of.item)), every, self._of.item, place_in(table))
            table = as_json(table)
        return table

    @cached_property
    def _models(self) -> dict[str, pa.Table]:
        item = self._of.item
        named = self.table("items") if self._files.is_folder else None
        order = named.column(item).to_pylist() if named is not None and item in named.column_names else None
        models: dict[str, pa.Table] = {}
        for path in self._files.models():
            model = stem(path).removeprefix("probabilities_")
            if model in models:
                raise BadTable(f"{path}: another file of the same name is there; expected one for each model")
            models[model] = read_probabilities(path, item, items=order, classes=self._of.classes or None)
        return models

    def _parts(self) -> tuple[str, ...]:
        """Return kind and field of a question about spans: of a text, if items have one, or of a recording."""
        if not self.marks_parts:
            return ()
        of_texts = any(table_spans.TEXT in data for data in self.data().values())
        return ("spans", table_spans.TEXT) if of_texts else ("time_spans", table_spans.RECORDING)

    def _if_anonymous(self) -> list[str]:
        """Return a warning if there is no column of annotators, but another column may name them."""
        of, table = self._of, self.table("annotations")
        usual = {of.item, of.label, of.time, "duration", "start", "end"}
        others = [] if table is None else [name for name in table.column_names if name not in usual]
        if of.annotator in others or not others:
            return []
        return [
            f"annotations.* has no column {of.annotator!r}, so that no answer is told from another's; if one of "
            f"{', '.join(others)} says who answered, name it in hitl.toml: source.annotator"
        ]

    def _legal(self, labels: pa.ChunkedArray, place_of: Place) -> tuple[npt.NDArray[np.bool_], list[str]]:
        """Return a (rows,) mask of labels that are empty or one of the given classes, and warnings about the others."""
        legal: npt.NDArray[np.bool_] = np.ones(len(labels), bool)
        if self._of.classes and not self.marks_parts:
            known = pa.array([*self._of.classes, "", None], pa.string())
            legal = np.asarray(pc.is_in(labels, value_set=known), dtype=bool)
        words = [
            f"{place_of(int(row))}: {labels[int(row)].as_py()!r} is not one of source.classes; left out"
            for row in np.flatnonzero(~legal)
        ]
        return legal, words

    def _winners(
        self,
        coded: Mapping[str, pa.DictionaryArray],
        legal: npt.NDArray[np.bool_],
        seconds: npt.NDArray[np.float64] | None,
    ) -> tuple[npt.NDArray[np.bool_], int]:
        """Return a (rows,) mask of the rows that count, and how many others contradict them at the same time."""
        wins, contradicted = legal.copy(), 0
        if self._of.annotator not in coded:
            return wins, contradicted
        labels = coded[self._of.label]
        best: dict[int, tuple[float, int]] = {}
        pairs, again = _repeated(coded[self._of.item], coded[self._of.annotator], legal)
        for row in map(int, again):
            at = -math.inf if seconds is None or math.isnan(seconds[row]) else float(seconds[row])
            before, other = best.get(int(pairs[row]), (at, row))
            same = (labels[other].as_py() or None) == (labels[row].as_py() or None)
            contradicted += other != row and before == at and not same
            if at >= before:
                wins[other] = False
                wins[row] = True
                best[int(pairs[row])] = at, row
            else:
                wins[row] = False
        return wins, contradicted


def alike(what: str, pairs: Sequence[tuple[Any, Any]]) -> str:
    """Return a warning about names that may be the same, with the first pair as example. Empty without pairs."""
    if not pairs:
        return ""
    more = f", as {counted(len(pairs) - 1, 'other pair')} are" if len(pairs) > 1 else ""
    one, other = pairs[0]
    return f"{what} {one!r} and {other!r} are taken as two{more}; if they are one, write them alike"


def _repeated(items: pa.DictionaryArray, people: pa.DictionaryArray, legal: npt.NDArray[np.bool_]) -> tuple[Ints, Ints]:
    """Number the (item, annotator) pairs, (rows,). Return also the legal rows, in order, that share a pair."""
    names = people.dictionary.to_pylist()
    codes = np.asarray(pc.fill_null(people.indices, len(names)))
    item = np.asarray(pc.fill_null(items.indices, len(items.dictionary)), np.int64)
    pairs = item * (len(names) + 1) + codes
    if _differ_within_items(item, codes):
        return pairs, np.empty(0, np.int64)
    anonymous = [len(names), *(code for code, name in enumerate(names) if not name)]
    known = np.flatnonzero(legal & ~np.isin(codes, anonymous))
    order = known[np.argsort(pairs[known], kind="stable")]
    same = pairs[order][1:] == pairs[order][:-1]
    among = np.zeros(len(pairs), bool)
    among[order[1:][same]] = True
    among[order[:-1][same]] = True
    return pairs, np.flatnonzero(among)


def _differ_within_items(item: Ints, person: npt.NDArray[np.int32]) -> bool:
    """Return True if each item's rows are adjacent and by different people, as usual. False if not quick to check."""
    if len(item) < 2 or (item[1:] < item[:-1]).any() or np.bincount(item).max() > FEW_ROWS:
        return False
    lags = range(1, int(np.bincount(item).max()))
    return not any(((item[lag:] == item[:-lag]) & (person[lag:] == person[:-lag])).any() for lag in lags)
