"""Decide who may be asked about which item. This rule is implemented only here.

    eligible[n, k]  =  item n may be asked about, annotator k may answer it, and k has not answered any question of it

    n may be asked about     no answer about it is expected (`crew.asked`); for a pool without names: it has answers
    left
    k may answer n           (k can answer every item, or n is in crew.only[k]), and crew.needs[n] is part of
                             crew.skills[k], and (k, n) is not in crew.never

A crew without names is one column: anyone, who may be asked about every item again and again.

Rows of this table are computed on demand, because a million items x a thousand annotators would not fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from hitl.annotations import ANONYMOUS, Annotations, Ints, Name, Names, places_of
from hitl.crew import UNLIMITED, Crew

Rows = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

BLOCK = 4096
"""Number of items whose rows of the table are computed at a time."""


@dataclass(frozen=True, eq=False)
class Eligibility:
    """Which of the crew may be asked about an item, and how many more questions each can take.

    Attributes:
        crew: the crew of K' annotators, at the positions of `crew.members`.
        items: N names.
        capacity: (K',) how many more items each may be given in this plan, less what is still expected of them.
        load: (K',) how many answers are still expected of each.
        closed: (N,) items about which an answer is expected, or for which a pool without names has none left.
        everywhere: (K',) True for annotators who can answer any item.
        here: (N, K') True where others can answer the item, or None.
        barred: (N, K' + 1) True where annotators have answered it, or may not see it, one for each source; the last
            column is of annotators outside the crew.
        need: (N,) row of `able` for the skills the item needs, or None if no item needs any.
        able: (S, K') True for annotators with all the skills of each set that some item needs; row 0 is the empty set.

    Example:
        >>> from hitl import Crew, Evidence
        >>> from hitl.active import Eligibility
        >>> data = Evidence.from_tables({"item": [1, 1, 2], "annotator": ["al", "bob", "al"], "label": ["x", "y", "y"]})
        >>> free = Eligibility.of(Crew(("al", "bob", "cy"), never=frozenset({("cy", 1)})), [data.annotations])
        >>> free.may_be_asked([("al", 1), ("bob", 2), ("cy", 1), ("cy", 2)])
        [False, True, False, True]
    """

    crew: Crew
    items: Names
    capacity: Rows
    load: Rows
    closed: Mask
    everywhere: Mask
    here: csr_array | None
    barred: tuple[csr_array, ...]
    need: Ints | None
    able: Mask

    @classmethod
    def of(cls, crew: Crew, answered: Sequence[Annotations]) -> Eligibility:
        """Apply the limits of `crew` and the answers to one or several questions about the same items.

        Annotators and items unknown to the crew or the annotations are ignored. An expected answer
        (`crew.asked`) uses capacity while its annotator may still give it.
        """
        items = answered[0].items
        n_items, place = len(items), {name: position for position, name in enumerate(crew.names)}
        only = [(person, name) for person, names in crew.only.items() for name in names]
        pairs = [*crew.never, *crew.asked, *only]
        row = places_of(items, [*(name for _, name in pairs), *crew.needs]) if pairs or crew.needs else {}
        size = len(crew.members)
        barred = [_answered(given, place) for given in answered if len(given) and place]
        barred.append(_pairs(n_items, size, *_codes(crew.never, place, row)))
        need, able = _skills(crew, row, n_items)
        closed = np.zeros(n_items, dtype=bool)
        free = cls(
            crew,
            items,
            np.array([crew.capacity_of(name) for name in crew.names] or [UNLIMITED], dtype=np.int64),
            np.zeros(size, np.int64),
            closed,
            np.array([name is None or name not in crew.only for name in crew.members], dtype=bool),
            _pairs(n_items, size, *_codes(only, place, row)) if place and only else None,
            tuple(pairs for pairs in barred if pairs.nnz),
            need,
            able,
        )
        item, person = _codes(set(crew.asked), place, row)
        load = np.bincount(person[free.eligible(item, person)], minlength=size)
        gone = [] if place else [name for who, name in crew.never if who == ANONYMOUS]
        shut = [row[name] for name in (*(name for _, name in crew.asked), *gone) if name in row]
        closed = closed.copy()
        closed[shut] = True
        return replace(free, capacity=np.maximum(free.capacity - load, 0), load=load, closed=closed)

    def after(self, item: npt.NDArray[np.integer], person: npt.NDArray[np.integer]) -> Eligibility:
        """Subtract these questions; their items may then be given to others in the same plan."""
        more = np.bincount(person, minlength=len(self.load))
        left = replace(self, capacity=np.maximum(self.capacity - more, 0), load=self.load + more)
        return left.without(item, person)

    def without(self, item: npt.NDArray[np.integer], person: npt.NDArray[np.integer]) -> Eligibility:
        """Exclude these (item code, crew position) pairs."""
        return replace(self, barred=(*self.barred, _pairs(len(self.items), len(self.load), item, person)))

    def mask_rows(self, rows: npt.NDArray[np.integer]) -> Mask:
        """Return (R, K') which of the crew may be asked about the items with these codes, ignoring capacity."""
        at: Rows = np.asarray(rows, dtype=np.int64)
        free = np.tile(self.everywhere, (len(at), 1))
        if self.here is not None:
            free |= self.here[at].toarray()[:, :-1]
        for pairs in self.barred:
            free &= ~pairs[at].toarray()[:, :-1]
        if self.need is not None:
            free &= self.able[self.need[at]]
        free[self.closed[at]] = False
        return free

    def blocks(self, rows: npt.NDArray[np.integer]) -> Iterator[tuple[Rows, Mask]]:
        """Yield (rows of the block, their mask) block by block."""
        for start in range(0, len(rows), BLOCK):
            block: Rows = np.asarray(rows[start : start + BLOCK], dtype=np.int64)
            yield block, self.mask_rows(block)

    def any_of(self, rows: npt.NDArray[np.integer]) -> bool:
        """Return True if anyone may be asked about any of these items, ignoring capacity."""
        return any(bool(mask.any()) for _, mask in self.blocks(rows))

    def eligible(self, item: npt.NDArray[np.integer], person: npt.NDArray[np.integer]) -> Mask:
        """Return (P,) True where the (item code, crew position) pair may be asked, ignoring capacity."""
        parts = [
            mask[np.arange(len(block)), person[n * BLOCK : n * BLOCK + len(block)]]
            for n, (block, mask) in enumerate(self.blocks(item))
        ]
        return np.concatenate(parts) if parts else np.zeros(0, dtype=bool)

    def may_be_asked(self, pairs: Sequence[tuple[Name | None, Name]]) -> list[bool]:
        """Check (annotator, item) pairs of names; False for an unknown annotator or item."""
        row = places_of(self.items, (name for _, name in pairs))
        place = {name: position for position, name in enumerate(self.crew.members)}
        allowed = np.array([who in place and name in row for who, name in pairs], dtype=bool)
        codes = [(row[name], place[who]) for (who, name), here in zip(pairs, allowed, strict=True) if here]
        item, person = np.array(codes, dtype=np.int64).reshape(-1, 2).T
        allowed[allowed] = self.eligible(item, person)
        found: list[bool] = allowed.tolist()
        return found


def _codes(pairs: Iterable[tuple[Name, Name]], place: Mapping[Name, int], row: Mapping[Name, int]) -> tuple[Rows, Rows]:
    """Return item codes and crew positions of the known (person, item) pairs, sorted by item and person."""
    codes = sorted((row[name], place[person]) for person, name in pairs if person in place and name in row)
    item, person = np.array(codes, dtype=np.int64).reshape(-1, 2).T
    return item, person


def _pairs(n_items: int, size: int, item: npt.NDArray[np.integer], person: npt.NDArray[np.integer]) -> csr_array:
    """Return (N, K' + 1) True for these pairs."""
    return csr_array((np.ones(len(item), bool), (item, person)), shape=(n_items, size + 1))


def _answered(annotations: Annotations, place: Mapping[Name, int]) -> csr_array:
    """Return (N, K' + 1) True where an annotator answered the item; annotations are sorted by item already."""
    place_k = np.array([place.get(name, len(place)) for name in annotations.annotators], np.int32)
    cells = np.ones(len(annotations), bool), place_k[annotations.annotator], annotations.item_start
    return csr_array(cells, shape=(annotations.n_items, len(place) + 1))


def _skills(crew: Crew, row: Mapping[Name, int], n_items: int) -> tuple[Ints | None, Mask]:
    """Return for each item its row in the table of annotators with all the skills it needs."""
    sets: dict[frozenset[str], int] = {frozenset(): 0}
    if not (crew.needs and crew.names):
        return None, np.ones((1, len(crew.members)), dtype=bool)
    need = np.zeros(n_items, np.int32)
    for name, skills in crew.needs.items():
        if name in row:
            need[row[name]] = sets.setdefault(frozenset(skills), len(sets))
    has = [frozenset(crew.skills.get(name, ())) for name in crew.names]
    return need, np.array([[needed <= mine for mine in has] for needed in sets], dtype=bool).reshape(len(sets), -1)
