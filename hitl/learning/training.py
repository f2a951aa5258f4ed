"""Train the model of `[learn]` on the labels of a project, and add its predictions to the evidence.

    refresh             train fold by fold -> store, if enough has changed; resumes after an interruption
    with_predictions    store -> evidence with one more model, if its predictions are informative

A training uses the consensus of annotators (and other models) as soft labels, and its predictions enter the consensus
of the same run. No prediction depends on the labels of its item: an item with labels is predicted by a model that was
trained on the other folds, and an item labeled later was not in the training data.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hitl.annotations import Name
from hitl.errors import BadSettings
from hitl.formatting import expected_fields
from hitl.platform import Progress, silent
from hitl.store.learned import Training as StoredTraining

if TYPE_CHECKING:
    from hitl.annotations import Annotations, Floats
    from hitl.evidence import Evidence
    from hitl.models.learning.learned import Training
    from hitl.settings import Settings
    from hitl.store import Lease, Store


COLUMNS = ("labels", "labels_digest", "input_digest")


def refresh(
    lease: Lease,
    settings: Settings,
    store: Store,
    evidence: Mapping[str, Evidence],
    progress: Progress = silent,
    *,
    force: bool = False,
) -> dict[str, StoredTraining]:
    """Train for the questions with enough changes since their last training, or for all if `force`.

    Enough has changed if the changed labels (or items) are more than the share `learn.growth` of those in the last
    training, or if the settings or the code of the training or of the features changed. Labels and items count as
    changed if they are new, gone or edited.

    `evidence` covers annotators and other models. Return question -> new training. A question with too little data
    keeps its last training, if any. Raises BadSettings if the model needs features and there are none.
    """
    learn = settings.learn
    if learn.model is None:
        return {}
    before, complete = store.trainings(settings.name), dict[str, StoredTraining]()
    groups = _field_values(settings, store, "groups", learn.groups)
    inputs = _field_values(settings, store, "field", learn.field)
    contents, code = _contents(settings, store, inputs, groups), _code_digest(settings, store)
    for question, known in evidence.items():
        if known.parts is not None:  # a model of whole items cannot predict their parts
            continue
        if known.features is None and learn.field is None:
            raise BadSettings("learn.model needs features of the items; expected [features] with text, columns, ...")
        learnable_n = known.featured if inputs is None else np.array([x in inputs for x in known.annotations.items])
        record, made_from = (
            TrainingRecord.from_evidence(known, learnable_n, contents),
            _settings_digest(settings, known),
        )
        last = before.get(question)
        last = last if last is not None and last.settings == made_from else None
        has_changed = force or last is None or code not in (last.made_by, None)
        if last is not None and not has_changed:
            trained_on = TrainingRecord.from_tables(store.predicted(settings.name, question, last.run).values())
            labels, items = record.changes_since(trained_on)
            has_changed = labels > learn.growth * last.labels or items > learn.growth * len(trained_on.rows)
        if has_changed:
            steps = _TrainingRun(lease, settings, store, question, known, made_from, code, record, progress, inputs)
            # Keep the last training if there is too little data now, such as labels of only one class.
            last = steps.run(groups) or last
        if last is not None:
            complete[question] = last
    if complete != before:
        store.note_trainings(lease, complete)
    return {name: training for name, training in complete.items() if before.get(name) != training}


def with_predictions(settings: Settings, store: Store, question: str, evidence: Evidence) -> Evidence:
    """Add the predictions of the last training to the evidence, if informative and made with the current settings."""
    from hitl.models.learning.learned import NAME
    from hitl.models.predictors.features import align

    last = store.trainings(settings.name).get(question) if settings.learn.model is not None else None
    if last is None or not last.informs or last.settings != _settings_digest(settings, evidence):
        return evidence
    annotations = evidence.annotations
    tables = store.predicted(settings.name, question, last.run).values()
    p_mj = np.concatenate([np.empty((0, annotations.n_classes)), *(_read(annotations, table) for table in tables)])
    p_nj = align([item for table in tables for item in table.column("item").to_pylist()], p_mj, annotations.items)
    return replace(evidence, probabilities={**evidence.probabilities, NAME: p_nj})


def _contents(
    settings: Settings, store: Store, inputs: Mapping[Name, str] | None, groups: Mapping[Name, str] | None
) -> dict[Name, str]:
    """Return item -> a text that changes if the item's inputs or group change."""
    note = store.features_note(settings.name) if inputs is None else None
    digests = store.vector_digests(settings.name, note.space) if note is not None else inputs or {}
    return {item: repr((digest, groups and groups.get(item))) for item, digest in digests.items()}


def _code_digest(settings: Settings, store: Store) -> str | None:
    """Return a digest of the user's training code and of the model that computes features.

    Return None if the code is not found, for instance on a machine that only shows the predictions.
    """
    from hitl.models.predictors.features import digest_of
    from hitl.models.predictors.loading import source_digest

    place = str(settings.learn.model).rpartition(":")[0]
    code = source_digest(place) if place else ""
    note = store.features_note(settings.name) if settings.learn.field is None else None
    return None if code is None else digest_of(code, note and note.model)


def _settings_digest(settings: Settings, evidence: Evidence) -> str:
    """Return a digest of the settings of model, features and combiner, and of the classes."""
    from hitl.models.predictors.features import digest_of

    learn = settings.learn.model_dump_json(exclude={"growth"})
    features = settings.features.model_dump_json(exclude={"folder", "device", "missing"})
    return digest_of(learn, features, settings.combine.model_dump_json(), evidence.annotations.classes)


def _field_values(settings: Settings, store: Store, key: str, field: str | None) -> dict[Name, str] | None:
    """Return item -> value of a field of its data, for items with a value; None if `field` is None.

    Raises BadSettings if no item has the field. `key`: name of the setting, for messages.
    """
    if field is None:
        return None
    items = store.items(settings.name)
    data = [json.loads(text) for text in items.column("data").to_pylist()]
    if not any(field in values for values in data):
        raise BadSettings(f"learn.{key}: no item has the field {field!r}; {expected_fields(field, data)}")
    pairs = zip(items.column("item").to_pylist(), (values.get(field) for values in data), strict=True)
    return {item: str(value) for item, value in pairs if value not in (None, "")}


@dataclass(frozen=True, slots=True)
class _TrainingRun:
    """One training for one question."""

    lease: Lease
    settings: Settings
    store: Store
    question: str
    evidence: Evidence
    made_from: str
    code: str | None
    record: TrainingRecord
    progress: Progress
    inputs: Mapping[Name, str] | None

    def run(self, groups: Mapping[Name, str] | None) -> StoredTraining | None:
        """Train the folds that are not stored yet. Return None if there is too little data."""
        from hitl.models.combine import fit
        from hitl.models.combiner import seen_by
        from hitl.models.learning.classifiers import classifier
        from hitl.models.learning.learned import is_informative, plan_training
        from hitl.models.registry import chosen

        learn, combine = self.settings.learn, self.settings.combine.of(self.question)
        annotations = self.evidence.annotations
        method = chosen(*combine.arguments)
        q_nj = fit(method, seen_by(method, self.evidence)).probabilities
        group_n = None if groups is None else [groups.get(item) for item in annotations.items]
        input_n = learnable_n = None
        if self.inputs is not None:
            input_n = np.array([self.inputs.get(item) for item in annotations.items], dtype=object)
            learnable_n = np.array([x is not None for x in input_n])
        training = plan_training(self.evidence, q_nj, learn.folds, learn.seed, group_n, learnable_n)
        if training is None:
            return None
        run, rows = self._digest(training), training.trained_n
        stored, folds = self.store.predicted(self.lease.project, self.question, run), training.folds
        learner, p_nj = classifier(str(learn.model), input_n), np.full(q_nj.shape, np.nan)
        for done, fold in enumerate(folds):
            self.progress("train", done, len(folds))
            of_fold = np.flatnonzero(training.fold_n == fold)
            if fold in stored:
                p_nj[of_fold] = _read(annotations, stored[fold])
                continue
            p_nj[of_fold] = training.predict(learner, fold)
            items = [annotations.items[row] for row in of_fold]
            columns: dict[str, Any] = {"item": items, **self.record.columns(items)}
            columns |= {f"p_{name}": p_nj[of_fold, j] for j, name in enumerate(annotations.classes)}
            self.store.save_predicted(self.lease, self.question, run, fold, pa.table(columns))
        self.progress("train", len(folds), len(folds))
        return StoredTraining(
            run,
            self.made_from,
            labels=len(annotations) + int(self.evidence.known.sum()),
            items=int(rows.sum()),
            informs=is_informative(p_nj[rows], q_nj[rows]),
            agreement=float((p_nj[rows].argmax(axis=1) == q_nj[rows].argmax(axis=1)).mean()),
            made_by=self.code,
        )

    def _digest(self, training: Training) -> str:
        """Return a digest of everything that the predictions depend on."""
        features = training.evidence.features if self.inputs is None else None
        digest = sha256(repr((self.made_from, self.code, self.evidence.annotations.items, self.inputs)).encode())
        digest.update(self.record.digest())
        for array in (training.q_nj, training.fold_n, *([] if features is None else [features])):
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()[:32]


def _read(annotations: Annotations, table: pa.Table) -> Floats:
    """Return (R, J) stored predictions, in the order of the table's rows and of the classes."""
    return np.stack([np.asarray(table.column(f"p_{name}")) for name in annotations.classes], axis=1)


# -- what has changed since a training ---------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class TrainingRecord:
    """Digests of the inputs of a training, by item, to count later changes. Stored beside the predictions.

    `rows`: item -> number of labels (ground truth counts as one), digest of the labels, digest of inputs and group. An
    edited label changes only the digest of the labels, a new features file only the digest of the inputs.
    """

    rows: Mapping[Name, tuple[int, int, int]]

    @classmethod
    def from_evidence(
        cls, evidence: Evidence, learnable_n: npt.NDArray[np.bool_], contents: Mapping[Name, str]
    ) -> TrainingRecord:
        """Record the items in the mask `learnable_n`. `contents`: item -> a text that changes with its inputs."""
        annotations, known_n, truth = evidence.annotations, evidence.known, evidence.truth
        assert truth is not None
        who, what = _hashes(annotations.annotators), _hashes(annotations.options)
        digest_n = np.zeros(annotations.n_items, np.uint64)
        np.add.at(digest_n, annotations.item, who[annotations.annotator] * what[annotations.label])
        digest_n[known_n] += _hashes(("truth", name) for name in annotations.classes)[truth[known_n]]
        count_n = annotations.labels_per_item + known_n
        items = [annotations.items[n] for n in np.flatnonzero(learnable_n)]
        inputs = _hashes(contents.get(item) for item in items)
        columns = (count_n[learnable_n].tolist(), digest_n[learnable_n].tolist(), inputs.tolist())
        return cls(dict(zip(items, zip(*columns, strict=True), strict=True)))

    @classmethod
    def from_tables(cls, tables: Iterable[pa.Table]) -> TrainingRecord:
        """Read the record from tables of stored predictions."""
        stored = [[table.column(name).to_pylist() for name in ("item", *COLUMNS)] for table in tables]
        return cls({item: (n, x, y) for columns in stored for item, n, x, y in zip(*columns, strict=True)})

    def columns(self, items: Sequence[Name]) -> dict[str, Any]:
        """Return the record of these items as columns of a table."""
        values = zip(*(self.rows[item] for item in items), strict=True)
        kinds = (pa.int64(), pa.uint64(), pa.uint64())
        return {name: pa.array(column, kind) for name, column, kind in zip(COLUMNS, values, kinds, strict=True)}

    def digest(self) -> bytes:
        """Return a digest of the whole record."""
        return sha256(repr(list(self.rows.items())).encode("utf-8", "surrogatepass")).digest()

    def changes_since(self, before: TrainingRecord) -> tuple[int, int]:
        """Return the number of labels that are new, edited or gone, and of items that are new, gone or changed.

        An item is changed if its inputs or its group changed. If an item has different labels but the same number as
        before, all of them count as edited.
        """
        added = removed = same_inputs = 0
        for item in {**self.rows, **before.rows}:
            (now, labels, inputs), (then, old_labels, old_inputs) = (
                record.rows.get(item, (0, 0, None)) for record in (self, before)
            )
            edited = now if now == then and labels != old_labels else 0
            added += max(now - then, 0) + edited
            removed += max(then - now, 0) + edited
            same_inputs += inputs == old_inputs
        return max(added, removed), max(len(self.rows), len(before.rows)) - same_inputs


def _hashes(values: Iterable[object]) -> npt.NDArray[np.uint64]:
    """Return 64-bit hashes, all odd, because multiplying by an odd number modulo 2^64 loses no information."""
    texts = (repr(value).encode("utf-8", "surrogatepass") for value in values)
    return np.array([int.from_bytes(sha256(text).digest()[:8], "little") | 1 for text in texts], dtype=np.uint64)
