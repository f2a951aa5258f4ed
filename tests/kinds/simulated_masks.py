"""Images with blobs, and the masks that five simulated annotators draw of them.

Each kind of noise is a function of the true mask, one annotator's skill and a random generator:

    pixel      each pixel is wrong by chance
    boundary   the boundary is off by the annotator's own bias and by a smooth displacement
    missed     whole blobs are left out; the boundary of the others is off by a little
    invented   blobs are added; the boundary of the others is off by a little
    mixed      blobs missed and invented, and boundaries off
    speckled   as `mixed`, and some pixels wrong
    spammer    as `boundary`, but the last annotator draws blobs that have nothing to do with the image
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import ndimage

Mask = npt.NDArray[np.int8]
Random = np.random.Generator

ANNOTATORS = 5


class Annotator(NamedTuple):
    """skill: in [0, 1]; bias: pixels by which they draw every boundary too far outside."""

    skill: float
    bias: float


def blobs(size: int, number: int, rng: Random) -> Mask:
    """(size, size) ellipses of random size, place and angle: 1 inside, 0 outside."""
    y, x = np.mgrid[:size, :size].astype(np.float32)
    mask = np.zeros((size, size), dtype=np.int8)
    for _ in range(number):
        middle, radii, angle = rng.uniform(0, size, 2), size * rng.uniform(0.02, 0.14, 2), rng.uniform(0, np.pi)
        along = (x - middle[0]) * np.cos(angle) + (y - middle[1]) * np.sin(angle)
        across = (y - middle[1]) * np.cos(angle) - (x - middle[0]) * np.sin(angle)
        mask |= ((along / radii[0]) ** 2 + (across / radii[1]) ** 2 < 1).astype(np.int8)
    return mask


def pixel(truth: Mask, who: Annotator, rng: Random) -> Mask:
    """Between 8 and 30 % of the pixels are wrong."""
    wrong = rng.random(truth.shape) < 0.08 + 0.22 * (1 - who.skill)
    return np.where(wrong, 1 - truth, truth).astype(np.int8)


def shifted(truth: Mask, bias: float, spread: float, rng: Random) -> Mask:
    """The boundary goes outwards by `bias` pixels and a smooth displacement with this standard deviation."""
    if not truth.any():
        return truth
    inside = ndimage.distance_transform_edt(truth) - ndimage.distance_transform_edt(1 - truth)
    rough = ndimage.gaussian_filter(rng.standard_normal(truth.shape), 6)
    return (inside + bias + spread * rough / rough.std() > 0).astype(np.int8)


def boundary(truth: Mask, who: Annotator, rng: Random) -> Mask:
    """The annotator's bias, and a displacement of 1 to 3 pixels."""
    return shifted(truth, who.bias, 3 - 2 * who.skill, rng)


def missed(truth: Mask, who: Annotator, rng: Random) -> Mask:
    """Up to half of the blobs are left out."""
    pieces, number = ndimage.label(truth)
    kept = np.concatenate(([False], rng.random(number) > 0.1 + 0.4 * (1 - who.skill)))
    return shifted(kept[pieces].astype(np.int8), 0, 1, rng)


def invented(truth: Mask, who: Annotator, rng: Random) -> Mask:
    """About as many blobs are added as there are."""
    return shifted(truth | blobs(len(truth), int(rng.poisson(2 + 6 * (1 - who.skill))), rng), 0, 1, rng)


def mixed(truth: Mask, who: Annotator, rng: Random) -> Mask:
    """Blobs missed and invented, boundaries off."""
    return boundary(invented(missed(truth, who, rng), who, rng), who, rng)


def speckled(truth: Mask, who: Annotator, rng: Random) -> Mask:
    """The same, and up to a tenth of the pixels wrong."""
    drawn = mixed(truth, who, rng)
    wrong = rng.random(truth.shape) < 0.1 * (1 - who.skill)
    return np.where(wrong, 1 - drawn, drawn).astype(np.int8)


NOISE: dict[str, Callable[[Mask, Annotator, Random], Mask]] = {
    "pixel": pixel,
    "boundary": boundary,
    "missed": missed,
    "invented": invented,
    "mixed": mixed,
    "speckled": speckled,
    "spammer": boundary,
}


def crowd(kind: str, images: int, size: int, seed: int, annotators: int = ANNOTATORS) -> tuple[list[Mask], list[Mask]]:
    """(size, size) true masks of the images, and (A, size, size) what each annotator drew; the same for all images."""
    rng = np.random.default_rng(seed)
    people = [Annotator(rng.uniform(), rng.normal(0, 2)) for _ in range(annotators)]
    truths, drawn = [], []
    for _ in range(images):
        truth = blobs(size, int(rng.integers(3, 12)), rng)
        masks = [NOISE[kind](truth, who, rng) for who in people]
        if kind == "spammer":
            masks[-1] = blobs(size, 8, rng)
        truths.append(truth)
        drawn.append(np.stack(masks))
    return truths, drawn


def dice(found: npt.NDArray[Any], truth: npt.NDArray[Any]) -> float:
    """2 |A and B| / (|A| + |B|); 1 where both are empty."""
    total = int(np.sum(found != 0)) + int(np.sum(truth != 0))
    return 2 * int(np.sum((found != 0) & (truth != 0))) / total if total else 1.0
