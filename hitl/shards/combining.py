"""Combine a folder of shards into a folder of results, one file per shard. A killed run resumes where it stopped.

shard-00000.parquet     item, label, confidence, p_<class>
annotators.parquet      annotator, labels, accuracy, low, high
learned.npz             learned parameters: `Consensus.load`, then `apply` to predict other items
summary.json            the command's summary, written last: without it the folder is incomplete
unfinished/             until then: a description of the work, and the result of each pass over the shards
"""

from __future__ import annotations

import io
import json
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from hitl.consensus import Consensus
from hitl.errors import BadSettings, BadTable
from hitl.models.combiner import Combiner, ShardsCombiner, fits_shards, name_of
from hitl.models.inference.engine import Engine, Shards
from hitl.models.registry import COMBINERS
from hitl.platform import Progress, silent
from hitl.shards import places
from hitl.shards.checkpoints import Checkpointed, SerialWithProgress
from hitl.shards.reading import StoredShards
from hitl.tables.write import exclusive_lock

SUMMARY = "summary.json"
UNFINISHED = "unfinished"
WORK = "work.json"


@dataclass(frozen=True)
class Combined:
    """Result of `combine`: the consensus without items, and how many passes were made, and read from an earlier run."""

    learned: Consensus
    confidence: float
    passes: int
    read: int


def combine(
    shards: StoredShards, folder: str, method: Combiner, *, engine: Engine | None = None, progress: Progress = silent
) -> Combined:
    """Fit the method to all shards and write the results into a new folder, or resume an unfinished one.

    Raise BadSettings for a method that does not fit shards; BadTable if the folder holds something else; Busy if
    another process writes it.
    """
    if not fits_shards(method):
        raise BadSettings(f"method {name_of(method)} needs all labels in memory; on shards: {', '.join(shardable())}")
    with tempfile.TemporaryDirectory(prefix="hitl-shards-") as copies:
        here = shards.with_copies(copies)
        here.require_disjoint()
        if engine is not None:
            return _combined(shards, folder, method, engine, progress)
        return _combined(here, folder, method, SerialWithProgress(progress), progress)


def _combined(
    shards: StoredShards, folder: str, method: ShardsCombiner, engine: Engine, progress: Progress
) -> Combined:
    with _claimed(folder, _work(shards, method)) as unfinished:
        passes = Checkpointed(engine, unfinished)
        learned = method.fit(Shards(shards, passes))
        written, confidence = _Written(shards, folder, method, learned), 0.0
        for done, of_shard in enumerate(engine.each(written, range(len(shards))), start=1):
            confidence += of_shard
            progress("write results", done, len(shards))
        combined = Combined(learned, confidence / max(1, shards.n_items), passes.passes, passes.read)
        frame = learned.annotators.frame().sort_values("labels", ascending=False)
        summary = {
            "items": shards.n_items,
            "labels": shards.n_labels,
            "annotators": len(shards.annotators),
            "classes": list(shards.classes),
            "shards": len(shards),
            "confidence": combined.confidence,
            "fit": {
                "method": name_of(method),
                "iterations": learned.fit.iterations,
                "converged": learned.fit.converged,
            },
        }
        for name, content in (
            ("annotators.parquet", _parquet(pa.Table.from_pandas(frame, preserve_index=False))),
            ("learned.npz", learned.to_bytes()),
            (SUMMARY, json.dumps(summary, indent=1).encode() + b"\n"),
        ):
            places.write(places.join(folder, name), content)
        places.remove(unfinished)
    return combined


def shardable() -> list[str]:
    """Return the names of the methods that fit shards."""
    return [name for name in COMBINERS if fits_shards(COMBINERS.load(name))]


@contextmanager
def _claimed(folder: str, work: bytes) -> Iterator[str]:
    """Lock the folder of unfinished work, record the work there, and yield its path."""
    unfinished = places.join(folder, UNFINISHED)
    place = places.join(unfinished, WORK)
    if places.is_address(folder):
        _require_this_work(folder, place, work)
        yield unfinished
        return
    path = Path(folder)
    if not path.parent.is_dir():
        raise BadTable(f"{folder}: the folder {path.parent} does not exist; make it first")
    others = path.exists() and not (path.is_dir() and (Path(unfinished).exists() or not any(path.iterdir())))
    if others and not (path / SUMMARY).exists():
        raise BadTable(f"{folder} is there already; name a new folder")
    Path(unfinished).mkdir(parents=True, exist_ok=True)
    with exclusive_lock(Path(unfinished, "lock"), folder):
        _require_this_work(folder, place, work)
        yield unfinished


def _require_this_work(folder: str, place: str, work: bytes) -> None:
    """Record the work. Raise BadTable if it is already done, or the folder holds other work."""
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
    """Describe the work, to recognize it when a run resumes."""
    from hitl import __version__

    checksum = zlib.crc32(repr(shards.checksums).encode())
    settings = {one.name: getattr(method, one.name) for one in fields(method)}
    work = {"hitl": __version__, "method": name_of(method), "settings": settings, "shards": checksum}
    return json.dumps(work, indent=1, default=str).encode() + b"\n"


@dataclass(frozen=True, eq=False)
class _Written:
    """Write the results of a numbered shard to its file and return the sum of the confidence of its items."""

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
