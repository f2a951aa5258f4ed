"""Decide who may be asked about which item. This rule is implemented only here.

    eligible[n, k]  =  item n may be asked about, annotator k may answer it, and neither k nor an account that counts as
                       one with k (`models.analysis.copied_accounts`) has answered any of its questions

    n may be asked about     no question about it is outstanding (`crew.asked`); if the crew has no names, the item also
                             has answers left, that is, (ANONYMOUS, n) is not in crew.never
    k may answer n           n is in crew.only[k], or k is not in crew.only; crew.skills[k] contains crew.needs[n];
                             and (k, n) is not in crew.never

A crew without names has a single column, for anyone. Anyone may be asked about every item repeatedly.

Rows of this table are computed on demand, because a million items times a thousand annotators would not fit in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from hitl.annotations import ANONYMOUS, Annotations, Ints, Name, Names, places_of
from hitl.crew import UNLIMITED, Crew
from hitl.models.analysis.copied_accounts import copied_accounts

Rows = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

BLOCK = 4096
"""Number of items whose rows of the table are computed at a time."""


@dataclass(frozen=True, eq=False)
class Eligibility:
    """Table of the annotators who may be asked about each item, and how many more questions each can take.

    Attributes:
        crew: crew of K' annotators, numbered as in `crew.members`.
        items: N item names.
        capacity: (K',) number of questions that may still be added for each annotator in this plan.
        load: (K',) number of outstanding questions of each annotator.
        closed: (N,) True for items with an outstanding question or, for a crew without names, without answers left.
        everywhere: (K',) True for annotators who can answer any item.
        here: (N, K' + 1) True where one of the other annotators can answer the item; None if `crew.only` is empty.
        barred: (N, K' + 1) matrices, one per reason: True where the annotator or a copied account has answered the
            item, or must not see it. The last column stands for annotators outside the crew.
        need: (N,) row of `able` for the skills that the item needs; None if no item needs any.
        able: (S, K') True for annotators who have all skills of a set. Each row is a set that items need; row 0 is the
            empty set.

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
        """Build the table from the limits of `crew` and the answers to one or several questions about the same items.

        Annotators outside the crew, and items that are not in the annotations, are ignored. An outstanding question
        (`crew.asked`) uses capacity while its annotator may still answer it.
        """
        items = answered[0].items
        n_items, place = len(items), {name: position for position, name in enumerate(crew.names)}
        only = [(person, name) for person, names in crew.only.items() for name in names]
        pairs = [*crew.never, *crew.asked, *only]
        row = places_of(items, [*(name for _, name in pairs), *crew.needs]) if pairs or crew.needs else {}
        size = len(crew.members)
        barred = [_answered(given, place) for given in answered if len(given) and place]
        barred += [pairs for given in answered if len(given) and place for pairs in _answered_by_copies(given, place)]
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
        """Return the table after these questions are asked. Others may still be asked about the same items."""
        more = np.bincount(person, minlength=len(self.load))
        left = replace(self, capacity=np.maximum(self.capacity - more, 0), load=self.load + more)
        return left.without(item, person)

    def without(self, item: npt.NDArray[np.integer], person: npt.NDArray[np.integer]) -> Eligibility:
        """Return the table without these (item code, crew position) pairs."""
        return replace(self, barred=(*self.barred, _pairs(len(self.items), len(self.load), item, person)))

    def mask_rows(self, rows: npt.NDArray[np.integer]) -> Mask:
        """Return (R, K') True where the annotator may be asked about the item with this code, ignoring capacity."""
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
        """Yield these item codes block by block, each with its mask (`mask_rows`)."""
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
        """Return True for each (annotator, item) pair of names that may be asked, False if either is unknown."""
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
    """Return (N, K' + 1) a matrix that is True for these pairs."""
    return csr_array((np.ones(len(item), bool), (item, person)), shape=(n_items, size + 1))


def _answered(annotations: Annotations, place: Mapping[Name, int]) -> csr_array:
    """Return (N, K' + 1) True where an annotator answered the item. Annotations are sorted by item."""
    place_k = np.array([place.get(name, len(place)) for name in annotations.annotators], np.int32)
    cells = np.ones(len(annotations), bool), place_k[annotations.annotator], annotations.item_start
    return csr_array(cells, shape=(annotations.n_items, len(place) + 1))


def _answered_by_copies(annotations: Annotations, place: Mapping[Name, int]) -> Iterator[csr_array]:
    """Yield for each copied account in the crew (N, K' + 1) True where another account of its group answered."""
    found = copied_accounts(annotations)
    for k in {code for pair in found.pairs for code in (pair.copy, pair.original)}:
        if annotations.annotators[k] in place:
            item = np.unique(annotations.item[np.isin(annotations.annotator, found.others(k))])
            person = np.full(len(item), place[annotations.annotators[k]])
            yield _pairs(annotations.n_items, len(place), item, person)


def _skills(crew: Crew, row: Mapping[Name, int], n_items: int) -> tuple[Ints | None, Mask]:
    """Return `Eligibility.need` and `Eligibility.able`."""
    sets: dict[frozenset[str], int] = {frozenset(): 0}
    if not (crew.needs and crew.names):
        return None, np.ones((1, len(crew.members)), dtype=bool)
    need = np.zeros(n_items, np.int32)
    for name, skills in crew.needs.items():
        if name in row:
            need[row[name]] = sets.setdefault(frozenset(skills), len(sets))
    has = [frozenset(crew.skills.get(name, ())) for name in crew.names]
    return need, np.array([[needed <= mine for mine in has] for needed in sets], dtype=bool).reshape(len(sets), -1)
