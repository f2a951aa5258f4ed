"""Prodigy JSONL (`prodigy db-out`): a record per answer.

With options, the chosen ones are in `accept`. With a label and no options, the answer is accept or reject. Otherwise
the answer is the spans.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hitl.connectors.exports.export import Answer, Export, Record, Tool, choices_of, text_of


class Prodigy(Tool):
    """Datasets of Prodigy."""

    title = "Prodigy JSONL"
    items, annotators = ("item", "_input_hash"), ("annotator", "_annotator_id")
    fields = "_input_hash", "answer"

    def read(self, export: Export, record: Record) -> Iterator[Answer]:
        """Yield the answers. A choice or a list of spans that was rejected or ignored is none.

        A record of the review recipe is a known answer, and has the answers that were reviewed.
        """
        task = record.fields
        item, versions = export.item_of(task, task.get("_input_hash")), task.get("versions") or ()
        who = text_of(task.get("_annotator_id") or task.get("_session_id"))
        yield from list(_answers(export, item, who, task, bool(versions)))
        for version in versions:
            for session in version.get("sessions") or ():
                yield from list(_answers(export, item, text_of(session), {**task, **version}))


def _answers(
    export: Export, item: str, who: str | None, task: Mapping[str, Any], known: bool = False
) -> Iterator[Answer]:
    answer, view = task["answer"], task.get("view_id", task.get("_view_id"))
    time = task.get("_timestamp")
    if answer == "ignore" or (answer == "reject" and ("options" in task or "label" not in task)):
        export.skipped["ignored answer" if answer == "ignore" else "rejected answer"] += 1
    elif answer not in ("accept", "reject"):
        raise ValueError(f"answer is {answer!r}; expected accept, reject or ignore")
    elif "options" in task or "accept" in task:
        several = (task.get("config") or {}).get("choice_style") == "multiple"
        yield Answer(item, "choice", who, choices_of(task.get("accept") or []), several, time=time, known=known)
    elif isinstance(task.get("label"), str) and "spans" not in task:
        yield Answer(item, task["label"], who, (answer,), time=time, known=known)
    elif view in ("ner_manual", "spans_manual") or (view is None and "text" in task):
        spans = tuple((span["start"], span["end"], str(span["label"])) for span in task.get("spans") or ())
        yield Answer(item, "spans", who, spans=spans, text=task["text"], time=time, known=known)
    else:
        export.skipped[f"answer of the interface {view}|answers of the interface {view}"] += 1
