"""Tables cut into shards, and engines that keep the promises of `hitl.models.inference.engine` in other ways."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from hitl.consensus import Consensus
from hitl.evidence import Evidence
from hitl.models.inference.engine import Serial, summed
from hitl.testing.crowds import part


def cut(evidence: Evidence, *ends: int) -> list[Evidence]:
    """Shards of the items up to each end, and of the rest."""
    bounds = [0, *ends, evidence.annotations.n_items]
    return [part(evidence, first, last) for first, last in pairwise(bounds)]


class MadeAnew(Sequence[Evidence]):
    """Shards that are made each time they are asked for, as from files; notes which were."""

    def __init__(self, shards: Sequence[Evidence]) -> None:
        self._shards, self.asked = shards, []

    def __len__(self) -> int:
        return len(self._shards)

    def __getitem__(self, i: Any) -> Any:
        self.asked.append(i)
        return replace(self._shards[i])


@dataclass(frozen=True)
class Elsewhere:
    """As on other machines: work and results travel as bytes, shards are done last to first."""

    def total(self, work: Callable[[Evidence], Any], shards: Sequence[Evidence]) -> Any:
        return summed(self.each(work, shards))

    def each(self, work: Callable[[Evidence], Any], shards: Sequence[Evidence]) -> Iterator[Any]:
        sent = pickle.dumps(work)
        done = {i: pickle.dumps(pickle.loads(sent)(shards[i])) for i in reversed(range(len(shards)))}
        return (pickle.loads(done[i]) for i in range(len(shards)))


class Counting(Serial):
    """Counts the passes."""

    def __init__(self) -> None:
        object.__setattr__(self, "passes", [])

    def each(self, work: Callable[[Evidence], Any], shards: Sequence[Evidence]) -> Iterator[Any]:
        self.passes.append(type(work).__name__)  # type: ignore[attr-defined]
        return super().each(work, shards)


def stacked(method: Any, learned: Consensus, shards: Sequence[Evidence]) -> np.ndarray:
    """(N, J) beliefs of all shards."""
    return np.concatenate([method.apply(learned, shard).probabilities for shard in shards])
