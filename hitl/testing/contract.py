"""Run a contract suite: facts, each a function that raises AssertionError if it does not hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")
Fact = Callable[[T], None]


class DoesNotApply(Exception):
    """Raised by a fact that does not apply. The message says why, for example because a method is missing."""


def add_to(facts: dict[str, Fact[T]]) -> Callable[[Fact[T]], Fact[T]]:
    """Return a decorator that adds a function to these facts, with its name turned into words as the key."""

    def add(fact: Fact[T]) -> Fact[T]:
        facts[fact.__name__.replace("_", " ")] = fact
        return fact

    return add


@contextmanager
def refused(error: type[Exception], *words: str) -> Iterator[None]:
    """Raise AssertionError unless the block raises this error with these words in its message."""
    try:
        yield
    except error as raised:
        missing = [word for word in words if word not in str(raised)]
        if missing:
            raise AssertionError(f"its message lacks {missing[0]!r}: {raised}") from raised
    else:
        raise AssertionError(f"expected {error.__name__}")


def check(facts: Mapping[str, Fact[T]], one: T, exempt: Mapping[str, str]) -> None:
    """Raise AssertionError, naming the fact, for the first fact that does not hold.

    Skip facts that do not apply, and those in `exempt` (fact -> reason).
    """
    unknown = [name for name in exempt if name not in facts]
    assert not unknown, f"no fact is called {unknown[0]!r}; expected one of: {'; '.join(facts)}"
    for name, fact in facts.items():
        if name in exempt:
            continue
        try:
            fact(one)
        except DoesNotApply:
            continue
        except Exception as error:
            raise AssertionError(f"{type(one).__name__}: {name}: {error}") from error
