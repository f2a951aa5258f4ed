"""Compute features (N, D) from the contents of items, item by item or from all items together.

An item whose features cannot be computed is left out, with a reason. Its row is NaN, never zero.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, Protocol
from uuid import uuid4

import numpy as np
import numpy.typing as npt

from hitl.annotations import Floats, Name
from hitl.errors import BadInput, MissingExtra
from hitl.models.predictors.images import READERS
from hitl.models.predictors.transforms import principal, scaled, tfidf_svd
from hitl.platform import Progress, silent
from hitl.tables.matrices import packed, unpacked

Kind = Literal["text", "image", "columns", "numbers"]
TFIDF = "tfidf"
BATCH = 64
"""Number of items that a network embeds at once."""

MAX_AHEAD = 256
"""Maximum number of batches queued in other processes before the first result is awaited."""

MAX_NAMED = 3
"""Maximum number of items named in a message about missing features."""


class Reason(str):
    """Reason why an item has no features. It takes the place of the item's value or vector."""


@dataclass(frozen=True, slots=True)
class Corpus:
    """Contents of items.

    Attributes:
        kind: kind of the values.
        items: names of the N items.
        values: content of each item: a text, the path or address of an image, the values of columns, or numbers.
        digests: digest of each value, or of the image it names.
        left_out: item -> reason, for items without a usable value, which are not in `items`.
        columns: names of the columns, for kind "columns".
    """

    kind: Kind
    items: list[str]
    values: list[Any]
    digests: list[str]
    left_out: dict[str, str] = field(default_factory=dict)
    columns: tuple[str, ...] = ()

    def digest(self) -> str:
        """Return a digest of all items and their contents."""
        return digest_of(self.kind, self.columns, *zip(self.items, self.digests, strict=True))

    def without(self, items: Collection[str]) -> Corpus:
        """Return the corpus without these items."""
        return self.take([n for n, item in enumerate(self.items) if item not in items])

    def take(self, rows: Sequence[int]) -> Corpus:
        """Return the corpus of the items at these positions, without `left_out`."""
        items, values, digests = ([column[n] for n in rows] for column in (self.items, self.values, self.digests))
        return replace(self, items=items, values=values, digests=digests, left_out={})


@dataclass(frozen=True, slots=True)
class Embedder:
    """Network or user function that computes vectors.

    Attributes:
        run: turns B prepared values into (B, D) numbers.
        prepare: prepares one value; raises BadInput with the reason if it cannot be used.
    """

    run: Callable[[list[Any]], Any]
    prepare: Callable[[Any], Any] = lambda value: value


class VectorStore(Protocol):
    """Storage for the vectors of items, each with the digest of the content it was computed from."""

    @property
    def width(self) -> int | None:
        """D of the stored vectors; None if there are none."""

    def has(self, items: Sequence[str], digests: Sequence[str]) -> npt.NDArray[np.bool_]:
        """Return (N,) True for items that have a vector computed from content with this digest."""

    def add(self, items: Sequence[str], digests: Sequence[str], x_nd: Floats) -> None:
        """Store vectors (N, D)."""

    def read(self, items: Sequence[str], digests: Sequence[str]) -> Floats:
        """Return (N, D), NaN in the rows of items that have no vector."""


def align(names: Sequence[Name], x_nd: Floats, wanted: Sequence[Name]) -> Floats:
    """Return the rows of `x_nd`, which belong to `names`, in the order of `wanted`; NaN for missing names."""
    row_of = {name: n for n, name in enumerate(names)}
    rows = np.array([row_of.get(name, -1) for name in wanted], dtype=np.int64)
    aligned = np.full((len(wanted), x_nd.shape[1]), np.nan)
    aligned[rows >= 0] = x_nd[rows[rows >= 0]]
    return aligned


class VectorCache:
    """Cache of vectors in an SQLite file, by embedder (`space`) and digest. Items with equal content share a vector."""

    def __init__(self, path: Path, space: str = "") -> None:
        self._path, self._space = path, space
        self._run("CREATE TABLE IF NOT EXISTS vector (space, digest, numbers, PRIMARY KEY (space, digest))", [()])

    @property
    def width(self) -> int | None:
        """D of the stored vectors; None if there are none."""
        rows = self._run("SELECT numbers FROM vector WHERE space = ? LIMIT 1", [(self._space,)])
        return unpacked([rows[0][0]]).shape[1] if rows else None

    def has(self, items: Sequence[str], digests: Sequence[str]) -> npt.NDArray[np.bool_]:
        """Return (N,) True for digests that have a vector."""
        stored = {digest for (digest,) in self._run("SELECT digest FROM vector WHERE space = ?", [(self._space,)])}
        return np.array([digest in stored for digest in digests], dtype=np.bool_)

    def add(self, items: Sequence[str], digests: Sequence[str], x_nd: Floats) -> None:
        """Store vectors (N, D)."""
        vectors = zip(digests, x_nd, strict=True)
        self._run("INSERT OR REPLACE INTO vector VALUES (?, ?, ?)", [(self._space, d, packed(x)) for d, x in vectors])

    def read(self, items: Sequence[str], digests: Sequence[str]) -> Floats:
        """Return (N, D), NaN in the rows of digests that have no vector."""
        query = "SELECT digest, numbers FROM vector WHERE space = ? AND digest IN (SELECT value FROM json_each(?))"
        rows = self._run(query, [(self._space, json.dumps(list(digests)))])
        return align([digest for digest, _ in rows], unpacked([numbers for _, numbers in rows]), digests)

    def _run(self, statement: str, parameters: Iterable[tuple[Any, ...]]) -> list[Any]:
        """Run a statement for each row of parameters and return the last result."""
        try:
            with closing(sqlite3.connect(self._path)) as database, database:
                return [database.execute(statement, row).fetchall() for row in parameters][-1]
        except sqlite3.Error as error:
            raise BadInput(f"{self._path}: cannot be used as a cache: {error}; remove it") from None


# -- corpora -----------------------------------------------------------------------------------------------


def texts(items: Sequence[str], values: Sequence[Any], where: str = "text") -> Corpus:
    """Build a corpus of texts or numbers read as texts, leaving out other values. `where`: name of the field."""
    return _corpus("text", items, [_text(value, where) for value in values], digest_of)


def places(items: Sequence[str], values: Sequence[Any], stamp: Callable[[str], str], where: str = "image") -> Corpus:
    """Build a corpus of images from paths or addresses; `stamp` returns a text that changes when the image does."""
    return _corpus("image", items, [_text(value, where) for value in values], lambda place: digest_of(stamp(place)))


def rows(items: Sequence[str], values: Sequence[Sequence[Any]], columns: Sequence[str]) -> Corpus:
    """Build a corpus of column values, leaving out items with an empty value."""

    def checked(row: Sequence[Any]) -> Any:
        cells = zip(columns, row, strict=True)
        empty = [name for name, value in cells if value is None or str(value).lower() in ("", "nan")]
        return Reason(f"{empty[0]!r} is empty") if empty else tuple(row)

    corpus = _corpus("columns", items, [checked(row) for row in values], lambda row: digest_of(*map(repr, row)))
    return replace(corpus, columns=tuple(columns))


def numbers(items: Sequence[str], x_nd: Floats) -> Corpus:
    """Build a corpus of existing numbers (N, D), leaving out items whose numbers are not all finite."""
    values = [row if np.isfinite(row).all() else Reason("its values are not finite") for row in x_nd]
    return _corpus("numbers", items, values, lambda row: hashlib.sha256(row.tobytes()).hexdigest()[:32])


def _corpus(kind: Kind, items: Sequence[str], values: Sequence[Any], digest: Callable[[Any], str]) -> Corpus:
    pairs = list(zip(items, values, strict=True))
    present = [(item, value, digest(value)) for item, value in pairs if not isinstance(value, Reason)]
    left_out = {item: str(value) for item, value in pairs if isinstance(value, Reason)}
    names, contents, digests = ([row[column] for row in present] for column in range(3))
    return Corpus(kind, names, contents, digests, left_out)


def _text(value: Any, where: str) -> str:
    if value is None or (isinstance(value, str) and not value.strip()):
        return Reason(f"{where!r} is empty")
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return Reason(f"{where!r} is {type(value).__name__}; expected text")
    return str(value)


# -- features ----------------------------------------------------------------------------------------------


def embed(
    corpus: Corpus,
    make: Callable[[], Embedder] | None = None,
    *,
    dimensions: int | None = None,
    store: VectorStore | None = None,
    batch_size: int = BATCH,
    progress: Progress = silent,
    executor: Executor | None = None,
) -> tuple[Floats, dict[str, str]]:
    """Return (N, D) features of `corpus.items`, and item -> reason for items without features, whose rows are NaN.

    `make` builds the embedder that computes each item's vector. If it is None, texts get TF-IDF and columns are scaled.
    `dimensions`: number of components to reduce the features to. Vectors in `store` are reused. Raise BadInput if no
    item has features.

    Example:
        >>> from hitl.models.predictors.features import embed, texts
        >>> x, left_out = embed(texts(["a", "b", "c"], ["a red cat", "the red dog", ""]), dimensions=2)
        >>> x.shape, left_out
        ((2, 2), {'c': "'text' is empty"})
    """
    left_out, x_nd, present = dict(corpus.left_out), None, corpus
    if make is not None and corpus.items:
        with TemporaryDirectory(prefix="hitl-embed-") as folder:
            store = VectorCache(Path(folder) / "vectors") if store is None else store
            left_out |= embed_each(corpus, make, store, batch_size=batch_size, progress=progress, executor=executor)
            present = corpus.without(left_out)
            x_nd = store.read(present.items, present.digests)
    if not present.items:
        raise BadInput(describe_left_out(left_out))
    if x_nd is None or dimensions is not None:
        x_nd, wordless = embed_together(present, dimensions, x_nd)
        left_out |= wordless
    return align(present.items, x_nd, corpus.items), left_out


def embed_each(
    corpus: Corpus,
    make: Callable[[], Embedder],
    store: VectorStore,
    *,
    batch_size: int = BATCH,
    progress: Progress = silent,
    executor: Executor | None = None,
) -> dict[str, str]:
    """Compute the vectors that `store` lacks, and store them batch by batch. Return item -> reason for items left out.

    If the embedder fails for a batch, the batch is repeated item by item. `executor` embeds the batches in other
    processes; each builds its own embedder.
    """
    todo = np.flatnonzero(~store.has(corpus.items, corpus.digests)).tolist()
    left_out: dict[str, str] = {}
    if not todo:
        return left_out
    width, done, run = store.width, 0, uuid4().hex
    embed_here = partial(_embed_batch, make()) if executor is None else None
    waiting: deque[tuple[Corpus, Callable[[], list[Any]]]] = deque()
    progress("embed", done, len(todo))
    for start in range(0, len(todo), batch_size):
        batch = corpus.take(todo[start : start + batch_size])
        if embed_here is not None:
            waiting.append((batch, partial(embed_here, batch.values, width)))
        elif executor is not None:
            waiting.append((batch, executor.submit(_embed_batch_there, run, make, batch.values, width).result))
        is_last = start + batch_size >= len(todo)
        while waiting and (is_last or width is None or len(waiting) > MAX_AHEAD):  # the first vectors fix the width
            batch, answer = waiting.popleft()
            vectors = answer()
            left_out |= {batch.items[n]: str(x) for n, x in enumerate(vectors) if isinstance(x, Reason)}
            made = [n for n, x in enumerate(vectors) if not isinstance(x, Reason)]
            if made:
                x_nd = np.stack([vectors[n] for n in made])
                width, batch = x_nd.shape[1], batch.take(made)
                store.add(batch.items, batch.digests, x_nd)
            done += len(vectors)
            progress("embed", done, len(todo))
    return left_out


def embed_together(
    corpus: Corpus, dimensions: int | None = None, x_nd: Floats | None = None
) -> tuple[Floats, dict[str, str]]:
    """Compute (N, D) features from all items together: TF-IDF of texts, or scaled columns.

    Also return item -> reason for items left out. If the items already have vectors, `x_nd`, use these. `dimensions`:
    number of principal components (for texts: of TF-IDF) to return.
    """
    if x_nd is None and corpus.kind == "text":
        x_nd = tfidf_svd(corpus.values, dimensions)
        wordless = np.flatnonzero(np.isnan(x_nd[:, 0]))
        return x_nd, {corpus.items[n]: "its text has no word of two or more letters" for n in wordless}
    if x_nd is None:
        columns = zip(corpus.columns, zip(*corpus.values, strict=True), strict=True)
        x_nd = np.hstack([scaled(name, values) for name, values in columns])
    return (x_nd if dimensions is None else principal(x_nd, dimensions)), {}


def describe_left_out(left_out: Mapping[str, str]) -> str:
    """Return a sentence that names the first items without features, with their reasons, and counts the others."""
    first = "; ".join(f"{item!r}: {why}" for item, why in list(left_out.items())[:MAX_NAMED])
    more = f"; and {len(left_out) - MAX_NAMED:,} more" if len(left_out) > MAX_NAMED else ""
    return f"no features of {len(left_out):,} item{'s' if len(left_out) > 1 else ''} ({first}{more})"


def digest_of(*parts: Any) -> str:
    """Return a shortened SHA-256 of the `repr` of these values."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


# -- one batch ---------------------------------------------------------------------------------------------

_embedders: dict[str, Embedder] = {}
"""Embedder of this worker process, by run. Only that of the last run is stored."""


def _embed_batch_there(run: str, make: Callable[[], Embedder], values: list[Any], width: int | None) -> list[Any]:
    if run not in _embedders:
        _embedders.clear()
        _embedders[run] = make()
    return _embed_batch(_embedders[run], values, width)


def _embed_batch(embedder: Embedder, values: list[Any], width: int | None) -> list[Any]:
    """Return the vector (D,) of each value, or the `Reason` why it has none. `width`: D of earlier batches, if any."""
    with ThreadPoolExecutor(READERS, thread_name_prefix="hitl-embed") as pool:
        answers = list(pool.map(partial(_prepare, embedder), values))
    rows = [n for n, value in enumerate(answers) if not isinstance(value, Reason)]
    inputs = [answers[n] for n in rows]
    vectors = _run(embedder, inputs, width) if inputs else []
    if isinstance(vectors, Reason):  # retry item by item to find which items break the model
        singles = [_run(embedder, [value], width) for value in inputs]
        vectors = [x if isinstance(x, Reason) else x[0] for x in singles]
        if len({len(x) for x in vectors if not isinstance(x, Reason)}) > 1:
            why = Reason("the model returns different numbers of values for different items")
            vectors = [why] * len(rows)
    for n, x in zip(rows, vectors, strict=True):
        is_usable = isinstance(x, Reason) or np.isfinite(x).all()
        answers[n] = x if is_usable else Reason("the model returns NaN or infinite values")
    return answers


def _prepare(embedder: Embedder, value: Any) -> Any:
    try:
        return embedder.prepare(value)
    except MissingExtra:
        raise
    except Exception as error:  # user code and image libraries raise all sorts of errors
        return _reason(error)


def _run(embedder: Embedder, inputs: list[Any], width: int | None) -> Any:
    """Return (B, D) vectors, or the `Reason` why the output cannot be used."""
    try:
        output = embedder.run(inputs)
        output = output.detach().cpu() if hasattr(output, "detach") else output  # a tensor
        x_bd = np.asarray(output, dtype=np.float64)
    except MissingExtra:
        raise
    except Exception as error:  # user code
        return _reason(error)
    if x_bd.ndim == 2 and len(x_bd) == len(inputs) and x_bd.shape[1] and width in (None, x_bd.shape[1]):
        return x_bd
    return Reason(f"the model gives shape {x_bd.shape}; expected ({len(inputs)}, {width or 'D'}), a row each")


def _reason(error: Exception) -> Reason:
    text = " ".join(str(error).split())[:200]
    return Reason(text if isinstance(error, BadInput) else f"{type(error).__name__}: {text}".rstrip(": "))
