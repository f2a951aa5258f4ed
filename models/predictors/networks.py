"""torch modules as predictors, among them image models of torchvision and timm. Nothing is ever downloaded.

A module sees a float32 tensor (B, D) of features, a list of texts, or a stacked tensor of transformed images, and
answers with (B, J) logits (or probabilities, if that is said), or with an object that has `.logits`. It runs in eval
mode and without gradients. Weights come from a file that holds tensors only: `torch.load(weights_only=True)`, or
safetensors.
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

from hitl.errors import BadInput, BadSettings
from hitl.models.predictors.images import READERS, opened
from hitl.models.predictors.inputs import Batch
from hitl.models.predictors.predictor import answers, required
from hitl.tables.probabilities import Array

INSTALL = "hitl-toolkit[vision]"
WRAPPERS = ("state_dict", "model_state_dict", "model")
"""Keys under which training scripts put the weights of a checkpoint."""


def torch_module() -> Any:
    """torch. Raises MissingExtra."""
    return required("torch", "a torch model", INSTALL)


@dataclass(frozen=True, slots=True, eq=False)
class NetworkPredictor:
    """A torch module in eval mode on its device.

    Attributes:
        module, classes, device: the network, the names of its J outputs, where it runs.
        logits: whether it answers logits, or probabilities.
        transform: image -> tensor, for images.
        unreadable: paths of images that could not be opened, filled while it runs; on their items it abstains.
    """

    module: Any
    classes: tuple[str, ...]
    device: str = "cpu"
    logits: bool = True
    transform: Callable[[Any], Any] | None = None
    unreadable: list[Path] = field(default_factory=list)

    def predict(self, batch: Batch) -> Array:
        """(B, J); NaN where a feature, the text or the image is missing or cannot be read."""
        present = ~(np.isnan(batch.inputs).any(axis=1) if batch.kind == "features" else batch.empty)
        pictures: dict[int, Any] = {}
        if batch.kind == "image":
            pictures = self._pictures(batch, np.flatnonzero(present))
            present = np.array([row in pictures for row in range(len(batch.items))])

        def run(rows: npt.NDArray[np.intp]) -> Any:
            return self._run([pictures[row] for row in rows] if batch.kind == "image" else batch.take(rows))

        return answers(batch, present, len(self.classes), self.logits, run)

    def notes(self, batch: Batch) -> Mapping[str, Sequence[Any]]:
        """Nothing more."""
        return {}

    def _run(self, inputs: Any) -> Any:
        torch = torch_module()
        if isinstance(inputs, np.ndarray):
            inputs = torch.from_numpy(inputs.astype(np.float32)).to(self.device)
        elif inputs and torch.is_tensor(inputs[0]):
            inputs = torch.stack(inputs).to(self.device)
        with torch.inference_mode():
            said = self.module(inputs)
        said = getattr(said, "logits", said)
        if not torch.is_tensor(said):
            raise BadInput(f"--model: it returns {type(said).__name__}; expected a tensor (items, classes)")
        return said.to("cpu", torch.float64).numpy()

    def _pictures(self, batch: Batch, rows: npt.NDArray[np.intp]) -> dict[int, Any]:
        """Row -> tensor of the images that can be read. Raises BadInput when none of many can."""
        transform = self.transform
        if transform is None:
            raise BadSettings("--image: this model has no transforms of its own; name them with --transforms")

        def tensor_of(path: Path) -> Any:
            try:
                image = opened(path)
            except BadInput:
                return None
            try:
                return transform(image)
            except Exception as error:  # user code
                raise BadInput(f"{path}: its transforms fail: {type(error).__name__}: {error}") from error

        with ThreadPoolExecutor(READERS, thread_name_prefix="hitl-images") as pool:
            tensors = list(pool.map(tensor_of, [batch.inputs[row] for row in rows]))
        found = {int(row): tensor for row, tensor in zip(rows, tensors, strict=True) if tensor is not None}
        missing = [batch.inputs[row] for row in rows if int(row) not in found]
        if missing and not found:
            raise BadInput(f"{missing[0]}: cannot be read as an image, nor any other of the batch; see --image-folder")
        self.unreadable.extend(missing)
        return found


def network(
    module: Any,
    classes: Sequence[str],
    *,
    weights: Path | None = None,
    device: str = "auto",
    logits: bool = True,
    transform: Callable[[Any], Any] | None = None,
) -> NetworkPredictor:
    """A predictor of a module, with weights from a file, in eval mode on the device ("auto": a GPU if there is one)."""
    if weights is not None:
        load_weights(module, weights)
    module, chosen = on_device(module, device)
    return NetworkPredictor(module, tuple(classes), chosen, logits, transform or getattr(module, "transforms", None))


def on_device(module: Any, device: str) -> tuple[Any, str]:
    """The module in eval mode on its device, and which that is ("auto": a GPU if there is one). Raises BadSettings."""
    chosen = ("cuda" if torch_module().cuda.is_available() else "cpu") if device == "auto" else device
    try:
        return module.to(chosen).eval(), chosen
    except (RuntimeError, AssertionError) as error:
        raise BadSettings(f"--device {device}: {str(error).splitlines()[0]}") from None


def load_weights(module: Any, path: Path, but: str | None = None) -> None:
    """Put the tensors of a file into the module, but for those of its part `but`.

    Raises BadInput where the file holds more, or they do not fit.
    """
    state = _read_weights(path)
    wrapped = next((state[key] for key in WRAPPERS if isinstance(state.get(key), Mapping)), state)
    if wrapped and all(str(key).startswith("module.") for key in wrapped):  # saved by DataParallel
        wrapped = {str(key).removeprefix("module."): value for key, value in wrapped.items()}
    if but is not None:
        wrapped = {key: value for key, value in wrapped.items() if not str(key).startswith(f"{but}.")}
    try:
        module.load_state_dict(wrapped)
    except (RuntimeError, AttributeError, TypeError) as error:
        said = " ".join(str(error).split())[:300]
        raise BadInput(f"{path}: the weights do not fit the model (its architecture, its classes?): {said}") from None


def state_digest(module: Any) -> str:
    """SHA-256 of all parameters and buffers: the same network, the same digest."""
    digest = hashlib.sha256(str(module).encode())
    for name, value in sorted(module.state_dict().items()):
        array = value.detach().cpu().contiguous()
        digest.update(f"{name} {array.dtype} {tuple(array.shape)}".encode())
        digest.update(array.view(torch_module().uint8).numpy().tobytes() if array.ndim else repr(array.item()).encode())
    return digest.hexdigest()


def torchvision_model(name: str, classes: Sequence[str] | None, transforms: str | None) -> tuple[Any, Any, list[str]]:
    """An untrained classification model of torchvision, its transforms and its classes.

    The transforms are those of the weights that `transforms` names ("ResNet18_Weights.IMAGENET1K_V1"), else of the
    model's default weights; without classes, theirs. Raises BadSettings for an unknown name.
    """
    models = required("torchvision.models", "a torchvision model", INSTALL)
    if name not in models.list_models(module=models):
        raise BadSettings(f"--model torchvision:{name}: no such image classification model of torchvision")
    try:
        stated = models.get_weight(transforms) if transforms else models.get_model_weights(name).DEFAULT
    except (ValueError, AttributeError) as error:
        raise BadSettings(f"--transforms {transforms}: {error}") from None
    names = list(classes) if classes is not None else [str(category) for category in stated.meta["categories"]]
    module = models.get_model(name, weights=None, num_classes=len(names))
    return module, stated.transforms(), names


def timm_model(name: str, classes: Sequence[str] | None) -> tuple[Any, Any, list[str]]:
    """An untrained model of timm and the transforms its configuration asks for. Raises BadSettings."""
    timm = required("timm", "a timm model", "timm")
    if classes is None:
        raise BadSettings("--model timm:...: name the classes with --classes, in the order of the outputs")
    try:
        module = timm.create_model(name, pretrained=False, num_classes=len(classes))
    except (RuntimeError, ValueError) as error:
        raise BadSettings(f"--model timm:{name}: {error}") from None
    stated = timm.data.resolve_model_data_config(module)
    return module, timm.data.create_transform(**stated, is_training=False), list(classes)


def _read_weights(path: Path) -> Mapping[str, Any]:
    if not path.is_file():
        raise BadInput(f"--weights {path}: no such file")
    if path.suffix == ".safetensors":
        reader = required("safetensors.torch", "a .safetensors file", "safetensors")
        try:
            read: Mapping[str, Any] = reader.load_file(path)
        except Exception as error:
            raise BadInput(f"{path}: cannot be read as safetensors: {error}") from None
        return read
    try:
        state = torch_module().load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises pickle's, zip's and its own errors here
        raise BadInput(
            f"{path}: cannot be read as weights alone ({type(error).__name__}); save module.state_dict(), "
            "not the module"
        ) from None
    if not isinstance(state, Mapping):
        raise BadInput(f"{path}: holds {type(state).__name__}; expected what module.state_dict() gives")
    return state
