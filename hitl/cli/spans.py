"""Combine spans of texts, or time segments, for `hitl combine`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from hitl.cli import show
from hitl.cli.evidence import Given
from hitl.errors import BadSettings

if TYPE_CHECKING:
    import pyarrow as pa

    from hitl.kinds.spans import SpanConsensus
    from hitl.operations import Judgement

DOCUMENT, ITEM = "document", "item"

UNDERSTOOD = ("annotations", "method", "paper", "truth", "item", "annotator", "label", "config")
"""Options of `Given` that apply to spans."""


def are_in(path: Path, item: str) -> bool:
    """Return True if a file of annotations holds spans: it has `start` and `end`, and documents instead of items."""
    from hitl.tables.files import read_parts

    first = next(iter(read_parts(path, 1)), None) if path.exists() else None
    columns = () if first is None else first.column_names
    return {"start", "end"} <= set(columns) and _document(item) in columns and ITEM not in columns


def require_no_others(given: Given, **others: object) -> None:
    """Raise BadSettings for options that do not apply to spans."""
    said = given.other_than(UNDERSTOOD) + [name for name, value in others.items() if value is not None]
    if said:
        flags = ", ".join(f"--{name}" for name in said)
        raise BadSettings(
            f"{given.annotations} holds spans, for which {flags} means nothing; expected --texts, --truth, --method, "
            "--paper, --item (the document), --annotator, --label, --output"
        )


def combined_from(given: Given, texts: Path | None) -> SpanConsensus:
    """Return the consensus on the spans of these files. Raises HitlError."""
    from hitl.kinds.span_tables import read_labels
    from hitl.kinds.spans import combine_spans
    from hitl.models.registry import chosen
    from hitl.tables.files import read_table

    document = _document(given.item)
    names = [document, given.annotator, given.label, "text"]
    assert given.annotations is not None
    spans, whole, truth = (
        None if path is None else read_table(path, names) for path in (given.annotations, texts, given.truth)
    )
    columns = {"document": document, "annotator": given.annotator, "label": given.label}
    labels = read_labels(spans, whole, truth, **columns)
    if labels.merged:
        show.warning(
            f"{show.counted(labels.merged, 'span')} of an annotator overlapped another of the same label; each pair "
            "counts as one"
        )
    return combine_spans(labels, chosen(given.method or "default", {}, given.paper))


def read_as(found: SpanConsensus) -> str | None:
    """Return a line about spans without texts, or None."""
    if found.labels.texts is not None:
        return None
    return (
        "Read as stretches of time (seconds, frames, ...), for there are no texts; of parts of texts, give the texts "
        "with --texts"
    )


def summary(found: SpanConsensus, with_spans: bool) -> dict[str, Any]:
    """Return the JSON for `--json`: counts, and with `--labels` each span."""
    told = {
        f"{found.document}s": len(found.labels.items),
        "annotators": len(found.labels.annotators),
        "answers": len(found.labels.answer_a2),
        "kinds": found.labels.classes,
        "spans": len(found.spans),
        "layers": len(found.layers),
    }
    return told | ({"consensus": found.table().to_pylist()} if with_spans else {})


def found_in(judgement: Judgement) -> dict[str, pa.Table]:
    """Return the spans found per question about parts, from results whose items have their own names."""
    from hitl.kinds.kind import kind_of, layers_by_question

    layers = layers_by_question(judgement.evidence, judgement.results)
    kinds = {question: kind_of(own[0].consensus) for question, own in layers.items()}
    return {name: kinds[name].table(own, {}) for name, own in layers.items() if kinds[name].of_parts}


def _document(item: str) -> str:
    """Return the column of the document: the value of --item, else `document`."""
    return DOCUMENT if item == ITEM else item
