"""Combine a folder of shards into a folder of results, one file per shard. A killed run resumes where it stopped.

shard-00000.parquet     item, label, confidence, p_<class>
annotators.parquet      annotator, labels, accuracy, low, high
learned.npz             learned parameters: read them with `Consensus.load`, and `apply` them to other items
summary.json            summary of the run, written last: without it the folder is incomplete
unfinished/             exists until then: a description of the work, and the result of each pass over the shards

A fit depends on the shards only through the results of its passes. So a killed run that is restarted with the same
shards and method reads the stored results, and reaches exactly the same state. This holds for any method.
"""

from __future__ import annotations

import io
import json
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from hitl.consensus import Consensus
from hitl.errors import BadSettings, BadTable
from hitl.models.combiner import Combiner, ShardsCombiner, fits_shards, name_of
from hitl.models.inference.engine import SERIAL, Engine, Shards, summed
from hitl.models.methods import COMBINERS
from hitl.platform import Progress, silent
from hitl.shards import places
from hitl.shards.reading import StoredShards
from hitl.tables.write import exclusive_lock

SUMMARY = "summary.json"
UNFINISHED = "unfinished"
WORK = "work.json"

MODELS = "hitl.models."
"""Prefix of the modules whose dataclasses a checkpoint may contain. It is safe to import these modules."""

R = TypeVar("R")
S = TypeVar("S")
T = TypeVar("T")


@dataclass(frozen=True)
class Combined:
    """Result of `combine`.

    Attributes:
        learned: the consensus, without items.
        confidence: mean confidence of all items, in [0, 1].
        passes: number of passes over the shards.
        read: number of these passes whose results were read from an earlier run.
    """

    learned: Consensus
    confidence: float
    passes: int
    read: int


def combine(
    shards: StoredShards, folder: str, method: Combiner, *, engine: Engine | None = None, progress: Progress = silent
) -> Combined:
    """Fit the method to all shards and write the results into a new folder, or resume an unfinished one.

    Raise BadSettings if the method cannot be fitted to shards, BadTable if the folder has other contents or an item is
    in two folders of shards, and Busy if another process writes the folder.
    """
    if not fits_shards(method):
        fitting = ", ".join(name for name in COMBINERS if fits_shards(COMBINERS.load(name)))
        raise BadSettings(f"method {name_of(method)} needs all labels in memory; on shards: {fitting}")
    with tempfile.TemporaryDirectory(prefix="hitl-shards-") as copies:
        here = shards.with_copies(copies)
        here.require_disjoint()
        if engine is None:
            shards, engine = here, SerialWithProgress(progress)
        with _claimed(folder, _work(shards, method)) as unfinished:
            passes = Checkpointed(engine, unfinished)
            learned = method.fit(Shards(shards, passes))
            written, confidence = _Written(shards, folder, method, learned), 0.0
            for done, of_shard in enumerate(engine.each(written, range(len(shards))), start=1):
                confidence += of_shard
                progress("write results", done, len(shards))
            confidence /= max(1, shards.n_items)
            people = learned.annotators.frame().sort_values("labels", ascending=False)
            for name, content in (
                ("annotators.parquet", _parquet(pa.Table.from_pandas(people, preserve_index=False))),
                ("learned.npz", learned.to_bytes()),
                (SUMMARY, _summary(shards, method, learned, confidence)),
            ):
                places.write(places.join(folder, name), content)
            places.remove(unfinished)
    return Combined(learned, confidence, passes.passes, passes.read)


def _summary(shards: StoredShards, method: Any, learned: Consensus, confidence: float) -> bytes:
    fit = learned.fit
    summary = {
        "items": shards.n_items,
        "labels": shards.n_labels,
        "annotators": len(shards.annotators),
        "classes": list(shards.classes),
        "shards": len(shards),
        "confidence": confidence,
        "fit": {"method": name_of(method), "iterations": fit.iterations, "converged": fit.converged},
    }
    return json.dumps(summary, indent=1).encode() + b"\n"


@contextmanager
def _claimed(folder: str, work: bytes) -> Iterator[str]:
    """Record the work in the folder of unfinished work and yield its path. A local folder is locked."""
    unfinished = places.join(folder, UNFINISHED)
    if places.is_address(folder):
        _require_this_work(folder, work)
        yield unfinished
        return
    path = Path(folder)
    if not path.parent.is_dir():
        raise BadTable(f"{folder}: the folder {path.parent} does not exist; make it first")
    others = path.exists() and not (path.is_dir() and (Path(unfinished).exists() or not any(path.iterdir())))
    if others and not (path / SUMMARY).exists():
        raise BadTable(f"{folder} exists already; name a new folder")
    Path(unfinished).mkdir(parents=True, exist_ok=True)
    with exclusive_lock(Path(unfinished, "lock"), folder):
        _require_this_work(folder, work)
        yield unfinished


def _require_this_work(folder: str, work: bytes) -> None:
    """Record the work. Raise BadTable if the folder already has results, or other unfinished work."""
    place = places.join(places.join(folder, UNFINISHED), WORK)
    if places.exists(places.join(folder, SUMMARY)):
        places.remove(places.join(folder, UNFINISHED))  # left by a run that was killed after its last step
        raise BadTable(f"{folder} holds results already; name a new folder")
    if not places.exists(place):
        places.write(place, work)
    elif places.read(place) != work:
        raise BadTable(
            f"{folder} holds an unfinished run of another method or version, or over other shards; finish that one, "
            "remove the folder, or name a new one"
        )


def _work(shards: StoredShards, method: Any) -> bytes:
    """Describe the work (version, method, shards), to recognize it when a run resumes."""
    from hitl import __version__

    checksum = zlib.crc32(repr(shards.checksums).encode())
    settings = {one.name: getattr(method, one.name) for one in fields(method)}
    work = {"hitl": __version__, "method": name_of(method), "settings": settings, "shards": checksum}
    return json.dumps(work, indent=1, default=str).encode() + b"\n"


@dataclass(frozen=True, eq=False)
class _Written:
    """Write the results of a shard, given its number, to a file. Return the sum of its items' confidence.

    A file that exists is kept.
    """

    shards: StoredShards
    folder: str
    method: ShardsCombiner
    learned: Consensus

    def __call__(self, number: int) -> float:
        place = places.join(self.folder, f"shard-{number:05d}.parquet")
        if places.exists(place):
            table = parquet.read_table(io.BytesIO(places.read(place)), columns=["confidence"])
        else:
            table = self.method.apply(self.learned, self.shards[number]).table()
            places.write(place, _parquet(table))
        return float(table.column("confidence").to_numpy().sum())


def _parquet(table: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    parquet.write_table(table, sink)
    return sink.getvalue()


# -- passes ------------------------------------------------------------------------------------------------


class SerialWithProgress:
    """Engine that processes one shard after the other, in this process, and reports progress."""

    def __init__(self, progress: Progress = silent) -> None:
        self._progress, self._passes = progress, 0

    def total(self, work: Callable[[T], S], shards: Sequence[T]) -> S:
        """Return the sum of `work` over all shards."""
        total: S = summed(self._in_turn(work, shards))
        return total

    def each(self, work: Callable[[T], R], shards: Sequence[T]) -> Iterator[R]:
        """Yield the result of `work` for each shard, in order."""
        return SERIAL.each(work, shards)

    def _in_turn(self, work: Callable[[T], S], shards: Sequence[T]) -> Iterator[S]:
        for number in range(len(shards)):
            self._progress("passes", self._passes, None)
            self._progress("shards of this pass", number, len(shards))
            yield work(shards[number])
        self._passes += 1
        self._progress("shards of this pass", len(shards), len(shards))


class Checkpointed:
    """Engine that stores the result of each pass of another engine in a folder, or reads it from there.

    `passes` counts the passes, `read` those read from an earlier run of the same work.
    """

    def __init__(self, engine: Engine, folder: str) -> None:
        """Store the results in `folder`, a path or an address."""
        self._engine, self._folder = engine, folder
        self.passes = self.read = 0

    def total(self, work: Callable[[T], S], shards: Sequence[T]) -> S:
        """Return the stored result of the pass, or compute and store it."""
        place = places.join(self._folder, f"pass-{self.passes:05d}.npz")
        self.passes += 1
        if places.exists(place):
            content = places.read(place)
            with suppress(BadTable):  # if damaged, or of a class that no longer exists, repeat the pass
                stored: S = unpacked(content, place)
                self.read += 1
                return stored
        total = self._engine.total(work, shards)
        places.write(place, packed(total))
        return total

    def each(self, work: Callable[[T], R], shards: Sequence[T]) -> Iterator[R]:
        """Yield the result of `work` for each shard; nothing is stored."""
        return self._engine.each(work, shards)


def packed(value: Any) -> bytes:
    """Serialize arrays, numbers, text, tuples, dicts and dataclasses of models as arrays and JSON.

    Unlike a pickle, these cannot run code when they are read. Raise TypeError for any other value.
    """
    arrays: dict[str, Any] = {}

    def form(value: Any) -> Any:
        if value is None or type(value) in (bool, int, float, str):
            return value
        if isinstance(value, np.ndarray | np.generic):
            arrays[f"a{len(arrays)}"] = np.asarray(value)
            return {"array": f"a{len(arrays) - 1}", "scalar": isinstance(value, np.generic)}
        if isinstance(value, tuple):
            return {"tuple": [form(part) for part in value]}
        if isinstance(value, dict):
            return {"dict": [[form(name), form(part)] for name, part in value.items()]}
        kind = f"{type(value).__module__}:{type(value).__qualname__}"
        if not (is_dataclass(value) and kind.startswith(MODELS)):
            raise TypeError(f"the result of a pass has a {kind}, which cannot be stored")
        return {"type": kind, "fields": {one.name: form(getattr(value, one.name)) for one in fields(value)}}

    text, file = json.dumps(form(value)), io.BytesIO()
    np.savez(file, form=np.frombuffer(text.encode(), np.uint8), **arrays)
    return file.getvalue()


def unpacked(content: bytes, where: str) -> Any:
    """Read the output of `packed`. Raise BadTable, naming `where`, for anything else."""
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as stored:
            arrays = dict(stored)
        return _value(json.loads(arrays["form"].tobytes()), arrays)
    except Exception as error:  # numpy and zipfile raise nearly anything for hostile bytes
        raise BadTable(f"{where}: no checkpoint: {error}") from None


def _value(form: Any, arrays: dict[str, Any]) -> Any:
    if not isinstance(form, dict):
        return form
    if "array" in form:
        return arrays[form["array"]][()] if form["scalar"] else arrays[form["array"]]
    if "tuple" in form:
        return tuple(_value(part, arrays) for part in form["tuple"])
    if "dict" in form:
        return {_value(name, arrays): _value(part, arrays) for name, part in form["dict"]}
    module, _, name = form["type"].partition(":")
    kind = getattr(import_module(module), name) if module.startswith(MODELS) else None
    if not (isinstance(kind, type) and is_dataclass(kind)):
        raise ValueError(f"{form['type']} is no dataclass of a model")
    return kind(**{name: _value(part, arrays) for name, part in form["fields"].items()})
