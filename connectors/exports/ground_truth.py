"""SageMaker Ground Truth, in both of its formats.

Requests for consolidation have the answer of each worker, as JSON in a text. The output manifest has one label per
item, which the job has consolidated. So its annotator is the job.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from hitl.connectors.exports.export import Answer, Export, Record, Tool, choices_of, text_of

METADATA = "-metadata"


class GroundTruth(Tool):
    """Requests for consolidation of Ground Truth."""

    title = "SageMaker Ground Truth consolidation request"
    items, annotators = ("item", "datasetObjectId"), ("worker", "workerId")
    fields = "datasetObjectId", "annotations"

    def read(self, export: Export, record: Record) -> Iterator[Answer]:
        """Yield the workers' classes. Boxes and other answers are left out."""
        item = export.item_of(record.fields, record.fields["datasetObjectId"])
        for each in record.fields["annotations"]:
            with export.part(record, f"worker {each.get('workerId')}"):
                content = each["annotationData"]["content"]
                answers = json.loads(content) if isinstance(content, str) else content
                for name, answer in answers.items():
                    answer = answer if isinstance(answer, dict) else {"label": answer}
                    several = "labels" in answer
                    if several or "label" in answer:
                        chosen = choices_of(answer["labels"] if several else answer["label"])
                        yield Answer(item, name, text_of(each["workerId"]), chosen, several)
                    else:
                        export.skipped["answer that is not a class|answers that are not classes"] += 1


class Manifest(Tool):
    """Output manifests of Ground Truth."""

    title = "SageMaker Ground Truth manifest (one consolidated label per item)"
    items, annotators = ("item", "source-ref"), ("labeling job", "job-name")
    fields = "source-ref|source", f".*{METADATA}"

    def read(self, export: Export, record: Record) -> list[Answer]:
        """Return the labels that people have made."""
        fields, answers = record.fields, []
        export.item_field = "source-ref" if fields.get("source-ref") else "source"
        item = export.item_of(fields, fields.get(export.item_field))
        for key, metadata in fields.items():
            if not key.endswith(METADATA):
                continue
            name = key.removesuffix(METADATA)
            several = "class-name" not in metadata
            if str(metadata.get("human-annotated", "yes")).lower() != "yes":
                export.skipped["prediction of a model|predictions of a model"] += 1
                continue
            if several and not ("class-map" in metadata and str(metadata.get("type", "")).endswith("multilabel")):
                export.skipped["label that is not a class|labels that are not classes"] += 1
                continue
            chosen = [metadata["class-map"][str(code)] for code in fields[name]] if several else metadata["class-name"]
            job, time = text_of(metadata.get("job-name")) or name, metadata.get("creation-date")
            answers.append(Answer(item, name, job, choices_of(chosen), several, time=time))
        return answers
