"""Simulated annotators, as a command line names them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from hitl.errors import BadSettings

if TYPE_CHECKING:
    from hitl.active.replay.simulated_annotators import Group, Kind

JOINS = 10
"""The round in which simulated newcomers come."""


def groups_of(entries: Sequence[str]) -> tuple[Group, ...]:
    """Simulated annotators: KIND=HOW MANY or KIND=HOW MANY:LOWEST-HIGHEST accuracy. Raises BadSettings."""
    from hitl.active.replay.simulated_annotators import KINDS, Group

    groups = []
    for entry in entries:
        found = re.fullmatch(r"([a-z]+)=(\d+)(?::(\d*\.?\d+)-(\d*\.?\d+))?", entry)
        if not found or found[1] not in (*KINDS, "newcomer"):
            raise BadSettings(
                f"--simulate {entry!r}: expected KIND=HOW MANY or KIND=HOW MANY:LOWEST-HIGHEST accuracy, KIND one of "
                f"{', '.join(KINDS)}, newcomer; for instance good=20:0.7-0.9"
            )
        kind, people, low, high = found.groups()
        if int(people) < 1:
            raise BadSettings(f"--simulate {entry!r}: {people} annotators; expected 1 or more")
        if low is not None and not 0 <= float(low) <= float(high) <= 1:
            raise BadSettings(f"--simulate {entry!r}: expected 0 <= LOWEST <= HIGHEST <= 1, for instance 0.7-0.9")
        accuracy: dict[str, Any] = {} if low is None else {"accuracy": (float(low), float(high))}
        if kind == "newcomer":
            groups.append(Group("good", int(people), joins=JOINS, **accuracy))
        else:
            groups.append(Group(cast("Kind", kind), int(people), **accuracy))
    return tuple(groups)
