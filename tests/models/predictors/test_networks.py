"""torch modules: eval mode, outputs as probabilities, weights from files of tensors alone, images, no downloads."""

from __future__ import annotations

import io
import pickle
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hitl.errors import BadInput, BadSettings, MissingExtra
from hitl.models.predictors.inputs import Batch, Inputs

torch = pytest.importorskip("torch")

from hitl.models.predictors import loading, networks  # noqa: E402
from hitl.models.predictors.images import open_image  # noqa: E402
from hitl.models.predictors.networks import network  # noqa: E402


class Linear(torch.nn.Module):  # type: ignore[misc,name-defined]
    """Two numbers to three logits; dropout would show whether it runs in training mode."""

    def __init__(self) -> None:
        super().__init__()
        self.dropout = torch.nn.Dropout(0.5)
        self.layer = torch.nn.Linear(2, 3)
        self.norm = torch.nn.BatchNorm1d(3)

    def forward(self, inputs: Any) -> Any:
        return self.norm(self.layer(self.dropout(inputs)))


def made(seed: int = 0) -> Linear:
    torch.manual_seed(seed)
    return Linear()


def numbers(n: int = 8) -> Batch:
    values = np.random.default_rng(0).normal(size=(n, 2))
    return Batch(0, [f"i{k}" for k in range(n)], "features", values, ("x", "y"), [None] * n)


def by_hand(module: Linear, inputs: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The same in numpy: a linear layer, normalised by the running statistics (0 and 1), then a softmax."""
    weight, bias = (value.detach().numpy().astype(np.float64) for value in (module.layer.weight, module.layer.bias))
    logits = (inputs @ weight.T + bias) / np.sqrt(1 + module.norm.eps)
    shares = np.exp(logits)
    result: np.ndarray[Any, Any] = shares / shares.sum(axis=1, keepdims=True)
    return result


CLASSES = ["a", "b", "c"]


def test_a_module_runs_in_eval_mode_and_its_logits_become_probabilities() -> None:
    module, batch = made(), numbers()
    predictor = network(module, CLASSES, device="cpu")
    np.testing.assert_allclose(predictor.predict(batch), by_hand(module, batch.inputs), atol=1e-6)
    assert not module.norm.training
    assert float(module.norm.num_batches_tracked) == 0


class Answer(torch.nn.Module):  # type: ignore[misc,name-defined]
    """Answers whatever it was given."""

    def __init__(self, said: Any) -> None:
        super().__init__()
        self.said = said

    def forward(self, inputs: Any) -> Any:
        return self.said(inputs)


def test_answers_in_other_forms() -> None:
    batch = numbers(2)
    shares = torch.tensor([[0.2, 0.8], [0.5, 0.5]])
    says = network(Answer(lambda _: shares), ["a", "b"], device="cpu", logits=False)
    np.testing.assert_allclose(says.predict(batch), shares, rtol=1e-6)
    wrapped = types.SimpleNamespace(logits=torch.log(shares) + 5)
    np.testing.assert_allclose(network(Answer(lambda _: wrapped), ["a", "b"]).predict(batch), shares, rtol=1e-5)
    half = network(Answer(lambda _: torch.log(shares).to(torch.bfloat16)), ["a", "b"])
    np.testing.assert_allclose(half.predict(batch), shares, atol=0.01)
    texts = Batch(0, ["a", "b"], "text", ["x", None], ("t",), [None, None])
    lengths = network(Answer(lambda said: torch.tensor([[float(len(t)), 0.0] for t in said])), ["a", "b"])
    values = lengths.predict(texts)
    np.testing.assert_allclose(values[0, 0], 1 / (1 + np.exp(-1)), rtol=1e-6)
    assert np.isnan(values[1]).all()


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (lambda _: torch.zeros(2, 3), r"output of shape \(2, 3\); expected \(2, 2\)"),
        (lambda _: torch.full((2, 2), torch.nan), "answers NaN for item 'i0'"),
        (lambda _: torch.tensor([[0.0, torch.inf], [0.0, 0.0]]), r"row 0 \(item 'i0'\) is not finite"),
        (lambda _: (torch.zeros(2, 2),), "the model returns tuple; expected a tensor"),
        (lambda x: x @ torch.zeros(9, 2), r"items 0 to 1 \(the first is 'i0'\): RuntimeError"),
    ],
)
def test_answers_that_are_none(said: Any, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        network(Answer(said), ["a", "b"], device="cpu").predict(numbers(2))


# -- weights ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["plain", "safetensors"])
def test_weights_come_from_a_file(tmp_path: Path, form: str) -> None:
    trained = made(1)
    state: dict[str, Any] = dict(trained.state_dict())
    path = tmp_path / "w.pt"
    if form == "safetensors":
        safetensors = pytest.importorskip("safetensors.torch")
        path = tmp_path / "w.safetensors"
        safetensors.save_file(state, path)
    else:
        torch.save(state, path)
    predictor = network(made(2), CLASSES, weights=path, device="cpu")
    np.testing.assert_allclose(predictor.predict(numbers()), by_hand(trained, numbers().inputs), atol=1e-6)


class Evil:
    def __reduce__(self) -> Any:
        return (print, ("this must never run",))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: None, "no such file"),
        (lambda path: path.write_bytes(b"x"), "cannot be read as weights alone"),
        (lambda path: torch.save({"w": Evil()}, path), "cannot be read as weights alone"),
        (lambda path: path.write_bytes(pickle.dumps(Evil())), "cannot be read as weights alone"),
        (lambda path: torch.save(made(), path), "cannot be read as weights alone.*not the module"),
        (lambda path: torch.save(torch.zeros(2), path), "contains Tensor; expected the result of module.state_dict"),
        (lambda path: torch.save({"x": torch.zeros(2)}, path), "do not fit the model"),
        (lambda path: torch.save(torch.nn.Linear(2, 4).state_dict(), path), "do not fit the model"),
    ],
)
def test_weights_that_are_none_run_no_code(
    tmp_path: Path, make: Any, message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    make(tmp_path / "w.pt")
    with pytest.raises(BadInput, match=message):
        network(made(), CLASSES, weights=tmp_path / "w.pt")
    assert "never" not in capfd.readouterr().out


def test_a_device_that_is_not_there() -> None:
    with pytest.raises(BadSettings, match="--device cuda:77"):
        network(made(), CLASSES, device="cuda:77")


# -- images ----------------------------------------------------------------------------------------------------


def pictures(folder: Path, colours: dict[str, int], size: int = 40) -> Inputs:
    from PIL import Image

    for name, level in colours.items():
        Image.new("L", (size, size), level).save(folder / f"{name}.png")
    lines = "".join(f"{name},{name}.png\n" for name in colours)
    (folder / "i.csv").write_text(f"item,path\n{lines}")
    return Inputs(folder / "i.csv", image="path")


class Brightness(torch.nn.Module):  # type: ignore[misc,name-defined]
    """Log odds of "bright" are the mean of the picture."""

    def forward(self, images: Any) -> Any:
        mean = images.mean(dim=(1, 2, 3))
        return torch.stack([torch.zeros_like(mean), mean], dim=1)


def as_tensor(image: Any) -> Any:
    return torch.from_numpy(np.asarray(image, dtype=np.float32) / 255).permute(2, 0, 1)


def test_images_are_read_in_colour_and_unreadable_ones_are_silent(tmp_path: Path) -> None:
    inputs = pictures(tmp_path, {"dark": 0, "grey": 51, "white": 255, "bad": 9, "gone": 9})
    (tmp_path / "bad.png").write_bytes((tmp_path / "white.png").read_bytes()[:60])
    (tmp_path / "gone.png").unlink()
    with (tmp_path / "i.csv").open("a") as handle:
        handle.write("none,\n")
    predictor = network(Brightness(), ["dark", "bright"], transform=as_tensor, device="cpu")
    (batch,) = inputs.batches(10)
    values = predictor.predict(batch)
    np.testing.assert_allclose(values[:3, 1], 1 / (1 + np.exp([0, -0.2, -1])), rtol=1e-5)
    assert np.isnan(values[3:]).all()
    assert [path.name for path in predictor.unreadable] == ["bad.png", "gone.png"]


def test_a_batch_of_which_no_image_is_there_is_an_error(tmp_path: Path) -> None:
    inputs = pictures(tmp_path, {"a": 0, "b": 1})
    (batch,) = Inputs(inputs.path, image="path", folder=tmp_path / "elsewhere").batches(10)
    predictor = network(Brightness(), ["dark", "bright"], transform=as_tensor)
    with pytest.raises(BadInput, match="nor any other of the batch; see --image-folder"):
        predictor.predict(batch)
    with pytest.raises(BadSettings, match="has no transforms; name some"):
        network(Brightness(), ["dark", "bright"]).predict(batch)


def test_transforms_that_fail_name_the_image(tmp_path: Path) -> None:
    def crop(image: Any) -> Any:
        raise ValueError("smaller than the crop")

    (batch,) = pictures(tmp_path, {"small": 9}, size=4).batches(10)
    predictor = network(Brightness(), ["dark", "bright"], transform=crop, device="cpu")
    with pytest.raises(BadInput, match=r"small\.png: its transforms fail: ValueError: smaller than the crop"):
        predictor.predict(batch)


def test_a_file_whose_reader_breaks_is_an_image_that_cannot_be_read() -> None:
    """Of a texture (DDS) with an unknown kind of pixels Pillow raises NotImplementedError."""
    from PIL import Image

    kept = io.BytesIO()
    Image.new("RGB", (4, 4)).save(kept, "DDS")
    broken = bytearray(kept.getvalue())
    broken[80:84] = bytes(4)
    with pytest.raises(BadInput, match=r"x\.dds: cannot be read as an image: NotImplementedError"):
        open_image(bytes(broken), "x.dds")


CODE = """
import torch

class Net(torch.nn.Linear):
    @staticmethod
    def transforms(image):
        return image

def net():
    torch.manual_seed(0)
    return Net(2, 2)

def cut(image):
    return image

def make():
    return cut
"""


def test_a_digest_of_all_that_answers_depend_on_is_the_same_in_each_process(tmp_path: Path) -> None:
    """Where a function is in memory is no part of it; whether outputs are probabilities, and the transforms, are."""
    (tmp_path / "net.py").write_text(CODE)
    (tmp_path / "cut.py").write_text(CODE)
    digests, alive = [], []
    for changes in ({}, {}, {"probabilities": True}, {"transforms": f"{tmp_path}/cut.py:make"}):
        settings = loading.ModelSettings(f"{tmp_path}/net.py:net", classes=("a", "b"), device="cpu", **changes)
        predictor, digest = loading.ready(settings, "image")
        alive.append(predictor)
        digests.append(digest)
    (tmp_path / "cut.py").write_text(f"{CODE}#")
    digests.append(loading.ready(settings, "image")[1])
    assert digests[0] == digests[1]
    assert len(set(digests)) == 4


def test_torchvision_by_name_with_the_transforms_of_its_weights(tmp_path: Path) -> None:
    torchvision = pytest.importorskip("torchvision")
    inputs = pictures(tmp_path, {"a": 30, "b": 220}, size=300)
    module, transform, names = networks.library_model("torchvision", "squeezenet1_1", ["cat", "dog", "cow"], None)
    assert names == ("cat", "dog", "cow")
    (batch,) = inputs.batches(10)
    values = network(module, names, transform=transform, device="cpu").predict(batch)
    from PIL import Image

    stated = torchvision.models.SqueezeNet1_1_Weights.DEFAULT.transforms()
    with torch.inference_mode():
        stacked = torch.stack([stated(Image.open(tmp_path / f"{name}.png").convert("RGB")) for name in "ab"])
        plain = torch.softmax(module.eval()(stacked), dim=1)
    np.testing.assert_allclose(values, plain, atol=1e-6)
    _, other, categories = networks.library_model("torchvision", "resnet18", None, "ResNet50_Weights.IMAGENET1K_V2")
    assert len(categories) == 1000
    assert "resize_size=[232]" in str(other)


def test_nothing_is_downloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torchvision")

    def refuse(*arguments: object, **settings: object) -> None:
        raise AssertionError(f"asked for {arguments}")

    monkeypatch.setattr("urllib.request.urlopen", refuse)
    monkeypatch.setattr("socket.socket.connect", refuse)
    for name in ("resnet18", "mobilenet_v3_small", "shufflenet_v2_x0_5"):
        module, _, names = networks.library_model("torchvision", name, ["a", "b"], None)
        assert network(module, names, device="cpu").module is module


def test_timm_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against a stand-in with timm's interface; the library itself is not needed for the tests."""
    asked: list[Any] = []

    def create_model(name: str, *, pretrained: bool, num_classes: int) -> Any:
        asked.append((name, pretrained, num_classes))
        if name == "nothing":
            raise RuntimeError("Unknown model (nothing)")
        return Brightness()

    stand_in: Any = types.ModuleType("timm")
    stand_in.create_model = create_model
    stand_in.data = types.SimpleNamespace(
        resolve_model_data_config=lambda module: {"input_size": (3, 32, 32)},
        create_transform=lambda input_size, is_training: (input_size, is_training),
    )
    monkeypatch.setitem(sys.modules, "timm", stand_in)
    module, transform, names = networks.library_model("timm", "resnet50d", ["x", "y"], None)
    assert (type(module), transform, names) == (Brightness, ((3, 32, 32), False), ("x", "y"))
    assert asked == [("resnet50d", False, 2)]
    with pytest.raises(BadSettings, match="Unknown model"):
        networks.library_model("timm", "nothing", ["x", "y"], None)
    with pytest.raises(BadSettings, match="name the classes"):
        networks.library_model("timm", "resnet50d", None, None)
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(MissingExtra, match="pip install 'timm'"):
        networks.library_model("timm", "resnet50d", ["x", "y"], None)
