"""Predictors and embedders from torch modules, including image models of torchvision and timm.

A module receives a float32 tensor (B, D) of features, a list of texts, or a stacked tensor of transformed images. It
returns (B, J) logits or probabilities, or an object with `.logits`. It runs in eval mode and without gradients. Weights
come from a file that holds tensors only: `torch.load(weights_only=True)`, or safetensors. Only `backbone` downloads
anything: weights by their torchvision name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hitl.errors import BadInput, BadSettings, MissingExtra
from hitl.models.predictors.features import Embedder
from hitl.models.predictors.images import READERS, open_image
from hitl.models.predictors.inputs import Batch
from hitl.models.predictors.predictor import VISION, checked_predictions, required
from hitl.tables.matrices import Array

torch = required("torch", "a torch model", VISION)

RANDOM = "random"
"""Name of the weights of an untrained backbone, which are always the same. For tests."""


@dataclass(frozen=True, slots=True, eq=False)
class NetworkPredictor:
    """Torch module in eval mode on its device.

    Attributes:
        module: the network.
        classes: names of its J outputs.
        device: device that it runs on.
        logits: True if it returns logits, False if probabilities.
        transform: function that turns an image into a tensor; None if there is none.
        unreadable: paths of images that could not be opened, appended by `predict`, which abstains on their items.
    """

    module: Any
    classes: tuple[str, ...]
    device: str = "cpu"
    logits: bool = True
    transform: Callable[[Any], Any] | None = None
    unreadable: list[Path] = field(default_factory=list)

    def predict(self, batch: Batch) -> Array:
        """Return (B, J) probabilities. A row is NaN if any feature, the text or the image is missing or unreadable."""
        present = ~(np.isnan(batch.inputs).any(axis=1) if batch.kind == "features" else batch.empty)
        images: dict[int, Any] = {}
        if batch.kind == "image":
            images = self._images(batch, np.flatnonzero(present))
            present = np.isin(np.arange(len(batch.items)), list(images))

        def run(rows: npt.NDArray[np.intp]) -> Any:
            return self._run([images[row] for row in rows] if images else batch.take(rows))

        return checked_predictions(batch, present, len(self.classes), self.logits, run)

    def _run(self, inputs: Any) -> Any:
        if isinstance(inputs, np.ndarray):
            inputs = torch.from_numpy(inputs.astype(np.float32)).to(self.device)
        elif torch.is_tensor(inputs[0]):
            inputs = torch.stack(inputs).to(self.device)
        with torch.inference_mode():
            output = self.module(inputs)
        output = getattr(output, "logits", output)
        if not torch.is_tensor(output):
            raise BadInput(f"the model returns {type(output).__name__}; expected a tensor (items, classes)")
        return output.to("cpu", torch.float64).numpy()

    def _images(self, batch: Batch, rows: npt.NDArray[np.intp]) -> dict[int, Any]:
        """Return row -> tensor for the images that can be read. Raise BadInput if none can."""
        transform = self.transform
        if transform is None:
            raise BadSettings("--image: this model has no transforms; name some with --transforms")

        def read(path: Path) -> Any:
            try:
                image = open_image(path)
            except BadInput:
                return None
            try:
                return transform(image)
            except Exception as error:  # user code
                raise BadInput(f"{path}: its transforms fail: {type(error).__name__}: {error}") from error

        with ThreadPoolExecutor(READERS, thread_name_prefix="hitl-images") as pool:
            tensors = list(pool.map(read, [batch.inputs[row] for row in rows]))
        images = {int(row): tensor for row, tensor in zip(rows, tensors, strict=True) if tensor is not None}
        unreadable = [batch.inputs[row] for row in rows if int(row) not in images]
        if unreadable and not images:
            where = "cannot be read as an image, nor any other of the batch; see --image-folder"
            raise BadInput(f"{unreadable[0]}: {where}")
        self.unreadable.extend(unreadable)
        return images


def network(
    module: Any,
    classes: Sequence[str],
    weights: Path | None = None,
    device: str = "auto",
    logits: bool = True,
    transform: Callable[[Any], Any] | None = None,
) -> NetworkPredictor:
    """Return a predictor for a module, with `weights` loaded from a file if given.

    Device "auto" is a GPU if there is one. Without `transform`, the module's own `transforms` are used.
    """
    if weights is not None:
        load_weights(module, weights)
    module, device = _on_device(module, device)
    return NetworkPredictor(module, tuple(classes), device, logits, transform or getattr(module, "transforms", None))


def image_embedder(module: Any, transform: Callable[[Any], Any], device: str, read: Callable[[str], Any]) -> Embedder:
    """Return an embedder that runs a torch module on transformed images and flattens its output."""
    module, device = _on_device(module, device)

    def run(inputs: list[Any]) -> Any:
        with torch.inference_mode():
            output = module(torch.stack(inputs).to(device))
        return output.to("cpu", torch.float32).flatten(1)

    return Embedder(run, lambda place: transform(read(place)))


def backbone(name: str, weights: str, device: str, read: Callable[[str], Any]) -> Embedder:
    """Return an embedder for the penultimate layer of a torchvision image model: 512 numbers for a ResNet-18.

    `weights` is a torchvision name, which is downloaded once, a file with a state_dict, or "random".
    """
    models = _torchvision(f"model torchvision:{name}", name)
    stated = models.get_model_weights(name)
    named = stated.__members__.get(weights.rpartition(".")[2])
    try:
        with torch.random.fork_rng(devices=[], enabled=weights == RANDOM):
            if weights == RANDOM:
                torch.manual_seed(0)
            module = models.get_model(name, weights=named)
    except (OSError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise BadInput(f"weights {weights}: cannot be loaded from torchvision: {reason}") from None
    last = without_last_layer(module)
    if named is None and weights != RANDOM:
        if not Path(weights).is_file():
            raise BadSettings(
                f"weights {weights}: no such file; expected one, {', '.join(stated.__members__)} or random"
            )
        load_weights(module, Path(weights), skip=last)
    return image_embedder(module, (named or stated.DEFAULT).transforms(), device, read)


def without_last_layer(module: Any) -> str:
    """Replace the last linear layer by the identity and return its name. Raise BadSettings if there is none."""
    linear: list[str] = [name for name, part in module.named_modules() if isinstance(part, torch.nn.Linear)]
    if not linear:
        raise BadSettings(f"model {type(module).__name__}: its last layer is not linear; expected another model")
    parent, _, child = linear[-1].rpartition(".")
    setattr(module.get_submodule(parent), child, torch.nn.Identity())
    return linear[-1]


def library_model(
    library: str, name: str, classes: Sequence[str] | None, transforms: str | None
) -> tuple[Any, Any, tuple[str, ...]]:
    """Return an untrained classification model of torchvision or timm, its transforms and its classes.

    A torchvision model gets the transforms of the weights named `transforms`, or else of its default weights.
    """
    if library == "timm":
        timm = required("timm", "a timm model", "timm")
        if classes is None:
            raise BadSettings("--model timm:...: name the classes with --classes, in the order of the outputs")
        try:
            module = timm.create_model(name, pretrained=False, num_classes=len(classes))
        except (RuntimeError, ValueError) as error:
            raise BadSettings(f"--model timm:{name}: {error}") from None
        stated = timm.data.resolve_model_data_config(module)
        return module, timm.data.create_transform(**stated, is_training=False), tuple(classes)
    models = _torchvision(f"--model torchvision:{name}", name)
    stated = weights_named(transforms) if transforms else models.get_model_weights(name).DEFAULT
    names = tuple(map(str, stated.meta["categories"] if classes is None else classes))
    return models.get_model(name, weights=None, num_classes=len(names)), stated.transforms(), names


def weights_named(name: str) -> Any:
    """Return the torchvision weights with this name, which include transforms. Raise BadSettings if there are none."""
    try:
        return required("torchvision.models", "--transforms", VISION).get_weight(name)
    except (ValueError, AttributeError) as error:
        raise BadSettings(f"--transforms {name}: {error}; or name module:callable") from None


def load_weights(module: Any, path: Path, skip: str | None = None) -> None:
    """Load the tensors in a file into the module, except those of its submodule `skip`. Raise BadInput on failure."""
    state = _read_weights(path)
    if skip is not None:
        state = {key: value for key, value in state.items() if not str(key).startswith(f"{skip}.")}
    try:
        module.load_state_dict(state)
    except (RuntimeError, AttributeError, TypeError) as error:
        reason = " ".join(str(error).split())[:300]
        raise BadInput(f"{path}: the weights do not fit the model (its architecture, its classes?): {reason}") from None


def state_digest(module: Any) -> str:
    """Return the SHA-256 of a module's architecture, parameters and buffers."""
    digest = hashlib.sha256(str(module).encode())
    for name, value in sorted(module.state_dict().items()):
        array = value.detach().cpu().contiguous()
        digest.update(f"{name} {array.dtype} {tuple(array.shape)}".encode())
        digest.update(array.view(torch.uint8).numpy().tobytes() if array.ndim else repr(array.item()).encode())
    return digest.hexdigest()


def _torchvision(setting: str, name: str) -> Any:
    models = required("torchvision.models", "a torchvision model", VISION)
    if name not in models.list_models(module=models):
        raise BadSettings(f"{setting}: no such image classification model of torchvision")
    return models


def _on_device(module: Any, device: str) -> tuple[Any, str]:
    chosen = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
    try:
        return module.to(chosen).eval(), chosen
    except (RuntimeError, AssertionError) as error:
        raise BadSettings(f"--device {device}: {str(error).splitlines()[0]}") from None


def _read_weights(path: Path) -> Mapping[str, Any]:
    if not path.is_file():
        raise BadInput(f"--weights {path}: no such file")
    try:
        if path.suffix == ".safetensors":
            state = required("safetensors.torch", "a .safetensors file", "safetensors").load_file(path)
        else:
            state = torch.load(path, map_location="cpu", weights_only=True)
    except MissingExtra:
        raise
    except Exception as error:  # torch raises pickle's, zip's and its own errors here
        raise BadInput(
            f"{path}: cannot be read as weights alone ({type(error).__name__}); save module.state_dict(), "
            "not the module"
        ) from None
    if not isinstance(state, Mapping):
        raise BadInput(f"{path}: contains {type(state).__name__}; expected the result of module.state_dict()")
    return state
