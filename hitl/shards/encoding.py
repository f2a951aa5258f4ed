"""Convert tables of names into a folder of shards, in bounded memory.

    1. Tables are read in parts. Names of annotators and labels become codes. Rows are written to disk as runs, sorted
       by the hash of their item (`runs`).
    2. Each range of hashes is read back and becomes one shard: its items sorted by name, with the answers that
       count.

Memory holds one part of a table, one run or one shard, and the names of annotators and labels. Rows follow the rules of
`Annotations.from_frame`. The contents of a shard do not depend on the memory, and depend on the order of the rows only
where the last of several answers counts. Each shard is a random sample of the items, because it has a range of hashes.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hitl.annotations import ANONYMOUS, Ints, Name, Names
from hitl.errors import BadAnnotations, BadEvidence, BadTable
from hitl.evidence import Evidence
from hitl.formatting import counted, listed
from hitl.platform import Progress, silent
from hitl.shards import places
from hitl.shards.reading import MANIFEST, Folder, Manifest, MappedAnnotations, StoredShards
from hitl.shards.runs import Runs, equal_ranges
from hitl.tables.align import Match, truth_of
from hitl.tables.columns import Place, empty_as_null, numbers_of, require_columns, row_number
from hitl.tables.encode import (
    check_names,
    latest_answers,
    natural_order,
    options_of,
    report_conflicts,
    report_empty,
)
from hitl.tables.limits import limits, require_fit
from hitl.tables.names import OTHER, NameReader, TextRules, require_no_list, warn_of_similar
from hitl.tables.read import place_in_file, read_parts
from hitl.tables.times import order_of, seconds_of
from hitl.tables.write import exclusive_lock

PART = 1 << 18
"""Number of rows of a table that are read at a time."""

RUN_BYTES = 128 << 20
"""Bytes of rows that are sorted together. This takes about four times as much memory."""

SHARD_LABELS = 2_000_000
"""Approximate number of rows (labels, predictions, truth) per shard; about 50 MB with the beliefs of ten classes."""


@dataclass(frozen=True)
class Columns:
    """Names of the columns, and how their text is read.

    `annotator` is None if no annotator has an id, `time` is None if there are no times.
    """

    item: str = "item"
    annotator: str | None = "annotator"
    label: str = "label"
    time: str | None = None
    rules: TextRules = TextRules()


class Codes:
    """Codes of names, in order of appearance after those of `known` names. If `closed`, other names are not allowed."""

    def __init__(self, kind: str, known: Names = (), closed: bool = False) -> None:
        self.kind, self.known, self.closed = kind, known, closed
        self.code: dict[Name, int] = {name: code for code, name in enumerate(known)}

    def of(self, column: pa.Array, place_of: Place) -> Ints:
        """Return (rows,) codes, -1 for null. Raise BadAnnotations for a name that is not allowed."""
        coded = column.dictionary_encode()
        names = coded.dictionary.to_pylist()
        for place, name in enumerate(names):
            if name not in self.code and self.closed:
                row = int(pc.index(coded.indices, place).as_py())
                raise BadAnnotations(
                    f"{place_of(row)}: {self.kind} {name!r} is not one of the {len(self.known)} expected "
                    f"({listed(self.known)})"
                )
            self.code.setdefault(name, len(self.code))
        codes = np.array([*(self.code[name] for name in names), -1], np.int32)
        rows: Ints = codes[np.asarray(coded.indices.fill_null(len(names)))]
        return rows

    def in_order(self) -> Names:
        """Return the known names in their order, then new names in natural order."""
        return (*self.known, *natural_order([name for name in self.code if name not in self.known]))

    def recode(self, ordered: Names, of_null: int | None = None) -> Ints:
        """Return (names + 1,) the position in `ordered` of each code, and last `of_null` (or -1), for null."""
        place = {name: code for code, name in enumerate(ordered)}
        return np.array([*(place[name] for name in self.code), -1 if of_null is None else of_null], np.int32)


def encode(
    tables: Sequence[str],
    folder: str,
    columns: Columns = Columns(),
    *,
    probabilities: Mapping[str, Sequence[str]] | None = None,
    truth: Sequence[str] = (),
    classes: Sequence[Name] | None = None,
    options: Sequence[Name] | None = None,
    like: str | None = None,
    strict: bool = False,
    shard_labels: int = SHARD_LABELS,
    run_bytes: int = RUN_BYTES,
    progress: Progress = silent,
) -> Manifest:
    """Write the labels of all tables (files, globs, addresses) as shards into a new folder, created atomically.

    Rows follow the rules of `hitl combine`. Names are text. Of several answers by an annotator to an item, the latest
    counts, or the last row if times are equal or unknown. If such rows differ in their labels, there is one
    ConflictingLabels warning, or an error if `strict`. The tables count as one table, in the order of the files.

    `probabilities`: model -> its tables (item, p_<class>). `truth`: tables of known labels. `like`: folder of shards
    whose codes of annotators, classes and options are reused; new annotators get codes after these.
    Raise BadInput, naming the file and line of the row, and Busy if another process writes this folder.
    """
    with _new(folder) as work:
        encoder = _Encoder(work, columns, like, options_of(classes, options), run_bytes, progress)
        encoder.read(tables, {name: list(files) for name, files in (probabilities or {}).items()}, truth)
        manifest = encoder.write(work / "shards", strict, shard_labels, classes)
        if places.is_address(folder):
            for path in sorted((work / "shards").iterdir(), key=lambda path: path.suffix == ".json"):
                places.write(places.join(folder, path.name), path.read_bytes())
        else:
            os.replace(work / "shards", folder)
    return manifest


@contextmanager
def _new(folder: str) -> Iterator[Path]:
    """Yield a working folder: next to a local target, or a temporary one for an address.

    What a killed run left there is removed first. Raise BadTable if the target exists.
    """
    if places.is_address(folder):
        if places.exists(places.join(folder, MANIFEST)):
            raise BadTable(f"{folder} exists already; name a new folder")
        with tempfile.TemporaryDirectory(prefix="hitl-shards-") as made:
            (Path(made) / "shards").mkdir()
            yield Path(made)
        return
    target = Path(folder)
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise BadTable(f"{folder} exists already; name a new folder")
    if not target.parent.is_dir():
        raise BadTable(f"{folder}: the folder {target.parent} does not exist; make it first")
    work = target.with_name(f".{target.name}.partial")
    work.mkdir(exist_ok=True)
    with exclusive_lock(work / "lock", folder):
        try:
            for left in work.iterdir():
                if left.is_dir():
                    shutil.rmtree(left)
            (work / "shards").mkdir()
            yield work
        except OSError as error:
            said = error.strerror or str(error)
            raise OSError(error.errno, said, error.filename or str(target)) from None  # a full disk names no file
        finally:
            shutil.rmtree(work, ignore_errors=True)


class _Encoder:
    def __init__(
        self,
        work: Path,
        columns: Columns,
        like: str | None,
        options: Sequence[Name] | None,
        run_bytes: int,
        progress: Progress,
    ) -> None:
        self.work, self.columns, self.progress, self.run_bytes = work, columns, progress, run_bytes
        self.like = None if like is None else StoredShards.open(like)
        annotators = () if self.like is None else self.like.annotators
        given = options if self.like is None else self.like.options
        self.reader = NameReader(columns.rules)
        self.reader.names("annotator", map(str, annotators))
        given = None if given is None else self.reader.names("label", map(str, given))
        self.annotators = Codes("annotator", annotators)
        self.labels = Codes("label", () if given is None else tuple(given), given is not None)
        self.nameless = False
        self.unlabeled, self.first_unlabeled = 0, ""
        self.runs: dict[str, Runs] = {}
        self.match: dict[str, tuple[str, Match]] = {}
        self.day_first = columns.rules.day_first

    # -- 1: read -------------------------------------------------------------------------------------------

    def read(self, tables: Sequence[str], models: Mapping[str, Sequence[str]], truth: Sequence[str]) -> None:
        """Write the rows of all tables to runs."""
        self._into("labels", tables, self._label_rows)
        if not self.runs["labels"].n_rows:
            raise BadTable(f"{', '.join(tables)}: the table is empty; expected one row for each label")
        self.models = tuple(models)
        for name, files in models.items():
            self._into(f"model {name}", files, self._model_rows)
        if truth:
            self._into("truth", truth, self._truth_rows)

    def _into(self, kind: str, patterns: Sequence[str], rows_of: Callable[[pa.Table, str, Place], pa.Table]) -> None:
        folder = self.work / f"runs-{len(self.runs)}"
        folder.mkdir()
        self.match[kind] = ", ".join(patterns), Match()
        runs = self.runs[kind] = Runs(folder, self.run_bytes)
        for place in dict.fromkeys(place for pattern in patterns for place in places.matching(pattern)):
            with places.local(place, self.work) as path:
                begins = 0
                for part in read_parts(path, PART):
                    runs.add(rows_of(part, place, place_in_file(path, begins)), place)
                    begins += part.num_rows
                    self.progress(f"read {kind}", runs.n_rows, None)
        runs.flush()

    def _label_rows(self, part: pa.Table, place: str, place_of: Place) -> pa.Table:
        columns = self.columns
        text = [name for name in (columns.item, columns.annotator, columns.label) if name]
        hint = "Name its columns: --item, --annotator, --label, --time; --anonymous: no annotator has an id"
        require_columns(part, [*text, *([columns.time] if columns.time else [])], place, hint)
        kinds = {columns.item: "item", columns.label: "label"}
        kinds |= {} if columns.annotator is None else {columns.annotator: "annotator"}
        kinds |= {} if columns.time is None else {columns.time: OTHER}
        part = self.reader.clean(part, kinds)
        require_fit(part, Path(place), text)
        label = _whole(empty_as_null(part.column(columns.label)))
        if label.null_count:
            self.first_unlabeled = self.first_unlabeled or place_of(int(pc.index(label.is_null(), True).as_py()))
            self.unlabeled += label.null_count
        rows = {
            "item": _filled(part, columns.item, place_of),
            "annotator": self._annotators(part, columns.annotator, place_of),
            "label": self.labels.of(label, place_of),
        }
        if len(self.labels.code) > limits().classes and not self.labels.closed:
            raise BadAnnotations(
                f"{place}: {len(self.labels.code):,} different labels; expected at most {limits().classes:,} classes "
                "(limits.classes). Is this the column of the labels?"
            )
        if columns.time is not None:
            time = part.column(columns.time)
            self.day_first = order_of(time, columns.time, self.day_first, place_of)
            rows["time"] = seconds_of(time, columns.time, self.day_first, place_of)
        return pa.table(rows)

    def _annotators(self, part: pa.Table, name: str | None, place_of: Place) -> Ints:
        if name is None:
            self.nameless = True
            return np.full(part.num_rows, -1, np.int32)
        column = _whole(empty_as_null(part.column(name)))
        self.nameless |= column.null_count > 0
        return self.annotators.of(column, place_of)

    def _truth_rows(self, part: pa.Table, place: str, place_of: Place) -> pa.Table:
        columns = self.columns
        require_columns(part, [columns.item, columns.label], place)
        part = self.reader.clean(part, {columns.item: "item", columns.label: "label"})
        label = _whole(empty_as_null(part.column(columns.label)))
        numbers = np.flatnonzero(np.asarray(label.is_valid()))
        known = part.take(pa.array(numbers))

        def place_of_known(row: int) -> str:
            return place_of(int(numbers[row]))

        item = _filled(known, columns.item, place_of_known)
        return pa.table({"item": item, "label": self.labels.of(label.drop_null(), place_of_known)})

    def _model_rows(self, part: pa.Table, place: str, place_of: Place) -> pa.Table:
        item = self.columns.item
        require_columns(part, [item], place)
        part = self.reader.clean_probabilities(part, item)
        names = sorted(name for name in part.column_names if name.startswith("p_"))
        if not names:
            raise BadEvidence(f"{place}: no column p_<class>; found {', '.join(part.column_names)}")
        self.labels.of(pa.array([name[2:] for name in names]), lambda _: place)
        values = {name: numbers_of(part.column(name), f"{place}, column {name!r}") for name in names}
        return pa.table({"item": _filled(part, item, place_of), **values})

    # -- 2: write ------------------------------------------------------------------------------------------

    def write(self, folder: Path, strict: bool, shard_labels: int, classes: Sequence[Name] | None) -> Manifest:
        """Write the shards and the manifest."""
        if self.unlabeled:
            report_empty(self.unlabeled, self.first_unlabeled, strict, stacklevel=4)
        common = self._common(classes)
        self.of_annotator = self.annotators.recode(common.annotators, common.anonymous)
        self.of_label = self.labels.recode(common.options)
        written = Folder(str(folder))
        ranges = equal_ranges(np.sum([runs.sizes for runs in self.runs.values()], axis=0), shard_labels)
        conflicts, first = 0, ""
        for number, buckets in enumerate(ranges):
            evidence, contradicted, where = self._shard(*buckets, common)
            conflicts, first = conflicts + contradicted, first or where
            written.add(evidence, buckets)
            self.progress("write shards", number + 1, len(ranges))
        for where, match in self.match.values():
            match.require(where, "annotated ones", "the same item names", stacklevel=4)
        if conflicts:
            report_conflicts(conflicts, first, strict, stacklevel=4)
        return written.conclude(common)

    def _common(self, classes: Sequence[Name] | None) -> Manifest:
        """Return the manifest with the common properties of all shards, but without the list of shards."""
        options = self.labels.known if self.labels.closed else self.labels.in_order()
        if not self.labels.closed:
            require_no_list(self.columns.label, options, pa.chunked_array([options]), row_number)
            warn_of_similar("labels", options)
        warn_of_similar("annotators", self.annotators.in_order())
        if self.like is not None:
            classes = self.like.classes
        classes = options if classes is None else self.reader.names("label", map(str, classes))
        if len(classes) < 2:
            raise BadAnnotations(
                f"found {counted(len(classes), 'class', 'classes')} ({listed(classes)}); expected at least 2: name the "
                "classes if the labels seen so far do not show them all"
            )
        people, anonymous = self.annotators.in_order(), None if self.like is None else self.like.manifest.anonymous
        if self.nameless and anonymous is None:
            people, anonymous = (*people, ANONYMOUS), len(people)
            check_names("annotators", people)
        return Manifest(classes, options, people, anonymous, self.models)

    def _shard(self, first: int, last: int, common: Manifest) -> tuple[Evidence, int, str]:
        """Return the shard of buckets first:last, the number of conflicting labels, and where the first of them is."""
        ranges = {kind: runs.rows(first, last) for kind, runs in self.runs.items()}
        tables = {kind: rows for kind, rows in ranges.items() if rows is not None}
        names, code = _items(tables)
        labeled = dict.fromkeys(names.take(pa.array(np.unique(code["labels"]))).to_pylist())
        for kind, rows in code.items():
            self.match[kind][1].add(names.take(pa.array(np.unique(rows))).to_pylist(), labeled)
        labels, item, n_options = tables["labels"], code["labels"], len(common.options)
        annotator = self.of_annotator[np.asarray(labels.column("annotator"))]
        label = self.of_label[np.asarray(labels.column("label"))]
        seconds = np.asarray(labels.column("time")) if self.columns.time else None
        answered = np.flatnonzero(label >= 0)
        item, annotator, label = item[answered], annotator[answered], label[answered]
        seconds = None if seconds is None else seconds[answered]
        keep, contradicted = latest_answers(item, annotator, label, common.anonymous, seconds)
        where = ""
        if len(contradicted):
            row = int(contradicted.min())
            where = f"annotator {common.annotators[annotator[row]]!r}, item {names[int(item[row])].as_py()!r}"
        cell = np.uint64 if len(common.annotators) * n_options > 2**32 else np.uint32  # as in `Annotations.cell`
        annotations = MappedAnnotations.of(
            names,
            np.append(0, np.cumsum(np.bincount(item[keep], minlength=len(names)))).astype(np.int64),
            annotator[keep].astype(cell) * cell(n_options) + label[keep].astype(cell),
            None if seconds is None else seconds[keep],
            common.annotators,
            common,
        )
        truth = None
        if "truth" in tables:
            rows = tables["truth"]
            label = pa.array(common.options).take(pa.array(self.of_label[np.asarray(rows.column("label"))]))
            truth = truth_of(annotations, pa.table({"item": rows.column("item"), "label": label}), "item", "label")
        models = {name: tables[f"model {name}"] for name in self.models if f"model {name}" in tables}
        return Evidence(annotations, models, truth=truth), len(contradicted), where


def _items(tables: Mapping[str, pa.Table]) -> tuple[pa.Array, dict[str, Ints]]:
    """Return the sorted item names of all tables, and table -> item codes of its rows."""
    columns = {kind: _whole(rows.column("item")) for kind, rows in tables.items()}
    coded = pa.concat_arrays([*columns.values()]).dictionary_encode()
    order = np.asarray(pc.sort_indices(coded.dictionary))
    rank = np.empty(len(order), np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    codes = rank[np.asarray(coded.indices)]
    ends = np.cumsum([len(column) for column in columns.values()])[:-1]
    return coded.dictionary.take(pa.array(order)), dict(zip(columns, np.split(codes, ends), strict=True))


def _filled(part: pa.Table, name: str, place_of: Place) -> pa.Array:
    """Return a column of items as one chunk. Raise BadAnnotations if an item is empty."""
    column = _whole(empty_as_null(part.column(name)))
    if column.null_count:
        row = int(pc.index(column.is_null(), True).as_py())
        raise BadAnnotations(f"{place_of(row)}: the item is empty; expected a name in every row")
    return column


def _whole(column: Any) -> pa.Array:
    """Return a column as one chunk."""
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
