"""Load models and embedders by name.

estimator.joblib, .pkl, .pickle     a pickled scikit-learn estimator: a pickle is code, so only with `trust`
package.module:name, file.py:name   your code: an estimator or torch module, a class of either, or a function without
                                    arguments that returns one
torchvision:NAME, timm:NAME         an image model of these libraries, with weights from a file

An embedder is a torchvision model (its penultimate layer), or your code: a function that turns a list of texts, or of
PIL images in RGB, into (B, D) numbers; an object with such a method `encode`; or a torch module with `transforms`.
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
from hitl.models.predictors.predictor import SKLEARN, Predictor, fitted, required

PICKLES = (".joblib", ".pkl", ".pickle")
TORCHVISION = "torchvision"


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """Settings for loading a model.

    Attributes:
        name: name of the model; see the module docstring.
        trust: True to load pickles, which can run any code.
        classes: names of the outputs, in order; None: the model's own.
        weights: file with the weights of a torch module, or None.
        transforms: transforms of images: the name of torchvision weights that come with them, or a module:callable that
            returns them; None: the model's own.
        probabilities: True if a torch module returns probabilities rather than logits.
        device: device of a torch module; "auto": a GPU if there is one.
    """

    name: str
    trust: bool = False
    classes: tuple[str, ...] | None = None
    weights: Path | None = None
    transforms: str | None = None
    probabilities: bool = False
    device: str = "auto"


def load(name: str, trust: bool = False) -> tuple[Any, str]:
    """Return a model from a pickle or from user code, and a text that changes with its source.

    Raise BadSettings or BadInput if it cannot be loaded.
    """
    path = Path(name)
    if path.suffix.lower() not in PICKLES:
        thing = import_name(name, "--model")
        model = thing if hasattr(thing, "predict_proba") and not isinstance(thing, type) else _make(thing)
        return model, f"{name}{source_digest(name.rpartition(':')[0])}"
    if not path.is_file():
        raise BadSettings(f"--model {path}: no such file")
    if not trust:
        raise BadSettings(f"--model {path}: loading a pickle can run any code; if you trust who made it, add --trust")
    joblib = required("joblib", "a .joblib or .pkl model", SKLEARN)
    _add_working_folder()
    try:
        return joblib.load(path), file_digest(path)
    except Exception as error:  # a pickle may raise anything
        raise BadInput(f"{path}: cannot be read as a pickled model: {type(error).__name__}: {error}") from error


def ready(settings: ModelSettings, kind: Kind) -> tuple[Predictor, str]:
    """Return a predictor, and a digest of everything that its predictions depend on except the inputs.

    Raise BadSettings, BadInput or MissingExtra with a message that says what was expected.
    """
    library, _, name = settings.name.partition(":")
    place, colon, _ = (settings.transforms or "").rpartition(":")
    transform, classes = None, settings.classes
    if library in (TORCHVISION, "timm"):
        from hitl.models.predictors import networks

        if settings.weights is None:
            raise BadSettings(f"--model {settings.name}: untrained; name a file with --weights (nothing is downloaded)")
        stated = None if colon else settings.transforms
        model, transform, classes = networks.library_model(library, name, classes, stated)
        digest = settings.name
    else:
        model, digest = load(settings.name, settings.trust)
    if not is_module(model):
        if kind == "image" or settings.weights is not None:
            raise BadSettings("--image, --weights: a scikit-learn estimator has neither; expected a torch model")
        return fitted(model, classes), f"{digest} {estimator_digest(model)}"
    from hitl.models.predictors import networks

    if classes is None:
        raise BadSettings("--classes: a torch model does not name its outputs; name them in order")
    if colon:
        transform = _make(import_name(str(settings.transforms), "--transforms"))
    elif settings.transforms and transform is None:
        transform = networks.weights_named(settings.transforms).transforms()
    logits = not settings.probabilities
    predictor = networks.network(model, classes, settings.weights, settings.device, logits, transform)
    printed = re.sub(r" at 0x[0-9a-fA-F]+", "", str(predictor.transform))  # the address differs between processes
    parts = (digest, networks.state_digest(predictor.module), logits, printed, source_digest(place) if place else None)
    return predictor, repr(parts)


def estimator_maker(model: Any) -> Callable[[], Any]:
    """Return a function that makes unfitted copies of the estimator. Raise BadSettings if it cannot be copied."""
    base = required("sklearn.base", "--folds", SKLEARN)
    if is_module(model):
        raise BadSettings("--folds trains only scikit-learn estimators; train a torch model yourself, fold by fold")
    try:
        base.clone(model)
    except TypeError as error:
        raise BadSettings(f"--folds: the model cannot be copied: {' '.join(str(error).split())[:200]}") from None
    return lambda: base.clone(model)


def estimator_digest(estimator: Any) -> str:
    """Return a digest of a fitted estimator, or the name of its class if it cannot be pickled."""
    joblib = required("joblib", "a scikit-learn model", SKLEARN)
    try:
        return str(joblib.hash(estimator))
    except Exception:  # pickle raises all sorts of errors, for example for a lambda
        return type(estimator).__qualname__


def embedder(
    model: str, read: Callable[[str], Any] | None = None, weights: str | None = None, device: str = "auto"
) -> Embedder:
    """Return the embedder with this name, for texts or, if `read` opens paths and addresses, for images.

    Raise BadSettings if it cannot be built.
    """
    library, _, name = model.partition(":")
    if library == TORCHVISION:
        from hitl.models.predictors import networks

        if read is None or weights is None:
            raise BadSettings(f"model {model}: sees images, and needs weights: DEFAULT, a file, or random")
        return networks.backbone(name, weights, device, read)
    thing = import_name(model, "model")
    if inspect.isclass(thing) or (inspect.isroutine(thing) and not inspect.signature(thing).parameters):
        thing = _make(thing, f"model {model}")
    if is_module(thing) and read is not None:
        from hitl.models.predictors import networks

        if weights is not None:
            networks.load_weights(thing, Path(weights))
        if not callable(getattr(thing, "transforms", None)):
            raise BadSettings(f"model {model}: a torch module says how images are transformed; expected .transforms")
        return networks.image_embedder(thing, thing.transforms, device, read)
    run = getattr(thing, "encode", thing)
    if weights is not None or not callable(run):
        raise BadSettings(f"model {model}: {type(thing).__name__}; expected a function of a list, without weights")
    return Embedder(run) if read is None else Embedder(run, read)


def embedder_digest(model: str, weights: str | None = None) -> str:
    """Return a digest of the code and the weights of an embedder, without loading it."""
    place, _, name = model.rpartition(":")
    moved = name if place.endswith(".py") else model  # moving a file does not change the digest
    code = metadata.version(TORCHVISION) if model.startswith(f"{TORCHVISION}:") else source_digest(place)
    return digest_of(moved, code, file_digest(Path(weights)) if weights and Path(weights).is_file() else weights)


# -- code of users -----------------------------------------------------------------------------------------

_loaded_digests: dict[str, str] = {}
"""Digest of each module loaded by this process, by name. The loaded code stays in use when the file changes."""


def is_module(model: Any) -> bool:
    """Return True for a torch module, without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(model, torch.nn.Module)


def import_name(name: str, setting: str) -> Any:
    """Import the object named module:attribute. Raise BadSettings, which names the setting, if that fails."""
    place, _, attribute = name.rpartition(":")
    if not place or not attribute:
        raise BadSettings(
            f"{setting} {name!r}: expected a file ({', '.join(PICKLES)}), package.module:callable or file.py:callable, "
            "torchvision:NAME, timm:NAME or openai:NAME"
        )
    thing: Any = _import(place, setting)
    try:
        for part in attribute.split("."):
            thing = getattr(thing, part)
    except AttributeError:
        raise BadSettings(f"{setting} {name!r}: {place} has no {attribute!r}") from None
    return thing


def source_digest(place: str) -> str | None:
    """Return a digest of the code of a module (`package.module`, `file.py`), as loaded; None if it is not found."""
    source = _source_file(place)
    return _loaded_digests.get(place) or (None if source is None else file_digest(source))


def _source_file(place: str) -> Path | None:
    _add_working_folder()
    try:
        origin = place if place.endswith(".py") else getattr(importlib.util.find_spec(place), "origin", None)
    except Exception:  # finding a module imports its parent packages, which are user code
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
    """Call a class or function and return its result. Return anything else unchanged."""
    if is_module(thing) or not (inspect.isclass(thing) or inspect.isroutine(thing)):
        return thing
    try:
        return thing()
    except Exception as error:  # user code
        name = setting or f"{getattr(thing, '__qualname__', thing)}()"
        raise BadSettings(f"{name}: {type(error).__name__}: {error}") from error
