"""Consensus of segmentation masks: a Potts field over the pixels, and confusion rows with Dirichlet posteriors.

    p(z) ∝ prod_n share[b_n, z_n]  exp( sum_{n ~ m} strength [z_n = z_m] )
    l_nk | z_n = j ~ Cat(pi[k, b_n, j])                  pi[k, b, j] ~ Dir(a_j)

n ~ m are neighbors up, down, left and right; b_n is the breadth of pixel n, broad or thin (see `label_patterns`). With
`breadth` 1 there are no thin pixels, and the model is `network-ibcc` with its mean field on the grid, for many millions
of pixels; with strength 0 too it is VB-IBCC of pixels with class shares at their mode. The strength is chosen by how
well it predicts held-out annotators, on a sample of the images (see `held_out_strength`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
import numpy.typing as npt

from hitl.annotations import Floats, Name, Names
from hitl.consensus import AnnotatorReport, Fit
from hitl.errors import BadAnnotations
from hitl.evidence import Evidence
from hitl.kinds import held_out_strength
from hitl.kinds.label_patterns import BREADTHS, DrawnMasks, LabelPatterns
from hitl.kinds.pixel_field import PixelField, Singles
from hitl.models.annotators import confusion
from hitl.models.annotators.dirichlet_confusion import DirichletConfusion
from hitl.models.inference import em
from hitl.models.numerics import kernels
from hitl.models.numerics.checks import require_between, require_counts, require_positive
from hitl.models.numerics.votes import voted

METHOD = "mask-consensus"

Found = em.EMResult[PixelField, DirichletConfusion]


@dataclass(frozen=True, eq=False)
class ImageMasks:
    """Consensus of masks of I images.

    Attributes:
        classes: J names, the background first.
        annotators: report of each annotator, over all pixels.
        thin_annotators: report over thin pixels alone: how well they draw boundaries.
        shares: (2, J) class shares of broad and of thin pixels without neighbors.
        strength: log odds that a neighbor of the same class adds.
        held_out: the tried strengths, with the log probability of held-out labels, in nats per label.
        fit: information about the fit.
    """

    classes: Names
    annotators: AnnotatorReport
    thin_annotators: AnnotatorReport
    shares: Floats
    strength: float
    held_out: dict[float, float]
    fit: Fit
    field: PixelField

    def __len__(self) -> int:
        return len(self.field.patterns.height_i)

    def probabilities(self, image: int) -> Singles:
        """Return (H, W, J) probability of each class, a view; sums to 1 over the classes."""
        patterns = self.field.patterns
        shape = (len(self.classes), patterns.height_i[image] + 2, patterns.width_i[image] + 2)
        planes = self.field.q[patterns.belief_i[image] : patterns.belief_i[image + 1]].reshape(shape)
        return planes[:, 1:-1, 1:-1].transpose(1, 2, 0)

    def mask(self, image: int) -> npt.NDArray[np.int16]:
        """Return (H, W) code of the most probable class; ties go to the first."""
        found: npt.NDArray[np.int16] = self.probabilities(image).argmax(axis=2).astype(np.int16)
        return found

    def confidence(self, image: int) -> Singles:
        """Return (H, W) probability of the most probable class."""
        highest: Singles = self.probabilities(image).max(axis=2)
        return highest

    def uncertainty(self, image: int) -> Singles:
        """Return (H, W) entropy of the classes, in nats; from 0 to ln J."""
        p = self.probabilities(image)
        entropy: Singles = -(p * np.log(np.maximum(p, np.finfo(np.float32).tiny))).sum(axis=2)
        return entropy


@dataclass(frozen=True, slots=True)
class MaskConsensus:
    """Combine the masks that several annotators drew.

    Attributes:
        strength: log odds that a neighbor of the same class adds, >= 0; None: chosen by held-out annotators.
        breadth: side of the square of equal labels, in pixels, that makes its pixels broad, in 1 .. 255; 1: all are.
        diagonal, off: pseudo-counts of a right and of each other label in a confusion row, > 0, the mode of their
            hyperprior.
        share_smoothing: pseudo-pixels of each class, > 0.
        tolerance: iterations stop when one gains less, in nats per pixel.

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
        require_positive(self, "diagonal", "off", "share_smoothing", "tolerance")
        require_counts(self, "max_iterations", "breadth")
        require_between("breadth", self.breadth, 0, 256)
        if self.strength:
            require_between("strength", self.strength, 0)

    def fit(self, images: Sequence[DrawnMasks], classes: Sequence[Name] = ("background", "object")) -> ImageMasks:
        """Fit all images together; annotators with the same name are the same. Raise BadAnnotations."""
        began, names = time.perf_counter(), tuple(classes)
        if not images or len(names) < 2:
            raise BadAnnotations(f"expected images and at least 2 classes, got {len(images)} and {len(names)}")
        tried = self._tried(images, names) if self.strength is None else {}
        strength = max(tried, key=lambda one: tried[one]) if self.strength is None else self.strength
        patterns = LabelPatterns.of(images, names, self.breadth)
        found = self._fitted(patterns, strength)
        field = _judged(found)
        seconds = time.perf_counter() - began
        fit = Fit(METHOD, asdict(self), found.objective, found.converged, seconds)
        return ImageMasks(names, *self._reports(found), found.prior.share_bj, strength, tried, fit, field)

    def _tried(self, images: Sequence[DrawnMasks], names: Names) -> dict[float, float]:
        """Return the score of each strength, in nats per label, up to the first that is lower."""
        pixels_i = np.array([image.labels[0].size for image in images])
        patterns = LabelPatterns.of([images[i] for i in held_out_strength.sample(pixels_i)], names, self.breadth)
        labels = float(patterns.annotations.labels_per_item @ patterns.pixels_p)
        tried: dict[float, float] = {}
        for strength in held_out_strength.STRENGTHS:
            found = self._fitted(patterns, strength)
            log_pi_klj, hyper_jl = found.annotators.log_pi_klj, found.annotators.hyper_jl
            tried[strength] = held_out_strength.score(found.prior, log_pi_klj, hyper_jl) / max(1.0, labels)
            if tried[strength] < max(tried.values()):
                break
        return tried

    def _fitted(self, patterns: LabelPatterns, strength: float) -> Found:
        """Run variational Bayes from the votes."""
        annotations = patterns.annotations
        evidence = Evidence(annotations)
        classes = annotations.n_classes
        hyper_jl = confusion.on_the_diagonal(classes, classes, self.diagonal, self.off)
        return em.run_em(
            evidence,
            PixelField.even(patterns, strength, self.share_smoothing),
            DirichletConfusion.unlearned(hyper_jl, annotations.n_annotators),
            voted(evidence) * patterns.pixels_p[:, None],
            # em.run_em counts items, which are patterns here
            tolerance=self.tolerance * patterns.n_pixels / len(patterns.pixels_p),
            max_iterations=self.max_iterations,
        )

    def _reports(self, found: Found) -> tuple[AnnotatorReport, AnnotatorReport]:
        """Report the annotators over all pixels, and over thin ones."""
        patterns, prior_jl = found.prior.patterns, found.annotators.prior_jl
        classes, names = patterns.annotations.n_classes, len(patterns.names)
        ones_nj = np.repeat(patterns.pixels_p[:, None], classes, axis=1)
        labels_klj = kernels.counts(patterns.annotations, ones_nj)
        counts, labels = found.annotators.counts_klj, labels_klj.sum(axis=1)[:, 0]
        believed_bj = found.statistics.believed_bj + self.share_smoothing

        def report(counts_klj: Floats, labels_k: Floats, believed_j: Floats) -> AnnotatorReport:
            alpha_kjl = np.ascontiguousarray((counts_klj + prior_jl.T).transpose(0, 2, 1))
            return AnnotatorReport(
                names=patterns.names,
                classes=patterns.annotations.classes,
                options=patterns.annotations.options,
                concentration=alpha_kjl,
                confusion=alpha_kjl / alpha_kjl.sum(axis=2, keepdims=True),
                labels=labels_k.astype(np.int64),
                shares=believed_j / believed_j.sum(),
                prior=prior_jl,
            )

        return (
            report(patterns.over_breadths(counts), labels.reshape(BREADTHS, -1).sum(axis=0), believed_bj.sum(axis=0)),
            report(counts[names:], labels[names:], believed_bj[1]),
        )


def _judged(found: Found) -> PixelField:
    """Return the field with its half-step state replaced by the beliefs of all pixels."""
    field, patterns = found.prior, found.prior.patterns
    message_nj = kernels.messages(patterns.annotations, found.annotators.log_pi_klj)
    own_nj = np.log(field.share_bj)[patterns.thin_p]
    if not field.strength:
        field = replace(field, q=np.zeros(patterns.belief_i[-1], dtype=np.float32))
    field.judged(own_nj, message_nj, keep=True)
    return field
