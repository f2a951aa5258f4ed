"""Options that several commands share: what they are called and what their help says."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Config = Annotated[Path, typer.Option("--config", "-c", help="The project's hitl.toml.", envvar="HITL_CONFIG")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines; no progress.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would happen; change nothing.")]
# What combine, annotators and models read, and by which columns.
Labels = Annotated[Path | None, typer.Argument(help="Annotations (CSV, JSON Lines, Parquet). Omit inside a project.")]
Probabilities = Annotated[
    list[str] | None,
    typer.Option("--probabilities", "-p", help="MODEL=FILE: item, p_<class>; or .npz, Hugging Face. Repeat."),
]
Truth = Annotated[Path | None, typer.Option(help="Known labels: columns item, label.")]
ItemColumn = Annotated[str, typer.Option(help="Column of the item.")]
AnnotatorColumn = Annotated[str, typer.Option(help="Column of the annotator; an empty field is anonymous.")]
LabelColumn = Annotated[str, typer.Option(help="Column of the label.")]
Classes = Annotated[str | None, typer.Option(help="Comma-separated classes; default: the labels seen.")]
Options = Annotated[str | None, typer.Option(help="Comma-separated legal answers, if there are more than the classes.")]
Strict = Annotated[bool, typer.Option(help="Two different answers of one annotator are an error.")]
HERE = Path("hitl.toml")


def examples(*lines: str) -> str:
    """The end of a command's help: one example a line, each as it is typed."""
    head = "Example" if len(lines) == 1 else "Examples"
    return "\n\n".join([f"{head}:", *(f"[bold]{line}[/bold]" for line in lines)])
