"""Who may be asked about which item: nobody twice, nobody what they may not see or cannot do.

    allowed[n, k]  =  (k can answer every item, or n is in crew.only[k])  and  crew.needs[n] is part of crew.skills[k]
                      and not (k has answered n, any question of it, or never may, or was asked and has yet to answer)

Rows of this table are made as they are needed: a million items x a thousand people are not kept, and annotations are
read where they lie, ordered by item.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from hitl.annotations import Annotations, Ints, Name, Names
from hitl.crew import Crew

Rows = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class PeopleOf:
    """Some people of the crew for each item: those of item n are person[start[n]:start[n+1]], -1 for a stranger.

    Where `place` is given, `person` holds other codes and place[code] is the position in the crew.
    """

    start: Rows
    person: Ints
    place: Ints | None = None

    @classmethod
    def of(cls, n_items: int, item: Rows, person: Rows) -> PeopleOf:
        """From pairs in any order."""
        order = np.argsort(item, kind="stable")
        start = np.append(0, np.cumsum(np.bincount(item, minlength=n_items)))
        return cls(start, person[order].astype(np.int32))

    def write(self, rows: Rows, mask: Mask, value: bool) -> None:
        """Set mask[r, k] for everybody k who is listed for item rows[r]."""
        first = self.start[rows]
        count = self.start[rows + 1] - first
        row = np.repeat(np.arange(len(rows)), count)
        within = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
        person = self.person[np.repeat(first, count) + within]
        if self.place is not None:
            person = self.place[person]
        ours = person >= 0
        mask[row[ours], person[ours]] = value


@dataclass(frozen=True, eq=False)
class Availability:
    """Which of the crew may be asked about an item, and how many more each can take.

    Attributes:
        crew: the crew of K' people; positions are those of `crew.names`.
        capacity: (K',) how many more items each may be given in this plan: what is still expected of them counts.
        load: (K',) how many answers are still expected of each.
        everywhere: (K',) who can answer any item.
        here: who can answer this item among those who cannot answer any.
        barred: who has answered it, may not see it, or was asked already; one for each source.
        need: (N,) row of `able` that holds what the item takes, or None where no item takes anything.
        able: (S, K') who has all the skills of each set that some item takes; row 0 is the empty set.
        n_items: N.
    """

    crew: Crew
    capacity: Rows
    load: Rows
    everywhere: Mask
    here: PeopleOf | None
    barred: tuple[PeopleOf, ...]
    need: Ints | None
    able: Mask
    n_items: int

    @classmethod
    def of(cls, crew: Crew, answered: Sequence[Annotations]) -> Availability:
        """Availability given what was answered, to one or several questions about the same items.

        People and items that the crew or the annotations do not know are passed over. A question still expected (in
        `crew.asked`) takes from the capacity unless it was answered meanwhile.
        """
        items, n_items = answered[0].items, answered[0].n_items
        place = {name: position for position, name in enumerate(crew.names)}
        only = [(person, name) for person, names in crew.only.items() for name in names]
        row = _rows_by_name(items, (name for pairs in (crew.never, crew.asked, only) for _, name in pairs), crew.needs)
        barred = [_answered(given, place) for given in answered if len(given)]
        if crew.never:
            barred.append(PeopleOf.of(n_items, *_codes(crew.never, place, row)))
        asked_item, asked_person = _codes(set(crew.asked), place, row)
        load = np.zeros(len(crew.names), np.int64)
        if len(asked_item):
            load += np.bincount(asked_person[~_listed(barred, asked_item, asked_person)], minlength=len(load))
            barred.append(PeopleOf.of(n_items, asked_item, asked_person))
        most = np.array([crew.capacity_of(name) for name in crew.names], dtype=np.int64)
        need, able = _skills(crew, row, n_items)
        return cls(
            crew,
            np.maximum(most - load, 0),
            load,
            np.array([name not in crew.only for name in crew.names], dtype=bool),
            PeopleOf.of(n_items, *_codes(only, place, row)) if only else None,
            tuple(barred),
            need,
            able,
            n_items,
        )

    def after(self, item: npt.NDArray[np.integer], person: npt.NDArray[np.integer]) -> Availability:
        """What is left when these have been asked too: items may then be given to others, in the same plan."""
        asked = PeopleOf.of(self.n_items, np.asarray(item, dtype=np.int64), np.asarray(person, dtype=np.int64))
        more = np.bincount(asked.person, minlength=len(self.load))
        left = np.maximum(self.capacity - more, 0)
        return replace(self, capacity=left, load=self.load + more, barred=(*self.barred, asked))

    def mask_rows(self, rows: npt.NDArray[np.integer]) -> Mask:
        """(R, K') who of the crew may be asked about the items with these codes, capacity aside."""
        at: Rows = np.asarray(rows, dtype=np.int64)
        free = np.tile(self.everywhere, (len(at), 1))
        if self.here is not None:
            self.here.write(at, free, True)
        for people in self.barred:
            people.write(at, free, False)
        if self.need is not None:
            free &= self.able[self.need[at]]
        return free

    def mask(self, item: int) -> Mask:
        """(K',) who of the crew may be asked about the item with this code, capacity aside."""
        free: Mask = self.mask_rows(np.array([item]))[0]
        return free


def _rows_by_name(items: Names, names: Iterable[Name], needs: Mapping[Name, frozenset[str]]) -> dict[Name, int]:
    """Codes of the items that are named; without a table of all the others."""
    wanted = set(names) | set(needs)
    return {name: code for code, name in enumerate(items) if name in wanted} if wanted else {}


def _codes(pairs: Iterable[tuple[Name, Name]], place: Mapping[Name, int], row: Mapping[Name, int]) -> tuple[Rows, Rows]:
    """Item codes and crew positions of (person, item) pairs, those known to both, in order of item and person."""
    known = sorted((row[name], place[person]) for person, name in pairs if person in place and name in row)
    item, person = np.array(known, dtype=np.int64).reshape(-1, 2).T
    return item, person


def _answered(given: Annotations, place: Mapping[Name, int]) -> PeopleOf:
    """Who has answered what: the annotations as they are."""
    return PeopleOf(
        given.item_start, given.annotator, np.array([place.get(name, -1) for name in given.annotators], np.int32)
    )


def _listed(sources: Sequence[PeopleOf], item: Rows, person: Rows) -> Mask:
    """Whether each pair stands in one of the sources."""
    n_people = int(person.max()) + 1
    found = np.zeros(len(item), dtype=bool)
    for people in sources:
        width = max(n_people, int(people.person.max(initial=0) if people.place is None else people.place.max()) + 1)
        mask = np.zeros((len(item), width), dtype=bool)
        people.write(item, mask, True)
        found |= mask[np.arange(len(item)), person]
    return found


def _skills(crew: Crew, row: Mapping[Name, int], n_items: int) -> tuple[Ints | None, Mask]:
    """For each item the row of the table that says who has all it takes."""
    sets: dict[frozenset[str], int] = {frozenset(): 0}
    if not crew.needs:
        return None, np.ones((1, len(crew.names)), dtype=bool)
    need = np.zeros(n_items, np.int32)
    for name, skills in crew.needs.items():
        if name in row:
            need[row[name]] = sets.setdefault(frozenset(skills), len(sets))
    has = [frozenset(crew.skills.get(name, ())) for name in crew.names]
    return need, np.array([[needed <= mine for mine in has] for needed in sets], dtype=bool).reshape(len(sets), -1)
