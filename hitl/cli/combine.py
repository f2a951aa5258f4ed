"""Define `hitl combine`, which combines the labels or spans in files, or the labels of a project.

Folders of shards are combined in `shard`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from hitl.cli import shard, show
from hitl.cli.evidence import Given, annotator_table, files_for, require_unread, write_tables
from hitl.cli.options import HERE, AnnotatorsOutput, Config, Engine, Json, grouped, opt, refuse
from hitl.errors import BadSettings

if TYPE_CHECKING:
    import pyarrow as pa

    from hitl.consensus import Consensus
    from hitl.evidence import Evidence
    from hitl.models.analysis.disagreement import Disagreement

FOR_SPANS = ("annotations", "method", "paper", "truth", "item", "annotator", "label", "format", "question", "strict")
"""Options of `Given` that are allowed for files of spans."""


@dataclass(frozen=True)
class Results:
    """Options for printing and writing the consensus. Raises BadSettings for contradictory options."""

    output: Annotated[
        Path | None, opt("Table of labels to write: item, label, confidence, p_<class>.", "--output", "-o")
    ] = None
    save: Annotated[Path | None, opt("Save the consensus (.npz), to load it in Python with Consensus.load.")] = None
    as_json: Json = False
    soft: Annotated[
        Path | None, opt("Table to write of how people would answer: item, label, confidence, differ, share_<label>.")
    ] = None
    labels: Annotated[bool, opt("With --json: also print the label of every item.", "--labels")] = False
    annotators_output: AnnotatorsOutput = None

    def __post_init__(self) -> None:
        if self.save is not None and self.save.suffix.lower() != ".npz":
            raise BadSettings(
                f"--save {self.save}: expected a name that ends in .npz, for the whole consensus; --output writes a "
                "table"
            )
        if self.labels and not self.as_json:
            raise BadSettings("--labels adds the label of every item to --json; expected both")


@dataclass(frozen=True)
class Combined:
    """Result of combining, to be shown and written.

    Attributes:
        data: values for --json.
        lines: lines printed before the tables.
        labels: question ("" for files) -> table of labels.
        annotators: question ("" for files) -> table of annotators.
        heads: question -> title of the table of labels.
        consensus: consensus for --save, or None.
        soft: question ("" for files) -> table for --soft.
    """

    data: dict[str, Any]
    lines: list[str]
    labels: dict[str, pa.Table]
    annotators: dict[str, pa.Table]
    heads: dict[str, str]
    consensus: Consensus | None = None
    soft: dict[str, pa.Table] = field(default_factory=dict)


@grouped
def combine(
    given: Given,
    results: Results,
    where: Engine,
    texts: Annotated[Path | None, opt("Texts of annotated spans: columns document, text.")] = None,
    config: Config = HERE,
) -> None:
    """Fuse labels (and model probabilities) into the best-supported label of every item."""
    from hitl.tables.write import require_writable

    place = shard.named_by(given.annotations)
    if place is not None:
        others = {"save": results.save, "soft": results.soft, "labels": results.labels or None, "texts": texts}
        names = [name for name, value in others.items() if value is not None]
        refuse(names, "{}: not for shards; --output FOLDER holds all there is")
        shard.combined(place, given, results.output, results.annotators_output, results.as_json, where)
        return
    where.require_none("for shards; make some with `hitl shard`")
    output, people, save, soft = results.output, results.annotators_output, results.save, results.soft
    require_writable(output, people, soft, others=[save], read=[*given.files, texts])
    if given.annotations is None:
        given.need_project("combine", config, save=save, texts=texts)
        made = _project(config, results)
    elif texts is not None or _has_spans(given, given.annotations):
        refuse(["soft"] if soft else [], "{}: not for spans; it takes answers about whole items")
        made = _spans(given, texts, save)
    else:
        made = _files(given, results)
    written: dict[str, Any] = {}
    for kind, path, tables in (
        ("consensus", output, made.labels),
        ("annotators", people, made.annotators),
        ("soft", soft, made.soft),
    ):
        written |= {kind: {name: str(file) for name, file in write_tables(path, tables).items()}} if path else {}
    if save is not None and made.consensus is not None:
        made.consensus.save(save)
        written["saved"] = {"": str(save)}
    data = made.data | {"written": {kind: files.get("", files) for kind, files in written.items()}}
    if results.labels:
        rows = {name: table.to_pylist() for name, table in made.labels.items()}
        data["consensus"] = rows.get("", rows)

    def lines() -> Iterator[show.Line]:
        yield from made.lines
        for name, table in made.labels.items() if output is None else ():
            frame = table.to_pandas(integer_object_nulls=True).drop(columns="rle", errors="ignore")
            yield show.frame(made.heads[name], frame)
        for name, table in made.annotators.items() if people is None else ():
            yield show.frame(f"Annotators{f': {name}' if name else ''}", table.to_pandas(), 10)
        yield from show.wrote(Path(file) for files in written.values() for file in files.values())

    show.result(data, lines(), results.as_json)


def _files(given: Given, wanted: Results) -> Combined:
    from hitl.models.analysis.explanations import explanations

    evidence = given.evidence()
    consensus = given.consensus(evidence)
    ambiguity = explanations(consensus)
    confidence = float(consensus.confidence.mean())
    data = {
        "items": len(consensus.items),
        "annotators": evidence.annotations.n_annotators,
        "labels": len(evidence.annotations),
        "classes": consensus.classes,
        "confidence": confidence,
        "temperatures": consensus.temperatures,
        "fit": shard.fit_summary(consensus.fit),
        "explanations": ambiguity,
    }
    lines = [str(evidence), f"{consensus.fit}; mean confidence {confidence:.3f}"]
    lines += [ambiguity] if ambiguity else []
    soft = _soft({"": evidence}, {"": consensus}) if wanted.soft else {}
    data |= {"disagreement": str(soft[""])} if soft else {}
    lines += map(str, soft.values())
    tables = {"": consensus.fit.stamp(consensus.table())}, {"": annotator_table(consensus)}
    made_of = {name: consensus.fit.stamp(one.table()) for name, one in soft.items()}
    return Combined(data, lines, *tables, {"": "Consensus"}, consensus, made_of)


def _soft(evidence: Mapping[str, Evidence], results: Mapping[str, Consensus]) -> dict[str, Disagreement]:
    """Estimate how people would answer each question. Questions about parts of items are left out."""
    from hitl.models.analysis.disagreement import disagreement

    return {
        name: disagreement(known, results[name])
        for name, known in evidence.items()
        if known.parts is None and len(known.annotations)
    }


def _project(config: Path, wanted: Results) -> Combined:
    """Combine the stored labels, without recording the result."""
    from hitl import cycle
    from hitl.kinds.kind import kind_of, layers_by_question
    from hitl.project import item_names, opened

    output, people, soft_output = wanted.output, wanted.annotators_output, wanted.soft
    with opened(config) as (settings, store, connector), show.progress(wanted.as_json) as progress:
        require_unread(config, settings, [output, people, soft_output])  # checked before the long work
        names = item_names(settings, store)
        judgement = cycle.judge(settings, store, connector.questions(), progress).named(names)
    tables, heads = {}, {}
    for question, layers in layers_by_question(judgement.evidence, judgement.results).items():
        consensus = layers[0].consensus
        kind = kind_of(consensus)
        tables[question] = kind.table(layers, {}) if kind.of_parts else consensus.table()
        heads[question] = f"{'Found' if kind.of_parts else 'Consensus'}: {question}"
    annotators = {name: annotator_table(result) for name, result in judgement.results.items()}
    soft = _soft(judgement.evidence, judgement.results) if soft_output else {}
    written = ((output, tables), (people, annotators), (soft_output, soft))
    require_unread(config, settings, [file for path, of in written for file in files_for(path, of).values()])
    data = show.without_passwords(judgement.metrics)
    data |= {"disagreement": {name: str(one) for name, one in soft.items()}} if soft else {}
    lines = [f"{name}: {one}" for name, one in soft.items()]
    tables_of_soft = {name: one.table() for name, one in soft.items()}
    return Combined(data, lines, tables, annotators, heads, soft=tables_of_soft)


# -- spans of texts and of time ----------------------------------------------------------------------------


def _has_spans(given: Given, path: Path) -> bool:
    """Return True if a file of annotations has the columns start and end, and documents instead of items."""
    from hitl.tables.read import column_names

    if given.export is not None:
        return given.export.of_spans
    columns = {*column_names(path)} if path.exists() else set()
    return {"start", "end", _document(given.item)} <= columns and "item" not in columns


def _document(item: str) -> str:
    """Return the name of the document column: the value of --item if given, else "document"."""
    return "document" if item == "item" else item


def _spans(given: Given, texts: Path | None, save: Path | None) -> Combined:
    from hitl.kinds.span_tables import read_labels
    from hitl.kinds.spans import combine_spans, span_table
    from hitl.models.registry import chosen
    from hitl.tables.read import read_table

    refuse(
        given.other_than(*FOR_SPANS) + (["save"] if save else []),
        f"{given.annotations} holds spans, for which {{}} means nothing; expected --texts, --truth, --method, "
        "--paper, --item (the document), --annotator, --label, --strict, --output",
    )
    columns = {"document": _document(given.item), "annotator": given.annotator, "label": given.label}
    files = (given.annotations if given.export is None else None, texts, given.truth)
    spans, whole, truth = (None if path is None else read_table(path, [*columns.values()]) for path in files)
    spans = spans if given.export is None else given.export.table
    labels = read_labels(spans, whole, truth, **columns, strict=given.strict)
    if labels.merged:
        show.warning(
            f"{show.counted(labels.merged, 'span')} of an annotator overlapped another of the same label; each pair "
            "counts as one"
        )
    results = combine_spans(labels, chosen(given.method or "default", {}, given.paper))
    table, document = span_table(labels, results.values()), "recording" if labels.texts is None else "text"
    data = {
        f"{document}s": len(labels.items),
        "annotators": len(labels.annotators),
        "answers": len(labels.answer_a2),
        "kinds": labels.classes,
        "spans": table.num_rows,
        "layers": len(results),
    }
    fits = "; ".join(str(result.fit) for result in results.values())
    answered = show.counted(int(labels.judged_n.sum()), document)
    lines = [str(labels), f"{show.counted(table.num_rows, 'span')} in {answered}; {fits}"]
    if labels.texts is None:
        lines.insert(
            0,
            "Read as stretches of time (seconds, frames, ...), for there are no texts; of parts of texts, give the "
            "texts with --texts",
        )
    annotators = {name if len(results) > 1 else "": annotator_table(result) for name, result in results.items()}
    return Combined(data, lines, {"": table}, annotators, {"": "Spans"})
