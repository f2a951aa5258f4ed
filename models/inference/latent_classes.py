"""Gaussian-process state stored in a consensus, for predicting other items and for resuming a fit.

    feature mean, feature scale    (D,)            how features are standardized
    points                         (R, D)          standardized features of the items with sites
    point rows                     (R,)            index of each point's item in the consensus, or -1
    kernel                         (Q, 1 + lengths) logarithms of scale and lengths, for each question
    sites                          (Q, 2, R)       nu and tau
    answers                        (Q, K, L', 2)   log probability of each answer, per annotator of the consensus
    latent mean, latent variance   (Q, N)          of f, for all items
    learned from                   ()              labels and ground truth when the kernels were learned

A question asks whether an item is of class j or of another class. Two classes make one question, about class 1. An
annotator's answer to a question is class j, another class, or an option that is no class. Expected confusion rows are
collapsed: the row of "another class" is the mean of the rows of the other classes. The beliefs of the questions are
normalized to sum to 1 (Rodrigues 2014, section 4.2, has one task per genre).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from hitl.annotations import Annotations, Floats, Names
from hitl.consensus import Consensus
from hitl.errors import BadEvidence
from hitl.evidence import Evidence
from hitl.models.inference import expectation_propagation as ep
from hitl.models.inference.warm_start import usable
from hitl.models.numerics.clamping import clamp
from hitl.models.numerics.covariance import SquaredExponential
from hitl.models.priors.gp import GaussianProcess, Process

GROWTH = 1.5
"""Factor by which the number of labels must grow before a warm start learns the kernels again."""

LATENT_MEAN, LATENT_VARIANCE = "latent mean", "latent variance"

LEAST = 1e-300
"""Smallest belief of a question."""


@dataclass(frozen=True, eq=False)
class Scaling:
    """Standardization of features: (D,) means and standard deviations, 1 where a feature is constant."""

    mean_d: Floats
    scale_d: Floats

    @classmethod
    def of(cls, features: Floats) -> Scaling:
        """Compute the scaling of these items; rows of NaN are items without features."""
        present = features[~np.isnan(features).any(axis=1)]
        if not len(present):
            return cls(np.zeros(features.shape[1]), np.ones(features.shape[1]))
        scale_d = present.std(axis=0)
        constant = scale_d <= 1e-12 * np.abs(present).max(axis=0)
        return cls(present.mean(axis=0), np.where(constant, 1.0, scale_d))

    def __call__(self, features: Floats) -> Floats:
        """Return (N, D) standardized features."""
        if features.shape[1] != len(self.mean_d):
            raise BadEvidence(
                f"features: found {features.shape[1]} columns; the consensus was estimated with {len(self.mean_d)}"
            )
        return np.asarray((features - self.mean_d) / self.scale_d)


@dataclass(frozen=True, eq=False)
class LatentClasses:
    """Processes of all questions; see the module for the arrays.

    `rows` (R,): index of each point's item in the present table, or -1. `annotators`: K names, to which answers belong.
    """

    scaling: Scaling
    x_rd: Floats
    rows: npt.NDArray[np.intp]
    theta_qp: Floats
    sites_qxr: Floats
    answers_qklj: Floats
    learned_from: float
    annotators: Names = ()

    @classmethod
    def of_processes(
        cls, scaling: Scaling, processes: Sequence[Process], answers: Sequence[Floats], learned_from: float
    ) -> LatentClasses:
        """Build from the fitted processes, one per question, all with the same points."""
        first = processes[0]
        theta_qp = np.stack([one.kernel.theta for one in processes])
        sites_qxr = np.stack([one.collapsed for one in processes])
        return cls(scaling, first.x_rd, first.rows, theta_qp, sites_qxr, np.stack(answers), learned_from)

    @classmethod
    def of(cls, consensus: Consensus, evidence: Evidence) -> LatentClasses:
        """Read the processes stored in a consensus, and match their points to the items of evidence with features.

        An item matches a stored point if it has the same name and the same features. Raise BadEvidence if the
        consensus has no processes or another number of features.
        """
        kept = consensus.parameters
        if "points" not in kept or evidence.features is None:
            raise BadEvidence(f"a consensus of {consensus.fit.method} has no Gaussian process; expected one of gpc-ma")
        scaling, x_rd = Scaling(kept["feature mean"], kept["feature scale"]), kept["points"]
        x_nd, place = scaling(evidence.features), {name: n for n, name in enumerate(evidence.annotations.items)}
        before = kept["point rows"].astype(np.intp)
        rows = np.array([place.get(consensus.items[n], -1) if n >= 0 else -1 for n in before.tolist()], dtype=np.intp)
        same = np.isclose(x_nd[rows], x_rd, rtol=0, atol=1e-9, equal_nan=True).all(axis=1)
        rows[~same] = -1
        learned = kept["kernel"], kept["sites"], kept["answers"], float(kept["learned from"])
        return cls(scaling, x_rd, rows, *learned, consensus.annotators.names)

    @classmethod
    def matching(cls, start: Consensus, evidence: Evidence) -> LatentClasses | None:
        """Return the state from which a fit can resume.

        Return None if `start` has no process, or if classes, options or the number of features differ.
        """
        kept = start.parameters
        assert evidence.features is not None
        fits = "points" in kept and len(kept["feature mean"]) == evidence.features.shape[1]
        return cls.of(start, evidence) if fits and usable(start, evidence.annotations) else None

    def parameters(self, latent_qxn: Floats) -> dict[str, Floats]:
        """Return the parameters that a consensus stores; `latent_qxn` (Q, 2, N): mean and variance of f, all items."""
        return {
            "feature mean": self.scaling.mean_d,
            "feature scale": self.scaling.scale_d,
            "points": self.x_rd,
            "point rows": self.rows.astype(float),
            "kernel": self.theta_qp,
            "sites": self.sites_qxr,
            "answers": self.answers_qklj,
            "learned from": np.array(self.learned_from),
            LATENT_MEAN: latent_qxn[:, 0],
            LATENT_VARIANCE: latent_qxn[:, 1],
        }

    def kernel(self, q: int) -> SquaredExponential:
        """Return the kernel of a question."""
        return SquaredExponential(0.0, np.zeros(1), self.x_rd.shape[1]).at(self.theta_qp[q])

    def latent(self, q: int, x_nd: Floats) -> Floats:
        """Return (2, N) mean and variance of f for items with these standardized features, given all sites."""
        kernel, sites = self.kernel(q), self.sites_qxr[q]
        if not len(self.x_rd):
            return np.stack((np.zeros(len(x_nd)), np.full(len(x_nd), kernel.variance)))
        posterior = ep.gaussian(ep.root(kernel.over(self.x_rd)), sites)
        assert posterior is not None
        k_nr = kernel.between(x_nd, self.x_rd)
        here = self.rows >= 0
        k_nr[self.rows[here], np.flatnonzero(here)] = kernel.variance  # an item's own point, even without features
        return np.stack(ep.predicted(k_nr, kernel.variance, posterior, sites))

    def without_own(self, q: int, latent_xn: Floats) -> Floats:
        """Return (2, N) mean and variance of f, each item without its own site."""
        here = self.rows >= 0
        rows, (nu_r, tau_r) = self.rows[here], self.sites_qxr[q][:, here]
        mean_r, variance_r = latent_xn[:, rows]
        cavity_r = 1 / (1 / variance_r - tau_r)
        left = latent_xn.copy()
        left[:, rows] = cavity_r * (mean_r / variance_r - nu_r), cavity_r
        return left

    def is_held(self, said: float) -> bool:
        """Return True if a fit to `said` labels and ground truth should reuse the kernels."""
        return said < GROWTH * self.learned_from

    def resumed(self, q: int, prior: GaussianProcess) -> GaussianProcess:
        """Return the prior with the stored kernel of question q, and the stored sites if it has no observed classes.

        If the stored kernel has another size, return the prior as it is.
        """
        kernel = self.kernel(q)
        if kernel.theta.size != prior.kernel.theta.size:
            return prior
        if prior.observed_nj is not None:
            return replace(prior, kernel=kernel)
        sites, here = np.zeros_like(prior.sites), self.rows >= 0
        sites[:, 0, self.rows[here]] = self.sites_qxr[q][:, here]
        return replace(prior, kernel=kernel, sites=sites)

    def log_answers(self, q: int, annotations: Annotations, unmet_lj: Floats) -> Floats:
        """Return (K, L', 2) log probabilities of these annotators' answers; new annotators get `unmet_lj` (L', 2)."""
        place = {name: k for k, name in enumerate(self.annotators)}
        answers_klj = np.repeat(unmet_lj[None], annotations.n_annotators, axis=0)
        if unmet_lj.shape == self.answers_qklj.shape[2:]:
            for k, name in enumerate(annotations.annotators):
                if name in place:
                    answers_klj[k] = self.answers_qklj[q, place[name]]
        return answers_klj


def asked(n_classes: int) -> range:
    """Return the classes j that have a question."""
    return range(1, 2) if n_classes == 2 else range(n_classes)


def question(evidence: Evidence, j: int) -> Evidence:
    """Build the evidence of question j, with class j as class 1 and all other classes as class 0."""
    annotations = evidence.annotations
    code = _codes(annotations, j)
    assert evidence.truth is not None
    truth = np.where(evidence.known, (evidence.truth == j).astype(np.int32), -1)
    names = tuple(range(int(code.max()) + 1))
    return Evidence(replace(annotations, label=code[annotations.label], classes=names[:2], options=names), truth=truth)


def collapsed(value_jl: Floats, annotations: Annotations, j: int) -> Floats:
    """Collapse (J, L) confusion rows, or their pseudo-counts, to the (2, L') rows of question j."""
    code = _codes(annotations, j)
    by_option = np.zeros((len(value_jl), int(code.max()) + 1))
    np.add.at(by_option.T, code, value_jl.T)
    others = np.delete(by_option, j, axis=0)
    return np.stack((others.mean(axis=0), by_option[j]))


def column(q_nj: Floats, j: int) -> Floats:
    """Return (N, 2) beliefs of question j from class beliefs (N, J)."""
    return np.stack((1 - q_nj[:, j], q_nj[:, j]), axis=1)


def joined(q_qn: Floats, evidence: Evidence) -> Floats:
    """Return (N, J) class beliefs from beliefs (Q, N) in each question's class j. Ground truth stays one-hot."""
    if len(q_qn) == 1:
        q_nj = np.stack((1 - q_qn[0], q_qn[0]), axis=1)
    else:
        q_nj = np.maximum(q_qn.T, LEAST)
        q_nj /= q_nj.sum(axis=1, keepdims=True)
    return clamp(q_nj, evidence)


def _codes(annotations: Annotations, j: int) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    """Return (L,) the code of each option in question j."""
    code = np.zeros(annotations.n_options, dtype=np.int32)
    code[j] = 1
    extra = annotations.n_options - annotations.n_classes
    code[annotations.n_classes :] = 2 + np.arange(extra)
    return code
