"""Crowds for what corrects labels that depend on each other, and its mathematics in plain loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hitl.annotations import Annotations
from hitl.evidence import Evidence
from tests import oracles

Floats = oracles.Floats
Ints = NDArray[np.int32]


CROWDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "two classes": {"n_classes": 2},
    "options beyond the classes": {"n_options": 6},
    "gaps": {"asked": 0.25},
    "items without labels": {"unlabeled": 6},
    "an anonymous pool": {"pool": 50},
    "everything": {"n_options": 5, "unlabeled": 4, "pool": 30, "asked": 0.4},
}


everywhere = pytest.mark.parametrize("shape", CROWDS.values(), ids=CROWDS)


def some_crowd(shape: dict[str, Any], known: float = 0.0, seed: int = 0) -> tuple[Evidence, Floats, Floats]:
    """Evidence, and Dirichlet parameters (K, J, L) and shares (J,) as a fit that saw it could have left them."""
    rng = np.random.default_rng(seed)
    evidence, truth = oracles.crowd(rng, 40, 6, **{"n_classes": 4, "known": known} | shape)
    alpha_kjl = taught(evidence, np.eye(evidence.annotations.n_classes)[truth], rng)
    return evidence, alpha_kjl, rng.dirichlet(np.full(evidence.annotations.n_classes, 5.0))


def taught(evidence: Evidence, q_nj: Floats, rng: np.random.Generator) -> Floats:
    counts_kjl = oracles.counts(evidence.annotations, q_nj)
    prior_kjl = rng.uniform(0.2, 1.0, counts_kjl.shape)
    return counts_kjl + prior_kjl + np.eye(*counts_kjl.shape[1:])


def answered(rng: np.random.Generator, truth: Ints, pi_kjl: Floats) -> Annotations:
    """Everybody answers every item, independently given its class."""
    n_people, n_classes, n_options = pi_kjl.shape
    said = [[rng.choice(n_options, p=pi_kjl[k, j]) for k in range(n_people)] for j in truth]
    return table(np.array(said), n_classes, n_options)


def table(said: Ints, n_classes: int, n_options: int) -> Annotations:
    """From an (N, K) matrix of option codes, -1 where there is no answer."""
    item, annotator = np.nonzero(said >= 0)
    sizes = zip("nkjo", (*said.shape, n_classes, n_options - n_classes), strict=True)
    items, people, classes, unsure = (oracles.names(letter, size) for letter, size in sizes)
    return Annotations(item, annotator, said[item, annotator], items, people, classes, classes + unsure)


def labels_of(annotations: Annotations, item: int) -> list[tuple[int, int]]:
    """(annotator, option) of each label of an item."""
    rows = zip(annotations.item, annotations.annotator, annotations.label, strict=True)
    return [(int(k), int(option)) for n, k, option in rows if n == item]


def plain_log_posterior(annotations: Annotations, alpha_kjl: Floats, share_j: Floats) -> Floats:
    return np.log(share_j) + oracles.messages(annotations, np.log(alpha_kjl / alpha_kjl.sum(axis=2, keepdims=True)))


def compared(evidence: Evidence, item: int) -> float:
    """Weight of an item's labels beside those that others answered too: that of the lone labels of whoever gave it."""
    a = evidence.annotations
    own = {n: a.annotator[(a.item == n) & (a.label < a.n_classes)] for n in range(a.n_items)}
    lone = [n for n in own if len(own[n]) == 1 and not evidence.known[n]]
    if item not in lone:
        return float(len(own[item]) >= 2)
    (who,) = own[item]
    alone = sum(int(own[n][0] == who) for n in lone)
    return min(1.0, (int((a.annotator == who).sum()) - alone) / alone)
