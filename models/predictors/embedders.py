"""Which embedder a name stands for.

torchvision:NAME                    an image model of torchvision, with weights                        (`backbones`)
package.module:name, file.py:name   your code: a function of a list of texts, or of a list of PIL images in RGB, that
                                    gives (B, D); an object with such a method `encode`; a torch module for images, with
                                    its `transforms`; or what makes one of these, without arguments
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from hitl.errors import BadSettings
from hitl.models.predictors import loading
from hitl.models.predictors.features import Embedder, digest_of
from hitl.models.predictors.inputs import file_digest

TORCHVISION = "torchvision"


def embedder(
    model: str,
    kind: Literal["text", "image"],
    weights: str | None = None,
    device: str = "auto",
    read: Callable[[str], Any] | None = None,
) -> Embedder:
    """The embedder that is named; `read` opens an image by its place.

    Raises BadSettings, BadInput or MissingExtra, saying what was expected instead.
    """
    from hitl.models.predictors import backbones

    scheme, _, name = model.partition(":")
    if scheme == TORCHVISION:
        if kind != "image" or weights is None:
            needs = "sees images" if kind != "image" else "needs weights: DEFAULT, a file, or random"
            raise BadSettings(f"model {model}: {needs}")
        assert read is not None
        return backbones.backbone(name, weights, device, read)
    thing = _made(loading.named(model, "model")[0], model)
    if loading.is_module(thing) and kind == "image":
        from hitl.models.predictors.networks import load_weights

        if weights is not None:
            load_weights(thing, Path(weights))
        if not callable(getattr(thing, "transforms", None)):
            raise BadSettings(f"model {model}: a torch module says how images are transformed; expected .transforms")
        assert read is not None
        return backbones.image_embedder(thing, thing.transforms, device, read)
    if weights is not None:
        raise BadSettings(f"weights: are those of a torch model; {model} is {type(thing).__name__}")
    run = getattr(thing, "encode", thing)
    if not callable(run):
        raise BadSettings(f"model {model}: {type(thing).__name__} cannot be called; expected a function of a list")
    return Embedder(run) if read is None else Embedder(run, read)


def identity(model: str, weights: str | None = None) -> str:
    """A digest of all that the embedder's numbers depend on but its inputs, without loading it."""
    scheme, _, _ = model.partition(":")
    place, _, name = model.rpartition(":")
    said = name if place.endswith(".py") else model  # a file that was moved is the same
    by = metadata.version(TORCHVISION) if scheme == TORCHVISION else loading.source_digest(place)
    learned = file_digest(Path(weights)) if weights and Path(weights).is_file() else weights
    return digest_of(said, by, learned)


def _made(thing: Any, model: str) -> Any:
    """The thing itself, or what it makes: a class, or a function without arguments."""
    makes = inspect.isclass(thing) or (inspect.isroutine(thing) and not inspect.signature(thing).parameters)
    if not makes:
        return thing
    try:
        return thing()
    except Exception as error:  # user code
        raise BadSettings(f"model {model}: {type(error).__name__}: {error}") from error
