"""Projects of four annotators who mark parts of items, in a folder of tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hitl.connectors.tables import TablesSettings
from hitl.settings import Settings

CREW = ("ann", "bob", "cyd", "dee")


def settings(**changes: Any) -> Settings:
    crew = {"annotators": CREW, "capacity": 4}
    budget = {"open_questions": 4, "target_confidence": 0.97}
    return Settings(name="p", source=TablesSettings(path="."), budget=budget, crew=crew, **changes)


def write_config(path: Path) -> None:
    """The hitl.toml of a project whose tables are in the folder `t`."""
    crew = ", ".join(f'"{who}"' for who in CREW)
    (path / "hitl.toml").write_text(
        f'name = "p"\n[source]\nkind = "tables"\npath = "t"\n[crew]\nannotators = [{crew}]\ncapacity = 4\n'
        "[budget]\nopen_questions = 4\n"
    )
