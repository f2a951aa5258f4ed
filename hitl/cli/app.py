"""Register all commands of `hitl`, in the panels of its help."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from hitl.active.registry import POLICIES
from hitl.cli import (
    access,
    annotators,
    audit,
    backup,
    combine,
    embed,
    events,
    init,
    learn,
    models,
    predict,
    project,
    replay,
    report,
    schedule,
    serve,
    shard,
    show,
)
from hitl.cli.options import examples
from hitl.connectors.catalog import CONNECTORS
from hitl.models.registry import COMBINERS

WHAT = "Turn what annotators and models say about items into labels, and decide what to ask next, and whom."
NAMES = (
    f"Methods: {', '.join(COMBINERS)}.",
    f"Policies: {', '.join(POLICIES)}.",
    f"Sources of a project: {', '.join(CONNECTORS)}.",
    "Try it: [bold]hitl demo[/bold]. A file: [bold]hitl combine annotations.csv --output consensus.csv[/bold]. "
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
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """What goes before a command."""


def demo(
    label_studio: Annotated[
        bool, typer.Option("--label-studio", help="Through a real Label Studio started here.")
    ] = False,
    output: Annotated[Path, typer.Option("--output", "-o", help="The report.")] = Path("hitl-demo-report.html"),
    items: Annotated[int, typer.Option(help="With --label-studio: how many of the 800 items.", min=10, max=800)] = 40,
    keep: Annotated[
        bool, typer.Option("--keep/--stop", help="With --label-studio: leave the server running to look at.")
    ] = True,
    served: Annotated[bool, typer.Option("--serve", help="As a page to look at, while labels come in.")] = False,
    address: Annotated[str, typer.Option(help="With --serve: where to listen, host:port.")] = "127.0.0.1:8500",
) -> None:
    """Replay 164 real annotators through the loop: what is asked next, and what it saves."""
    from hitl.tables.files import require_folder

    if served:
        import tempfile

        from hitl.demo import served as demo_served

        with tempfile.TemporaryDirectory(prefix="hitl-demo-") as folder:
            demo_served.run(Path(folder), lambda config: serve.serve([config], address))
        return
    require_folder(output)
    if label_studio:
        from hitl.demo import on_label_studio

        with show.progress() as progress:
            on_label_studio.run(output, items, keep, progress)
    else:
        from hitl.demo import replayed

        replayed.run(output)


PANELS: dict[str, dict[Callable[..., None], str]] = {
    "Files": {
        combine.combine: combine.EXAMPLES,
        shard.shard: shard.EXAMPLES,
        predict.predict: predict.EXAMPLES,
        embed.embed: embed.EXAMPLES,
        replay.replay: replay.EXAMPLES,
    },
    "Annotators and models": {
        annotators.annotators: annotators.EXAMPLES,
        models.models: models.EXAMPLES,
    },
    "Project": {
        init.init: examples("hitl init --label-studio http://localhost:8080 --project 12"),
        project.doctor: examples("hitl doctor"),
        audit.audit: audit.EXAMPLES,
        project.run: examples("hitl run", "hitl run --json  # from cron"),
        schedule.schedule: examples(
            "hitl schedule", "hitl schedule -c a/hitl.toml -c b/hitl.toml --json", "hitl schedule --list"
        ),
        project.status: examples("hitl status"),
        project.export: examples("hitl export labels.csv --annotators-output people.csv"),
        report.report: report.EXAMPLES,
        serve.serve: serve.EXAMPLES,
        events.events: events.EXAMPLES,
        project.add: examples("hitl add new_items.jsonl"),
        project.gold: examples("hitl gold truth.csv"),
        learn.learn: learn.EXAMPLES,
        project.pull: examples("hitl pull"),
        project.plan: examples("hitl plan --dry-run"),
        project.push: examples("hitl push --dry-run"),
    },
    "Store": {
        backup.backup: backup.BACKUP_EXAMPLES,
        backup.restore: backup.RESTORE_EXAMPLES,
        backup.migrate: backup.MIGRATE_EXAMPLES,
    },
    "Demo": {demo: examples("hitl demo", "hitl demo --label-studio", "hitl demo --serve")},
}
"""Panel of the help -> its commands, with the examples at the end of each command's help."""

for panel, commands in PANELS.items():
    for command, ends_with in commands.items():
        app.command(rich_help_panel=panel, epilog=ends_with)(command)

app.add_typer(access.users, name="users", rich_help_panel="Service")
app.add_typer(access.tokens, name="tokens", rich_help_panel="Service")
