"""Turn the answers in an export into a table of labels or spans, and say what was read as what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from hitl.connectors.exports.export import Answer, Export, Importer, number_of, seconds
from hitl.errors import BadTable
from hitl.formatting import counted, listed
from hitl.kinds.span_labels import trimmed
from hitl.kinds.span_tables import TEXT, time_span
from hitl.platform import NO, YES
from hitl.tables.encode import writable
from hitl.tables.limits import require_fit

TIME, DURATION = "time", "duration"


@dataclass(frozen=True)
class Labels:
    """Labels of one question of an export.

    Attributes:
        table: rows of item, annotator, label, time, duration; for spans, rows as `hitl.kinds.span_tables` reads them.
        truth: table of item and label, or None if the export marks no known answers.
        of_spans: True for a table of spans.
        ordered: True if the classes are in order.
        judges: annotators that are models.
        summary: what was read as what.
        problems: a message per record that cannot be read.
    """

    table: pa.Table
    truth: pa.Table | None
    of_spans: bool
    ordered: bool
    judges: Sequence[str]
    summary: str
    problems: Sequence[str]


def labels_of(importer: Importer, export: Export, columns: tuple[str, ...]) -> Labels:
    """Read the labels of one question. `columns` name the item, the annotator (unless it is left out) and the label.

    Raise BadTable if there are no answers, or several questions and none is chosen.
    """
    by_question: dict[str, list[Answer]] = {}
    for answer in importer.answers(export):
        if not export.wants(answer.question):
            continue
        if answer.spans is None and not answer.choices and not answer.several:
            export.skipped["empty answer"] += 1
        else:
            by_question.setdefault(answer.question, []).append(answer)
    question, answers = _chosen(importer, export, by_question)
    of_spans = any(answer.spans is not None for answer in answers)
    given = [answer for answer in answers if not answer.known]
    truth = None
    if of_spans:
        export.skipped["known answer with spans|known answers with spans"] += len(answers) - len(given)
        texts: dict[str, str] = {}
        readable = [answer for answer in given if _has_readable_spans(answer, export, texts)]
        given = [answer for answer in readable if not texts or answer.item in texts]
        without = "answer about an item without a text|answers about items without a text"
        export.skipped[without] += len(readable) - len(given)
        table = _span_table(given, texts, columns)
    else:
        table, truth = _label_table(given, columns), _truth_table(export, answers, columns)
    if not given:
        raise BadTable(f"{export.path}: read as {importer.title}, but it holds no answer{export.left_out()}")
    require_fit(table, export.path, [name for name in columns if name in table.column_names])
    judges = sorted({answer.annotator for answer in given if answer.judge and answer.annotator})
    ordered, summary = all(answer.ordered for answer in given), _summary(importer, export, question, given, truth)
    return Labels(table, truth, of_spans, ordered, judges, summary, list(export.problems))


def _summary(
    importer: Importer, export: Export, question: str, answers: Sequence[Answer], truth: pa.Table | None
) -> str:
    named = {answer.annotator for answer in answers if not answer.judge}
    judges = sorted({str(answer.annotator) for answer in answers if answer.judge})
    who, column = importer.annotators
    people = f"{counted(len(named - {None}), who)} ({column})" + (" and unnamed ones" if None in named else "")
    if named <= {None}:
        people = f"no {who} named"
    if judges:
        people += f", {counted(len(judges), 'judge')} ({listed(judges)})"
    what, key = importer.items
    items = f"{counted(len({answer.item for answer in answers}), what)} ({export.item or export.item_field or key})"
    rating = " (a rating)" if answers[0].ordered else ""
    known = f"; {counted(truth.num_rows, 'known answer')}" if truth is not None else ""
    return (
        f"{export.path.name}: read as {importer.title}: {items}, {people}, question {question!r}{rating}{known}"
        f"{export.left_out()}"
    )


def _chosen(importer: Importer, export: Export, by_question: Mapping[str, list[Answer]]) -> tuple[str, list[Answer]]:
    """Return the question to combine and its answers. A question with several choices is one per class: yes or no."""
    if not by_question:
        missing = f" to {export.question!r} (--question)" if export.question is not None else ""
        raise BadTable(f"{export.path}: read as {importer.title}, but it holds no answer{missing}{export.left_out()}")
    if len(by_question) > 1 and export.question not in by_question:
        names = listed([f"{name!r} ({counted(len(answers), 'answer')})" for name, answers in by_question.items()])
        raise BadTable(
            f"{export.path}: read as {importer.title}, with {len(by_question)} questions: {names}. Choose one with "
            "--question"
        )
    name = next((name for name in by_question if name == export.question), next(iter(by_question)))
    answers = by_question[name]
    if not any(answer.several or len(answer.choices) > 1 for answer in answers):
        if export.question not in (None, name):
            raise BadTable(f"{export.path}: no question {export.question!r} (--question); found {name!r}")
        return name, answers
    classes = sorted({choice for answer in answers for choice in answer.choices})
    asked = {f"{name}={choice}": choice for choice in classes}
    chosen = export.question
    if chosen is None or chosen not in asked:
        raise BadTable(
            f"{export.path}: read as {importer.title}; question {name!r} has answers with several labels. Choose one "
            f"label, to be combined as yes or no, with --question: {listed([repr(each) for each in asked])}"
        )
    label = asked[chosen]
    return chosen, [replace(one, choices=(YES if label in one.choices else NO,)) for one in answers]


def _label_table(answers: Sequence[Answer], columns: tuple[str, ...]) -> pa.Table:
    values = (
        [writable(answer.item) for answer in answers],
        [None if answer.annotator is None else writable(answer.annotator) for answer in answers],
        [writable(answer.choices[0]) for answer in answers],
    )
    named = dict(zip(columns, values if len(columns) > 2 else values[::2], strict=True))
    table = pa.table({name: pa.array(column, pa.string()) for name, column in named.items()})
    times = pa.array([seconds(answer.time) for answer in answers], pa.float64())
    durations = pa.array([number_of(answer.duration) for answer in answers], pa.float64())
    return table.append_column(TIME, times).append_column(DURATION, durations)


def _truth_table(export: Export, answers: Sequence[Answer], columns: tuple[str, ...]) -> pa.Table | None:
    """Return the known answers. Items whose known answers differ are left out, and counted."""
    known: dict[str, set[str]] = {}
    for answer in answers:
        if answer.known:
            known.setdefault(writable(answer.item), set()).add(writable(answer.choices[0]))
    disputed = sum(len(labels) > 1 for labels in known.values())
    if disputed:
        export.skipped["item with contradictory known answers|items with contradictory known answers"] += disputed
    certain = {item: labels.pop() for item, labels in known.items() if len(labels) == 1}
    return pa.table({columns[0]: list(certain), columns[-1]: list(certain.values())}) if certain else None


def _has_readable_spans(answer: Answer, export: Export, texts: dict[str, str]) -> bool:
    """Return True if all spans have a place in the text, which is kept in `texts`, or in time."""
    try:
        if answer.text is not None and texts.setdefault(answer.item, answer.text) != answer.text:
            raise ValueError("it has another text than an earlier answer")
        for start, end, label in answer.spans or ():
            if answer.text is None:
                time_span(start, end, label)
            elif not (type(start) is type(end) is int and trimmed(answer.text, start, end)):
                raise ValueError(f"{start} to {end} is no part of its text of {len(answer.text)} characters")
    except ValueError as error:
        export.cannot_read(f"item {answer.item!r}, annotator {answer.annotator!r}: {error}")
        return False
    return True


def _span_table(answers: Sequence[Answer], texts: Mapping[str, str], columns: tuple[str, ...]) -> pa.Table:
    rows = [
        (answer.item, answer.annotator or "(anonymous)", *span)
        for answer in answers
        for span in answer.spans or [(None, None, None)]
    ]
    names = ("document" if columns[0] == "item" else columns[0], columns[1], "start", "end", columns[-1])
    cells = [[row[place] for row in rows] for place in range(len(names))]
    as_text = any(isinstance(side, str) for side in cells[2] + cells[3])
    types = [None if name in ("start", "end") and not as_text else pa.string() for name in names]
    table = pa.table({name: pa.array(*column) for name, *column in zip(names, cells, types, strict=True)})
    return table.append_column(TEXT, pa.array([texts[row[0]] for row in rows], pa.string())) if texts else table
