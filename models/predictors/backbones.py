"""Image models of torchvision without their last layer: what it would have seen is the features.

The last layer is the last linear one, whose outputs are the classes. Its input is the penultimate layer's output: 512
numbers of a ResNet-18, 1,280 of an EfficientNet-B0.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from hitl.errors import BadInput, BadSettings
from hitl.models.predictors.features import Embedder
from hitl.models.predictors.networks import INSTALL, load_weights, on_device, torch_module
from hitl.models.predictors.predictor import required

RANDOM = "random"
"""Weights of a model that has learned nothing, always the same: for tests."""


def backbone(name: str, weights: str, device: str, read: Callable[[str], Any]) -> Embedder:
    """The penultimate layer of an image model of torchvision.

    `weights` is a name of torchvision's own loader ("DEFAULT", "IMAGENET1K_V1"), which downloads them once; a file of
    a state_dict, whose last layer may have other classes; or "random". `read` opens an image by its place. Raises
    BadSettings for a name that is not known, BadInput for weights that do not fit.
    """
    models = required("torchvision.models", "a torchvision model", INSTALL)
    if name not in models.list_models(module=models):
        raise BadSettings(f"model torchvision:{name}: no such image classification model of torchvision")
    known = models.get_model_weights(name)
    stated = known.__members__.get(weights.rpartition(".")[2])
    try:
        module = _made(models, name, stated, weights)
    except (OSError, RuntimeError) as error:
        raise BadInput(
            f"weights {weights}: cannot be had from torchvision: {' '.join(str(error).split())[:200]}"
        ) from None
    last = without_last_layer(module)
    if stated is None and weights != RANDOM:
        path = Path(weights)
        if not path.is_file():
            raise BadSettings(
                f"weights {weights}: no such file; expected one, {', '.join(known.__members__)} or random"
            )
        load_weights(module, path, but=last)
    return image_embedder(module, (stated or known.DEFAULT).transforms(), device, read)


def image_embedder(module: Any, transform: Callable[[Any], Any], device: str, read: Callable[[str], Any]) -> Embedder:
    """A torch module that sees transformed images, as an embedder; what it says of each is made flat."""
    torch = torch_module()
    module, chosen = on_device(module, device)

    def run(inputs: list[Any]) -> Any:
        with torch.inference_mode():
            said = module(torch.stack(inputs).to(chosen))
        return said.to("cpu", torch.float32).flatten(1)

    return Embedder(run, lambda place: transform(read(place)))


def without_last_layer(module: Any) -> str:
    """Put the identity in place of the last linear layer; the name it had. Raises BadSettings where there is none."""
    nn = torch_module().nn
    linear: list[str] = [name for name, part in module.named_modules() if isinstance(part, nn.Linear)]
    if not linear:
        raise BadSettings(f"model {type(module).__name__}: its last layer is not linear; expected another model")
    parent, _, child = linear[-1].rpartition(".")
    setattr(module.get_submodule(parent), child, nn.Identity())
    return linear[-1]


def _made(models: Any, name: str, stated: Any, weights: str) -> Any:
    if weights != RANDOM:
        return models.get_model(name, weights=stated)
    torch = torch_module()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return models.get_model(name, weights=None)
