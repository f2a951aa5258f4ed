"""Use a folder of tables as a labeling platform: the reference connector, without network.

Read from the folder (CSV, JSON Lines or Parquet; .gz allowed), or a single annotations file:

    annotations.*              item, annotator, label [, time, duration]; an empty label is a skip;
                               start and end mark parts of texts or recordings
    items.*                    item and any other columns: what annotators see; items without labels
    truth.*                    item, label: ground truth
    probabilities_<model>.*    item, p_<class>, or any other format that `hitl combine` reads (.npz, Hugging Face);
                               the rows of an array without row names are the items of items.*, in order
    graph.*                    item, neighbour [, weight]: linked items; read in each run, not pulled

Written to `output` (default <folder>/hitl-output/): consensus.csv, order.csv, assignments/<annotator>.csv,
labels_wanted.csv, added_items.jsonl and gold.csv; the last two are read back. A file is written atomically, and only
if its content changes.

A table that lost many rows at once may be half-written. The pull then reads new rows and deletes nothing. A later pull
that finds the files unchanged (by size and modification time) for SETTLED seconds accepts the missing rows as deleted.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import pyarrow as pa
from pydantic import AfterValidator, Field

from hitl.connectors.table_files import GRAPH, TableFiles
from hitl.connectors.table_page import TablePage
from hitl.connectors.table_reading import TEXT, Columns, Reading
from hitl.errors import BadInput, BadTable, Refused
from hitl.platform import Check, Connector, Cursor, Difference, Operation, Page, Progress, Question, Receipt, silent
from hitl.settings import GraphSettings, SourceSettings
from hitl.settings.section import check
from hitl.tables.columns import require_distinct
from hitl.tables.names import NameReader, TextRules
from hitl.tables.read import read_table, table_in
from hitl.tables.table_operation import TableOperation, pushed_table
from hitl.tables.write import atomic, bytes_of, file_name

WHAT_IS_READ = (
    "source.path (relative to hitl.toml) names a folder with annotations.csv, .jsonl or .parquet, or such a file; "
    "its columns are item, annotator, label, or as source.item, source.annotator, source.label say"
)
_IN_DOUBT = (
    "more than source.max_shrink allows. A file may be half-written, so nothing was deleted; new rows were read. If "
    "the files stay like this for ten minutes, the next run after that deletes the missing rows. To delete them now: "
    "`hitl run --accept-deletions`"
)
OPERATIONS = ("consensus", "order", "assign", "labels_wanted", "add_items", "gold")
FEW = 10
"""Number of rows that a table may always lose at once unless it loses all, because small tables are edited by hand."""
SETTLED = 600.0
"""Seconds that files must stay the same before missing rows count as deleted: an export or a copy over a network may
pause for minutes, and a schedule may pull every minute.
"""


class TablesSettings(SourceSettings):
    """Keys of `[source]` for tables: their location and the names of their columns."""

    kind: Literal["tables"] = "tables"
    """A folder or a file of tables."""
    path: str = Field(min_length=1)
    """Folder or file, relative to hitl.toml."""
    item: str = "item"
    """Column of the item."""
    annotator: str = "annotator"
    """Column of the annotator."""
    label: str = "label"
    """Column of the label."""
    time: str | None = None
    """Column of the time of an answer."""
    classes: Annotated[tuple[str, ...], AfterValidator(check(require_distinct))] = ()
    """Classes, if the labels so far do not show all of them."""
    abstain: tuple[str, ...] = ()
    """Labels that are no class, such as "Unsure"."""
    output: str | None = None
    """Folder of results; default: `hitl-output` in the folder of tables."""
    max_shrink: float = Field(default=0.1, ge=0, le=1)
    """Share of its rows that a table may lose between runs. Above it, missing rows are deleted once the files settle.
    """
    trim: bool = False
    """Ignore spaces around names."""
    ignore_case: bool = False
    """Treat names that differ only in case as one."""
    na: tuple[str, ...] = ()
    """Texts that stand for an empty field, such as "NA"."""
    day_first: bool | None = None
    """True if 3/1/2026 is in January; needed if no date of the column shows it."""

    def graph(self, folder: Path) -> GraphSettings:
        """Return the settings of graph.*, or empty settings if it is not in the folder of tables."""
        found = table_in(folder / self.path, GRAPH)
        return GraphSettings() if found is None else GraphSettings(file=str(found.resolve()), item=self.item)

    def table_at(self, path: Path, folder: Path) -> str | None:
        """Return the name of the table at this path, even if the file does not exist; None if it would be no table."""
        return Tables.open(self, folder).files.table_at(path)


@dataclass(frozen=True)
class Look:
    """State of the tables at a pull, stored in its cursor.

    Attributes:
        rows: number of rows per table when the tables were last accepted.
        classes: classes seen at that time.
        doubted: state of the files (`TableFiles.state`) if they were not accepted, else None.
        since: when the files were first found in that state, in seconds since the epoch.
    """

    rows: Mapping[str, int] = field(default_factory=dict)
    classes: Sequence[str] = ()
    doubted: str | None = None
    since: float = 0.0

    def lost(self, rows: Mapping[str, int], share: float) -> list[str]:
        """Describe the tables that lost more rows than allowed."""
        return [
            f"{name}.* has {now:,} rows where the last run found {before:,}"
            for name, before in self.rows.items()
            if before - (now := rows.get(name, 0)) > max(share * before, FEW if now else 0)
        ]


class Tables(Connector):
    """A folder or file of tables as source and sink.

    `item`, `annotator`, `label`, `time` name the columns; `classes` fixes the classes (default: all labels seen except
    those in `abstain`, which are answers but not classes, such as "unsure"). `rules` are those of
    `hitl.tables.names.TextRules`.

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
        """Return the tables that `[source]` of a hitl.toml in `folder` names."""
        named = settings.model_dump(exclude={"kind", "path", "output"})
        folder = folder.absolute()  # messages name files in full, whatever the working folder
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
        **rules: Any,
    ) -> None:
        self._path = Path(path)
        reader = NameReader(TextRules(**rules))
        named, other = reader.names("label", classes), reader.names("label", abstain)
        named = tuple(name for name in named if name not in other)
        self._columns = Columns(item, annotator, label, time, named, other, TextRules(**rules))
        root = self._path if self._path.is_dir() else self._path.parent
        self._output = Path(output) if output else root / "hitl-output"
        self._max_shrink = max_shrink
        self._accepts_deletions = False
        self._last = Look()  # state at the last pull, from which the next one starts
        self._classes_kept: Sequence[str] = ()  # classes of rows that stay stored while deletions are unconfirmed
        self._asked: tuple[str, Question] | None = None  # stamp of the files, and their question
        self._pulled: str | None = None  # stamp of the files at the last pull

    @property
    def files(self) -> TableFiles:
        """Files of the tables."""
        return TableFiles(self._path, self._output)

    @property
    def place(self) -> str:
        """Full path."""
        return str(self._path.resolve())

    def is_at(self, place: str) -> bool:
        """Return True if `place` is this path, or does not exist any more, as after moving the folder.

        Raises BadTable if this path does not exist.
        """
        if place == self.place:
            return True
        if not self._path.exists():
            raise BadTable(f"source.path: {self._path} is no file or folder")
        return not Path(place).exists()

    # -- source --------------------------------------------------------------------------------------------

    def questions(self) -> tuple[Question, ...]:
        """Return the only question. Unless configured, its classes are the labels and probability columns seen.

        After a pull, it describes the files as they were pulled.
        """
        stamp = self._pulled or self.files.stamp()
        if self._asked is None or self._asked[0] != stamp:
            self._asked = stamp, Reading(self.files, self._columns).question(self._classes_kept)
        return (self._asked[1],)

    def recall(self, cursor: Cursor | None) -> None:
        """Include the classes of the last pull, because stored answers use them whatever the tables contain now."""
        self._last = _look_in(cursor)
        self._classes_kept, self._asked = self._last.classes, None

    def accept_deletions(self) -> None:
        """Accept all missing rows as deletions, however many."""
        self._accepts_deletions = True

    def pull(self, cursor: Cursor | None) -> Iterator[Page]:
        """Yield the content of all tables as one page if a file has changed. The store finds what differs by digests.

        A page is also yielded if the names of columns or classes have changed, or deletions were left unconfirmed.
        Raises BadTable if a table is gone that an earlier pull has read, because a missing file deletes no rows.
        """
        before, files = cursor or {}, self.files
        tables, look = files.present(before.get("tables") or ()), self._last if cursor is None else _look_in(cursor)
        state, self._pulled = files.state(), files.stamp()
        read_as = {"files": self._pulled, "columns": self._columns.digest}
        again = all(before.get(name) == value for name, value in read_as.items())
        if again and look.doubted is None:
            return
        reading = Reading(files, self._columns)
        answers, rows = reading.answers, reading.counted()
        since = min(look.since, time.time()) if look.doubted == state else time.time()
        is_believed = self._accepts_deletions or (again and time.time() >= since + SETTLED)
        lost = [] if is_believed else look.lost(rows, self._max_shrink)
        problems = [f"{self._path}: {'; '.join(lost)}: {_IN_DOUBT}"] if lost else []
        self._classes_kept = look.classes if lost else ()
        if lost and files.is_cut():
            answers = reading.answers_but(1)
        question = reading.question(self._classes_kept)
        self._asked = self._pulled, question
        self._last = (
            replace(look, doubted=state, since=since) if lost else Look(rows, tuple(map(str, question.classes)))
        )
        problems += [] if lost else reading.new_classes(answers, look.classes)
        problems += [*answers.problems, *reading.predictions[1], *reading.doubts(answers)]
        files.present(tables)  # raises if a table was moved away before it was read
        whole = TablePage(reading, answers, self._columns)
        is_known = before.get("live") == whole.names_digest
        live = whole.names_digest if is_known or not lost else None
        after = {**read_as, "tables": tables, "look": asdict(self._last), "live": live}
        yield whole.page(after, problems, tell_live=not is_known, partial=bool(lost))

    # -- sink ----------------------------------------------------------------------------------------------

    def push(self, operations: Iterable[Operation]) -> Iterator[Receipt]:
        """Write the result of each operation. Files that are already up to date are not touched."""
        for operation in operations:
            path, table, changed = self._written(operation)
            (self._output / "assignments").mkdir(parents=True, exist_ok=True)
            written = _write_if_changed(path, table)
            yield Receipt(operation, changed if written else 0, str(path))

    def _written(self, operation: Operation) -> tuple[Path, pa.Table, int]:
        """Return the file of an operation, its content, and the number of rows that change if it is written."""
        item, label = self._columns.item, self._columns.label
        match operation.kind:
            case "consensus":
                table, name = _consensus(operation), "consensus.csv"
            case "order" | "assign":
                rows = [{"priority": rank, "item": key} for rank, key in enumerate(operation.payload["items"], start=1)]
                name = "order.csv" if operation.kind == "order" else f"assignments/{file_name(operation.key)}.csv"
                table = _table_of_rows(rows, ["priority", "item"])
            case "labels_wanted":
                table, name = _labels_wanted(operation), "labels_wanted.csv"
            case "add_items":
                added = [{item: row["key"], **row["data"]} for row in operation.payload["items"]]
                return self._with_added("added_items.jsonl", [item], added)
            case "gold":
                questions = operation.payload["questions"].values()
                truth = [{item: key, label: value} for labels in questions for key, value in labels.items()]
                return self._with_added("gold.csv", [item, label], truth)
            case _:
                raise Refused(f"tables: an operation {operation.kind!r} is not known; expected {', '.join(OPERATIONS)}")
        return self._output / name, table, table.num_rows

    def _with_added(self, name: str, columns: list[str], rows: list[dict[str, Any]]) -> tuple[Path, pa.Table, int]:
        """Return the file, its rows after these are added (or replaced, by item), and how many rows change."""
        path = self._output / name
        there = read_table(path, columns).to_pylist() if path.exists() else []
        before = {row[columns[0]]: row for row in there}
        after = before | {row[columns[0]]: row for row in rows}
        changed = sum(_without_nulls(before.get(key, {})) != _without_nulls(row) for key, row in after.items())
        return path, _table_of_rows(list(after.values()), columns), changed

    def departures(self, operations: Sequence[Operation], progress: Progress = silent) -> Iterator[Difference]:
        """Find the files that are not as `push` would write them."""
        for operation in operations:
            path, table, _ = self._written(operation)
            if not path.is_file() or path.read_bytes() != bytes_of(path, table):
                yield Difference(operation.kind, operation.key, f"{path} is gone or was changed")

    # -- check ---------------------------------------------------------------------------------------------

    def check(self) -> list[Check]:
        """Check that the tables can be read, and that the output has a folder."""
        checks = []
        try:
            self.files.all()
            reading = Reading(self.files, self._columns)
            answers = reading.answers
            items = len({*answers.unique(self._columns.item), *reading.gold})
            problems = [*answers.problems, *reading.predictions[1]]
            labels = answers.count_labels(self._columns.label)
            checks.append(Check("annotations", True, f"{labels:,} labels on {items:,} items"))
            checks += [Check("annotations", False, problem, "fix the row, or ignore this") for problem in problems]
            checks += [Check("names", True, doubt) for doubt in reading.doubts(answers)]
            classes = self.questions()[0].classes
            fix = "name the classes in hitl.toml: source.classes"
            checks.append(Check("classes", len(classes) >= 2, ", ".join(map(str, classes)) or "none", fix))
        except BadInput as error:
            checks.append(Check("annotations", False, str(error), WHAT_IS_READ))
        parent = self._output if self._output.exists() else self._output.parent
        checks.append(Check("output", parent.is_dir(), str(self._output), f"make the folder {parent}"))
        return checks


def _consensus(operation: Operation) -> pa.Table:
    """Return the content of consensus.csv."""
    columns = ["item", "label", "confidence"]
    if isinstance(operation, TableOperation):
        whole = pa.concat_tables(map(pushed_table, operation.tables.values()), promote_options="default")
        return whole if whole.num_rows else _table_of_rows([], columns)
    pushed = [row for rows in operation.payload["questions"].values() for row in rows]
    if any("parts" in row for row in pushed):  # spans; an item without spans gets an empty row
        of_texts = {TEXT: None} if all(TEXT in span for row in pushed for span in row["parts"]) else {}
        nothing = {"start": None, "end": None, "label": None}
        rows = [
            {"item": row["item"], **span}
            for row in pushed
            for span in row["parts"] or [{**nothing, "confidence": row["confidence"], **of_texts}]
        ]
        return _table_of_rows(rows, ["item", "start", "end", "label", "confidence", "text"])
    rows = [
        {name: row[name] for name in columns} | {f"p_{name}": p for name, p in row["probabilities"].items()}
        for row in pushed
    ]
    return _table_of_rows(rows, columns)


def _labels_wanted(operation: Operation) -> pa.Table:
    """Return the content of labels_wanted.csv."""
    if isinstance(operation, TableOperation):
        return operation.tables[""]
    rows = [{"item": key, "labels": labels} for key, labels in sorted(operation.payload["items"].items())]
    return _table_of_rows(rows, ["item", "labels"])


def _without_nulls(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row without nulls, also nested ones, because a missing value is read back as null."""
    plain = ((name, _without_nulls(value) if isinstance(value, Mapping) else value) for name, value in row.items())
    return {name: value for name, value in plain if value is not None}


def _look_in(cursor: Cursor | None) -> Look:
    return Look(**((cursor or {}).get("look") or {}))


def _table_of_rows(rows: list[dict[str, Any]], columns: list[str]) -> pa.Table:
    """Build a table with every column that any row has. A column of mixed types becomes text."""
    names = dict.fromkeys([*(columns if not rows else ()), *(name for row in rows for name in row)])
    arrays = {}
    for name in names:
        values = [row.get(name) for row in rows]
        try:
            arrays[name] = pa.array(values) if rows else pa.array([], pa.string())
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            arrays[name] = pa.array([None if value is None else str(value) for value in values], pa.string())
    return pa.table(arrays)


def _write_if_changed(path: Path, table: pa.Table) -> bool:
    """Write the table atomically unless the file already has the same bytes. Return True if it was written."""
    content = bytes_of(path, table)
    if path.is_file() and path.stat().st_size == len(content) and path.read_bytes() == content:
        return False
    with atomic(path) as file:
        file.write(content)
    return True
