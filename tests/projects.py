"""A project of tables, as several tests have it: nine items labeled by three, three that nobody has labeled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hitl.cli.status import words
from hitl.connectors.tables import TablesSettings
from hitl.settings import Settings
from hitl.status import status_of
from hitl.store import Store

NOON = 1_700_000_000.0
HOUR = 3600.0

ANNOTATIONS = "item,annotator,label\n" + "".join(
    f"{n},{who},{(n + (who == 'cyd' and n % 3 == 0)) % 2}\n" for n in range(9) for who in ("ann", "bob", "cyd")
)


def settings(**changes: Any) -> Settings:
    budget = {"open_questions": 6, "target_confidence": 0.97}
    crew = {"annotators": ("dee", "eve"), "capacity": 4}
    return Settings(name="p", source=TablesSettings(path="."), budget=budget, crew=crew, **changes)  # type: ignore[arg-type]


def folder_with_tables(folder: Path) -> Path:
    folder.mkdir()
    (folder / "annotations.csv").write_text(ANNOTATIONS)
    (folder / "items.csv").write_text("item,text\n" + "".join(f"{n},text {n}\n" for n in range(12)))
    return folder


def answers(folder: Path, *rows: tuple[Any, str, int]) -> None:
    """More answers, in the order in which they come."""
    with (folder / "annotations.csv").open("a") as file:
        file.write("".join(f"{item},{who},{label}\n" for item, who, label in rows))


def state(folder: Path) -> dict[str, bytes]:
    """Everything the platform shows; not the index by which a pull is shorter, which a kill may leave out."""
    root = folder / "hitl-output"
    shown = [path for path in root.rglob("*") if path.is_file() and not path.name.startswith(".")]
    return {str(path.relative_to(root)): path.read_bytes() for path in shown}


def status_text(project: Settings, store: Store, now: float) -> str:
    """What `hitl status` prints."""
    return "".join(f"{line}\n" for line in words(status_of(project, store, now)))
