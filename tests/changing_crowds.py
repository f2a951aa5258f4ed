"""Crowds whose labels change at random: small ones with all that may occur, large ones, and real ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hitl.annotations import ANONYMOUS, Annotations, Ints
from hitl.evidence import Evidence
from hitl.models.combiner import Following
from hitl.models.dawid_skene import DawidSkene
from hitl.models.hierarchy.hierarchical_dawid_skene import HierarchicalDawidSkene
from hitl.models.inference.incremental import IncrementalEM
from hitl.models.pl_em import PLEM
from hitl.models.vb_ibcc import VBIBCC
from hitl.testing.crowds import of_use
from tests import oracles
from tests.tables import said

Change = tuple[int, int, int]
"""Codes of item, annotator and option; option -1: withdrawn."""

Answer = Callable[[int, int, np.random.Generator], int]
"""What an annotator (second) answers on an item (first)."""


METHODS: dict[str, Any] = {
    "dawid-skene": DawidSkene(),
    "dawid-skene, two labels teach": DawidSkene(accuracy=0.75, least_labels=2),
    "vb-ibcc": VBIBCC(),
    "vb-ibcc, own prior": VBIBCC(shared=False),
    "vb-ibcc, anchored": VBIBCC(anchor=0.4, least_labels=2),
    "p+l-em": PLEM(),
    "hierarchical": HierarchicalDawidSkene(),
}
every_method = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)


def exact(method: Any) -> Any:
    """The method, going on until nothing moves."""
    return replace(method, tolerance=1e-14, max_iterations=5000)


def some_crowd(seed: int, n_items: int = 30, **shape: Any) -> Evidence:
    """A small crowd with all that may occur; what is not wanted is left out by `oracles.crowd`'s keywords."""
    shape = {"n_annotators": 6, "n_options": 4, "known": 0.2, "models": 2, "abstaining": 0.2, "pool": 12} | shape
    return oracles.crowd(np.random.default_rng(seed), n_items, **shape, unlabeled=2)[0]


def follow(method: Any, evidence: Evidence) -> IncrementalEM:
    """From the fit of what the method uses of this evidence."""
    evidence = of_use(method, evidence)
    live: IncrementalEM = method.follow(method.fit(evidence), evidence)
    return live


def change_at_random(live: IncrementalEM, rng: np.random.Generator, changes: int, strangers: int = 0) -> None:
    """New, edited and withdrawn labels, of new items and people too."""
    present = said(live.labels.annotations())
    for _ in range(changes):
        what = rng.integers(3)
        if what == 0 and len(present) > 5:  # withdrawn
            item, annotator, label = present.pop(rng.integers(len(present)))
            live.withdraw(item, annotator or ANONYMOUS, label)
            continue
        n, k = rng.integers(live.labels.n_items + strangers), rng.integers(len(live.labels.annotators) + strangers)
        item, annotator = f"n{n}", live.labels.annotators[k] if k < live.labels.n_annotators else f"new{k}"
        if what == 1 and present:  # edited
            item, annotator, _ = present[rng.integers(len(present))]
            annotator = annotator or ANONYMOUS
        label = live.labels.options[rng.integers(len(live.labels.options))]
        live.label(item, annotator, label)
        name = None if annotator == ANONYMOUS else annotator
        present = [row for row in present if name is None or row[:2] != (item, name)] + [(item, name, label)]


def assert_sums_are_exact(live: IncrementalEM, atol: float = 1e-9) -> None:
    """The sums are those of the beliefs over the labels as they are now, by plain loops."""
    evidence, n, k = live.evidence(), live.labels.n_items, live.labels.n_annotators
    a = evidence.annotations
    teaches, rule = np.zeros(n), live.rule
    for item in range(n):
        labels = a.label[a.item == item]
        enough = np.sum(labels < a.n_classes if rule.of_a_class else labels >= 0) >= rule.least_labels
        told = float(live.prior.informativeness(np.array([item]))[0])
        teaches[item] = 1.0 if evidence.truth[item] >= 0 else rule.weight if enough else told
    np.testing.assert_array_equal(live.weight_n[:n], teaches)
    q_nj = live.q_nj[:n] * teaches[:, None]
    np.testing.assert_allclose(live.counts_klj[:k].transpose(0, 2, 1), oracles.counts(a, q_nj), atol=atol)
    np.testing.assert_allclose(live.share_j, q_nj.sum(axis=0), atol=atol)
    if live.rule.anchor:
        vote_nj = voted(evidence) * teaches[:, None]
        np.testing.assert_allclose(live.votes_klj[:k].transpose(0, 2, 1), oracles.counts(a, vote_nj), atol=atol)
        np.testing.assert_allclose(live.vote_j, vote_nj.sum(axis=0), atol=atol)


def voted(evidence: Evidence) -> oracles.Floats:
    """(N, J) shares of the agreeing pairs of votes; known truths as they are."""
    a, j = evidence.annotations, evidence.annotations.n_classes
    fractions = np.zeros((a.n_items, j))
    for n in range(a.n_items):
        votes = [label for item, label in zip(a.item, a.label, strict=True) if item == n and label < j]
        agreed = [one for place, one in enumerate(votes) for other in votes[:place] if one == other]
        for label in agreed:
            fractions[n, label] += 1 / len(agreed)
        if evidence.truth[n] >= 0:
            fractions[n] = np.eye(j)[evidence.truth[n]]
    return fractions


# -- large ones ----------------------------------------------------------------------------------------------


def simulated(
    n_items: int, n_annotators: int, labels: int, n_classes: int, *, models: bool = False, seed: int = 0
) -> tuple[Evidence, Ints, Answer]:
    """Evidence with so many labels an item by annotators of Beta(3, 2) accuracy, its truth, and their next answers."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(n_classes, size=n_items).astype(np.int32)
    right = rng.beta(3, 2, size=n_annotators)
    people = rng.integers(n_annotators, size=(n_items, labels))
    while (repeated := (np.diff(np.sort(people, axis=1), axis=1) == 0).any(axis=1)).any():
        people[repeated] = rng.integers(n_annotators, size=(int(repeated.sum()), labels))
    wrong = (truth[:, None] + rng.integers(1, n_classes, size=people.shape)) % n_classes
    label = np.where(rng.random(people.shape) < right[people], truth[:, None], wrong)
    names = tuple(range(n_classes))
    annotations = Annotations(
        np.repeat(np.arange(n_items, dtype=np.int32), labels),
        people.ravel().astype(np.int32),
        label.ravel().astype(np.int32),
        tuple(range(n_items)),
        tuple(range(n_annotators)),
        names,
        names,
    )
    predictions = {}
    if models:
        p = np.exp(2 * (rng.normal(size=(n_items, n_classes)) + np.eye(n_classes)[truth]))
        predictions["model"] = p / p.sum(axis=1, keepdims=True)

    def answer(n: int, k: int, rng: np.random.Generator) -> int:
        return int(truth[n] if rng.random() < right[k] else (truth[n] + rng.integers(1, n_classes)) % n_classes)

    return Evidence(annotations, predictions), truth, answer


def part(annotations: Annotations, share: float, seed: int = 0) -> tuple[Annotations, Answer]:
    """A share of the labels of a real crowd, and the answers: two times in three as recorded, else any of theirs."""
    seen = annotations.select(np.random.default_rng(seed).random(len(annotations)) < share)
    pairs = zip(annotations.item.tolist(), annotations.annotator.tolist(), strict=True)
    recorded = dict(zip(pairs, annotations.label.tolist(), strict=True))
    starts, rows = annotations.by_annotator

    def answer(n: int, k: int, rng: np.random.Generator) -> int:
        if (n, k) in recorded and rng.random() < 2 / 3:
            return recorded[n, k]
        return int(annotations.label[rng.choice(rows[starts[k] : starts[k + 1]])])

    return seen, answer


def random_changes(
    annotations: Annotations,
    answer: Answer,
    changes: int,
    seed: int = 1,
    pairs: NDArray[np.int32] | None = None,
) -> Iterator[Change]:
    """As many new, edited and withdrawn labels; new ones of any item and annotator, or among `pairs` of them."""
    rng = np.random.default_rng(seed)
    present = list(zip(annotations.item.tolist(), annotations.annotator.tolist(), strict=True))
    place = {pair: position for position, pair in enumerate(present)}
    for change in range(changes):
        what = change % 3
        if what == 0:
            n, k = (
                (int(rng.integers(annotations.n_items)), int(rng.integers(annotations.n_annotators)))
                if pairs is None
                else pairs[rng.integers(len(pairs))].tolist()
            )
            if (n, k) not in place:
                place[n, k] = len(present)
                present.append((n, k))
            yield n, k, answer(n, k, rng)
            continue
        n, k = present[rng.integers(len(present))]
        if what == 1:
            yield n, k, answer(n, k, rng)
            continue
        last, hole = present.pop(), place.pop((n, k))
        if last != (n, k):
            present[hole], place[last] = last, hole
        yield n, k, -1


def take_in(live: Following, annotations: Annotations, change: Change) -> None:
    """One change, by name."""
    n, k, option = change
    item, annotator = annotations.items[n], annotations.annotators[k]
    if option < 0:
        live.withdraw(item, annotator)
    else:
        live.label(item, annotator, annotations.options[option])


def take_in_together(live: Following, annotations: Annotations, changes: Sequence[Change]) -> None:
    """Many changes as one: of each item and annotator, the last."""
    last = {(n, k): option for n, k, option in changes}
    given = [(n, k, option) for (n, k), option in last.items() if option >= 0]
    labels = getattr(live, "followed", live).labels
    gone = [(n, k, 0) for (n, k), option in last.items() if option < 0 and labels.count(n, k)]
    live.change(
        Evidence(_table(annotations, given)) if given else None,
        _table(annotations, gone) if gone else None,
    )


def _table(annotations: Annotations, rows: Sequence[Change]) -> Annotations:
    """These labels alone, with the names of their items and annotators alone."""
    item, annotator, option = (np.array(column, np.int32) for column in zip(*rows, strict=True))
    items, item = np.unique(item, return_inverse=True)
    people, annotator = np.unique(annotator, return_inverse=True)
    return Annotations(
        item.astype(np.int32),
        annotator.astype(np.int32),
        option,
        tuple(annotations.items[n] for n in items),
        tuple(annotations.annotators[k] for k in people),
        annotations.classes,
        annotations.options,
    )
