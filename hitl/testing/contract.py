"""Run a contract suite: facts, each a function that raises AssertionError if it does not hold."""

from __future__ import annotations

import ast
import linecache
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any, TypeVar

T = TypeVar("T")
Fact = Callable[[T], None]

LONGEST_VALUE = 200  # maximum characters of a value in a message


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
            raise AssertionError(f"{type(one).__name__}: {name}: {_words(error)}") from error


def _words(error: Exception) -> str:
    """Return the message of an error; of a bare assert, its expression and the values of the names in it."""
    if str(error) or not isinstance(error, AssertionError):
        return str(error) if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"
    *_, (frame, line) = traceback.walk_tb(error.__traceback__)
    tree = ast.parse("".join(linecache.getlines(frame.f_code.co_filename)))
    asserts = (node for node in ast.walk(tree) if isinstance(node, ast.Assert))
    test = next(node.test for node in asserts if node.lineno <= line <= (node.end_lineno or line))
    values = dict(_values(test, {**frame.f_globals, **frame.f_locals}))
    where = ", ".join(f"{name} = {' '.join(repr(value).split())[:LONGEST_VALUE]}" for name, value in values.items())
    return f"expected {ast.unparse(test)}; {where}"


def _values(node: ast.AST, names: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the names and attributes in an expression, as written, that are values and not functions."""
    try:
        value = _value(node, names)
    except (KeyError, AttributeError):
        value = print  # no value: look at its parts
    if not callable(value) and not isinstance(value, ModuleType):
        yield ast.unparse(node), value
    else:
        for part in ast.iter_child_nodes(node):
            yield from _values(part, names)


def _value(node: ast.AST, names: Mapping[str, Any]) -> Any:
    match node:
        case ast.Name(name):
            return names[name]
        case ast.Attribute(of, name):
            return getattr(_value(of, names), name)
        case _:
            raise KeyError
