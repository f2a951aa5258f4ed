"""Checkpoints keep the result of a pass to the last bit. Whoever may write them can run nothing with them."""

from __future__ import annotations

import io
import json
import os
import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hitl.annotations import Annotations
from hitl.errors import BadTable
from hitl.evidence import Evidence
from hitl.models.inference.engine import Serial
from hitl.models.inference.loop import Expected
from hitl.shards.combining import Checkpointed, packed, unpacked


@dataclass(frozen=True)
class Foreign:
    """A dataclass that is not one of a model."""

    value: int


def test_checkpoints_hold_values_to_the_last_bit() -> None:
    value = Expected(np.random.default_rng(0).random((3, 2, 2)), (np.float64(0.1), {"a": None, 2: [] == []}), 0.1 + 0.2)
    again = unpacked(packed(value), "here")
    np.testing.assert_array_equal(again.counts_klj, value.counts_klj)
    assert (again.statistics, again.log_evidence) == (value.statistics, value.log_evidence)
    assert type(again.statistics[0]) is np.float64
    with pytest.raises(TypeError, match="test_checkpoints:Foreign, which cannot be stored"):
        packed(Foreign(1))


class Call:
    """Pickles to a call of a function."""

    def __init__(self, *call: Any) -> None:
        self.call = call

    def __reduce__(self) -> Any:
        return self.call


def form(text: str) -> bytes:
    file = io.BytesIO()
    np.savez(file, form=np.frombuffer(text.encode(), np.uint8))
    return file.getvalue()


def attacks(folder: Path) -> Iterator[bytes]:
    """Yield checkpoints that call functions, read raw bytes as pointers, or are damaged."""
    yield pickle.dumps(Call(os.rmdir, (str(folder),)))
    hidden = Call(np.dtype, ("V8",), (3, "|", None, ("a",), {"a": (np.dtype("O"), 0)}, 8, 1, 0))  # flags: no object
    from_bytes = np.ones(8).__reduce_ex__(5)[0]  # the function that a pickle of an array calls
    yield pickle.dumps(Call(from_bytes, (b"A" * 64, hidden, (8,), "C")), 5)
    objects = io.BytesIO()
    np.savez(objects, form=np.array([Call(os.rmdir, (str(folder),))]))
    yield objects.getvalue()
    calls = (
        "hitl.shards.places:remove",
        "posix:rmdir",
        f"{__name__}:Foreign",
        "hitl.__main__:main",
        "hitl.models.gone:One",
        "hitl.models.pl:Gone",
    )
    for name in calls:
        yield form(json.dumps({"type": name, "fields": {"place": str(folder)}}))
    yield form("[" * 100_000)
    yield packed(Expected(np.ones((3, 2, 2)), (), 0.1))[:200]


def test_a_checkpoint_that_is_none_runs_nothing_and_the_pass_is_made_again(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    for content in attacks(tmp_path / "mine"):
        with pytest.raises(BadTable, match="here: no checkpoint"):
            unpacked(content, "here")
        (tmp_path / "pass-00000.npz").write_bytes(content)
        passes = Checkpointed(Serial(), str(tmp_path))
        assert passes.total(lambda number: number, [1, 2]) == 3
        assert (passes.read, unpacked((tmp_path / "pass-00000.npz").read_bytes(), "here")) == (0, 3)
        assert (tmp_path / "mine").exists()


def test_a_pass_is_not_made_twice(tmp_path: Path) -> None:
    evidence = Evidence(Annotations.from_matrix([[0, 0], [1, 1]]))
    first, second = Checkpointed(Serial(), str(tmp_path)), Checkpointed(Serial(), str(tmp_path))
    made = [passes.total(lambda shard: float(len(shard.annotations)), [evidence]) for passes in (first, second)]
    assert made == [4.0, 4.0]
    assert (first.read, second.read) == (0, 1)
