"""Compile the kernels that many tests need, once, before workers would compile the same side by side.

python -m tests.compile_kernels
"""

from __future__ import annotations

import numpy as np

from hitl.kinds.mask_consensus import DrawnMasks, MaskConsensus
from hitl.models.registry import COMBINERS
from hitl.testing.crowds import with_everything

METHODS = ("default", "vb-ibcc", "pl-em", "one-coin", "sequential-ibcc", "network-ibcc")
SAMPLERS = ("gibbs-ibcc", "ebcc", "dbcc", "edbcc")


def main() -> None:
    evidence, _ = with_everything()
    for name in METHODS:
        COMBINERS.load(name)().fit(evidence)
    for name in SAMPLERS:
        COMBINERS.load(name)(burn_in=2, draws=4).fit(evidence)
    labels = np.random.default_rng(0).integers(2, size=(3, 16, 16), dtype=np.int8)
    MaskConsensus().fit([DrawnMasks(labels, ("a", "b", "c"))], ("sky", "sea"))


if __name__ == "__main__":
    main()
