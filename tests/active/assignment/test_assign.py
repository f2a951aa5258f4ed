"""Who is asked what: limits hold, nothing better exists (linear programs say so), and few items are looked at."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

from hitl.active.acquisition.expected_gain import INFORMATION, Gains, Question
from hitl.active.assignment import assign as assigning
from hitl.active.assignment.assign import Pair, assign
from hitl.active.assignment.eligibility import Eligibility
from hitl.active.assignment.transport import NOT_ALLOWED, best_pairs
from hitl.annotations import ANONYMOUS, Annotations, Floats
from hitl.crew import UNLIMITED, Crew

TOLERANCE = 0.004


def world(seed: int, items: int = 12, people: int = 6) -> tuple[Crew, list[Annotations]]:
    """A crew with every limit there is, and what was answered to two questions."""
    rng = np.random.default_rng(seed)
    names = tuple(f"p{k}" for k in range(people))
    strangers = ("somebody else",)
    item_names = tuple(f"i{n}" for n in range(items))

    def some_pairs(count: int) -> list[tuple[str, str]]:
        known = (*names, "nobody"), (*item_names, "gone")
        return [tuple(str(rng.choice(part)) for part in known) for _ in range(count)]  # type: ignore[misc]

    answered = []
    for _ in range(2):
        matrix = np.where(rng.random((items, people + 1)) < 0.15, rng.integers(0, 2, (items, people + 1)), -1)
        item, annotator = (column.astype(np.int32) for column in np.nonzero(matrix >= 0))
        label = matrix[item, annotator].astype(np.int32)
        shuffled = tuple(rng.permutation([*names, *strangers]).tolist())
        answered.append(Annotations(item, annotator, label, item_names, shuffled, ("a", "b"), ("a", "b")))
    tongues = ("de", "en", "fr")
    crew = Crew(
        names,
        {name: int(rng.integers(0, 5)) for name in names[:3]},
        int(rng.integers(0, 6)),
        frozenset(some_pairs(8)),
        {names[0]: frozenset(rng.choice(item_names, 7).tolist()), "nobody": frozenset(["i0"])},
        {names[1]: 2.5, names[2]: 0.5},
        1.0,
        {name: frozenset(rng.choice(tongues, 2).tolist()) for name in names[1:]},
        {name: frozenset(rng.choice(tongues, int(rng.integers(0, 3))).tolist()) for name in rng.choice(item_names, 5)},
        tuple(some_pairs(6)),
    )
    return crew, answered


def may_be_asked(crew: Crew, answered: list[Annotations], person: str, item: str) -> bool:
    """What `Crew` says, word by word."""
    said = {
        (given.annotators[k], given.items[n])
        for given in answered
        for k, n in zip(given.annotator, given.item, strict=True)
    }
    return (
        (person, item) not in said
        and (person, item) not in crew.never
        and item not in {asked for _, asked in crew.asked}  # an answer about it is expected
        and item in crew.only.get(person, {item})
        and crew.needs.get(item, frozenset()) <= crew.skills.get(person, frozenset())
    )


def room(crew: Crew, answered: list[Annotations], person: str) -> int:
    """Capacity less what is still expected."""
    expected = {
        (who, item)
        for who, item in crew.asked
        if who == person
        and item in answered[0].items
        and not any(
            given.annotators[k] == who and given.items[n] == item
            for given in answered
            for k, n in zip(given.annotator, given.item, strict=True)
        )
        and (who, item) not in crew.never
        and item in crew.only.get(who, {item})
        and crew.needs.get(item, frozenset()) <= crew.skills.get(who, frozenset())
    }
    return max(0, crew.capacity_of(person) - len(expected))


@given(st.integers(0, 100_000))
def test_who_may_be_asked_is_what_the_crew_says(seed: int) -> None:
    crew, answered = world(seed)
    free = Eligibility.of(crew, answered)
    rows = np.random.default_rng(seed).permutation(12)[:7]
    expected = [[may_be_asked(crew, answered, person, f"i{n}") for person in crew.names] for n in rows]
    assert free.mask_rows(rows).tolist() == expected
    pairs = [(person, f"i{n}") for n in rows for person in crew.names]
    assert free.may_be_asked(pairs) == np.ravel(expected).tolist()
    assert free.may_be_asked([("a stranger", "i0"), (crew.names[0], "no item")]) == [False, False]
    assert free.any_of(rows) == np.any(expected)
    assert free.capacity.tolist() == [room(crew, answered, person) for person in crew.names]


def test_a_crew_without_limits_may_be_asked_everything() -> None:
    nothing = Annotations.from_matrix(np.full((3, 2), -1), classes=("a", "b"))
    free = Eligibility.of(Crew((0, 1, "new")), [nothing])
    assert free.mask_rows(np.arange(3)).all()
    assert free.capacity.tolist() == [UNLIMITED] * 3


def test_anyone_may_be_asked_about_every_item_that_no_answer_is_expected_of() -> None:
    given = Annotations.from_matrix([[0], [1], [-1], [-1]], classes=("a", "b"))
    never = frozenset(
        {(ANONYMOUS, 1), ("ann", 2)}
    )  # a pool without names has no more answers about 1; ann is one of many
    anyone = Eligibility.of(Crew(never=never, asked=(("bob", 3),), needs={0: frozenset({"de"})}), [given])
    assert anyone.mask_rows(np.arange(4)).tolist() == [[True], [False], [True], [False]]
    assert anyone.capacity.tolist() == [UNLIMITED]
    assert anyone.may_be_asked([(None, 0), (None, 1), ("ann", 0)]) == [True, False, False]


def test_who_may_answer_is_a_matter_of_bars_shares_and_skills() -> None:
    crew = Crew(
        ("ann", "bob"),
        never=frozenset({("ann", "a")}),
        only={"bob": frozenset({"a", "b"})},
        skills={"ann": frozenset({"de", "fr"})},
        needs={"b": frozenset({"de"}), "c": frozenset({"de", "it"}), "d": frozenset()},
    )
    none = np.zeros(0, np.int32)
    free = Eligibility.of(crew, [Annotations(none, none, none, tuple("abcde"), (), (0, 1), (0, 1))])
    may = {who: [item for item in "abcde" if free.may_be_asked([(who, item)])[0]] for who in crew.names}
    assert may == {"ann": ["b", "d", "e"], "bob": ["a"]}


def test_a_second_round_asks_others_and_of_what_is_left() -> None:
    crew, answered = world(3)
    first = Eligibility.of(crew, answered)
    item, person = np.array([4, 4, 7]), np.array([5, 3, 5])
    second = first.after(item, person)
    rows = np.arange(12)
    expected = first.mask_rows(rows)
    expected[item, person] = False
    assert (second.mask_rows(rows) == expected).all()
    assert (first.capacity - second.capacity).tolist() == np.minimum([0, 0, 0, 1, 0, 2], first.capacity).tolist()
    assert (second.load - first.load).tolist() == [0, 0, 0, 1, 0, 2]


# -- the best pairs -------------------------------------------------------------------------------------------


def best_by_program(value: Floats, free: npt.NDArray[np.bool_], capacity: list[int], limit: int) -> float:
    """The integer program itself, by a solver that knows nothing of ours."""
    row, column = np.nonzero(free & (value >= 0))
    if not len(row):
        return 0.0
    n_rows, n_columns = value.shape
    at = np.arange(len(row))
    ones = np.ones(len(row))
    parts = [
        (coo_array((ones, (row, at)), shape=(n_rows, len(row))), np.ones(n_rows)),
        (coo_array((ones, (column, at)), shape=(n_columns, len(row))), np.array(capacity, dtype=float)),
        (coo_array((ones, (np.zeros_like(row), at)), shape=(1, len(row))), np.array([limit], dtype=float)),
    ]
    found = milp(
        -value[row, column],
        integrality=ones,
        bounds=Bounds(0, 1),
        constraints=[LinearConstraint(matrix.tocsr(), -np.inf, most) for matrix, most in parts],
    )
    assert found.success
    return float(-found.fun)


@given(st.integers(0, 100_000))
def test_every_number_of_pairs_is_the_best_of_its_size(seed: int) -> None:
    """Against all choices there are; and the prices prove it."""
    rng = np.random.default_rng(seed)
    worth = rng.integers(0, 6, (4, 3)).astype(np.int32)
    worth[rng.random((4, 3)) < 0.25] = NOT_ALLOWED
    capacity = rng.integers(0, 3, 3)
    choices = [
        choice
        for choice in itertools.product((-1, 0, 1, 2), repeat=4)
        if all(choice.count(k) <= capacity[k] for k in range(3))
        and all(k < 0 or worth[r, k] >= 0 for r, k in enumerate(choice))
    ]
    for limit in range(1, 6):
        allowed = [c for c in choices if sum(k >= 0 for k in c) <= limit]
        best = max(sum(int(worth[r, k]) for r, k in enumerate(c) if k >= 0) for c in allowed)
        column, price, last = best_pairs(worth, capacity, np.zeros(3, np.int64), limit)
        assert tuple(column) in allowed
        assert sum(int(worth[r, k]) for r, k in enumerate(column) if k >= 0) == best
        over = np.maximum((worth - price).max(axis=1) - last, 0)
        assert price @ capacity + limit * last + over.sum() == best  # duality
        assert (price >= 0).all()


def total(found: tuple[Pair, ...]) -> float:
    return math.fsum(pair.value * pair.counts for pair in found)


def crowded(seed: int, items: int = 200, people: int = 50) -> tuple[Crew, Annotations, Gains]:
    """Beliefs, annotators of all kinds, capacities, pairs that must not be, skills."""
    rng = np.random.default_rng(seed)
    q = rng.dirichlet(np.full(4, 0.5), items)
    skill = rng.beta(4, 2, (people, 1, 1))
    pi = skill * np.eye(4) + (1 - skill) * rng.dirichlet(np.ones(4), (people, 4))
    tongues = ("de", "en", "fr")
    crew = Crew(
        tuple(range(people)),
        dict(enumerate(rng.integers(0, 6, people).tolist())),
        never=frozenset(zip(rng.integers(0, people, 900).tolist(), rng.integers(0, items, 900).tolist(), strict=True)),
        skills={k: frozenset(rng.choice(tongues, 2).tolist()) for k in range(people)},
        needs={n: frozenset([str(rng.choice(tongues))]) for n in range(0, items, 2)},
        cost=dict(enumerate(rng.choice([1.0, 2.0, 5.0], people).tolist())),
    )
    seen = np.where(rng.random((items, people)) < 0.1, 0, -1)
    return crew, Annotations.from_matrix(seen, classes=(0, 1)), Gains(INFORMATION, [Question(q, pi)])


@pytest.mark.parametrize("limit", [7, 60, 100, 1000])
def test_200_items_50_people_are_paired_as_well_as_an_exact_solver_does(limit: int) -> None:
    crew, given, gains = crowded(limit)
    free, rows = Eligibility.of(crew, [given]), np.arange(200)
    found = assign(rows, gains.bound(rows), gains.values, free, limit)
    best = best_by_program(gains.values(rows), free.mask_rows(rows), free.capacity.tolist(), limit)
    assert best * (1 - TOLERANCE) <= total(found) <= best * (1 + 1e-9)


@given(st.integers(0, 100_000), st.integers(1, 15), st.floats(1, 1.5), st.sampled_from([12, 30]))
def test_limits_hold_and_small_choices_are_the_best(seed: int, limit: int, loose: float, items: int) -> None:
    """Also where no more items are looked at first than are wanted."""
    crew, answered = world(seed, items=items)
    value = np.random.default_rng(seed).random((items, 6)) - 0.1
    free = Eligibility.of(crew, answered)
    order = np.random.default_rng(seed).permutation(items)
    best = best_by_program(value, free.mask_rows(np.arange(items)), free.capacity.tolist(), limit)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(assigning, "AHEAD", 1)
        patch.setattr(assigning, "BLOCK", 64)
        found = assign(order, value.max(axis=1)[order] * loose + 0.1, value.__getitem__, free, limit)
        assert assign(order, value.max(axis=1)[order] * loose + 0.1, value.__getitem__, free, limit) == found
    assert best * (1 - TOLERANCE) - 1e-9 <= total(found) <= best + 1e-9
    asked = [(f"i{pair.item}", crew.names[pair.person]) for pair in found]
    assert len({item for item, _ in asked}) == len(asked) <= limit
    assert all(may_be_asked(crew, answered, str(person), item) for item, person in asked)
    for person in crew.names:
        assert sum(who == person for _, who in asked) <= room(crew, answered, str(person))
    assert [pair.value for pair in found] == sorted((value[p.item, p.person] for p in found), reverse=True)
    assert all(pair.value >= 0 for pair in found)


# -- few items are looked at ----------------------------------------------------------------------------------


def counted(values: Callable[[npt.NDArray[np.int64]], Floats]) -> tuple[list[int], Callable[..., Floats]]:
    seen: list[int] = []

    def asked(rows: npt.NDArray[np.int64]) -> Floats:
        seen.extend(rows.tolist())
        return values(rows)

    return seen, asked


@pytest.mark.parametrize("loose", [1.0, 1.3])
def test_items_that_cannot_matter_are_not_looked_at(loose: float) -> None:
    rng = np.random.default_rng(0)
    items = 20_000
    value = rng.exponential(size=(items, 1)) * rng.uniform(0.5, 1, (1, 8))
    free = Eligibility.of(Crew(tuple(range(8)), default_capacity=9), [nothing_said(items)])
    bound = value.max(axis=1) * rng.uniform(1, loose, items)
    seen, values = counted(value.__getitem__)
    few = assign(np.arange(items), bound, values, free, 50)
    assert len(seen) == len(set(seen)) < 0.25 * items
    best = np.argsort(-value.max(axis=1))[:200]  # none behind them is among the best fifty
    exact = best_by_program(value[best], np.ones((200, 8), bool), [9] * 8, 50)
    assert total(few) >= (1 - TOLERANCE) * exact


def test_items_that_only_others_may_answer_do_not_end_the_search() -> None:
    """The 9,000 of largest value take a skill of one annotator who has time for two."""
    items = 10_000
    crew = Crew(
        ("ann", "bob"),
        {"ann": 2},
        skills={"ann": frozenset({"de"})},
        needs=dict.fromkeys(range(9_000), frozenset({"de"})),
    )
    value = np.linspace(1, 0.1, items)[:, None] * np.ones(2)
    free = Eligibility.of(crew, [nothing_said(items)])
    found = assign(np.arange(items), value[:, 0], value.__getitem__, free, 50)
    assert [pair.item for pair in found] == [0, 1, *range(9_000, 9_048)]


def test_bounds_that_mislead_do_not_end_the_search() -> None:
    """The first 1,500 promise most and bring next to nothing, such as items that only spammers may answer."""
    value = np.repeat([0.01, 0.9], 1500)[:, None] * np.ones(2)
    free = Eligibility.of(Crew(("ann", "bob")), [nothing_said(3000)])
    found = assign(np.arange(3000), np.repeat([1.0, 0.9], 1500), value.__getitem__, free, 100)
    assert total(found) == pytest.approx(90.0)


def test_an_annotator_who_cannot_have_all_they_could_does_not_make_it_look_at_everything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    items, people = 40_000, 200
    monkeypatch.setattr("hitl.active.assignment.assign.EFFORT", 10_000 * people)
    never = {k: frozenset({-1}) for k in range(1, people)}  # all but the first may be asked of no item there is
    free = Eligibility.of(Crew(tuple(range(people)), default_capacity=2, only=never), [nothing_said(items)])
    seen, values = counted(lambda rows: np.ones((len(rows), people)))
    assert len(assign(np.arange(items), np.ones(items), values, free, 100)) == 2
    assert len(seen) < 20_000


def test_items_of_equal_beliefs_are_not_all_looked_at() -> None:
    items = 50_000
    rng = np.random.default_rng(1)
    skill = rng.beta(4, 2, (30, 1, 1))
    gains = Gains(INFORMATION, [Question(np.full((items, 3), 1 / 3), skill * np.eye(3) + (1 - skill) / 3)])
    free = Eligibility.of(Crew(tuple(range(30)), default_capacity=2), [nothing_said(items)])
    rows = np.arange(items)
    seen, values = counted(gains.values)
    found = assign(rows, gains.bound(rows), values, free, 40)
    assert len(seen) < 5_000
    best = np.sort(np.repeat(gains.values(rows[:1])[0], 2))[-40:].sum()
    assert (1 - TOLERANCE) * best <= total(found) <= best + 1e-9
    assert [pair.item for pair in sorted(found, key=lambda pair: pair.item)] == list(range(40))


def nothing_said(items: int) -> Annotations:
    none = np.zeros(0, np.int32)
    return Annotations(none, none, none, tuple(range(items)), (), ("a", "b"), ("a", "b"))


# -- of equals ------------------------------------------------------------------------------------------------


def test_load_and_contested_items_are_spread_over_equally_good_people() -> None:
    value = np.linspace(1.0, 0.2, 60)[:, None] * np.ones((60, 5))
    value[:, 4] *= 0.7  # less good, and not needed
    free = Eligibility.of(Crew(tuple(range(5)), default_capacity=30), [nothing_said(60)])
    found = assign(np.arange(60), value.max(axis=1), lambda rows: value[rows], free, 40)
    items = [[pair.item for pair in found if pair.person == k] for k in range(5)]
    assert [len(mine) for mine in items] == [10, 10, 10, 10, 0]
    contested = [sum(item < 20 for item in mine) for mine in items[:4]]
    assert contested == [5, 5, 5, 5]


def test_who_is_still_expected_to_answer_is_given_less() -> None:
    asked = tuple((0, item) for item in range(50, 56))
    free = Eligibility.of(Crew((0, 1), default_capacity=30, asked=asked), [nothing_said(60)])
    value = np.ones((60, 2))
    found = assign(np.arange(50), np.ones(50), lambda rows: value[rows], free, 10)
    assert [sum(pair.person == k for pair in found) for k in (0, 1)] == [2, 8]


def test_of_equal_items_the_first_are_asked() -> None:
    rows = np.random.default_rng(0).permutation(500)
    free = Eligibility.of(Crew((0, 1), default_capacity=30), [nothing_said(500)])
    found = assign(rows, np.ones(500), lambda at: np.ones((len(at), 2)), free, 7)
    assert {pair.item for pair in found} == set(rows[:7].tolist())


def test_the_last_bits_of_values_do_not_change_the_order() -> None:
    """They differ from processor to processor."""
    rows = np.random.default_rng(0).permutation(60)
    free = Eligibility.of(Crew((0, 1), default_capacity=30), [nothing_said(60)])

    def asked(noise: npt.NDArray[np.int64]) -> list[tuple[int, int]]:
        value = 0.7 + 1e-15 * noise[:, None] * np.ones(2)
        found = assign(rows, value.max(axis=1)[rows], lambda at: value[at], free, 20)
        return [(pair.item, pair.person) for pair in found]

    none = asked(np.zeros(60))
    assert [item for item, _ in none] == rows[:20].tolist()
    assert all(asked(np.random.default_rng(seed).integers(-2, 3, 60)) == none for seed in range(10))


def test_with_nobody_or_nothing_to_ask_nothing_is_asked() -> None:
    value = np.ones((5, 1))
    given = nothing_said(5)
    for crew, limit in ((Crew((0,), {0: 0}), 3), (Crew((0,)), 0)):
        free = Eligibility.of(crew, [given])
        assert assign(np.arange(5), np.ones(5), lambda at: value[at], free, limit) == ()
    barred = Eligibility.of(Crew((0,), never=frozenset((0, n) for n in range(5))), [given])
    assert assign(np.arange(5), np.ones(5), lambda at: value[at], barred, 3) == ()
    free = Eligibility.of(Crew((0,)), [given])
    assert assign(np.arange(5), np.ones(5), lambda at: value[at] - 2, free, 3) == ()
    assert len(assign(np.arange(5), np.ones(5), lambda at: value[at] - 1, free, 3)) == 3  # worth nothing, but asked
