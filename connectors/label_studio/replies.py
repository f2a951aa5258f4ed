"""Check the shapes of Label Studio's responses before they are used.

A proxy, a login page or a failing server may answer a request with anything, even with status 200.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from functools import cache
from typing import Annotated, Any, NotRequired

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

Shape = TypeAdapter[Any]

LARGEST = 2**63 - 1
"""Largest integer that databases store."""


class WrongShape(ValueError):
    """Raised if a response does not have the expected shape; the text says where."""


def read(shape: Shape, answer: object) -> Any:
    """Return the response if it has this shape. Raises WrongShape."""
    try:
        return shape.validate_python(answer, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"])
        value = "" if first["type"] == "missing" else f", got {str(first['input'])[:40]!r}"
        raise WrongShape(f"{where}: {first['msg']}{value}") from None


def record(**fields: Any) -> Any:
    """Return the type of a JSON object with these fields; it may have others."""
    make: Any = TypedDict
    kind = make("record", fields)
    kind.__pydantic_config__ = ConfigDict(extra="allow")
    return kind


@cache
def having(names: frozenset[str]) -> Shape:
    """Return the shape of an object with these fields, whatever their values."""
    return Shape(record(**dict.fromkeys(names, Any)))


def _time(text: str) -> str:
    datetime.fromisoformat(text)
    return text


def _not_cut_off(page: dict[str, Any]) -> dict[str, Any]:
    if page["total"] and not page["tasks"]:
        raise ValueError(f"expected some of {page['total']} tasks")
    return page


def _versioned(answer: dict[str, Any]) -> dict[str, Any]:
    if not {"release", "edition"} & answer.keys():
        raise ValueError("expected release or edition")
    return answer


def _object(value: object) -> object:
    return value if isinstance(value, dict) else None


def _unpaged(answer: object) -> object:
    return answer.get("results") if isinstance(answer, dict) else answer


def _rows(**fields: Any) -> Any:
    row = record(**fields)
    return list[row]  # type: ignore[valid-type]


Whole: Any = Annotated[int, Field(ge=-LARGEST, le=LARGEST)]
Time: Any = Annotated[str, AfterValidator(_time)]
Object = dict[str, Any]

_FIELDS: Mapping[str, Any] = {
    "id": Whole,
    "data": Object,
    "meta": Annotated[Object | None, BeforeValidator(_object)],
    "is_labeled": bool,
    "overlap": Whole,
    "created_at": str,
    "updated_at": Time,
    "annotations_ids": str,
    "total_annotations": Whole,
    "cancelled_annotations": Whole,
}
# One odd value must not stop the others, so whatever anyone can write is checked where it is read.
_ANNOTATION: Mapping[str, Any] = {
    "id": Whole,
    "completed_by": int | Object | None,
    "was_cancelled": bool | None,
    "ground_truth": bool | None,
    "lead_time": Any,
    "created_at": str,
    "updated_at": str,
    "updated_by": Any,
    "result": Any,
}
_PREDICTION: Mapping[str, Any] = {"model_version": str | None, "score": Any, "result": Any}


def tasks(include: Collection[str]) -> Shape:
    """Return the shape of a page of tasks with these fields, including those of annotations and predictions.

    Raises KeyError for a field without a declared type, so that every requested field is checked.
    """
    return _tasks(frozenset(include))


@cache
def _tasks(include: frozenset[str]) -> Shape:
    nested = {"annotations": _ANNOTATION, "predictions": _PREDICTION}
    if unread := include - _FIELDS.keys() - _ANNOTATION.keys() - _PREDICTION.keys() - nested.keys():
        raise KeyError(f"no type of {', '.join(sorted(unread))}")
    fields = {name: kind for name, kind in _FIELDS.items() if name in include}
    for name in nested.keys() & include:
        fields[name] = _rows(**{part: kind for part, kind in nested[name].items() if part in include}) | None
    page: Any = record(tasks=_rows(**fields), total=Whole)
    checked: Any = Annotated[page, AfterValidator(_not_cut_off)]
    return Shape(checked)


ANYTHING, OBJECT = Shape(Any), Shape(Object)
NOTHING = Shape(Object | None)
"""Response to DELETE: nothing, or what was deleted."""
WITH_ID = Shape(record(id=Whole))
_version: Any = Annotated[Object, AfterValidator(_versioned)]
VERSION = Shape(_version)
_user: Any = {"id": Whole, "email": NotRequired[str | None]}
USER = Shape(record(**_user))
_users: Any = Annotated[_rows(**_user), Field(min_length=1), BeforeValidator(_unpaged)]
USERS = Shape(_users)
"""At least one user, because the token belongs to one."""
PROJECT = Shape(record(label_config=str))
PROJECTS = Shape(record(results=_rows(id=Whole, title=str | None)))
SKIPS = Shape(record(skipped_annotations_number=Whole))
LISTED = Shape(record(total=Whole, total_annotations=Whole, tasks=_rows(id=Whole, updated_at=Time)))
MODELS = Shape(record(static=_rows(model_version=str | None, count=Whole, latest=str)))
VIEW, VIEWS = (Shape(kind(id=Whole, data=Object | None)) for kind in (record, _rows))
BACKENDS = Shape(
    _rows(
        id=Whole,
        title=str | None,
        url=str,
        project=Whole,
        state=str,
        model_version=str | None,
        auth_method=Any,
        basic_auth_user=str | None,
        extra_params=Any,
    )
)
WEBHOOKS = Shape(_rows(id=Whole, url=str))
COUNTS = Shape(dict[str, Whole])
TASK_COUNT = Shape(record(task_count=Whole))
CREATED = Shape(record(created=Whole))
GOLD = Shape(record(id=Whole, ground_truth=bool))
