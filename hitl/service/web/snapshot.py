"""Build what the pages of a project read: one value, made outside of requests and replaced as a whole.

    Snapshot        settings, questions, items, plan, runs: as they were in the store at one moment
    QuestionView    evidence and consensus of one question, with the orders and counts that pages need

Items have the user's own ids, as in reports. Everything slower than a lookup with a million items is computed here
once, so that no request waits for it.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hitl.annotations import Floats, Ints, Name
from hitl.errors import BadEvidence, BadInput, IgnoredEvidence
from hitl.metrics import expected_accuracy
from hitl.models.analysis.information import information
from hitl.models.combiner import Applicable, name_of, seen_by
from hitl.models.registry import chosen
from hitl.operations import named_plan, named_result
from hitl.plan import DoneItems
from hitl.platform import Question, silent
from hitl.project import combined, is_over, item_names, one_fit, stored_evidence
from hitl.report.contents import QuestionPage
from hitl.report.measures import contested, typical_confusions
from hitl.report.stored import asked_before, text_of

if TYPE_CHECKING:
    from hitl.active.stopping.rules import Expected
    from hitl.consensus import Consensus
    from hitl.evidence import Evidence
    from hitl.plan import Plan
    from hitl.service.web.backend.suggestions import Suggestions
    from hitl.settings import Settings
    from hitl.store import CycleSummary, Store

NOWHERE = -1
"""Index of an item or annotator that is missing."""


@dataclass(frozen=True, eq=False)
class QuestionView:
    """One question as the pages show it.

    Attributes:
        page: evidence and consensus over the same N items; reports use it too.
        truth: (N,) known class codes, -1 if unknown.
        settled: the consensus of the last run, by the platform's keys; None before the first.
        changed: (N,) how much the item's class probabilities have moved since the last run, in [0, 1]; 0 everywhere
            right after one.
    """

    page: QuestionPage
    truth: Ints
    settled: Consensus | None
    changed: Floats

    @property
    def evidence(self) -> Evidence:
        """Evidence on the question."""
        return self.page.evidence

    @property
    def consensus(self) -> Consensus:
        """Consensus on the question."""
        return self.page.consensus

    @cached_property
    def contested(self) -> npt.NDArray[np.intp]:
        """Indices of contested items, the least confident first (`hitl.report.measures.contested`)."""
        return contested(self.evidence, self.consensus)

    @cached_property
    def is_contested(self) -> npt.NDArray[np.bool_]:
        """(N,) mask of contested items."""
        flags = np.zeros(len(self.consensus.items), bool)
        flags[self.contested] = True
        return flags

    @cached_property
    def by_confidence(self) -> npt.NDArray[np.intp]:
        """Indices of all items, the least confident first."""
        return np.argsort(self.consensus.confidence, kind="stable")

    @cached_property
    def by_change(self) -> npt.NDArray[np.intp]:
        """Indices of all items, the most changed first."""
        return np.argsort(-self.changed, kind="stable")

    @cached_property
    def expected(self) -> Expected | None:
        """Expected accuracy of the labels; None without items."""
        return expected_accuracy((self.evidence, self.consensus)) if len(self.consensus.items) else None

    @cached_property
    def label_counts(self) -> npt.NDArray[np.int64]:
        """(J,) number of items with each label."""
        return np.bincount(self.consensus.labels, minlength=len(self.consensus.classes))

    @cached_property
    def n_labeling(self) -> int:
        """Number of annotators who have labeled."""
        return int((self.evidence.annotations.labels_per_annotator > 0).sum())

    @cached_property
    def typical_confusions(self) -> tuple[Ints, Ints, Floats]:
        """(K,) true class, answer and probability of each annotator's most frequent error."""
        report = self.consensus.annotators
        return typical_confusions(report.confusion, report.shares)

    @cached_property
    def bits(self) -> Floats:
        """(K,) bits of information per label of each annotator."""
        return information(self.consensus.annotators.confusion, self.consensus.annotators.shares)

    @cached_property
    def reported_place(self) -> Mapping[str, int]:
        """Annotator's name as text -> row in the consensus."""
        return {str(name): k for k, name in enumerate(self.consensus.annotators.names)}

    def rows_of(self, annotator: int) -> npt.NDArray[np.int64]:
        """Return the rows of the labels of the annotator with this code."""
        start, order = self.evidence.annotations.by_annotator
        return order[start[annotator] : start[annotator + 1]]

    @cached_property
    def annotator_place(self) -> Mapping[str, int]:
        """Annotator's name as text -> code in the evidence."""
        return {str(name): code for code, name in enumerate(self.evidence.annotations.annotators)}

    def prepare(self) -> None:
        """Compute in advance what pages would wait for."""
        for name in ("is_contested", "by_confidence", "by_change", "expected", "label_counts", "annotator_place"):
            getattr(self, name)
        for name in ("n_labeling", "typical_confusions", "bits", "reported_place"):
            getattr(self, name)
        for kept in (self.evidence.annotations.by_annotator, self.consensus.annotators.interval):
            del kept  # the arrays cache it


@dataclass(frozen=True, eq=False)
class Snapshot:
    """A project as it was in the store at one moment.

    Attributes:
        settings: from its hitl.toml.
        revision: revision of the stored data (`Store.revision`).
        views: question -> its evidence and consensus.
        keys: the platform's keys of the N items, in the order of the arrays.
        names: the user's own ids of the same items, as text.
        texts: their content as annotators see it, as one line.
        plan: of the last run, by own ids; None before the first.
        cycles: the history, oldest first.
    """

    settings: Settings
    revision: int
    views: Mapping[str, QuestionView]
    keys: tuple[str, ...]
    names: pa.StringArray
    texts: pa.LargeStringArray
    plan: Plan | None
    cycles: tuple[CycleSummary, ...]

    @property
    def project(self) -> str:
        """Name of the project."""
        return self.settings.name

    @property
    def number(self) -> int:
        """Number of the last run; 0 before the first."""
        return self.cycles[-1].number if self.cycles else 0

    @cached_property
    def counts(self) -> dict[str, int]:
        """Counts of items, labels, annotators with labels and gold items, as `Store.counts` counts them."""
        held = [view.evidence.annotations for view in self.views.values()]
        given = {each.annotators[k] for each in held for k in np.flatnonzero(each.labels_per_annotator)}
        known = np.zeros(len(self.keys), bool)
        for view in self.views.values():
            known |= view.truth >= 0
        labels = sum(len(each) for each in held)
        return {
            "items": len(self.keys),
            "labels": labels,
            "annotators_with_labels": len(given),
            "gold": int(known.sum()),
        }

    @cached_property
    def item_place(self) -> Mapping[str, int]:
        """Own id as text -> row."""
        return {name: row for row, name in enumerate(self.names.to_pylist())}

    @cached_property
    def is_done(self) -> npt.NDArray[np.bool_]:
        """(N,) mask of items that are done in the last plan."""
        done = np.zeros(len(self.keys), bool)
        if self.plan is not None:
            place = self.item_place
            rows = [place.get(str(item), NOWHERE) for item in DoneItems.of(self.plan.done).items]
            done[[row for row in rows if row != NOWHERE]] = True
        return done

    @cached_property
    def key_place(self) -> Mapping[str, int]:
        """Platform's key -> row."""
        return {key: row for row, key in enumerate(self.keys)}

    @cached_property
    def suggestions(self) -> Suggestions:
        """Suggestions of Label Studio's model backend, cached with the snapshot."""
        from hitl.service.web.backend.suggestions import Suggestions

        return Suggestions(self)

    def view(self, question: str | None) -> QuestionView:
        """Return the question of this name; None: the first one. Raises KeyError."""
        if question is None:
            return next(iter(self.views.values()))
        return self.views[question]


def questions_of(store: Store, project: str) -> tuple[Question, ...]:
    """Return the questions of the last run. Raises BadInput before the first."""
    latest = store.latest(project)
    if latest is None:
        raise BadInput(f"project {project!r}: no cycle yet; run `hitl run` first")
    return asked_before(latest[0])


def snapshot_of(settings: Settings, store: Store, questions: tuple[Question, ...] | None = None) -> Snapshot:
    """Read the project as it is stored now; `questions` None: those of the last run.

    If labels came since the last run, its fitted parameters are applied to them; nothing is recorded. Raises BadInput
    if nothing is stored, or, without `questions`, before the first run.
    """
    project, revision = settings.name, store.revision(settings.name)
    evidence = stored_evidence(settings, store, questions or questions_of(store, project))
    results = current_results(settings, store, evidence)
    names, latest = item_names(settings, store), store.latest(project)
    before = {} if latest is None else latest[0]
    views = {name: _view(name, known, results[name], names, before.get(name)) for name, known in evidence.items()}
    keys, texts = _texts(store, project, names)
    found = Snapshot(
        settings,
        revision,
        views,
        keys,
        pa.array([str(names[key]) for key in keys], pa.string()),
        texts,
        None if latest is None else named_plan(latest[1], names),
        tuple(store.cycles(project)),
    )
    for view in found.views.values():
        view.prepare()
    for name in ("counts", "item_place", "key_place", "is_done"):
        getattr(found, name)
    return found


def current_results(settings: Settings, store: Store, evidence: Mapping[str, Evidence]) -> dict[str, Consensus]:
    """Return the last run's consensus of each question, applied to newer labels. Fit it if it cannot be applied."""
    latest, last = store.latest(settings.name), store.last_cycle(settings.name)
    before = {} if latest is None else latest[0]
    unchanged = last is not None and last.revision == store.revision(settings.name)
    method = chosen(settings.combine.method, settings.combine.options, settings.combine.paper)
    results = {}
    for name, known in evidence.items():
        learned, annotations = before.get(name), known.annotations
        if learned is not None and unchanged and is_over(learned, known):
            results[name] = learned
            continue
        applies = (
            learned is not None
            and known.parts is None
            and isinstance(method, Applicable)
            and learned.fit.method == name_of(method)
            and (learned.classes, learned.annotators.options) == (annotations.classes, annotations.options)
        )
        if applies:
            assert learned is not None
            assert isinstance(method, Applicable)
            with one_fit, suppress(BadEvidence), warnings.catch_warnings():
                warnings.simplefilter("ignore", IgnoredEvidence)  # the run has already warned
                results[name] = method.apply(learned, seen_by(method, known))
                continue
        results[name] = combined(settings, {name: known}, silent)[name]
    return results


def _view(
    question: str, evidence: Evidence, consensus: Consensus, names: Mapping[str, str], before: Consensus | None
) -> QuestionView:
    annotations = evidence.annotations
    items: tuple[Name, ...] = tuple(names.get(str(item), item) for item in annotations.items)
    known = replace(evidence, annotations=replace(annotations, items=items))
    page = QuestionPage(question, known, named_result(consensus, names))
    truth = np.full(len(items), NOWHERE, np.int32) if known.truth is None else known.truth
    return QuestionView(page, truth, before, _moved(consensus, before))


def _moved(now: Consensus, before: Consensus | None) -> Floats:
    """Return (N,) total variation distances between the probabilities, in [0, 1]; 1 for a new item."""
    if before is None or before.classes != now.classes:
        return np.zeros(len(now.items))
    if before.items == now.items:
        return np.asarray(np.abs(now.probabilities - before.probabilities).sum(axis=1) / 2)
    row = {item: n for n, item in enumerate(before.items)}
    place = np.array([row.get(item, NOWHERE) for item in now.items])
    moved = np.ones(len(now.items))
    there = place >= 0
    moved[there] = np.abs(now.probabilities[there] - before.probabilities[place[there]]).sum(axis=1) / 2
    return moved


def _texts(store: Store, project: str, names: Mapping[str, str]) -> tuple[tuple[str, ...], pa.LargeStringArray]:
    table = store.items(project)
    keys = tuple(table.column("item").to_pylist())
    shown = [text_of(json.loads(data)) for data in table.column("data").to_pylist()]
    return keys, pa.array(shown, pa.large_string())
