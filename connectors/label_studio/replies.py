"""What Label Studio answers, checked before it is believed: a reader for each shape that we use.

A proxy, a login page or a server in trouble may answer a request with anything, and with status 200. A reader gives the
value as it is, or raises WrongShape, which says where it is not what it should be.

    get("/api/users/", rows(record(id=whole)))       a list of objects, each with a whole number as its id
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

Reader = Callable[[Any], Any]


class WrongShape(ValueError):
    """An answer is not what it should be."""


def anything(value: Any) -> Any:
    """Whatever it is."""
    return value


def nothing(value: Any) -> Any:
    """What DELETE answers: nothing, or what was deleted."""
    return value if value is None else _of(dict, "nothing or an object")(value)


def _of(kind: type | tuple[type, ...], words: str) -> Reader:
    def read(value: Any) -> Any:
        if not isinstance(value, kind):
            raise WrongShape(f": expected {words}, found {str(value)[:40]!r}")
        return value

    return read


text = _of(str, "text")
flag = _of(bool, "true or false")


LARGEST = 2**63 - 1
"""Of numbers, on both sides of 0: what databases hold."""


def whole(value: Any) -> int:
    """A whole number of 64 bits."""
    if type(value) is not int or abs(value) > LARGEST:
        raise WrongShape(f": expected a whole number, found {str(value)[:40]!r}")
    return value


def number(value: Any) -> float:
    """A number, finite and not beyond 64 bits."""
    if type(value) not in (int, float) or not abs(value) <= LARGEST:
        raise WrongShape(f": expected a number, found {str(value)[:40]!r}")
    return float(value)


def some(reader: Reader) -> Reader:
    """What the reader reads, or null."""
    return lambda value: None if value is None else reader(value)


def record(**fields: Reader) -> Reader:
    """An object with these fields; it may have others."""
    return record_of(fields.items())


def record_of(fields: Iterable[tuple[str, Reader]]) -> Reader:
    """An object with these fields; it may have others."""
    wanted = tuple(fields)

    def read(value: Any) -> Any:
        if type(value) is not dict:
            raise WrongShape(f": expected an object, found {str(value)[:40]!r}")
        for name, reader in wanted:
            if name not in value:
                raise WrongShape(f": {name} is not there")
            try:
                reader(value[name])
            except WrongShape as error:
                raise WrongShape(f".{name}{error}") from None
        return value

    return read


def rows(reader: Reader, *, least: int = 0) -> Reader:
    """A list, with so many entries at least."""

    def read(value: Any) -> Any:
        if type(value) is not list or len(value) < least:
            what = f"a list of {least} or more" if least else "a list"
            raise WrongShape(f": expected {what}, found {str(value)[:40]!r}")
        for place, each in enumerate(value):
            try:
                reader(each)
            except WrongShape as error:
                raise WrongShape(f"[{place}]{error}") from None
        return value

    return read


def named(reader: Reader) -> Reader:
    """An object whose names are data: each of its values is what the reader reads."""

    def read(value: Any) -> Any:
        return record_of((name, reader) for name in value)(value) if isinstance(value, dict) else record()(value)

    return read


def user(value: Any) -> dict[str, Any]:
    """A user, whose address the server may keep to itself."""
    found: dict[str, Any] = WITH_ID(value)
    record_of([("email", some(text))] if "email" in found else [])(found)
    return found


def users(value: Any) -> list[dict[str, Any]]:
    """The users of the server; one at least, to whom the token belongs."""
    listed = value.get("results") if isinstance(value, dict) else value
    found: list[dict[str, Any]] = rows(user, least=1)(listed)
    return found


def instant(value: Any) -> str:
    """A time as Label Studio writes it."""
    found: str = text(value)
    try:
        datetime.fromisoformat(found)
    except ValueError:
        raise WrongShape(f": expected a time, found {found[:40]!r}") from None
    return found


_BY = some(_of((int, dict), "a user"))
_NUMBER = some(number)
_FIELDS: dict[str, Reader] = {
    "id": whole,
    "data": record(),
    "meta": some(record()),
    "is_labeled": flag,
    "overlap": whole,
    "created_at": text,
    "updated_at": instant,
    "annotations_ids": text,
    "total_annotations": whole,
    "cancelled_annotations": whole,
}
_ANNOTATION: dict[str, Reader] = {
    "id": whole,
    "completed_by": _BY,
    "was_cancelled": some(flag),
    "ground_truth": some(flag),
    "lead_time": _NUMBER,
    "created_at": text,
    "updated_at": text,
    "updated_by": anything,
    "result": anything,
}
_PREDICTION: dict[str, Reader] = {"model_version": some(text), "score": _NUMBER, "result": anything}


def tasks(include: Iterable[str]) -> Reader:
    """A page of tasks with these fields, which are those of its annotations and predictions too (`include`).

    Raises KeyError for a field without a reader: what is asked for is never used unread.
    """
    wanted = set(include)
    if strange := wanted - _FIELDS.keys() - _ANNOTATION.keys() - _PREDICTION.keys() - {"annotations", "predictions"}:
        raise KeyError(f"no reader of {', '.join(sorted(strange))}")
    fields = [(name, reader) for name, reader in _FIELDS.items() if name in wanted]
    for name, inner in (("annotations", _ANNOTATION), ("predictions", _PREDICTION)):
        if name in wanted:
            own = [(part, reader) for part, reader in inner.items() if part in wanted]
            fields.append((name, some(rows(record_of(own)))))
    read_page = record(tasks=rows(record_of(fields)), total=whole)

    def read(value: Any) -> Any:
        page = read_page(value)
        if not page["tasks"] and page["total"]:
            raise WrongShape(f".tasks: expected some of {page['total']} tasks, found none")
        return page

    return read


def version(value: Any) -> dict[str, Any]:
    """Which Label Studio it is."""
    found: dict[str, Any] = record()(value)
    if not {"release", "edition"} & found.keys():
        raise WrongShape(": neither release nor edition is there")
    return found


PROJECT = record(label_config=text)
SKIPS = record(skipped_annotations_number=whole)
LISTED = record(total=whole, total_annotations=whole, tasks=rows(record(id=whole, updated_at=instant)))
MODELS = record(static=rows(record(model_version=some(text), count=whole, latest=text)))
VIEW = record(id=whole, data=some(record()))
VIEWS = rows(VIEW)
BACKENDS = rows(
    record(
        id=whole,
        title=some(text),
        url=text,
        project=whole,
        state=text,
        model_version=some(text),
        auth_method=anything,
        basic_auth_user=some(text),
        extra_params=anything,
    )
)
WEBHOOKS = rows(record(id=whole, url=text))
COUNTS = named(whole)
OBJECT = record()
WITH_ID = record(id=whole)
