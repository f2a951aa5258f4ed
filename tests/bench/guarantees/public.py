"""Public labels by hitl's default, their beliefs, and which are wrong: recorded crowds, and CIFAR-10H with networks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from hitl.annotations import Annotations
from hitl.evidence import Evidence
from hitl.models.default import DefaultCombiner
from tests.bench.bench_accuracy import load
from tests.bench.guarantees.projects import Project
from tests.reference_data import cifar10h_counts, cifar10h_probabilities, cifar10h_truth

NETWORKS = ("resnet-110", "resnet-low-acc", "preresnet-110")
CROWDS = ("rte", "weather_cf", "sentence_polarity", "tweet_sentiment", "labelme", "music_genre")


def judged(evidence: Evidence) -> Project:
    """Return the doubt of the default about the items whose truth is recorded, and which labels are wrong."""
    assert evidence.truth is not None
    known = evidence.truth >= 0
    consensus = DefaultCombiner().fit(Evidence(evidence.annotations, evidence.probabilities))
    return 1 - consensus.confidence[known], (consensus.codes != evidence.truth)[known]


def photos(labels: int, networks: int, seed: int = 0) -> Evidence:
    """Return CIFAR-10H with so many human labels of each photo, drawn at random, and so many networks."""
    rng, counts, (truth, classes) = np.random.default_rng(seed), cifar10h_counts(), cifar10h_truth()
    size = len(truth)
    drawn = np.array([rng.permutation(np.repeat(np.arange(10), row))[:labels] for row in counts], np.int32)
    item, label = np.repeat(np.arange(size, dtype=np.int32), labels), drawn.ravel()
    items = tuple(range(size))
    people = Annotations(item, np.zeros_like(item), label, items, ("people",), classes, classes, anonymous=0)
    return Evidence(people, {name: cifar10h_probabilities(name) for name in NETWORKS[:networks]}, truth=truth)


SETS: dict[str, Callable[[], Project]] = {
    "cifar10h, 2 labels": lambda: judged(photos(2, 0)),
    "cifar10h, 1 label, 3 networks": lambda: judged(photos(1, 3)),
    **{name: partial(lambda name: judged(load(name)), name) for name in CROWDS},
}
