"""A folder of tables as a labeling platform: the reference connector, no network.

Read from the folder (CSV, JSON Lines or Parquet; .gz allowed), or a single annotations file:

    annotations.*              item, annotator, label [, time, duration]; an empty label is a skip;
                               with start and end parts of texts or recordings are marked (`table_spans`)
    items.*                    item and any other columns: what annotators see; items without labels
    truth.*                    item, label: known truth
    probabilities_<model>.*    item, p_<class>, or any other form that `hitl combine` reads (.npz, Hugging Face);
                               an array without names of its rows has those of items.*, in order
    graph.*                    item, neighbour [, weight]: items that are linked; read in each cycle, not pulled

Written to `output` (default <folder>/hitl-output/): consensus.csv, order.csv, assignments/<annotator>.csv,
labels_wanted.csv, added_items.jsonl and gold.csv; the last two are read back. A file is written whole, and only when
its content changes.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field

from hitl.connectors import table_spans
from hitl.connectors.table_output import file_name, table_of_rows, write_if_changed
from hitl.connectors.table_rows import NEWEST, Answers, is_nothing, number_of
from hitl.connectors.table_shrinkage import Look, counted, is_cut, state_of
from hitl.errors import BadInput, BadTable, Refused
from hitl.evidence import ROW_TOLERANCE
from hitl.exchange import (
    AnnotationRow,
    AnnotatorRow,
    Check,
    Cursor,
    ItemRow,
    Operation,
    Page,
    PredictionRow,
    Question,
    Receipt,
)
from hitl.settings import GraphSettings, SourceSettings
from hitl.tables.batches import files_of
from hitl.tables.encoding import natural_order, seconds_of
from hitl.tables.files import read_table, require_columns, table_in
from hitl.tables.places import place_in
from hitl.tables.probabilities import read_probabilities

PAGE = 5_000
QUESTION = "label"
WHAT_IS_READ = (
    "source.path (relative to hitl.toml) names a folder with annotations.csv, .jsonl or .parquet, or such a file; "
    "its columns are item, annotator, label, or as source.item, source.annotator, source.label say"
)
_IN_DOUBT = (
    "more than source.max_shrink allows, as in a file that is still being written. Nothing was deleted; what is new "
    "was taken. The next cycle deletes them if the files stay as they are; if they are meant to be gone now, run "
    "`hitl run --accept-deletions`"
)
NAMES = ("annotations", "items", "truth", "added_items", "gold")


class TablesSettings(SourceSettings):
    """The keys of `[source]` for tables: where they are, and what their columns are called.

    A table that lost more than the share `max_shrink` of its rows since the last cycle is looked at twice before they
    are taken for deleted.
    """

    kind: Literal["tables"] = "tables"
    path: str = Field(min_length=1)
    item: str = "item"
    annotator: str = "annotator"
    label: str = "label"
    time: str | None = None
    classes: tuple[str, ...] = ()
    abstain: tuple[str, ...] = ()
    output: str | None = None
    max_shrink: float = Field(default=0.1, ge=0, le=1)

    def graph(self, folder: Path) -> GraphSettings:
        """That of graph.*, if it is in the folder of tables."""
        found = table_in(folder / self.path, "graph")
        return GraphSettings() if found is None else GraphSettings(file=str(found.resolve()), item=self.item)


class Tables:
    """A folder or file of tables as source and sink.

    `item`, `annotator`, `label`, `time` name the columns; `classes` fixes the classes (default: all labels seen but
    those of `abstain`, which are answers but no classes, such as "unsure").

    Example:
        >>> import tempfile, pathlib
        >>> from hitl.connectors import Tables
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> _ = (folder / "annotations.csv").write_text("item,annotator,label\\n1,ann,cat\\n1,bob,dog\\n")
        >>> Tables(folder).questions()[0].classes
        ('cat', 'dog')
    """

    Settings = TablesSettings

    @classmethod
    def open(cls, settings: TablesSettings, folder: Path) -> Tables:
        """The tables that `[source]` of a hitl.toml in `folder` names."""
        named = settings.model_dump(exclude={"kind", "path", "output"})
        output = None if settings.output is None else folder / settings.output
        return cls(folder / settings.path, output=output, **named)

    def __init__(
        self,
        path: str | Path,
        *,
        item: str = "item",
        annotator: str = "annotator",
        label: str = "label",
        time: str | None = None,
        classes: tuple[str, ...] = (),
        abstain: tuple[str, ...] = (),
        output: str | Path | None = None,
        max_shrink: float = 0.1,
    ) -> None:
        self._path = Path(path)
        self._columns = (item, annotator, label, time)
        self._classes = tuple(name for name in classes if name not in abstain)
        self._abstain = abstain
        root = self._path if self._path.is_dir() else self._path.parent
        self._output = Path(output) if output else root / "hitl-output"
        self._max_shrink = max_shrink
        self._accepts_deletions = False
        self._classes_kept: tuple[str, ...] = ()  # of rows that are stored still, while the tables are doubted

    @property
    def place(self) -> str:
        """The full path."""
        return str(self._path.resolve())

    def is_at(self, place: str) -> bool:
        """Whether it is the same path, or one that is no longer there: the folder was moved."""
        return place == self.place or not Path(place).exists()

    # -- source --------------------------------------------------------------------------------------------

    def questions(self) -> tuple[Question, ...]:
        """One question; its classes are the labels and probability columns seen, unless given."""
        item, _, label, _ = self._columns
        parts = self._parts()
        if self._classes:
            return (Question(QUESTION, self._classes, self._classes + self._abstain, **parts),)
        found: dict[str, None] = dict.fromkeys(self._classes_kept)
        for name in ("annotations", "truth", *(() if parts else ("gold",))):  # known spans are whole answers there
            table = self._read(name, [item, label])
            if table is not None:
                require_columns(table, [label], str(self._find(name)))
                found |= dict.fromkeys(value for value in table.column(label).to_pylist() if value)
        for table in self._models().values():
            found |= dict.fromkeys(name[2:] for name in table.column_names if name.startswith("p_"))
        classes = tuple(natural_order([name for name in found if name not in self._abstain]))
        return (Question(QUESTION, classes, classes + self._abstain, **parts),)

    def accept_deletions(self) -> None:
        """Take rows that are gone for deleted, however many they are."""
        self._accepts_deletions = True

    def pull(self, cursor: Cursor | None) -> Iterator[Page]:
        """All pages when a file changed since the cursor, else none; resumable by item.

        Tables that shrank are doubted (`table_shrinkage`): their pages are partial. Raises BadTable when a table that
        an earlier pull has read is gone: its rows were not taken back.
        """
        named = cursor.get("tables") if cursor else None
        tables = self._present(named if isinstance(named, list) else [])
        stamp, state, look = self._stamp(), state_of(self._files()), Look.of(cursor)
        after, again = 0, False
        if cursor and cursor.get("files") == stamp:
            after = int(cursor.get("after") or 0)
            again = cursor.get("after") is None
            if again and look.doubted is None:
                return
        items = self._items()
        annotations, problems = self._annotations()
        predictions, unusable = self._predictions()
        rows = counted(items, annotations, predictions)
        lost = [] if self._accepts_deletions or (again and look.doubted == state) else look.lost(rows, self._max_shrink)
        if lost:
            self._classes_kept = look.classes
            if is_cut(self._find("annotations")):
                annotations, problems = self._annotations(but_last=True)
            look = replace(look, doubted=state)
            problems.insert(0, f"{self._path}: {'; '.join(lost)}: {_IN_DOUBT}")
        else:
            self._classes_kept = ()
            look = Look(rows, tuple(map(str, self.questions()[0].classes)))
        problems += unusable + self._strange_truth(annotations, predictions)
        self._present(tables)  # what was moved away while we read was not read
        people = tuple(sorted({row.annotator for rows in annotations.values() for row in rows if row.annotator}))
        keys = list(dict.fromkeys([*items, *annotations, *predictions]))
        for start in range(after, max(len(keys), 1), PAGE):
            part = keys[start : start + PAGE]
            last = start + PAGE >= len(keys)
            following = None if last else start + PAGE
            yield Page(
                cursor={"files": stamp, "after": following, "tables": tables, "look": look.as_json()},
                items=tuple(ItemRow(key, items.get(key, {}), NEWEST) for key in part),
                annotations=tuple(row for key in part for row in annotations.get(key, ())),
                predictions=tuple(row for key in part for row in predictions.get(key, ())),
                annotators=tuple(AnnotatorRow(name, name) for name in people) if start == after else (),
                live=frozenset(keys) if last else None,
                problems=tuple(problems) if last else (),
                total=len(keys),
                partial=bool(lost),
            )

    # -- sink ----------------------------------------------------------------------------------------------

    def push(self, operations: Iterable[Operation]) -> Iterator[Receipt]:
        """Write what each operation says; files that already say so are left alone."""
        writers = {
            "consensus": self._push_consensus,
            "order": self._push_order,
            "assign": self._push_order,
            "labels_wanted": self._push_labels_wanted,
            "add_items": self._push_items,
            "gold": self._push_gold,
        }
        for operation in operations:
            if operation.kind not in writers:
                raise Refused(f"tables: an operation {operation.kind!r} is not known; expected {', '.join(writers)}")
            (self._output / "assignments").mkdir(parents=True, exist_ok=True)
            path, table = writers[operation.kind](operation)
            changed = write_if_changed(path, table)
            yield Receipt(operation, table.num_rows if changed else 0, str(path))

    def _push_consensus(self, operation: Operation) -> tuple[Path, pa.Table]:
        pushed = [row for rows in operation.payload["questions"].values() for row in rows]
        if any("spans" in row for row in pushed):
            columns = ["item", "start", "end", "label", "confidence", "text"]
            return self._output / "consensus.csv", table_of_rows(table_spans.consensus_rows(pushed), columns)
        rows = [
            {
                "item": row["item"],
                "label": row["label"],
                "confidence": row["confidence"],
                **{f"p_{name}": p for name, p in row["probabilities"].items()},
            }
            for row in pushed
        ]
        return self._output / "consensus.csv", table_of_rows(rows, ["item", "label", "confidence"])

    def _push_order(self, operation: Operation) -> tuple[Path, pa.Table]:
        """The order of all, or of what one annotator is asked."""
        name = "order.csv" if operation.kind == "order" else f"assignments/{file_name(operation.key)}.csv"
        rows = [{"priority": rank, "item": key} for rank, key in enumerate(operation.payload["items"], start=1)]
        return self._output / name, table_of_rows(rows, ["priority", "item"])

    def _push_labels_wanted(self, operation: Operation) -> tuple[Path, pa.Table]:
        rows = [{"item": key, "labels": wanted} for key, wanted in sorted(operation.payload["items"].items())]
        return self._output / "labels_wanted.csv", table_of_rows(rows, ["item", "labels"])

    def _push_items(self, operation: Operation) -> tuple[Path, pa.Table]:
        item = self._columns[0]
        path = self._output / "added_items.jsonl"
        known = {row[item]: row for row in read_table(path, [item]).to_pylist()} if path.exists() else {}
        known |= {row["key"]: {item: row["key"], **row["data"]} for row in operation.payload["items"]}
        return path, table_of_rows(list(known.values()), [item])

    def _push_gold(self, operation: Operation) -> tuple[Path, pa.Table]:
        item, _, label, _ = self._columns
        path = self._output / "gold.csv"
        known = {row[item]: row for row in read_table(path, [item, label]).to_pylist()} if path.exists() else {}
        for labels in operation.payload["questions"].values():
            known |= {key: {item: key, label: value} for key, value in labels.items()}
        return path, table_of_rows(list(known.values()), [item, label])

    # -- check ---------------------------------------------------------------------------------------------

    def check(self) -> list[Check]:
        """Whether the tables can be read and the output written."""
        checks = []
        try:
            self._files()
            annotations, problems = self._annotations()
            labels = sum(row.kind == "answer" for rows in annotations.values() for row in rows)
            problems = [*problems, *self._predictions()[1]]
            checks.append(Check("annotations", True, f"{labels:,} labels on {len(annotations):,} items"))
            checks += [Check("annotations", False, problem, "mend the row, or ignore this") for problem in problems]
            classes = self.questions()[0].classes
            mend = "name the classes in hitl.toml: source.classes"
            checks.append(Check("classes", len(classes) >= 2, ", ".join(map(str, classes)) or "none", mend))
        except BadInput as error:
            checks.append(Check("annotations", False, str(error), WHAT_IS_READ))
        parent = self._output if self._output.exists() else self._output.parent
        checks.append(Check("output", parent.is_dir(), str(self._output), f"make the folder {parent}"))
        return checks

    # -- reading -------------------------------------------------------------------------------------------

    def _find(self, name: str) -> Path | None:
        if name == "annotations" and not self._path.is_dir():
            if not self._path.exists():
                raise BadTable(f"{self._path}: no such file or folder")
            return self._path
        return table_in(self._output if name in ("added_items", "gold") else self._path, name)

    def _read(self, name: str, text: list[str]) -> pa.Table | None:
        path = self._find(name)
        return None if path is None else read_table(path, text)

    def _marks_parts(self) -> bool:
        """Whether annotations are parts of texts, or stretches of time."""
        return table_spans.are_in(self._read("annotations", [self._columns[2]]))

    def _parts(self) -> dict[str, str]:
        """What a question about parts is asked of: a text, where items have one, or a recording."""
        if not self._marks_parts():
            return {}
        of_texts = any(table_spans.TEXT in data for data in self._items().values())
        return {"text": table_spans.TEXT} if of_texts else {"line": table_spans.RECORDING}

    def _models(self) -> dict[str, pa.Table]:
        if not self._path.is_dir():
            return {}
        item = self._columns[0]
        named = self._read("items", [item])
        order = named.column(item).to_pylist() if named is not None and item in named.column_names else None
        models: dict[str, pa.Table] = {}
        for path in self._model_files():
            model = _stem(path).removeprefix("probabilities_")
            if model in models:
                raise BadTable(f"{path}: another file of the same name is there; expected one for each model")
            models[model] = read_probabilities(path, item, items=order, classes=self._classes or None)
        return models

    def _model_files(self) -> list[Path]:
        return sorted(self._path.glob("probabilities_*"))

    def _present(self, expected: Iterable[str]) -> list[str]:
        """The names of the tables that are there. Raises BadTable when an expected one is not."""
        there = [name for name in NAMES if self._find(name) is not None]
        if self._path.is_dir():
            there += sorted({_stem(path) for path in self._model_files()})
        for name in expected:
            if name not in there:
                folder = self._output if name in ("added_items", "gold") else self._path
                raise BadTable(
                    f"{folder}: {name}.* is gone, which an earlier pull has read; nothing was deleted. "
                    "Put it back, or, if it is meant to be gone, run `hitl pull --full`"
                )
        return there

    def _files(self) -> list[Path]:
        found = [path for name in NAMES if (path := self._find(name)) is not None]
        if self._path.is_dir():
            found += [file for path in self._model_files() for file in files_of(path)]
        if self._find("annotations") is None and self._find("items") is None:
            raise BadTable(f"{self._path}: neither annotations.* nor items.* (csv, jsonl, parquet) is there")
        return found

    def _stamp(self) -> str:
        """A digest of all files that are read: a changed byte means a new pull."""
        digest = hashlib.sha256()
        for path in self._files():
            digest.update(path.name.encode())
            digest.update(hashlib.sha256(path.read_bytes()).digest())
        return digest.hexdigest()[:16]

    def _items(self) -> dict[str, Mapping[str, Any]]:
        item = self._columns[0]
        rows: dict[str, Mapping[str, Any]] = {}
        for name in ("items", "added_items"):
            table = self._read(name, [item])
            if table is not None:
                require_columns(table, [item], name)
                for number, row in enumerate(table.to_pylist()):
                    key = row.pop(item)
                    if not key:
                        raise BadTable(f"{place_in(table)(number)}: the {item} is empty; expected a name in every row")
                    rows[key] = {column: value for column, value in row.items() if value is not None}
        return rows

    def _annotations(self, *, but_last: bool = False) -> tuple[dict[str, list[AnnotationRow]], list[str]]:
        """Rows by item, and problems in words; of two answers of one annotator the latest, or the last row, wins.

        `but_last` leaves the last row out.
        """
        item, annotator, label, time = self._columns
        answers: dict[tuple[str, str], tuple[float, AnnotationRow]] = {}
        contradicted = 0
        problems: list[str] = []
        table = self._read("annotations", [item, annotator, label])
        if table is not None and but_last:
            table = table.slice(0, max(table.num_rows - 1, 0))
        of_texts = table is not None and table_spans.are_in(table)
        if table is not None and of_texts:
            table = table_spans.as_answers(table, self._items(), item, label, [annotator, *([time] if time else [])])
        rows = Answers(item, annotator, label, QUESTION)
        if table is not None:
            require_columns(table, [item, label, *([time] if time else [])], str(self._find("annotations")))
            place_of = place_in(table)
            seconds = seconds_of(table.column(time), time) if time else np.full(table.num_rows, np.nan)
            for number, row in enumerate(table.to_pylist()):
                if self._classes and not of_texts and row[label] and row[label] not in self._classes:
                    problems.append(f"{place_of(number)}: {row[label]!r} is not one of source.classes; left out")
                    continue
                if not row[item]:
                    raise BadTable(f"{place_of(number)}: the {item} is empty; expected a name in every row")
                made = rows.row(row)
                key = (made.item, made.key)
                at = -math.inf if math.isnan(seconds[number]) else float(seconds[number])
                before, earlier = answers.get(key, (at, None))
                contradicted += earlier is not None and earlier.label != made.label and before == at
                if at >= before:
                    answers[key] = at, made
        gold = self._gold()
        grouped: dict[str, list[AnnotationRow]] = {}
        for made in [*(row for _, row in answers.values()), *gold]:
            grouped.setdefault(made.item, []).append(made)
        if contradicted:
            problems.append(
                f"{contradicted} rows contradict an earlier answer of the same annotator; the last row wins"
            )
        return grouped, problems

    def _gold(self) -> list[AnnotationRow]:
        item, _, label, _ = self._columns
        known: dict[str, AnnotationRow] = {}
        marks_parts = self._marks_parts()
        for name in ("truth", "gold"):
            table = self._read(name, [item, label])
            if table is not None:
                require_columns(table, [item, label], name)
                if table_spans.are_in(table):
                    table = table_spans.as_answers(table, self._items(), item, label)
                pairs = zip(table.column(item).to_pylist(), table.column(label).to_pylist(), strict=True)
                place_of = place_in(table)
                for number, (key, value) in enumerate(pairs):
                    if not key or not value:
                        what = label if key else item
                        raise BadTable(f"{place_of(number)}: the {what} is empty; expected both in every row")
                    if self._classes and not marks_parts and value not in self._classes:
                        raise BadTable(
                            f"{place_of(number)}: {value!r} is no class; expected one of {', '.join(self._classes)} "
                            "(source.classes)"
                        )
                    place = json.dumps([key, None, "truth"])
                    known[key] = AnnotationRow(place, key, QUESTION, None, value, "gold", NEWEST, NEWEST)
        return list(known.values())

    def _strange_truth(
        self, annotations: Mapping[str, list[AnnotationRow]], predictions: Mapping[str, list[PredictionRow]]
    ) -> list[str]:
        """Words about known labels that no annotator has ever given, which may be rare classes or typing errors."""
        rows = [row for several in annotations.values() for row in several]
        usual = {row.label for row in rows if row.kind == "answer"} | {
            name for several in predictions.values() for row in several for name in row.probabilities
        }
        if self._classes or not usual - {None} or self._marks_parts():
            return []
        strange = {row.label: row.item for row in reversed(rows) if row.kind == "gold" and row.label not in usual}
        return [
            f"known truth of item {item!r}: no annotator has ever said {label!r}, which is a new class now; "
            "if it is none, mend it, and name the classes in hitl.toml: source.classes"
            for label, item in strange.items()
        ]

    def _predictions(self) -> tuple[dict[str, list[PredictionRow]], list[str]]:
        """Rows by item, and problems in words: no distribution is left out, an empty row is an abstention."""
        grouped: dict[str, list[PredictionRow]] = {}
        problems: list[str] = []
        for model, table in self._models().items():
            require_columns(table, [self._columns[0]], f"probabilities_{model}")
            place_of = place_in(table)
            for number, row in enumerate(table.to_pylist()):
                key = row[self._columns[0]]
                stated = {name[2:]: value for name, value in row.items() if name.startswith("p_")}
                if key and stated and all(is_nothing(value) for value in stated.values()):
                    continue
                shares = {name: number_of(value) for name, value in stated.items()}
                if key and shares and abs(sum(shares.values()) - 1) <= ROW_TOLERANCE and min(shares.values()) >= 0:
                    grouped.setdefault(key, []).append(PredictionRow(key, QUESTION, model, shares))
                else:
                    problems.append(f"model {model}, {place_of(number)}: no distribution over the classes; left out")
        return grouped, problems


def _stem(path: Path) -> str:
    """The name of a table or model without its format; a folder has none."""
    return path.name if path.is_dir() else path.name.removesuffix(".gz").rsplit(".", 1)[0]
