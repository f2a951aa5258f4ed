"""Who is asked: the annotator most likely to be right (Rodrigues 2014, eq. 12), within everybody's capacity."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hitl.annotations import Floats, Name
from hitl.crew import Crew
from hitl.evidence import Evidence


@dataclass(frozen=True, eq=False)
class Availability:
    """Which of the crew may be asked about an item: not twice the same, not what they may not see.

    `labeled`: for each item code the crew positions that have labeled it already.
    """

    crew: Crew
    items: tuple[Name, ...]
    labeled: dict[int, list[int]]
    only: tuple[frozenset[Name] | None, ...]

    @classmethod
    def of(cls, crew: Crew, evidences: tuple[Evidence, ...]) -> Availability:
        """Availability given what the crew has already answered (to any of the questions)."""
        place = {name: position for position, name in enumerate(crew.names)}
        labeled: dict[int, list[int]] = {}
        for evidence in evidences:
            annotations = evidence.annotations
            position_k = np.array([place.get(name, -1) for name in annotations.annotators], dtype=np.int64)
            position_m = position_k[annotations.annotator] if len(annotations) else np.zeros(0, np.int64)
            for row in np.flatnonzero(position_m >= 0):
                labeled.setdefault(int(annotations.item[row]), []).append(int(position_m[row]))
        items = evidences[0].annotations.items
        return cls(crew, items, labeled, tuple(crew.only.get(name) for name in crew.names))

    def mask(self, item: int) -> npt.NDArray[np.bool_]:
        """(K',) who of the crew may be asked about the item with this code."""
        name = self.items[item]
        free = np.array([only is None or name in only for only in self.only], dtype=bool)
        free[self.labeled.get(item, [])] = False
        if self.crew.never:
            free &= np.array([(person, name) not in self.crew.never for person in self.crew.names], dtype=bool)
        return free


def most_likely_right(
    order: npt.NDArray[np.intp], right_nk: Floats, availability: Availability, limit: int
) -> list[tuple[int, int]]:
    """(item, crew position) pairs, one an item, in the order given, at most `limit`.

    Each item goes to the available annotator with capacity left who is most likely to be right; of equals to
    the one with the least to do so far. An item nobody can take is passed over. `right_nk` has a row for each
    entry of `order`.
    """
    crew = availability.crew
    left = np.array([crew.capacity_of(name) for name in crew.names], dtype=np.int64)
    load = np.zeros(len(left), dtype=np.int64)
    pairs: list[tuple[int, int]] = []
    for position, item in enumerate(order):
        if len(pairs) >= limit or not left.any():
            break
        free = availability.mask(int(item)) & (left > 0)
        if not free.any():
            continue
        chance = np.where(free, right_nk[position], -1.0)
        equal = np.flatnonzero(chance >= chance.max() - 1e-9)
        person = int(equal[np.argmin(load[equal])])
        left[person] -= 1
        load[person] += 1
        pairs.append((int(item), person))
    return pairs
