"""Prodigy JSONL (`prodigy db-out`): a record per answer.

With options, the chosen ones are in `accept`. With a label and no options, the answer is accept or reject. Otherwise
the answer is the spans.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hitl.connectors.exports.export import Answer, Export, choices_of, text_of

INPUT, TASK = "_input_hash", "_task_hash"


class Prodigy:
    """Datasets of Prodigy."""

    title = "Prodigy JSONL"
    items, annotators = ("item", INPUT), ("annotator", "_annotator_id")

    def matches(self, kind: str, names: frozenset[str], first: Sequence[Mapping[str, Any]]) -> bool:
        """Return True for records with Prodigy's hashes and an answer."""
        return kind == "json" and {INPUT, "answer"} <= names

    def answers(self, export: Export) -> Iterator[Answer]:
        """Yield the answers. A choice or a list of spans that was rejected or ignored is none.

        A record of the review recipe is a known answer, and has the answers that were reviewed.
        """
        for record in export.records():
            with export.part(record):
                task = record.fields
                item = export.item_of(task, task.get(INPUT))
                who = text_of(task.get("_annotator_id") or task.get("_session_id"))
                versions = task.get("versions") or ()
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
