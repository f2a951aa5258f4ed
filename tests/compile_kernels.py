"""Compile the kernels that many tests need, once, before workers would compile the same side by side.

python -m tests.compile_kernels
python -m tests.compile_kernels dbcc    those of the journeys
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from hitl.kinds.mask_consensus import DrawnMasks, MaskConsensus
from hitl.models.methods import COMBINERS
from hitl.testing.crowds import with_everything

METHODS = ("default", "vb-ibcc", "pl-em", "one-coin", "sequential-ibcc", "network-ibcc")
SAMPLERS = ("gibbs-ibcc", "ebcc")
LONG = ("dbcc", "edbcc")
"""Methods whose kernels take as long to compile as those of all others: `make journeys` tests them."""


def long_in_journeys(names: Iterable[str]) -> list[Any]:
    """Parameters of a test of each method (by name or class), of which LONG are journeys."""
    return [pytest.param(name, marks=pytest.mark.journey if name.lower() in LONG else ()) for name in names]


def main(*samplers: str) -> None:
    evidence, _ = with_everything()
    for name in samplers or SAMPLERS:
        COMBINERS.load(name)(burn_in=2, draws=4).fit(evidence)
    if not samplers:
        for name in METHODS:
            COMBINERS.load(name)().fit(evidence)
        labels = np.random.default_rng(0).integers(2, size=(3, 16, 16), dtype=np.int8)
        MaskConsensus().fit([DrawnMasks(labels, ("a", "b", "c"))], ("sky", "sea"))


if __name__ == "__main__":
    main(*sys.argv[1:])
