"""Build the annotators of a replay from the command line: simulated ones, and everyone's limits."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from hitl.errors import BadInput, BadSettings, BadTable

if TYPE_CHECKING:
    from hitl.active.replay.simulated_annotators import Group, Kind
    from hitl.annotations import Names
    from hitl.crew import Crew

JOINS = 10
"""Round in which simulated newcomers join."""


def groups_of(entries: Sequence[str]) -> tuple[Group, ...]:
    """Parse simulated annotators: KIND=HOW MANY or KIND=HOW MANY:LOWEST-HIGHEST accuracy. Raises BadSettings."""
    from hitl.active.replay.simulated_annotators import KINDS, Group

    groups = []
    for entry in entries:
        match = re.fullmatch(r"([a-z]+)=(\d+)(?::(\d*\.?\d+)-(\d*\.?\d+))?", entry)
        if not match or match[1] not in (*KINDS, "newcomer"):
            raise BadSettings(
                f"--simulate {entry!r}: expected KIND=HOW MANY or KIND=HOW MANY:LOWEST-HIGHEST accuracy, KIND one of "
                f"{', '.join(KINDS)}, newcomer; for instance good=20:0.7-0.9"
            )
        kind, people, low, high = match.groups()
        if int(people) < 1:
            raise BadSettings(f"--simulate {entry!r}: {people} annotators; expected 1 or more")
        if low is not None and not 0 <= float(low) <= float(high) <= 1:
            raise BadSettings(f"--simulate {entry!r}: expected 0 <= LOWEST <= HIGHEST <= 1, for instance 0.7-0.9")
        more: dict[str, Any] = {} if low is None else {"accuracy": (float(low), float(high))}
        if kind == "newcomer":
            kind, more["joins"] = "good", JOINS
        groups.append(Group(cast("Kind", kind), int(people), **more))
    return tuple(groups)


def crew_of(path: Path | None, each: int | None, people: Names) -> Crew:
    """Return limits and costs from --capacity and --people. Raises BadTable, and BadInput for an unknown annotator."""
    from hitl.crew import UNLIMITED, Crew
    from hitl.tables.columns import require_columns
    from hitl.tables.read import read_table

    general = UNLIMITED if each is None else each
    cost: dict[Any, float] = {}
    capacity: dict[Any, int] = {}
    if path is not None:
        table = read_table(path, ["annotator"])
        require_columns(table, ["annotator"], str(path))
        names = table.column("annotator").to_pylist()
        unknown = [name for name in names if name not in set(people)]
        if unknown:
            raise BadInput(f"{path}: {unknown[0]!r} is no annotator who can be asked; expected names as {people[0]!r}")
        twice = next((name for name, count in Counter(names).items() if count > 1), None)
        if twice is not None:
            raise BadTable(f"{path}: annotator {twice!r} appears twice; expected one row for each")
        if not {"cost", "capacity"} & {*table.column_names}:
            raise BadTable(f"{path}: expected a column cost or capacity; it has {', '.join(table.column_names)}")
        columns = {name: column.to_pylist() for name, column in zip(table.column_names, table.columns, strict=True)}
        cost = _numbers(path, names, columns, "cost")
        limits = _numbers(path, names, columns, "capacity")
        capacity = {name: int(min(value, UNLIMITED)) for name, value in limits.items()}
    if max([*capacity.values(), *([general] if set(people) - set(capacity) or path is None else [])]) == 0:
        raise BadSettings("replay: --capacity is 0 for all: no annotator may be asked; expected 1 or more")
    return Crew(capacity=capacity, default_capacity=general, cost=cost)


def _numbers(path: Path, names: Sequence[Any], columns: Mapping[str, Sequence[Any]], key: str) -> dict[Any, float]:
    """Return annotator -> cost (above 0) or capacity (an integer), for those who have one. Raises BadTable."""
    numbers: dict[Any, float] = {}
    for name, value in zip(names, columns.get(key, [None] * len(names)), strict=True):
        if value in (None, ""):
            continue
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = math.nan
        right = number > 0 if key == "cost" else number >= 0 and number.is_integer()
        if not (right and number < math.inf):
            expected = "a number above 0" if key == "cost" else "a whole number, 0 or more"
            raise BadTable(f"{path}: the {key} of {name!r} is {value}; expected {expected}")
        numbers[name] = number
    return numbers
