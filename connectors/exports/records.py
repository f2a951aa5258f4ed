"""Read the records of an export: JSON values, rows of a table, or elements of an XML file, also inside a .zip file."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import chain
from pathlib import Path
from typing import IO, Any
from xml.parsers import expat  # nosec B407  # documents with a DOCTYPE are refused

import pyarrow as pa

from hitl.connectors.exports.export import Record
from hitl.errors import BadTable
from hitl.tables.limits import limits, memory_limit, require_harmless, require_memory
from hitl.tables.parsers import bounded_lines, is_shallow, parsed_object
from hitl.tables.read import READ, is_arrow, parsing, place_in_file, read_parts
from hitl.tables.write import suffix_of

ROWS = 10_000
"""Rows of a table that are converted at a time."""
MARKUP = (".json", ".jsonl", ".ndjson", ".manifest", ".xml", ".txt", "")
"""Suffixes of the files that are read in a .zip file."""
CHARACTER_BYTES = 12
"""Bytes that a character of a JSON list takes: two as it is read and joined, the others in its records. Measured."""
RECORDS = "write a record on each line (JSON lines), which are read one after the other"
ELEMENT_BYTES = 900
"""Bytes of an element of XML in Python: a dict with its fields, and the lists in it. Measured."""
Found = tuple[str, Mapping[str, Any] | str]
"""Place of a record, and its content, or the reason why it cannot be read."""


def kind_of(path: Path) -> str | None:
    """Return "json", "xml" or "table" by content and name, or None if the file cannot be an export."""
    if is_arrow(path) or READ.get(suffix_of(path), "jsonl") != "jsonl":
        return "table"
    with parsing(path, "an export"):
        for _, stream in _texts(path):
            start = stream.read(1000).lstrip()[:1]
            if start in ("{", "[", "<"):
                return "xml" if start == "<" else "json"
            break
    return None


def records(path: Path, kind: str, note: Callable[[str], None]) -> Iterator[Record]:
    """Yield the records of a file. Call `note` with a message about a record that cannot be read.

    Raise BadTable if the file is too large or broken.
    """
    if kind == "table":
        yield from _rows(path)
        return
    read = _elements if kind == "xml" else _values
    with parsing(path, kind):
        for source, stream in _texts(path):
            within = f"{source}, " if _is_archive(path) else ""
            for count, (place, fields) in enumerate(read(path, stream)):
                if count >= limits().rows:
                    raise BadTable(f"{path}: more than {limits().rows:,} records (limits.rows)")
                if isinstance(fields, str):
                    note(f"{within}{place}: {fields}")
                else:
                    yield Record(fields, partial(str, within + place), source)


def _texts(path: Path) -> Iterator[tuple[str, IO[str]]]:
    """Yield (name without suffix, text) of the file, or of each file in a .zip file."""
    require_harmless(path, "zip")
    if not _is_archive(path):
        if path.stat().st_size > limits().unpacked:
            raise BadTable(
                f"{path}: {path.stat().st_size:,} bytes; expected at most {limits().unpacked:,} (limits.unpacked)"
            )
        with pa.input_stream(str(path), compression="detect") as raw:
            yield path.name.split(".")[0], io.TextIOWrapper(raw, encoding="utf-8-sig")
        return
    with zipfile.ZipFile(path) as archive:
        members = [each for each in archive.infolist() if Path(each.filename).suffix.lower() in MARKUP]
        members = [each for each in members if not each.is_dir() and not each.filename.startswith("__MACOSX")]
        for member in members:
            with archive.open(member) as raw:
                yield Path(member.filename).stem, io.TextIOWrapper(raw, encoding="utf-8-sig")


def _is_archive(path: Path) -> bool:
    return path.suffix.lower() == ".zip"


def _rows(path: Path) -> Iterator[Record]:
    place_of, begins, source = place_in_file(path), 0, path.name.split(".")[0]

    def place(row: int) -> str:
        return place_of(row).removeprefix(f"{path}, ")

    for part in read_parts(path, ROWS):
        for start in range(0, part.num_rows, ROWS):
            for number, row in enumerate(part.slice(start, ROWS).to_pylist(), start=begins + start):
                yield Record(row, partial(place, number), source)
        begins += part.num_rows


# -- JSON --------------------------------------------------------------------------------------------------


def _values(path: Path, stream: IO[str]) -> Iterator[Found]:
    """Yield the objects of a JSON array, or of lines of JSON, or a single object."""
    limit = memory_limit()
    most = limit // CHARACTER_BYTES
    first, left = list[str](), most
    while len(first) < 20 and (line := stream.readline(left)):  # an object on several lines is indented
        first.append(line)
        left -= len(line)
        if not left:
            require_memory(path, limit + 1, limit, RECORDS)
    if not "".join(first).lstrip().startswith("[") and any(
        line.startswith("{") and not isinstance(_object(line), str) for line in first
    ):
        lines = enumerate(chain(first, bounded_lines(path, stream, len(first))), start=1)
        yield from ((f"line {number}", _object(line)) for number, line in lines if line.strip())
        return
    text = "".join(first) + stream.read(left)
    require_memory(path, CHARACTER_BYTES * len(text) + (limit if stream.read(1) else 0), limit, RECORDS)
    del first
    decoder, at, number = json.JSONDecoder(), len(text) - len(text.lstrip()), 0
    is_list = text.startswith("[", at)
    at += is_list
    while True:
        while at < len(text) and text[at] in " \t\r\n,":
            at += 1
        if at >= len(text) or (is_list and text[at] == "]"):
            break
        try:
            value, at = decoder.raw_decode(text, at)
        except ValueError as error:
            row = text.count("\n", 0, getattr(error, "pos", at)) + 1
            raise BadTable(f"{path}, line {row}: not JSON: {error}; is the file complete?") from None
        is_record = isinstance(value, dict) and is_shallow(value, limits().nesting)
        problem = f"expected an object, {{...}}, of at most {limits().nesting} levels"
        yield f"record {number}", value if is_record else problem
        number += 1
    if is_list and at >= len(text):
        raise BadTable(f"{path}: the list of records does not end; is the file complete?")


def _object(line: str) -> Mapping[str, Any] | str:
    try:
        return parsed_object(line, limits().nesting)
    except ValueError as error:
        return str(error)


# -- XML ---------------------------------------------------------------------------------------------------


def _elements(path: Path, stream: IO[str]) -> Iterator[Found]:
    """Yield the elements below the root: {"tag", "line", its attributes, "text", "inside": elements}.

    Refuse a DOCTYPE, because its entities can refer to files and can grow without bound.
    """
    parser = expat.ParserCreate()
    parser.buffer_text = True
    stack: list[dict[str, Any]] = []
    texts: list[list[str]] = []
    ready: list[dict[str, Any]] = []
    held, unread, most = 0, 0, memory_limit()  # unread: characters of a tag that has not ended

    def hold(size: int) -> None:
        nonlocal held, unread
        held, unread = held + size, 0
        require_room()

    def require_room() -> None:
        within = f", line {stack[1]['line']}" if len(stack) > 1 else ""
        require_memory(f"{path}{within}", held + CHARACTER_BYTES * unread, most, "split this record")

    def refuse(*_: object) -> None:
        raise BadTable(f"{path}: has a DOCTYPE, which is not read; expected the plain XML of an export")

    def start(tag: str, attributes: dict[str, str]) -> None:
        if len(stack) >= limits().nesting:
            raise BadTable(f"{path}: elements are nested more than {limits().nesting} levels deep (limits.nesting)")
        hold(ELEMENT_BYTES + CHARACTER_BYTES * sum(map(len, attributes.values())))
        stack.append({"inside": [], "text": "", **attributes, "tag": tag, "line": parser.CurrentLineNumber})
        texts.append([])

    def end(_: str) -> None:
        nonlocal held
        element, own = stack.pop(), texts.pop()
        if own:
            element["text"] = "".join(own)
        if len(stack) == 1:
            ready.append(element)
        elif stack:
            stack[-1]["inside"].append(element)

    def characters(text: str) -> None:
        hold(CHARACTER_BYTES * len(text))
        if stripped := text.strip():
            texts[-1].append(stripped)

    parser.StartDoctypeDeclHandler = refuse
    parser.StartElementHandler, parser.EndElementHandler, parser.CharacterDataHandler = start, end, characters
    try:
        while block := stream.read(1 << 20):
            unread += len(block)
            parser.Parse(block, False)
            require_room()
            yield from ((f"line {element['line']}", element) for element in ready)
            ready.clear()
            held = 0 if len(stack) < 2 else held
        parser.Parse("", True)
    except expat.ExpatError as error:
        raise BadTable(f"{path}, line {error.lineno}: not XML: {expat.ErrorString(error.code)}") from None
    yield from ((f"line {element['line']}", element) for element in ready)
