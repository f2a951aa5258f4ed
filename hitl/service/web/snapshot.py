"""Build the data that the pages of a project read. It is built outside of requests and replaced in one step.

    Snapshot        settings, questions, items, plan, runs: as they were in the store at one moment
    QuestionView    evidence and consensus of one question, with the orders and counts that pages need

Items have the user's own ids, as in reports. Everything that would be slower than a lookup for a million items is
computed here once, so that no request waits for it.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hitl.active.pool_state import PoolState
from hitl.active.stopping.rules import OPEN
from hitl.annotations import Floats, Ints, Name
from hitl.connectors.label_studio.predictions import SUGGESTS
from hitl.errors import BadEvidence, IgnoredEvidence
from hitl.learning.suggestions import without_copies
from hitl.metrics import DIGITS, expected_accuracy
from hitl.models.analysis.anchoring import is_blind, model_answers
from hitl.models.analysis.information import information
from hitl.models.combiner import Applicable, has_basis, name_of, seen_by
from hitl.models.registry import chosen
from hitl.operations import consensus_rows, named_plan, named_result
from hitl.plan import DoneItems
from hitl.platform import silent
from hitl.project import budget_of, combined, is_over, item_names, one_fit, stored_evidence, stored_questions
from hitl.report.contents import QuestionPage
from hitl.report.measures import contested, typical_confusions
from hitl.report.stored import text_of

if TYPE_CHECKING:
    from hitl.active.stopping.rules import Expected
    from hitl.consensus import Consensus
    from hitl.evidence import Evidence
    from hitl.plan import Plan
    from hitl.settings import Settings
    from hitl.store import CycleSummary, Store

NOWHERE = -1  # index of an item or annotator that is missing

Rows = npt.NDArray[np.intp]
Mask = npt.NDArray[np.bool_]


class _Prepared:
    """Base of classes whose cached properties are computed in advance, so that no request waits for them."""

    def prepare(self) -> None:
        for name, value in vars(type(self)).items():
            if isinstance(value, cached_property):
                getattr(self, name)


@dataclass(frozen=True, eq=False)
class QuestionView(_Prepared):
    """One question as the pages show it.

    Attributes:
        page: evidence and consensus over the same N items; reports use it too.
        truth: (N,) known class codes, -1 if unknown.
        changed: (N,) how much the item's class probabilities have moved since the last run (total variation distance),
            in [0, 1]; 0 for all items right after a run.
    """

    page: QuestionPage
    truth: Ints
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
    def is_contested(self) -> Mask:
        """(N,) mask of contested items (`hitl.report.measures.contested`)."""
        flags = np.zeros(len(self.consensus.items), bool)
        flags[contested(self.evidence, self.consensus)] = True
        return flags

    @cached_property
    def has_label(self) -> Mask:
        """(N,) True for items whose label rests on something (`hitl.models.combiner.has_basis`)."""
        return has_basis(self.evidence, self.consensus)

    @cached_property
    def by_confidence(self) -> Rows:
        """Indices of all items, the least confident first."""
        return np.argsort(self.consensus.confidence, kind="stable")

    @cached_property
    def by_change(self) -> Rows:
        """Indices of all items, the most changed first."""
        return np.argsort(-self.changed, kind="stable")

    @cached_property
    def expected(self) -> Expected | None:
        """Believed accuracy of the labels; None without items."""
        return expected_accuracy((self.evidence, self.consensus)) if len(self.consensus.items) else None

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
        """(K,) bits of information in one label by each annotator."""
        return information(self.consensus.annotators.confusion, self.consensus.annotators.shares)

    @cached_property
    def reported_place(self) -> Mapping[str, int]:
        """Annotator's name as text -> index in `consensus.annotators`."""
        return {str(name): k for k, name in enumerate(self.consensus.annotators.names)}

    @cached_property
    def annotator_place(self) -> Mapping[str, int]:
        """Annotator's name as text -> index in `evidence.annotations.annotators`."""
        return {str(name): code for code, name in enumerate(self.evidence.annotations.annotators)}

    def rows_of(self, annotator: str) -> npt.NDArray[np.int64]:
        """Return the indices of this annotator's labels in `evidence.annotations`; empty for an unknown name."""
        code = self.annotator_place.get(annotator)
        start, order = self.evidence.annotations.by_annotator
        return order[:0] if code is None else order[start[code] : start[code + 1]]


@dataclass(frozen=True, eq=False)
class Snapshot(_Prepared):
    """A project as it was in the store at one moment.

    Attributes:
        settings: settings from the project's hitl.toml.
        revision: revision of the stored data (`Store.revision`).
        views: question -> its evidence and consensus.
        keys: the platform's keys of the N items, in the order of the arrays.
        names: the user's own ids of the same items, as text.
        texts: content of these items as annotators see it, in one line each.
        plan: plan of the last run, with the user's own ids; None before the first run.
        cycles: all stored runs, oldest first.
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
    def number(self) -> int:
        """Number of the last run; 0 before the first."""
        return self.cycles[-1].number if self.cycles else 0

    @cached_property
    def counts(self) -> dict[str, int]:
        """Number of items, labels, annotators with labels and gold items, counted as in `Store.counts`."""
        tables = [view.evidence.annotations for view in self.views.values()]
        labeling = {each.annotators[k] for each in tables for k in np.flatnonzero(each.labels_per_annotator)}
        known = np.zeros(len(self.keys), bool)
        for view in self.views.values():
            known |= view.truth >= 0
        labels = sum(map(len, tables))
        return {
            "items": len(self.keys), "labels": labels, "annotators_with_labels": len(labeling), "gold": int(known.sum())
        }  # fmt: skip

    @cached_property
    def item_place(self) -> Mapping[str, int]:
        """User's own id as text -> index of the item."""
        return {name: row for row, name in enumerate(self.names.to_pylist())}

    @cached_property
    def key_place(self) -> Mapping[str, int]:
        """Platform's key -> index of the item."""
        return {key: row for row, key in enumerate(self.keys)}

    @cached_property
    def is_done_in(self) -> dict[str, Mask]:
        """Question -> (N,) mask of items that are done in this question."""
        pool = PoolState.of([(one.evidence, one.consensus) for one in self.views.values()], budget_of(self.settings))
        return dict(zip(self.views, pool.states != OPEN, strict=True))

    @cached_property
    def is_done(self) -> Mask:
        """(N,) mask of items that are done according to the plan, in all questions."""
        done = np.zeros(len(self.keys), bool)
        if self.plan is not None:
            rows = [self.item_place.get(str(item), NOWHERE) for item in DoneItems.of(self.plan.done).items]
            done[[row for row in rows if row != NOWHERE]] = True
        return done

    @cached_property
    def suggestions(self) -> Suggestions:
        """Suggestions of Label Studio's model backend."""
        return Suggestions(self)

    def view(self, question: str | None) -> QuestionView:
        """Return the view of this question; None: the first one. Raises KeyError."""
        return next(iter(self.views.values())) if question is None else self.views[question]


def snapshot_of(settings: Settings, store: Store) -> Snapshot:
    """Read the project as it is stored now.

    If labels have arrived since the last run, the parameters it fitted are applied to them. Nothing is recorded. Raises
    BadInput before the first pull.
    """
    project, revision, latest = settings.name, store.revision(settings.name), store.latest(settings.name)
    before = {} if latest is None else latest[0]
    evidence = stored_evidence(settings, store, stored_questions(settings, store))
    results = current_results(settings, store, evidence, before)
    names, table = item_names(settings, store), store.items(project)
    keys = tuple(table.column("item").to_pylist())
    texts = [text_of(json.loads(data)) for data in table.column("data").to_pylist()]
    snapshot = Snapshot(
        settings,
        revision,
        {
            name: _view(settings, name, known, results[name], names, before.get(name))
            for name, known in evidence.items()
        },
        keys,
        pa.array([str(names[key]) for key in keys], pa.string()),
        pa.array(texts, pa.large_string()),
        None if latest is None else named_plan(latest[1], names),
        tuple(store.cycles(project)),
    )
    for view in snapshot.views.values():
        view.prepare()
        _ = view.consensus.annotators.interval, view.consensus.codes, view.evidence.annotations.by_annotator  # cached
    snapshot.prepare()
    return snapshot


def current_results(
    settings: Settings, store: Store, evidence: Mapping[str, Evidence], before: Mapping[str, Consensus]
) -> dict[str, Consensus]:
    """Return question -> consensus. Apply the last run's consensus to newer labels, or fit a new one if impossible."""
    last = store.last_cycle(settings.name)
    unchanged = last is not None and last.revision == store.revision(settings.name)
    results, fitted = {}, evidence if unchanged else without_copies(settings, store, evidence)
    for name, known in evidence.items():
        learned, annotations = before.get(name), known.annotations
        method = chosen(*settings.combine.of(name).arguments)
        if learned is not None and unchanged and is_over(learned, known):
            results[name] = learned
            continue
        if (
            learned is not None
            and known.parts is None
            and isinstance(method, Applicable)
            and learned.fit.method == name_of(method)
            and (learned.classes, learned.annotators.options) == (annotations.classes, annotations.options)
        ):
            with one_fit, suppress(BadEvidence), warnings.catch_warnings():
                warnings.simplefilter("ignore", IgnoredEvidence)  # the run has already warned
                results[name] = method.apply(learned, seen_by(method, fitted[name]))
                continue
        results[name] = combined(settings, store, {name: known}, silent)[name]
    return results


def _view(
    settings: Settings,
    question: str,
    evidence: Evidence,
    consensus: Consensus,
    names: Mapping[str, str],
    before: Consensus | None,
) -> QuestionView:
    annotations = evidence.annotations
    items: tuple[Name, ...] = tuple(names.get(str(item), item) for item in annotations.items)
    named = replace(evidence, annotations=replace(annotations, items=items))
    result, least = named_result(consensus, names), settings.crew.least_accuracy
    page = QuestionPage(question, named, result, least_accuracy=least)
    truth = np.full(len(items), NOWHERE, np.int32) if evidence.truth is None else evidence.truth
    return QuestionView(page, truth, _moved(consensus, before))


def _moved(now: Consensus, before: Consensus | None) -> Floats:
    """Return (N,) total variation distances between the probabilities, in [0, 1].

    The distance is 1 for a new item, and 0 for all items without a former consensus on the same classes.
    """
    if before is None or before.classes != now.classes:
        return np.zeros(len(now.items))
    if before.items == now.items:
        return np.asarray(np.abs(now.probabilities - before.probabilities).sum(axis=1) / 2)
    row = {item: n for n, item in enumerate(before.items)}
    place = np.array([row.get(item, NOWHERE) for item in now.items])
    moved, there = np.ones(len(now.items)), place >= 0
    moved[there] = np.abs(now.probabilities[there] - before.probabilities[place[there]]).sum(axis=1) / 2
    return moved


# -- suggestions -------------------------------------------------------------------------------------------

Answer = Mapping[str, Any]


class Suggestions:
    """Answers that Label Studio's model backend suggests. `serve.suggest` selects where they come from.

        model       predictions of the project's models; annotators' answers to the item itself are not used
        consensus   consensus of all annotators and models; nothing for gold items, which measure annotators
        never       nothing

    Nothing is suggested for items that are drawn to be answered blind (`serve.blind_share`).

    A suggestion is an answer per question, in the form of a row of the operation `consensus`
    (`hitl.platform.Operation`).
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot, self.kind = snapshot, snapshot.settings.serve.suggest
        self.blind_share = snapshot.settings.serve.blind_share
        # Label Studio asks once per version, so the version changes when the suggestions do.
        since = {"model": _digest(snapshot), "consensus": f"{snapshot.number}-{snapshot.revision}"}.get(self.kind)
        self.version = f"{SUGGESTS}{self.kind}" + ("" if since is None else f"-{self.blind_share:g}-{since}")
        views = snapshot.views if self.kind == "consensus" else {}
        evidence = {name: view.evidence for name, view in views.items() if view.evidence.parts is not None}
        rows = consensus_rows(evidence, {name: views[name].consensus for name in evidence})
        gold = {str(known.annotations.items[n]) for known in evidence.values() for n in np.flatnonzero(known.known)}
        self._parts = {name: {row["item"]: row for row in of if row["item"] not in gold} for name, of in rows.items()}

    def of(self, key: str) -> dict[str, Answer]:
        """Return question -> suggested answer for the item with this platform key. Empty if nothing is suggested."""
        row = self.snapshot.key_place.get(key)
        if row is None or self.kind == "never" or is_blind(self.snapshot.settings.name, key, self.blind_share):
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


def _of_all(view: QuestionView, row: int) -> Answer | None:
    """Return the consensus on an item. None for gold items, and for items without labels and predictions."""
    known = view.evidence
    if known.known[row] or not (known.annotations.labels_per_item[row] or known.predicted[row]):
        return None
    return _row(view, int(view.consensus.codes[row]), view.consensus.probabilities[row])


def _of_models(view: QuestionView, row: int) -> Answer | None:
    """Return the mean prediction of the models, each recalibrated by its temperature. None if all abstain."""
    p_j = model_answers(view.evidence, view.consensus.temperatures, slice(row, row + 1))[0]
    return None if np.isnan(p_j[0]) else _row(view, int(p_j.argmax()), p_j)


def _row(view: QuestionView, label: int, p_j: Floats) -> Answer:
    return {"label": str(view.consensus.classes[label]), "confidence": round(float(p_j[label]), DIGITS)}


def _digest(snapshot: Snapshot) -> str:
    digest = hashlib.blake2b(digest_size=6)
    for question, view in snapshot.views.items():
        for model, p_nj in view.evidence.probabilities.items():
            digest.update(repr((question, model, p_nj.shape)).encode())
            digest.update(np.ascontiguousarray(p_nj).data)
    return digest.hexdigest()
