"""How often labels agree with answers about items drawn at random, whatever was asked beside (audits).

    y_i    share of the questions about item i to which the audit's answer is the label that stood when it was asked
    p_i    the probability with which i was drawn, as `Ask.probability` keeps it
    T      = sum_i y_i / p_i                        unbiased for the sum of y over all that might have been drawn
    share  = T / (sum_i 1 / p_i)
    m      = (sum_i 1 / p_i)^2 / sum_i p_i^-2       answers that would say as much if all had one probability
    low, high                                       Wilson's interval of `share` in m answers

Horvitz & Thompson 1952 (T), Hájek 1971 (share), Kish 1965 (m), Wilson 1927. Each plan draws from the items that might
be asked about when it was made; the share is that of all these items, plan by plan. Items of known truth are not among
them, nor those about which an answer was expected, which are the less sure ones while the project goes on.

It is agreement, and not accuracy: annotators err too. Where they err for themselves, agreement is below the accuracy of
labels and answers; where they err as the labels do, it is above. Known truth tells the accuracy (`hitl.score`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from hitl.annotations import Annotations, Floats
from hitl.models.analysis.proportions import wilson

if TYPE_CHECKING:
    import pyarrow as pa

    from hitl.evidence import Evidence

Pair = tuple[str, str]
"""(item, annotator)"""


@dataclass(frozen=True, slots=True)
class AuditedAgreement:
    """What the audits say.

    Attributes:
        drawn: questions that were asked for an audit; answered: how many of them are answered.
        share: how often labels agree with such answers, in [0, 1]; low, high: its 95 % interval. NaN without answers.
        effective: m, the answers of equal probability that would say as much.
    """

    drawn: int
    answered: int
    share: float
    low: float
    high: float
    effective: float


def horvitz_thompson(values: npt.ArrayLike, probability: npt.ArrayLike) -> float:
    """The sum of the values of all items, from (D,) values of those that were drawn with (D,) probabilities in (0, 1].

    Example:
        >>> horvitz_thompson([1.0, 0.0, 1.0], [0.1, 0.5, 0.5])
        12.0
    """
    return float(np.sum(np.asarray(values, float) / np.asarray(probability, float)))


def estimate(agrees: Floats, probability: Floats, drawn: int | None = None) -> AuditedAgreement:
    """From (D,) values in [0, 1] of the answered audits and their (D,) probabilities; `drawn`: with those unanswered.

    Audits that are not answered count as if they were like the others.

    Example:
        >>> found = estimate(np.array([1.0, 1.0, 1.0, 0.0]), np.full(4, 0.05), drawn=5)
        >>> found.share, round(found.low, 2), round(found.high, 2), round(found.effective, 2)
        (0.75, 0.3, 0.95, 4.0)
    """
    answered = len(agrees)
    drawn = answered if drawn is None else drawn
    if not answered:
        return AuditedAgreement(drawn, 0, math.nan, math.nan, math.nan, 0.0)
    all_items = horvitz_thompson(np.ones(answered), probability)
    share = min(horvitz_thompson(agrees, probability) / all_items, 1.0)
    effective = all_items**2 / float(np.sum(probability**-2.0))
    low, high = wilson(share * effective, effective)
    return AuditedAgreement(drawn, answered, share, float(low), float(high), effective)


def audited_agreement(asks: pa.Table, evidence: Mapping[str, Evidence]) -> AuditedAgreement:
    """From the audits that a store keeps (`Store.audits`) and question -> evidence with the answers to them.

    An answer that is none of the classes ("unsure") agrees with no label. Questions about parts of items (spans, masks,
    boxes) are left aside. Of an annotator who was asked twice about an item the later question counts. A part of the
    table gives the agreement of a part of the items: where `done` holds, that of labels that were finished.
    """
    rows = {
        (row["item"], row["annotator"]): row
        for row in asks.to_pylist()
        if row["audit"] and row["annotator"] is not None and row["probability"] is not None
    }
    said = {name: _answers(known.annotations, rows.keys()) for name, known in evidence.items() if known.parts is None}
    agrees, probability = [], []
    for pair, row in rows.items():
        stood = json.loads(row["labels"])
        equal = [answers[pair] == stood[name] for name, answers in said.items() if pair in answers and name in stood]
        if equal:
            agrees.append(np.mean(equal))
            probability.append(row["probability"])
    return estimate(np.array(agrees, float), np.array(probability, float), len(rows))


def _answers(given: Annotations, wanted: Collection[Pair]) -> dict[Pair, str]:
    """The answers of these pairs, as far as they were given."""
    if not wanted:
        return {}
    items = {item for item, _ in wanted}
    place = {str(name): k for k, name in enumerate(given.annotators)}
    row = {str(name): n for n, name in enumerate(given.items) if str(name) in items}
    found = {}
    for item, annotator in wanted:
        if item in row and annotator in place:
            n = row[item]
            here = slice(given.item_start[n], given.item_start[n + 1])
            for label in given.label[here][given.annotator[here] == place[annotator]].tolist():
                found[item, annotator] = str(given.options[label])
    return found
