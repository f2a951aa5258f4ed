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
import numpy.typing as npt

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
        self.snapshot = snapshot
        self.kind = snapshot.settings.serve.suggest

    @cached_property
    def version(self) -> str:
        """Version of the suggestions. Label Studio asks once per version, so it changes when they do."""
        if self.kind == "never":
            return f"{SUGGESTS}never"
        if self.kind == "consensus":
            return f"{SUGGESTS}consensus-{self.snapshot.number}-{self.snapshot.revision}"
        return f"{SUGGESTS}model-{_digest(self.snapshot)}"

    def of(self, key: str) -> dict[str, Answer]:
        """Return the suggested answer to each question for an item, by its platform key. Empty if there is none."""
        row = self.snapshot.key_place.get(key)
        if row is None or self.kind == "never":
            return {}
        found: dict[str, Answer] = {}
        for name, view in self.snapshot.views.items():
            answer = None
            if view.evidence.parts is None:
                answer = _of_models(view, row) if self.kind == "model" else self._of_all(name, view, row)
            if answer is not None:
                found[name] = answer
        if self.kind == "consensus" and self._of_parts:
            item = self.snapshot.names[row].as_py()
            found |= {name: rows[item] for name, rows in self._of_parts.items() if item in rows}
        return found

    @cached_property
    def _of_parts(self) -> dict[str, dict[str, Answer]]:
        """Question about parts -> item -> parts found in it, except gold items."""
        views = {name: view for name, view in self.snapshot.views.items() if view.evidence.parts is not None}
        evidence = {name: view.evidence for name, view in views.items()}
        rows = consensus_rows(evidence, {name: view.consensus for name, view in views.items()})
        told = {str(known.annotations.items[n]) for known in evidence.values() for n in np.flatnonzero(known.known)}
        return {name: {row["item"]: row for row in of if row["item"] not in told} for name, of in rows.items()}

    def _of_all(self, question: str, view: QuestionView, row: int) -> Answer | None:
        """Return the consensus on an item, if there is one to show."""
        if not self._decided[question][row]:
            return None
        return _row(view, int(view.consensus.labels[row]), view.consensus.probabilities[row])

    @cached_property
    def _decided(self) -> dict[str, npt.NDArray[np.bool_]]:
        """Question -> (N,) mask of items with a label or a prediction, and without known truth."""
        found = {}
        for name, view in self.snapshot.views.items():
            known = view.evidence
            found[name] = ((known.annotations.labels_per_item > 0) | known.predicted) & ~known.known
        return found

    def prepare(self) -> None:
        """Compute in advance what requests would wait for."""
        _ = self.version, self.snapshot.key_place
        if self.kind == "consensus":
            _ = self._of_parts, self._decided
            for view in self.snapshot.views.values():
                _ = view.consensus.labels


def prepare(snapshot: Snapshot) -> None:
    """Compute what requests look up, before the snapshot is used."""
    snapshot.suggestions.prepare()


def _of_models(view: QuestionView, row: int) -> Answer | None:
    """Return the mean prediction of the models, each recalibrated by its temperature. None if all abstain."""
    temperatures = view.consensus.temperatures
    said = [
        _tempered(p_nj[row], float(temperatures.get(name, 1.0)))
        for name, p_nj in view.evidence.probabilities.items()
        if not np.isnan(p_nj[row, 0])
    ]
    if not said:
        return None
    p_j = np.mean(said, axis=0)
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
    told = hashlib.blake2b(digest_size=6)
    for question, view in snapshot.views.items():
        for model, p_nj in view.evidence.probabilities.items():
            some = np.linspace(0, len(p_nj) - 1, min(SAMPLE, len(p_nj))).astype(np.intp)
            predicted = int(len(p_nj) - np.isnan(p_nj[:, 0]).sum())
            told.update(repr((question, model, len(p_nj), predicted)).encode())
            told.update(np.ascontiguousarray(p_nj[some]).tobytes())
    return told.hexdigest()
