"""Consensus of segmentation masks: a Potts field over the pixels, and confusion rows with Dirichlet posteriors.

    p(z) ∝ prod_n share[b_n, z_n]  exp( sum_{n ~ m} strength [z_n = z_m] )
    l_nk | z_n = j ~ Cat(pi[k, b_n, j])                  pi[k, b, j] ~ Dir(a_j)
    score(strength) = sum over folds of annotators of ln p(their labels | labels of all others, strength)

z_n is the true class of pixel n, l_nk its label by annotator k, and b_n its breadth, broad or thin (see
`label_patterns`). n ~ m are pixels beside, above or below each other. With `breadth` 1 all pixels are broad, and the
model is `network-ibcc` by mean field on the grid, for many millions of pixels. With strength 0 as well, it is VB-IBCC
of pixels with class shares at their mode.

By default the strength is the one with the best score on a sample of the images. Each fold of annotators is held out in
turn. Class probabilities of the pixels are computed from the labels of all other annotators and the field. From these,
the confusion rows of the held-out annotators are estimated, and then the log probability of their labels. Fields on
other graphs use a pseudo-likelihood in place of this score. It would fail here: an annotator's errors are adjacent, so
that a wrong label is predicted by its neighbors. This score is not misled, because other annotators do not share these
errors.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
import numpy.typing as npt

from hitl.annotations import Floats, Name, Names
from hitl.consensus import Fit
from hitl.errors import BadAnnotations
from hitl.evidence import Evidence
from hitl.kinds.label_patterns import PIXEL_KINDS, DrawnMasks, LabelPatterns
from hitl.kinds.mask_field import PixelField, Singles
from hitl.models.annotators import confusion
from hitl.models.annotators.dirichlet_confusion import DirichletConfusion
from hitl.models.inference import em
from hitl.models.numerics import kernels
from hitl.models.numerics.checks import at_least_0, check_settings, require_between
from hitl.models.numerics.votes import voted

METHOD = "mask-consensus"

STRENGTHS = (0.0, 0.5, 1.0, 2.0, 4.0)
"""Strengths to try, in order. The consensus changes little between one and the next."""

FOLDS = 5
"""Number of folds; annotators of one fold are held out together."""

SWEEPS_HELD_OUT = 30
"""Maximum number of half steps for each fold. They start at the votes of the annotators who are not held out."""

SAMPLE = 2**20
"""Approximate number of pixels in the sample of images on which strengths are tried."""

Result = em.EMResult[PixelField, DirichletConfusion]


@dataclass(frozen=True, eq=False)
class ImageMasks:
    """Consensus of masks of I images.

    Attributes:
        classes: names of the J classes.
        shares: (2, J) prior probabilities of the classes for broad and for thin pixels, without their neighbors.
        strength: log odds that each neighbor of a class adds to this class.
        fit: information about the fit.
        field: the field over the pixels, with their class probabilities.
    """

    classes: Names
    shares: Floats
    strength: float
    fit: Fit
    field: PixelField

    def __len__(self) -> int:
        return len(self.field.patterns.height_i)

    def probabilities(self, image: int) -> Singles:
        """Return the (H, W, J) class probabilities of an image as a view. They sum to 1 over the classes."""
        patterns = self.field.patterns
        shape = (len(self.classes), patterns.height_i[image] + 2, patterns.width_i[image] + 2)
        planes = self.field.q[patterns.belief_i[image] : patterns.belief_i[image + 1]].reshape(shape)
        return planes[:, 1:-1, 1:-1].transpose(1, 2, 0)

    def mask(self, image: int) -> npt.NDArray[np.int16]:
        """Return (H, W) codes of the most probable classes of an image; ties go to the first class."""
        codes: npt.NDArray[np.int16] = self.probabilities(image).argmax(axis=2).astype(np.int16)
        return codes


@dataclass(frozen=True, slots=True)
class MaskConsensus:
    """Combine the masks that several annotators drew.

    Attributes:
        strength: log odds that each neighbor of a class adds to this class, >= 0. None: the strength that predicts
            held-out annotators best.
        breadth: side, in pixels, of the square of equal patterns in which a pixel must lie to be broad, in 1 .. 255.
            With 1, all pixels are broad.
        diagonal, off: pseudo-counts of the right label and of each wrong label in a confusion row, > 0. They are the
            mode of the hyperprior.
        share_smoothing: pseudo-pixels of each class, > 0.
        tolerance: gain of the objective in one iteration, in nats per pixel, below which iterations stop, > 0.
        max_iterations: maximum number of iterations.

    Example:
        >>> import numpy as np
        >>> from hitl.kinds.label_patterns import DrawnMasks
        >>> from hitl.kinds.mask_consensus import MaskConsensus
        >>> drawn = np.zeros((3, 8, 8), dtype=np.int8)
        >>> drawn[:2, 2:6, 2:6] = 1
        >>> int(MaskConsensus().fit([DrawnMasks(drawn, ("ann", "bob", "eve"))]).mask(0).sum())
        16
    """

    strength: float | None = None
    breadth: int = 5
    diagonal: float = 2.0
    off: float = 1.0
    share_smoothing: float = 1.0
    tolerance: float = 1e-5
    max_iterations: int = 100

    def __post_init__(self) -> None:
        check_settings(self, strength=at_least_0)
        require_between("breadth", self.breadth, 0, 256)

    def fit(self, images: Sequence[DrawnMasks], classes: Sequence[Name] = ("background", "object")) -> ImageMasks:
        """Fit all images together. Annotators with the same name are the same.

        Raise BadAnnotations without images, with fewer than 2 classes, or for labels that are not codes of `classes`.
        """
        began, names = time.perf_counter(), tuple(classes)
        if not images or len(names) < 2:
            raise BadAnnotations(f"expected images and at least 2 classes, got {len(images)} and {len(names)}")
        strength = self._choose_strength(images, names) if self.strength is None else self.strength
        patterns = LabelPatterns.build(images, names, self.breadth)
        result = self._fit_strength(patterns, strength)
        field = result.prior
        if not field.strength:
            field = replace(field, q=np.zeros(patterns.belief_i[-1], dtype=np.float32))
        field.judged(field.own_nj, kernels.messages(patterns.annotations, result.annotators.log_pi_klj), keep=True)
        seconds = time.perf_counter() - began
        fit = Fit(METHOD, asdict(self), result.objective, result.converged, seconds)
        return ImageMasks(names, field.share_bj, strength, fit, field)

    def _choose_strength(self, images: Sequence[DrawnMasks], names: Names) -> float:
        """Return the strength with the best score. Stop trying at the first one that is worse than the best before."""
        number = int(np.ceil(SAMPLE / np.mean([image.labels[0].size for image in images])))
        if number < len(images):  # evenly spaced
            images = [images[int(i)] for i in np.linspace(0, len(images) - 1, number).round()]
        patterns = LabelPatterns.build(images, names, self.breadth)
        best, best_score = STRENGTHS[0], -np.inf
        for strength in STRENGTHS:
            score = _score(self._fit_strength(patterns, strength))
            if score < best_score:
                break
            best, best_score = (strength, score) if score > best_score else (best, best_score)
        return best

    def _fit_strength(self, patterns: LabelPatterns, strength: float) -> Result:
        """Fit with this strength by variational Bayes, starting at the votes."""
        annotations = patterns.annotations
        evidence = Evidence(annotations)
        hyper_jl = confusion.on_the_diagonal(annotations.n_classes, annotations.n_classes, self.diagonal, self.off)
        return em.run_em(
            evidence,
            PixelField.even(patterns, strength, self.share_smoothing),
            DirichletConfusion.unlearned(hyper_jl, annotations.n_annotators),
            voted(evidence) * patterns.pixels_p[:, None],
            # em.run_em counts items, which are patterns here
            tolerance=self.tolerance * len(patterns.code) / len(patterns.pixels_p),
            max_iterations=self.max_iterations,
        )


def _score(result: Result) -> float:
    """Return the log probability, in nats, of each fold's labels given those of the other folds, summed over folds."""
    patterns, annotations = result.prior.patterns, result.prior.patterns.annotations
    field = replace(result.prior, q=np.zeros(patterns.belief_i[-1], dtype=np.float32))
    log_pi_klj, hyper_jl, own_nj = result.annotators.log_pi_klj, result.annotators.hyper_jl, field.own_nj
    folds, score = min(FOLDS, len(patterns.names)), 0.0
    for fold in range(folds):
        held_k = np.tile(np.arange(len(patterns.names)) % folds == fold, PIXEL_KINDS)[:, None, None]
        votes_nj = kernels.messages(annotations, np.where(held_k, 0.0, np.eye(annotations.n_classes)))
        votes_nj += 1 / annotations.n_classes
        votes_nj /= votes_nj.sum(axis=1, keepdims=True)
        field.statistics(votes_nj * patterns.pixels_p[:, None], np.ones(len(votes_nj), dtype=bool))
        rest_nj = kernels.messages(annotations, np.where(held_k, 0.0, log_pi_klj))
        field.settle(rest_nj, SWEEPS_HELD_OUT if field.strength else 1)
        _, believed_nj, _ = field.judged(own_nj + rest_nj, np.zeros_like(own_nj))
        counts_klj = kernels.counts(annotations, believed_nj) + hyper_jl.T
        pi_klj = counts_klj / counts_klj.sum(axis=1, keepdims=True)
        label_nj = kernels.messages(annotations, np.where(held_k, np.log(pi_klj), 0.0))
        score += field.judged(own_nj + rest_nj, label_nj)[2]
    return score
