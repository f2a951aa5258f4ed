"""Image models without their last layer, against the input of that layer as a hook sees it; and which name is what."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hitl.errors import BadInput, BadSettings
from hitl.models.predictors import loading
from hitl.models.predictors.features import embed, places
from hitl.models.predictors.images import Images
from hitl.models.predictors.loading import embedder, embedder_digest

torch = pytest.importorskip("torch")
models = pytest.importorskip("torchvision.models")
image = pytest.importorskip("PIL.Image")

from hitl.models.predictors.networks import without_last_layer  # noqa: E402

MINE = """
import numpy as np
import torch

def means(pictures):
    return [np.asarray(picture, dtype=float).mean(axis=(0, 1)) for picture in pictures]

class Whole(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.factor = torch.nn.Parameter(torch.tensor(2.0))

    def transforms(self, picture):
        return torch.tensor(np.asarray(picture, dtype=np.float32).mean(axis=(0, 1)))

    def forward(self, x):
        return self.factor * x

class Encodes:
    def encode(self, texts):
        return torch.ones(len(texts), 2)

NUMBER = 7
"""


@pytest.fixture
def pictures(tmp_path: Path) -> list[str]:
    rng = np.random.default_rng(0)
    names = [f"{n}.png" for n in range(5)]
    for name in names:
        image.fromarray(rng.integers(0, 255, (40, 50, 3), dtype=np.uint8)).save(tmp_path / name)
    return names


def embedded(folder: Path, names: list[str], model: str, weights: str | None = None, **more: Any) -> Any:
    found = Images(folder)
    return embed(places(names, names, found.stamp), lambda: embedder(model, found.open, weights, "cpu"), **more)


@pytest.mark.parametrize(("name", "width"), [("resnet18", 512), ("mobilenet_v3_small", 1024)])
def test_features_are_what_the_last_layer_sees(tmp_path: Path, pictures: list[str], name: str, width: int) -> None:
    torch.manual_seed(3)
    module = models.get_model(name, weights=None, num_classes=7).eval()
    torch.save(module.state_dict(), tmp_path / "w.pt")
    found, left_out = embedded(tmp_path, pictures, f"torchvision:{name}", str(tmp_path / "w.pt"), batch_size=2)
    assert left_out == {}
    seen: list[Any] = []
    last = [part for part in module.modules() if isinstance(part, torch.nn.Linear)][-1]
    last.register_forward_hook(lambda layer, inputs, said: seen.append(inputs[0]))
    transform = models.get_model_weights(name).DEFAULT.transforms()
    with torch.inference_mode():
        module(torch.stack([transform(image.open(tmp_path / one).convert("RGB")) for one in pictures]))
    assert found.shape == (5, width)
    np.testing.assert_allclose(found, seen[0].numpy(), atol=1e-5)


@pytest.mark.parametrize("name", ["alexnet", "googlenet", "vit_b_16"])
def test_the_last_layer_is_the_one_that_names_classes(name: str) -> None:
    more = {"init_weights": False} if name == "googlenet" else {}
    with torch.device("meta"):
        module = models.get_model(name, weights=None, num_classes=11, **more)
    linear = {name: part for name, part in module.named_modules() if isinstance(part, torch.nn.Linear)}
    last = without_last_layer(module)
    assert linear[last].out_features == 11
    assert isinstance(module.get_submodule(last), torch.nn.Identity)


def test_random_weights_are_always_the_same_and_disturb_no_other_chance(tmp_path: Path, pictures: list[str]) -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    first, _ = embedded(tmp_path, pictures, "torchvision:resnet18", "random")
    assert torch.equal(torch.rand(3), expected)
    second, _ = embedded(tmp_path, pictures, "torchvision:resnet18", "random")
    np.testing.assert_array_equal(first, second)
    assert first.std() > 0


def test_an_image_that_changed_is_seen_again(tmp_path: Path, pictures: list[str]) -> None:
    found = Images(tmp_path)
    before = places(pictures, pictures, found.stamp).digests
    image.new("RGB", (10, 10)).save(tmp_path / pictures[2])
    after = places(pictures, pictures, found.stamp).digests
    assert [a != b for a, b in zip(before, after, strict=True)] == [False, False, True, False, False]


def test_the_code_of_a_user_sees_images_or_is_a_module(tmp_path: Path, pictures: list[str]) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    expected = [np.asarray(image.open(tmp_path / name), dtype=float).mean(axis=(0, 1)) for name in pictures]
    found, _ = embedded(tmp_path, pictures, f"{tmp_path}/mine.py:means")
    np.testing.assert_allclose(found, expected)
    found, _ = embedded(tmp_path, pictures, f"{tmp_path}/mine.py:Whole")
    np.testing.assert_allclose(found, 2 * np.array(expected), rtol=1e-6)
    torch.save({"factor": torch.tensor(3.0)}, tmp_path / "w.pt")
    found, _ = embedded(tmp_path, pictures, f"{tmp_path}/mine.py:Whole", str(tmp_path / "w.pt"))
    np.testing.assert_allclose(found, 3 * np.array(expected), rtol=1e-6)
    said = embedder(f"{tmp_path}/mine.py:Encodes").run(["a", "b"])
    assert said.tolist() == [[1.0, 1.0], [1.0, 1.0]]


@pytest.mark.parametrize(
    ("model", "kind", "weights", "message"),
    [
        (
            "torchvision:resnet18",
            "image",
            None,
            "torchvision:resnet18: sees images, and needs weights: DEFAULT, a file, or random",
        ),
        (
            "torchvision:resnet18",
            "image",
            "absent.pt",
            "absent.pt: no such file; expected one, IMAGENET1K_V1, .* or random",
        ),
        ("torchvision:resnet17", "image", "random", "resnet17: no such image classification model"),
        ("torchvision:resnet18", "text", "random", "torchvision:resnet18: sees images"),
        ("{folder}/mine.py:NUMBER", "text", None, "int; expected a function of a list"),
        ("{folder}/mine.py:absent", "text", None, "mine.py has no 'absent'"),
        ("{folder}/mine.py:means", "text", "w.pt", "function; expected a function of a list, without weights"),
        ("nowhere", "text", None, "expected a file"),
    ],
)
def test_a_model_that_cannot_be_used_says_why(
    tmp_path: Path, model: str, kind: Any, weights: str | None, message: str
) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    read = Images(tmp_path).open if kind == "image" else None
    with pytest.raises(BadSettings, match=message):
        embedder(model.format(folder=tmp_path), read, weights, "cpu")


def test_the_identity_of_an_embedder_is_that_of_its_code_and_weights(tmp_path: Path) -> None:
    mine, weights = tmp_path / "mine.py", tmp_path / "w.pt"
    mine.write_text(MINE)
    weights.write_bytes(b"1")
    model = f"{mine}:Whole"
    said = [embedder_digest(model, str(weights)), embedder_digest(model)]
    said += [embedder_digest("torchvision:resnet18", name) for name in ("random", "DEFAULT")]
    mine.write_text(MINE + "#")
    said.append(embedder_digest(model, str(weights)))
    weights.write_bytes(b"2")
    said.append(embedder_digest(model, str(weights)))
    assert len(set(said)) == len(said)
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    (moved / "mine.py").write_text(MINE + "#")
    assert embedder_digest(f"{moved}/mine.py:Whole", str(weights)) == said[-1]
    assert embedder_digest("json:loads") != embedder_digest("json:dumps")
    assert embedder_digest("nowhere.at.all:model")


def test_weights_by_name_come_from_the_loader_of_torchvision(
    tmp_path: Path, pictures: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = models.resnet18(weights=None).eval()
    asked: list[str] = []

    def loaded(address: str, **more: Any) -> Any:
        asked.append(address)
        if len(asked) > 1:
            raise OSError("no route to host")
        return module.state_dict()

    monkeypatch.setattr("torchvision.models._api.load_state_dict_from_url", loaded)
    found, _ = embedded(tmp_path, pictures, "torchvision:resnet18", "IMAGENET1K_V1")
    torch.save(module.state_dict(), tmp_path / "w.pt")
    np.testing.assert_array_equal(
        found, embedded(tmp_path, pictures, "torchvision:resnet18", str(tmp_path / "w.pt"))[0]
    )
    assert asked == [models.ResNet18_Weights.IMAGENET1K_V1.url]
    with pytest.raises(BadInput, match="weights DEFAULT: cannot be loaded from torchvision: no route to host"):
        embedded(tmp_path, pictures, "torchvision:resnet18", "DEFAULT")


@pytest.fixture
def beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The code of a module beside the user, in a process that does not look for modules there: the command `hitl`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place not in ("", str(tmp_path))])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(loading, "_loaded_digests", {})
    monkeypatch.delitem(sys.modules, "beside", raising=False)
    (tmp_path / "beside.py").write_text("def encode(texts):\n    return [[1.0] for _ in texts]\n")
    return tmp_path / "beside.py"


def test_a_module_that_was_edited_while_it_is_loaded_keeps_the_identity_of_what_is_loaded(beside: Path) -> None:
    before = embedder_digest("beside:encode")
    assert embedder("beside:encode").run(["a"]) == [[1.0]]
    assert embedder_digest("beside:encode") == before
    beside.write_text("def encode(texts):\n    return [[2.0] for _ in texts]\n")
    assert embedder("beside:encode").run(["a"]) == [[1.0]], "until the process begins anew"
    assert embedder_digest("beside:encode") == before


def test_a_package_that_cannot_be_imported_is_said_to_be(beside: Path) -> None:
    package = beside.parent / "broken_package"
    package.mkdir()
    (package / "__init__.py").write_text("1 / 0\n")
    assert embedder_digest("broken_package.part:encode") == embedder_digest("broken_package.part:encode")
    with pytest.raises(BadSettings, match=r"broken_package.part: cannot be imported: ZeroDivisionError"):
        embedder("broken_package.part:encode")
