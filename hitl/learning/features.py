"""The features of a project's items: made after a pull, kept in the store, read into its evidence.

    refresh           what is new or has changed -> store, batch by batch; killed, the next one goes on
    stored_features   store -> (N, D), a row of NaN for an item that has none

Numbers made item by item (of images, of texts through a network) are kept by a digest of what they were made of. Those
learned on all items (TF-IDF, scaled columns, principal components) are made anew where any item has changed. Until the
new ones are complete the old ones are read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hitl.errors import BadInput, BadSettings
from hitl.platform import Connector, Progress, silent
from hitl.store.vectors import FeaturesNote

if TYPE_CHECKING:
    from hitl.annotations import Floats
    from hitl.models.predictors.features import Corpus, Embedder
    from hitl.settings import FeatureSettings, Settings
    from hitl.store import Lease, Store

ROWS = 1_000
"""Numbers of so many items are saved at a time, where no model makes them item by item."""


def refresh(
    lease: Lease,
    settings: Settings,
    store: Store,
    names: Mapping[str, str],
    files: Connector | None = None,
    progress: Progress = silent,
) -> dict[str, str]:
    """Make the features of items that have none, or whose content has changed; `names` are own ids by the items' keys.

    Gives the items, by own id, that are left without, and why. Raises BadSettings where no item has what they are made
    of, BadInput where they can be made of no item, or, if items without features are refused, not of all.
    """
    if settings.features.kind is None or not names:
        return {}
    return _Refresh(lease, settings.features, store, names, files, progress).run()


def stored_features(settings: Settings, store: Store, items: Sequence[str]) -> Floats | None:
    """(N, D) of these items; None where the settings ask for none, or none are complete that were made by them."""
    note = store.features_note(settings.name)
    if note is None or not are_stored(settings, store):
        return None
    from hitl.models.predictors.features import aligned

    held, x_nd = store.vectors(settings.name, note.space)
    return aligned(held, x_nd, items) if held else None


def are_stored(settings: Settings, store: Store) -> bool:
    """Whether there are complete features that were made by these settings, if not of what items hold now."""
    note = store.features_note(settings.name)
    return settings.features.kind is not None and note is not None and note.settings == _digest(settings.features)


def _digest(chosen: FeatureSettings) -> str:
    """Of all that says what the numbers are."""
    from hitl.models.predictors.features import digest_of

    return digest_of(chosen.model_dump_json(exclude={"folder", "device", "missing"}))


@dataclass(frozen=True, slots=True)
class _Refresh:
    """The steps of `refresh`."""

    lease: Lease
    chosen: FeatureSettings
    store: Store
    names: Mapping[str, str]
    files: Connector | None
    progress: Progress

    def run(self) -> dict[str, str]:
        """Item by item, together, and the note that says what is complete."""
        source, before = self._source(), self.store.features_note(self.lease.project)
        corpus, left_out, each = source.corpus, dict(source.corpus.left_out), None
        note = FeaturesNote(source.space, _digest(self.chosen), model=source.model)
        if source.load is not None:
            from hitl.models.predictors.features import embed_each

            each = _Stored(self.lease, self.store, source.space)
            size: dict[str, Any] = {} if source.model else {"batch_size": ROWS}
            left_out |= embed_each(corpus, source.load, each, progress=self.progress, **size)
            corpus = corpus.but(left_out)
        self._require(corpus, left_out)
        if each is None or self.chosen.dimensions is not None:
            note = replace(self._together(corpus, each, before), model=source.model)
            left_out |= note.together
            self._require(corpus.but(left_out), left_out)
        self._note(note, before, {note.space, source.space} - {""}, set(corpus.items) - left_out.keys())
        return {self.names[key]: why for key, why in left_out.items()}

    def _note(self, note: FeaturesNote, before: FeaturesNote | None, spaces: set[str], complete: set[str]) -> None:
        """Say what is complete, and forget the rest; nothing is written where nothing has changed."""
        held = [self.store.vector_digests(self.lease.project, space).keys() for space in spaces]
        gone = sorted(set().union(*held) - complete)
        if note != before or gone:
            self.store.note_features(self.lease, note, sorted(spaces), gone)

    def _require(self, corpus: Corpus, left_out: Mapping[str, str]) -> None:
        from hitl.models.predictors.features import without

        if left_out and (self.chosen.missing == "refuse" or not corpus.items):
            told = without({self.names[key]: why for key, why in left_out.items()})
            skip = '; with features.missing = "skip" they are left without' if corpus.items else ""
            raise BadInput(f"features: {told}{skip}")

    def _together(self, corpus: Corpus, each: _Stored | None, before: FeaturesNote | None) -> FeaturesNote:
        """What is complete when all items are seen together; made anew unless all items are as they were."""
        from hitl.models.predictors.features import digest_of, embed_together

        settings = _digest(self.chosen)
        space = digest_of(settings, each and each.space, corpus.digest())
        if before is not None and before.space == space:
            return before
        x_nd = each.read(corpus.items, corpus.digests) if each else None
        x_nd, left_out = embed_together(corpus, self.chosen.dimensions, x_nd)
        there = [n for n, item in enumerate(corpus.items) if item not in left_out]
        kept = _Stored(self.lease, self.store, space)
        for start in range(0, len(there), ROWS):
            some = there[start : start + ROWS]
            part = corpus.take(some)
            kept.add(part.items, part.digests, x_nd[some])
            self.progress("features", start + len(some), len(there))
        return FeaturesNote(space, settings, left_out)

    # -- what items hold -----------------------------------------------------------------------------------

    def _source(self) -> _Source:
        from hitl.models.predictors import embedders, features
        from hitl.models.predictors.images import Images

        chosen = self.chosen
        if chosen.kind == "file":
            return self._of_file(str(chosen.file))
        table = self.store.items(self.lease.project)
        keys = table.column("item").to_pylist()
        data = [json.loads(text) for text in table.column("data").to_pylist()]
        if chosen.kind == "columns":
            for name in chosen.columns:
                _require_field(name, "columns", data)
            held = [[one.get(name) for name in chosen.columns] for one in data]
            return _Source(features.rows(keys, held, chosen.columns))
        field_name = str(chosen.text or chosen.image)
        _require_field(field_name, str(chosen.kind), data)
        values = [one.get(field_name) for one in data]
        model = chosen.model or features.TFIDF
        if chosen.text and model == features.TFIDF:
            return _Source(features.texts(keys, values, field_name))
        space = embedders.identity(model, chosen.weights)
        if chosen.text:
            corpus, read = features.texts(keys, values, field_name), None
        else:
            images = Images(Path(chosen.folder), self.files)
            corpus, read = features.places(keys, values, images.stamp, field_name), images.open

        def load() -> Embedder:
            return embedders.embedder(model, "text" if read is None else "image", chosen.weights, chosen.device, read)

        return _Source(corpus, space, load, space)

    def _of_file(self, path: str) -> _Source:
        """The numbers of a file, by own ids; an item that it lacks is left out. Another file is another space."""
        from hitl.models.predictors import features
        from hitl.tables.vectors import read_vectors

        own, x_nd = read_vectors(path)
        row = {name: n for n, name in enumerate(own)}
        there = [key for key, name in self.names.items() if name in row]
        if not there:
            first = next(iter(self.names.values()))
            raise BadInput(f"{path}: none of its {len(own):,} items is one of the project, such as {first!r}")
        corpus = features.numbers(there, x_nd[[row[self.names[key]] for key in there]])
        lacking = {key: f"not in {path}" for key, name in self.names.items() if name not in row}
        corpus = replace(corpus, left_out={**corpus.left_out, **lacking})
        space = features.digest_of("file", own, x_nd.shape, sha256(np.ascontiguousarray(x_nd).data).hexdigest())
        return _Source(corpus, space, lambda: features.Embedder(np.stack))


@dataclass(frozen=True, slots=True)
class _Source:
    """What items hold, and what makes numbers of each; None: they are made of all items together.

    `model` is a digest of it where it is a model.
    """

    corpus: Corpus
    space: str = ""
    load: Callable[[], Embedder] | None = None
    model: str = ""


@dataclass(frozen=True, slots=True)
class _Stored:
    """Numbers in one space of the store, by item."""

    lease: Lease
    store: Store
    space: str

    @property
    def width(self) -> int | None:
        """D; None where the space is empty."""
        return self.store.vector_width(self.lease.project, self.space)

    def held(self, items: Sequence[str], digests: Sequence[str]) -> npt.NDArray[np.bool_]:
        """(N,) whether there are numbers of each item, made of this."""
        known = self.store.vector_digests(self.lease.project, self.space)
        return np.array([known.get(item) == one for item, one in zip(items, digests, strict=True)], dtype=np.bool_)

    def add(self, items: Sequence[str], digests: Sequence[str], x_nd: Floats) -> None:
        """Save numbers (N, D) in one transaction."""
        self.store.save_vectors(self.lease, self.space, dict(zip(items, digests, strict=True)), x_nd)

    def read(self, items: Sequence[str], digests: Sequence[str]) -> Floats:
        """(N, D), NaN in the rows of items that have none."""
        from hitl.models.predictors.features import aligned

        return aligned(*self.store.vectors(self.lease.project, self.space), items)


def _require_field(name: str, key: str, data: Sequence[Mapping[str, Any]]) -> None:
    """Raise BadSettings where no item's data has the field."""
    if any(name in one for one in data):
        return
    fields = list(dict.fromkeys(field for one in data for field in one))
    near = get_close_matches(name, fields, 1)
    meant = f"; did you mean {near[0]!r}?" if near else ""
    raise BadSettings(f"features.{key}: no item has the field {name!r}; expected one of {', '.join(fields)}{meant}")
