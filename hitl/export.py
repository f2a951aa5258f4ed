"""The tables that `hitl export` writes: labels with what they rest on, and annotations.

item_table          one row an item: what there is to label
label_tables        one row an item; classes of a multiple choice side by side, questions of other kinds apart
annotation_table    one row an annotation, times as ISO 8601
asked_table         one row a question that was ever planned

of texts whose parts are marked, and recordings with stretches of time: one row a span, and one a marked part of each
answer (`hitl.texts.span_tables`)
of images: one row a mask or a box

item         the user's own id, or else the platform's
task         the platform's id, where any item has an id of its own
label, confidence, p_<class>                        of the consensus
labels, done, why, source                           how many labels, whether and why it is done, what decided
...          what annotators see: the fields of the item's data
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from hitl.platform import NO, YES
from hitl.tables.encoding import iso_8601, writable
from hitl.texts.span_tables import answer_table, found_table
from hitl.texts.text_items import TextParts

if TYPE_CHECKING:
    import numpy.typing as npt

    from hitl.annotations import Annotations, Name, Names
    from hitl.consensus import Consensus, FoundBox, FoundMask
    from hitl.evidence import Evidence
    from hitl.operations import Judgement
    from hitl.plan import Plan
    from hitl.texts.span_labels import FoundSpan

    Rows = npt.NDArray[np.intp]

KNOWN, ANNOTATORS, MODEL, BOTH, NOBODY = "known truth", "annotators", "model", "annotators and model", "nobody"
"""What a label rests on."""


def label_tables(judgement: Judgement, items: pa.Table, names: Mapping[str, str]) -> dict[str, pa.Table]:
    """Question -> table of labels, one row for each item that was judged and still exists.

    The questions of a multiple choice are one table, under the name of the control, whatever else the project asks: its
    label is "art,law" where these two are chosen ("" for none), p_art the chance of art, confidence that of the class
    that is least sure.

    `judgement` is keyed by the platform's ids, and its evidence may be newer than its results; `items` are those of
    `Store.items`, `names` those of `hitl.project.item_names`.
    """
    parts = {name: known.parts for name, known in judgement.evidence.items()}
    of_texts = {name: one.question for name, one in parts.items() if isinstance(one, TextParts)}
    of_images = [name for name, result in judgement.results.items() if result.masks is not None]
    of_boxes = [name for name, result in judgement.results.items() if result.boxes is not None]
    others = judgement.results.keys() - of_texts.keys() - {*of_images, *of_boxes}
    results = {question: result for question, result in judgement.results.items() if question in others}
    controls = multiple_choices({question: result.classes for question, result in results.items()})
    table_of = {q: control for control, of in controls.items() if len(of) > 1 for q in of.values()}
    groups: dict[str, dict[str, Consensus]] = {}
    for question, result in results.items():
        groups.setdefault(table_of.get(question, question), {})[question] = result
    tables = {name: _table(group, judgement, items, names) for name, group in groups.items()}
    tables |= {name: _spans(name, judgement, names) for name in dict.fromkeys(of_texts.values())}
    tables |= {name: _boxes(judgement.results[name], judgement.evidence[name], names) for name in of_boxes}
    return tables | {name: _masks(judgement.results[name], judgement.evidence[name], names) for name in of_images}


def _boxes(result: Consensus, known: Evidence, names: Mapping[str, str]) -> pa.Table:
    """One row a box of the images that annotators answered; one without a box where there is none."""
    boxes = result.boxes or ()
    found: dict[Name, list[dict[str, Any]]] = {item: [] for item in _drawn(result, known, boxes)}
    for box in boxes:
        if box.item in found:
            found[box.item].append({"label": str(box.kind), "confidence": box.probability} | asdict(box))
    rows = [(item, box) for item, own in found.items() for box in own or [{}]]
    ids = pa.array([names.get(str(item), str(item)) for item, _ in rows], pa.string())
    kinds = {"label": pa.string()} | dict.fromkeys(("confidence", "x", "y", "width", "height"), pa.float64())
    kinds |= dict.fromkeys(("drawn", "answers", "image_width", "image_height"), pa.int64())
    columns = {name: pa.array([box.get(name) for _, box in rows], kind) for name, kind in kinds.items()}
    return pa.table({"item": ids, **columns})


def _answered(result: Consensus, known: Evidence) -> list[Name]:
    """The items with an answer that were judged and are still there; more may have come since."""
    judged, items = {*result.items}, known.annotations.items
    there = np.flatnonzero((known.annotations.labels_per_item > 0) | known.known)
    return [items[n] for n in there if items[n] in judged]


def _drawn(result: Consensus, known: Evidence, found: Sequence[FoundBox | FoundMask]) -> list[Name]:
    """Of these the images but for those that were marked after they were judged.

    An image that had no answer then has the shares of the classes, and nothing is found on it.
    """
    given = known.annotations
    rows = np.unique(given.item[given.label > 0]).tolist()  # the first class is nothing
    marked = {given.items[n] for n in rows} - {each.item for each in found}
    unanswered_n = np.isclose(result.probabilities, result.class_shares).all(axis=1)
    first = marked.intersection(result.items[n] for n in np.flatnonzero(unanswered_n))
    return [item for item in _answered(result, known) if item not in first]


def _masks(result: Consensus, known: Evidence, names: Mapping[str, str]) -> pa.Table:
    """One row a mask of the images that annotators answered; one without a mask where there is none."""
    masks = result.masks or ()
    drawn = dict.fromkeys(_drawn(result, known, masks))
    found = [mask for mask in masks if mask.item in drawn]
    masked = {mask.item for mask in found}
    empty = [item for item in drawn if item not in masked]
    rows: list[dict[str, Any]] = [
        {"item": mask.item, "label": str(mask.kind), "confidence": mask.probability, "height": mask.height}
        | {"width": mask.width, "rle": json.dumps(mask.rle)}
        for mask in found
    ]
    rows += [{"item": item} for item in empty]
    kinds = {"item": pa.string(), "label": pa.string(), "confidence": pa.float64(), "height": pa.int64()}
    kinds |= {"width": pa.int64(), "rle": pa.string()}
    columns = {name: pa.array([row.get(name) for row in rows], kind) for name, kind in kinds.items() if name != "item"}
    own = pa.array([names.get(str(row["item"]), str(row["item"])) for row in rows], pa.string())
    return pa.table({"item": own, **columns})


def _spans(question: str, judgement: Judgement, names: Mapping[str, str]) -> pa.Table:
    """One row a span of the texts that annotators answered, of all layers; one without a span where there is none."""
    layers = [name for name, known in judgement.evidence.items() if known.parts and known.parts.question == question]
    known = judgement.evidence[layers[0]]
    assert isinstance(known.parts, TextParts)
    spans = [span for name in layers for span in judgement.results[name].spans or ()]
    items, changed = known.annotations.items, _marked_anew(spans, known)
    documents = dict.fromkeys(item for item in _answered(judgement.results[layers[0]], known) if item not in changed)
    found = [span for span in spans if span.found and span.document in documents]
    marked = {span.document for span in found}
    empty = [item for item in documents if item not in marked]
    return _own_ids(found_table(found, items, known.parts.labels.texts, empty), names)


def _marked_anew(spans: Sequence[FoundSpan], known: Evidence) -> set[Name]:
    """The documents of which annotators mark something else than what was judged: parts of other texts, or the first.

    More answers that mark more are no such change.
    """
    assert isinstance(known.parts, TextParts)
    labels, items = known.parts.labels, known.annotations.items
    document_s = labels.answer_a2[labels.span_s4[:, 0], 0].tolist()
    rows = zip(document_s, labels.span_s4.tolist(), strict=True)
    marked = {(items[d], start, end, labels.kinds[kind]) for d, (_, start, end, kind) in rows}
    first = {document for document, *_ in marked} - {span.document for span in spans}
    if labels.texts is None:  # stretches of time are those of no annotator, but between theirs
        return first
    judged = {(span.document, span.start, span.end, span.kind) for span in spans if span.marked}
    return first | {document for document, *_ in judged - marked}


def span_annotation_table(evidence: Evidence, names: Mapping[str, str]) -> pa.Table:
    """One row a span of each answer, as `hitl combine` reads them."""
    assert isinstance(evidence.parts, TextParts)
    return _own_ids(answer_table(evidence.parts.labels), names)


def _own_ids(table: pa.Table, names: Mapping[str, str]) -> pa.Table:
    """The table with the users' own ids of its documents."""
    own = [names.get(str(key), str(key)) for key in table.column("document").to_pylist()]
    return table.set_column(0, "document", pa.array(own, pa.string()))


def annotation_table(annotations: Annotations, names: Mapping[str, str]) -> pa.Table:
    """One row an annotation: item, task, annotator, label, time (ISO 8601, UTC), duration (seconds)."""
    table = annotations.table()
    columns = _identity(table.column("item").to_pylist(), names)
    columns |= {name: table.column(name) for name in table.column_names[1:]}
    if annotations.time is not None:
        columns["time"] = iso_8601(annotations.time)
    return pa.table(columns)


def asked_table(asks: pa.Table, names: Mapping[str, str]) -> pa.Table:
    """The questions of `Store.asks`, `since` as time (ISO 8601, UTC)."""
    columns = _identity(asks.column("item").to_pylist(), names)
    columns |= {name: asks.column(name) for name in asks.column_names if name not in ("item", "since")}
    columns["time"] = iso_8601(asks.column("since").to_numpy())
    return pa.table(columns)


def item_table(items: pa.Table, names: Mapping[str, str]) -> pa.Table:
    """One row an item of `Store.items`: item (the own id), and the fields of its data."""
    keys, data = (items.column(name).to_pylist() for name in _KEPT)
    columns: dict[str, Any] = {"item": pa.array([names.get(key, key) for key in keys], pa.string())}
    for field, values in _fields([json.loads(text) for text in data]).items():
        columns[_free(field, columns)] = values
    return pa.table(columns)


def _table(group: Mapping[str, Consensus], judgement: Judgement, items: pa.Table, names: Mapping[str, str]) -> pa.Table:
    """One row an item, for the questions of one table."""
    stored = {key: json.loads(data) for key, data in zip(*(items.column(n).to_pylist() for n in _KEPT), strict=True)}
    first = next(iter(group.values()))
    rows = np.array([n for n, item in enumerate(first.items) if str(item) in stored], dtype=np.intp)
    keys = [str(first.items[n]) for n in rows]
    columns = _identity(keys, names)
    columns |= _chosen(group, rows) if len(group) > 1 else _decided(first, rows)
    known = [judgement.evidence[question] for question in group]
    columns |= {"labels": _labels(known, keys), **_progress(judgement.plan, keys), "source": _source(known, keys)}
    for field, values in _fields([stored[key] for key in keys]).items():
        columns[_free(field, columns)] = values
    return pa.table(columns)


_KEPT = ("item", "data")


def _identity(keys: Sequence[str], names: Mapping[str, str]) -> dict[str, Any]:
    """The columns that name the items."""
    own = pa.array([names.get(str(key), str(key)) for key in keys], pa.string())
    if all(key == name for key, name in names.items()):
        return {"item": own}
    return {"item": own, "task": pa.array(map(str, keys), pa.string())}


def _decided(result: Consensus, rows: Rows) -> dict[str, Any]:
    """Label, confidence and probabilities of a question with classes of its own."""
    table = result.table().drop_columns("item").take(pa.array(rows))
    return {name: table.column(name) for name in table.column_names}


def _chosen(group: Mapping[str, Consensus], rows: Rows) -> dict[str, Any]:
    """Which classes of a multiple choice are chosen, how sure the least sure class is, and the chance of each."""
    classes = [question.partition("=")[2] for question in group]
    yes = [list(map(str, result.classes)).index(YES) for result in group.values()]
    chosen_jn = np.array([result.labels[rows] == code for result, code in zip(group.values(), yes, strict=True)])
    confidence_n = np.min([result.confidence[rows] for result in group.values()], axis=0)
    labels = [",".join(np.array(classes, dtype=object)[chosen]) for chosen in chosen_jn.T]
    shares = {
        f"p_{name}": result.probabilities[rows, code]
        for name, result, code in zip(classes, group.values(), yes, strict=True)
    }
    return {"label": pa.array(labels, pa.string()), "confidence": confidence_n, **shares}


def _rows_of(evidence: Evidence, keys: Sequence[str]) -> Rows:
    place = {str(item): n for n, item in enumerate(evidence.annotations.items)}
    return np.array([place[key] for key in keys], dtype=np.intp)


def _labels(evidence: Sequence[Evidence], keys: Sequence[str]) -> pa.Array:
    """How many labels each item has; an answer to a multiple choice is one label."""
    counts_n = np.max([known.annotations.labels_per_item for known in evidence], axis=0)
    return pa.array(counts_n[_rows_of(evidence[0], keys)])


def _source(evidence: Sequence[Evidence], keys: Sequence[str]) -> pa.Array:
    """What the label of each item rests on."""
    rows = _rows_of(evidence[0], keys)
    labeled_n = np.any([known.annotations.labels_per_item > 0 for known in evidence], axis=0)[rows]
    predicted_n = np.any([known.predicted for known in evidence], axis=0)[rows]
    known_n = np.all([known.known for known in evidence], axis=0)[rows]
    cases = [known_n, labeled_n & predicted_n, labeled_n, predicted_n]
    source_n = np.select(cases, [KNOWN, BOTH, ANNOTATORS, MODEL], default=NOBODY)
    return pa.array(source_n.astype(object), pa.string())


def _progress(plan: Plan, keys: Sequence[str]) -> dict[str, Any]:
    """Whether an item is done, and why."""
    why = {str(done.item): done.why for done in plan.done}
    return {
        "done": pa.array([key in why for key in keys], pa.bool_()),
        "why": pa.array([why.get(key) for key in keys], pa.string()),
    }


def _fields(data: Sequence[Mapping[str, Any]]) -> dict[str, pa.Array]:
    """The fields of the items' data as columns, null where an item lacks one."""
    fields = dict.fromkeys(field for one in data for field in one)
    return {field: _column([one.get(field) for one in data]) for field in fields}


def _column(values: list[Any]) -> pa.Array:
    """Values of one type as they are; lists, objects and mixed types as text (JSON)."""
    if not any(isinstance(value, list | dict) for value in values):
        try:
            column = pa.array(values)
            return column.cast(pa.string()) if pa.types.is_null(column.type) else column
        except (ValueError, TypeError, OverflowError):  # several types, or what is no text
            pass
    return pa.array([_as_text(value) for value in values], pa.string())


def _as_text(value: Any) -> str | None:
    return (
        None if value is None else writable(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
    )


def _free(field: str, columns: Mapping[str, Any]) -> str:
    """The field's name, or data_<name> where a column has that name already."""
    field = writable(field)
    while field in columns or field == "task":  # a task is always the platform's id
        field = f"data_{field}"
    return field


def multiple_choices(classes_of: Mapping[str, Names]) -> dict[str, dict[str, str]]:
    """Control -> class -> question, of the multiple choices among these questions (name -> its classes).

    Example:
        >>> multiple_choices({"topics=art": ("no", "yes"), "topics=law": ("no", "yes"), "mood": ("good", "bad")})
        {'topics': {'art': 'topics=art', 'law': 'topics=law'}}
    """
    found: dict[str, dict[str, str]] = {}
    for question, classes in classes_of.items():
        control, joined, name = question.partition("=")
        if joined and {str(one) for one in classes} == {YES, NO}:
            found.setdefault(control, {})[name] = question
    return found
