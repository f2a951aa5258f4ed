"""Suggest answers per item, by `serve.suggest`.

    model       predictions of the project's models; annotators' answers to the item itself are not used
    consensus   consensus of all annotators and models; nothing for gold items, which measure annotators
    never       nothing

A suggestion is an answer to each question, as a row of the operation `consensus` (`hitl.platform.Operation`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from hitl.annotations import Floats
from hitl.connectors.label_studio.predictions import SUGGESTS
from hitl.metrics import DIGITS
from hitl.operations import consensus_rows

if TYPE_CHECKING:
    from hitl.service.web.snapshot import QuestionView, Snapshot

SAMPLE = 4096
"""Number of items whose predictions determine the version. A retrained model changes all of them."""

Answer = Mapping[str, Any]


class Suggestions:
    """Suggestions for the items of one snapshot. They are looked up, and computed only for items that have parts."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot, self.kind = snapshot, snapshot.settings.serve.suggest

    @cached_property
    def version(self) -> str:
        """Version of the suggestions. Label Studio asks once per version, so it changes when they do."""
        if self.kind == "model":
            return f"{SUGGESTS}model-{_digest(self.snapshot)}"
        number = f"-{self.snapshot.number}-{self.snapshot.revision}" if self.kind == "consensus" else ""
        return f"{SUGGESTS}{self.kind}{number}"

    def of(self, key: str) -> dict[str, Answer]:
        """Return the suggested answer to each question for an item, by its platform key. Empty if there is none."""
        row = self.snapshot.key_place.get(key)
        if row is None or self.kind == "never":
            return {}
        item = self.snapshot.names[row].as_py()
        answers = {
            name: self._parts.get(name, {}).get(item)
            if view.evidence.parts is not None
            else _of_models(view, row)
            if self.kind == "model"
            else _of_all(view, row)
            for name, view in self.snapshot.views.items()
        }
        return {name: answer for name, answer in answers.items() if answer is not None}

    @cached_property
    def _parts(self) -> dict[str, dict[str, Answer]]:
        """Question about parts -> item -> parts found in it, except gold items; nothing unless `consensus`."""
        views = self.snapshot.views if self.kind == "consensus" else {}
        evidence = {name: view.evidence for name, view in views.items() if view.evidence.parts is not None}
        rows = consensus_rows(evidence, {name: views[name].consensus for name in evidence})
        gold = {str(known.annotations.items[n]) for known in evidence.values() for n in np.flatnonzero(known.known)}
        return {name: {row["item"]: row for row in of if row["item"] not in gold} for name, of in rows.items()}

    def prepare(self) -> None:
        """Compute in advance what requests would wait for."""
        _ = self.version, self._parts
        for view in self.snapshot.views.values():
            _ = view.consensus.labels


def _of_all(view: QuestionView, row: int) -> Answer | None:
    """Return the consensus on an item that has a label or a prediction, and no known truth."""
    known = view.evidence
    if known.known[row] or not (known.annotations.labels_per_item[row] or known.predicted[row]):
        return None
    return _row(view, int(view.consensus.labels[row]), view.consensus.probabilities[row])


def _of_models(view: QuestionView, row: int) -> Answer | None:
    """Return the mean prediction of the models, each recalibrated by its temperature. None if all abstain."""
    temperatures = view.consensus.temperatures
    predictions = [
        _tempered(p_nj[row], float(temperatures.get(name, 1.0)))
        for name, p_nj in view.evidence.probabilities.items()
        if not np.isnan(p_nj[row, 0])
    ]
    if not predictions:
        return None
    p_j = np.mean(predictions, axis=0)
    return _row(view, int(p_j.argmax()), p_j)


def _tempered(p_j: Floats, temperature: float) -> Floats:
    log_j = np.log(np.maximum(p_j, np.finfo(float).tiny)) / temperature
    weight_j = np.exp(log_j - log_j.max())
    p: Floats = weight_j / weight_j.sum()
    return p


def _row(view: QuestionView, label: int, p_j: Floats) -> Answer:
    return {"label": str(view.consensus.classes[label]), "confidence": round(float(p_j[label]), DIGITS)}


def _digest(snapshot: Snapshot) -> str:
    """Return a digest of the models' predictions for some items, and of the number of predictions."""
    digest = hashlib.blake2b(digest_size=6)
    for question, view in snapshot.views.items():
        for model, p_nj in view.evidence.probabilities.items():
            some = np.linspace(0, len(p_nj) - 1, min(SAMPLE, len(p_nj))).astype(np.intp)
            predicted = int(len(p_nj) - np.isnan(p_nj[:, 0]).sum())
            digest.update(repr((question, model, len(p_nj), predicted)).encode())
            digest.update(np.ascontiguousarray(p_nj[some]).tobytes())
    return digest.hexdigest()
