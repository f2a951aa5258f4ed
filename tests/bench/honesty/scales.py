"""Simulated ratings: people see the class of an item stretched, with a bias and an error, and name the nearest one.

five     five grades, equally often; people are alike
biased   five grades, mostly the middle ones; people rate by most of a grade too high or too low
skewed   seven grades, mostly the first ones
"""

from __future__ import annotations

import numpy as np

from hitl.annotations import Annotations
from hitl.evidence import Evidence

SCALES = ("five", "biased", "skewed")
PEOPLE = 60


def scale(kind: str, seed: int, items: int = 1000, labels: int = 5) -> Evidence:
    """A simulated scale with its truth; every item has this many labels."""
    rng = np.random.default_rng([seed, SCALES.index(kind)])
    grades = 7 if kind == "skewed" else 5
    middle = (grades - 1) / 2
    drawn = {
        "five": rng.integers(grades, size=items),
        "biased": np.round(rng.normal(middle, grades / 5, items)),
        "skewed": rng.geometric(0.4, items) - 1,
    }
    truth = np.clip(drawn[kind], 0, grades - 1).astype(np.int32)
    bias_k = rng.normal(0, 0.8 if kind == "biased" else 0.3, PEOPLE)
    spread_k, stretch_k = np.exp(rng.normal(np.log(0.8), 0.5, PEOPLE)), np.exp(rng.normal(0, 0.25, PEOPLE))
    item = np.repeat(np.arange(items, dtype=np.int32), labels)
    person = np.concatenate([rng.choice(PEOPLE, labels, replace=False) for _ in range(items)]).astype(np.int32)
    seen = middle + stretch_k[person] * (truth[item] - middle) + bias_k[person]
    seen += spread_k[person] * rng.logistic(0, 0.55, len(item))
    label = np.clip(np.round(seen), 0, grades - 1).astype(np.int32)
    names = tuple(range(grades))
    return Evidence(
        Annotations(item, person, label, tuple(range(items)), tuple(range(PEOPLE)), names, names), truth=truth
    )
