"""Read names alike in all tables: spaces, case and texts that stand for an empty field, as the user chooses.

Without any choice, names stay as `hitl.tables.columns.as_names` returns them.
"""

from __future__ import annotations

import ast
import json
import re
import unicodedata
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from hitl.errors import BadTable, SimilarNames
from hitl.tables.columns import ONE_NAME, Place, is_text, plain_name, repeated, with_names
from hitl.tables.encode import Name
from hitl.tables.read import name_of

P = "p_"
"""Prefix of a column with the probabilities of a class."""

MISSING = frozenset({"", "-", "n/a", "na", "nan", "nil", "none", "null", "<na>", "#n/a"})
"""Texts, in lower case, that programs write for an empty field."""

OTHER = ""
"""Kind of a column without names."""

MANY = 50_000
"""Number of names above which similar ones are not looked for."""

_NUMBER = re.compile(r"-?\d{1,15}(\.\d{0,9})?")
"""Number that can be compared as a float. Longer ones are identifiers; as floats, different ones could be equal."""

_PARTS = re.compile("[,;|]")


@dataclass(frozen=True)
class TextRules:
    """Rules for reading text in tables.

    Attributes:
        trim: ignore spaces around names.
        ignore_case: take names that differ only in case as one name, in the spelling that is read first.
        na: texts that stand for an empty field.
        day_first: True if 3/1/2026 is in January, False if it is in March, None if such dates are refused.
    """

    trim: bool = False
    ignore_case: bool = False
    na: tuple[str, ...] = ()
    day_first: bool | None = None


class NameReader:
    """Reader of names by the same rules in several tables. The order of reading decides which spelling counts."""

    def __init__(self, rules: TextRules = TextRules()) -> None:
        self._rules = rules
        self._na = {"", *(self._key(text) for text in rules.na)}
        self._spelling: dict[tuple[str, str], str] = {}

    def name(self, kind: str, text: str) -> str | None:
        """Return the name that a text stands for; None for an empty field. `kind`: "item", "annotator" or "label"."""
        key = self._key(text)
        if key in self._na:
            return None
        return self._spelling.setdefault((kind, key), plain_name(text.strip() if self._rules.trim else text))

    def names(self, kind: str, texts: Iterable[str]) -> tuple[str, ...]:
        """Return the names that these texts stand for, without empty ones and repetitions."""
        names = (self.name(kind, text) for text in texts)
        return tuple(dict.fromkeys(name for name in names if name is not None))

    def clean(self, table: pa.Table, kinds: Mapping[str, str]) -> pa.Table:
        """Return a table with these columns of names as they count, and null for texts that stand for an empty field.

        `kinds`: column -> "item", "annotator" or "label"; OTHER for a column without names, such as times.
        """
        names = [column for column, kind in kinds.items() if column in table.column_names and kind != OTHER]
        table = with_names(table, names)
        as_written = not (self._rules.trim or self._rules.ignore_case or self._rules.na)
        for place, field in enumerate(() if as_written else table.schema):
            if is_text(field.type) and field.name in kinds:
                table = table.set_column(place, field.name, self._cleaned(table.column(place), kinds[field.name]))
        return table

    def clean_probabilities(self, table: pa.Table, item: str) -> pa.Table:
        """Return a table of items and p_<class> with the names of its items and classes as they count."""
        table = self.clean(table, {name: OTHER for name in table.column_names if name.startswith(P)} | {item: "item"})
        return with_classes(table, lambda text: self.name("label", text) or text)

    def _cleaned(self, column: pa.ChunkedArray, kind: str) -> pa.ChunkedArray:
        """Read each distinct text of a column once. A column without names only loses its empty fields."""
        chunks = column.dictionary_encode().chunks  # with one dictionary
        texts = chunks[0].dictionary.to_pylist() if chunks else []
        if kind == OTHER:
            texts = [None if self._key(text) in self._na else text for text in texts]
        else:
            texts = [self.name(kind, text) for text in texts]
        return pa.chunked_array([pa.array(texts, pa.string()).take(chunk.indices) for chunk in chunks], pa.string())

    def _key(self, text: str) -> str:
        text = plain_name(text.strip() if self._rules.trim else text)
        return text.casefold() if self._rules.ignore_case else text


def with_classes(table: pa.Table, class_of: Callable[[str], str] = plain_name) -> pa.Table:
    """Return the table with its columns p_<text> renamed to p_<class>. Raise BadTable if two are for one class."""
    columns = {name: P + class_of(name[2:]) for name in table.column_names if name.startswith(P)}
    twice = repeated(list(columns.values()))
    if twice is not None:
        both = " and ".join(repr(name) for name, read in columns.items() if read == twice)
        raise BadTable(f"{name_of(table, 'the table')}: the columns {both} are for one class; expected one column each")
    renamed = table.rename_columns([columns.get(name, name) for name in table.column_names])
    return renamed.replace_schema_metadata(table.schema.metadata)


def first_list(names: Iterable[object]) -> str | None:
    """Return the first name that is a list or a mapping in the notation of JSON or Python, or None."""
    for name in names:
        if isinstance(name, str) and name[:1] + name[-1:] in ("[]", "{}", "()"):
            for parse in (json.loads, ast.literal_eval):
                try:
                    if isinstance(parse(name), list | dict | set | tuple):
                        return name
                except (ValueError, SyntaxError, RecursionError, MemoryError):
                    continue
    return None


def require_no_list(column: str, names: Iterable[object], rows: pa.ChunkedArray, place_of: Place) -> None:
    """Raise BadTable, naming the row, if one of these names of a column is a list."""
    name = first_list(names)
    if name is not None:
        row = pc.index(rows, name).as_py()
        where = f"{place_of(row)}, " if row >= 0 else ""
        raise BadTable(f"{where}column {column!r}: {name} is a list; {ONE_NAME}")


def missing_looking(names: Iterable[object]) -> list[str]:
    """Return the names that programs write for an empty field, such as NaN."""
    return [name for name in names if isinstance(name, str) and name.strip().casefold() in MISSING]


def warn_of_similar(kind: str, names: Sequence[Name], stacklevel: int = 3) -> None:
    """Warn if two names that no one listed differ only as `similar` says. `kind`: "labels" or "annotators"."""
    pairs = [*similar(names)] if len(names) <= MANY else []
    if pairs:
        warnings.warn(describe_pairs(f"the {kind}", pairs), SimilarNames, stacklevel=stacklevel)


def describe_pairs(what: str, pairs: Sequence[tuple[Name, Name]]) -> str:
    """Return a warning about names that may be the same, with the first pair as example."""
    more = f" (and {len(pairs) - 1} more such pair{'s' if len(pairs) > 2 else ''})" if len(pairs) > 1 else ""
    one, other = pairs[0]
    return f"{what} {one!r} and {other!r} count as different{more}. If they are the same, {_advice(one, other)}"


def similar(names: Iterable[Name]) -> Iterator[tuple[Name, Name]]:
    """Yield (earlier name, name) for names that differ only in case, spaces or the order of parts, or as 7 and 007."""
    first: dict[str, Name] = {}
    for name in names:
        plain = likeness(name)
        if first.setdefault(plain, name) is not name:
            yield first[plain], name


def likeness(name: Name) -> str:
    """Return a key that similar names share."""
    plain = " ".join(unicodedata.normalize("NFKC", str(name)).casefold().split())
    if _NUMBER.fullmatch(plain):
        return str(float(plain))
    return "|".join(sorted(part.strip() for part in _PARTS.split(plain)))


def _advice(one: Name, other: Name) -> str:
    """Return what to do if two similar names are one."""
    readings: dict[tuple[str, ...], Callable[[str], str]] = {
        ("trim",): str.strip,
        ("ignore-case",): str.casefold,
        ("trim", "ignore-case"): lambda name: name.strip().casefold(),
    }
    flags = next((flags for flags, read in readings.items() if read(str(one)) == read(str(other))), ())
    keys = " and ".join(f"source.{flag.replace('-', '_')}" for flag in flags)
    options = " ".join(f"--{flag}" for flag in flags)
    return "write them alike" + (f", as commands do with {options} and projects with {keys}" if flags else "")
