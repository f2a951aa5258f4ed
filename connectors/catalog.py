"""Kinds of source that hitl.toml can name: each is a connector class, which brings its settings.

A connector of another package is one class with `Settings` and `open`, and one entry point:

    [project.entry-points."hitl.connectors"]
    folder = "their_package.folder:Folder"
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from hitl.errors import BadSettings
from hitl.registry import Registry

if TYPE_CHECKING:
    from hitl.platform import Connector
    from hitl.settings import SourceSettings

CONNECTORS = Registry(
    "hitl.connectors",
    "source.kind",
    {
        "label-studio": "hitl.connectors.label_studio:LabelStudio",
        "tables": "hitl.connectors.tables:Tables",
    },
)
"""Kind of source -> where its connector class is."""


class ConnectorClass(Protocol):
    """A connector class that hitl.toml can name."""

    Settings: type[SourceSettings]

    @classmethod
    def open(cls, settings: SourceSettings, folder: Path) -> Connector:
        """Return the connector of these settings; relative paths start at `folder`. Asks nothing of the platform.

        Raises BadSettings, for instance where a token is missing in the environment.
        """
        ...


def settings_of(kind: str) -> type[SourceSettings]:
    """Return the class of the keys of `[source]` for this kind. Raises BadSettings for an unknown kind."""
    return _class_of(kind).Settings


def connector_of(source: SourceSettings, folder: Path = Path()) -> Connector:
    """Return the connector of a project's `[source]`; `folder` is that of its hitl.toml. Raises BadSettings."""
    return _class_of(source.kind).open(source, folder)


def _class_of(kind: str) -> type[ConnectorClass]:
    connector: type[ConnectorClass] = CONNECTORS.load(kind)
    missing = [name for name in ("Settings", "open") if not hasattr(connector, name)]
    if missing:
        raise BadSettings(f"source.kind {kind!r}: {connector.__qualname__} has no {missing[0]}; see {__name__}")
    return connector
