"""Load the public names of a package on first use.

Each name is written once, as an import that type checkers and editors also read. They do not read the `else`, so that
they report names that do not exist:

    if TYPE_CHECKING:
        from hitl.models.pl import PL as PL
    else:
        __getattr__, __dir__, __all__ = lazy(__name__)
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from importlib import import_module
from importlib.abc import InspectLoader
from importlib.util import find_spec
from sys import modules
from types import ModuleType
from typing import Any

from hitl.errors import MissingExtra


def lazy(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` for the names a package imports under `if TYPE_CHECKING`."""
    home = _imported_for_types(package)

    def load(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if home[name] == package:  # a module of the package
            try:
                return import_module(f"{package}.{name}")
            except MissingExtra as error:  # help() and inspect skip what is no attribute
                raise AttributeError(str(error)) from error
        return getattr(import_module(home[name]), name)

    def known() -> list[str]:
        there = vars(modules[package]).items()
        return sorted({name for name, value in there if name[:2] == "__" or isinstance(value, ModuleType)} | {*home})

    return load, known, sorted(home)


def _imported_for_types(package: str) -> dict[str, str]:
    """Map each name imported under an `if` to the module it is imported from."""
    spec = find_spec(package)
    source = spec.loader.get_source(package) if spec and isinstance(spec.loader, InspectLoader) else None
    if source is None:
        raise ImportError(f"{package}: its source is missing; install hitl-toolkit with its .py files")
    blocks = [node for node in ast.parse(source).body if isinstance(node, ast.If)]
    imports = [node for block in blocks for node in block.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: node.module or "" for node in imports for alias in node.names}
