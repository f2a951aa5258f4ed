"""Register all commands of `hitl`, in the panels of its help."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from hitl.active.registry import POLICIES
from hitl.cli import (
    access,
    certify,
    combine,
    data,
    embed,
    estimate,
    init,
    judge,
    predict,
    profiles,
    project,
    project_files,
    rank,
    replay,
    service,
    shard,
    show,
    store,
)
from hitl.cli.options import examples, help_of, opt
from hitl.connectors.catalog import CONNECTORS
from hitl.models.methods import COMBINERS

WHAT = "Combine the answers of annotators and models into labels, and plan who should label what next."
NAMES = (
    f"Methods: {', '.join(COMBINERS)}.",
    f"Policies: {', '.join(POLICIES)}.",
    f"Sources of a project: {', '.join(CONNECTORS)}.",
    "Try it: [bold]hitl example photos[/bold]. "
    "A file: [bold]hitl combine annotations.csv --output consensus.csv[/bold]. "
    "A project: [bold]hitl init[/bold], then [bold]hitl run[/bold].",
)
app = typer.Typer(
    name="hitl",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help=WHAT,
    epilog="\n\n".join(NAMES),
)


def _version(show: bool) -> None:
    if show:
        from hitl import __version__

        typer.echo(f"hitl {__version__}")
        raise typer.Exit


@app.callback(help=WHAT)
def root(
    version: Annotated[bool, opt("Show the version and exit.", "--version", callback=_version, is_eager=True)] = False,
) -> None:
    """Accept the options that stand before a command."""


def demo(
    label_studio: Annotated[
        bool, opt("Run through a real Label Studio, started on this machine.", "--label-studio")
    ] = False,
    output: Annotated[Path, opt("Report to write.", "--output", "-o")] = Path("hitl-demo-report.html"),
    items: Annotated[int, opt("With --label-studio: number of items, at most 800.", min=10, max=800)] = 40,
    keep: Annotated[bool, opt("With --label-studio: leave the server running.", "--keep/--stop")] = True,
    resume: Annotated[Path | None, opt("Start the Label Studio of an earlier demo again: its folder.")] = None,
    served: Annotated[bool, opt("Show it as a web page while labels come in.", "--serve")] = False,
    address: Annotated[str, opt("With --serve: address to listen on, host:port.")] = "127.0.0.1:8500",
) -> None:
    """Replay the recorded labels of 164 real annotators to see what planning saves."""
    from hitl.tables.write import require_place

    if served:
        import tempfile

        from hitl.demo import served as demo_served

        with tempfile.TemporaryDirectory(prefix="hitl-demo-") as folder:
            demo_served.run(Path(folder), lambda config: service.serve([config], address))
        return
    require_place(output)
    if label_studio or resume is not None:
        from hitl.demo import on_label_studio

        with show.progress() as progress:
            if resume is not None:
                on_label_studio.resume(resume, progress)
                return
            on_label_studio.run(output, items, keep, progress)
    else:
        from hitl.demo import replayed

        replayed.run(output)


def example(
    name: Annotated[str | None, typer.Argument(help="Name of the example; see --list.")] = None,
    folder: Annotated[
        Path | None, typer.Argument(help="New folder to write; default: the name of the example.")
    ] = None,
    listing: Annotated[bool, opt("Show the names of all examples, and exit.", "--list")] = False,
) -> None:
    """Write a folder with labels, predictions, ground truth and a hitl.toml, to try every command on."""
    from hitl.demo.examples import ABOUT, write

    if listing or name is None:
        for each, about in ABOUT.items():
            show.line(f"{each:<10} {about}")
        return
    folder = Path(name) if folder is None else folder
    rows = write(name, folder)
    show.line(f"{name}: {ABOUT[name]}")
    for file, number in rows.items():
        show.line(f"wrote {folder / file} ({show.counted(number, 'row')})")
    show.line(f"wrote {folder / 'hitl.toml'}")
    models = [(file.removeprefix("probabilities_").removesuffix(".csv"), file) for file in rows if "probabil" in file]
    flags = "".join(f" --probabilities {model}={file}" for model, file in models)
    show.line(f"next: `cd {folder}`, then `hitl combine annotations.csv{flags} --output consensus.csv`, or `hitl run`")


PANELS: dict[str, list[Callable[..., None]]] = {
    "Files": [combine.combine, shard.shard, predict.predict, embed.embed, replay.replay, rank.rank],
    "Guarantees": [certify.certify, certify.verify, estimate.estimate],
    "Annotators and models": [profiles.annotators, profiles.models, judge.judge],
    "Project": [
        init.init,
        project.doctor,
        project.audit,
        project.run,
        service.schedule,
        project.status,
        project_files.export,
        project_files.report,
        service.serve,
        service.events,
        project_files.add,
        project_files.gold,
        project.learn,
        project.pull,
        project.plan,
        project.push,
    ],
    "Store": [store.backup, store.restore, store.migrate],
    "Examples": [example, demo],
}
"""Panel of the help -> its commands."""

for panel, commands in PANELS.items():
    for command in commands:
        app.command(rich_help_panel=panel, help=help_of(command), epilog=examples(command.__name__))(command)

app.add_typer(data.data, name="data", rich_help_panel="Examples")
app.add_typer(access.users, name="users", rich_help_panel="Service")
app.add_typer(access.tokens, name="tokens", rich_help_panel="Service")
