"""What is believed of a project's items, label by label.

    load        evidence and consensus as the store has them: those of the last cycle; where labels came since, its
                consensus brought up to date with them, or, where the method cannot do that, fitted anew
    take_in     what a pull changed of a few items, applied label by label to the questions whose method follows labels
    belief      of one item, at once

A cycle's consensus stays the truth: the next load begins from it, and what was believed until then is compared with it.
All methods are for one thread, but `belief`.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from hitl.annotations import Floats, Name
from hitl.errors import BadEvidence, IgnoredEvidence
from hitl.models.combiner import Applicable, Combiner, name_of, seen_by
from hitl.models.registry import chosen
from hitl.platform import silent
from hitl.project import annotator_names, combined, is_over, one_fit, stored_evidence
from hitl.service.web.projects import Difference, Now

if TYPE_CHECKING:
    from hitl.consensus import Consensus
    from hitl.evidence import Evidence
    from hitl.platform import Page, Question
    from hitl.settings import Settings
    from hitl.store import Store

AT_ONCE = 5_000
"""So many changed labels are taken in one by one; more are loaded."""

TOLERANCE = 1e-6
"""Probabilities of a model that differ by no more are the same."""


@dataclass
class Heard:
    """What the pages of a pull were about; `live`: how many items there are, where that was told."""

    items: dict[str, None] = field(default_factory=dict)
    annotators: dict[str, str] = field(default_factory=dict)
    live: int | None = None

    def page(self, page: Page) -> None:
        """A page that was saved."""
        self.items |= dict.fromkeys(row.key for row in page.items)
        self.items |= dict.fromkeys(row.item for row in page.annotations)
        self.items |= dict.fromkeys(row.item for row in page.predictions)
        self.annotators |= {row.key: row.name for row in page.annotators}
        self.live = self.live if page.live is None else len(page.live)


@dataclass(eq=False)
class _Live:
    """One question.

    Attributes:
        known, result: evidence and consensus at the last load; row: item -> its place in both.
        said: item -> annotator -> label, of the items that have changed since.
        beliefs: item -> what is believed of it, of the same items.
    """

    known: Evidence
    result: Consensus
    row: Mapping[Name, int]
    said: dict[Name, dict[Name, Name]] = field(default_factory=dict)
    beliefs: dict[Name, Floats] = field(default_factory=dict)

    def labels_of(self, row: int) -> dict[Name, Name]:
        """annotator -> label, of one item at the last load."""
        labels = self.known.annotations
        rows = slice(labels.item_start[row], labels.item_start[row + 1])
        who, what = labels.annotator[rows].tolist(), labels.label[rows].tolist()
        return {labels.annotators[k]: labels.options[o] for k, o in zip(who, what, strict=True)}


class Beliefs:
    """The beliefs of one project; by the platform's keys of items and the shown names of annotators.

    Attributes:
        differences: question -> how far the live beliefs were from the last cycle that came while they were followed.
    """

    def __init__(self, settings: Settings, store: Store) -> None:
        self._settings, self._store = settings, store
        self._method: Combiner = chosen(settings.combine.method, settings.combine.options, settings.combine.paper)
        self._questions: dict[str, _Live] = {}
        self._row: dict[Name, int] = {}
        self._named: dict[str, str] = {}
        self._shown: dict[str, str] = {}
        self._cycle = 0
        self.differences: dict[str, Difference] = {}

    # -- loading -------------------------------------------------------------------------------------------

    def load(
        self, questions: tuple[Question, ...], cycle: int, revision: int
    ) -> tuple[dict[str, Evidence], dict[str, Consensus]]:
        """Evidence and consensus of each question as they are stored now.

        `cycle`: the number of the last one; `revision`: how often the store had changed before. Raises what
        `stored_evidence` and a fit raise; what was believed before then stays.
        """
        store, project = self._store, self._settings.name
        named, shown = self._people()
        evidence = stored_evidence(self._settings, store, questions)
        latest, last = store.latest(project), store.last_cycle(project)
        settled = {} if latest is None else latest[0]
        stands = last is not None and last.revision == revision
        loaded: dict[str, _Live] = {}
        first = next(iter(evidence.values())).annotations.items
        row = {item: n for n, item in enumerate(first)}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", IgnoredEvidence)  # the cycle has said it
            for name, known in evidence.items():
                loaded[name] = self._loaded(name, known, row, settled.get(name), stands)
        if self._questions and cycle > self._cycle:
            self._compare(loaded, cycle)
        self._questions, self._row, self._cycle, self._named, self._shown = loaded, row, cycle, named, shown
        return evidence, {name: one.result for name, one in loaded.items()}

    def _people(self) -> tuple[dict[str, str], dict[str, str]]:
        """Platform's key -> name there, and -> shown name."""
        table = self._store.annotators(self._settings.name)
        named = dict(zip(table.column("key").to_pylist(), table.column("name").to_pylist(), strict=True))
        return named, annotator_names(self._store, self._settings.name)

    def _loaded(
        self, name: str, known: Evidence, row: Mapping[Name, int], settled: Consensus | None, stands: bool
    ) -> _Live:
        with one_fit:
            return _Live(known, self._judged(name, known, settled, stands), row)

    def _judged(self, name: str, known: Evidence, settled: Consensus | None, stands: bool) -> Consensus:
        """Return the last run's consensus, or what it learned applied to newer labels; fit where neither fits."""
        if stands and settled is not None and is_over(settled, known):
            return settled
        goes_on = (
            settled is not None
            and known.parts is None
            and isinstance(self._method, Applicable)
            and settled.fit.method == name_of(self._method)
            and settled.classes == known.annotations.classes
            and settled.annotators.options == known.annotations.options
        )
        if goes_on:
            assert settled is not None
            assert isinstance(self._method, Applicable)
            with suppress(BadEvidence):
                return self._method.apply(settled, seen_by(self._method, known))
        return combined(self._settings, {name: known}, silent)[name]

    def _compare(self, loaded: Mapping[str, _Live], cycle: int) -> None:
        """Note how far what was believed is from what a new cycle found."""
        for name, now in loaded.items():
            before = self._questions.get(name)
            if before is None or before.result.classes != now.result.classes:
                continue
            apart = _apart(before, now)
            if apart.size:
                self.differences[name] = Difference(cycle, float(apart.max()), float(apart.mean()), len(apart))

    def take_in(self, heard: Heard) -> dict[str, list[str]] | None:
        """Return None: whatever a pull changed takes a `load`."""
        return None

    # -- reading -------------------------------------------------------------------------------------------

    def belief(self, question: str, item: str) -> Floats | None:
        """(J,) what is believed of an item now; None for an item, or a question, that is not known. For any thread."""
        one = self._questions.get(question)
        if one is None or item not in one.row:
            return None
        found = one.beliefs.get(item)
        return one.result.probabilities[one.row[item]] if found is None else found

    def newer(self, question: str, item: str) -> Now | None:
        """What is newer of an item than the last load; None: nothing is. For any thread."""
        one = self._questions.get(question)
        belief, said = (None, None) if one is None else (one.beliefs.get(item), one.said.get(item))
        return None if belief is None or said is None else Now(dict(said), belief)

    @property
    def behind(self) -> int:
        """How many items have changed since the last load."""
        return len({item for one in self._questions.values() for item in one.beliefs})


def _apart(live: _Live, now: _Live) -> Floats:
    """(rows, J) how far what was believed of the items is from what is now, of those with as many labels in both."""
    belief, count = live.result.probabilities.copy(), live.known.annotations.labels_per_item.copy()
    for item, found in live.beliefs.items():
        belief[live.row[item]], count[live.row[item]] = found, len(live.said[item])
    pairs = [(row, now.row[item]) for item, row in live.row.items() if item in now.row]
    if not pairs:
        return np.zeros((0, belief.shape[1]))
    before, after = np.array(pairs).T
    same = count[before] == now.known.annotations.labels_per_item[after]
    apart: Floats = np.abs(belief[before] - now.result.probabilities[after])[same]
    return apart
