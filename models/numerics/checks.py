"""Range checks for the settings of methods, made when a method is constructed."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from numbers import Integral, Real
from typing import Any

from hitl.errors import BadSettings
from hitl.formatting import listed


def require_between(setting: str, value: Any, low: float, high: float = math.inf) -> None:
    """Raise BadSettings, naming the setting, unless low < value < high."""
    if not isinstance(value, Real) or not low < float(value) < high:
        above = f"a number above {low:g}" + ("" if math.isinf(high) else f" and below {high:g}")
        raise BadSettings(f"setting {setting} is {value!r}; expected {above}")


def require_whole(setting: str, value: Any, least: int) -> None:
    """Raise BadSettings, naming the setting, unless the value is a whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise BadSettings(f"setting {setting} is {value!r}; expected a whole number of at least {least}")


def require_one_of(setting: str, value: Any, names: tuple[str, ...]) -> None:
    """Raise BadSettings, naming the setting, unless the value is one of these names."""
    if value not in names:
        raise BadSettings(f"setting {setting} is {value!r}; expected one of {listed(names)}")


def at_least_0(setting: str, value: Any, high: float = math.inf) -> None:
    """Raise BadSettings, naming the setting, unless 0 <= value < high."""
    if value != 0:
        require_between(setting, value, 0, high)


Check = Callable[[str, Any], None]
"""Setting and value -> None. Raises BadSettings, which names the setting, if the value is out of range."""

positive: Check = partial(require_between, low=0)
chance: Check = partial(require_between, low=0, high=1)
counted: Check = partial(require_whole, least=1)
counted_from_0: Check = partial(require_whole, least=0)

RANGES: dict[str, Check] = {
    **dict.fromkeys(("smoothing", "share_smoothing", "step_smoothing", "strength", "shrinkage", "horizon"), positive),
    **dict.fromkeys(("diagonal", "off", "pseudo_items", "tolerance", "easy_sd", "answer_sd", "coupling_sd"), positive),
    **dict.fromkeys(("adverse", "skill", "habit", "ability", "ability_sd", "easiness_sd"), positive),
    **dict.fromkeys(("spread", "shift", "doubt", "intercept", "resolution", "sharpness"), positive),
    **dict.fromkeys(("accuracy", "beta", "hard", "epsilon", "easy_accuracy"), chance),
    **dict.fromkeys(("max_iterations", "least_labels", "enough_labels", "least_shared", "own_weights"), counted),
    **dict.fromkeys(("inducing", "batch", "bins", "breadth"), counted),
    **dict.fromkeys(("exact_states", "group_states"), counted_from_0),
    **dict.fromkeys(("triples", "groupings", "rounds", "learning_steps", "seed"), counted_from_0),
    **dict.fromkeys(("right", "wrong"), partial(require_between, low=1)),
    "folds": partial(require_whole, least=2),
    "anchor": partial(at_least_0, high=1),
    "begin": partial(require_one_of, names=("votes", "prior")),
    "learn_from": partial(require_one_of, names=("others", "truth")),
    "accuracy_at": partial(require_one_of, names=("mean", "mode")),
    "annotators": partial(require_one_of, names=("dirichlet", "map")),
    "approximation": partial(require_one_of, names=("mean-field", "icm", "belief-propagation")),
}
"""Settings that have the same range in every method."""


def check_settings(settings: Any, **others: Check) -> None:
    """Raise BadSettings for a setting that is out of range. `others` override `RANGES`.

    None is in range if the type of the field allows it.
    """
    ranges = RANGES | others
    for one in fields(settings):
        value = getattr(settings, one.name)
        if one.name in ranges and not (value is None and "None" in str(one.type)):
            ranges[one.name](one.name, value)
