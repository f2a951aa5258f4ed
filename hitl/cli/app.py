"""All commands of `hitl`: each parses, calls the function that does the work, and shows the result."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hitl.cli import annotators as people
from hitl.cli import files, project, show
from hitl.cli import models as together
from hitl.cli import predict as prediction
from hitl.cli.options import (
    HERE,
    AnnotatorColumn,
    Classes,
    Config,
    DryRun,
    ItemColumn,
    Json,
    LabelColumn,
    Labels,
    Options,
    Probabilities,
    Strict,
    Truth,
    examples,
)
from hitl.cli.replay import EXAMPLES as REPLAYS
from hitl.cli.replay import replay
from hitl.models.registry import COMBINERS

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
    epilog=examples(
        "hitl combine annotations.csv --output consensus.csv",
        "hitl combine labels.parquet --method pl-em --probabilities resnet=probs.csv",
        "hitl combine  # inside a project",
    )
)
def combine(
    annotations: Labels = None,
    method: Annotated[str | None, typer.Option("--method", "-m", help=f"One of: {', '.join(COMBINERS)}.")] = None,
    probabilities: Probabilities = None,
    items: Annotated[
        Path | None, typer.Option(help="Table whose items, in order, name the rows of arrays without names (.npy).")
    ] = None,
    truth: Truth = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Consensus: item, label, confidence, p_<class>.")
    ] = None,
    annotators: Annotated[
        Path | None, typer.Option(help="People: annotator, labels, accuracy, low, high (95 %).")
    ] = None,
    save: Annotated[Path | None, typer.Option(help="Save the whole consensus (.npz) for Consensus.load.")] = None,
    item: ItemColumn = "item",
    annotator: AnnotatorColumn = "annotator",
    label: LabelColumn = "label",
    time: Annotated[str | None, typer.Option(help="Column of the time: the latest answer wins.")] = None,
    classes: Classes = None,
    options: Options = None,
    anonymous: Annotated[bool, typer.Option(help="Nobody has an id: one pool, one confusion matrix.")] = False,
    strict: Strict = False,
    config: Config = HERE,
    as_json: Json = False,
) -> None:
    """Fuse labels (and model probabilities) into the best-supported label of every item."""
    if annotations is None:
        given: dict[str, object] = {
            "--method": method,
            "--probabilities": probabilities,
            "--items": items,
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
        annotations, probabilities or [], truth, columns, files.names(classes), files.names(options), strict, items
    )
    read = files.tables(annotations, truth, probabilities)
    files.combine(known, method or "default", output, annotators, save, as_json, read)


@app.command(
    epilog=examples(
        "hitl annotators annotations.csv --time when",
        "hitl annotators annotations.csv --consensus consensus.npz --output people.csv",
        "hitl annotators --json  # inside a project",
    )
)
def annotators(
    annotations: Labels = None,
    method: Annotated[
        str | None, typer.Option("--method", "-m", help="Who judges: as in `hitl combine`; default: by the evidence.")
    ] = None,
    probabilities: Probabilities = None,
    items: Annotated[
        Path | None, typer.Option(help="Table whose items, in order, name the rows of arrays without names (.npy).")
    ] = None,
    truth: Truth = None,
    consensus: Annotated[
        Path | None, typer.Option(help="Judge by a consensus saved with `hitl combine --save` over these annotations.")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Everything as a table, one row each.")] = None,
    rows: Annotated[int, typer.Option(help="How many to show.", min=1)] = 30,
    item: ItemColumn = "item",
    annotator: AnnotatorColumn = "annotator",
    label: LabelColumn = "label",
    time: Annotated[str | None, typer.Option(help="Column of the time: shows who changes.")] = None,
    classes: Classes = None,
    options: Options = None,
    strict: Strict = False,
    config: Config = HERE,
    as_json: Json = False,
) -> None:
    """Who is right how often, errs how, says how much, changed, answers without looking; who decides alike."""
    if annotations is None:
        given: dict[str, object] = {
            "--method": method,
            "--probabilities": probabilities,
            "--items": items,
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
        annotations, probabilities or [], truth, columns, files.names(classes), files.names(options), strict, items
    )
    people.of_files(known, method, consensus, output, rows, as_json, files.tables(annotations, truth, probabilities))


@app.command(
    epilog=examples(
        "hitl predict items.csv --model clf.joblib --trust --output probs.csv",
        "hitl predict items.csv --model my.py:make --folds 5 --truth truth.csv -o probs.csv",
        "hitl predict photos.csv --image path --model torchvision:resnet18 --weights w.pt --classes cat,dog -o p.csv",
    )
)
def predict(
    items: Annotated[Path, typer.Argument(help="Table of items: CSV, JSON Lines, Parquet, Arrow.")],
    model: Annotated[
        str,
        typer.Option(
            "--model",
            "-m",
            help="A pickled estimator (.joblib, .pkl: needs --trust), module:callable or file.py:callable (your code, "
            "which is run), torchvision:NAME or timm:NAME.",
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Probabilities to write: item, p_<class>.")],
    trust: Annotated[
        bool, typer.Option("--trust", help="Read a pickle. A pickle is a program: only from people you trust.")
    ] = False,
    features: Annotated[
        str | None, typer.Option(help="Comma-separated columns of numbers; default: all but item and group.")
    ] = None,
    text: Annotated[str | None, typer.Option(help="Column of the text the model sees instead.")] = None,
    image: Annotated[str | None, typer.Option(help="Column of the image paths the model sees instead.")] = None,
    image_folder: Annotated[Path | None, typer.Option(help="Where the images are; default: beside the table.")] = None,
    item: ItemColumn = "item",
    classes: Annotated[
        str | None,
        typer.Option(help="Comma-separated outputs in order, or a file with one a line; default: the model's."),
    ] = None,
    folds: Annotated[
        int | None, typer.Option(help="Train K times on --truth, so that no model judges a label it has seen.", min=2)
    ] = None,
    truth: Annotated[
        Path | None, typer.Option(help="With --folds: labels to train on (item, label), or a consensus.")
    ] = None,
    groups: Annotated[
        str | None, typer.Option(help="With --folds: column of near-duplicates; a group shares a fold.")
    ] = None,
    seed: Annotated[int, typer.Option(help="With --folds: of the split.")] = 0,
    weights: Annotated[
        Path | None, typer.Option(help="Weights of a torch model: a state_dict (.pt) or .safetensors; no code is read.")
    ] = None,
    transforms: Annotated[
        str | None, typer.Option(help="For images: torchvision weights (ResNet18_Weights.DEFAULT) or module:callable.")
    ] = None,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="The torch model answers probabilities, not logits.")
    ] = False,
    device: Annotated[str, typer.Option(help="Where a torch model runs: auto, cpu, cuda, cuda:1.")] = "auto",
    batch_size: Annotated[int, typer.Option(help="Items held in memory at once.", min=1)] = 256,
    as_json: Json = False,
) -> None:
    """Run a model over items and write its probabilities. Interrupted, the same command goes on where it stopped."""
    seen = prediction.Seen(item, files.names(features) or (), text, image, image_folder, groups)
    settings = prediction.Model(
        model, trust, prediction.class_names(classes), weights, transforms, probabilities, device
    )
    prediction.run(items, output, seen, settings, prediction.Folds(folds, truth, seed), batch_size, as_json)


@app.command(
    name="models",
    epilog=examples(
        "hitl models annotations.csv --probabilities resnet=probs.csv",
        "hitl models annotations.csv -p a=a.csv -p b=b.csv --truth truth.csv --output models.csv",
        "hitl models --json  # inside a project",
    ),
)
def with_models(
    annotations: Labels = None,
    probabilities: Probabilities = None,
    items: Annotated[
        Path | None, typer.Option(help="Table whose items, in order, name the rows of arrays without names (.npy).")
    ] = None,
    method: Annotated[
        str | None, typer.Option("--method", "-m", help="Who combines: pl-em (the default), pl, ...")
    ] = None,
    truth: Annotated[
        Path | None, typer.Option(help="Known labels, to measure by: each is hidden from fits that judge its item.")
    ] = None,
    consensus: Annotated[
        Path | None, typer.Option(help="A consensus saved with `hitl combine --save` over the same files.")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="All figures as a table, one row each.")] = None,
    rows: Annotated[int, typer.Option(help="How many classes to show, those where people add most.", min=1)] = 12,
    item: ItemColumn = "item",
    annotator: AnnotatorColumn = "annotator",
    label: LabelColumn = "label",
    classes: Classes = None,
    options: Options = None,
    anonymous: Annotated[bool, typer.Option(help="Nobody has an id: one pool, one confusion matrix.")] = False,
    strict: Strict = False,
    config: Config = HERE,
    as_json: Json = False,
) -> None:
    """When people and model together help: who is right where, who errs with whom, and what could skip people."""
    if annotations is None:
        given: dict[str, object] = {"--probabilities": probabilities, "--method": method, "--truth": truth}
        given |= {"--items": items, "--consensus": consensus, "--classes": classes, "--options": options}
        given |= {"--anonymous": anonymous, "--strict": strict}
        files.refuse_flags({flag: value for flag, value in given.items() if value}, "models")
        together.of_project(config, output, rows, as_json)
        return
    columns = files.Columns(item, None if anonymous else annotator, label, None)
    known = files.read_evidence(
        annotations, probabilities or [], truth, columns, files.names(classes), files.names(options), strict, items
    )
    together.of_files(known, method, consensus, output, rows, as_json, files.tables(annotations, truth, probabilities))


app.command(epilog=REPLAYS)(replay)


@app.command(epilog=examples("hitl init --label-studio http://localhost:8080 --project 12"))
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


@app.command(epilog=examples("hitl doctor"))
def doctor(config: Config = HERE, as_json: Json = False) -> None:
    """Check settings, store, connection, rights and labeling config, and say how to mend them."""
    project.doctor(config, as_json)


@app.command(epilog=examples("hitl pull"))
def pull(
    config: Config = HERE,
    full: Annotated[bool, typer.Option(help="Pull everything again.")] = False,
    as_json: Json = False,
) -> None:
    """Bring new, edited and deleted annotations into the store."""
    project.pull(config, full, as_json)


@app.command(epilog=examples("hitl plan --dry-run"))
def plan(
    config: Config = HERE,
    dry_run: DryRun = False,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the questions as a table.")] = None,
    as_json: Json = False,
) -> None:
    """Decide what to ask next, and whom, from what is stored."""
    project.plan(config, dry_run, output, as_json)


@app.command(epilog=examples("hitl push --dry-run"))
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


@app.command(epilog=examples("hitl run", "hitl run --once --json  # from cron"))
def run(
    config: Config = HERE,
    once: Annotated[
        bool, typer.Option("--once", help="One cycle, which is what it does in any case: says so in a crontab.")
    ] = True,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """One cycle: pull, combine, plan, push. Safe to repeat and to interrupt; `hitl schedule` repeats it."""
    project.run(config, dry_run, as_json)


@app.command(
    epilog=examples("hitl schedule", "hitl schedule -c a/hitl.toml -c b/hitl.toml --json", "hitl schedule --list")
)
def schedule(
    configs: Annotated[
        list[Path] | None,
        typer.Option("--config", "-c", help="A project's hitl.toml; repeat for several.", envvar="HITL_CONFIG"),
    ] = None,
    listing: Annotated[bool, typer.Option("--list", help="Show the jobs and their next times, and end.")] = False,
    as_json: Json = False,
) -> None:
    """Keep cycles going: at intervals or by cron, after new annotations, on webhooks; see \\[schedule] in hitl.toml."""
    from hitl.cli.schedule import schedule as keep

    keep(configs or [HERE], listing, as_json)


@app.command(epilog=examples("hitl status"))
def status(config: Config = HERE, as_json: Json = False) -> None:
    """Where the project stands."""
    project.status(config, as_json)


@app.command(epilog=examples("hitl export labels.csv --annotators people.csv"))
def export(
    output: Annotated[Path, typer.Argument(help="Consensus table to write (CSV, JSON Lines, Parquet).")],
    annotators: Annotated[Path | None, typer.Option(help="Also write the people.")] = None,
    annotations: Annotated[Path | None, typer.Option(help="Also write the raw annotations.")] = None,
    question: Annotated[str | None, typer.Option(help="Which question, if the project has several.")] = None,
    config: Config = HERE,
) -> None:
    """Write the labels of the last cycle."""
    project.export(config, output, annotators, annotations, question)


@app.command(epilog=examples("hitl report --output report.html"))
def report(
    output: Annotated[Path, typer.Option("--output", "-o", help="One self-contained HTML file.")] = Path(
        "hitl-report.html"
    ),
    config: Config = HERE,
) -> None:
    """Write a page with pictures: progress, confidence, people, contested items, what is asked next."""
    project.report(config, output)


@app.command(name="add", epilog=examples("hitl add new_items.jsonl"))
def add(
    items: Annotated[Path, typer.Argument(help="Table with a column item and what annotators should see.")],
    item: Annotated[str, typer.Option(help="Column that names the item.")] = "item",
    config: Config = HERE,
    dry_run: DryRun = False,
) -> None:
    """Add new items to the platform, each once."""
    project.add(config, items, item, dry_run)


@app.command(epilog=examples("hitl gold truth.csv"))
def gold(
    truth: Annotated[Path, typer.Argument(help="Table with columns item and label: known truth.")],
    question: Annotated[str | None, typer.Option(help="Which question, if the project has several.")] = None,
    config: Config = HERE,
    dry_run: DryRun = False,
) -> None:
    """Tell the platform the known truth of items, to check and calibrate people."""
    project.gold(config, truth, question, dry_run)


@app.command(epilog=examples("hitl demo", "hitl demo --label-studio"))
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
