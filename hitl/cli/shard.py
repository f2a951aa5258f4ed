"""Define `hitl shard`, which turns tables larger than memory into a folder of shards, and `hitl combine` over those."""

from __future__ import annotations

import glob
import re
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hitl.cli import show
from hitl.cli.evidence import names
from hitl.cli.options import (
    AnnotatorColumn,
    Anonymous,
    Classes,
    ItemColumn,
    Json,
    LabelColumn,
    Options,
    Strict,
    TimeColumn,
    examples,
)
from hitl.errors import BadSettings

if TYPE_CHECKING:
    from hitl.cli.evidence import Given
    from hitl.cli.options import Engine

EXAMPLES = examples(
    "hitl shard labels.parquet --output shards",
    "hitl shard 'labels/*.csv' --time created --output shards",
    "hitl shard s3://bucket/june/*.parquet --like shards --output more-shards",
)
Tables = Annotated[
    list[str], typer.Argument(help="Tables of labels: files, globs, addresses (s3://...). Together one table.")
]
Folder = Annotated[str, typer.Option("--output", "-o", help="Folder for the shards, a new one; or an address.")]
Like = Annotated[
    str | None, typer.Option(help="Shards whose codes are kept, so that both are combined together later.")
]
OfModels = Annotated[
    list[str] | None, typer.Option("--probabilities", "-p", help="MODEL=TABLES: item, p_<class>. Repeat.")
]
OfTruth = Annotated[list[str] | None, typer.Option("--truth", help="Tables of known labels: item, label. Repeat.")]
ShardLabels = Annotated[int, typer.Option(help="Labels of a shard, about.", min=1)]


def shard(
    tables: Tables,
    output: Folder,
    probabilities: OfModels = None,
    truth: OfTruth = None,
    item: ItemColumn = "item",
    annotator: AnnotatorColumn = "annotator",
    label: LabelColumn = "label",
    time: TimeColumn = None,
    classes: Classes = None,
    options: Options = None,
    like: Like = None,
    labels: ShardLabels = 2_000_000,
    anonymous: Anonymous = False,
    strict: Strict = False,
    as_json: Json = False,
) -> None:
    """Write tables of labels as shards, in bounded memory, for `hitl combine` of what does not fit in memory."""
    from hitl.shards.encoding import Columns, encode

    if options is not None and classes is None:
        raise BadSettings("--options needs --classes: which of the answers are classes, which only answers?")
    if like is not None and classes is not None:
        raise BadSettings("--like has the classes of its shards; expected it or --classes")
    with show.progress(as_json) as progress:
        made = encode(
            tables,
            output,
            Columns(item, None if anonymous else annotator, label, time),
            probabilities=_models(probabilities or []),
            truth=truth or (),
            classes=names(classes),
            options=names(options),
            like=like,
            strict=strict,
            shard_labels=labels,
            progress=progress,
        )
    if as_json:
        sizes = {"shards": len(made.shards), "items": made.items, "labels": made.labels}
        sizes["annotators"] = len(made.annotators)
        show.as_json(sizes | {"classes": made.classes, "written": show.without_passwords(output)})
        return
    said = f"{show.counted(made.labels, 'label')} of {show.counted(len(made.annotators), 'annotator')}"
    show.line(f"{said} on {show.counted(made.items, 'item')}, in {show.counted(len(made.shards), 'shard')}")
    show.line(f"wrote {output}")


def _models(given: list[str]) -> dict[str, list[str]]:
    models: dict[str, list[str]] = {}
    for entry in given:
        model, equals, tables = entry.partition("=")
        if not (model and equals and tables):
            raise BadSettings(f"--probabilities {entry!r}: expected MODEL=TABLES, for instance resnet=probs.csv")
        models.setdefault(model, []).append(tables)
    return models


def named_by(path: Path | None) -> str | None:
    """Return the folder, glob or URL of shards that a path names, or None if it names a table."""
    if path is None:
        return None
    place = address(path)
    return place if "://" in place or path.is_dir() or (glob.has_magic(place) and not path.exists()) else None


def address(path: Path) -> str:
    """Restore a URL as it was typed, because `Path` collapses its double slash."""
    return re.sub(r"^([a-z][a-z0-9+.-]+):/(?!/)", r"\1://", str(path))


def combined(
    place: str, given: Given, output: Path | None, annotators: Path | None, as_json: bool, where: Engine
) -> None:
    """Combine shards into one result file each, or resume an interrupted run."""
    import pyarrow as pa

    from hitl.models.registry import chosen
    from hitl.shards.combining import combine
    from hitl.shards.reading import StoredShards
    from hitl.tables.files import require_writable, write_table

    others = given.other_than(("annotations", "method", "paper", "config"))
    if others:
        flags = ", ".join(f"--{name}" for name in others)
        raise BadSettings(f"{flags}: shards have what they were made with; give it to `hitl shard`")
    if output is None:
        raise BadSettings(f"{place}: expected --output FOLDER, for a file of results a shard")
    require_writable(annotators)
    shards = StoredShards.open(place)
    method = chosen(given.method or "default", {}, given.paper)
    with show.progress(as_json) as progress, where.started(progress) as engine:
        found = combine(shards, address(output), method, engine=engine, progress=progress)
    frame = found.learned.annotators.frame().sort_values("labels", ascending=False)
    if annotators is not None:
        write_table(annotators, pa.Table.from_pandas(frame, preserve_index=False))
    if as_json:
        show.as_json(_summary(shards, found) | {"written": show.without_passwords(str(output))})
        return
    show.line(f"{shards.n_labels:,} labels on {shards.n_items:,} items in {show.counted(len(shards), 'shard')}")
    if found.read:
        show.line(f"went on where an earlier run was stopped, after {show.counted(found.read, 'pass', 'passes')}")
    show.line(f"{found.learned.fit}; mean confidence {found.confidence:.3f}")
    if annotators is None:
        show.frame("Annotators", frame, 10)
    show.wrote([output, annotators])


def _summary(shards: Any, found: Any) -> dict[str, Any]:
    fit = found.learned.fit
    return {
        "items": shards.n_items,
        "annotators": len(shards.annotators),
        "labels": shards.n_labels,
        "classes": shards.classes,
        "confidence": found.confidence,
        "fit": {**asdict(fit), "objective": fit.objective[-1:], "iterations": fit.iterations},
        "passes": {"made": found.passes - found.read, "read": found.read},
    }
