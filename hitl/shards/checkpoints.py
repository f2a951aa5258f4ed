"""Checkpoint passes: the result of each pass is stored in a folder, from which a resumed run reads it.

A fit of shards is a function of the results of its passes. So a killed run, restarted with the same shards and the
same method, reaches the same state, to the last bit, when it is given the stored results, whatever the method is.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from importlib import import_module
from typing import Any, TypeVar

import numpy as np

from hitl.errors import BadTable
from hitl.models.inference.engine import Engine, summed
from hitl.platform import Progress, silent
from hitl.shards import places

R = TypeVar("R")
S = TypeVar("S")
T = TypeVar("T")


class SerialWithProgress:
    """Process one shard after the other, in this process, and report progress."""

    def __init__(self, progress: Progress = silent) -> None:
        self._progress, self._passes = progress, 0

    def total(self, work: Callable[[T], S], shards: Sequence[T]) -> S:
        """Return the sum of `work` over all shards."""
        total: S = summed(self._in_turn(work, shards))
        return total

    def each(self, work: Callable[[T], R], shards: Sequence[T]) -> Iterator[R]:
        """Yield the result of `work` for each shard, in order."""
        return (work(shards[number]) for number in range(len(shards)))

    def _in_turn(self, work: Callable[[T], S], shards: Sequence[T]) -> Iterator[S]:
        for number in range(len(shards)):
            self._progress("passes", self._passes, None)
            self._progress("shards of this pass", number, len(shards))
            yield work(shards[number])
        self._passes += 1
        self._progress("shards of this pass", len(shards), len(shards))


class Checkpointed:
    """Engine that stores the result of each pass of another engine."""

    def __init__(self, engine: Engine, folder: str) -> None:
        """Take a folder, a path or an address, which may hold passes of an earlier run of the same work."""
        self._engine, self._folder = engine, folder
        self.passes = 0
        self.read = 0
        """Number of passes, and how many of them were read."""

    def total(self, work: Callable[[T], S], shards: Sequence[T]) -> S:
        """Return the stored result of the pass, or compute and store it."""
        place = places.join(self._folder, f"pass-{self.passes:05d}.npz")
        self.passes += 1
        if places.exists(place):
            self.read += 1
            kept: S = unpacked(places.read(place), place)
            return kept
        found = self._engine.total(work, shards)
        places.write(place, packed(found))
        return found

    def each(self, work: Callable[[T], R], shards: Sequence[T]) -> Iterator[R]:
        """Yield the result of `work` for each shard; nothing is stored."""
        return self._engine.each(work, shards)


def packed(value: Any) -> bytes:
    """Serialize arrays, numbers, text, tuples, dicts and dataclasses of `hitl` to a file (.npz) without executable
    code."""
    arrays: dict[str, Any] = {}

    def form(value: Any) -> Any:
        if value is None or type(value) in (bool, int, float, str):
            return value
        if isinstance(value, np.ndarray | np.generic):
            arrays[f"a{len(arrays)}"] = np.asarray(value)
            return {"array": f"a{len(arrays) - 1}", "number": isinstance(value, np.generic)}
        if isinstance(value, tuple):
            return {"tuple": [form(part) for part in value]}
        if isinstance(value, dict):
            return {"dict": [[form(name), form(part)] for name, part in value.items()]}
        if is_dataclass(value) and type(value).__module__.startswith("hitl."):
            kind = f"{type(value).__module__}:{type(value).__qualname__}"
            return {"type": kind, "fields": {one.name: form(getattr(value, one.name)) for one in fields(value)}}
        raise TypeError(f"a pass gives {type(value).__name__}, which cannot be kept")

    text = json.dumps(form(value))
    file = io.BytesIO()
    np.savez(file, form=np.frombuffer(text.encode(), np.uint8), **arrays)
    return file.getvalue()


def unpacked(content: bytes, where: str) -> Any:
    """Parse the output of `packed`. Raise BadTable, naming the place, for anything else."""
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as stored:
            arrays = dict(stored)
        return _value(json.loads(arrays["form"].tobytes()), arrays)
    except (OSError, LookupError, TypeError, ValueError, EOFError, ImportError, zipfile.BadZipFile) as error:
        raise BadTable(f"{where}: no checkpoint: {error}; remove it, and the pass is made again") from None


def _value(form: Any, arrays: dict[str, Any]) -> Any:
    if not isinstance(form, dict):
        return form
    if "array" in form:
        array = arrays[form["array"]]
        return array[()] if form["number"] else array
    if "tuple" in form:
        return tuple(_value(part, arrays) for part in form["tuple"])
    if "dict" in form:
        return {_value(name, arrays): _value(part, arrays) for name, part in form["dict"]}
    module, _, name = form["type"].partition(":")
    kind = getattr(import_module(module), name) if module.startswith("hitl.") else None
    if not (isinstance(kind, type) and is_dataclass(kind)):
        raise ValueError(f"{form['type']} is no dataclass of hitl")
    return kind(**{name: _value(part, arrays) for name, part in form["fields"].items()})
