"""Which model a name on the command line stands for.

estimator.joblib, .pkl, .pickle     a pickled scikit-learn estimator: a pickle is code, so only with `trust`
package.module:name, file.py:name   an estimator or torch module, or a callable without arguments that makes one;
                                    also a class of either
torchvision:NAME, timm:NAME         an image model of these libraries, with weights from a file
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
from pathlib import Path
from types import ModuleType
from typing import Any

from hitl.errors import BadInput, BadSettings
from hitl.models.predictors.estimators import fitted
from hitl.models.predictors.inputs import Kind, file_digest
from hitl.models.predictors.predictor import Predictor, required

PICKLES = (".joblib", ".pkl", ".pickle")
WEIGHTS = (".pt", ".pth", ".safetensors", ".ckpt", ".bin")


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """What is said of the model.

    Attributes:
        name: see the module.
        trust: whether a pickle may run its code.
        classes: names of the outputs, in order; None: the model's own.
        weights: file of tensors for a torch module.
        transforms: for images, torchvision weights that state them, or module:callable that makes them.
        probabilities: whether a torch module answers probabilities rather than logits.
        device: of a torch module.
    """

    name: str
    trust: bool = False
    classes: tuple[str, ...] | None = None
    weights: Path | None = None
    transforms: str | None = None
    probabilities: bool = False
    device: str = "auto"


@dataclass(frozen=True, slots=True)
class Found:
    """A model before it is made ready: the object, what is hashed of it, transforms and classes that came with it."""

    model: Any
    digest: str
    transforms: Any = None
    classes: tuple[str, ...] | None = None


def find(settings: ModelSettings) -> Found:
    """The model that is named. Raises BadSettings, BadInput or MissingExtra, saying what was expected instead."""
    from hitl.models.predictors import networks

    scheme, _, rest = settings.name.partition(":")
    if scheme in ("torchvision", "timm"):
        if settings.weights is None:
            raise BadSettings(f"--model {settings.name}: untrained; name a file with --weights (nothing is downloaded)")
        if scheme == "torchvision":
            stated = None if settings.transforms and ":" in settings.transforms else settings.transforms
            model, transforms, names = networks.torchvision_model(rest, settings.classes, stated)
        else:
            model, transforms, names = networks.timm_model(rest, settings.classes)
        return Found(model, settings.name, transforms, tuple(names))
    if Path(settings.name).suffix.lower() in PICKLES:
        return _from_pickle(Path(settings.name), settings.trust)
    if Path(settings.name).suffix.lower() in WEIGHTS:
        raise BadSettings(
            f"--model {settings.name}: weights alone are no model; name what makes it: "
            f"--model module:callable --weights {settings.name}"
        )
    thing, source = named(settings.name, "--model")
    digest = settings.name + ("" if source is None else file_digest(source))
    return Found(thing if hasattr(thing, "predict_proba") and not isinstance(thing, type) else _made(thing), digest)


def ready(settings: ModelSettings, found: Found, kind: Kind) -> tuple[Predictor, str]:
    """A predictor of the model and a digest of all that its answers depend on."""
    if not is_module(found.model):
        if kind == "image":
            raise BadSettings("--image: a scikit-learn estimator sees numbers or text; expected a torch model")
        if settings.weights is not None:
            raise BadSettings("--weights: a scikit-learn estimator is its own file; expected a torch model")
        return fitted(found.model, settings.classes), f"{found.digest} {estimator_digest(found.model)}"
    from hitl.models.predictors import networks

    classes = found.classes or settings.classes
    if classes is None:
        raise BadSettings("--classes: a torch model does not name its outputs; name them in order")
    transforms = found.transforms
    if settings.transforms and ":" in settings.transforms:
        transforms = _made(named(settings.transforms, "--transforms")[0])
    elif settings.transforms and transforms is None:
        transforms = _stated_transforms(settings.transforms)
    predictor = networks.network(
        found.model,
        classes,
        weights=settings.weights,
        device=settings.device,
        logits=not settings.probabilities,
        transform=transforms,
    )
    place = (settings.transforms or "").rpartition(":")[0]
    transformed = _WHERE.sub("", str(predictor.transform)), source_digest(place) if place else None
    state = networks.state_digest(predictor.module)
    return predictor, f"{found.digest} {state} {settings.probabilities} {transformed}"


_WHERE = re.compile(r" at 0x[0-9a-fA-F]+")
"""Where an object is in memory, as Python prints it: another place in each process."""


def maker(found: Found) -> Callable[[], Any]:
    """A function that gives the estimator anew, unfitted: nothing it was fitted on before is left in it."""
    base = required("sklearn.base", "--folds", "hitl-toolkit[sklearn]")
    if is_module(found.model):
        raise BadSettings("--folds: trains scikit-learn estimators; a torch model is trained by you, fold by fold")
    try:
        base.clone(found.model)
    except TypeError as error:
        raise BadSettings(f"--folds: the model cannot be made anew: {' '.join(str(error).split())[:200]}") from None
    return lambda: base.clone(found.model)


def is_module(model: Any) -> bool:
    """Whether this is a torch module; torch is not loaded to find out."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(model, torch.nn.Module)


def estimator_digest(estimator: Any) -> str:
    """A digest of an estimator with all it has learned; of its class alone where it cannot be pickled."""
    joblib = required("joblib", "a scikit-learn model", "hitl-toolkit[sklearn]")
    try:
        return str(joblib.hash(estimator))
    except Exception:  # a lambda in it, say: pickle raises all sorts
        return type(estimator).__qualname__


def _from_pickle(path: Path, trust: bool) -> Found:
    if not path.is_file():
        raise BadSettings(f"--model {path}: no such file")
    if not trust:
        raise BadSettings(
            f"--model {path}: a pickle is a program that runs when it is read; if you know who made it, add --trust"
        )
    joblib = required("joblib", "a .joblib or .pkl model", "hitl-toolkit[sklearn]")
    _see_working_folder()
    try:
        return Found(joblib.load(path), file_digest(path))
    except Exception as error:  # a pickle may raise anything
        raise BadInput(f"{path}: cannot be read as a pickled model: {type(error).__name__}: {error}") from error


def named(name: str, flag: str) -> tuple[Any, Path | None]:
    """What module:attribute names, and the file it is written in."""
    place, colon, attribute = name.rpartition(":")
    if not colon or not place or not attribute:
        raise BadSettings(
            f"{flag} {name!r}: expected a file ({', '.join(PICKLES)}), package.module:callable or file.py:callable, "
            "torchvision:NAME or timm:NAME"
        )
    module = _module(place, flag)
    try:
        thing: Any = module
        for part in attribute.split("."):
            thing = getattr(thing, part)
    except AttributeError:
        raise BadSettings(f"{flag} {name!r}: {place} has no {attribute!r}") from None
    source = getattr(module, "__file__", None)
    return thing, Path(source) if source and Path(source).is_file() else None


def source_file(place: str) -> Path | None:
    """The file that the code of a module (`package.module`, `file.py`) is written in; None where it is not found."""
    _see_working_folder()
    try:
        origin = place if place.endswith(".py") else getattr(importlib.util.find_spec(place), "origin", None)
    except Exception:  # of the packages around it, which are user code
        return None
    return Path(origin) if origin and Path(origin).is_file() else None


def source_digest(place: str) -> str | None:
    """A digest of that file, as it was when this process loaded it, if it has; None where it is not found."""
    source = source_file(place)
    return _loaded.get(place) or (None if source is None else file_digest(source))


_loaded: dict[str, str] = {}
"""Digests of the modules that this process has loaded: it goes on with their code when the files change."""


def _module(place: str, flag: str) -> ModuleType:
    _see_working_folder()
    try:
        if not place.endswith(".py"):
            source = source_file(place)
            found = importlib.import_module(place)
            if source is not None:
                _loaded.setdefault(place, file_digest(source))
            return found
        if not Path(place).is_file():
            raise BadSettings(f"{flag} {place}: no such file")
        name = f"hitl_model_{hashlib.sha256(str(Path(place).resolve()).encode()).hexdigest()[:12]}"
        spec = importlib.util.spec_from_file_location(name, place)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        return module
    except BadSettings:
        raise
    except Exception as error:  # user code
        raise BadSettings(f"{flag} {place}: cannot be imported: {type(error).__name__}: {error}") from error


def _see_working_folder() -> None:
    """Modules beside the user are found, as `python -m` finds them."""
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)


def _made(thing: Any) -> Any:
    """The thing itself, or what it makes when it is a class or function without arguments."""
    if is_module(thing) or not (inspect.isclass(thing) or inspect.isroutine(thing)):
        return thing
    try:
        return thing()
    except Exception as error:  # user code
        raise BadSettings(f"{getattr(thing, '__qualname__', thing)}(): {type(error).__name__}: {error}") from error


def _stated_transforms(name: str) -> Any:
    models = required("torchvision.models", "--transforms", "hitl-toolkit[vision]")
    try:
        return models.get_weight(name).transforms()
    except ValueError as error:
        raise BadSettings(f"--transforms {name}: {error}; or name module:callable") from None
