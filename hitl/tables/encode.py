"""Encode columns of names as codes: labels and annotators in natural order, items by first appearance.

Also select the answers that count.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hitl.errors import BadAnnotations, ConflictingLabels, EmptyLabels
from hitl.formatting import counted, listed
from hitl.tables.columns import (
    Place,
    as_stream,
    as_typed_names,
    empty_as_null,
    repeated,
    row_number,
    tables_in,
)
from hitl.tables.limits import limits

Name = str | int
Names = tuple[Name, ...]
Ints = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]
T = TypeVar("T")

ANONYMOUS = "(anonymous)"
"""Name that all annotators without an id share."""


# -- names -------------------------------------------------------------------------------------------------


class CheckedNames(tuple[Name, ...]):
    """Distinct names, all text, with the Arrow column that holds them. They are not checked again, to save time."""

    column: pa.Array

    @classmethod
    def unchecked(cls, column: pa.Array) -> CheckedNames:
        """Build from a column of text that was checked before it was stored."""
        made = cls(column.to_pylist())
        made.column = column
        return made


def column_of(names: Names) -> pa.Array:
    """Return names as a column of text."""
    return names.column if isinstance(names, CheckedNames) else pa.array(list(map(str, names)), pa.string())


def names_as_bytes(column: pa.Array) -> npt.NDArray[np.uint8]:
    """Return a column of names as compressed bytes."""
    return np.frombuffer(as_stream(pa.table({"name": column.cast(pa.string())}), compression="zstd"), np.uint8)


def names_from_bytes(packed: npt.NDArray[np.uint8]) -> CheckedNames:
    """Read the output of `names_as_bytes`. Raise ValueError for anything else."""
    return CheckedNames.unchecked(tables_in(packed.tobytes())[0].column("name").combine_chunks())


def places_of(names: Names, wanted: Iterable[Name]) -> dict[Name, int]:
    """Return wanted name -> position in `names`, sorted by position, without a dictionary of all names."""
    few = set(wanted)
    if not few:
        return {}
    if isinstance(names, CheckedNames):
        values = pa.array([name for name in few if isinstance(name, str)], pa.string())
        rows = np.flatnonzero(np.asarray(pc.is_in(names.column, value_set=values)))
        return {names[row]: row for row in rows.tolist()}
    return {name: place for place, name in enumerate(names) if name in few}


def writable(text: str) -> str:
    r"""Return text that files can hold: a lone surrogate, which JSON allows (`\ud83d`), becomes a question mark."""
    return text.encode("utf-8", "replace").decode()


def natural_order(names: Sequence[Name]) -> Names:
    """Return names in natural order: by value if all are numbers, else as text."""

    def by_value(name: Name) -> tuple[float, str]:
        value = float(name)
        if not math.isfinite(value):
            raise ValueError(name)  # "nan" and "inf" are words here
        return value, str(name)

    try:
        return tuple(sorted(names, key=by_value))
    except ValueError:
        return tuple(sorted(names, key=str))


def plain_names(names: Sequence[Name]) -> Names:
    """Return a tuple of Python's own str and int, which JSON and Arrow accept."""
    if isinstance(names, CheckedNames):
        return names
    if set(map(type, names)) <= {str, int}:
        return tuple(names)
    return tuple(name.item() if isinstance(name, np.generic) else name for name in names)


def check_names(kind: str, names: Names) -> None:
    """Raise BadAnnotations unless names are distinct and, apart from ANONYMOUS, all text or all whole numbers."""
    if isinstance(names, CheckedNames):
        return
    twice = repeated(names)
    if twice is not None:
        raise BadAnnotations(f"{kind}: the name {twice!r} appears twice; names must differ")
    if set(map(type, names)) <= {str}:
        return
    text = next((name for name in names if isinstance(name, str) and name != ANONYMOUS), None)
    other = next((name for name in names if not isinstance(name, str)), None)
    if other is not None and (text is not None or not isinstance(other, int)):
        mixture = f"{other!r} and {text!r}" if text is not None else repr(other)
        raise BadAnnotations(f"{kind}: found the names {mixture}; expected all text or all whole numbers")


def options_of(classes: Sequence[Name] | None, options: Sequence[Name] | None) -> Sequence[Name] | None:
    """Return the options: the classes first, then other answers. Raise BadAnnotations if a class is no option."""
    if options is None or classes is None:
        return options if options is not None else classes
    outside = [name for name in classes if name not in set(options)]
    if outside:
        raise BadAnnotations(f"class {outside[0]!r} is not among the options: {listed(options)}")
    return [*classes, *(name for name in options if name not in set(classes))]


# -- codes -------------------------------------------------------------------------------------------------


def codes_of(
    kind: str, column: pa.ChunkedArray, names: Sequence[Name] | None, place_of: Place = row_number
) -> tuple[Names, Ints]:
    """Return all names in order, and (M,) codes.

    Without `names`, items are in order of first appearance, labels and annotators in natural order. Raise
    BadAnnotations, naming the row, for an empty name, a name that is not in `names`, or too many labels.
    """
    column = empty_as_null(column)
    if column.null_count:
        row = pc.index(pc.is_null(column), True)
        raise BadAnnotations(f"{place_of(row.as_py())}: the {kind} is empty; expected a name in every row")
    coded = as_typed_names(column).dictionary_encode().chunks  # one dictionary, in order of first appearance
    seen: Names = tuple(coded[0].dictionary.to_pylist()) if coded else ()
    codes = np.concatenate([np.empty(0, np.int32), *(np.asarray(chunk.indices) for chunk in coded)])
    if names is None:
        if kind == "label" and len(seen) > limits().classes:
            raise BadAnnotations(
                f"{place_of(0)} and below: {len(seen):,} different labels; expected at most {limits().classes:,} "
                "classes (limits.classes). Is this the column of the labels?"
            )
        ordered = seen if kind == "item" else natural_order(seen)
    else:
        ordered = plain_names(names)
        check_names(f"{kind}s", ordered)
    if seen == ordered:
        return ordered, codes
    place = {name: code for code, name in enumerate(ordered)}
    unknown = [name for name in seen if name not in place]
    if unknown:
        row = int(np.flatnonzero(codes == seen.index(unknown[0]))[0])
        raise BadAnnotations(
            f"{place_of(row)}: {kind} {unknown[0]!r} is not one of the {len(ordered)} expected ({listed(ordered)})"
        )
    recode = np.fromiter((place[name] for name in seen), dtype=np.int32, count=len(seen))
    return ordered, recode[codes] if len(seen) else codes


def annotator_codes(table: pa.Table, name: str | None) -> tuple[Names, Ints, int | None]:
    """Return names, (M,) codes, and the code of ANONYMOUS, which is None if every row has an annotator."""
    if name is None:
        return (ANONYMOUS,), np.zeros(table.num_rows, np.int32), 0
    column = empty_as_null(table.column(name))
    if not column.null_count:
        return (*codes_of("annotator", column, None), None)
    names, named_codes = codes_of("annotator", column.drop_null(), None)
    codes = np.full(table.num_rows, len(names), np.int32)
    codes[np.asarray(column.is_valid())] = named_codes
    return (*names, ANONYMOUS), codes, len(names)


def distinct_codes(column: pa.DictionaryArray, codes: Callable[[pa.ChunkedArray], T]) -> tuple[T, Ints, Ints]:
    """Apply `codes` to the distinct values of a column.

    Return three results: that of `codes`; (entries + 1,) the position among the distinct values of each dictionary
    entry, and last of null; and (M,) the dictionary entry of each row.
    """
    indices = column.indices
    used = pc.unique(indices)
    place = np.zeros(len(column.dictionary) + 1, np.int32)
    rows = np.asarray(pc.fill_null(indices, len(column.dictionary)) if indices.null_count else indices)
    place[np.asarray(pc.fill_null(used, len(column.dictionary)))] = np.arange(len(used))
    return codes(pa.chunked_array([column.dictionary.take(used)])), place, rows


def decoded(names: Sequence[Name | None], codes: Ints) -> pa.Array:
    """Return the names behind codes."""
    return pa.array(names).take(pa.array(codes))


# -- repeated answers --------------------------------------------------------------------------------------


def latest_answers(
    item: Ints, annotator: Ints, label: Ints, anonymous: int | None, seconds: Floats | None
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Return the rows to keep, sorted by item and annotator, and the rows that contradict them.

    For each pair of item and annotator, the latest answer is kept, or the last row if times are equal or unknown. All
    rows of the `anonymous` annotator are kept. A row contradicts the kept one if it has another label, and their times
    are equal or unknown.
    """
    pair = item.astype(np.int64)
    pair *= int(annotator.max(initial=0)) + 1
    pair += annotator
    order = np.argsort(pair, kind="stable")
    same = repeats(pair[order])
    if anonymous is not None:
        same &= annotator[order][1:] != anonymous
    if not same.any():
        return order, np.empty(0, np.intp)
    if seconds is not None:
        if np.isnan(seconds).any():  # if one time of a pair is unknown, fall back to row order
            seconds = np.where(np.isin(pair, pair[np.isnan(seconds)]), 0.0, seconds)
        order = np.lexsort((seconds, pair))
    ends = np.flatnonzero(np.append(~same, True))
    last = order[np.repeat(ends, np.diff(ends, prepend=-1))]  # for each sorted row, the row to keep
    contradicted = label[order] != label[last]
    if seconds is not None:  # a later time settles it; equal or unknown times do not
        contradicted &= seconds[order] == seconds[last]
    return np.asarray(order[ends]), order[contradicted]


def report_conflicts(number: int, first: str, strict: bool, stacklevel: int = 3) -> None:
    """Warn of contradicting labels, the first of them at `first`. Raise BadAnnotations instead if `strict`."""
    message = (
        f"{counted(number, 'label')} contradict{'s' if number == 1 else ''} another answer of the same "
        f"annotator to the same item, and no time tells which is the later (first at {first})"
    )
    if strict:
        raise BadAnnotations(f"{message}; expected one answer each, or a time column")
    warnings.warn(f"{message}; the last row of each wins", ConflictingLabels, stacklevel=stacklevel)


def report_empty(
    number: int, first: str, strict: bool, advice: str = "", stacklevel: int = 3, what: str = "label"
) -> None:
    """Warn of rows without a label, called `what`, the first at `first`. Raise BadAnnotations instead if `strict`."""
    if strict:
        raise BadAnnotations(f"{first}: the {what} is empty; expected a {what} in every row")
    rows = f"{number:,} rows have" if number != 1 else "1 row has"
    warnings.warn(
        f"{rows} no {what} and {'are' if number != 1 else 'is'} left out (first at {first}){advice}",
        EmptyLabels,
        stacklevel=stacklevel,
    )


def repeats(codes: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Return (size - 1,) True for entries, from the second on, that equal the one before."""
    return np.asarray(codes[1:] == codes[:-1])
