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
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from hitl.annotations import Floats, Name
from hitl.errors import BadEvidence, HitlError, IgnoredEvidence
from hitl.exchange import silent
from hitl.models.combiner import Combiner, Followable, Following, Updatable, name_of, seen_by
from hitl.models.learning.learned import NAME as LEARNED
from hitl.models.registry import chosen
from hitl.project import annotator_names, combined, is_over, one_fit, stored_evidence
from hitl.service.web.projects import Difference, Now

if TYPE_CHECKING:
    from hitl.consensus import Consensus
    from hitl.evidence import Evidence
    from hitl.exchange import Page, Question
    from hitl.settings import Settings
    from hitl.store import Store
    from hitl.store.said import Answer

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
        following: takes in labels; None where the method does not.
        said: item -> annotator -> label, of the items that have changed since.
        beliefs: item -> what is believed of it, of the same items.
    """

    known: Evidence
    result: Consensus
    row: Mapping[Name, int]
    following: Following | None
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
        plain = known.parts is None
        with one_fit:
            result = self._judged(name, known, settled, stands)
            follows = plain and isinstance(self._method, Followable) and known.annotations.anonymous is None
            if not follows or result.fit.method != name_of(self._method):
                return _Live(known, result, row, None)
            assert isinstance(self._method, Followable)
            seen = seen_by(self._method, known)
            try:
                following = self._method.follow(result, seen)
            except BadEvidence:  # learned by an earlier version of the method
                result = combined(self._settings, {name: known}, silent)[name]
                following = self._method.follow(result, seen)
            return _Live(known, result, row, following)

    def _judged(self, name: str, known: Evidence, settled: Consensus | None, stands: bool) -> Consensus:
        """That of the cycle; brought up to date where it `stands` no more; fitted where that cannot be done."""
        if stands and settled is not None and is_over(settled, known):
            return settled
        goes_on = (
            settled is not None
            and known.parts is None
            and isinstance(self._method, Updatable)
            and settled.fit.method == name_of(self._method)
            and settled.classes == known.annotations.classes
            and settled.annotators.options == known.annotations.options
        )
        if goes_on:
            assert settled is not None
            assert isinstance(self._method, Updatable)
            with suppress(BadEvidence):  # learned by an earlier version of the method
                return self._method.update(settled, seen_by(self._method, known))
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

    # -- label by label ------------------------------------------------------------------------------------

    def take_in(self, heard: Heard) -> dict[str, list[str]] | None:
        """What a pull changed, label by label: question -> items; None: it takes a `load`."""
        if not self._questions or any(one.following is None for one in self._questions.values()):
            return None
        if not (heard.items.keys() <= self._row.keys()) or not self._same_people(heard):
            return None
        if heard.live is not None and heard.live != len(self._row):
            return None
        changes = self._changes(list(heard.items))
        if changes is None:
            return None
        try:
            with one_fit:
                return {name: self._applied(name, items) for name, items in changes.items() if items}
        except HitlError:  # an option that is new, for one
            return None

    def _same_people(self, heard: Heard) -> bool:
        """Whether everybody is shown by the name of before; who is new, or has another name, is looked up."""
        if all(self._named.get(key) == name for key, name in heard.annotators.items()):
            return True
        named, shown = self._people()
        if any(shown.get(key) != name for key, name in self._shown.items()):
            return False
        self._named, self._shown = named, shown
        return True

    def _changes(self, items: list[str]) -> dict[str, dict[Name, dict[Name, Name]]] | None:
        """Question -> item -> what annotators say of it now, where it is something else; None: it takes a load."""
        answers = self._store.said_of(self._settings.name, items)
        said = self._by_item(answers, items)
        if said is None or not self._same_truth(answers, items) or not self._same_predictions(items):
            return None
        changed: dict[str, dict[Name, dict[Name, Name]]] = {}
        labels = 0
        for name, one in self._questions.items():
            changed[name] = {}
            for item in items:
                before = one.said.get(item)
                before = one.labels_of(self._row[item]) if before is None else before
                if before != said[name][item]:
                    changed[name][item] = said[name][item]
                    labels += len(before.items() ^ said[name][item].items())
        return changed if labels <= AT_ONCE else None

    def _by_item(self, answers: Iterable[Answer], items: list[str]) -> dict[str, dict[Name, dict[Name, Name]]] | None:
        """Question -> item -> annotator -> the newest label; None where an annotator has no name."""
        said: dict[str, dict[Name, dict[Name, Name]]] = {name: {item: {} for item in items} for name in self._questions}
        for answer in answers:
            if answer.kind != "answer" or answer.label is None:
                continue
            if answer.question not in said or answer.annotator is None:
                return None
            said[answer.question][answer.item][self._shown.get(answer.annotator, answer.annotator)] = answer.label
        return said

    def _same_truth(self, answers: Iterable[Answer], items: list[str]) -> bool:
        """Whether what is known of these items is what was known at the last load."""
        latest = {(one.question, one.item): one.label for one in answers if one.kind == "gold" and one.label}
        for name, one in self._questions.items():
            code = {label: j for j, label in enumerate(one.known.annotations.classes)}
            assert one.known.truth is not None
            for item in items:
                if one.known.truth[self._row[item]] != code.get(latest.get((name, item), ""), -1):
                    return False
        return True

    def _same_predictions(self, items: list[str]) -> bool:
        """Whether the platform's models predict of these items what they did at the last load."""
        found = self._store.predicted_of(self._settings.name, items)
        others = {*self._settings.models, LEARNED}
        for name, one in self._questions.items():
            classes = one.known.annotations.classes
            models = {model for question, model, _ in found if question == name} | set(one.known.probabilities)
            for model in models - others:
                held = one.known.probabilities.get(model)
                for item in items:
                    p = found.get((name, model, item))
                    row = None if held is None else held[self._row[item]]
                    if not _same_row(None if p is None else [p.get(str(label), 0.0) for label in classes], row):
                        return False
        return True

    def _applied(self, name: str, items: Mapping[Name, dict[Name, Name]]) -> list[str]:
        """Take in what annotators say of these items now; their keys."""
        one = self._questions[name]
        assert one.following is not None
        for item, now in items.items():
            before = one.said.get(item)
            before = one.labels_of(self._row[item]) if before is None else before
            for annotator in before.keys() - now.keys():
                one.following.withdraw(item, annotator)
            for annotator, label in now.items():
                if before.get(annotator) != label:
                    one.following.label(item, annotator, label)
            one.said[item] = now
        one.beliefs |= {item: one.following.belief(item) for item in items}
        return list(map(str, items))

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


def _same_row(found: list[float] | None, held: Floats | None) -> bool:
    if held is None or np.isnan(held).all():
        return found is None
    return found is not None and bool(np.allclose(np.array(found) / (sum(found) or 1.0), held, atol=TOLERANCE))


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
