"""Crowds with truth that nobody sees: recorded ones and simulated ones, whole and with labels dropped at random.

    real            the sets of `bench_accuracy`, in its groups
    independent     27 cells: 2, 4, 8 classes x 200, 1000, 5000 items x mean accuracy .6, .75, .9
    shared errors   an item in five takes six labels of ten to one wrong class
    uneven rows     each annotator knows some classes better than others, and mistakes each in a way of their own
    volume          200 people, a few of whom label much; who labels more labels better
    spammers        a third of the people answer at random
    skewed          classes 90 / 5 / 5
    overlooked      two classes, half positive: annotators see half of the positives, and err on 1 % of the others
    hard negatives  two classes: on one negative in four annotators are right in .45, on all others in .95
    confused        all annotators take the same classes for the same others, each independently
    misleading      15 % of the items take three labels in four to one wrong class
    difficulty      log-normal difficulty of items; most errors of an item are alike
    rare            3 % positive

Each simulated crowd has five labels an item, the last six kinds eight; most have 1000 items. Its seed is its number.
Crowds like the last six were looked at while the constants of the default were chosen.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from hitl.annotations import Annotations, Floats
from hitl.evidence import Evidence
from tests.bench.bench_accuracy import GROUPS, load
from tests.reference_data import FOLDER

REAL, INDEPENDENT = "real", "independent"
THINNED = (1.2, 2.0, 3.0, 5.0)
"""Labels an item that are left."""
WHOLE = "all"
POOLED = "cifar10h"
"""One anonymous crowd: there is nobody to know better by more labels, so that it comes with its whole table only."""

FEW, SEEDS = 1000, 20
"""Recorded crowds with less known truth are thinned so often."""

ITEMS, LABELS, EIGHT, HARD, MISLED = 1000, 5, 8, 0.2, 0.6
LATER = ("overlooked", "hard negatives", "confused", "misleading", "difficulty", "rare")
"""Kinds that are also scored with known items."""


@dataclass(frozen=True)
class Source:
    """One crowd and one way to thin it; plain values, for it travels to other processes."""

    kind: str
    group: str
    name: str
    seed: int

    def whole(self) -> Evidence:
        """The crowd with all of its labels, and its truth."""
        return real(self.name) if self.kind == REAL else SIMULATED[self.kind][self.name](self.seed)

    def tables(self) -> Iterator[tuple[str, Evidence]]:
        """Labels an item that are left, and the crowd with these; whole real ones belong to seed 0."""
        whole = self.whole()
        there = len(whole.annotations) / whole.annotations.n_items
        for labels in THINNED:
            if labels < there and self.name != POOLED:
                yield f"{labels:g}", thinned(whole, labels, np.random.default_rng(self.seed))
        if self.kind != REAL or self.seed == 0:
            yield WHOLE, whole


def sources(chosen: Collection[str] | None, seeds: int) -> list[Source]:
    """Every crowd whose name or kind is chosen (None: all) with every seed, those that take longest first."""
    groups = {name: group[0] for group in GROUPS for name in group if (FOLDER / name).is_dir()}
    found = [Source(REAL, groups[name], name, seed) for name in reversed(groups) for seed in range(seeds)]
    found += [Source(kind, kind, name, seed) for kind in SIMULATED for name in SIMULATED[kind] for seed in range(seeds)]
    return [source for source in found if chosen is None or source.name in chosen or source.kind in chosen]


def often(crowds: Sequence[Source]) -> list[Source]:
    """The same, and `SEEDS` seeds of every recorded crowd of which less than `FEW` items have truth.

    A point is one item of a hundred: the mean over five draws would miss the accuracy by two or three.
    """
    small = {source.name: source for source in crowds if source.kind == REAL and real(source.name).known.sum() < FEW}
    more = [replace(source, seed=seed) for source in small.values() for seed in range(SEEDS)]
    return list(dict.fromkeys((*crowds, *more)))


def real(name: str) -> Evidence:
    """A recorded crowd and its truth."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # answers that contradict each other, as recorded
        return load(name)


def thinned(evidence: Evidence, labels: float, rng: np.random.Generator) -> Evidence:
    """At most so many labels an item, the others dropped at random; a part of a label is had by chance, item by item.

    With the same seed, what is left of fewer labels is among what is left of more.
    """
    annotations = evidence.annotations
    order = rng.permutation(len(annotations))
    order = order[np.argsort(annotations.item[order], kind="stable")]
    first_n = np.searchsorted(annotations.item[order], np.arange(annotations.n_items))
    place_m = np.empty(len(annotations), dtype=np.intp)
    place_m[order] = np.arange(len(annotations)) - first_n[annotations.item[order]]
    most_n = int(labels) + (rng.random(annotations.n_items) < labels % 1)
    return Evidence(annotations.select(place_m < most_n[annotations.item]), truth=evidence.truth)


def part(evidence: Evidence, rows: np.ndarray[Any, Any]) -> Evidence:
    """These items alone, and the annotators who labeled any of them."""
    annotations, code_n = evidence.annotations, np.full(evidence.annotations.n_items, -1, np.int32)
    code_n[rows] = np.arange(len(rows))
    kept = annotations.select(code_n[annotations.item] >= 0)
    people, annotator = np.unique(kept.annotator, return_inverse=True)
    assert evidence.truth is not None
    few = replace(
        kept,
        item=code_n[kept.item],
        annotator=annotator.astype(np.int32),
        items=tuple(annotations.items[n] for n in rows),
        annotators=tuple(annotations.annotators[k] for k in people),
    )
    return Evidence(few, truth=evidence.truth[rows])


# -- simulated -----------------------------------------------------------------------------------------------


def cell(classes: int, items: int, accuracy: float, seed: int) -> Evidence:
    """Annotators who err independently, their accuracies Beta-spread about `accuracy`."""
    rng = np.random.default_rng(seed)
    people = max(20, items // 20)
    truth = rng.integers(classes, size=items).astype(np.int32)
    right = rng.beta(10 * accuracy, 10 * (1 - accuracy), size=people)
    annotator = np.concatenate([rng.choice(people, LABELS, replace=False) for _ in range(items)])
    item = np.repeat(np.arange(items), LABELS)
    wrong = (truth[item] + rng.integers(1, classes, size=item.size)) % classes
    label = np.where(rng.random(item.size) < right[annotator], truth[item], wrong)
    frame = {"item": item, "annotator": annotator, "label": label}
    return Evidence(Annotations.from_frame(frame, items=range(items), classes=range(classes)), truth=truth)


def shared_errors(classes: int, seed: int) -> Evidence:
    rng = _random(0, classes, seed)
    return _labelled(rng, _even_rows(rng.beta(7.5, 2.5, size=60), classes), hard=HARD)


def uneven_rows(classes: int, seed: int) -> Evidence:
    rng = _random(1, classes, seed)
    right_k = rng.beta(7.5, 2.5, size=40)
    right_kj = np.clip(right_k[:, None] + rng.normal(0, 0.08, size=(40, classes)), 0.05, 0.98)
    return _labelled(rng, _rows(right_kj, rng.dirichlet(np.full(classes - 1, 1.5), size=(40, classes))))


def volume(classes: int, seed: int) -> Evidence:
    rng = _random(2, classes, seed)
    volume_k = np.exp(rng.normal(0, 1.5, size=200))
    rank_k = np.argsort(np.argsort(volume_k)) / 200
    return _labelled(rng, _even_rows(0.4 + 0.5 * rank_k, classes), volume_k)


def spammers(classes: int, seed: int) -> Evidence:
    rng = _random(3, classes, seed)
    right_k = np.where(rng.random(60) < 1 / 3, 1 / classes, rng.beta(8, 2, size=60))
    return _labelled(rng, _even_rows(right_k, classes))


def skewed(seed: int) -> Evidence:
    rng = _random(4, 3, seed)
    return _labelled(rng, _even_rows(rng.beta(8, 2, size=60), 3), share_j=np.array([0.9, 0.05, 0.05]))


def overlooked(items: int, seed: int) -> Evidence:
    rng = _random(5, 2, seed)
    right_kj = np.clip(rng.normal([0.99, 0.5], [0.005, 0.08], size=(40, 2)), 0.05, 0.999)
    return _labelled(rng, _rows(right_kj, np.ones((40, 2, 1))), labels=EIGHT, items=items)


def rare(seed: int) -> Evidence:
    rng = _random(6, 2, seed)
    right_kj = np.clip(rng.normal([0.97, 0.8], [0.01, 0.08], size=(40, 2)), 0.05, 0.999)
    shares = np.array([0.97, 0.03])
    return _labelled(rng, _rows(right_kj, np.ones((40, 2, 1))), share_j=shares, labels=EIGHT)


def confused(classes: int, seed: int) -> Evidence:
    rng = _random(7, classes, seed)
    right_kj = np.clip(rng.normal(rng.beta(6, 2.5, size=classes), 0.08, size=(40, classes)), 0.1, 0.98)
    errors_ji = rng.dirichlet(np.full(classes - 1, 0.5), size=classes)
    errors_kji = np.stack([[rng.dirichlet(30 * row + 0.05) for row in errors_ji] for _ in range(40)])
    return _labelled(rng, _rows(right_kj, errors_kji), labels=EIGHT)


def misleading(classes: int, seed: int) -> Evidence:
    rng = _random(8, classes, seed)
    right_k = np.clip(rng.normal(0.85, 0.06, size=40), 0.5, 0.98)
    return _labelled(rng, _even_rows(right_k, classes), hard=0.15, misled=0.75, labels=EIGHT)


def hard_negatives(seed: int) -> Evidence:
    rng = _random(9, 2, seed)
    right_k = np.clip(rng.normal(0.95, 0.02, size=40), 0.6, 0.995)
    easy = _labelled(rng, _even_rows(right_k, 2), share_j=np.array([0.7, 0.3]), labels=EIGHT)
    assert easy.truth is not None
    hard_n = (easy.truth == 0) & (rng.random(ITEMS) < 0.25)
    coin_m = (rng.random(len(easy.annotations)) < 0.55).astype(np.int32)
    label_m = np.where(hard_n[easy.annotations.item], coin_m, easy.annotations.label)
    return replace(easy, annotations=replace(easy.annotations, label=label_m))


def difficulty(classes: int, seed: int) -> Evidence:
    rng = _random(10, classes, seed)
    skill_k, ease_n = rng.normal(1.5, 0.5, size=40), np.exp(rng.normal(0, 1.2, size=ITEMS))
    perfect = _labelled(rng, _even_rows(np.ones(40), classes), labels=EIGHT)
    a, truth_n = perfect.annotations, perfect.truth
    assert truth_n is not None
    right_m = 1 / classes + (1 - 1 / classes) / (1 + np.exp(0.5 - skill_k[a.annotator] * ease_n[a.item]))
    usual_n, other_m = rng.integers(1, classes, size=ITEMS), rng.integers(1, classes, size=len(a))
    away_m = np.where(rng.random(len(a)) < 0.6, usual_n[a.item], other_m)
    label_m = np.where(rng.random(len(a)) < right_m, truth_n[a.item], (truth_n[a.item] + away_m) % classes)
    return replace(perfect, annotations=replace(a, label=label_m.astype(np.int32)))


CELLS: Mapping[str, tuple[int, int, float]] = {
    f"J={classes} N={items} accuracy={accuracy}": (classes, items, accuracy)
    for classes in (2, 4, 8)
    for items in (200, 1000, 5000)
    for accuracy in (0.6, 0.75, 0.9)
}
"""Name of an independent crowd -> classes, items, mean accuracy."""
SIMULATED: Mapping[str, Mapping[str, Callable[[int], Evidence]]] = {
    INDEPENDENT: {name: partial(cell, *of_cell) for name, of_cell in CELLS.items()},
    "shared errors": {f"shared J={classes}": partial(shared_errors, classes) for classes in (2, 4, 8)},
    "uneven rows": {f"rows J={classes}": partial(uneven_rows, classes) for classes in (2, 4, 8)},
    "volume": {f"volume J={classes}": partial(volume, classes) for classes in (2, 4, 8)},
    "spammers": {f"spammers J={classes}": partial(spammers, classes) for classes in (2, 4, 8)},
    "skewed": {"skewed J=3": skewed},
    "overlooked": {f"overlooked N={items}": partial(overlooked, items) for items in (1000, 3000, 10_000)},
    "hard negatives": {"hard negatives": hard_negatives},
    "confused": {f"confused J={classes}": partial(confused, classes) for classes in (5, 8, 12)},
    "misleading": {f"misleading J={classes}": partial(misleading, classes) for classes in (4, 8)},
    "difficulty": {f"difficulty J={classes}": partial(difficulty, classes) for classes in (2, 4)},
    "rare": {"rare": rare},
}
"""Kind -> name -> the crowd of a seed."""


def _random(family: int, classes: int, seed: int) -> np.random.Generator:
    return np.random.default_rng([seed, family, classes])


def _rows(right_kj: Floats, errors_kji: Floats) -> Floats:
    """(K, J, J) what annotators answer by class, from how often they are right and how errors (K, J, J - 1) lie."""
    classes = right_kj.shape[1]
    pi_kjl = np.empty((*right_kj.shape, classes))
    for j in range(classes):
        pi_kjl[:, j, j] = right_kj[:, j]
        pi_kjl[:, j, np.arange(classes) != j] = (1 - right_kj[:, j, None]) * errors_kji[:, j]
    return pi_kjl


def _even_rows(right_k: Floats, classes: int) -> Floats:
    right_kj = np.repeat(right_k[:, None], classes, axis=1)
    return _rows(right_kj, np.full((right_k.size, classes, classes - 1), 1 / (classes - 1)))


def _labelled(
    rng: np.random.Generator,
    pi_kjl: Floats,
    volume_k: Floats | None = None,
    share_j: Floats | None = None,
    hard: float = 0.0,
    misled: float = MISLED,
    labels: int = LABELS,
    items: int = ITEMS,
) -> Evidence:
    """Items of which each has labels of different people, who come as often as their volume says."""
    people, classes = pi_kjl.shape[:2]
    truth_n = rng.choice(classes, size=items, p=share_j).astype(np.int32)
    item_m = np.repeat(np.arange(items), labels)
    turn_nk = rng.gumbel(size=(items, people)) + (0.0 if volume_k is None else np.log(volume_k))
    annotator_m = np.argpartition(-turn_nk, labels - 1, axis=1)[:, :labels].ravel()
    up_to_ml = pi_kjl[annotator_m, truth_n[item_m]].cumsum(axis=1)
    label_m = np.minimum((rng.random(item_m.size)[:, None] > up_to_ml).sum(axis=1), classes - 1)
    misleads_n, wrong_n = rng.random(items) < hard, (truth_n + rng.integers(1, classes, size=items)) % classes
    misled_m = misleads_n[item_m] & (rng.random(item_m.size) < misled)
    label_m = np.where(misled_m, wrong_n[item_m], label_m)
    frame = {"item": item_m, "annotator": annotator_m, "label": label_m}
    return Evidence(Annotations.from_frame(frame, items=range(items), classes=range(classes)), truth=truth_n)
