"""`Annotations`: which annotator gave which label to which item.

item[m], annotator[m], label[m]     codes of annotation m        M annotations
items, annotators                   the names behind the codes   N items, K annotators
classes, options                    J true classes, L >= J label options; options[:J] == classes
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hitl.errors import BadAnnotations
from hitl.formatting import OneLineRepr, counted, listed
from hitl.tables.columns import (
    FROM_WIDE,
    Place,
    as_typed_names,
    empty_as_null,
    numbers_of,
    plain_name,
    require_columns,
    row_number,
    table_of,
    with_names,
)
from hitl.tables.encode import ANONYMOUS as ANONYMOUS
from hitl.tables.encode import CheckedNames as CheckedNames
from hitl.tables.encode import Floats as Floats
from hitl.tables.encode import Ints as Ints
from hitl.tables.encode import Name as Name
from hitl.tables.encode import Names as Names
from hitl.tables.encode import (
    annotator_codes,
    check_names,
    codes_of,
    decoded,
    distinct_codes,
    latest_answers,
    options_of,
    plain_names,
    repeats,
    report_conflicts,
    report_empty,
)
from hitl.tables.encode import column_of as column_of
from hitl.tables.encode import places_of as places_of
from hitl.tables.names import require_no_list, warn_of_similar
from hitl.tables.read import name_of, place_in
from hitl.tables.times import seconds_of

if TYPE_CHECKING:
    import pandas as pd

READ_CSV = (
    ". pandas.read_csv also reads None, NA, null and nan as empty; if one of them is a label, read the file with "
    "keep_default_na=False"
)


@dataclass(frozen=True, eq=False, repr=False)
class Annotations(OneLineRepr):
    """Labels given by annotators to items. Immutable, checked when built, and sorted by item, then annotator.

    Attributes:
        item, annotator, label: (M,) codes, which are indices into `items`, `annotators` and `options`.
        items, annotators, classes, options: names; `options[:len(classes)] == classes`.
        anonymous: code of the annotator that stands for all annotators without ids, or None.
        time: (M,) seconds since the epoch, NaN where unknown, or None.
        duration: (M,) seconds the answer took, NaN where unknown, or None.
        ordered: True if the classes are in order, such as stars. An answer is then more or less wrong.

    Raises BadAnnotations if a code is out of range or names repeat. Two answers by one (named) annotator to one item
    are an error here; `from_frame` resolves them.

    Example:
        >>> from hitl import Annotations
        >>> Annotations.from_matrix([[0, -1], [1, 1]], classes=["cat", "dog"])
        Annotations(3 labels of 2 annotators on 2 items; classes: cat, dog)
    """

    item: Ints
    annotator: Ints
    label: Ints
    items: Names
    annotators: Names
    classes: Names
    options: Names
    anonymous: int | None = None
    time: Floats | None = None
    duration: Floats | None = None
    ordered: bool = False

    def __post_init__(self) -> None:
        for name in ("items", "annotators", "classes", "options"):
            object.__setattr__(self, name, plain_names(getattr(self, name)))
            check_names(name, getattr(self, name))
        if self.options[: len(self.classes)] != self.classes:
            classes, options = listed(self.classes), listed(self.options)
            raise BadAnnotations(f"options: expected the classes first ({classes}), found {options}")
        if not self.items:
            raise BadAnnotations("no items: the table is empty; expected at least one item")
        if len(self.classes) < 2:
            raise BadAnnotations(
                f"found {f'1 class ({self.classes[0]})' if self.classes else '0 classes'}; expected at least 2: "
                "name all classes if some have not been used yet (--classes, classes=, source.classes)"
            )
        if self.anonymous is not None and not 0 <= self.anonymous < self.n_annotators:
            raise BadAnnotations(f"expected 0 <= anonymous < {self.n_annotators} or None, got {self.anonymous}")
        shape = np.shape(self.item)
        order = slice(None) if self._is_sorted() else np.lexsort((self.annotator, self.item))
        for name, upper in (("item", self.n_items), ("annotator", self.n_annotators), ("label", self.n_options)):
            codes = np.asarray(getattr(self, name))
            if codes.ndim != 1 or codes.shape != shape:
                raise BadAnnotations(f"{name} has shape {codes.shape}; expected {shape}, one entry for each annotation")
            if codes.size and not np.issubdtype(codes.dtype, np.integer):
                raise BadAnnotations(f"{name} has type {codes.dtype}; expected integer codes")
            if codes.size and not 0 <= codes.min() <= codes.max() < upper:
                bad = int(np.argmax((codes < 0) | (codes >= upper)))
                raise BadAnnotations(f"expected 0 <= {name} < {upper}, got {codes[bad]} at {name}[{bad}]")
            self._freeze(name, np.array(codes[order], dtype=np.int32))
        for name in ("time", "duration"):
            values = getattr(self, name)
            if values is not None:
                if np.shape(values) != shape:
                    raise BadAnnotations(f"{name} has shape {np.shape(values)}; expected {shape}")
                self._freeze(name, np.array(np.asarray(values)[order], dtype=np.float64))
        self._check_one_answer_each()

    # -- building ------------------------------------------------------------------------------------------

    @classmethod
    def from_frame(
        cls, frame: Any, item: str = "item", annotator: str | None = "annotator", label: str = "label", **more: Any
    ) -> Annotations:
        """Build from a table with one row per annotation.

        The table may be pandas, polars, Arrow, a Hugging Face dataset, a dict or a list. `item`, `annotator`, `label`,
        `time` and `duration` name its columns; use `annotator=None` if annotators have no ids. `items` lists all items,
        labeled or not; any other item in the table is an error. `classes` and `options` fix the order of the codes
        (default: the labels in the table, in natural order).

        If an annotator answered an item several times, the latest answer is used. If times are equal or unknown, the
        last row is used, and a ConflictingLabels warning counts the rows that differ from it (an error if `strict`).
        Raises BadAnnotations or BadTable.
        """
        table = annotation_table(frame, (item, annotator, label), (more.get("time"), more.get("duration")))
        return cls.from_table(table, item, annotator, label, **more)

    @classmethod
    def from_table(
        cls,
        table: pa.Table,
        item: str = "item",
        annotator: str | None = "annotator",
        label: str = "label",
        *,
        items: Sequence[Name] | None = None,
        classes: Sequence[Name] | None = None,
        options: Sequence[Name] | None = None,
        time: str | None = None,
        duration: str | None = None,
        strict: bool = False,
    ) -> Annotations:
        """Build like `from_frame`, but from the output of `annotation_table`."""
        place_of = place_in(table)
        items, classes, options = (
            names if names is None or isinstance(names, CheckedNames) else [plain_name(name) for name in names]
            for names in (items, classes, options)
        )
        answered = empty_as_null(table.column(label)).is_valid()
        if pc.all(answered).as_py() is False:
            if items is None:  # an item whose labels are all empty is still an item
                items = as_typed_names(empty_as_null(table.column(item)).drop_null()).unique().to_pylist()
            table, place_of = _answered(table, answered, place_of, strict)
        item_names, item_code = codes_of("item", table.column(item), items, place_of)
        label_names, label_code = codes_of("label", table.column(label), options_of(classes, options), place_of)
        class_names = tuple(classes) if classes is not None else label_names
        if options is None and classes is None:
            require_no_list(label, label_names, table.column(label), place_of)
            warn_of_similar("labels", class_names, stacklevel=4)
        annotators, annotator_code, anonymous = annotator_codes(table, annotator)
        warn_of_similar("annotators", annotators, stacklevel=4)
        seconds = None if time is None else seconds_of(table.column(time), time, place_of=place_of)
        length = None if duration is None else numbers_of(table.column(duration), f"column {duration!r}")
        columns = item_code, annotator_code, label_code, seconds, length
        return cls._latest(columns, (item_names, annotators, class_names, label_names), anonymous, place_of, strict)

    @classmethod
    def from_codes(
        cls,
        items: Names,
        item: Ints,
        annotator: pa.DictionaryArray,
        label: pa.DictionaryArray,
        *,
        classes: Sequence[Name],
        options: Sequence[Name],
        time: Floats | None = None,
        duration: Floats | None = None,
    ) -> Annotations:
        """Build like `from_frame` from a table with these columns. `item` holds indices into `items`."""
        named, own, row = distinct_codes(annotator, lambda column: annotator_codes(pa.table({"_": column}), "_"))
        chosen = options_of(classes, options)
        labels, own_label, label_row = distinct_codes(label, lambda column: codes_of("label", column, chosen))
        nobody = np.zeros(1, np.int32)  # where there are no names, which no row uses
        annotator_code = np.append(named[1], nobody)[own][row]
        label_code = np.append(labels[1], nobody)[own_label][label_row]
        names = items, named[0], tuple(classes), labels[0]
        return cls._latest(
            (item, annotator_code, label_code, time, duration), names, named[2], row_number, strict=False
        )

    @classmethod
    def _latest(
        cls,
        columns: tuple[Ints, Ints, Ints, Floats | None, Floats | None],
        names: tuple[Names, Names, Names, Names],
        anonymous: int | None,
        place_of: Place,
        strict: bool,
    ) -> Annotations:
        """Keep the latest answer of each annotator to each item."""
        keep, contradicted = latest_answers(*columns[:3], anonymous, columns[3])
        if len(contradicted):
            report_conflicts(len(contradicted), place_of(int(contradicted.min())), strict, stacklevel=5)
        item, annotator, label = (code[keep] for code in columns[:3])
        time, duration = (None if seconds is None else seconds[keep] for seconds in columns[3:])
        return cls(item, annotator, label, *names, anonymous, time, duration)

    @classmethod
    def from_matrix(cls, matrix: npt.ArrayLike, classes: Sequence[Name] | None = None) -> Annotations:
        """Build from an (N, K) matrix of label codes, with -1 where annotator k did not label item n."""
        codes = np.asarray(matrix)
        if codes.ndim != 2 or not np.issubdtype(codes.dtype, np.integer):
            raise BadAnnotations(
                f"expected an integer matrix of N items x K annotators, got {codes.dtype} {codes.shape}"
            )
        for n, k in np.argwhere(codes < -1)[:1]:
            raise BadAnnotations(f"expected a label code or -1 for a gap, got {codes[n, k]} at matrix[{n}, {k}]")
        item, annotator = (column.astype(np.int32) for column in np.nonzero(codes >= 0))
        label = codes[item, annotator].astype(np.int32)
        names = tuple(classes) if classes is not None else tuple(range(int(codes.max(initial=1)) + 1))
        n, k = codes.shape
        return cls(item, annotator, label, tuple(range(n)), tuple(range(k)), names, names)

    # -- reading -------------------------------------------------------------------------------------------

    def table(self) -> pa.Table:
        """Return one row per annotation; an anonymous annotator is null."""
        names: list[Name | None] = list(self.annotators)
        if self.anonymous is not None:
            names[self.anonymous] = None
        columns = {
            "item": decoded(self.items, self.item),
            "annotator": decoded(names, self.annotator),
            "label": decoded(self.options, self.label),
        }
        for name, seconds in (("time", self.time), ("duration", self.duration)):
            if seconds is not None:
                columns[name] = pa.array(seconds, from_pandas=True)
        return pa.table(columns)

    @property
    def n_items(self) -> int:
        """N, the number of items, labeled or not."""
        return len(self.items)

    @property
    def n_annotators(self) -> int:
        """K, the number of annotators; the anonymous pool counts as one."""
        return len(self.annotators)

    @property
    def n_classes(self) -> int:
        """J, the number of classes."""
        return len(self.classes)

    @property
    def n_options(self) -> int:
        """L >= J, the number of label options."""
        return len(self.options)

    def __len__(self) -> int:
        """Return M, the number of annotations."""
        return int(self.item.shape[0])

    def __str__(self) -> str:
        of = "annotators without ids" if self.anonymous == 0 == self.n_annotators - 1 else None
        crew, others = of or counted(self.n_annotators, "annotator"), self.options[self.n_classes :]
        answers = f"; other answers: {listed(others)}" if others else ""
        said = f"{counted(len(self), 'label')} of {crew} on {counted(self.n_items, 'item')}"
        return f"{said}; classes: {listed(self.classes)}{answers}"

    def frame(self) -> pd.DataFrame:
        """Return `table()` as a pandas DataFrame."""
        frame: pd.DataFrame = self.table().to_pandas()
        return frame

    @cached_property
    def item_start(self) -> npt.NDArray[np.int64]:
        """(N+1,) row offsets: the annotations of item n are item_start[n]:item_start[n+1]."""
        return _starts(self.item, self.n_items)

    @cached_property
    def cell(self) -> npt.NDArray[np.uint32] | npt.NDArray[np.uint64]:
        """(M,) annotator * L + label; unsigned, so that compiled loops skip the sign check."""
        cell = self.annotator.astype(np.int64) * self.n_options + self.label
        return cell.astype(np.uint64) if self.n_annotators * self.n_options > 2**32 else cell.astype(np.uint32)

    @cached_property
    def by_annotator(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """(K+1,) starts and (M,) rows: annotator k's annotations are rows[starts[k]:starts[k+1]]."""
        rows = np.argsort(self.annotator, kind="stable")
        return _starts(self.annotator, self.n_annotators), rows

    @cached_property
    def labels_per_item(self) -> npt.NDArray[np.int64]:
        """(N,) number of labels of each item."""
        return np.diff(self.item_start)

    @cached_property
    def labels_per_annotator(self) -> npt.NDArray[np.int64]:
        """(K,) number of labels by each annotator."""
        return np.bincount(self.annotator, minlength=self.n_annotators)

    def as_ordered(self) -> Annotations:
        """Return the same annotations, with the classes taken as ordered; two classes need no order."""
        same = object.__new__(Annotations)
        vars(same).update(vars(self) | {"ordered": self.n_classes > 2})
        return same

    def select(self, chosen: npt.NDArray[np.bool_]) -> Annotations:
        """Return a copy with only the annotations that an (M,) mask selects. All names stay the same."""
        part = object.__new__(Annotations)
        vars(part).update({each.name: getattr(self, each.name) for each in fields(self)})
        for name in ("item", "annotator", "label", "time", "duration"):
            values = getattr(self, name)
            if values is not None:
                part._freeze(name, values[chosen])  # rows of a checked table need no checks
        return part

    # -- checks --------------------------------------------------------------------------------------------

    def _is_sorted(self) -> bool:
        item, annotator = np.asarray(self.item), np.asarray(self.annotator)
        if item.shape != annotator.shape or item.ndim != 1:
            return True
        return bool(np.all((item[1:] > item[:-1]) | (repeats(item) & (annotator[1:] >= annotator[:-1]))))

    def _check_one_answer_each(self) -> None:
        again = repeats(self.item) & repeats(self.annotator)
        if self.anonymous is not None:
            again &= self.annotator[1:] != self.anonymous
        if again.any():
            row = int(np.flatnonzero(again)[0])
            raise BadAnnotations(
                f"annotator {self.annotators[self.annotator[row]]!r} labels item {self.items[self.item[row]]!r} "
                "more than once; build with Annotations.from_frame to keep the latest answer"
            )

    def _freeze(self, name: str, values: npt.NDArray[Any]) -> None:
        values.setflags(write=False)
        object.__setattr__(self, name, values)


def annotation_table(frame: Any, names: Sequence[str | None], others: Sequence[str | None]) -> pa.Table:
    """Convert annotations to an Arrow table, with names in the columns `names`.

    Raises BadTable unless it has all columns of `names` and `others`; None is ignored.
    """
    table = table_of(frame, "annotations")
    hint = "Name them: item=, annotator=, label=; annotator=None where annotators have no ids"
    named, wanted = ([name for name in columns if name is not None] for columns in (names, (*names, *others)))
    require_columns(table, wanted, name_of(table, "annotations"), hint)
    return with_names(table, named, as_typed_names)


def _answered(table: pa.Table, answered: pa.ChunkedArray, place_of: Place, strict: bool) -> tuple[pa.Table, Place]:
    """Return the answered rows, and a function that locates them. Report the others, or raise BadAnnotations."""
    rows = np.flatnonzero(np.asarray(answered))
    metadata = table.schema.metadata or {}
    if FROM_WIDE not in metadata:
        first, advice = place_of(pc.index(answered, False).as_py()), READ_CSV if b"pandas" in metadata else ""
        report_empty(table.num_rows - len(rows), first, strict, advice, stacklevel=5)
    return table.take(pa.array(rows)), lambda row: place_of(int(rows[row]))


def _starts(codes: Ints, size: int) -> npt.NDArray[np.int64]:
    return np.append(0, np.cumsum(np.bincount(codes, minlength=size))).astype(np.int64)
