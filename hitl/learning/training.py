"""A model that learns in the loop: trained on the labels there are, out of fold, and kept in the store.

    refresh             where labels are new enough -> predictions -> store, fold by fold; killed, the next one goes on
    with_predictions    store -> evidence, one model more, where that says more than the shares of the classes

A training takes the consensus of annotators (and other models) as soft labels; its predictions join the consensus of
the same cycle. What is predicted of an item never saw its labels: an item that was trained on is predicted by the model
of its fold, and one that is labeled later was not trained on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hitl.annotations import Name
from hitl.errors import BadSettings
from hitl.learning.given import Given
from hitl.platform import Progress, silent
from hitl.store.folds import Training as Trained

if TYPE_CHECKING:
    import pyarrow as pa

    from hitl.annotations import Annotations, Floats
    from hitl.evidence import Evidence
    from hitl.models.learning.out_of_fold import Training
    from hitl.settings import Settings
    from hitl.store import Lease, Store


def refresh(
    lease: Lease,
    settings: Settings,
    store: Store,
    evidence: Mapping[str, Evidence],
    progress: Progress = silent,
    *,
    anew: bool = False,
) -> dict[str, Trained]:
    """Train for each question of which a share `learn.growth` is new since the last time, or, `anew`, for each.

    New are labels and items that have come, gone or changed; other code that learns, or makes features, makes all new.

    Gives the new trainings, by question: none where labels are not new, or too few to learn from. `evidence` is that of
    annotators and other models, with features. Raises BadSettings where there are no features.
    """
    learn = settings.learn
    if learn.model is None:
        return {}
    before, complete = store.trainings(settings.name), dict[str, Trained]()
    groups = _values(settings, store, "groups", learn.groups)
    inputs = _values(settings, store, "field", learn.field)
    contents, made_by = _contents(settings, store, inputs, groups), _made_by(settings, store)
    for question, known in evidence.items():
        if known.parts is not None:  # what is learned of whole texts says nothing of their parts
            continue
        if known.features is None and learn.field is None:
            raise BadSettings("learn.model needs features of the items; expected [features] with text, columns, ...")
        last, by = before.get(question), _digest(settings, known)
        if last is not None and last.settings != by:
            last = None
        given = Given.of(known, _learnable(known, inputs), contents)
        if last is not None and not anew and made_by in (last.made_by, None):
            then = Given.read(store.predicted(settings.name, question, last.run).values())
            if then is not None and not _is_due(known, given, then, last, learn.growth):
                complete[question] = last
                continue
        # where annotators alone now seem to see one class only, as few labels may, the last training still stands
        found = _Learning(lease, settings, store, question, known, by, made_by, given, progress, inputs).run(groups)
        found = found or last
        if found is not None:
            complete[question] = found
    if complete != before:
        store.note_trainings(lease, complete)
    return {name: one for name, one in complete.items() if before.get(name) != one}


def with_predictions(settings: Settings, store: Store, question: str, evidence: Evidence) -> Evidence:
    """The same evidence with what was learned last by these settings, as one model more, where it says something."""
    from hitl.models.learning.learned import NAME

    last = store.trainings(settings.name).get(question) if settings.learn.model is not None else None
    if last is None or not last.informs or last.settings != _digest(settings, evidence):
        return evidence
    annotations = evidence.annotations
    place = {item: row for row, item in enumerate(annotations.items)}
    p_nj = np.full((annotations.n_items, annotations.n_classes), np.nan)
    for part in store.predicted(settings.name, question, last.run).values():
        names, saved_rj = part.column("item").to_pylist(), _read(annotations, part)
        there = [(place[name], row) for row, name in enumerate(names) if name in place]
        if there:
            at, rows = (list(column) for column in zip(*there, strict=True))
            p_nj[at] = saved_rj[rows]
    return replace(evidence, probabilities={**evidence.probabilities, NAME: p_nj})


def labels_of(evidence: Evidence) -> int:
    """Labels and known truths there are to learn from."""
    return len(evidence.annotations) + int(evidence.known.sum())


def _is_due(evidence: Evidence, given: Given, then: Given, last: Trained, growth: float) -> bool:
    """Whether labels, or items of which something can be learned, have come, gone or changed, enough to learn anew."""
    if last.learnable is None or abs(labels_of(evidence) - last.labels) > growth * last.labels:
        return True
    labels, items = given.since(then)
    return labels > growth * last.labels or items > growth * last.learnable


def _learnable(evidence: Evidence, inputs: Mapping[Name, str] | None) -> npt.NDArray[np.bool_]:
    """(N,) the items that a model is given something of."""
    if inputs is None:
        return evidence.featured
    return np.array([item in inputs for item in evidence.annotations.items], dtype=np.bool_)


def _contents(
    settings: Settings, store: Store, inputs: Mapping[Name, str] | None, groups: Mapping[Name, str] | None
) -> dict[Name, str]:
    """Item -> a text that changes with what it is predicted from, and with its group."""
    note = store.features_note(settings.name) if inputs is None else None
    held = store.vector_digests(settings.name, note.space) if note is not None else inputs or {}
    return {item: repr((text, groups and groups.get(item))) for item, text in held.items()}


def _made_by(settings: Settings, store: Store) -> str | None:
    """A digest of the code that learns, where it is yours, and of the model that makes features of each item.

    None where that code is not found, such as on a machine that only shows what was learned.
    """
    from hitl.models.predictors.features import digest_of
    from hitl.models.predictors.loading import source_digest

    place = str(settings.learn.model).rpartition(":")[0]
    code = source_digest(place) if place else ""
    note = store.features_note(settings.name) if settings.learn.field is None else None
    return None if code is None else digest_of(code, note and note.model)


def _digest(settings: Settings, evidence: Evidence) -> str:
    """Of what is learned from which features, by which model, of which combiner and which classes."""
    from hitl.models.predictors.features import digest_of

    learn = settings.learn.model_dump_json(exclude={"growth"})
    features = settings.features.model_dump_json(exclude={"folder", "device", "missing"})
    return digest_of(learn, features, settings.combine.model_dump_json(), evidence.annotations.classes)


def _values(settings: Settings, store: Store, key: str, field: str | None) -> dict[Name, str] | None:
    """Item -> what its data have in a field, of the items that have it; None where no field is named."""
    if field is None:
        return None
    items = store.items(settings.name)
    data = [json.loads(text) for text in items.column("data").to_pylist()]
    if not any(field in one for one in data):
        names = ", ".join(dict.fromkeys(name for one in data for name in one))
        raise BadSettings(f"learn.{key}: no item has the field {field!r}; expected one of {names}")
    found = zip(items.column("item").to_pylist(), (one.get(field) for one in data), strict=True)
    return {item: str(value) for item, value in found if value not in (None, "")}


@dataclass(frozen=True, slots=True)
class _Learning:
    """One training of one question."""

    lease: Lease
    settings: Settings
    store: Store
    question: str
    evidence: Evidence
    by: str
    made_by: str | None
    given: Given
    progress: Progress
    inputs: Mapping[Name, str] | None

    def run(self, groups: Mapping[Name, str] | None) -> Trained | None:
        """Train what is not saved yet; None where there is too little to learn from."""
        from hitl.models.combiner import seen_by
        from hitl.models.learning.informative import informs
        from hitl.models.learning.out_of_fold import Training
        from hitl.models.registry import chosen

        learn, combine = self.settings.learn, self.settings.combine
        method = chosen(combine.method, combine.options, combine.paper)
        people = method.fit(seen_by(method, self.evidence))
        grouped = None if groups is None else [groups.get(item) for item in self.evidence.annotations.items]
        there_n = None if self.inputs is None else np.array([one is not None for one in self._inputs()])
        training = Training.of(self.evidence, people.probabilities, learn.folds, learn.seed, grouped, there_n)
        if training is None:
            return None
        p_nj, rows = self._predicted(training), training.trained_n
        agree = p_nj[rows].argmax(axis=1) == people.probabilities[rows].argmax(axis=1)
        return Trained(
            self._run(training),
            self.by,
            labels_of(self.evidence),
            int(rows.sum()),
            informs(p_nj[rows], people.probabilities[rows]),
            float(agree.mean()),
            len(self.given.items),
            self.made_by,
        )

    def _predicted(self, training: Training) -> Floats:
        """(N, J) of all folds; each that is not saved yet is trained, and saved."""
        from hitl.models.learning.classifiers import classifier

        learner = classifier(str(self.settings.learn.model), None if self.inputs is None else self._inputs())
        run, folds = self._run(training), training.parts
        saved = self.store.predicted(self.lease.project, self.question, run)
        p_nj = np.full(training.q_nj.shape, np.nan)
        for done, fold in enumerate(folds):
            self.progress("train", done, len(folds))
            rows = np.flatnonzero(training.fold_n == fold)
            if fold in saved:
                p_nj[rows] = _read(self.evidence.annotations, saved[fold])
                continue
            p_nj[rows] = training.predict(learner, fold)
            self.store.save_predicted(self.lease, self.question, run, fold, self._table(rows, p_nj[rows]))
        self.progress("train", len(folds), len(folds))
        return p_nj

    def _run(self, training: Training) -> str:
        """A digest of all that the predictions depend on."""
        seen = training.evidence.features if self.inputs is None else None
        found = sha256(repr((self.by, self.made_by, self.evidence.annotations.items, self.inputs)).encode())
        given = self.given.labels(), self.given.held
        for array in (*given, training.q_nj, training.fold_n, *([] if seen is None else [seen])):
            found.update(np.ascontiguousarray(array).data)
        return found.hexdigest()[:32]

    def _inputs(self) -> npt.NDArray[np.object_]:
        """(N,) what an estimator of one's own is given of each item; None where there is nothing."""
        assert self.inputs is not None
        return np.array([self.inputs.get(item) for item in self.evidence.annotations.items], dtype=object)

    def _table(self, rows: Any, p_rj: Floats) -> pa.Table:
        import pyarrow as pa

        annotations = self.evidence.annotations
        items = [annotations.items[row] for row in rows]
        columns: dict[str, Any] = {"item": items, **self.given.columns(items)}
        return pa.table(columns | {f"p_{name}": p_rj[:, j] for j, name in enumerate(annotations.classes)})


def _read(annotations: Annotations, table: pa.Table) -> Floats:
    """(R, J) as they were saved, in the order of the rows."""
    return np.stack([np.asarray(table.column(f"p_{name}")) for name in annotations.classes], axis=1)
