"""Panels of three judges on items that people have partly read, for tests and benchmarks."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256

import numpy as np

from hitl.annotations import Annotations, Floats, Ints
from hitl.evidence import Evidence

KINDS = ("independent", "clones", "biased")
JUDGES = ("gpt", "gpt-mini", "claude")


@dataclass(frozen=True, eq=False)
class Panel:
    """Evidence, (N,) 1 for items that pass, codes of the items that were read, and (3,) accuracies of the judges."""

    evidence: Evidence
    truth_n: Ints
    read: Ints
    right: Floats


def in_order(names: list[str]) -> Ints:
    """Codes of these items in the random order that their names determine."""
    return np.array(sorted(range(len(names)), key=lambda n: sha256(names[n].encode()).digest()))


def panel(kind: str, seed: int, items: int, read: int, names: list[str] | None = None) -> Panel:
    """A panel of this kind; Ann has read the first items of the random order."""
    rng = np.random.default_rng(seed)
    truth_n = (rng.random(items) < rng.uniform(0.6, 0.9)).astype(np.int32)
    hard_n, skill_k = rng.normal(0, 1, items), rng.uniform(0.75, 0.95, 3)
    if kind == "biased":
        right_nk = rng.random((items, 3)) < np.where(truth_n[:, None] == 1, 0.98, 0.5)
    else:
        logit_k = 1.3 * np.log(skill_k / (1 - skill_k))
        right_nk = rng.random((items, 3)) < 1 / (1 + np.exp(hard_n[:, None] - logit_k))
    answer_nk = np.where(right_nk, truth_n[:, None], 1 - truth_n[:, None])
    if kind == "clones":
        for k in (1, 2):
            answer_nk[:, k] = np.where(rng.random(items) < 0.02, 1 - answer_nk[:, 0], answer_nk[:, 0])
    names = names or [f"{seed} {n}" for n in range(items)]
    rows = in_order(names)[:read]
    matrix = np.full((items, 4), -1)
    matrix[:, :3], matrix[rows, 3] = answer_nk, truth_n[rows]
    item, rater = np.nonzero(matrix >= 0)
    labels = Annotations(
        *(codes.astype(np.int32) for codes in (item, rater, matrix[item, rater])),
        tuple(names),
        (*JUDGES, "ann"),
        ("no", "yes"),
        ("no", "yes"),
    )
    right = (answer_nk == truth_n[:, None]).mean(axis=0)
    return Panel(Evidence(labels).with_judges(JUDGES), truth_n, rows, right)
