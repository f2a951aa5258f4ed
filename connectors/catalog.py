"""List the kinds of source that hitl.toml can name, and the formats of other tools' exports.

Each source is a connector class with its own settings. `hitl.connectors.exports` describes importers.

Another package can add a connector with one class that has `Settings` and `open`, and with one entry point:

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
        "mlflow": "hitl.connectors.mlflow:MLflow",
        "phoenix": "hitl.connectors.phoenix:Phoenix",
        "tables": "hitl.connectors.tables:Tables",
    },
)
"""Kind of source -> location of its connector class."""

IMPORTERS = Registry(
    "hitl.importers",
    "--format",
    {
        "label-studio": "hitl.connectors.exports.label_studio:LabelStudio",
        "label-studio-table": "hitl.connectors.exports.label_studio:LabelStudioTable",
        "prodigy": "hitl.connectors.exports.prodigy:Prodigy",
        "argilla": "hitl.connectors.exports.argilla:Argilla",
        "doccano": "hitl.connectors.exports.doccano:Doccano",
        "labelbox": "hitl.connectors.exports.labelbox:Labelbox",
        "ground-truth": "hitl.connectors.exports.ground_truth:GroundTruth",
        "ground-truth-manifest": "hitl.connectors.exports.ground_truth:Manifest",
        "mturk": "hitl.connectors.exports.crowds:MTurk",
        "zooniverse": "hitl.connectors.exports.crowds:Zooniverse",
        "appen": "hitl.connectors.exports.crowds:Appen",
        "toloka": "hitl.connectors.exports.crowds:Toloka",
        "crowd-kit": "hitl.connectors.exports.crowds:CrowdKit",
        "cvat": "hitl.connectors.exports.cvat:CVAT",
        "langfuse": "hitl.connectors.exports.traces:Langfuse",
        "opik": "hitl.connectors.exports.traces:Opik",
        "langsmith": "hitl.connectors.exports.traces:LangSmith",
    },
)
"""Name of a format -> location of its importer."""

TABLE = "table"
"""Value of --format for a table with the columns item, annotator and label."""


class ConnectorClass(Protocol):
    """A connector class that hitl.toml can name."""

    Settings: type[SourceSettings]

    @classmethod
    def open(cls, settings: SourceSettings, folder: Path) -> Connector:
        """Return the connector for these settings, with relative paths resolved against `folder`. Does not contact the
        platform.

        Raises BadSettings, for instance if a token is missing in the environment.
        """
        ...


def settings_of(kind: str) -> type[SourceSettings]:
    """Return the settings class of `[source]` for this kind. Raises BadSettings for an unknown kind."""
    return _class_of(kind).Settings


def connector_of(source: SourceSettings, folder: Path = Path()) -> Connector:
    """Return the connector of a project's `[source]`; `folder` contains its hitl.toml. Raises BadSettings."""
    return _class_of(source.kind).open(source, folder)


def _class_of(kind: str) -> type[ConnectorClass]:
    connector: type[ConnectorClass] = CONNECTORS.load(kind)
    missing = [name for name in ("Settings", "open") if not hasattr(connector, name)]
    if missing:
        raise BadSettings(f"source.kind {kind!r}: {connector.__qualname__} has no {missing[0]}; see {__name__}")
    return connector
