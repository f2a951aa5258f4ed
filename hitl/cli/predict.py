"""`hitl predict`: a model over a table of items, into a probability file."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from hitl.cli import show
from hitl.errors import BadSettings

if TYPE_CHECKING:
    from hitl.exchange import Progress
    from hitl.models.predictors.inputs import Inputs
    from hitl.models.predictors.loading import ModelSettings
    from hitl.models.predictors.predictor import Predictor


LABEL = "label"
"""Column of the truth, which no model may see."""


@dataclass(frozen=True, slots=True)
class Seen:
    """Which columns are what."""

    item: str
    features: tuple[str, ...]
    text: str | None
    image: str | None
    folder: Path | None
    group: str | None


@dataclass(frozen=True, slots=True)
class Model:
    """What the flags say of the model; the fields are those of `ModelSettings`."""

    name: str
    trust: bool
    classes: tuple[str, ...] | None
    weights: Path | None
    transforms: str | None
    probabilities: bool
    device: str


@dataclass(frozen=True, slots=True)
class Folds:
    """Whether to train, on what."""

    number: int | None
    truth: Path | None
    seed: int


def class_names(text: str | None) -> tuple[str, ...] | None:
    """Comma-separated names, or those of a file, one a line."""
    if text is None:
        return None
    if Path(text).is_file():
        return tuple(line.strip() for line in Path(text).read_text(encoding="utf-8").splitlines() if line.strip())
    return tuple(part.strip() for part in text.split(",") if part.strip())


def run(items: Path, output: Path, seen: Seen, model: Model, folds: Folds, batch_size: int, as_json: bool) -> None:
    """Find the model, train it on folds if that is asked for, judge all items, and say how it went."""
    from hitl.batches import column_names
    from hitl.files import require_distinct, require_writable
    from hitl.models.predictors import running
    from hitl.models.predictors.inputs import Inputs
    from hitl.models.predictors.loading import ModelSettings

    _check(seen, folds, model)
    if folds.truth is not None and not (seen.features or seen.text) and LABEL in column_names(items):
        raise BadSettings(f"predict: {items} has a column {LABEL!r}, which models would be trained on; name --features")
    named = [items, *([folds.truth] if folds.truth else []), *([model.weights] if model.weights else [])]
    require_writable(output)
    require_distinct([output], [*named, Path(model.name)])
    inputs = Inputs(items, seen.item, seen.features, seen.text, seen.image, seen.folder, seen.group)
    settings = ModelSettings(
        model.name, model.trust, model.classes, model.weights, model.transforms, model.probabilities, model.device
    )
    with show.progress(as_json) as progress:
        predictor, digest = _predictor(inputs, settings, folds, batch_size, progress)
        fingerprint = _fingerprint(inputs.digest(), digest, predictor.classes)
        done = running.predict(inputs, predictor, output, fingerprint, batch_size=batch_size, progress=progress)
    warnings = _warnings(predictor)
    if as_json:
        show.as_json(
            {
                "items": done.items,
                "silent": done.silent,
                "resumed": done.resumed,
                "seconds": done.seconds,
                "classes": predictor.classes,
                "warnings": warnings,
                "written": {"probabilities": str(output)},
            }
        )
        return
    for warning in warnings:
        typer.echo(f"hitl: warning: {warning}", err=True)
    if done.resumed:
        show.line(f"went on where an earlier run stopped: {done.resumed:,} items were judged already")
    quiet = f", silent on {done.silent:,}" if done.silent else ""
    show.line(f"judged {done.items:,} items, {len(predictor.classes)} classes{quiet}, in {done.seconds:.1f} s")
    show.line(f"wrote {output}")


def _check(seen: Seen, folds: Folds, model: Model) -> None:
    if (folds.number is None) != (folds.truth is None):
        raise BadSettings("predict: --folds and --truth go together: how many models, trained on which labels")
    if folds.number is None and seen.group is not None:
        raise BadSettings("predict: --groups says which items share a fold; it needs --folds")
    if folds.number is not None and seen.image is not None:
        raise BadSettings("predict: --folds trains scikit-learn estimators, which see numbers or text, not --image")
    if model.transforms is not None and seen.image is None:
        raise BadSettings("predict: --transforms are those of images; it needs --image")


def _predictor(
    inputs: Inputs, settings: ModelSettings, folds: Folds, batch_size: int, progress: Progress
) -> tuple[Predictor, str]:
    """The predictor and a digest of all that its answers depend on but the inputs."""
    from hitl.models.predictors import loading

    found = loading.find(settings)
    if folds.number is None or folds.truth is None:
        return loading.ready(settings, found, inputs.kind)
    from hitl.models.predictors.folds import labeled, train
    from hitl.models.predictors.inputs import file_digest, labels_of

    make = loading.maker(found)
    examples = labeled(inputs, labels_of(folds.truth, inputs.item), batch_size)
    trained = train(make, examples, folds.number, settings.classes, folds.seed, progress)
    said = (found.digest, loading.estimator_digest(make()), file_digest(folds.truth), folds.number, folds.seed)
    return trained, repr(said)


def _fingerprint(inputs: str, model: str, classes: Sequence[str]) -> str:
    from hitl import __version__

    return hashlib.sha256(repr((__version__, inputs, model, tuple(classes))).encode()).hexdigest()


def _warnings(predictor: Predictor) -> list[str]:
    from hitl.models.predictors.folds import OutOfFold
    from hitl.models.predictors.networks import NetworkPredictor

    if isinstance(predictor, OutOfFold) and predictor.duplicates:
        return [
            f"{predictor.duplicates:,} labeled items have the very input of one in another fold, so a model has seen "
            "their like: give such items a common name in a column and name it with --groups"
        ]
    if isinstance(predictor, NetworkPredictor) and predictor.unreadable:
        shown = ", ".join(map(str, predictor.unreadable[:3]))
        return [f"{len(predictor.unreadable):,} images cannot be read; their items are silent ({shown})"]
    return []
