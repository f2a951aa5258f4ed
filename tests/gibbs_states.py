"""States of a Gibbs chain for IBCC and EBCC, and what they are compared with."""

from __future__ import annotations

from typing import Any

import numpy as np

from hitl.annotations import Floats, Ints
from hitl.evidence import Evidence
from hitl.models.sampling import gibbs, posterior


def some_state(rng: np.random.Generator, evidence: Evidence, prior: gibbs.Prior) -> gibbs.State:
    """A state with arbitrary truths, difficulties and alphas."""
    a = evidence.annotations
    state = gibbs.blank_state(a.n_items, a.n_annotators, a.n_classes, a.n_options)
    even_nj = np.full((a.n_items, a.n_classes), 1 / a.n_classes)
    gibbs.disperse(rng, posterior.known_table(evidence), prior, even_nj, state)
    return state


def log_joint(evidence: Evidence, prior: gibbs.Prior, state: gibbs.State, truth: Ints, hard: Any) -> float:
    """Log p(labels, t, s | alpha) one label after the other: each answer makes the next alike more probable."""
    a = evidence.annotations
    seen = state.alpha_klj.copy()
    items = prior.smoothing_j.copy()
    value = 0.0
    for n in np.flatnonzero((a.labels_per_item > 0) | evidence.known):
        value += np.log(items[truth[n]] / items.sum()) + np.log(prior.hard if hard[n] else 1 - prior.hard)
        items[truth[n]] += 1
    for n, k, l in zip(a.item, a.annotator, a.label, strict=True):  # noqa: E741
        if hard[n]:
            value += np.log(seen[k, l, truth[n]] / seen[k, :, truth[n]].sum())
            seen[k, l, truth[n]] += 1
        else:
            value += np.log(prior.easy_jl[truth[n], l])
    return float(value)


def matched_variance(concentration: Floats) -> Floats:
    """(K, J) sum over a row of the variances of a Dirichlet."""
    total = concentration.sum(axis=2)
    mean = concentration / total[..., None]
    return (mean * (1 - mean)).sum(axis=2) / (total + 1)
