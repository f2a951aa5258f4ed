"""Define `hitl shard`, which writes tables larger than memory as shards, and `hitl combine` for shards."""

from __future__ import annotations

import glob
import re
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hitl.cli import show
from hitl.cli.evidence import Columns, Given, annotator_table, write_tables
from hitl.cli.options import Engine, Json, grouped, model_files, opt, refuse
from hitl.errors import BadSettings

if TYPE_CHECKING:
    from hitl.consensus import Fit


@grouped
def shard(
    tables: Annotated[
        list[str], typer.Argument(help="Tables of labels: files, globs, URLs (s3://...). They are read as one table.")
    ],
    output: Annotated[str, opt("New folder for the shards, or a URL.", "--output", "-o")],
    columns: Columns,
    probabilities: Annotated[
        list[str] | None,
        opt(
            "Model probabilities, MODEL=TABLES: columns item, p_<class>. Repeat for more models.",
            "--probabilities",
            "-p",
        ),
    ] = None,
    truth: Annotated[list[str] | None, opt("Tables of known answers: item, label. Repeat for more.", "--truth")] = None,
    like: Annotated[str | None, opt("Use the codes of these shards, so that both can be combined together.")] = None,
    labels: Annotated[int, opt("Approximate number of labels per shard.", min=1)] = 2_000_000,
    as_json: Json = False,
) -> None:
    """Split tables of labels into shards, so that `hitl combine` can process more than fits in memory."""
    from hitl.shards import encoding

    classes, options = columns.labels
    if like is not None and classes is not None:
        raise BadSettings("--like takes the classes from its shards; give --like or --classes, not both")
    models: dict[str, list[str]] = {}
    for model, files in model_files(probabilities, "TABLES"):
        models.setdefault(model, []).append(files)
    annotator = None if columns.anonymous else columns.annotator
    with show.progress(as_json) as progress:
        made = encoding.encode(
            tables,
            output,
            encoding.Columns(columns.item, annotator, columns.label, columns.time, columns.rules),
            probabilities=models,
            truth=truth or (),
            classes=classes,
            options=options,
            like=like,
            strict=columns.strict,
            shard_labels=labels,
            progress=progress,
        )
    people, shards = len(made.annotators), len(made.shards)
    data = {"shards": shards, "items": made.items, "labels": made.labels, "annotators": people, "classes": made.classes}
    head = f"{show.counted(made.labels, 'label')} of {show.counted(people, 'annotator')}"
    head += f" on {show.counted(made.items, 'item')}, in {show.counted(shards, 'shard')}"
    show.result(data | {"written": show.without_passwords(output)}, [head, f"wrote {output}"], as_json)


def named_by(path: Path | None) -> str | None:
    """Return the folder, glob or URL of shards that a path names, or None if it names a table."""
    if path is None:
        return None
    place = address(path)
    return place if "://" in place or path.is_dir() or (glob.has_magic(place) and not path.exists()) else None


def address(path: Path) -> str:
    """Return a path as text. A URL gets its double slash back, which `Path` collapses; file:/// gets three."""
    return re.sub(r"^([a-z][a-z0-9+.-]+):/(?!/)", r"\1://", str(path)).replace("file://", "file:///")


def combined(
    place: str, given: Given, output: Path | None, annotators: Path | None, as_json: bool, where: Engine
) -> None:
    """Combine shards, or resume an interrupted run. Write one file of results per shard."""
    from hitl.models.registry import chosen
    from hitl.shards.combining import combine
    from hitl.shards.reading import StoredShards
    from hitl.tables.write import require_writable

    refuse(
        given.other_than("annotations", "method", "paper"),
        "{}: shards contain this already; give it to `hitl shard` when you make them",
    )
    if output is None:
        raise BadSettings(f"{place}: expected --output FOLDER; each shard's results go to a file of their own")
    require_writable(annotators)
    shards = StoredShards.open(place)
    method = chosen(given.method or "default", {}, given.paper)
    with show.progress(as_json) as progress, where.started(progress) as engine:
        made = combine(shards, address(output), method, engine=engine, progress=progress)
    people = annotator_table(made.learned)
    write_tables(annotators, {"": people})
    data = {
        "items": shards.n_items,
        "annotators": len(shards.annotators),
        "labels": shards.n_labels,
        "classes": shards.classes,
        "confidence": made.confidence,
        "fit": fit_summary(made.learned.fit),
        "passes": {"made": made.passes - made.read, "read": made.read},
        "written": show.without_passwords(str(output)),
    }
    lines: list[show.Line] = [
        f"{shards.n_labels:,} labels on {shards.n_items:,} items in {show.counted(len(shards), 'shard')}"
    ]
    if made.read:
        lines.append(f"resumed an earlier run after {show.counted(made.read, 'pass', 'passes')}")
    lines.append(f"{made.learned.fit}; mean confidence {made.confidence:.3f}")
    if annotators is None:
        lines.append(show.frame("Annotators", people.to_pandas(), 10))
    show.result(data, [*lines, *show.wrote([output, annotators])], as_json)


def fit_summary(fit: Fit) -> dict[str, Any]:
    """Return a fit as JSON values, with only the last value of its objective."""
    return {**asdict(fit), "objective": fit.objective[-1:], "iterations": fit.iterations}
