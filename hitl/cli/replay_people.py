"""Read from the command line which annotators a replay simulates, and the limits and costs of all its annotators."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from hitl.errors import BadInput, BadSettings, BadTable

if TYPE_CHECKING:
    from hitl.active.replay.simulated_annotators import Group, Kind
    from hitl.annotations import Names
    from hitl.crew import Crew

JOINS = 10
"""Round of the replay in which simulated newcomers join."""


def groups_of(entries: Sequence[str]) -> tuple[Group, ...]:
    """Parse the values of --simulate: KIND=HOW MANY or KIND=HOW MANY:LOWEST-HIGHEST accuracy. Raises BadSettings."""
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
    """Return the limits and costs of --people, and of --capacity for other annotators.

    Raises BadTable; BadInput for an unknown annotator; BadSettings if no annotator may be asked.
    """
    from hitl.crew import UNLIMITED, Crew

    general = UNLIMITED if each is None else each
    rows = [] if path is None else _limits(path, people)
    cost = {row.annotator: row.cost for row in rows if row.cost is not None}
    capacity = {row.annotator: row.capacity for row in rows if row.capacity is not None}
    if max([*capacity.values(), *([general] if set(people) - set(capacity) or path is None else [])]) == 0:
        raise BadSettings("replay: --capacity is 0, so nobody can be asked; expected 1 or more")
    return Crew(capacity=capacity, default_capacity=general, cost=cost)


def _limits(path: Path, people: Names) -> list[Any]:
    """Read the rows of --people: annotator, cost (above 0) and capacity (a whole number)."""
    from pydantic import ValidationError, create_model

    from hitl.settings.section import Count, Price
    from hitl.tables.columns import require_columns
    from hitl.tables.read import read_table

    table = read_table(path, ["annotator"])
    require_columns(table, ["annotator"], str(path))
    if not {"cost", "capacity"} & {*table.column_names}:
        raise BadTable(f"{path}: expected a column cost or capacity; it has {', '.join(table.column_names)}")
    names = table.column("annotator").to_pylist()
    unknown = [name for name in names if name not in set(people)]
    if unknown:
        raise BadInput(
            f"{path}: {unknown[0]!r} is not an annotator in this replay; expected names such as {people[0]!r}"
        )
    if len({*names}) < len(names):
        raise BadTable(f"{path}: an annotator appears twice; expected one row for each")
    model, rows = (
        create_model("Limits", annotator=(Any, ...), cost=(Price | None, None), capacity=(Count | None, None)),
        [],
    )
    for row in table.to_pylist():
        try:
            rows.append(model(**{name: value for name, value in row.items() if value not in (None, "")}))
        except ValidationError as error:
            (wrong, *_) = error.errors()
            what = f"the {wrong['loc'][0]} of {row['annotator']!r} is {wrong['input']}"
            raise BadTable(f"{path}: {what}; {wrong['msg'].lower()}") from None
    return rows
