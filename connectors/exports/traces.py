"""Answers in the exports of tools for traces (Langfuse, Opik, LangSmith): who gave them, and which of them count.

person                   an annotator, as named in the export
model, evaluator         a judge, named by its source; its answers are predictions of a model, as those in MLflow are
label, boolean           a class
number                   a class in order if all numbers of the question are whole and there are few; else no answer
question `<name>_hitl`   the consensus of hitl, never read as an answer
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hitl.connectors.exports.export import Answer, Export, choices_of, seconds, text_of

SUFFIX = "_hitl"
"""Ending of the names under which the consensus is written, as in MLflow and Phoenix."""
GRADES = 11
"""Most different numbers of a question that are classes: those of a scale from 0 to 10."""


def answer(
    item: str, question: object, label: object, number: object, who: object, judge: object, time: object
) -> Answer:
    """Return the answer of a person, or of a judge if `judge` names its source: the label, or else the number."""
    name, text = text_of(question), text_of(label)
    if name is None:
        raise ValueError("it has no name of a question")
    choices = choices_of(text if text is not None or number in (None, "") else float(str(number)))
    return Answer(item, name, text_of(judge or who), choices, time=time, ordered=text is None, judge=bool(judge))


def counting(export: Export, answers: Iterable[Answer]) -> Iterator[Answer]:
    """Yield the latest answer of each named rater to a question about an item, and all those of unnamed people."""
    latest: dict[tuple[object, ...], Answer] = {}
    for number, one in enumerate(answers):
        alone = one.annotator is None or not one.choices
        key = (one.item, one.question, one.judge, number if alone else one.annotator)
        earlier = latest.get(key)
        if one.question.endswith(SUFFIX):
            export.skipped["consensus label of hitl|consensus labels of hitl"] += 1
            continue
        export.skipped["replaced answer"] += earlier is not None
        if earlier is None or (seconds(one.time) or 0) >= (seconds(earlier.time) or 0):
            latest[key] = one
    numbers: dict[tuple[str, bool], set[str]] = {}
    for one in latest.values():
        if one.ordered:
            numbers.setdefault((one.question, one.judge), set()).update(one.choices)
    for one in latest.values():
        values = numbers.get((one.question, one.judge), set())
        if one.ordered and (len(values) > GRADES or not all(each.lstrip("-").isdigit() for each in values)):
            export.skipped["number that is no class|numbers that are no class"] += 1
        else:
            yield one
