"""The connector a project's settings name."""

from __future__ import annotations

from pathlib import Path

from hitl.errors import BadSettings
from hitl.exchange import Connector
from hitl.settings import TOKEN, Settings


def connector_of(settings: Settings, folder: Path = Path()) -> Connector:
    """The connector, loaded on demand; relative paths are relative to `folder`. Raises BadSettings."""
    source = settings.source
    if source.kind == "tables":
        from hitl.connectors.tables import Tables

        if not source.path:
            raise BadSettings("source.path is missing: the folder or file of tables")
        return Tables(
            folder / source.path,
            item=source.item,
            annotator=source.annotator,
            label=source.label,
            time=source.time,
            classes=source.classes,
            abstain=source.abstain,
            output=None if source.output is None else folder / source.output,
        )
    from hitl.connectors.label_studio import LabelStudio

    if settings.label_studio_token is None:
        raise BadSettings(f"{TOKEN} is not set; take the access token from Label Studio: Account & Settings")
    if source.project <= 0:
        raise BadSettings(f"source.project is {source.project}; expected the id of a Label Studio project")
    token = settings.label_studio_token.get_secret_value()
    return LabelStudio(source.url, token, source.project, control=source.control, abstain=source.abstain)
