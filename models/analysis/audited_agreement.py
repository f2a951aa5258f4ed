"""Agreement of labels with audits: answers about items that were drawn at random.

    y_i    share of the questions about item i for which the audit's answer equals the label at the time of the audit
    p_i    probability with which i was drawn, stored as `Ask.probability`
    T      = sum_i y_i / p_i                        unbiased for the sum of y over all items that might have been drawn
    share  = T / (sum_i 1 / p_i)
    m      = (sum_i 1 / p_i)^2 / sum_i p_i^-2       effective number of answers of equal probability
    low, high                                       Wilson's interval of `share` in m answers

Horvitz & Thompson 1952 (T), Hájek 1971 (share), Kish 1965 (m), Wilson 1927.

This is agreement, not accuracy. If the auditing annotators err independently of the labels, agreement tends to be below
the accuracy of both. If they share the labels' errors, it is above. Ground truth gives the accuracy (`hitl.score`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hitl.annotations import Annotations, Floats
from hitl.models.analysis.proportions import wilson

if TYPE_CHECKING:
    import pyarrow as pa

    from hitl.evidence import Evidence


@dataclass(frozen=True, slots=True)
class AuditedAgreement:
    """Agreement of labels with audits.

    Attributes:
        drawn: number of audits asked.
        answered: number of audits answered.
        share: agreement, in [0, 1]; NaN without answers.
        low, high: its 95 % interval.
        effective: m, the effective number of answers.
    """

    drawn: int
    answered: int
    share: float
    low: float
    high: float
    effective: float


def estimate(agrees: Floats, probability: Floats, drawn: int | None = None) -> AuditedAgreement:
    """Estimate agreement from answered audits: (D,) y in [0, 1] and (D,) p. `drawn`: number asked (default: D)."""
    answered = len(agrees)
    drawn = answered if drawn is None else drawn
    if not answered:
        return AuditedAgreement(drawn, 0, math.nan, math.nan, math.nan, 0.0)
    all_items = float(np.sum(1 / probability))
    share = min(float(np.sum(agrees / probability)) / all_items, 1.0)
    effective = all_items**2 / float(np.sum(probability**-2.0))
    low, high = wilson(share * effective, effective)
    return AuditedAgreement(drawn, answered, share, float(low), float(high), effective)


def audited_agreement(asks: pa.Table, evidence: Mapping[str, Evidence]) -> AuditedAgreement:
    """Estimate agreement from the audits of a store (`Store.audits`) and their answers, question name -> evidence.

    An answer that is no class agrees with no label. Questions about parts of items are left out. If an annotator was
    audited twice on an item, the later audit counts.
    """
    rows = {
        (row["item"], row["annotator"]): row
        for row in asks.to_pylist()
        if row["audit"] and row["annotator"] is not None and row["probability"] is not None
    }
    answers = {name: _answers(given.annotations, rows) for name, given in evidence.items() if given.parts is None}
    agrees, probability = [], []
    for pair, row in rows.items():
        stood = json.loads(row["labels"])
        equal = [by_pair[pair] == stood[name] for name, by_pair in answers.items() if pair in by_pair and name in stood]
        if equal:
            agrees.append(np.mean(equal))
            probability.append(row["probability"])
    return estimate(np.array(agrees, float), np.array(probability, float), len(rows))


def _answers(given: Annotations, pairs: Collection[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Return (item, annotator) -> answer for these pairs; the last answer of an annotator counts."""
    if not pairs:
        return {}
    items = {item for item, _ in pairs}
    place = {str(name): k for k, name in enumerate(given.annotators)}
    row = {str(name): n for n, name in enumerate(given.items) if str(name) in items}
    answers = {}
    for item, annotator in pairs:
        if item in row and annotator in place:
            here = slice(given.item_start[row[item]], given.item_start[row[item] + 1])
            for label in given.label[here][given.annotator[here] == place[annotator]].tolist():
                answers[item, annotator] = str(given.options[label])
    return answers
