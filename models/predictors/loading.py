"""Models and embedders by name.

estimator.joblib, .pkl, .pickle     a pickled scikit-learn estimator: a pickle is code, so only with `trust`
package.module:name, file.py:name   your code: an estimator or torch module, a class of either, or a function without
                                    arguments that returns one
torchvision:NAME, timm:NAME         an image model of these libraries, with weights from a file

An embedder is a torchvision model (its penultimate layer), or your code: a function of a list of texts, or of a list of
PIL images in RGB, that returns (B, D); an object with such a method `encode`; or a torch module with its `transforms`.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

from hitl.errors import BadInput, BadSettings
from hitl.models.predictors.features import Embedder, digest_of
from hitl.models.predictors.inputs import Kind, file_digest
from hitl.models.predictors.predictor import SKLEARN, VISION, Predictor, fitted, required

PICKLES = (".joblib", ".pkl", ".pickle")
WEIGHTS = (".pt", ".pth", ".safetensors", ".ckpt", ".bin")
TORCHVISION = "torchvision"


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """Settings for loading a model.

    Attributes:
        name: see the module.
        trust: True if a pickle may run its code.
        classes: names of the outputs, in order; None: the model's own.
        weights: file of tensors for a torch module.
        transforms: for images, torchvision weights that state them, or module:callable that makes them.
        probabilities: True if a torch module answers probabilities rather than logits.
        device: device of a torch module.
    """

    name: str
    trust: bool = False
    classes: tuple[str, ...] | None = None
    weights: Path | None = None
    transforms: str | None = None
    probabilities: bool = False
    device: str = "auto"


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """Loaded model, with a digest of its source and the transforms and classes that came with it."""

    model: Any
    digest: str
    transforms: Any = None
    classes: tuple[str, ...] | None = None


def load(settings: ModelSettings) -> LoadedModel:
    """Load the model. Raise BadSettings, BadInput or MissingExtra, saying what was expected instead."""
    library, _, name = settings.name.partition(":")
    suffix = Path(settings.name).suffix.lower()
    if library in (TORCHVISION, "timm"):
        from hitl.models.predictors import networks

        if settings.weights is None:
            raise BadSettings(f"--model {settings.name}: untrained; name a file with --weights (nothing is downloaded)")
        if library == TORCHVISION:
            stated = None if settings.transforms and ":" in settings.transforms else settings.transforms
            model, transforms, classes = networks.torchvision_model(name, settings.classes, stated)
        else:
            model, transforms, classes = networks.timm_model(name, settings.classes)
        return LoadedModel(model, settings.name, transforms, tuple(classes))
    if suffix in PICKLES:
        return _load_pickle(Path(settings.name), settings.trust)
    if suffix in WEIGHTS:
        raise BadSettings(
            f"--model {settings.name}: weights alone are no model; name what makes it: "
            f"--model module:callable --weights {settings.name}"
        )
    thing, source = import_name(settings.name, "--model")
    model = thing if hasattr(thing, "predict_proba") and not isinstance(thing, type) else _make(thing)
    return LoadedModel(model, settings.name + ("" if source is None else file_digest(source)))


def ready(settings: ModelSettings, loaded: LoadedModel, kind: Kind) -> tuple[Predictor, str]:
    """Return a predictor and a digest of everything that its answers depend on, except the inputs."""
    if not is_module(loaded.model):
        if kind == "image":
            raise BadSettings("--image: a scikit-learn estimator sees numbers or text; expected a torch model")
        if settings.weights is not None:
            raise BadSettings("--weights: a scikit-learn estimator is its own file; expected a torch model")
        return fitted(loaded.model, settings.classes), f"{loaded.digest} {estimator_digest(loaded.model)}"
    from hitl.models.predictors import networks

    classes, transform = loaded.classes or settings.classes, loaded.transforms
    if classes is None:
        raise BadSettings("--classes: a torch model does not name its outputs; name them in order")
    place, colon, _ = (settings.transforms or "").rpartition(":")
    if colon:
        transform = _make(import_name(str(settings.transforms), "--transforms")[0])
    elif settings.transforms and transform is None:
        models = required("torchvision.models", "--transforms", VISION)
        try:
            transform = models.get_weight(settings.transforms).transforms()
        except ValueError as error:
            raise BadSettings(f"--transforms {settings.transforms}: {error}; or name module:callable") from None
    predictor = networks.network(
        loaded.model,
        classes,
        weights=settings.weights,
        device=settings.device,
        logits=not settings.probabilities,
        transform=transform,
    )
    printed = re.sub(r" at 0x[0-9a-fA-F]+", "", str(predictor.transform))  # the address differs between processes
    parts = (loaded.digest, networks.state_digest(predictor.module), settings.probabilities, printed)
    return predictor, repr((*parts, source_digest(place) if place else None))


def estimator_maker(loaded: LoadedModel) -> Callable[[], Any]:
    """Return a function that makes an unfitted copy of the estimator."""
    base = required("sklearn.base", "--folds", SKLEARN)
    if is_module(loaded.model):
        raise BadSettings("--folds: trains scikit-learn estimators; a torch model is trained by you, fold by fold")
    try:
        base.clone(loaded.model)
    except TypeError as error:
        raise BadSettings(f"--folds: the model cannot be made anew: {' '.join(str(error).split())[:200]}") from None
    return lambda: base.clone(loaded.model)


def estimator_digest(estimator: Any) -> str:
    """Return a digest of a fitted estimator, or of its class alone if it cannot be pickled."""
    joblib = required("joblib", "a scikit-learn model", SKLEARN)
    try:
        return str(joblib.hash(estimator))
    except Exception:  # pickle raises all sorts, for example for a lambda
        return type(estimator).__qualname__


def embedder(
    model: str, read: Callable[[str], Any] | None = None, weights: str | None = None, device: str = "auto"
) -> Embedder:
    """Return the embedder of this name: for images, which `read` opens by their places, or else for texts."""
    library, _, name = model.partition(":")
    if library == TORCHVISION:
        from hitl.models.predictors import networks

        if read is None:
            raise BadSettings(f"model {model}: sees images")
        if weights is None:
            raise BadSettings(f"model {model}: needs weights: DEFAULT, a file, or random")
        return networks.backbone(name, weights, device, read)
    thing = import_name(model, "model")[0]
    if inspect.isclass(thing) or (inspect.isroutine(thing) and not inspect.signature(thing).parameters):
        thing = _make(thing, f"model {model}")
    if is_module(thing) and read is not None:
        from hitl.models.predictors import networks

        if weights is not None:
            networks.load_weights(thing, Path(weights))
        if not callable(getattr(thing, "transforms", None)):
            raise BadSettings(f"model {model}: a torch module says how images are transformed; expected .transforms")
        return networks.image_embedder(thing, thing.transforms, device, read)
    if weights is not None:
        raise BadSettings(f"weights: are those of a torch model; {model} is {type(thing).__name__}")
    run = getattr(thing, "encode", thing)
    if not callable(run):
        raise BadSettings(f"model {model}: {type(thing).__name__} cannot be called; expected a function of a list")
    return Embedder(run) if read is None else Embedder(run, read)


def embedder_digest(model: str, weights: str | None = None) -> str:
    """Return a digest of the code and the weights of an embedder, without loading it."""
    place, _, name = model.rpartition(":")
    moved = name if place.endswith(".py") else model  # moving a file does not change the digest
    code = metadata.version(TORCHVISION) if model.startswith(f"{TORCHVISION}:") else source_digest(place)
    return digest_of(moved, code, file_digest(Path(weights)) if weights and Path(weights).is_file() else weights)


# -- code of users -----------------------------------------------------------------------------------------

_loaded_digests: dict[str, str] = {}
"""Digests of the modules that this process has loaded. It keeps using their code if the files change."""


def is_module(model: Any) -> bool:
    """Return True for a torch module, without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(model, torch.nn.Module)


def import_name(name: str, setting: str) -> tuple[Any, Path | None]:
    """Import what module:attribute names; also return the file that defines it."""
    place, colon, attribute = name.rpartition(":")
    if not colon or not place or not attribute:
        raise BadSettings(
            f"{setting} {name!r}: expected a file ({', '.join(PICKLES)}), package.module:callable or file.py:callable, "
            "torchvision:NAME or timm:NAME"
        )
    module = _import(place, setting)
    thing: Any = module
    try:
        for part in attribute.split("."):
            thing = getattr(thing, part)
    except AttributeError:
        raise BadSettings(f"{setting} {name!r}: {place} has no {attribute!r}") from None
    source = getattr(module, "__file__", None)
    return thing, Path(source) if source and Path(source).is_file() else None


def source_digest(place: str) -> str | None:
    """Return a digest of the code of a module (`package.module`, `file.py`) as loaded, None if not found."""
    source = _source_file(place)
    return _loaded_digests.get(place) or (None if source is None else file_digest(source))


def _source_file(place: str) -> Path | None:
    _add_working_folder()
    try:
        origin = place if place.endswith(".py") else getattr(importlib.util.find_spec(place), "origin", None)
    except Exception:  # raised by the packages around it, which are user code
        return None
    return Path(origin) if origin and Path(origin).is_file() else None


def _import(place: str, setting: str) -> ModuleType:
    source = _source_file(place)
    if place.endswith(".py") and source is None:
        raise BadSettings(f"{setting} {place}: no such file")
    try:
        if not place.endswith(".py"):
            module = importlib.import_module(place)
            if source is not None:
                _loaded_digests.setdefault(place, file_digest(source))
            return module
        name = f"hitl_model_{hashlib.sha256(str(Path(place).resolve()).encode()).hexdigest()[:12]}"
        spec = importlib.util.spec_from_file_location(name, place)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        return module
    except Exception as error:  # user code
        raise BadSettings(f"{setting} {place}: cannot be imported: {type(error).__name__}: {error}") from error


def _add_working_folder() -> None:
    """Let imports find modules in the working folder, as `python -m` does."""
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)


def _make(thing: Any, setting: str = "") -> Any:
    """Return the thing itself, or what it makes if it is a class or a function."""
    if is_module(thing) or not (inspect.isclass(thing) or inspect.isroutine(thing)):
        return thing
    try:
        return thing()
    except Exception as error:  # user code
        name = setting or f"{getattr(thing, '__qualname__', thing)}()"
        raise BadSettings(f"{name}: {type(error).__name__}: {error}") from error


def _load_pickle(path: Path, trust: bool) -> LoadedModel:
    if not path.is_file():
        raise BadSettings(f"--model {path}: no such file")
    if not trust:
        raise BadSettings(
            f"--model {path}: a pickle is a program that runs when it is read; if you know who made it, add --trust"
        )
    joblib = required("joblib", "a .joblib or .pkl model", SKLEARN)
    _add_working_folder()
    try:
        return LoadedModel(joblib.load(path), file_digest(path))
    except Exception as error:  # a pickle may raise anything
        raise BadInput(f"{path}: cannot be read as a pickled model: {type(error).__name__}: {error}") from error
