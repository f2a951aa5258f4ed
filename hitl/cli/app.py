"""All commands of `hitl`: each parses, calls the function that does the work, and shows the result."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hitl.catalog import COMBINERS
from hitl.cli import annotators as people
from hitl.cli import files, project, show

app = typer.Typer(
    name="hitl",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Turn what people and models say about items into labels, and decide what to ask next, and whom.",
    epilog="Try it: [bold]hitl demo[/bold]. A file: [bold]hitl combine annotations.csv --output consensus.csv[/bold]. "
    "A project: [bold]hitl init[/bold], then [bold]hitl run[/bold].",
)

Config = Annotated[Path, typer.Option("--config", "-c", help="The project's hitl.toml.", envvar="HITL_CONFIG")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines; no progress.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would happen; change nothing.")]
HERE = Path("hitl.toml")


def _version(show: bool) -> None:
    if show:
        from hitl import __version__

        typer.echo(f"hitl {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Turn what people and models say about items into labels, and decide what to ask next, and whom."""


@app.command(
    epilog="Examples: [bold]hitl combine annotations.csv --output consensus.csv[/bold] | "
    "[bold]hitl combine labels.parquet --method pl-em --probabilities resnet=probs.csv[/bold] | "
    "[bold]hitl combine[/bold] (inside a project)"
)
def combine(
    annotations: Annotated[
        Path | None, typer.Argument(help="Annotations (CSV, JSON Lines, Parquet). Omit inside a project.")
    ] = None,
    method: Annotated[str | None, typer.Option("--method", "-m", help=f"One of: {', '.join(COMBINERS)}.")] = None,
    probabilities: Annotated[
        list[str] | None, typer.Option("--probabilities", "-p", help="MODEL=FILE with columns item, p_<class>. Repeat.")
    ] = None,
    truth: Annotated[Path | None, typer.Option(help="Known labels: columns item, label.")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Consensus: item, label, confidence, p_<class>.")
    ] = None,
    annotators: Annotated[
        Path | None, typer.Option(help="People: annotator, labels, accuracy, low, high (95 %).")
    ] = None,
    save: Annotated[Path | None, typer.Option(help="Save the whole consensus (.npz) for Consensus.load.")] = None,
    item: Annotated[str, typer.Option(help="Column of the item.")] = "item",
    annotator: Annotated[str, typer.Option(help="Column of the annotator; an empty field is anonymous.")] = "annotator",
    label: Annotated[str, typer.Option(help="Column of the label.")] = "label",
    time: Annotated[str | None, typer.Option(help="Column of the time: the latest answer wins.")] = None,
    classes: Annotated[str | None, typer.Option(help="Comma-separated classes; default: the labels seen.")] = None,
    options: Annotated[
        str | None, typer.Option(help="Comma-separated legal answers, if there are more than the classes.")
    ] = None,
    anonymous: Annotated[bool, typer.Option(help="Nobody has an id: one pool, one confusion matrix.")] = False,
    strict: Annotated[bool, typer.Option(help="Two different answers of one annotator are an error.")] = False,
    config: Config = HERE,
    as_json: Json = False,
) -> None:
    """Fuse labels (and model probabilities) into the best-supported label of every item."""
    if annotations is None:
        given: dict[str, object] = {
            "--method": method,
            "--probabilities": probabilities,
            "--truth": truth,
            "--save": save,
            "--time": time,
        }
        given |= {"--classes": classes, "--options": options, "--anonymous": anonymous, "--strict": strict}
        files.refuse_flags({flag: value for flag, value in given.items() if value})
        project.combine(config, output, annotators, as_json)
        return
    columns = files.Columns(item, None if anonymous else annotator, label, time)
    known = files.read_evidence(
        annotations, probabilities or [], truth, columns, files.names(classes), files.names(options), strict
    )
    tables = [annotations, *([truth] if truth else []), *(Path(p.partition("=")[2]) for p in probabilities or [])]
    files.combine(known, method or "default", output, annotators, save, as_json, tables)


@app.command(
    epilog="Examples: [bold]hitl annotators annotations.csv --time when[/bold] | "
    "[bold]hitl annotators annotations.csv --consensus consensus.npz --output people.csv[/bold] | "
    "[bold]hitl annotators --json[/bold] (inside a project)"
)
def annotators(
    annotations: Annotated[
        Path | None, typer.Argument(help="Annotations (CSV, JSON Lines, Parquet). Omit inside a project.")
    ] = None,
    method: Annotated[
        str | None, typer.Option("--method", "-m", help="Who judges: as in `hitl combine`; default: by the evidence.")
    ] = None,
    probabilities: Annotated[
        list[str] | None, typer.Option("--probabilities", "-p", help="MODEL=FILE with columns item, p_<class>. Repeat.")
    ] = None,
    truth: Annotated[Path | None, typer.Option(help="Known labels: columns item, label.")] = None,
    consensus: Annotated[
        Path | None, typer.Option(help="Judge by a consensus saved with `hitl combine --save` over these annotations.")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Everything as a table, one row each.")] = None,
    rows: Annotated[int, typer.Option(help="How many to show.", min=1)] = 30,
    item: Annotated[str, typer.Option(help="Column of the item.")] = "item",
    annotator: Annotated[str, typer.Option(help="Column of the annotator; an empty field is anonymous.")] = "annotator",
    label: Annotated[str, typer.Option(help="Column of the label.")] = "label",
    time: Annotated[str | None, typer.Option(help="Column of the time: shows who changes.")] = None,
    classes: Annotated[str | None, typer.Option(help="Comma-separated classes; default: the labels seen.")] = None,
    options: Annotated[
        str | None, typer.Option(help="Comma-separated legal answers, if there are more than the classes.")
    ] = None,
    strict: Annotated[bool, typer.Option(help="Two different answers of one annotator are an error.")] = False,
    config: Config = HERE,
    as_json: Json = False,
) -> None:
    """Who is right how often, errs how, says how much, changed, answers without looking; who decides alike."""
    if annotations is None:
        given: dict[str, object] = {
            "--method": method,
            "--probabilities": probabilities,
            "--truth": truth,
            "--consensus": consensus,
            "--time": time,
        }
        given |= {"--classes": classes, "--options": options, "--strict": strict}
        files.refuse_flags({flag: value for flag, value in given.items() if value}, "annotators")
        people.of_project(config, output, rows, as_json)
        return
    columns = files.Columns(item, annotator, label, time)
    known = files.read_evidence(
        annotations, probabilities or [], truth, columns, files.names(classes), files.names(options), strict
    )
    people.of_files(known, method, consensus, output, rows, as_json)


@app.command(epilog="Example: [bold]hitl init --label-studio http://localhost:8080 --project 12[/bold]")
def init(
    name: Annotated[str | None, typer.Option(help="Name of the project in the store.")] = None,
    label_studio: Annotated[str | None, typer.Option(help="Address of Label Studio.")] = None,
    project_id: Annotated[int | None, typer.Option("--project", help="Label Studio project id.")] = None,
    control: Annotated[str | None, typer.Option(help="Control of the labeling config, if there are several.")] = None,
    tables: Annotated[Path | None, typer.Option(help="A folder or file of tables instead of a platform.")] = None,
    store: Annotated[
        str, typer.Option(help="Database: sqlite:///file or postgresql://...")
    ] = "sqlite:///.hitl/hitl.db",
    annotators: Annotated[str | None, typer.Option(help="Comma-separated people to ask by name.")] = None,
    config: Config = HERE,
) -> None:
    """Write hitl.toml; asks for what the flags leave open."""
    project.init(config, name, label_studio, project_id, control, tables, store, files.names(annotators) or ())


@app.command(epilog="Example: [bold]hitl doctor[/bold]")
def doctor(config: Config = HERE, as_json: Json = False) -> None:
    """Check settings, store, connection, rights and labeling config, and say how to mend them."""
    project.doctor(config, as_json)


@app.command(epilog="Example: [bold]hitl pull[/bold]")
def pull(
    config: Config = HERE,
    full: Annotated[bool, typer.Option(help="Pull everything again.")] = False,
    as_json: Json = False,
) -> None:
    """Bring new, edited and deleted annotations into the store."""
    project.pull(config, full, as_json)


@app.command(epilog="Example: [bold]hitl plan --dry-run[/bold]")
def plan(
    config: Config = HERE,
    dry_run: DryRun = False,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the questions as a table.")] = None,
    as_json: Json = False,
) -> None:
    """Decide what to ask next, and whom, from what is stored."""
    project.plan(config, dry_run, output, as_json)


@app.command(epilog="Example: [bold]hitl push --dry-run[/bold]")
def push(
    config: Config = HERE,
    dry_run: DryRun = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Look at everything pushed before too, and mend what was changed.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Make the platform as planned; what it already is stays untouched."""
    project.push(config, dry_run, verify, as_json)


@app.command(epilog="Example: [bold]hitl run[/bold] (for cron: [bold]hitl run --json[/bold])")
def run(config: Config = HERE, dry_run: DryRun = False, as_json: Json = False) -> None:
    """One cycle: pull, combine, plan, push. Safe to repeat and to interrupt."""
    project.run(config, dry_run, as_json)


@app.command(epilog="Example: [bold]hitl status[/bold]")
def status(config: Config = HERE, as_json: Json = False) -> None:
    """Where the project stands."""
    project.status(config, as_json)


@app.command(epilog="Example: [bold]hitl export labels.csv --annotators people.csv[/bold]")
def export(
    output: Annotated[Path, typer.Argument(help="Consensus table to write (CSV, JSON Lines, Parquet).")],
    annotators: Annotated[Path | None, typer.Option(help="Also write the people.")] = None,
    annotations: Annotated[Path | None, typer.Option(help="Also write the raw annotations.")] = None,
    question: Annotated[str | None, typer.Option(help="Which question, if the project has several.")] = None,
    config: Config = HERE,
) -> None:
    """Write the labels of the last cycle."""
    project.export(config, output, annotators, annotations, question)


@app.command(epilog="Example: [bold]hitl report --output report.html[/bold]")
def report(
    output: Annotated[Path, typer.Option("--output", "-o", help="One self-contained HTML file.")] = Path(
        "hitl-report.html"
    ),
    config: Config = HERE,
) -> None:
    """Write a page with pictures: progress, confidence, people, contested items, what is asked next."""
    project.report(config, output)


@app.command(name="add", epilog="Example: [bold]hitl add new_items.jsonl[/bold]")
def add(
    items: Annotated[Path, typer.Argument(help="Table with a column item and what annotators should see.")],
    item: Annotated[str, typer.Option(help="Column that names the item.")] = "item",
    config: Config = HERE,
    dry_run: DryRun = False,
) -> None:
    """Add new items to the platform, each once."""
    project.add(config, items, item, dry_run)


@app.command(epilog="Example: [bold]hitl gold truth.csv[/bold]")
def gold(
    truth: Annotated[Path, typer.Argument(help="Table with columns item and label: known truth.")],
    question: Annotated[str | None, typer.Option(help="Which question, if the project has several.")] = None,
    config: Config = HERE,
    dry_run: DryRun = False,
) -> None:
    """Tell the platform the known truth of items, to check and calibrate people."""
    project.gold(config, truth, question, dry_run)


@app.command(epilog="Example: [bold]hitl demo[/bold] | [bold]hitl demo --label-studio[/bold]")
def demo(
    label_studio: Annotated[
        bool, typer.Option("--label-studio", help="Through a real Label Studio started here.")
    ] = False,
    output: Annotated[Path, typer.Option("--output", "-o", help="The report.")] = Path("hitl-demo-report.html"),
    items: Annotated[int, typer.Option(help="With --label-studio: how many of the 800 items.", min=10, max=800)] = 40,
    keep: Annotated[
        bool, typer.Option("--keep/--stop", help="With --label-studio: leave the server running to look at.")
    ] = True,
) -> None:
    """Replay 164 real annotators through the loop: what is asked next, and what it saves."""
    from hitl.files import require_folder

    require_folder(output)
    if label_studio:
        from hitl.demo import on_label_studio

        with show.progress() as progress:
            on_label_studio.run(output, items, keep, progress)
    else:
        from hitl.demo import replayed

        replayed.run(output)
