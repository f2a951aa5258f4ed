"""A section of hitl.toml, and the types of its keys."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from hitl.crew import UNLIMITED
from hitl.settings.times import seconds_of

CENTURY = 100 * 366 * 24 * 3600.0
"""Longest duration that can be set, in seconds (a hundred years)."""


def check(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Turn a function that raises BadSettings into a validator of pydantic, which returns the value as written."""

    def checked(value: Any) -> Any:
        function(value)
        return value

    return checked


Text = Annotated[str, Field(min_length=1)]
Count = Annotated[int, Field(ge=0, le=UNLIMITED)]
AtLeastOne = Annotated[int, Field(ge=1, le=UNLIMITED)]
Price = Annotated[float, Field(gt=0, allow_inf_nan=False)]
"""Cost per label."""

Seconds = Annotated[
    float,
    Field(gt=0, le=CENTURY, allow_inf_nan=False),
    BeforeValidator(lambda value: seconds_of(value) if isinstance(value, str) else value),
]
"""Duration in seconds > 0, written as text such as "15m" or as a number."""


class Section(BaseModel):
    """A section of hitl.toml. Unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def code_in(folder: Path, name: str) -> str:
    """Resolve the file of `file.py:name` against this folder. Return other names unchanged."""
    return str(folder / name) if name.rpartition(":")[0].endswith(".py") else name
