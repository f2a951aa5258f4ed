"""Methods to compare: one file per package, with `PACKAGE`, its name on PyPI, and `METHODS`, name -> fit.

A fit gets annotations that no truth belongs to. It returns (N, J) class probabilities in the order of `items` and
`classes`, or (N,) class codes if the method gives labels alone. A file whose package is not installed is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from pkgutil import iter_modules

from hitl.annotations import Annotations, Floats, Ints

Fit = Callable[[Annotations], Floats | Ints]


def files() -> list[str]:
    """List the files of this folder, without their endings."""
    return sorted(module.name for module in iter_modules(__path__))


def load() -> tuple[dict[str, Fit], dict[str, str]]:
    """Return fits by method, and versions by package, of the files whose package is installed."""
    fits: dict[str, Fit] = {}
    versions = {}
    for name in files():
        try:
            module = import_module(f"{__name__}.{name}")
        except ModuleNotFoundError as error:
            print(f"{name}.py is left out: {error}", flush=True)
        else:
            fits |= module.METHODS
            versions[module.PACKAGE] = version(module.PACKAGE)
    return fits, versions
