"""The answers to a question as `Annotations` has them, in columns of bytes: the one that counts of each annotator.

A million items with five answers each are 11 MB, which take some hundredths of a second to read. What a few items say
by now is spliced in: the columns before, between and behind them are copied as they are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hitl.annotations import Annotations, CheckedNames, Floats, latest_answers
from hitl.store.settled.columns import (
    Array,
    DoesNotFit,
    Later,
    PackedColumns,
    known,
    narrow,
    packed_columns,
    unpacked_later,
)
from hitl.store.settled.splices import Splice, bounds_of, starts


@dataclass(frozen=True)
class Terms:
    """What codes mean.

    Attributes:
        shown: (key, name, code) of each annotator who has answered; key and name are None for answers without an
            annotator.
        annotators, anonymous, classes, options: as `Annotations` has them.
    """

    shown: tuple[tuple[str | None, str | None, int], ...]
    annotators: tuple[str, ...]
    anonymous: int | None
    classes: tuple[str, ...]
    options: tuple[str, ...]

    @classmethod
    def of(cls, annotations: Annotations, keys: Sequence[str], names: Mapping[str, str]) -> Terms:
        """Those of annotations whose annotators have these keys and names."""
        code = {name: place for place, name in enumerate(annotations.annotators) if place != annotations.anonymous}
        named = [(key, names.get(key, key)) for key in keys]
        shown: list[tuple[str | None, str | None, int]] = []
        shown += [(key, name, code[name]) for key, name in named if name in code]
        if annotations.anonymous is not None:
            shown.append((None, None, annotations.anonymous))
        texts = (annotations.annotators, annotations.classes, annotations.options)
        annotators, classes, options = (tuple(map(str, each)) for each in texts)
        return cls(tuple(shown), annotators, annotations.anonymous, classes, options)

    @classmethod
    def from_json(cls, text: str) -> Terms:
        """What `to_json` wrote."""
        said = {name: tuple(value) if isinstance(value, list) else value for name, value in json.loads(text).items()}
        return cls(**said | {"shown": tuple(map(tuple, said["shown"]))})

    def to_json(self) -> str:
        """As text."""
        return json.dumps(asdict(self))

    def hold(self, names: Mapping[str, str], classes: Sequence[Any], options: Sequence[Any]) -> bool:
        """Whether annotators have these names and the question these classes and options."""
        if self.classes != tuple(classes) or self.options != tuple(options):
            return False
        return all(key is None or names.get(key, key) == name for key, name, _ in self.shown)


class SettledAnnotations(Annotations):
    """Annotations that were checked before they were stored; times are decompressed on first use."""

    _later: Mapping[str, Later]

    @classmethod
    def of(cls, columns: Mapping[str, Any], time: Later, duration: Later) -> SettledAnnotations:
        """These columns as they are, neither looked at nor copied."""
        made = object.__new__(cls)
        vars(made).update(columns, _later={"time": time, "duration": duration})
        return made

    @cached_property
    def time(self) -> Floats:
        """As `Annotations` has it."""
        return self._unpacked("time")

    @cached_property
    def duration(self) -> Floats:
        """As `Annotations` has it."""
        return self._unpacked("duration")

    def _unpacked(self, name: str) -> Floats:
        later = self._later[name]
        found = np.broadcast_to(np.float64(np.nan), self.item.shape) if later is None else later()
        found.setflags(write=False)
        return found

    def __repr__(self) -> str:
        return f"Annotations({self})"


@dataclass(frozen=True, eq=False)
class Settled:
    """Items and their answers, one of each annotator; those of an item in the order of the annotators' codes.

    Attributes:
        positions: (N,) of the items, in order.
        items: (N,) their keys.
        counts: (N,) answers each.
        annotator, label: (M,) codes.
        given: (K,) answers of each annotator.
        time, duration: (M,) as `Annotations` has them.
    """

    positions: Array
    items: pa.Array
    counts: Array
    annotator: Array
    label: Array
    given: Array
    time: Later
    duration: Later

    def __len__(self) -> int:
        return len(self.positions)

    def annotations(self, terms: Terms, items: CheckedNames) -> Annotations:
        """They as annotations of their items, named. Raises DoesNotFit where codes are not those of the terms."""
        n, m, k = len(items), len(self.annotator), len(terms.annotators)
        are_whole = len(self.items) == len(self.counts) == n > 0 and len(self.label) == m == int(self.counts.sum())
        are_codes = int(self.annotator.max(initial=0)) < k and int(self.label.max(initial=0)) < len(terms.options)
        if not are_whole or not are_codes or len(self.given) != k or not (self.given > 0).all():
            raise DoesNotFit  # for example: an annotator whose last answer was deleted has no code any more
        columns: dict[str, Any] = {
            "item": np.repeat(np.arange(n, dtype=np.int32), self.counts),
            "annotator": self.annotator.astype(np.int32),
            "label": self.label.astype(np.int32),
        }
        for column in columns.values():
            column.setflags(write=False)
        names = {name: getattr(terms, name) for name in ("annotators", "classes", "options", "anonymous")}
        return SettledAnnotations.of({**columns, **names, "items": items}, self.time, self.duration)

    def spliced(self, changed: Array, fresh: Settled) -> Settled:
        """The same with what `fresh` says of the items at the `changed` positions, in order: one it lacks is gone."""
        if not len(changed):
            return self
        rows = Splice.of(*bounds_of(self.positions, changed), *bounds_of(fresh.positions, changed))
        start, start_fresh = starts(self.counts), starts(fresh.counts)
        answers = Splice.of(start[rows.at], start[rows.behind], start_fresh[rows.first], start_fresh[rows.end])
        stay = bool((rows.behind > rows.at).all()) and len(fresh) == len(changed)
        stay = stay and bool(fresh.items.equals(self.items.take(pa.array(rows.at))))
        gone = np.bincount(answers.gone(self.annotator), minlength=len(self.given))
        return Settled(
            self.positions if stay else rows.spliced(self.positions, fresh.positions),
            self.items if stay else pa.concat_arrays(rows.parts(self.items, fresh.items)),
            rows.spliced(self.counts, fresh.counts),
            answers.spliced(self.annotator, fresh.annotator),
            answers.spliced(self.label, fresh.label),
            self.given - gone + fresh.given,
            answers.later(self.time, fresh.time, int(start[-1]), int(start_fresh[-1])),
            answers.later(self.duration, fresh.duration, int(start[-1]), int(start_fresh[-1])),
        )

    def packed(self) -> dict[str, bytes | None]:
        """Their codes, keys of items, times and durations."""
        steps = np.diff(self.positions, prepend=0)
        codes = {"steps": steps, "counts": self.counts, "annotator": self.annotator, "label": self.label}
        keys = pa.concat_arrays([self.items, pa.array([], pa.string())])  # of its own, from the first byte on
        text = keys.buffers()[2]
        names = {"lengths": np.diff(_offsets(keys)), "text": np.frombuffer(text or b"", np.uint8)[: _offsets(keys)[-1]]}
        later = {name: getattr(self, name) for name in ("time", "duration")}
        return {
            "codes": packed_columns({name: narrow(column) for name, column in codes.items()} | {"given": self.given}),
            "names": packed_columns({name: narrow(column) for name, column in names.items()}),
            **{name: None if one is None else packed_columns({name: one()}) for name, one in later.items()},
        }

    @classmethod
    def of(cls, positions: Array, items: pa.Array, annotations: Annotations) -> Settled:
        """Those of annotations, whose items are at these positions and have these keys."""
        given, later = annotations.labels_per_annotator, (known(annotations.time), known(annotations.duration))
        codes = (annotations.labels_per_item, annotations.annotator, annotations.label)
        return cls(positions, items, *codes, given, *later)

    @classmethod
    def unpacked(cls, codes: bytes | None, names: bytes | None, time: bytes | None, duration: bytes | None) -> Settled:
        """What `packed` made. Raises DoesNotFit where it is damaged."""
        if codes is None or names is None:
            raise DoesNotFit
        of, named = PackedColumns(codes).columns(), PackedColumns(names).columns()
        later = {name: unpacked_later(name, one) for name, one in (("time", time), ("duration", duration))}
        offsets = np.append(0, np.cumsum(named["lengths"], dtype=np.int32)).astype(np.int32)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(named["text"])]
        keys = pa.Array.from_buffers(pa.string(), len(offsets) - 1, buffers)
        positions = np.cumsum(of["steps"], dtype=np.int64)
        return cls(positions, keys, of["counts"], of["annotator"], of["label"], of["given"], **later)


@dataclass(frozen=True, eq=False)
class SaidNow:
    """Items and all their answers, as the rows have them: each from the oldest to the newest."""

    positions: Array
    items: pa.Array
    counts: Array
    annotator: pa.DictionaryArray
    label: pa.DictionaryArray
    time: Floats
    duration: Floats

    def settled(self, terms: Terms) -> Settled:
        """The answers that count, as `Annotations.from_codes` finds them.

        Raises DoesNotFit for a name that the terms lack, and where an annotator gave an item two answers that differ.
        """
        who = _recoded(self.annotator, {key: code for key, _, code in terms.shown})
        label = _recoded(self.label, {name: code for code, name in enumerate(terms.options)})
        item = np.repeat(np.arange(len(self.items), dtype=np.int32), self.counts)
        keep, contradicted = latest_answers(item, who, label, terms.anonymous, self.time)
        if len(contradicted):
            raise DoesNotFit
        counts = np.bincount(item[keep], minlength=len(self.items))
        given = np.bincount(who[keep], minlength=len(terms.annotators))
        later = known(self.time[keep]), known(self.duration[keep])
        return Settled(self.positions, self.items, counts, who[keep], label[keep], given, *later)


def _recoded(column: pa.DictionaryArray, code: Mapping[str | None, int]) -> npt.NDArray[np.int32]:
    """The codes of names. Raises DoesNotFit for one that has none."""
    names: list[str | None] = [*column.dictionary.to_pylist(), None]
    place = np.array([code.get(name, -1) for name in names], np.int32)
    found = place[np.asarray(column.indices.fill_null(len(names) - 1), np.int64)]
    if (found < 0).any():
        raise DoesNotFit
    return found


def _offsets(column: pa.Array) -> npt.NDArray[np.int32]:
    """Where the texts of a column begin, and the last ends."""
    found = column.buffers()[1]
    return np.zeros(1, np.int32) if found is None else np.frombuffer(found, np.int32, len(column) + 1)
