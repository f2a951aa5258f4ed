"""Answers in codes are the answers of the same table as text, to the bit; a few names are found as in a whole table."""

from __future__ import annotations

import random
import warnings
from dataclasses import fields

import numpy as np
import pyarrow as pa
import pytest

from hitl.annotations import Annotations, CheckedNames, column_of, places_of
from hitl.errors import ConflictingLabels

ITEMS = tuple(f"i{n}" for n in range(30))


def table(dice: random.Random, *, in_order: bool) -> pa.Table:
    """Answers, some of them again, some anonymous, of times of which some are alike or unknown."""
    items = [dice.randrange(len(ITEMS)) for _ in range(dice.choice((0, 1, 200)))]
    rows = [
        {
            "item": ITEMS[item],
            "annotator": dice.choice(("ann", "10", "9", "bob", "", None)),
            "label": dice.choice(("yes", "no", "unsure")),
            "time": dice.choice((1.0, 2.0, 2.0, None)),
            "duration": dice.choice((None, 3.5)),
        }
        for item in (sorted(items) if in_order else items)
    ]
    kinds = [(name, pa.string()) for name in ("item", "annotator", "label")]
    return pa.Table.from_pylist(rows, schema=pa.schema([*kinds, ("time", pa.float64()), ("duration", pa.float64())]))


@pytest.mark.parametrize("in_order", [True, False])
def test_codes_are_read_as_the_text_is(in_order: bool) -> None:
    for seed in range(60):
        said = table(random.Random(seed), in_order=in_order)
        known = {"classes": ["no", "yes"], "options": ["no", "yes", "unsure"]}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConflictingLabels)
            expected = Annotations.from_frame(said, items=ITEMS, time="time", duration="duration", **known)
            columns = {name: said.column(name).combine_chunks() for name in said.column_names}
            found = Annotations.from_codes(
                CheckedNames.unchecked(pa.array(ITEMS)),
                np.array([ITEMS.index(name) for name in columns["item"].to_pylist()], np.int32),
                columns["annotator"].dictionary_encode(),
                columns["label"].dictionary_encode(),
                time=columns["time"].to_numpy(zero_copy_only=False),
                duration=columns["duration"].to_numpy(zero_copy_only=False),
                **known,
            )
        for field in fields(Annotations):
            one, other = getattr(found, field.name), getattr(expected, field.name)
            same = one.tobytes() == other.tobytes() if isinstance(other, np.ndarray) else one == other
            assert same, (seed, field.name)


def test_unused_and_repeated_values_of_a_dictionary_are_nobody_else() -> None:
    people = pa.DictionaryArray.from_arrays(pa.array([3, 0, 1], pa.int32()), pa.array(["ann", "", "zoe", "bob"]))
    labels = pa.array(["yes", "no", "no"]).dictionary_encode()
    found = Annotations.from_codes(
        ("a", "b"), np.array([0, 0, 1], np.int32), people, labels, classes=["no", "yes"], options=["no", "yes"]
    )
    assert found.annotators == ("ann", "bob", "(anonymous)")
    assert found.annotator.tolist() == [0, 1, 2]
    assert found.label.tolist() == [0, 1, 0]


def test_a_few_names_are_found_among_all() -> None:
    for names in (ITEMS, CheckedNames.unchecked(pa.array(ITEMS)), (3, 1, 2)):
        assert places_of(names, ["i7", "i2", "none", 1]) == {n: k for k, n in enumerate(names) if n in ("i7", "i2", 1)}
        assert places_of(names, []) == {}
        again = places_of(names, ["none", "i10", "i7"])
        assert list(again.items()) == [(n, k) for k, n in enumerate(names) if n in ("i7", "i10")], "in order, once more"
        assert column_of(names).to_pylist() == list(map(str, names))
