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
from hitl.active.assignment import transport
from hitl.active.assignment.assign import Assignment, assign
from hitl.active.assignment.eligibility import Eligibility
from hitl.active.assignment.transport import NOT_ALLOWED, best_pairs, best_purchases
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
    return best_with_cost(value, free, capacity, limit, np.zeros(value.shape[1]), 0.0)


def best_with_cost(
    value: Floats, free: npt.NDArray[np.bool_], capacity: list[int], limit: int, price: Floats, cost: float
) -> float:
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
        (coo_array((price[column], (np.zeros_like(row), at)), shape=(1, len(row))), np.array([cost])),
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
        found = best_pairs(worth, capacity, np.zeros(3, np.int64), limit)
        assert tuple(found.column) in allowed
        assert sum(int(worth[r, k]) for r, k in enumerate(found.column) if k >= 0) == best
        over = np.maximum((worth - found.price).max(axis=1) - found.threshold, 0)
        assert found.price @ capacity + limit * found.threshold + over.sum() == best  # duality
        assert (found.price >= 0).all()


def test_moves_that_are_forgotten_are_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    worth = rng.integers(0, 100, (60, 20)).astype(np.int32)
    capacity, load = rng.integers(1, 4, 20), np.zeros(20, np.int64)
    known = best_pairs(worth, capacity, load, 45)
    monkeypatch.setattr(transport, "MOVES", 60)
    again = best_pairs(worth, capacity, load, 45)
    assert (known.column == again.column).all()
    assert (known.price == again.price).all()


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


def chosen(
    crew: Crew, given: Annotations, gains: Gains, limit: int, cost: float = math.inf, loose: float = 1.0
) -> tuple[Assignment, Eligibility]:
    free = Eligibility.of(crew, [given])
    rows = np.arange(given.n_items)
    bound = gains.bound(rows) * loose
    return assign(rows, bound, gains.values, free, limit, cost=cost, alike=gains.alike), free


@pytest.mark.parametrize("limit", [7, 60, 100, 1000])
def test_200_items_50_people_are_paired_as_well_as_an_exact_solver_does(limit: int) -> None:
    crew, given, gains = crowded(limit)
    found, free = chosen(crew, given, gains, limit)
    rows = np.arange(200)
    best = best_by_program(gains.values(rows), free.mask_rows(rows), free.capacity.tolist(), limit)
    assert best * (1 - TOLERANCE) <= found.value <= best * (1 + 1e-9)
    assert best <= found.most * (1 + 1e-9)
    assert found.gap <= TOLERANCE


@pytest.mark.parametrize("cost", [3.0, 40.0, 130.0])
def test_money_is_spent_as_well_as_an_exact_solver_does(cost: float) -> None:
    crew, given, gains = crowded(int(cost), 60, 15)
    found, free = chosen(crew, given, gains, 40, cost)
    rows = np.arange(60)
    price = np.array([crew.cost_of(name) for name in crew.names])
    best = best_with_cost(gains.values(rows), free.mask_rows(rows), free.capacity.tolist(), 40, price, cost)
    assert sum(price[pair.person] for pair in found) <= cost + 1e-9
    assert 0.98 * best <= found.value <= best * (1 + 1e-9)
    assert best <= found.most * (1 + 1e-9)


@given(st.integers(0, 100_000), st.integers(0, 15), st.floats(0, 12), st.booleans())
def test_limits_are_never_violated(seed: int, limit: int, cost: float, costly: bool) -> None:
    crew, answered = world(seed)
    value = np.random.default_rng(seed).random((12, 6)) - 0.1
    free = Eligibility.of(crew, answered)
    paid = cost if costly else math.inf
    order = np.random.default_rng(seed).permutation(12)
    found = assign(order, value.max(axis=1)[order] + 0.3, lambda rows: value[rows], free, limit, cost=paid)
    asked = [(f"i{pair.item}", crew.names[pair.person]) for pair in found]
    assert len({item for item, _ in asked}) == len(asked) <= limit
    assert all(may_be_asked(crew, answered, str(person), item) for item, person in asked)
    for person in crew.names:
        assert sum(who == person for _, who in asked) <= room(crew, answered, str(person))
    assert sum(crew.cost_of(person) for _, person in asked) <= paid + 1e-9
    assert [pair.value for pair in found] == sorted((value[p.item, p.person] for p in found), reverse=True)
    assert all(pair.value >= 0 for pair in found)
    assert found.value <= found.most * (1 + 1e-9) + 1e-12
    again = assign(order, value.max(axis=1)[order] + 0.3, lambda rows: value[rows], free, limit, cost=paid)
    assert again.pairs == found.pairs


@given(st.integers(0, 100_000), st.integers(1, 12), st.floats(1, 1.5))
def test_small_choices_are_the_best_or_within_the_tolerance(seed: int, limit: int, loose: float) -> None:
    """Also where no more items are looked at first than are wanted."""
    crew, answered = world(seed, items=30)
    value = np.random.default_rng(seed).random((30, 6)) - 0.1
    free = Eligibility.of(crew, answered)
    rows = np.arange(30)
    best = best_by_program(value, free.mask_rows(rows), free.capacity.tolist(), limit)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(assigning, "AHEAD", 0)
        found = assign(rows, value.max(axis=1) * loose, lambda at: value[at], free, limit)
    assert best * (1 - TOLERANCE) - 1e-9 <= found.value <= best + 1e-9
    assert best <= found.most * (1 + 1e-9)


@given(st.integers(0, 100_000), st.integers(0, 90))
def test_no_more_is_spent_than_there_is(seed: int, cost: int) -> None:
    rng = np.random.default_rng(seed)
    value = rng.random((60, 1)) * rng.random((60, 8))
    price = dict(enumerate(rng.choice([1.0, 1.5, 2.0, 5.0], 8).tolist()))
    free = Eligibility.of(Crew(tuple(range(8)), default_capacity=6, cost=price), [nothing_said(60)])
    found = assign(np.arange(60), value.max(axis=1), lambda at: value[at], free, 45, cost=cost)
    assert sum(price[pair.person] for pair in found) <= cost
    assert len(found) <= 45
    assert max((sum(pair.person == k for pair in found) for k in range(8)), default=0) <= 6
    assert found.value <= found.most * (1 + 1e-9)
    assert (
        found.most - found.value <= value.max() + 2 * TOLERANCE * found.most
    )  # one question more, if it were divisible


@given(st.integers(0, 100_000), st.integers(0, 3))
def test_what_brings_most_for_the_money_is_bought(seed: int, limit: int) -> None:
    rng = np.random.default_rng(seed)
    value, cost = rng.random((4, 3)), rng.choice([1.0, 2.0, 3.0], 3)
    column, room, left = rng.integers(-1, 3, 4), rng.integers(0, 2, 3), float(rng.integers(0, 4))
    choice, rate = best_purchases(value, cost, column, room, left, limit)
    for r in range(4):
        has = column[r] >= 0
        now, paid = (value[r, column[r]], cost[column[r]]) if has else (0.0, 0.0)
        rates = {-1.0: 0} | {
            float((value[r, k] - now) / max(cost[k] - paid, 1e-12)): k
            for k in range(3)
            if room[k] > 0 and value[r, k] > now and cost[k] - paid <= left and (has or (column >= 0).sum() < limit)
        }
        assert np.isclose(rate[r], max(rates))
        assert choice[r] == rates[max(rates)]


def test_what_brings_nothing_is_asked_with_the_money_that_is_left() -> None:
    """Nothing was asked where the one annotator who might be chosen at first was too dear: a project did not end."""
    crew = Crew(("dear", "cheap", "other"), default_capacity=2, cost={"dear": 9.0, "other": 1.5})
    for value in (np.zeros((3, 3)), np.array([[0.3, 0.2, 0.1], [0, 0, 0], [0, 0, 0]])):
        free = Eligibility.of(crew, [nothing_said(3)])
        found = assign(np.arange(3), value.max(axis=1), lambda at, value=value: value[at], free, 3, cost=4.0)
        assert sorted(pair.item for pair in found) == [0, 1, 2]
        assert sorted(pair.person for pair in found) == [1, 1, 2]


def test_what_is_bought_beyond_a_share_is_bought_as_well() -> None:
    """Money was left over where it would have brought annotators beyond their share."""
    crew = Crew(("dear", "cheap"), cost={"dear": 9.0})
    free, share = Eligibility.of(crew, [nothing_said(4)]), np.array([2, 2])
    found = assign(np.arange(4), np.zeros(4), lambda at: np.zeros((len(at), 2)), free, 4, cost=5.0, share=share)
    assert [pair.person for pair in found] == [1, 1, 1, 1]


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
    seen, values = counted(lambda rows: value[rows])
    few = assign(np.arange(items), bound, values, free, 50)
    assert len(set(seen)) < 0.05 * items
    assert few.looked_at == len(seen)
    everything = assign(np.arange(items), np.full(items, 100.0), lambda rows: value[rows], free, 50)
    assert everything.looked_at >= items
    assert few.value >= (1 - TOLERANCE) * everything.value
    assert everything.value >= (1 - TOLERANCE) * few.value
    assert few.gap <= TOLERANCE


def test_the_best_items_are_found_behind_many_that_promised_more() -> None:
    """Bounds may be as loose as they like: they only cost time."""
    items = 30_000
    value = np.full((items, 2), 0.1)
    value[-5:] = 0.9
    bound = np.full(items, 3.0)
    bound[-5:] = 1.0
    free = Eligibility.of(Crew((0, 1), default_capacity=100), [nothing_said(items)])
    found = assign(np.arange(items), bound, lambda rows: value[rows], free, 5)
    assert {pair.item for pair in found} == set(range(items - 5, items))


def test_items_of_equal_beliefs_are_looked_at_once() -> None:
    items = 50_000
    rng = np.random.default_rng(1)
    skill = rng.beta(4, 2, (30, 1, 1))
    gains = Gains(INFORMATION, [Question(np.full((items, 3), 1 / 3), skill * np.eye(3) + (1 - skill) / 3)])
    free = Eligibility.of(Crew(tuple(range(30)), default_capacity=2), [nothing_said(items)])
    rows = np.arange(items)
    seen, values = counted(gains.values)
    found = assign(rows, gains.bound(rows), values, free, 40, alike=gains.alike)
    assert len(seen) < 500
    best = np.sort(np.repeat(gains.values(rows[:1])[0], 2))[-40:].sum()
    assert (1 - TOLERANCE) * best <= found.value <= best + 1e-9
    assert found.gap <= TOLERANCE
    assert [pair.item for pair in sorted(found, key=lambda pair: pair.item)] == list(range(40))


def test_what_is_proven_holds_where_the_effort_is_limited() -> None:
    """Everybody is busy: then the bounds exclude little. The best is not missed by more than the gap says."""
    rng = np.random.default_rng(2)
    value = rng.random((1500, 1)) ** 0.1 * rng.random((1500, 6))
    free = Eligibility.of(Crew(tuple(range(6)), default_capacity=5), [nothing_said(1500)])
    bound = value.max(axis=1) * rng.uniform(1, 4, 1500)
    short = assign(np.arange(1500), bound, lambda rows: value[rows], free, 30, effort=3000)
    assert short.looked_at < 1000
    best = best_by_program(value, np.ones(value.shape, bool), [5] * 6, 30)
    assert short.value <= best <= short.most * (1 + 1e-9)
    assert short.gap > TOLERANCE
    assert assign(np.arange(1500), bound, lambda rows: value[rows], free, 30).gap <= TOLERANCE


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
    for crew, limit, cost in ((Crew((0,), {0: 0}), 3, math.inf), (Crew((0,)), 0, math.inf), (Crew((0,)), 3, 0.5)):
        free = Eligibility.of(crew, [given])
        wide = np.ones((5, len(crew.names)))
        assert assign(np.arange(5), np.ones(5), lambda at, wide=wide: wide[at], free, limit, cost=cost).pairs == ()
    barred = Eligibility.of(Crew((0,), never=frozenset((0, n) for n in range(5))), [given])
    assert assign(np.arange(5), np.ones(5), lambda at: value[at], barred, 3).pairs == ()
    free = Eligibility.of(Crew((0,)), [given])
    assert assign(np.arange(5), np.ones(5), lambda at: value[at] - 2, free, 3).pairs == ()
    assert len(assign(np.arange(5), np.ones(5), lambda at: value[at] - 1, free, 3)) == 3  # worth nothing, but asked
