"""Define `hitl data`, which lists public sets and downloads them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hitl.cli import show
from hitl.cli.options import Json, in_group

data = typer.Typer(
    name="data", no_args_is_help=True, help="Download public labels of real annotators, with their licence."
)


@in_group(data, "list")
def list_sets(as_json: Json = False) -> None:
    """List the public sets, with size, licence, paper and address."""
    from dataclasses import asdict

    from hitl.demo.public import catalogue

    sets = catalogue()
    lines = [
        f"{name}: {public.about}\n"
        f"  {public.items:,} items ({public.truth:,} with ground truth), {public.annotators:,} annotators, "
        f"{public.classes} classes, {public.labels:,} labels\n"
        f"  paper: {public.paper}\n"
        f"  licence: {public.licence}\n"
        f"  {public.source}"
        for name, public in sets.items()
    ]
    show.result({name: asdict(public) for name, public in sets.items()}, lines, as_json)


@in_group(data, "get")
def get_set(
    name: Annotated[str, typer.Argument(help="Name of the set; see `hitl data list`.")],
    folder: Annotated[Path | None, typer.Argument(help="New folder to write; default: the name of the set.")] = None,
) -> None:
    """Download a public set into a new folder: annotations.csv, truth.csv and a README.md with its licence."""
    from hitl.demo.public import catalogue, get

    folder = Path(name) if folder is None else folder
    with show.progress() as progress:
        rows = get(name, folder, progress)
    public = catalogue()[name]
    show.line(f"{name}: {public.about}")
    show.line(f"licence: {public.licence}")
    for file, number in rows.items():
        show.line(f"wrote {folder / file} ({show.counted(number, 'row')})")
    show.line(f"next: `cd {folder}`, then `hitl combine annotations.csv --output consensus.csv`")
