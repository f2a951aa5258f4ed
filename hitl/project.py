"""A project put together: settings, store and connector of one hitl.toml."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hitl.exchange import Connector
    from hitl.settings import Settings
    from hitl.store import Store


@contextmanager
def stored(config: Path) -> Iterator[tuple[Settings, Store]]:
    """Settings and store alone, for those who ask nothing of the platform: its token is not needed."""
    from hitl import settings
    from hitl.store import Store

    loaded = settings.load(config)
    with Store(store_url(loaded.store, config.parent)) as store:
        yield loaded, store


@contextmanager
def opened(config: Path) -> Iterator[tuple[Settings, Store, Connector]]:
    """The project's settings, store and connector."""
    from hitl import settings
    from hitl.connectors.catalog import connector_of
    from hitl.store import Store

    loaded = settings.load(config)
    connector = connector_of(loaded, config.parent)
    with Store(store_url(loaded.store, config.parent)) as store:
        yield loaded, store, connector


def store_url(url: str, folder: Path) -> str:
    """A relative SQLite file is relative to hitl.toml, wherever the command is run, and its folder is made.

    The folder of an absolute one is not: a mistyped path must not become an empty project.
    """
    prefix = "sqlite:///"
    if not url.startswith(prefix):
        return url
    file = folder / url[len(prefix) :]
    if not Path(url[len(prefix) :]).is_absolute():
        file.parent.mkdir(parents=True, exist_ok=True)
    return f"{prefix}{file.resolve()}"
