"""`Crew`: who can be asked. `Budget`: how much may be asked, and when an item is done."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hitl.annotations import Name, Names
from hitl.errors import BadSettings

if TYPE_CHECKING:
    import pyarrow as pa

UNLIMITED = 2**31 - 1

EXPECTED_ACCURACY, EXPECTED_LABELS = 0.75, 4.0
"""Prior on an annotator's accuracy: the expected share of right labels, and how many labels the prior is worth.

Every method uses it. Three right labels of four are the smallest whole numbers with the accuracy that Kerrigan, Smyth &
Steyvers 2021 (section 4) expect of a new annotator. In a confusion row, EXPECTED_ACCURACY is the mean of the diagonal
and EXPECTED_LABELS the sum of the pseudo-counts.
"""

CENT = 1e-9
"""Sums of costs that differ by less count as equal, because adding in another order changes the last bits."""


@dataclass(frozen=True)
class Crew:
    """Annotators who are available, how much each can take on, and which items they must not see.

    Attributes:
        names: annotators who can be asked by name. If empty, questions are for anyone.
        capacity: annotator -> maximum number of items in one plan; `default_capacity` if missing.
        never: (annotator, item) pairs that must not be asked (skipped, conflict of interest). Policies already exclude
            items that an annotator has labeled.
        only: annotator -> items they can answer; all items if missing.
        cost: annotator -> cost of one label, in the same unit for all; `default_cost` if missing.
        skills: annotator -> their skills ("de", "cardiology").
        needs: item -> skills it requires; only annotators who have all of them are asked about it.
        asked: (annotator, item) pairs asked earlier and still unanswered, in serving order. They count against the
            capacities, and policies ask no other annotator about these items.

    Example:
        >>> from hitl import Crew
        >>> crew = Crew(("ann", "bob"), capacity={"ann": 20}, default_capacity=5, never=frozenset({("bob", "item 7")}))
        >>> crew.capacity_of("ann"), crew.capacity_of("bob"), crew.cost_of("bob")
        (20, 5, 1.0)
    """

    names: Names = ()
    capacity: Mapping[Name, int] = field(default_factory=dict)
    default_capacity: int = UNLIMITED
    never: frozenset[tuple[Name, Name]] = frozenset()
    only: Mapping[Name, frozenset[Name]] = field(default_factory=dict)
    cost: Mapping[Name, float] = field(default_factory=dict)
    default_cost: float = 1.0
    skills: Mapping[Name, frozenset[str]] = field(default_factory=dict)
    needs: Mapping[Name, frozenset[str]] = field(default_factory=dict)
    asked: tuple[tuple[Name, Name], ...] = ()

    def __post_init__(self) -> None:
        if len(set(self.names)) != len(self.names):
            twice = next(name for name in self.names if self.names.count(name) > 1)
            raise BadSettings(f"crew.annotators names {twice!r} twice; expected each name once")
        for name, value in {**self.capacity, "default": self.default_capacity}.items():
            if value < 0:
                raise BadSettings(f"crew.capacity of {name!r} is {value}; expected 0 or more")
        for name, price in {**self.cost, "default": self.default_cost}.items():
            if not (math.isfinite(price) and price > 0):
                raise BadSettings(f"crew.cost of {name!r} is {price}; expected a number above 0")

    def capacity_of(self, name: Name) -> int:
        """Return the maximum number of items for this annotator in one plan."""
        return self.capacity.get(name, self.default_capacity)

    def cost_of(self, name: Name | None) -> float:
        """Return the cost of one label by this annotator (None: by anyone)."""
        return self.default_cost if name is None else self.cost.get(name, self.default_cost)

    @property
    def members(self) -> tuple[Name | None, ...]:
        """Names that can be asked, or only None, which stands for anyone."""
        return self.names or (None,)

    @property
    def prices(self) -> list[float]:
        """(K',) cost of one label by each of the `members`."""
        return [self.cost_of(name) for name in self.members]


@dataclass(frozen=True)
class Budget:
    """Limits on the questions, and criteria for an item to be done.

    Attributes:
        open_questions: maximum number of questions in one plan.
        target_confidence: an item is done when the probability of its top class reaches this, in (0, 1].
        min_labels: number of labels an item needs before it can be done by confidence; 0: a model alone may suffice.
        max_labels: an item with this many labels is done whatever its confidence.
        cost: maximum cost of one plan, in the unit of `Crew.cost`.
        answers: the project is done when it has this many answers to each question; None: no such limit.
        target_accuracy: the project is done when this share of all items is expected to be right; None: when every item
            is done.
        value_per_label: value of one more item with a right label, in the unit of `Crew.cost`; questions that cost more
            than their expected benefit are not asked. None: no such limit.

        accepted: item -> label that needs no annotator; the item is done while the consensus says the same.

    Example:
        >>> from hitl import Budget
        >>> Budget(open_questions=50, target_confidence=0.9).max_labels
        10
    """

    open_questions: int = 100
    target_confidence: float = 0.95
    min_labels: int = 1
    max_labels: int = 10
    cost: float = math.inf
    answers: int | None = None
    target_accuracy: float | None = None
    value_per_label: float | None = None
    accepted: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not (math.isfinite(self.target_confidence) and 0 < self.target_confidence <= 1):
            raise BadSettings(f"budget.target_confidence is {self.target_confidence}; expected a value in (0, 1]")
        for key, low in (("open_questions", 0), ("min_labels", 0), ("max_labels", 1)):
            if getattr(self, key) < low:
                raise BadSettings(f"budget.{key} is {getattr(self, key)}; expected {low} or more")
        if not self.cost >= 0:
            raise BadSettings(f"budget.cost is {self.cost}; expected 0 or more")
        if self.answers is not None and self.answers < 0:
            raise BadSettings(f"budget.answers is {self.answers}; expected 0 or more")
        if self.target_accuracy is not None and not 0 < self.target_accuracy <= 1:
            raise BadSettings(f"budget.target_accuracy is {self.target_accuracy}; expected a value in (0, 1]")
        if self.value_per_label is not None and not (math.isfinite(self.value_per_label) and self.value_per_label > 0):
            raise BadSettings(f"budget.value_per_label is {self.value_per_label}; expected a number above 0")
        if self.min_labels > self.max_labels:
            raise BadSettings(f"budget.min_labels {self.min_labels} is above budget.max_labels {self.max_labels}")


def skills_needed(items: pa.Table, field: str) -> dict[Name, frozenset[str]]:
    """Return item -> skills it requires, from a field of its data that holds one skill or a list.

    Items that require no skills are left out.
    """
    needs: dict[Name, frozenset[str]] = {}
    for key, data in zip(items.column("item").to_pylist(), items.column("data").to_pylist(), strict=True):
        value: Any = json.loads(data).get(field)
        values = value if isinstance(value, list) else [value]
        wanted = frozenset(str(one) for one in values if one not in (None, ""))
        if wanted:
            needs[key] = wanted
    return needs
