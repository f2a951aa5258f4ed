"""Define `hitl predict`, which runs a model over a table of items and writes a probability file."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from hitl.cli import options as flags
from hitl.cli import show
from hitl.cli.evidence import names, require_unread
from hitl.cli.options import HERE, Config, Json, grouped, opt
from hitl.errors import BadSettings

if TYPE_CHECKING:
    from hitl.models.predictors.inputs import Inputs
    from hitl.models.predictors.loading import ModelSettings
    from hitl.models.predictors.predictor import Predictor
    from hitl.platform import Progress

LABEL = "label"
"""Column of the truth. Models must not be trained on it as a feature."""


@dataclass(frozen=True)
class Seen:
    """Options for the items, and for the columns that the model reads."""

    items: flags.ItemTable = None
    project: Annotated[bool, opt("Predict the stored items of the project.", "--project")] = False
    config: Config = HERE
    item: flags.ItemColumn = "item"
    features: Annotated[str | None, opt("Comma-separated numeric columns; default: all except item and group.")] = None
    text: Annotated[str | None, opt("Column of the text, for models of text.")] = None
    image: Annotated[str | None, opt("Column of the image paths, for models of images.")] = None
    image_folder: flags.ImageFolder = None
    groups: Annotated[
        str | None, opt("With --folds: column of groups (such as near-duplicates) that stay in one fold.")
    ] = None

    def table(self, output: Path) -> Path:
        """Return the file of the items. For a project, write it first, to the folder .hitl beside hitl.toml.

        Raises BadTable if the project reads the output, unless as probabilities of a model.
        """
        from hitl.export import item_table
        from hitl.project import item_names, stored
        from hitl.tables.write import write_table

        if self.project == (self.items is not None):
            raise BadSettings("predict: expected either a table of items or --project")
        if self.items is not None:
            return self.items
        with stored(self.config) as (settings, store):
            require_unread(self.config, settings, [output], of_model=True)
            items = item_table(store.items(settings.name), item_names(settings, store))
        if not items.num_rows:
            raise BadSettings(f"predict: project {settings.name!r} has no items; run `hitl pull` first")
        path = self.config.parent / ".hitl" / f"{settings.name}-items.parquet"
        path.parent.mkdir(exist_ok=True)
        write_table(path, items)
        return path


@dataclass(frozen=True)
class Model:
    """Options for the model, and how it reads the items."""

    model: Annotated[
        str,
        opt(
            "Pickled estimator (.joblib, .pkl; needs --trust), your code as module:callable or file.py:callable, "
            "torchvision:NAME or timm:NAME.",
            "--model",
            "-m",
        ),
    ]
    trust: Annotated[
        bool, opt("Load a pickle. A pickle can run any code: load only those from people you trust.", "--trust")
    ] = False
    classes: Annotated[
        str | None,
        opt("Comma-separated classes in the order of the outputs, or a file with one per line; default: the model's."),
    ] = None
    weights: Annotated[
        Path | None, opt("Weights of a torch model: a state_dict (.pt) or .safetensors, read without running code.")
    ] = None
    transforms: Annotated[
        str | None, opt("For images: torchvision weights (ResNet18_Weights.DEFAULT) or module:callable.")
    ] = None
    probabilities: Annotated[bool, opt("The torch model returns probabilities, not logits.", "--probabilities")] = False
    device: flags.Device = "auto"

    def settings(self) -> ModelSettings:
        """Return the options as settings of the library. Classes may be in a file, one per line."""
        from hitl.models.predictors.loading import ModelSettings

        classes = names(self.classes)
        if self.classes is not None and Path(self.classes).is_file():
            lines = Path(self.classes).read_text(encoding="utf-8").splitlines()
            classes = tuple(line.strip() for line in lines if line.strip())
        options = {**vars(self), "classes": classes}
        return ModelSettings(options.pop("model"), **options)


@dataclass(frozen=True)
class Folds:
    """Options for training in folds."""

    folds: Annotated[
        int | None, opt("Train K times on --truth, so that no item is predicted by a model trained on it.", min=2)
    ] = None
    truth: Annotated[Path | None, opt("With --folds: labels to train on (item, label), or a consensus.")] = None
    seed: Annotated[int, opt("With --folds: seed of the split.")] = 0


@grouped
def predict(
    seen: Seen,
    model: Model,
    folds: Folds,
    output: Annotated[Path, opt("Table to write: item, p_<class>.", "--output", "-o")],
    batch_size: Annotated[int, opt("Items in memory at once.", min=1)] = 256,
    as_json: Json = False,
) -> None:
    """Run a model on items and write its probabilities. If interrupted, run it again to resume."""
    from hitl import __version__
    from hitl.models.predictors import running
    from hitl.models.predictors.inputs import Inputs
    from hitl.tables.read import column_names
    from hitl.tables.write import require_distinct, require_writable

    _check(seen, folds, model)
    items = seen.table(output)
    if folds.truth is not None and not (seen.features or seen.text) and LABEL in column_names(items):
        raise BadSettings(f"predict: {items} has a column {LABEL!r}, which models would be trained on; name --features")
    require_writable(output)
    read = [items, folds.truth, model.weights, Path(model.model)]
    require_distinct([output], [path for path in read if path])
    columns = names(seen.features) or ()
    inputs = Inputs(items, seen.item, columns, seen.text, seen.image, seen.image_folder, seen.groups)
    started, trained = time.monotonic(), None
    with show.progress(as_json) as progress:
        predictor, digest = _predictor(inputs, model.settings(), folds, batch_size, progress)
        if folds.folds:
            trained = time.monotonic() - started
        parts = (__version__, inputs.digest(), digest, tuple(predictor.classes))
        fingerprint = hashlib.sha256(repr(parts).encode()).hexdigest()
        summary = running.predict(inputs, predictor, output, fingerprint, batch_size=batch_size, progress=progress)
    warnings = _warnings(predictor)
    data: dict[str, Any] = asdict(summary)
    data |= {"classes": predictor.classes, "warnings": show.without_passwords(warnings)}
    data |= {"written": {"probabilities": str(output)}}
    if trained is not None:
        data["training_seconds"] = trained

    def lines() -> Iterator[str]:
        for warning in warnings:
            show.warning(warning)
        if trained is not None:
            yield f"trained {show.counted((folds.folds or 0) + 1, 'model')} in {trained:.1f} s"
        if summary.resumed:
            yield f"resumed an earlier run: {summary.resumed:,} items had been predicted"
        silent = f"; {summary.silent:,} items skipped: nothing to predict from" if summary.silent else ""
        classes = f"({len(predictor.classes)} classes){silent}"
        yield f"predicted {summary.items:,} items {classes}, in {summary.seconds:.1f} s"
        yield from show.wrote([output])
        if seen.project:
            yield f"to use it in every run, add to {seen.config}, in its section [models]:"
            yield f"{json.dumps(output.stem, ensure_ascii=False)} = {json.dumps(str(output), ensure_ascii=False)}"

    show.result(data, lines(), as_json)


def _check(seen: Seen, folds: Folds, model: Model) -> None:
    if (folds.folds is None) != (folds.truth is None):
        raise BadSettings(
            "predict: --folds and --truth need each other: the number of models, and the labels to train on"
        )
    if folds.folds is None and seen.groups is not None:
        raise BadSettings("predict: --groups needs --folds; it keeps the items of a group in one fold")
    if folds.folds is not None and seen.image is not None:
        raise BadSettings(
            "predict: --folds trains scikit-learn estimators on numbers or text; it does not support --image"
        )
    if model.transforms is not None and seen.image is None:
        raise BadSettings("predict: --transforms needs --image")


def _predictor(
    inputs: Inputs, settings: ModelSettings, folds: Folds, batch_size: int, progress: Progress
) -> tuple[Predictor, str]:
    """Return the predictor, and a digest of everything that its predictions depend on except the inputs."""
    from hitl.models.predictors import loading
    from hitl.models.predictors.folds import labeled, train
    from hitl.models.predictors.inputs import file_digest, read_labels

    if folds.folds is None or folds.truth is None:
        return loading.ready(settings, inputs.kind)
    model, digest = loading.load(settings.name, settings.trust)
    make = loading.estimator_maker(model)
    examples = labeled(inputs, read_labels(folds.truth, inputs.item), batch_size)
    trained = train(make, examples, folds.folds, settings.classes, folds.seed, progress)
    parts = (digest, loading.estimator_digest(make()), file_digest(folds.truth), folds.folds, folds.seed)
    return trained, repr(parts)


def _warnings(predictor: Predictor) -> list[str]:
    duplicates = getattr(predictor, "duplicates", 0)
    unreadable = getattr(predictor, "unreadable", [])
    if duplicates:
        return [
            f"{duplicates:,} labeled items have the very input of one in another fold, so a model has seen "
            "their like: give such items a common name in a column and name it with --groups"
        ]
    if unreadable:
        first = ", ".join(map(str, unreadable[:3]))
        return [f"{len(unreadable):,} images cannot be read; their items have no probabilities ({first})"]
    return []
