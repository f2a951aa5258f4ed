"""Match the items of a table with those that it is expected to have: the annotated ones, or those of a project."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from hitl.annotations import Name
from hitl.errors import BadEvidence, UnmatchedNames
from hitl.formatting import counted

PROJECT = ("items of the project", "the ids that `hitl export` writes")
"""Items that a file of a project is matched with, and the ids expected in it (`require_shared`)."""


@dataclass
class Match:
    """Numbers of items of a table and of those that it is expected to have.

    Attributes:
        names: number of items of the table.
        expected: number of expected items.
        matched: number of items that are both.
        strange: up to three items of the table that are not expected.
        instance: an expected item.
    """

    names: int = 0
    expected: int = 0
    matched: int = 0
    strange: list[Name] = field(default_factory=list)
    instance: Name = ""

    def add(self, names: Iterable[Name], expected: Collection[Name]) -> None:
        """Count distinct items of a table, or of a part that holds all rows of its items."""
        names = list(names)
        strange = [name for name in names if name not in expected]
        self.names, self.expected = self.names + len(names), self.expected + len(expected)
        self.matched += len(names) - len(strange)
        self.strange = [*self.strange, *strange][:3]
        self.instance = self.instance or next(iter(expected), "")

    def describe(self, where: str, which: str) -> str | None:
        """Describe the items that are not expected; None if there are none.

        A table that has all expected items may have others: they are a pool of items without labels.
        """
        others = self.names - self.matched
        if not others or self.matched == self.expected:
            return None
        return (
            f"{where}: {self.matched:,} of its {counted(self.names, 'item')} {_be(self.matched)} among the "
            f"{self.expected:,} {which}, {others:,} {_be(others)} not, for instance "
            f"{', '.join(map(repr, self.strange))}; if they are misspelled, write them as there"
        )

    def require(self, where: str, which: str, ids: str, stacklevel: int) -> None:
        """Warn if some items match and others do not. Raise BadEvidence, naming the expected `ids`, if none does."""
        if self.names and self.expected and not self.matched:
            raise BadEvidence(
                f"{where}: none of its {counted(self.names, 'item')} is among the {self.expected:,} {which} "
                f"(for instance {self.strange[0]!r}, unlike {self.instance!r}); expected {ids}"
            )
        message = self.describe(where, which)
        if message is not None:
            warnings.warn(message, UnmatchedNames, stacklevel=stacklevel)


def require_shared(
    where: str,
    names: Iterable[Name],
    expected: Collection[Name],
    which: str = "annotated ones",
    ids: str = "the same item names",
    stacklevel: int = 2,
) -> None:
    """Match the distinct items of a table with those that it is `expected` to have (`Match.require`)."""
    match = Match()
    match.add(names, expected)
    match.require(where, which, ids, stacklevel)


def _be(number: int) -> str:
    return "is" if number == 1 else "are"
