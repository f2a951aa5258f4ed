"""Define `hitl embed`: features of items, from texts, images or columns, into a file or a project's store."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from hitl.cli import options as flags
from hitl.cli import show
from hitl.cli.evidence import names, require_unread
from hitl.cli.options import HERE, Config, Engine, Json, examples, grouped, opt
from hitl.errors import BadInput, BadSettings

if TYPE_CHECKING:
    from hitl.annotations import Floats
    from hitl.models.predictors.features import Corpus, Embedder
    from hitl.platform import Progress

    Embedded = tuple[list[str], Floats, dict[str, str]]
    """The user's own ids, their features (NaN if there are none), and the items left out."""

EXAMPLES = examples(
    "hitl embed items.csv --text text -o features.parquet",
    "hitl embed items.csv --text text --model my.py:encode -o features.parquet",
    "hitl embed photos.csv --image path --model torchvision:resnet18 --weights DEFAULT -o features.parquet",
    "hitl embed items.csv --columns size,colour --missing refuse -o features.csv",
    "hitl embed items.csv --text text --model my.py:encode -o features.parquet --engine dask",
    "hitl embed --project  # what hitl.toml asks for, before the next cycle does it",
)


@dataclass(frozen=True)
class Seen:
    """The items, and the columns to embed."""

    items: flags.ItemTable = None
    project: Annotated[bool, opt("The items of the project instead, as hitl.toml says: features.", "--project")] = False
    config: Config = HERE
    item: flags.ItemColumn = "item"
    text: Annotated[str | None, opt("Column of the text.")] = None
    image: Annotated[str | None, opt("Column of the image: a path, or an address.")] = None
    columns: Annotated[str | None, opt("Comma-separated columns: numbers are scaled, others one-hot.")] = None
    image_folder: flags.ImageFolder = None


@dataclass(frozen=True)
class How:
    """The model, and the number of features."""

    model: Annotated[
        str | None,
        opt(
            "tfidf (texts; the default), torchvision:NAME (images), or module:callable or file.py:callable: your "
            "code, which is run, and which gives a row of numbers for each text or image of a list.",
            "--model",
            "-m",
        ),
    ] = None
    weights: Annotated[
        str | None, opt("Of a torch model: a file, a name torchvision knows (DEFAULT: downloads), or random.")
    ] = None
    dimensions: Annotated[
        int | None, opt("How many numbers each item has; default: the model's; tfidf: 100.", min=1)
    ] = None
    missing: Annotated[
        str, opt("An item that nothing can be made of is left without (skip), or an error (refuse).")
    ] = "skip"
    device: flags.Device = "auto"


@grouped
def embed(
    seen: Seen,
    how: How,
    where: Engine,
    output: Annotated[
        Path | None, opt("Features to write: item and numbers (.parquet, .csv).", "--output", "-o")
    ] = None,
    cache: Annotated[
        Path | None, opt("File that keeps what was embedded, by its content; default: beside the output.")
    ] = None,
    batch_size: Annotated[int, opt("Items a model sees at once.", min=1)] = 64,
    as_json: Json = False,
) -> None:
    """Make features of items. What was embedded before is kept: the same command embeds only what is new."""
    from hitl.models.predictors.features import describe_left_out
    from hitl.tables.matrices import write_vectors
    from hitl.tables.write import require_distinct, require_writable

    _check(seen, how, where, output)
    require_writable(output)
    require_distinct([output], [seen.items] if seen.items else [])
    began = time.monotonic()
    with show.progress(as_json) as progress:
        if output is None or seen.project:
            items, x_nd, left_out = _of_project(seen.config, output, progress)
        else:
            cache = cache or output.with_name(f".{output.name}.cache")
            items, x_nd, left_out = _of_table(seen, how, where, cache, batch_size, progress)
    if left_out and how.missing == "refuse":
        raise BadInput(f"embed: {describe_left_out(left_out)}; with --missing skip they are left without")
    if output is not None:
        write_vectors(output, items, x_nd, seen.item)
    if left_out and not as_json:
        show.warning(describe_left_out(left_out))
    with_features, width = len(items) - len(left_out), x_nd.shape[1]
    written = {} if output is None else {"features": str(output)}
    data = {"items": with_features, "dimensions": width, "left_out": show.without_passwords(left_out)}
    line = f"{with_features:,} items have {width:,} features each; {time.monotonic() - began:.1f} s"
    show.result(data | {"written": written}, [line, *show.wrote([output])], as_json)


def _check(seen: Seen, how: How, where: Engine, output: Path | None) -> None:
    if seen.project == (seen.items is not None):
        raise BadSettings("embed: expected either a table of items or --project")
    columns = [flag for flag in ("text", "image", "columns") if getattr(seen, flag)]
    if seen.project:
        where.require_none("for a table of items; those of a project are embedded where its cycles run")
        if columns or how != How():
            raise BadSettings("embed --project: what to embed, and how, stands in hitl.toml: [features]")
        return
    if len(columns) != 1:
        raise BadSettings("embed: expected one of --text, --image and --columns")
    if output is None:
        raise BadSettings("embed: expected a file to write: --output features.parquet")
    if how.missing not in ("skip", "refuse"):
        raise BadSettings(f"--missing {how.missing}: expected skip or refuse")
    if seen.image and how.model is None:
        raise BadSettings("embed: --image needs --model, such as torchvision:resnet18, module:name or file.py:name")
    if seen.columns and how.model is not None:
        raise BadSettings("embed: --model sees a text or an image; with --columns there is none")


def _of_table(seen: Seen, how: How, where: Engine, cache: Path, batch_size: int, progress: Progress) -> Embedded:
    from hitl.models.predictors.features import TFIDF, VectorCache, align, embed
    from hitl.models.predictors.loading import embedder, embedder_digest

    items, corpus, read = _corpus(seen)
    make: Callable[[], Embedder] | None = None
    store = None
    if how.model is not None and not (seen.text and how.model == TFIDF):
        store = VectorCache(cache, embedder_digest(how.model, how.weights))
        make = partial(embedder, how.model, read, how.weights, how.device)
    else:
        where.require_none("for what sees each item by itself: --image, or --text with --model")
    with where.executor() as executor:
        x_nd, left_out = embed(
            corpus,
            make,
            dimensions=how.dimensions,
            store=store,
            batch_size=batch_size,
            progress=progress,
            executor=executor,
        )
    return items, align(corpus.items, x_nd, items), left_out


def _corpus(seen: Seen) -> tuple[list[str], Corpus, Callable[[str], Any] | None]:
    """Return all items of the table, their contents, and a function that opens an image."""
    from hitl.models.predictors import features
    from hitl.models.predictors.images import Images
    from hitl.tables.columns import require_columns, require_names
    from hitl.tables.read import read_table

    assert seen.items is not None
    table = read_table(seen.items, [seen.item])
    columns = names(seen.columns) or (str(seen.text or seen.image),)
    require_columns(table, [seen.item, *columns], str(seen.items))
    items = require_names(table.column(seen.item).to_pylist(), seen.item, str(seen.items))
    values = [table.column(name).to_pylist() for name in columns]
    if seen.columns:
        return items, features.rows(items, list(zip(*values, strict=True)), columns), None
    if seen.text:
        return items, features.texts(items, values[0], columns[0]), None
    images = Images((seen.image_folder or seen.items.parent).resolve())  # an absolute path, for workers elsewhere
    return items, features.places(items, values[0], images.stamp, columns[0]), images.open


def _of_project(config: Path, output: Path | None, progress: Progress) -> Embedded:
    """Store the features of the project, and return them."""
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
