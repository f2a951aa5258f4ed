"""Simulate crowds: small evidence with the true classes, for contract suites and tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from hitl.annotations import Annotations, Floats
from hitl.evidence import Evidence
from hitl.models.combiner import Combiner, given, without


def names(letter: str, size: int) -> tuple[str, ...]:
    """Return `size` names: the letter "a" gives a0, a1, ..."""
    return tuple(f"{letter}{number}" for number in range(size))


def crowd(
    rng: np.random.Generator,
    n_items: int = 5,
    n_annotators: int = 4,
    n_classes: int = 3,
    n_options: int | None = None,
    *,
    asked: float = 0.7,
    accuracy: tuple[float, float] = (0.55, 0.95),
    unlabeled: int = 0,
    pool: int = 0,
    known: float = 0.0,
    models: int = 0,
    abstaining: float = 0.0,
) -> tuple[Evidence, NDArray[np.int32]]:
    """Simulate evidence. Return it with the (N,) true class codes.

    Each annotator labels an item with probability `asked`, and has one accuracy, drawn from the range `accuracy`. If
    `n_options` is above `n_classes`, annotators may also give answers that are no class. The last `unlabeled` items
    have no label. Annotators without ids give `pool` more labels, possibly several on one item. The evidence has the
    ground truth of an item with probability `known`. Each of `models` models abstains on an item with probability
    `abstaining`.

    Example:
        >>> import numpy as np
        >>> from hitl.testing import crowd
        >>> evidence, truth = crowd(np.random.default_rng(0), n_items=20, n_annotators=3, models=1)
        >>> evidence.annotations.n_items, list(evidence.probabilities), truth.shape
        (20, ['m0'], (20,))
    """
    n_options = n_classes if n_options is None else n_options
    truth = rng.integers(n_classes, size=n_items).astype(np.int32)
    right = rng.uniform(*accuracy, size=n_annotators)
    rows = [(n, k) for n in range(n_items - unlabeled) for k in range(n_annotators) if rng.random() < asked]
    annotators = [*names("k", n_annotators)]
    anonymous = None
    if pool:
        anonymous = n_annotators
        annotators.append("(anonymous)")
        right = np.append(right, 0.7)
        rows += [(int(rng.integers(n_items - unlabeled)), anonymous) for _ in range(pool)]
    label = [
        truth[n] if rng.random() < right[k] else rng.choice(np.delete(np.arange(n_options), truth[n])) for n, k in rows
    ]
    annotations = Annotations(
        np.array([n for n, _ in rows], np.int32),
        np.array([k for _, k in rows], np.int32),
        np.array(label, np.int32),
        names("n", n_items),
        tuple(annotators),
        names("j", n_classes),
        (*names("j", n_classes), *names("unsure", n_options - n_classes)),
        anonymous,
    )
    known_n = np.where(rng.random(n_items) < known, truth, -1).astype(np.int32)
    return Evidence(annotations, predictions(rng, truth, n_classes, models, abstaining), truth=known_n), truth


def single_labels(
    rng: np.random.Generator, n_items: int, n_annotators: int = 3, n_classes: int = 3, habits: float = 1.0
) -> Annotations:
    """Return one label per item. Each annotator has frequencies of labels, the more uneven the smaller `habits`."""
    annotator = rng.integers(n_annotators, size=n_items).astype(np.int32)
    frequency_kj = rng.dirichlet(np.full(n_classes, habits), size=n_annotators)
    label = [rng.choice(n_classes, p=frequency_kj[k]) for k in annotator]
    codes = np.arange(n_items, dtype=np.int32), annotator, np.array(label, np.int32)
    classes = names("j", n_classes)
    return Annotations(*codes, names("n", n_items), names("k", n_annotators), classes, classes)


def predictions(
    rng: np.random.Generator, truth: NDArray[np.int32], n_classes: int, models: int, abstaining: float = 0.0
) -> dict[str, Floats]:
    """Return model -> (N, J) probabilities that favor the true class; NaN where the model abstains."""
    predictions = {}
    for number in range(models):
        logits = rng.normal(size=(len(truth), n_classes)) + 1.5 * np.eye(n_classes)[truth]
        p_nj = np.exp(2 * logits)
        p_nj /= p_nj.sum(axis=1, keepdims=True)
        p_nj[rng.random(len(truth)) < abstaining] = np.nan
        predictions[f"m{number}"] = p_nj
    return predictions


def with_everything(seed: int = 0, n_items: int = 40, **shape: Any) -> tuple[Evidence, NDArray[np.int32]]:
    """Return evidence of every kind, and the (N,) true class codes. `shape`: arguments of `crowd`."""
    rng = np.random.default_rng(seed)
    shape = {"n_annotators": 5, "n_classes": 3, "models": 2, "known": 0.3, "asked": 0.8} | shape
    evidence, truth = crowd(rng, n_items, **shape)
    ring = sparse.eye_array(n_items, k=1, format="csr")
    kinds = {
        "features": rng.normal(size=(n_items, 2)) + truth[:, None],
        "sequence": np.stack((np.arange(n_items) // 10, np.arange(n_items) % 10), axis=1),
        "graph": ring + ring.T,
    }
    return replace(evidence, **kinds), truth


def sample(combiner: Combiner, seed: int = 0, n_items: int = 40, **shape: Any) -> tuple[Evidence, NDArray[np.int32]]:
    """Return evidence of every kind that this combiner uses, and the (N,) true class codes. `shape`: as for `crowd`."""
    evidence, truth = with_everything(seed, n_items, **shape)
    return restricted_to_uses(combiner, evidence), truth


def restricted_to_uses(combiner: Combiner, evidence: Evidence) -> Evidence:
    """Return the evidence without the kinds that this combiner does not declare in `uses`."""
    assert hasattr(combiner, "uses"), f"{type(combiner).__name__} does not declare `uses`; see hitl.models.combiner"
    return without(evidence, given(evidence) - combiner.uses)


def reordered(
    evidence: Evidence,
    items: NDArray[np.intp] | None = None,
    annotators: NDArray[np.intp] | None = None,
    classes: NDArray[np.intp] | None = None,
    rows: NDArray[np.intp] | None = None,
) -> Evidence:
    """Return the evidence in another order: new item i is old item items[i], and so on. `rows` reorders the labels."""
    a = evidence.annotations
    items = np.arange(a.n_items) if items is None else items
    annotators = np.arange(a.n_annotators) if annotators is None else annotators
    classes = np.arange(a.n_classes) if classes is None else classes
    rows = np.arange(len(a)) if rows is None else rows
    options = np.concatenate((classes, np.arange(a.n_classes, a.n_options))).astype(int)
    new_item, new_annotator, new_option = np.argsort(items), np.argsort(annotators), np.argsort(options)
    annotations = Annotations(
        new_item[a.item[rows]].astype(np.int32),
        new_annotator[a.annotator[rows]].astype(np.int32),
        new_option[a.label[rows]].astype(np.int32),
        tuple(a.items[n] for n in items),
        tuple(a.annotators[k] for k in annotators),
        tuple(a.classes[j] for j in classes),
        tuple(a.options[o] for o in options),
        None if a.anonymous is None else int(new_annotator[a.anonymous]),
    )
    assert evidence.truth is not None
    truth = evidence.truth[items]
    return Evidence(
        annotations,
        {name: p[np.ix_(items, classes)] for name, p in evidence.probabilities.items()},
        truth=np.where(truth < 0, -1, np.argsort(classes)[truth]).astype(np.int32),
        features=None if evidence.features is None else evidence.features[items],
        sequence=None if evidence.sequence is None else evidence.sequence[items],
        graph=None if evidence.graph is None else evidence.graph[items][:, items],
    )


def part(evidence: Evidence, first: int, last: int) -> Evidence:
    """Return the evidence on items first to last - 1, renumbered from 0, without features and graph.

    Codes of annotators and classes are unchanged.
    """
    whole = evidence.annotations
    some = whole.select((whole.item >= first) & (whole.item < last))
    assert evidence.truth is not None
    return Evidence(
        replace(some, item=some.item - first, items=whole.items[first:last]),
        {name: p_nj[first:last] for name, p_nj in evidence.probabilities.items()},
        truth=evidence.truth[first:last],
        sequence=None if evidence.sequence is None else evidence.sequence[first:last],
    )
