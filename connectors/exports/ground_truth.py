"""SageMaker Ground Truth: requests for consolidation, which have the answer of each worker as JSON in a text."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hitl.connectors.exports.export import Answer, Export, Record, choices_of, text_of


class GroundTruth:
    """Requests for consolidation of Ground Truth."""

    title = "SageMaker Ground Truth consolidation request"
    items, annotators = ("item", "datasetObjectId"), ("worker", "workerId")

    def matches(self, kind: str, names: frozenset[str], first: Sequence[Mapping[str, Any]]) -> bool:
        """Return True for objects with the annotations of workers."""
        return kind == "json" and {"datasetObjectId", "annotations"} <= names

    def answers(self, export: Export) -> Iterator[Answer]:
        """Yield the workers' classes. Boxes and other answers are left out."""
        for record in export.records():
            with export.part(record):
                yield from _workers(export, record)


def _workers(export: Export, record: Record) -> Iterator[Answer]:
    item = export.item_of(record.fields, record.fields["datasetObjectId"])
    for each in record.fields["annotations"]:
        with export.part(record, f"worker {each.get('workerId')}"):
            content = each["annotationData"]["content"]
            answers = json.loads(content) if isinstance(content, str) else content
            for name, answer in answers.items():
                answer = answer if isinstance(answer, dict) else {"label": answer}
                several = "labels" in answer
                if not several and "label" not in answer:
                    export.skipped["answer that is not a class|answers that are not classes"] += 1
                    continue
                chosen = answer["labels"] if several else answer["label"]
                yield Answer(item, name, text_of(each["workerId"]), choices_of(chosen), several)
