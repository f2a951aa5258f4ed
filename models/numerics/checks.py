"""Ranges of combiner settings, checked when one is built."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

from hitl.errors import BadSettings


def require_between(setting: str, value: Any, low: float, high: float = math.inf) -> None:
    """Raise BadSettings unless low < value < high, naming the setting."""
    if not isinstance(value, Real) or not low < float(value) < high:
        above = f"a number above {low:g}" + ("" if math.isinf(high) else f" and below {high:g}")
        raise BadSettings(f"combine.options.{setting} is {value!r}; expected {above}")


def require_whole(setting: str, value: Any, least: int) -> None:
    """Raise BadSettings unless the value is a whole number of at least `least`, naming the setting."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise BadSettings(f"combine.options.{setting} is {value!r}; expected a whole number of at least {least}")
