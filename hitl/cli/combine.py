"""Define `hitl combine`: labels from files, or from a project's store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hitl.cli import shard, show, spans
from hitl.cli.evidence import Given, files_for, require_unread
from hitl.cli.options import AnnotatorsOutput, Engine, Json, examples, grouped
from hitl.errors import BadSettings

if TYPE_CHECKING:
    from hitl.consensus import Consensus, Fit

EXAMPLES = examples(
    "hitl combine annotations.csv --output consensus.csv",
    "hitl combine labels.parquet --method pl-em --probabilities resnet=probs.csv",
    "hitl combine spans.jsonl --texts texts.csv --output found.csv",
    "hitl combine shards --output results  # of `hitl shard`",
    "hitl combine shards --method vb-ibcc --engine dask --output results",
    "hitl combine  # inside a project",
)


@dataclass(frozen=True)
class Results:
    """Options for printing and writing the consensus. Raises BadSettings for contradictory ones."""

    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Consensus: item, label, confidence, p_<class>.")
    ] = None
    save: Annotated[Path | None, typer.Option(help="Save the whole consensus (.npz) for Consensus.load.")] = None
    as_json: Json = False
    labels: Annotated[bool, typer.Option("--labels", help="With --json: the label of every item too.")] = False

    def __post_init__(self) -> None:
        if self.save is not None and self.save.suffix.lower() != ".npz":
            raise BadSettings(
                f"--save {self.save}: expected a name that ends in .npz, for the whole consensus; --output writes a "
                "table"
            )
        if self.labels and not self.as_json:
            raise BadSettings("--labels adds the label of every item to --json; expected both")

    def require_only_output(self, texts: Path | None) -> None:
        """Raise BadSettings for options that a folder of shards does not support."""
        others = {"save": self.save, "labels": self.labels or None, "texts": texts}
        given = [f"--{name}" for name, value in others.items() if value is not None]
        if given:
            raise BadSettings(f"{', '.join(given)}: not for shards; --output FOLDER holds all there is")


Texts = Annotated[
    Path | None,
    typer.Option(help="For spans of texts (document, annotator, start, end, label): document, text."),
]


@grouped
def combine(given: Given, results: Results, annotators: AnnotatorsOutput, where: Engine, texts: Texts = None) -> None:
    """Fuse labels (and model probabilities) into the best-supported label of every item."""
    place = shard.named_by(given.annotations)
    if place is not None:
        results.require_only_output(texts)
        shard.combined(place, given, results.output, annotators.path, results.as_json, where)
        return
    where.require_none("for shards; make some with `hitl shard`")
    if given.annotations is not None and (texts is not None or spans.are_in(given.annotations, given.item)):
        _spans(given, texts, results, annotators.path)
    elif given.annotations is None:
        given.need_project("combine", save=results.save, texts=texts)
        _project(given.config, results, annotators.path)
    else:
        _files(given, results, annotators.path)


def _files(given: Given, wanted: Results, annotators: Path | None) -> None:
    """Combine, write the requested files without overwriting any input, and show a summary."""
    from hitl.tables.files import require_distinct, require_folder, require_writable

    output, save = wanted.output, wanted.save
    evidence = given.evidence()
    require_writable(output, annotators)
    require_distinct([output, annotators, save], given.files)
    if save is not None:
        require_folder(save)
    consensus = given.consensus(evidence)
    if output is not None:
        consensus.write(output)
    write_annotators({"": consensus}, annotators)
    if save is not None:
        consensus.save(save)
    if wanted.as_json:
        written = {"consensus": output, "annotators": annotators, "saved": save}
        summary = {
            "items": len(consensus.items),
            "annotators": evidence.annotations.n_annotators,
            "labels": len(evidence.annotations),
            "classes": consensus.classes,
            "confidence": float(consensus.confidence.mean()),
            "temperatures": consensus.temperatures,
            "fit": _fit(consensus.fit),
            "written": {name: str(path) for name, path in written.items() if path is not None},
        }
        show.as_json(summary | ({"consensus": _rows(consensus)} if wanted.labels else {}))
        return
    show.line(str(evidence))
    show.line(f"{consensus.fit}; mean confidence {consensus.confidence.mean():.3f}")
    _show("", consensus, output is None, annotators is None)
    show.wrote([output, annotators, save])


def _spans(given: Given, texts: Path | None, wanted: Results, annotators: Path | None) -> None:
    """Combine spans of texts, write the requested files, and show a summary."""
    import pyarrow as pa

    from hitl.tables.files import require_distinct, require_writable, write_table

    spans.require_no_others(given, save=wanted.save)
    found = spans.combined_from(given, texts)
    require_writable(wanted.output, annotators)
    require_distinct([wanted.output, annotators], [*given.files, *([texts] if texts else [])])
    tables: dict[Path | None, pa.Table] = {wanted.output: found.table(), annotators: found.annotators()}
    written = {path: table for path, table in tables.items() if path is not None}
    for path, table in written.items():
        write_table(path, table)
    if wanted.as_json:
        show.as_json(spans.summary(found, wanted.labels) | {"written": [str(path) for path in written]})
        return
    if (how := spans.read_as(found)) is not None:
        show.line(how)
    show.line(str(found.labels))
    show.line(str(found))
    if wanted.output is None:
        show.frame("Spans", found.table().to_pandas(integer_object_nulls=True))
    if annotators is None:
        frame = found.annotators().to_pandas()
        # Largest number of answers first.
        show.frame("Annotators", frame.sort_values(frame.columns[1], ascending=False), 10)
    show.wrote(list(written))


def _project(config: Path, wanted: Results, annotators: Path | None) -> None:
    """Combine stored labels, and show or write the result; nothing is recorded."""
    from hitl import cycle
    from hitl.kinds.kind import kind_of
    from hitl.project import item_names, opened
    from hitl.tables.files import require_writable, write_table

    require_writable(wanted.output, annotators)
    with opened(config) as (settings, store, connector), show.progress(wanted.as_json) as progress:
        require_unread(config, settings, [wanted.output, annotators])  # checked before the long work
        names = item_names(settings, store)
        judgement = cycle.judge(settings, store, connector.questions(), progress).named(names)
    results, found = judgement.results, spans.found_in(judgement)
    tables = {name: result.table() for name, result in results.items() if not kind_of(result).of_parts} | found
    files = files_for(wanted.output, tables)
    require_unread(config, settings, [*files.values(), *files_for(annotators, results).values()])
    for name, file in files.items():
        write_table(file, tables[name])
    write_annotators(results, annotators)
    if wanted.as_json:
        labels = {"consensus": {name: table.to_pylist() for name, table in tables.items()}} if wanted.labels else {}
        show.as_json(show.without_passwords(judgement.metrics) | labels)
        return
    for name, table in found.items():
        if wanted.output is None:
            show.frame(
                f"Found: {name}", table.to_pandas(integer_object_nulls=True).drop(columns="rle", errors="ignore")
            )
    for name, result in results.items():
        _show(f": {name}", result, wanted.output is None and not kind_of(result).of_parts, annotators is None)
    show.wrote([*files.values(), *files_for(annotators, results).values()])


def _rows(consensus: Consensus) -> list[dict[Any, Any]]:
    """Return one entry per item: item, label, confidence, p_<class>."""
    return consensus.frame().to_dict("records")


def write_annotators(results: Mapping[str, Consensus], path: Path | None) -> None:
    """Write the annotators of each question as tables."""
    import pyarrow as pa

    from hitl.tables.files import write_table

    for name, file in files_for(path, results).items():
        frame = results[name].annotators.frame().sort_values("labels", ascending=False)
        write_table(file, pa.Table.from_pandas(frame, preserve_index=False))


def _show(title: str, consensus: Consensus, labels: bool, annotators: bool) -> None:
    if labels:
        show.frame(f"Consensus{title}", consensus.frame())
    if annotators:
        frame = consensus.annotators.frame().sort_values("labels", ascending=False)
        show.frame(f"Annotators{title}", frame, 10)


def _fit(fit: Fit) -> dict[str, Any]:
    return {**asdict(fit), "objective": fit.objective[-1:], "iterations": fit.iterations}
