"""Features of items: numbers (N, D) made of what annotators see.

    corpus     what each item holds: a text, where an image is, values of columns, or numbers       (`texts`, ...)
    each       item by item through a network: what was made once is kept, by a digest of the content    (`embed_each`)
    together   over all items at once: TF-IDF, scaled columns, principal components                  (`embed_together`)

An item whose features cannot be made is left out, with the reason: its row is NaN, never zero.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, Protocol
from uuid import uuid4

import numpy as np
import numpy.typing as npt

from hitl.annotations import Floats
from hitl.errors import BadInput, MissingExtra
from hitl.models.predictors.columns import principal, scaled
from hitl.models.predictors.images import READERS
from hitl.models.predictors.texts import tfidf_svd
from hitl.platform import Progress, silent

Kind = Literal["text", "image", "columns", "numbers"]
TFIDF = "tfidf"
BATCH = 64
"""Items that a network sees at once."""

AHEAD = 256
"""Batches at most that other processes are given before the first of them is answered."""


NAMED = 3
"""How many of the items that were left out a message names."""


@dataclass(frozen=True, slots=True)
class Corpus:
    """What each item holds.

    Attributes:
        items: N names.
        values: of each item a text, the place of an image, the values of its columns, or its numbers.
        digests: of each item a text that changes with its value.
        left_out: items without a value, and why; they are not among `items`.
        kind: what the values are; columns: the names of the columns.
    """

    kind: Kind
    items: list[str]
    values: list[Any]
    digests: list[str]
    left_out: dict[str, str] = field(default_factory=dict)
    columns: tuple[str, ...] = ()

    def digest(self) -> str:
        """Of all items and what they hold."""
        return digest_of(self.kind, self.columns, *zip(self.items, self.digests, strict=True))

    def but(self, items: Collection[str]) -> Corpus:
        """The same without these items."""
        return self.take([n for n, item in enumerate(self.items) if item not in items])

    def take(self, rows: Sequence[int]) -> Corpus:
        """Some of the items."""
        items, values, digests = ([column[n] for n in rows] for column in (self.items, self.values, self.digests))
        return replace(self, items=items, values=values, digests=digests, left_out={})


@dataclass(frozen=True, slots=True)
class Embedder:
    """A network, or a function of a user: what it sees of an item, and what it says of several.

    Attributes:
        run: (B, D) numbers of B inputs.
        prepare: the input made of an item's value; raises BadInput, saying why it cannot be.
    """

    run: Callable[[list[Any]], Any]
    prepare: Callable[[Any], Any] = lambda value: value


class Kept(Protocol):
    """Where numbers of items are kept, by the digest of what they were made of."""

    @property
    def width(self) -> int | None:
        """D of the numbers that are kept; None where none are."""
        ...

    def held(self, items: Sequence[str], digests: Sequence[str]) -> npt.NDArray[np.bool_]:
        """(N,) whether there are numbers of each item, made of this."""
        ...

    def add(self, items: Sequence[str], digests: Sequence[str], x_nd: Floats) -> None:
        """Keep numbers (N, D)."""
        ...

    def read(self, items: Sequence[str], digests: Sequence[str]) -> Floats:
        """(N, D) numbers, NaN in the rows of items that have none."""
        ...


class InMemory:
    """Numbers kept as long as the object."""

    def __init__(self) -> None:
        self._held: dict[str, Floats] = {}

    @property
    def width(self) -> int | None:
        """D of the numbers that are kept; None where none are."""
        return next((len(row) for row in self._held.values()), None)

    def held(self, items: Sequence[str], digests: Sequence[str]) -> npt.NDArray[np.bool_]:
        """(N,) whether there are numbers made of this."""
        return np.array([digest in self._held for digest in digests], dtype=np.bool_)

    def add(self, items: Sequence[str], digests: Sequence[str], x_nd: Floats) -> None:
        """Keep numbers (N, D)."""
        self._held.update(zip(digests, x_nd, strict=True))

    def read(self, items: Sequence[str], digests: Sequence[str]) -> Floats:
        """(N, D) numbers, NaN where there are none."""
        x_nd = np.reshape(list(self._held.values()), (len(self._held), self.width or 0))
        return aligned(list(self._held), x_nd, digests)


def aligned(names: Sequence[str], x_nd: Floats, wanted: Sequence[str]) -> Floats:
    """(N, D) the rows of `x_nd` whose names are `wanted`, NaN where there are none."""
    row = {name: n for n, name in enumerate(names)}
    rows = np.array([row.get(name, -1) for name in wanted], dtype=np.int64)
    found = np.full((len(wanted), x_nd.shape[1]), np.nan)
    found[rows >= 0] = x_nd[rows[rows >= 0]]
    return found


# -- what items hold ---------------------------------------------------------------------------------------


def texts(items: Sequence[str], values: Sequence[Any], where: str = "text") -> Corpus:
    """A corpus of texts; what is empty or no text is left out. `where` is what the field is called in messages."""
    return _corpus("text", items, [_text(value, where) for value in values], digest_of)


def places(items: Sequence[str], values: Sequence[Any], stamp: Callable[[str], str], where: str = "image") -> Corpus:
    """A corpus of images by their paths or addresses; `stamp` is what of a place changes with its image."""
    return _corpus("image", items, [_text(value, where) for value in values], lambda place: digest_of(stamp(place)))


def rows(items: Sequence[str], values: Sequence[Sequence[Any]], columns: Sequence[str]) -> Corpus:
    """A corpus of values of columns; an item that lacks one of them is left out."""
    made = [_row(row, columns) for row in values]
    found = _corpus("columns", items, made, lambda row: digest_of(*map(repr, row)))
    return replace(found, columns=tuple(columns))


def numbers(items: Sequence[str], x_nd: Floats) -> Corpus:
    """A corpus of numbers (N, D) that are there already; an item whose numbers are not all finite is left out."""
    values = [_Without("its numbers are not finite") if not np.isfinite(row).all() else row for row in x_nd]
    return _corpus("numbers", items, values, lambda row: hashlib.sha256(row.tobytes()).hexdigest()[:32])


@dataclass(frozen=True, slots=True)
class _Without:
    """Why an item has no value."""

    why: str


def _corpus(kind: Kind, items: Sequence[str], values: Sequence[Any], digest: Callable[[Any], str]) -> Corpus:
    pairs = list(zip(items, values, strict=True))
    there = [(item, value) for item, value in pairs if not isinstance(value, _Without)]
    left_out = {item: value.why for item, value in pairs if isinstance(value, _Without)}
    held = [value for _, value in there]
    return Corpus(kind, [item for item, _ in there], held, [digest(value) for value in held], left_out)


def _text(value: Any, where: str) -> Any:
    if value is None or (isinstance(value, str) and not value.strip()):
        return _Without(f"{where!r} is empty")
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return _Without(f"{where!r} is {type(value).__name__}; expected text")
    return str(value)


def _row(values: Sequence[Any], columns: Sequence[str]) -> Any:
    for name, value in zip(columns, values, strict=True):
        if value is None or value == "" or str(value).lower() == "nan":
            return _Without(f"{name!r} is empty")
    return tuple(values)


# -- features ----------------------------------------------------------------------------------------------


def embed_each(
    corpus: Corpus,
    make: Callable[[], Embedder],
    kept: Kept,
    *,
    batch_size: int = BATCH,
    progress: Progress = silent,
    executor: Executor | None = None,
) -> dict[str, str]:
    """Make and keep, batch by batch, the numbers of the items that have none yet; those left out, and why.

    The embedder is made only where there is something to do. What it raises of a batch, or a wrong shape, is looked
    at again item by item, so that it is known which item it was.

    `executor` has other processes embed batches: `make` is sent to them, and each makes an embedder of its own.
    """
    todo = np.flatnonzero(~kept.held(corpus.items, corpus.digests)).tolist()
    left_out: dict[str, str] = {}
    if not todo:
        return left_out
    submit = _here(make()) if executor is None else _there(make, executor)
    width, done = kept.width, 0
    waiting: deque[tuple[Corpus, Callable[[], list[Any]]]] = deque()
    progress("embed", done, len(todo))
    for start in range(0, len(todo), batch_size):
        part = corpus.take(todo[start : start + batch_size])
        waiting.append((part, submit(part.values, width)))
        last = start + batch_size >= len(todo)
        while waiting and (last or width is None or len(waiting) > AHEAD):  # the first answer says how long all are
            part, answered = waiting.popleft()
            answers = answered()
            there = [n for n, answer in enumerate(answers) if not isinstance(answer, _Without)]
            left_out |= {part.items[n]: a.why for n, a in enumerate(answers) if isinstance(a, _Without)}
            if there:
                x_nd = np.stack([answers[n] for n in there])
                width = x_nd.shape[1]
                some = part.take(there)
                kept.add(some.items, some.digests, x_nd)
            done += len(answers)
            progress("embed", done, len(todo))
    return left_out


def embed_together(
    corpus: Corpus, dimensions: int | None = None, x_nd: Floats | None = None
) -> tuple[Floats, dict[str, str]]:
    """(N, D) of all items at once, and those left out, whose rows are NaN: TF-IDF of texts, scaled columns.

    `x_nd` are the numbers that each item has already (of images, of texts from a network): of those the principal
    components, where `dimensions` asks for fewer. Raises BadInput where nothing can be made of any item.
    """
    if x_nd is None and corpus.kind == "text":
        x_nd = tfidf_svd(corpus.values, dimensions)
        bare = np.flatnonzero(np.isnan(x_nd[:, 0]))
        return x_nd, {corpus.items[n]: "its text has no word of two letters or more" for n in bare}
    if x_nd is None:
        columns = zip(corpus.columns, zip(*corpus.values, strict=True), strict=True)
        x_nd = np.hstack([scaled(name, values) for name, values in columns])
    return (x_nd if dimensions is None else principal(x_nd, dimensions)), {}


def embed(
    corpus: Corpus,
    make: Callable[[], Embedder] | None = None,
    *,
    dimensions: int | None = None,
    kept: Kept | None = None,
    batch_size: int = BATCH,
    progress: Progress = silent,
    executor: Executor | None = None,
) -> tuple[Floats, dict[str, str]]:
    """(N, D) features of `corpus.items`, NaN in the rows of those left out; all that were left out, and why.

    `make` gives the embedder that sees each item by itself; None: texts by TF-IDF, columns scaled. What `kept` has is
    not made again; `executor` as for `embed_each`. Raises BadInput where nothing can be made of any item.

    Example:
        >>> from hitl.models.predictors.features import embed, texts
        >>> x, left_out = embed(texts(["a", "b", "c"], ["a red cat", "the red dog", ""]), dimensions=2)
        >>> x.shape, left_out
        ((2, 2), {'c': "'text' is empty"})
    """
    left_out, x_nd = dict(corpus.left_out), None
    there = corpus
    if make is not None and corpus.items:
        kept = InMemory() if kept is None else kept
        left_out |= embed_each(corpus, make, kept, batch_size=batch_size, progress=progress, executor=executor)
        there = corpus.but(left_out)
        x_nd = kept.read(there.items, there.digests)
    if not there.items:
        raise BadInput(without(left_out))
    if make is None or dimensions is not None:
        x_nd, more = embed_together(there, dimensions, x_nd)
        left_out |= more
    assert x_nd is not None
    return aligned(there.items, x_nd, corpus.items), left_out


def without(left_out: Mapping[str, str]) -> str:
    """Which items have no features, in words: the first few, and how many."""
    first = "; ".join(f"{item!r}: {why}" for item, why in list(left_out.items())[:NAMED])
    more = f"; and {len(left_out) - NAMED:,} more" if len(left_out) > NAMED else ""
    return f"no features of {len(left_out):,} item{'s' if len(left_out) > 1 else ''} ({first}{more})"


def digest_of(*parts: Any) -> str:
    """A short SHA-256 of values, each of which says what it is when it is printed."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


Submit = Callable[[list[Any], int | None], Callable[[], list[Any]]]
"""Values of items, and the D of batches before -> what gives an answer of each."""


def _here(embedder: Embedder) -> Submit:
    return lambda values, width: partial(_batch, embedder, values, width)


def _there(make: Callable[[], Embedder], executor: Executor) -> Submit:
    run = uuid4().hex
    return lambda values, width: executor.submit(_batch_there, run, make, values, width).result


_MADE: dict[str, Embedder] = {}
"""What this process embeds with, by the run."""


def _batch_there(run: str, make: Callable[[], Embedder], values: list[Any], width: int | None) -> list[Any]:
    if run not in _MADE:
        _MADE.clear()
        _MADE[run] = make()
    return _batch(_MADE[run], values, width)


def _batch(embedder: Embedder, values: list[Any], width: int | None) -> list[Any]:
    """An answer of each item: its numbers, or why there are none."""
    with ThreadPoolExecutor(READERS, thread_name_prefix="hitl-embed") as pool:
        inputs = list(pool.map(partial(_prepared, embedder), values))
    return _answers(embedder, inputs, width)


def _prepared(embedder: Embedder, value: Any) -> Any:
    try:
        return embedder.prepare(value)
    except MissingExtra:
        raise
    except Exception as error:  # user code and image libraries raise all sorts
        return _Without(_words(error))


def _answers(embedder: Embedder, inputs: list[Any], width: int | None) -> list[Any]:
    """Of each input its numbers (D,), or why there are none; `width` is the D of batches before."""
    there = [n for n, value in enumerate(inputs) if not isinstance(value, _Without)]
    said = _run(embedder, [inputs[n] for n in there], width) if there else []
    if isinstance(said, _Without):  # of which of them?
        said = [
            one if isinstance(one, _Without) else one[0] for n in there for one in [_run(embedder, [inputs[n]], width)]
        ]
        if len({len(one) for one in said if not isinstance(one, _Without)}) > 1:
            said = [_Without("the model gives another number of numbers for each item; expected as many")] * len(there)
    answers = list(inputs)
    for n, one in zip(there, said, strict=True):
        finite = isinstance(one, _Without) or np.isfinite(one).all()
        answers[n] = one if finite else _Without("the model gives NaN or infinite numbers")
    return answers


def _run(embedder: Embedder, inputs: list[Any], width: int | None) -> Any:
    """(B, D) of what the embedder says, or why it cannot be used."""
    try:
        said = embedder.run(inputs)
        said = said.detach().cpu() if hasattr(said, "detach") else said  # a tensor
        values = np.asarray(said, dtype=np.float64)
    except MissingExtra:
        raise
    except Exception as error:  # user code
        return _Without(_words(error))
    expected = (len(inputs), width or "D")
    if (
        values.ndim != 2
        or len(values) != len(inputs)
        or not values.shape[1]
        or (width or values.shape[1]) != values.shape[1]
    ):
        return _Without(f"the model gives shape {values.shape}; expected ({expected[0]}, {expected[1]}), a row each")
    return values


def _words(error: Exception) -> str:
    said = " ".join(str(error).split())[:200]
    return said if isinstance(error, BadInput) else f"{type(error).__name__}: {said}".rstrip(": ")
