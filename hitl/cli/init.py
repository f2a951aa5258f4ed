"""Define `hitl init`, which writes hitl.toml."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from hitl.cli import show
from hitl.cli.evidence import names
from hitl.cli.options import HERE, Config
from hitl.errors import BadSettings


def init(
    name: Annotated[str | None, typer.Option(help="Name of the project in the store.")] = None,
    label_studio: Annotated[str | None, typer.Option(help="Address of Label Studio.")] = None,
    project_id: Annotated[int | None, typer.Option("--project", help="Label Studio project id.")] = None,
    control: Annotated[str | None, typer.Option(help="Control of the labeling config, if there are several.")] = None,
    tables: Annotated[Path | None, typer.Option(help="A folder or file of tables instead of a platform.")] = None,
    store: Annotated[
        str, typer.Option(help="Database: sqlite:///file or postgresql://...")
    ] = "sqlite:///.hitl/hitl.db",
    annotators: Annotated[str | None, typer.Option(help="Comma-separated annotators to ask by name.")] = None,
    config: Config = HERE,
) -> None:
    """Write hitl.toml; asks for what the flags leave open."""
    from hitl.settings import new_settings

    if label_studio and tables:
        raise BadSettings("init: --label-studio and --tables exclude each other; a project has one source")
    source = _tables(tables, config) if tables else _label_studio(label_studio, project_id, control)
    name = name or (tables.resolve().stem if tables else f"label-studio-{source['project']}")
    new_settings.write(config, name, source, store, list(names(annotators) or ()))
    show.line(f"wrote {config}")
    if tables:
        show.line("next: `hitl doctor`, then `hitl run`")
    else:
        from hitl.connectors.label_studio import TOKEN

        show.line(f"next: export {TOKEN}=<your access token>, then `hitl doctor` and `hitl run`")


def _tables(path: Path, config: Path) -> dict[str, Any]:
    """Return the source as written in hitl.toml: relative to its folder, unless given as an absolute path."""
    if not path.exists():
        raise BadSettings(f"init: --tables {path}: no such file or folder")
    named = path
    if not path.is_absolute():
        try:
            named = Path(os.path.relpath(path.resolve(), config.resolve().parent))
        except ValueError:  # on another drive
            named = path.resolve()
    return {"kind": "tables", "path": named.as_posix() if named is not path else str(path)}


def _label_studio(url: str | None, project: int | None, control: str | None) -> dict[str, Any]:
    url = url or _ask("Address of Label Studio", "--label-studio", "http://localhost:8080")
    number = project if project is not None else int(_ask("Label Studio project id", "--project", None))
    source: dict[str, Any] = {"kind": "label-studio", "url": url, "project": number}
    return source | ({"control": control} if control else {})


def _ask(question: str, flag: str, default: str | None) -> str:
    if not sys.stdin.isatty():
        raise BadSettings(f"init: {flag} is missing (and there is no terminal to ask at)")
    answer: str = typer.prompt(question, default=default)
    return answer
