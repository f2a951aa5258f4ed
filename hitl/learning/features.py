"""Features of a project's items: computed after a pull, stored, and read into the evidence.

    refresh           embed new and changed items -> store, batch by batch; resumes after an interruption
    stored_features   store -> (N, D), a row of NaN for items without features

Vectors computed item by item (from images, or from texts by a network) are stored with a digest of the item's content.
Features fitted on all items (TF-IDF, scaled columns, principal components) are recomputed if any item has changed.
The old features are used until the new ones are complete.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hitl.errors import BadInput, BadSettings
from hitl.formatting import expected_fields
from hitl.platform import Connector, Progress, silent
from hitl.store.learned import FeaturesNote

if TYPE_CHECKING:
    from hitl.annotations import Floats
    from hitl.models.predictors.features import Corpus, Embedder
    from hitl.settings import FeatureSettings, Settings
    from hitl.store import Lease, Store

ROWS = 1_000
"""Number of vectors saved in one transaction, if no model computes them item by item."""


@dataclass(frozen=True, slots=True)
class Source:
    """Contents of items, and how vectors are computed item by item, if they are.

    Attributes:
        corpus: contents of the items.
        space: name under which the vectors are stored; "" if they are not computed item by item.
        make: function that builds the embedder, or None.
        model: digest of the embedder; "" if no model is used.
    """

    corpus: Corpus
    space: str = ""
    make: Callable[[], Embedder] | None = None
    model: str = ""


def refresh(
    lease: Lease,
    settings: Settings,
    store: Store,
    names: Mapping[str, str],
    files: Connector | None = None,
    progress: Progress = silent,
) -> dict[str, str]:
    """Compute and store the features of new and changed items. Return item (the user's id) -> why it has no features.

    `names`: item key -> the user's id. `files`: connector that fetches files of the platform. Raises BadSettings if no
    item has a field of the settings; BadInput if no item can have features or, with `features.missing = "refuse"`, if
    some item cannot.
    """
    from hitl.models.predictors.features import BATCH, describe_left_out, embed_each

    chosen, before = settings.features, store.features_note(settings.name)
    if chosen.kind is None or not names:
        return {}

    def require(corpus: Corpus, left_out: Mapping[str, str]) -> None:
        if left_out and (chosen.missing == "refuse" or not corpus.items):
            why = describe_left_out({names[key]: reason for key, reason in left_out.items()})
            skip = '; with features.missing = "skip" the others are computed' if corpus.items else ""
            raise BadInput(f"features: {why}{skip}")

    if chosen.kind == "file":
        source = file_source(str(chosen.file), names)
    else:
        table = store.items(settings.name)
        data = [json.loads(text) for text in table.column("data").to_pylist()]
        source = source_of(chosen, table.column("item").to_pylist(), data, files)
    corpus, left_out, vectors = source.corpus, dict(source.corpus.left_out), None
    note = FeaturesNote(source.space, _digest(chosen), model=source.model)
    if source.make is not None:
        vectors = _StoredVectors(lease, store, source.space)
        size = BATCH if source.model else ROWS
        left_out |= embed_each(corpus, source.make, vectors, batch_size=size, progress=progress)
        corpus = corpus.without(left_out)
    require(corpus, left_out)
    if vectors is None or chosen.dimensions is not None:
        together = _embed_together(lease, chosen, store, corpus, vectors, before, progress)
        note = replace(together, model=source.model)
        left_out |= note.together
        require(corpus.without(left_out), left_out)
    spaces = sorted({note.space, source.space} - {""})
    stored = {item for space in spaces for item in store.vector_digests(settings.name, space)}
    gone = sorted(stored - (set(corpus.items) - left_out.keys()))
    if note != before or gone:
        store.note_features(lease, note, spaces, gone)
    return {names[key]: why for key, why in left_out.items()}


def stored_features(settings: Settings, store: Store, items: Sequence[str]) -> Floats | None:
    """Return (N, D) features of these items, or None if there are no complete features for the current settings."""
    from hitl.models.predictors.features import align

    note = store.features_note(settings.name)
    if note is None or not are_stored(settings, store):
        return None
    stored, x_nd = store.vectors(settings.name, note.space)
    return align(stored, x_nd, items) if stored else None


def are_stored(settings: Settings, store: Store) -> bool:
    """Return True if features with the current settings were completed, even if items have changed since."""
    note = store.features_note(settings.name)
    return settings.features.kind is not None and note is not None and note.settings == _digest(settings.features)


def _digest(chosen: FeatureSettings) -> str:
    from hitl.models.predictors.features import digest_of

    return digest_of(chosen.model_dump_json(exclude={"folder", "device", "missing"}))


def _embed_together(
    lease: Lease,
    chosen: FeatureSettings,
    store: Store,
    corpus: Corpus,
    vectors: _StoredVectors | None,
    before: FeaturesNote | None,
    progress: Progress,
) -> FeaturesNote:
    """Compute and store features fitted on all items, unless nothing has changed. Return a note that describes them."""
    from hitl.models.predictors.features import digest_of, embed_together

    space = digest_of(_digest(chosen), vectors and vectors.space, corpus.digest())
    if before is not None and before.space == space:
        return before
    x_nd = vectors.read(corpus.items, corpus.digests) if vectors else None
    x_nd, left_out = embed_together(corpus, chosen.dimensions, x_nd)
    rows = [n for n, item in enumerate(corpus.items) if item not in left_out]
    for start in range(0, len(rows), ROWS):
        part = rows[start : start + ROWS]
        batch = corpus.take(part)
        _StoredVectors(lease, store, space).add(batch.items, batch.digests, x_nd[part])
        progress("features", start + len(part), len(rows))
    return FeaturesNote(space, _digest(chosen), left_out)


def source_of(
    chosen: FeatureSettings, items: Sequence[str], data: Sequence[Mapping[str, Any]], files: Connector | None = None
) -> Source:
    """Return the contents of the fields that the settings name. `data`: the data of each item.

    Raises BadSettings if no item has a field.
    """
    from hitl.models.predictors import features, loading
    from hitl.models.predictors.images import Images

    fields = chosen.columns or (str(chosen.text or chosen.image),)
    for name in fields:
        if not any(name in values for values in data):
            raise BadSettings(f"features.{chosen.kind}: no item has the field {name!r}; {expected_fields(name, data)}")
    rows = [[values.get(name) for name in fields] for values in data]
    if chosen.columns:
        return Source(features.rows(items, rows, fields))
    contents, read = [value for (value,) in rows], None
    if chosen.text:
        corpus = features.texts(items, contents, fields[0])
        if chosen.model in (None, features.TFIDF):
            return Source(corpus)
    else:
        images = Images(Path(chosen.folder), files)
        corpus, read = features.places(items, contents, images.stamp, fields[0]), images.open
    digest = loading.embedder_digest(str(chosen.model), chosen.weights)
    make = partial(loading.embedder, str(chosen.model), read, chosen.weights, chosen.device)
    return Source(corpus, digest, make, digest)


def file_source(path: str, names: Mapping[str, str]) -> Source:
    """Return the numbers in a file of features by the user's ids. Items that are not in the file are left out.

    The space depends on the content of the file, so a changed file gets a new one.
    """
    from hitl.models.predictors import features
    from hitl.tables.align import PROJECT, require_shared
    from hitl.tables.matrices import read_vectors

    own, x_nd = read_vectors(path)
    require_shared(path, own, dict.fromkeys(names.values()), *PROJECT)
    row_of = {name: n for n, name in enumerate(own)}
    keys = [key for key, name in names.items() if name in row_of]
    corpus = features.numbers(keys, x_nd[[row_of[names[key]] for key in keys]])
    missing = {key: f"not in {path}" for key, name in names.items() if name not in row_of}
    corpus = replace(corpus, left_out={**corpus.left_out, **missing})
    space = features.digest_of("file", own, x_nd.shape, sha256(np.ascontiguousarray(x_nd).data).hexdigest())
    return Source(corpus, space, lambda: features.Embedder(np.stack))


@dataclass(frozen=True, slots=True)
class _StoredVectors:
    """Vectors stored under one name, `space`. Implements `VectorStore`."""

    lease: Lease
    store: Store
    space: str

    @property
    def width(self) -> int | None:
        """Number of features D, or None if no vector is stored."""
        return self.store.vector_width(self.lease.project, self.space)

    def has(self, items: Sequence[str], digests: Sequence[str]) -> npt.NDArray[np.bool_]:
        """Return (N,) True for items whose stored vector was computed from content with this digest."""
        stored = self.store.vector_digests(self.lease.project, self.space)
        return np.array([stored.get(item) == digest for item, digest in zip(items, digests, strict=True)], np.bool_)

    def add(self, items: Sequence[str], digests: Sequence[str], x_nd: Floats) -> None:
        """Save vectors (N, D) in one transaction."""
        self.store.save_vectors(self.lease, self.space, dict(zip(items, digests, strict=True)), x_nd)

    def read(self, items: Sequence[str], digests: Sequence[str]) -> Floats:
        """Return (N, D) vectors, NaN for items without one."""
        from hitl.models.predictors.features import align

        return align(*self.store.vectors(self.lease.project, self.space), items)
