"""Answers that choose one of the options as the label of the whole item."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hitl.annotations import column_of
from hitl.consensus import Consensus
from hitl.errors import BadTable
from hitl.evidence import Evidence
from hitl.formatting import listed
from hitl.kinds.kind import Judged, Marked, Place, StoredAnswers, item_columns
from hitl.models.combine import fit
from hitl.models.combiner import Combiner, seen_by
from hitl.platform import YES, Question
from hitl.tables.align import truth_of
from hitl.tables.table_operation import consensus_table, payload_rows
from hitl.tables.times import iso_8601


class Choices:
    """One of the options per item."""

    of_parts: ClassVar[bool] = False

    def read(self, answer: str) -> list[Marked]:
        return [{"label": answer}]

    def write(self, parts: Iterable[Marked]) -> str:
        (part,) = parts
        return str(part["label"])

    def unusable(self, answers: Sequence[str | None], data: object) -> list[str | None]:
        return [None] * len(answers)

    def evidence(self, stored: StoredAnswers) -> dict[str, Evidence]:
        """Build evidence from answers, predictions by models, and ground truth that is one of the classes."""
        assert stored.annotations is not None
        question = stored.question
        columns = {"item", *(f"p_{name}" for name in question.classes)}
        predictions = {
            model: table.select([name for name in table.column_names if name in columns])
            for model, table in stored.predictions().items()
        }
        annotations, gold = stored.annotations(), stored.gold()
        gold = gold.filter(pc.is_in(gold.column("label"), value_set=pa.array(question.classes, pa.string())))
        truth = truth_of(annotations, gold, "item", "label")
        return {question.name: Evidence(annotations, predictions, truth=truth)}

    def consensus(self, evidence: Evidence, method: Combiner) -> Consensus:
        """Fit the method. If it does not use features, they are removed from the evidence first."""
        return fit(method, seen_by(method, evidence))

    def rows(self, layers: Sequence[Judged]) -> list[dict[str, Any]]:
        """Return the label and probabilities of each item with a label, ground truth or a prediction."""
        ((_, evidence, result),) = layers
        return payload_rows(label_table(evidence, result))

    def table(self, layers: Sequence[Judged], names: Mapping[str, str]) -> pa.Table:
        """Return item, label, confidence and p_<class>, one row per item.

        The yes/no questions of a multiple choice share one table. If two classes are chosen, the label is "art,law".
        The confidence is that of the least certain class.
        """
        result = layers[0].consensus
        columns = item_columns(result.items, names)
        if len(layers) == 1:
            table = result.table().drop_columns("item")
            return pa.table(columns | {name: table.column(name) for name in table.column_names})
        classes = [one.question.partition("=")[2] for one in layers]
        codes = [list(map(str, one.consensus.classes)).index(YES) for one in layers]
        chosen_jn = np.array([one.consensus.codes == code for one, code in zip(layers, codes, strict=True)])
        labels = [",".join(np.array(classes, dtype=object)[chosen]) for chosen in chosen_jn.T]
        columns |= {"label": pa.array(labels, pa.string())}
        columns |= {"confidence": np.min([one.consensus.confidence for one in layers], axis=0)}
        pairs = zip(classes, layers, codes, strict=True)
        return pa.table(columns | {f"p_{name}": one.consensus.probabilities[:, code] for name, one, code in pairs})

    def answers(self, evidence: Evidence, names: Mapping[str, str]) -> pa.Table:
        """Return item, annotator, label, time (ISO 8601, UTC) and duration (seconds), one row per annotation."""
        table = evidence.annotations.table()
        columns = item_columns(table.column("item").to_pylist(), names)
        columns |= {name: table.column(name) for name in table.column_names[1:]}
        if evidence.annotations.time is not None:
            columns["time"] = iso_8601(evidence.annotations.time)
        return pa.table(columns)

    def truth(self, table: pa.Table, question: Question, where: str, place_of: Place) -> dict[str, str]:
        """Read the columns item and label."""
        labels: dict[str, str] = {}
        pairs = zip(table.column("item").to_pylist(), table.column("label").to_pylist(), strict=True)
        for row, (item, label) in enumerate(pairs):
            if item in labels:
                raise BadTable(f"{place_of(row)}: item {item!r} appears twice; expected one row for each item")
            if label in (None, ""):
                raise BadTable(f"{place_of(row)}: the label is empty; leave out items whose truth is not known")
            if label not in question.classes:
                raise BadTable(f"{place_of(row)}: label {label!r} is not one of {listed(question.classes)}")
            labels[item] = label
        return labels


class Ordinal(Choices):
    """One of several classes that are in order, such as stars. The default method expects errors of a step.

    The label is the median of an item's probabilities, and the table of the consensus has the columns `low` and `high`.
    """

    def evidence(self, stored: StoredAnswers) -> dict[str, Evidence]:
        """Build evidence as for choices, with the classes in order."""
        given = super().evidence(stored)
        return {name: replace(one, annotations=one.annotations.as_ordered()) for name, one in given.items()}


def label_table(evidence: Evidence, result: Consensus) -> pa.Table:
    """Return a table of the consensus on items that have a label, ground truth or a prediction."""
    rows = np.flatnonzero(evidence.supported)
    items = column_of(result.items)
    items = items if len(rows) == len(items) else items.take(pa.array(rows))
    return consensus_table(
        items, result.classes, result.codes[rows], result.confidence[rows], result.probabilities[rows]
    )
