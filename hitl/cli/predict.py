"""Define `hitl predict`, which runs a model over a table of items and writes a probability file."""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hitl.cli import show
from hitl.cli.evidence import names, require_unread
from hitl.cli.options import HERE, Config, ItemColumn, Json, examples, grouped
from hitl.errors import BadSettings

if TYPE_CHECKING:
    from hitl.models.predictors.inputs import Inputs
    from hitl.models.predictors.loading import ModelSettings
    from hitl.models.predictors.predictor import Predictor
    from hitl.platform import Progress


LABEL = "label"
"""Column of the truth, which no model may read."""


EXAMPLES = examples(
    "hitl predict items.csv --model clf.joblib --trust --output probs.csv",
    "hitl predict items.csv --model my.py:make --folds 5 --truth truth.csv -o probs.csv",
    "hitl predict --project --text text --model my.py:make --folds 5 --truth truth.csv -o bert.csv  # in a project",
    "hitl predict photos.csv --image path --model torchvision:resnet18 --weights w.pt --classes cat,dog -o p.csv",
)


@dataclass(frozen=True)
class Seen:
    """Items for a model, and the columns it reads."""

    items: Annotated[Path | None, typer.Argument(help="Table of items: CSV, JSON Lines, Parquet, Arrow.")] = None
    project: Annotated[
        bool, typer.Option("--project", help="The items of the project instead, by your own ids, as last pulled.")
    ] = False
    config: Config = HERE
    item: ItemColumn = "item"
    features: Annotated[
        str | None, typer.Option(help="Comma-separated columns of numbers; default: all but item and group.")
    ] = None
    text: Annotated[str | None, typer.Option(help="Column of the text the model sees instead.")] = None
    image: Annotated[str | None, typer.Option(help="Column of the image paths the model sees instead.")] = None
    image_folder: Annotated[Path | None, typer.Option(help="Where the images are; default: beside the table.")] = None
    groups: Annotated[
        str | None, typer.Option(help="With --folds: column of near-duplicates; a group shares a fold.")
    ] = None

    def table(self, output: Path) -> Path:
        """Return the file of the items. Those of a project are first written next to its store.

        Raises BadTable for an output that the project reads, except for the predictions of a model.
        """
        if self.project == (self.items is not None):
            raise BadSettings("predict: expected either a table of items or --project")
        if self.items is not None:
            return self.items
        from hitl.export import item_table
        from hitl.project import item_names, stored
        from hitl.tables.files import write_table

        with stored(self.config) as (settings, store):
            require_unread(self.config, settings, [output], of_model=True)
            items = item_table(store.items(settings.name), item_names(settings, store))
        if not items.num_rows:
            raise BadSettings(f"predict: project {settings.name!r} has no items; run `hitl pull` first")
        path = self.config.parent / ".hitl" / f"{settings.name}-items.parquet"
        path.parent.mkdir(exist_ok=True)
        write_table(path, items)
        return path

    def inputs(self, table: Path) -> Inputs:
        """Return the table in the form that models read."""
        from hitl.models.predictors.inputs import Inputs

        features = names(self.features) or ()
        return Inputs(table, self.item, features, self.text, self.image, self.image_folder, self.groups)


@dataclass(frozen=True)
class Model:
    """Choice of the model, and how it reads the items."""

    model: Annotated[
        str,
        typer.Option(
            "--model",
            "-m",
            help="A pickled estimator (.joblib, .pkl: needs --trust), module:callable or file.py:callable (your code, "
            "which is run), torchvision:NAME or timm:NAME.",
        ),
    ]
    trust: Annotated[
        bool, typer.Option("--trust", help="Read a pickle. A pickle is a program: only from people you trust.")
    ] = False
    classes: Annotated[
        str | None,
        typer.Option(help="Comma-separated outputs in order, or a file with one a line; default: the model's."),
    ] = None
    weights: Annotated[
        Path | None, typer.Option(help="Weights of a torch model: a state_dict (.pt) or .safetensors; no code is read.")
    ] = None
    transforms: Annotated[
        str | None, typer.Option(help="For images: torchvision weights (ResNet18_Weights.DEFAULT) or module:callable.")
    ] = None
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="The torch model answers probabilities, not logits.")
    ] = False
    device: Annotated[str, typer.Option(help="Where a torch model runs: auto, cpu, cuda, cuda:1.")] = "auto"

    def settings(self) -> ModelSettings:
        """Return the settings as the library takes them."""
        from hitl.models.predictors.loading import ModelSettings

        options = {**vars(self), "classes": class_names(self.classes)}
        return ModelSettings(options.pop("model"), **options)


@dataclass(frozen=True)
class Folds:
    """Options for training in folds."""

    folds: Annotated[
        int | None, typer.Option(help="Train K times on --truth, so that no model judges a label it has seen.", min=2)
    ] = None
    truth: Annotated[
        Path | None, typer.Option(help="With --folds: labels to train on (item, label), or a consensus.")
    ] = None
    seed: Annotated[int, typer.Option(help="With --folds: of the split.")] = 0


@grouped
def predict(
    seen: Seen,
    model: Model,
    folds: Folds,
    output: Annotated[Path, typer.Option("--output", "-o", help="Probabilities to write: item, p_<class>.")],
    batch_size: Annotated[int, typer.Option(help="Items held in memory at once.", min=1)] = 256,
    as_json: Json = False,
) -> None:
    """Run a model over items and write its probabilities. Interrupted, the same command goes on where it stopped."""
    from hitl import __version__
    from hitl.models.predictors import running
    from hitl.tables.batches import column_names
    from hitl.tables.files import require_distinct, require_writable

    _check(seen, folds, model)
    items = seen.table(output)
    if folds.truth is not None and not (seen.features or seen.text) and LABEL in column_names(items):
        raise BadSettings(f"predict: {items} has a column {LABEL!r}, which models would be trained on; name --features")
    named = [items, *([folds.truth] if folds.truth else []), *([model.weights] if model.weights else [])]
    require_writable(output)
    require_distinct([output], [*named, Path(model.model)])
    inputs, settings = seen.inputs(items), model.settings()
    started = time.monotonic()
    with show.progress(as_json) as progress:
        predictor, digest = _predictor(inputs, settings, folds, batch_size, progress)
        trained = time.monotonic() - started if folds.folds else None
        parts = (__version__, inputs.digest(), digest, tuple(predictor.classes))
        fingerprint = hashlib.sha256(repr(parts).encode()).hexdigest()
        summary = running.predict(inputs, predictor, output, fingerprint, batch_size=batch_size, progress=progress)
    warnings = _warnings(predictor)
    if as_json:
        more = {
            "classes": predictor.classes,
            "warnings": show.without_passwords(warnings),
            "written": {"probabilities": str(output)},
        }
        show.as_json(asdict(summary) | more | ({} if trained is None else {"training_seconds": trained}))
        return
    for warning in warnings:
        show.warning(warning)
    if trained is not None:
        show.line(f"trained {show.counted((folds.folds or 0) + 1, 'model')} in {trained:.1f} s")
    if summary.resumed:
        show.line(f"went on where an earlier run stopped: {summary.resumed:,} items were predicted already")
    silent = f"; {summary.silent:,} left out, with nothing to predict from" if summary.silent else ""
    show.line(
        f"predicted {summary.items:,} items ({len(predictor.classes)} classes){silent}, in {summary.seconds:.1f} s"
    )
    show.wrote([output])
    if seen.project:
        show.line(f"for every cycle, add to {seen.config}, in its section [models]:")
        show.line(f"{json.dumps(output.stem, ensure_ascii=False)} = {json.dumps(str(output), ensure_ascii=False)}")


def class_names(text: str | None) -> tuple[str, ...] | None:
    """Split comma-separated names, or read them from a file, one per line."""
    if text is None:
        return None
    if Path(text).is_file():
        return tuple(line.strip() for line in Path(text).read_text(encoding="utf-8").splitlines() if line.strip())
    return names(text)


def _check(seen: Seen, folds: Folds, model: Model) -> None:
    if (folds.folds is None) != (folds.truth is None):
        raise BadSettings("predict: --folds and --truth go together: how many models, trained on which labels")
    if folds.folds is None and seen.groups is not None:
        raise BadSettings("predict: --groups says which items share a fold; it needs --folds")
    if folds.folds is not None and seen.image is not None:
        raise BadSettings("predict: --folds trains scikit-learn estimators, which see numbers or text, not --image")
    if model.transforms is not None and seen.image is None:
        raise BadSettings("predict: --transforms are those of images; it needs --image")


def _predictor(
    inputs: Inputs, settings: ModelSettings, folds: Folds, batch_size: int, progress: Progress
) -> tuple[Predictor, str]:
    """Return the predictor and a digest of everything that its answers depend on, except the inputs."""
    from hitl.models.predictors import loading
    from hitl.models.predictors.folds import labeled, train
    from hitl.models.predictors.inputs import file_digest, read_labels

    loaded = loading.load(settings)
    if folds.folds is None or folds.truth is None:
        return loading.ready(settings, loaded, inputs.kind)
    make = loading.estimator_maker(loaded)
    examples = labeled(inputs, read_labels(folds.truth, inputs.item), batch_size)
    trained = train(make, examples, folds.folds, settings.classes, folds.seed, progress)
    parts = (loaded.digest, loading.estimator_digest(make()), file_digest(folds.truth), folds.folds, folds.seed)
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
