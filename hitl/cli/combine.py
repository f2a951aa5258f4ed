"""Define `hitl combine`: labels from files of labels or spans, or from a project's store (of shards: see `shard`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from hitl.cli import shard, show
from hitl.cli.evidence import Given, annotators_frame, files_for, require_unread, write_annotators
from hitl.cli.options import AnnotatorsOutput, Engine, Json, examples, grouped, opt, refuse
from hitl.errors import BadSettings

if TYPE_CHECKING:
    from hitl.consensus import Consensus
    from hitl.kinds.spans import SpanConsensus

EXAMPLES = examples(
    "hitl combine annotations.csv --output consensus.csv",
    "hitl combine labels.parquet --method pl-em --probabilities resnet=probs.csv",
    "hitl combine spans.jsonl --texts texts.csv --output found.csv",
    "hitl combine shards --output results  # of `hitl shard`",
    "hitl combine shards --method vb-ibcc --engine dask --output results",
    "hitl combine  # inside a project",
)
FOR_SPANS = ("annotations", "method", "paper", "truth", "item", "annotator", "label", "config")
"""Options of `Given` that apply to spans."""


@dataclass(frozen=True)
class Results:
    """Options for printing and writing the consensus. Raises BadSettings for contradictory ones."""

    output: Annotated[Path | None, opt("Consensus: item, label, confidence, p_<class>.", "--output", "-o")] = None
    save: Annotated[Path | None, opt("Save the whole consensus (.npz) for Consensus.load.")] = None
    as_json: Json = False
    labels: Annotated[bool, opt("With --json: the label of every item too.", "--labels")] = False
    annotators_output: AnnotatorsOutput = None

    def __post_init__(self) -> None:
        if self.save is not None and self.save.suffix.lower() != ".npz":
            raise BadSettings(
                f"--save {self.save}: expected a name that ends in .npz, for the whole consensus; --output writes a "
                "table"
            )
        if self.labels and not self.as_json:
            raise BadSettings("--labels adds the label of every item to --json; expected both")


@grouped
def combine(
    given: Given,
    results: Results,
    where: Engine,
    texts: Annotated[
        Path | None, opt("For spans of texts (document, annotator, start, end, label): document, text.")
    ] = None,
) -> None:
    """Fuse labels (and model probabilities) into the best-supported label of every item."""
    place = shard.named_by(given.annotations)
    if place is not None:
        others = {"save": results.save, "labels": results.labels or None, "texts": texts}
        names = [name for name, value in others.items() if value is not None]
        refuse(names, "{}: not for shards; --output FOLDER holds all there is")
        shard.combined(place, given, results.output, results.annotators_output, results.as_json, where)
        return
    where.require_none("for shards; make some with `hitl shard`")
    if given.annotations is None:
        given.need_project("combine", save=results.save, texts=texts)
        _project(given.config, results)
    elif texts is not None or _has_spans(given.annotations, given.item):
        _spans(given, texts, results)
    else:
        _files(given, results)


def _files(given: Given, wanted: Results) -> None:
    """Combine, write the requested files without overwriting any input, and show a summary."""
    from hitl.tables.write import require_distinct, require_folder, require_writable

    output, save, people = wanted.output, wanted.save, wanted.annotators_output
    evidence = given.evidence()
    require_writable(output, people)
    require_distinct([output, people, save], given.files)
    if save is not None:
        require_folder(save)
    consensus = given.consensus(evidence)
    if output is not None:
        consensus.write(output)
    write_annotators({"": consensus}, people)
    if save is not None:
        consensus.save(save)
    written = {"consensus": output, "annotators": people, "saved": save}
    data: dict[str, Any] = {
        "items": len(consensus.items),
        "annotators": evidence.annotations.n_annotators,
        "labels": len(evidence.annotations),
        "classes": consensus.classes,
        "confidence": float(consensus.confidence.mean()),
        "temperatures": consensus.temperatures,
        "fit": shard.fit_summary(consensus.fit),
        "written": {name: str(path) for name, path in written.items() if path is not None},
    }
    if wanted.labels:
        data["consensus"] = consensus.frame().to_dict("records")

    def lines() -> Iterator[show.Line]:
        yield str(evidence)
        yield f"{consensus.fit}; mean confidence {consensus.confidence.mean():.3f}"
        yield from _tables("", consensus, output is None, people is None)
        yield from show.wrote([output, people, save])

    show.result(data, lines(), wanted.as_json)


def _tables(title: str, consensus: Consensus, labels: bool, annotators: bool) -> Iterator[show.Table]:
    if labels:
        yield show.frame(f"Consensus{title}", consensus.frame())
    if annotators:
        yield show.frame(f"Annotators{title}", annotators_frame(consensus), 10)


def _project(config: Path, wanted: Results) -> None:
    """Combine stored labels, and show or write the result; nothing is recorded."""
    from hitl import cycle
    from hitl.kinds.kind import kind_of, layers_by_question
    from hitl.project import item_names, opened
    from hitl.tables.write import require_writable, write_table

    output, people = wanted.output, wanted.annotators_output
    require_writable(output, people)
    with opened(config) as (settings, store, connector), show.progress(wanted.as_json) as progress:
        require_unread(config, settings, [output, people])  # checked before the long work
        names = item_names(settings, store)
        judgement = cycle.judge(settings, store, connector.questions(), progress).named(names)
    results, parts = judgement.results, {}
    for question, layers in layers_by_question(judgement.evidence, results).items():
        kind = kind_of(layers[0].consensus)
        if kind.of_parts:
            parts[question] = kind.table(layers, {})
    tables = {name: result.table() for name, result in results.items() if not kind_of(result).of_parts} | parts
    files = files_for(output, tables)
    require_unread(config, settings, [*files.values(), *files_for(people, results).values()])
    for name, file in files.items():
        write_table(file, tables[name])
    written = [*files.values(), *write_annotators(results, people)]
    data = show.without_passwords(judgement.metrics)
    if wanted.labels:
        data["consensus"] = {name: table.to_pylist() for name, table in tables.items()}

    def lines() -> Iterator[show.Line]:
        for name, table in parts.items() if output is None else ():
            frame = table.to_pandas(integer_object_nulls=True).drop(columns="rle", errors="ignore")
            yield show.frame(f"Found: {name}", frame)
        for name, result in results.items():
            yield from _tables(f": {name}", result, output is None and not kind_of(result).of_parts, people is None)
        yield from show.wrote(written)

    show.result(data, lines(), wanted.as_json)


# -- spans of texts and of time ----------------------------------------------------------------------------


def _has_spans(path: Path, item: str) -> bool:
    """Return True if a file of annotations has `start` and `end`, and documents instead of items."""
    from hitl.tables.read import column_names

    columns = {*column_names(path)} if path.exists() else set()
    return {"start", "end", _document(item)} <= columns and "item" not in columns


def _document(item: str) -> str:
    """Return the column of the document: the value of --item, else `document`."""
    return "document" if item == "item" else item


def _spans(given: Given, texts: Path | None, wanted: Results) -> None:
    """Combine spans, write the requested files, and show a summary."""
    from hitl.tables.write import require_distinct, require_writable, write_table

    refuse(
        given.other_than(FOR_SPANS) + (["save"] if wanted.save else []),
        f"{given.annotations} holds spans, for which {{}} means nothing; expected --texts, --truth, --method, "
        "--paper, --item (the document), --annotator, --label, --output",
    )
    combined = _combined_spans(given, texts)
    output, people = wanted.output, wanted.annotators_output
    require_writable(output, people)
    require_distinct([output, people], [*given.files, *([texts] if texts else [])])
    table, annotators = combined.table(), combined.annotators()
    for path, content in ((output, table), (people, annotators)):
        if path is not None:
            write_table(path, content)
    labels = combined.labels
    data: dict[str, Any] = {
        f"{combined.document}s": len(labels.items),
        "annotators": len(labels.annotators),
        "answers": len(labels.answer_a2),
        "kinds": labels.classes,
        "spans": len(combined.spans),
        "layers": len(combined.layers),
        **({"consensus": table.to_pylist()} if wanted.labels else {}),
        "written": [str(path) for path in (output, people) if path],
    }

    def lines() -> Iterator[show.Line]:
        if labels.texts is None:
            yield (
                "Read as stretches of time (seconds, frames, ...), for there are no texts; of parts of texts, give the "
                "texts with --texts"
            )
        yield from (str(labels), str(combined))
        if output is None:
            yield show.frame("Spans", table.to_pandas(integer_object_nulls=True))
        if people is None:
            frame = annotators.to_pandas()
            yield show.frame("Annotators", frame.sort_values(frame.columns[1], ascending=False), 10)
        yield from show.wrote([output, people])

    show.result(data, lines(), wanted.as_json)


def _combined_spans(given: Given, texts: Path | None) -> SpanConsensus:
    """Return the consensus on the spans of these files. Raises HitlError."""
    from hitl.kinds.span_tables import read_labels
    from hitl.kinds.spans import combine_spans
    from hitl.models.registry import chosen
    from hitl.tables.read import read_table

    columns = {"document": _document(given.item), "annotator": given.annotator, "label": given.label}
    spans, whole, truth = (
        None if path is None else read_table(path, [*columns.values(), "text"])
        for path in (given.annotations, texts, given.truth)
    )
    labels = read_labels(spans, whole, truth, **columns)
    if labels.merged:
        show.warning(
            f"{show.counted(labels.merged, 'span')} of an annotator overlapped another of the same label; each pair "
            "counts as one"
        )
    return combine_spans(labels, chosen(given.method or "default", {}, given.paper))
