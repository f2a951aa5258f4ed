"""SageMaker Ground Truth: the output manifest, with one label per item, which the job has consolidated.

So the annotator is the job. Requests for consolidation have the answer of each worker, see `ground_truth`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hitl.connectors.exports.export import Answer, Export, choices_of, text_of

METADATA = "-metadata"


class Manifest:
    """Output manifests of Ground Truth."""

    title = "SageMaker Ground Truth manifest (one consolidated label per item)"
    items, annotators = ("item", "source-ref"), ("labeling job", "job-name")

    def matches(self, kind: str, names: frozenset[str], first: Sequence[Mapping[str, Any]]) -> bool:
        """Return True for lines of a manifest with labels."""
        of_items = not {"source-ref", "source"}.isdisjoint(names)
        return kind == "json" and of_items and any(name.endswith(METADATA) for name in names)

    def answers(self, export: Export) -> Iterator[Answer]:
        """Yield the labels that people have made."""
        for record in export.records():
            with export.part(record):
                yield from list(_consolidated(export, record.fields))


def _consolidated(export: Export, fields: Mapping[str, Any]) -> Iterator[Answer]:
    export.item_field = "source-ref" if fields.get("source-ref") else "source"
    item = export.item_of(fields, fields.get(export.item_field))
    for name, metadata in fields.items():
        if not name.endswith(METADATA):
            continue
        attribute = name.removesuffix(METADATA)
        if str(metadata.get("human-annotated", "yes")).lower() != "yes":
            export.skipped["prediction of a model|predictions of a model"] += 1
        elif "class-name" in metadata:
            yield _job(item, attribute, metadata, choices_of(metadata["class-name"]), False)
        elif "class-map" in metadata and str(metadata.get("type", "")).endswith("multilabel"):
            classes = metadata["class-map"]
            chosen = choices_of([classes[str(code)] for code in fields[attribute]])
            yield _job(item, attribute, metadata, chosen, True)
        else:
            export.skipped["label that is not a class|labels that are not classes"] += 1


def _job(item: str, name: str, metadata: Mapping[str, Any], chosen: tuple[str, ...], several: bool) -> Answer:
    job = text_of(metadata.get("job-name")) or name
    return Answer(item, name, job, chosen, several, time=metadata.get("creation-date"))
