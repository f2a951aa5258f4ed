"""Build a combiner from its name and settings."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from hitl.errors import BadSettings
from hitl.models.methods import COMBINERS

if TYPE_CHECKING:
    from hitl.consensus import Fit
    from hitl.models.combiner import Combiner


def combiner(name: str, **settings: Any) -> Combiner:
    """Build a method with settings. Raise BadSettings for an unknown name or setting."""
    if "temperature" in settings and _has_prior(COMBINERS.load(name)):
        settings["temperature"] = _log_temperature(settings["temperature"])
    made: Combiner = COMBINERS.make(name, settings)
    return made


def _has_prior(made: Any) -> bool:
    """Return True if a method's setting `temperature` is a prior; methods of other packages may use a number."""
    prior = import_module("hitl.models.calibration.temperature").LogTemperature
    known = fields(made) if is_dataclass(made) else ()
    return any(field.name == "temperature" and isinstance(field.default, prior) for field in known)


def _log_temperature(given: Any) -> Any:
    """Return the prior that a table of hitl.toml describes; return a prior as it is. Raise BadSettings otherwise."""
    prior = import_module("hitl.models.calibration.temperature").LogTemperature
    if isinstance(given, prior):
        return given
    known = [field.name for field in fields(prior)]
    if not isinstance(given, Mapping) or not given.keys() <= {*known}:
        raise BadSettings(
            f"temperature is {given!r}; expected the prior of its logarithm, such as {{ mean = 0.0, sd = 1.0 }} "
            f"({', '.join(known)})"
        )
    return prior(**given)


def published(name: str, **settings: Any) -> Combiner:
    """Build a method with its paper's settings (the classmethod `paper` of its class), overridden by these settings.

    Raise BadSettings for an unknown name or setting, and for a method that has no `paper`.
    """
    made = COMBINERS.load(name)
    if not hasattr(made, "paper"):
        raise BadSettings(f"method {name!r} has no settings of a paper; these have: {', '.join(with_papers())}")
    printed = made.paper()
    return combiner(name, **{each.name: getattr(printed, each.name) for each in fields(printed)} | settings)


def with_papers() -> list[str]:
    """Return the names of the methods that offer their paper's settings."""
    names = []
    for name in COMBINERS:
        with suppress(BadSettings):  # a method of another package that cannot be loaded
            if hasattr(COMBINERS.load(name), "paper"):
                names.append(name)
    return names


def chosen(name: str, settings: Mapping[str, Any], paper: bool) -> Combiner:
    """Build a method by name, with hitl's default settings or, if `paper`, those of its paper.

    A name with a colon is a class of the user, `module:Class` or `file.py:Class`.
    """
    if ":" not in name:
        return published(name, **settings) if paper else combiner(name, **settings)
    made = import_module("hitl.models.predictors.loading").import_name(name, "method")
    if paper and not hasattr(made, "paper"):
        raise BadSettings(f"method {name!r} has no settings of a paper; expected a classmethod `paper` that sets them")
    try:
        found = replace(made.paper(), **settings) if paper else made(**settings)
    except TypeError as error:
        raise BadSettings(f"method {name!r}: {error}") from None
    if not hasattr(found, "fit"):
        raise BadSettings(f"method {name!r} has no `fit`; hitl.testing.check_combiner says what a method needs")
    return cast("Combiner", found)


def combiner_of(fit: Fit) -> Combiner:
    """Build the method that made a fit, with its settings. Raise BadSettings for an unregistered method."""
    fields = COMBINERS.load(fit.method).__dataclass_fields__
    settings = {
        name: tuple(value) if isinstance(value, list) else value  # JSON stores them as lists
        for name, value in fit.settings.items()
        if name in fields and (name == "temperature" or not isinstance(value, Mapping))
    }
    return combiner(fit.method, **settings)
