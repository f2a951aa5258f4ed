"""Labeling platforms and file formats: one a file. Classes load on first use.

Example:
    >>> from hitl.connectors import LabelStudio, Tables
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hitl.connectors.label_studio import LabelStudio as LabelStudio
    from hitl.connectors.tables import Tables as Tables

_PUBLIC = {"LabelStudio": "label_studio", "Tables": "tables"}
__all__ = ["LabelStudio", "Tables"]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(import_module(f"hitl.connectors.{_PUBLIC[name]}"), name)
    raise AttributeError(f"module 'hitl.connectors' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_PUBLIC])
