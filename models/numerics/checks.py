"""Range checks of combiner settings, made when a combiner is built."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

from hitl.errors import BadSettings
from hitl.formatting import listed


def require_between(setting: str, value: Any, low: float, high: float = math.inf) -> None:
    """Raise BadSettings, naming the setting, unless low < value < high."""
    if not isinstance(value, Real) or not low < float(value) < high:
        above = f"a number above {low:g}" + ("" if math.isinf(high) else f" and below {high:g}")
        raise BadSettings(f"combine.options.{setting} is {value!r}; expected {above}")


def require_whole(setting: str, value: Any, least: int) -> None:
    """Raise BadSettings, naming the setting, unless the value is a whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise BadSettings(f"combine.options.{setting} is {value!r}; expected a whole number of at least {least}")


def require_one_of(setting: str, value: Any, names: tuple[str, ...]) -> None:
    """Raise BadSettings, naming the setting, unless the value is one of these names."""
    if value not in names:
        raise BadSettings(f"combine.options.{setting} is {value!r}; expected one of {listed(names)}")


def require_positive(settings: Any, *names: str) -> None:
    """Raise BadSettings unless each of these settings is above 0."""
    for name in names:
        require_between(name, getattr(settings, name), 0)


def require_chances(settings: Any, *names: str) -> None:
    """Raise BadSettings unless each of these settings is above 0 and below 1."""
    for name in names:
        require_between(name, getattr(settings, name), 0, 1)


def require_counts(settings: Any, *names: str, least: int = 1) -> None:
    """Raise BadSettings unless each of these settings is a whole number of at least `least`."""
    for name in names:
        require_whole(name, getattr(settings, name), least)
