"""Define `hitl embed`, which computes features from texts, images or columns, for a file or for a project."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from hitl.cli import options as flags
from hitl.cli import show
from hitl.cli.evidence import require_unread
from hitl.cli.options import HERE, Config, Engine, Json, grouped, names, opt
from hitl.errors import BadInput, BadSettings

if TYPE_CHECKING:
    from hitl.annotations import Floats
    from hitl.platform import Progress
    from hitl.settings import FeatureSettings

    Embedded = tuple[list[str], Floats, dict[str, str]]
    """The user's own ids, their features (NaN if there are none), and the items left out."""


@dataclass(frozen=True)
class How:
    """Options for what to embed, and how."""

    text: Annotated[str | None, opt("Column of the text.")] = None
    image: Annotated[str | None, opt("Column of the image: a path or a URL.")] = None
    columns: Annotated[str | None, opt("Comma-separated columns: numbers are scaled, others one-hot.")] = None
    image_folder: flags.ImageFolder = None
    model: Annotated[
        str | None,
        opt(
            "tfidf (for texts, the default), torchvision:NAME (for images), or your code as module:callable or "
            "file.py:callable, which returns a row of numbers per text or image.",
            "--model",
            "-m",
        ),
    ] = None
    weights: Annotated[
        str | None, opt("Weights of a torch model: a file, a torchvision name (DEFAULT downloads them), or random.")
    ] = None
    dimensions: Annotated[int | None, opt("Numbers per item; default: the model's, or 100 for tfidf.", min=1)] = None
    missing: Annotated[
        Literal["skip", "refuse"],
        opt("If an item cannot be embedded: skip it, or fail (refuse)."),
    ] = "skip"
    device: flags.Device = "auto"

    def settings(self, items: Path) -> FeatureSettings:
        """Return the options as [features] of hitl.toml. Raises BadSettings for contradictory options."""
        from pydantic import ValidationError

        from hitl.settings import FeatureSettings

        given = {name: value for name, value in vars(self).items() if name != "image_folder" and value is not None}
        given |= {"columns": names(self.columns) or (), "folder": str((self.image_folder or items.parent).resolve())}
        if not {"text", "image"} & set(given) and not given["columns"]:
            raise BadSettings("embed: no input; give one of --text, --image and --columns")
        try:
            return FeatureSettings(**given)
        except ValidationError as error:
            raise BadSettings(f"embed: {error.errors()[0]['msg'].removeprefix('Value error, ')}") from None


@grouped
def embed(
    how: How,
    where: Engine,
    items: flags.ItemTable = None,
    project: Annotated[
        bool, opt("Embed the items of the project, as \\[features] of hitl.toml says.", "--project")
    ] = False,
    config: Config = HERE,
    item: flags.ItemColumn = "item",
    output: Annotated[Path | None, opt("Table of features to write (.parquet, .csv).", "--output", "-o")] = None,
    cache: Annotated[Path | None, opt("Cache of embedded content; default: in the folder of the output.")] = None,
    batch_size: Annotated[int, opt("Items per batch.", min=1)] = 64,
    as_json: Json = False,
) -> None:
    """Compute features of items. Run it again to embed only new items."""
    from hitl.models.predictors.features import describe_left_out
    from hitl.tables.matrices import write_vectors
    from hitl.tables.write import require_writable

    if project == (items is not None):
        raise BadSettings("embed: expected either a table of items or --project")
    require_writable(output, read=[items])
    began = time.monotonic()
    with show.progress(as_json) as progress:
        if items is None:
            where.require_none("only for a table of items; a project embeds where its runs happen")
            if how != How():
                raise BadSettings("embed --project takes its options from [features] of hitl.toml")
            own_ids, x_nd, left_out = _of_project(config, output, progress)
        else:
            if output is None:
                raise BadSettings("embed: expected a file to write: --output features.parquet")
            cache = cache or output.with_name(f".{output.name}.cache")
            own_ids, x_nd, left_out = _of_table(items, item, how.settings(items), where, cache, batch_size, progress)
    if left_out and how.missing == "refuse":
        raise BadInput(f"embed: {describe_left_out(left_out)}; --missing skip leaves them without features")
    if output is not None:
        write_vectors(output, own_ids, x_nd, item)
    if left_out and not as_json:
        show.warning(describe_left_out(left_out))
    with_features, width = len(own_ids) - len(left_out), x_nd.shape[1]
    written = {} if output is None else {"features": str(output)}
    data = {"items": with_features, "dimensions": width, "left_out": show.without_passwords(left_out)}
    line = f"{with_features:,} items have {width:,} features each; {time.monotonic() - began:.1f} s"
    show.result(data | {"written": written}, [line, *show.wrote([output])], as_json)


def _of_table(
    path: Path, item: str, chosen: FeatureSettings, where: Engine, cache: Path, batch_size: int, progress: Progress
) -> Embedded:
    from hitl.learning.features import source_of
    from hitl.models.predictors.features import VectorCache, align, embed
    from hitl.tables.columns import require_columns, require_names
    from hitl.tables.read import place_in, read_table

    fields = chosen.columns or (str(chosen.text or chosen.image),)
    table = read_table(path, [item])
    require_columns(table, [item, *fields], str(path))
    items = require_names(table.column(item).to_pylist(), item, str(path), place_in(table))
    source = source_of(chosen, items, table.select(list(dict.fromkeys(fields))).to_pylist())
    if source.make is None:
        where.require_none("for what sees each item by itself: --image, or --text with --model")
    store = VectorCache(cache, source.model) if source.make else None
    with where.executor() as executor:
        x_nd, left_out = embed(
            source.corpus,
            source.make,
            dimensions=chosen.dimensions,
            store=store,
            batch_size=batch_size,
            progress=progress,
            executor=executor,
        )
    return items, align(source.corpus.items, x_nd, items), left_out


def _of_project(config: Path, output: Path | None, progress: Progress) -> Embedded:
    """Compute and store the features of the project's items, and return them."""
    from hitl import cycle
    from hitl.learning.features import stored_features
    from hitl.project import item_names, opened

    with opened(config) as (settings, store, connector):
        require_unread(config, settings, [output])
        if settings.features.kind is None:
            raise BadSettings(f"{config}: no [features] to embed; expected text, image, columns or file there")
        own = item_names(settings, store)
        if not own:
            raise BadSettings(f"embed: project {settings.name!r} has no items; run `hitl pull` first")
        with store.lease(settings.name) as lease:
            left_out = cycle.embed(lease, settings, store, connector, progress)
        x_nd = stored_features(settings, store, list(own))
    assert x_nd is not None
    return list(own.values()), x_nd, left_out
