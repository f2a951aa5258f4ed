"""Define `hitl predict`, which runs a model over a table of items and writes a probability file."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from os.path import isfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from uuid import uuid4

from hitl.cli import options as flags
from hitl.cli import show
from hitl.cli.evidence import require_unread
from hitl.cli.options import HERE, Config, Json, grouped, names, opt
from hitl.errors import BadSettings

if TYPE_CHECKING:
    from hitl.models.predictors.inputs import Inputs
    from hitl.models.predictors.language import LanguageModel
    from hitl.models.predictors.loading import ModelSettings
    from hitl.models.predictors.predictor import Predictor
    from hitl.platform import Progress

OPENAI = "openai:"
"""Prefix of the names of language models."""

LABEL = "label"
"""Column of the truth. Models must not be trained on it as a feature."""


@dataclass(frozen=True)
class Seen:
    """Options for the items, and for the columns that the model reads."""

    items: flags.ItemTable = None
    project: Annotated[bool, opt("Predict the stored items of the project.", "--project")] = False
    config: Config = HERE
    item: flags.ItemColumn = "item"
    features: Annotated[
        str | None,
        opt("Comma-separated columns, numeric except for openai:NAME; default: all except item and group."),
    ] = None
    text: Annotated[str | None, opt("Column of the text, for models of text.")] = None
    image: Annotated[
        str | None, opt("Column of the image paths, for models of images; with openai:NAME, of their addresses.")
    ] = None
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
            "torchvision:NAME or timm:NAME; or openai:NAME, a language model at --base-url.",
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

    @property
    def is_language(self) -> bool:
        """True for openai:NAME."""
        return self.model.startswith(OPENAI)

    def settings(self) -> ModelSettings:
        """Return the options as settings of the library. Classes may be in a file, one per line."""
        from hitl.models.predictors.loading import ModelSettings
        from hitl.tables.columns import require_distinct

        classes = names(self.classes)
        if self.classes is not None and isfile(self.classes):  # unlike Path.is_file, names may be long
            lines = Path(self.classes).read_text(encoding="utf-8").splitlines()
            require_distinct(classes := tuple(line.strip() for line in lines if line.strip()))
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


@dataclass(frozen=True)
class Language:
    """Options for language models."""

    base_url: Annotated[
        str | None,
        opt("With openai:NAME: server that the columns are sent to, such as https://api.openai.com/v1; no other is."),
    ] = None
    prompt: Annotated[
        Path | None,
        opt("With openai:NAME: Jinja template of the question, which shows item.COLUMN and may set classes."),
    ] = None
    samples: Annotated[
        int, opt("With openai:NAME: samples where log-probabilities and confidence are missing.", min=1)
    ] = 5
    concurrency: Annotated[int, opt("With openai:NAME: requests at a time.", min=1)] = 8
    timeout: Annotated[float, opt("With openai:NAME: seconds that a request may take.", min=0.1)] = 60.0
    max_tokens: Annotated[int, opt("With openai:NAME: longest reply; models that reason need thousands.", min=1)] = 64
    price: Annotated[
        tuple[float, float], opt("With openai:NAME: price of a million input and output tokens, such as 0.15 0.60.")
    ] = (0.0, 0.0)
    budget: Annotated[
        float | None, opt("With --price: stop before a request with which all runs could cost more.", min=0)
    ] = None

    def predictor(self, model: Model, output: Path, image: str | None) -> LanguageModel:
        """Return the language model, which sees the images of this column. Its replies are stored beside the output."""
        from hitl.models.predictors.language import LanguageModel
        from hitl.models.predictors.replies import Server
        from hitl.settings.environment import secret

        if self.base_url is None:
            raise BadSettings(
                f"predict: --model {model.model} sends the text of items to a server; name it with --base-url, such as "
                "https://api.openai.com/v1"
            )
        if self.budget is not None and max(self.price) <= 0:
            raise BadSettings("--budget needs --price: of a million input and output tokens, such as 0.15 0.60")
        key = secret("OPENAI_API_KEY")
        if key is None:
            raise BadSettings("environment: OPENAI_API_KEY is not set; for a server without keys, set it to any text")
        name, limits = model.model.removeprefix(OPENAI), (self.concurrency, self.timeout, self.max_tokens)
        server = Server(self.base_url, name, key, *limits, self.price, self.budget)
        replies = output.with_name(f".{output.name}.replies")
        return LanguageModel(server, replies, model.settings().classes, self.prompt, self.samples, image)


@grouped
def predict(
    seen: Seen,
    model: Model,
    language: Language,
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
    from hitl.tables.write import require_writable

    _check(seen, folds, model, language)
    items = seen.table(output)
    if folds.truth is not None and not (seen.features or seen.text) and LABEL in column_names(items):
        raise BadSettings(f"predict: {items} has a column {LABEL!r}, which models would be trained on; name --features")
    require_writable(output, read=[items, folds.truth, model.weights, language.prompt, Path(model.model)])
    columns, text, image = names(seen.features) or (), seen.text, seen.image
    if model.is_language:
        columns, text, image = (*columns, *filter(None, (text, image))), None, None
    inputs = Inputs(items, seen.item, columns, text, image, seen.image_folder, seen.groups, model.is_language)
    started, trained = time.monotonic(), None
    with show.progress(as_json) as progress:
        if model.is_language:
            predictor: Predictor = language.predictor(model, output, seen.image)
            digest = uuid4().hex  # replies are stored one by one; rows without a reply are asked again
        else:
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
    usage = getattr(predictor, "usage", None)
    if usage is not None:
        data["usage"] = asdict(usage)

    def lines() -> Iterator[str]:
        for warning in warnings:
            show.warning(warning)
        if trained is not None:
            yield f"trained {show.counted((folds.folds or 0) + 1, 'model')} in {trained:.1f} s"
        if summary.resumed:
            yield f"resumed an earlier run: {summary.resumed:,} items had been predicted"
        why = "nothing to predict from" if usage is None else "no text or no answer"
        silent = f"; {summary.silent:,} items skipped: {why}" if summary.silent else ""
        classes = f"({len(predictor.classes)} classes){silent}"
        yield f"predicted {summary.items:,} items {classes}, in {summary.seconds:.1f} s"
        if usage is not None:
            tokens = f"{usage.input_tokens:,} input and {usage.output_tokens:,} output tokens"
            cost = "" if usage.cost is None else f", cost {usage.cost:.4f}"
            yield f"{usage.replies:,} replies ({usage.stored:,} of earlier runs): {tokens}{cost}"
        yield from show.wrote([output])
        if seen.project:
            yield f"to use it in every run, add to {seen.config}, in its section [models]:"
            yield f"{json.dumps(output.stem, ensure_ascii=False)} = {json.dumps(str(output), ensure_ascii=False)}"

    show.result(data, lines(), as_json)


def _check(seen: Seen, folds: Folds, model: Model, language: Language) -> None:
    if model.is_language and (folds.folds or not (seen.features or seen.text or seen.image)):
        raise BadSettings(
            f"predict: --model {model.model}: name the columns to send with --text or --features, or with --image for "
            "addresses of images"
        )
    if language.base_url is not None and not model.is_language:
        raise BadSettings("predict: --base-url needs --model openai:NAME")
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
    if isinstance(own := getattr(predictor, "warnings", None), list):
        return own
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
