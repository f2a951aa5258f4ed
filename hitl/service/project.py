"""A project as the service holds it."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from hitl.project import load, store_url
from hitl.settings import Settings
from hitl.store import Store


class Project:
    """A project of the service. Raises the errors of `hitl.project.load`."""

    def __init__(self, config: Path) -> None:
        self.config = config.resolve()
        self.settings = load(self.config)
        self.name, self.schedule = self.settings.name, self.settings.schedule
        self.address = store_url(self.settings.store, self.config.parent)

    @cached_property
    def store(self) -> Store:
        """Store of the project, opened on first use. Raises StoreError."""
        return Store(self.address)

    @property
    def is_scheduled(self) -> bool:
        """True if the settings say when to run the project."""
        schedule = self.schedule
        starts = (schedule.every, schedule.cron, schedule.after_annotations, schedule.webhook)
        return any(start is not None for start in starts)

    def outdated(self, settings: Settings) -> str:
        """Name the tables of newer settings that differ and are only read at the start; "" if there are none."""
        names = ("schedule", "events", "serve")
        return " and ".join(f"[{name}]" for name in names if getattr(settings, name) != getattr(self.settings, name))

    @property
    def secret(self) -> str:
        """Secret that the project's webhooks send in a header, or "" if not set."""
        return "" if self.settings.webhook_secret is None else self.settings.webhook_secret.get_secret_value()
