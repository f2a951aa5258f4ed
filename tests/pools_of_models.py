"""Calibrated models beside annotators who err evenly."""

from __future__ import annotations

import numpy as np
from scipy.special import softmax

from hitl.annotations import Annotations
from hitl.evidence import Evidence


def simulated(
    seed: int, items: int, each: int = 1, right: float = 0.9, sharp: float = 1.0, models: int = 1
) -> tuple[Evidence, np.ndarray]:
    """Five classes; people without ids who err evenly; calibrated models to the power of `sharp`."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(5, size=items).astype(np.int32)
    said = np.repeat(truth, each)
    wrong = (said + rng.integers(1, 5, size=said.size)) % 5
    said = np.where(rng.random(said.size) < right, said, wrong).astype(np.int32)
    names = tuple(range(5))
    people = Annotations(
        np.repeat(np.arange(items, dtype=np.int32), each),
        np.zeros(said.size, np.int32),
        said,
        tuple(range(items)),
        ("people",),
        names,
        names,
        anonymous=0,
    )
    probabilities = {}
    for m in range(models):
        # Gaussian scores, one class 3 higher, unit variance: p ∝ exp(3 x) is calibrated.
        scores = rng.normal(size=(items, 5)) + 3.0 * np.eye(5)[truth]
        probabilities[f"m{m}"] = softmax(sharp * 3.0 * scores, axis=1)
    return Evidence(people, probabilities), truth
