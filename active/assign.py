"""Who is asked: the annotator most likely to be right (Rodrigues 2014, eq. 12), within everybody's capacity."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hitl.annotations import Annotations, Floats
from hitl.crew import Crew


@dataclass(frozen=True, eq=False)
class Availability:
    """Which of the crew may be asked about an item: nobody twice, nobody what they may not see.

    Attributes:
        crew: the crew; its positions are those of `crew.names`.
        everywhere: (K',) who can answer any item.
        here: item code -> positions that can answer this item, among those who cannot answer any.
        barred: item code -> positions that have labeled it already or must not see it.
    """

    crew: Crew
    everywhere: npt.NDArray[np.bool_]
    here: dict[int, list[int]]
    barred: dict[int, list[int]]

    @classmethod
    def of(cls, crew: Crew, answered: Sequence[Annotations]) -> Availability:
        """Availability given what was answered, to one or several questions about the same items."""
        place = {name: position for position, name in enumerate(crew.names)}
        row = {name: code for code, name in enumerate(answered[0].items)}
        barred: dict[int, list[int]] = {}
        for given in answered:
            position_k = np.array([place.get(name, -1) for name in given.annotators], dtype=np.int64)
            position_m = position_k[given.annotator] if len(given) else np.zeros(0, np.int64)
            ours = np.flatnonzero(position_m >= 0)
            for item, position in zip(given.item[ours].tolist(), position_m[ours].tolist(), strict=True):
                barred.setdefault(item, []).append(position)
        for person, name in crew.never:
            if person in place and name in row:
                barred.setdefault(row[name], []).append(place[person])
        here: dict[int, list[int]] = {}
        for person, names in crew.only.items():
            for name in names if person in place else ():
                if name in row:
                    here.setdefault(row[name], []).append(place[person])
        everywhere = np.array([name not in crew.only for name in crew.names], dtype=bool)
        return cls(crew, everywhere, here, barred)

    def mask(self, item: int) -> npt.NDArray[np.bool_]:
        """(K',) who of the crew may be asked about the item with this code."""
        free = self.everywhere.copy()
        free[self.here.get(item, [])] = True
        free[self.barred.get(item, [])] = False
        return free


def most_likely_right(
    candidates: Iterable[tuple[int, Floats]], availability: Availability, limit: int
) -> list[tuple[int, int, float]]:
    """(item, crew position, chance of being right), one for each item, in the order given, at most `limit`.

    `candidates` are item codes, each with the (K',) chances of the crew. An item goes to the available annotator with
    capacity left who is most likely to be right; of equals to the one with the least to do so far. An item nobody
    can take is passed over.
    """
    crew = availability.crew
    left = np.array([crew.capacity_of(name) for name in crew.names], dtype=np.int64)
    load = np.zeros(len(left), dtype=np.int64)
    pairs: list[tuple[int, int, float]] = []
    for item, right in candidates:
        if len(pairs) >= limit or not left.any():
            break
        free = availability.mask(item) & (left > 0)
        if not free.any():
            continue
        chance = np.where(free, right, -1.0)
        equal = np.flatnonzero(chance >= chance.max() - 1e-9)
        person = int(equal[np.argmin(load[equal])])
        left[person] -= 1
        load[person] += 1
        pairs.append((item, person, float(right[person])))
    return pairs
