"""VariationalGPCMA: Gaussian process classification with many annotators, classes and items, by variational inference.

    f_j ~ GP            one function of the features for each class                (`priors.variational_gp`)
    z_n ~ softmax(f_1(x_n), ..., f_J(x_n))
    l_nk | z_n = j ~ Cat(pi_kj)     pi_kj ~ Dir(a_j)                                    (`annotators`)

This extends the model of Rodrigues, Pereira & Ribeiro 2014 to several classes. Full confusion matrices replace
sensitivities and specificities. A bound on the log evidence, which needs only sums over items, replaces expectation
propagation. `GPCMA` is the model of the paper.

A fit has two phases. The first learns the kernel's hyperparameters by gradients of the bound, on batches if there are
many items. A step takes the next batch of a shuffled order, updates the beliefs of its items, and updates the prior as
if their statistics stood for all items (stochastic variational inference, Hoffman et al. 2013). Annotators are updated
every few batches, from the latest beliefs of the items seen so far (incremental EM, Neal & Hinton 1998). Step sizes
fall to 0. The second phase holds the hyperparameters, and `inference.em` maximizes the bound in q(f), q(z) and the
annotators over all items, which removes the noise of the batches.

Models' probabilities are pooled as in P+L-EM, without truth, and count like an annotator's answer: a model's prediction
is assumed to be independent of the item's features given its class.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from hitl.annotations import Annotations, Floats
from hitl.consensus import Consensus
from hitl.crew import EXPECTED_ACCURACY, EXPECTED_LABELS
from hitl.errors import BadEvidence
from hitl.evidence import Evidence
from hitl.formatting import listed
from hitl.models.annotators import AnnotatorKind, confusion
from hitl.models.annotators.dirichlet_confusion import DirichletRows
from hitl.models.calibration.temperature import LogTemperature
from hitl.models.combiner import BELIEFS, TABLES, array_bytes, require_given, used
from hitl.models.inference import em
from hitl.models.inference.model_pool import unsupervised
from hitl.models.inference.warm_start import require_same_classes
from hitl.models.numerics import kernels
from hitl.models.numerics.checks import check_settings
from hitl.models.numerics.clamping import messages
from hitl.models.numerics.votes import shares, voted
from hitl.models.pl import calibrated_prior

if TYPE_CHECKING:
    from hitl.models.priors.calibrated import Calibrated
    from hitl.models.priors.covariance import CovarianceModule
    from hitl.models.priors.variational_gp import VariationalGP

EVERY = 5
"""Number of batches between updates of the annotators."""

GROWTH = 1.5
"""Factor by which the number of labels must have grown for a warm start to learn hyperparameters again."""

LEARNED_FROM = "gp labels"
"""Name of the consensus parameter with the number of labels that hyperparameters were learned from."""


@dataclass(frozen=True, slots=True)
class VariationalGPCMA:
    """Gaussian process classification with many annotators, for many classes and items; needs the extra `gp`.

    Use it if items have features (N, D) that are informative about their class. The prior of an item without features
    (a row of NaN) is the class shares. Items without labels, including those passed to `apply`, are predicted from
    their features. `Consensus.parameters` has the (N, J) arrays "latent mean" and "latent variance" of the functions at
    the items.

    Attributes:
        inducing: maximum number of inducing points, >= 1. Time grows with their square; with one per item, the process
            is exact.
        ard: True for one length scale per feature instead of one for all.
        annotators: "dirichlet" for posteriors of the confusion matrices under a learned prior, "map" for matrices at
            their posterior mode.
        accuracy: expected accuracy of an annotator before any label is seen, in (0, 1).
        temperature: prior of each model's log temperature, if there are models' probabilities.
        learning_steps: number of gradient steps of the hyperparameters, >= 0; with 0 they stay at their prior's mode.
        batch: number of items per step, >= 1; up to this number, every step uses all labeled items.
        tolerance: iterations over all items stop when one gains less than this, in nats per item.
        max_iterations: maximum number of these iterations.
        device: "cpu", "cuda" (or another torch device), or "auto": a GPU if there is one.
        seed: seed of the choice of inducing points and batches.

    Example:
        >>> import numpy as np, hitl
        >>> from hitl.models import VariationalGPCMA
        >>> annotations = hitl.Annotations.from_matrix([[0, 0], [0, -1], [1, 1], [-1, 1], [-1, -1]])
        >>> features = np.array([[0.1], [0.2], [0.9], [0.8], [1.0]])
        >>> VariationalGPCMA().fit(hitl.Evidence(annotations, features=features)).labels.tolist()
        [0, 0, 1, 1, 1]
    """

    uses: ClassVar[frozenset[str]] = frozenset({"features", "probabilities", "truth"})
    needs: ClassVar[frozenset[str]] = frozenset({"features"})

    inducing: int = 200
    ard: bool = False
    annotators: str = "dirichlet"
    accuracy: float = EXPECTED_ACCURACY
    temperature: LogTemperature = LogTemperature(0.45)
    learning_steps: int = 50
    batch: int = 2000
    tolerance: float = 1e-5
    max_iterations: int = 200
    device: str = "auto"
    seed: int = 0

    def __post_init__(self) -> None:
        check_settings(self)

    def memory(self, evidence: Evidence) -> int:
        """Estimate the bytes that a fit takes at its peak, with covariances of items and inducing points per class."""
        annotations = evidence.annotations
        points = 5 * min(self.inducing, annotations.n_items)
        return array_bytes(annotations, TABLES, BELIEFS + points)

    def fit(self, evidence: Evidence, *, start: Consensus | None = None) -> Consensus:
        """Learn hyperparameters, then maximize the bound; resume from `start` if it was learned from the same kind of
        data.

        Raise BadEvidence without features, MissingExtra without gpytorch.
        """
        evidence = used(self, evidence)
        began = time.perf_counter()
        annotations, rng = evidence.annotations, np.random.default_rng(self.seed)
        pool, q_nj = self._pool(evidence)
        kernel, kind = self._kernel(evidence), self._kind(annotations)
        if start is not None and self._learned_alike(start, evidence, kernel):
            prior = self._restored(start, evidence, pool)
            q_nj = em.expectation(evidence, prior, kind.log_pi(start, annotations)).q_nj
            learned_from = float(start.parameters[LEARNED_FROM])
        else:
            start, learned_from = None, 0.0
            inputs = _gp().Inputs.standardised(evidence.features, _log_pool(pool))
            prior = _gp().VariationalGP.unlearned(
                inputs, kernel, annotations.n_classes, self.inducing, self._device, rng
            )
        people = kind.at_start(annotations, start)
        if _known(evidence) >= GROWTH * learned_from:
            learned_from = _known(evidence)
            prior, people, q_nj = _learned(
                evidence, prior, people, q_nj, steps=self.learning_steps, batch=self.batch, rng=rng
            )
        found = self._maximised(evidence, prior.paced(False, 0.0), people, q_nj)
        learned = {} if pool is None else pool.parameters
        learned |= found.prior.parameters | found.prior.latent() | {LEARNED_FROM: np.array(learned_from)}
        temperatures = {} if pool is None else pool.temperatures
        report = kind.report(annotations, found, shares(found.q_nj))
        return em.concluded(self, began, evidence, found, report, temperatures=temperatures, parameters=learned)

    def apply(self, consensus: Consensus, evidence: Evidence) -> Consensus:
        """Predict other items by features, labels and models with the learned parameters; new annotators follow the
        prior.

        Raise BadEvidence without features, or if the features, the models or the kernel differ from those of the fit.
        """
        require_given(self, evidence, self.needs)
        require_same_classes(consensus, evidence)
        if set(consensus.temperatures) != set(evidence.probabilities):
            learned, given = (
                listed(sorted(names)) or "none" for names in (consensus.temperatures, evidence.probabilities)
            )
            raise BadEvidence(f"probabilities: learned with the models {learned}; the evidence has {given}")
        if not self._learned_alike(consensus, evidence, self._kernel(evidence)):
            raise BadEvidence("features: they or their settings differ from those this was learned with")
        pool = calibrated_prior(self, evidence, consensus) if evidence.probabilities else None
        prior = self._restored(consensus, evidence, pool)
        q_nj = em.expectation(
            evidence, prior, self._kind(evidence.annotations).log_pi(consensus, evidence.annotations)
        ).q_nj
        judged = consensus.judging(evidence.annotations.items, q_nj)
        return replace(judged, parameters={**consensus.parameters, **prior.latent()})

    def _maximised(self, evidence: Evidence, prior: VariationalGP, people: Any, q_nj: Floats) -> em.EMResult[Any, Any]:
        """Iterate over items with labels or ground truth; predict the others once, at the end."""
        rows = np.flatnonzero(em.informative(evidence, 1))
        rows = rows if rows.size else np.arange(len(q_nj))
        found = em.run_em(
            _over(evidence, rows),
            prior.over(rows),
            people,
            q_nj[rows],
            tolerance=self.tolerance,
            max_iterations=self.max_iterations,
        )
        if rows.size == len(q_nj):
            return replace(found, prior=replace(found.prior, inputs=prior.inputs))
        learned = replace(found.prior, inputs=prior.inputs)
        judged = em.expectation(evidence, learned, found.annotators.log_pi_klj)
        return replace(found, prior=learned, q_nj=judged.q_nj)

    def _pool(self, evidence: Evidence) -> tuple[Calibrated | None, Floats]:
        """Return the pool of models, if there are any, and the first beliefs (N, J)."""
        if not evidence.probabilities:
            return None, voted(evidence)
        return unsupervised(evidence, self.temperature)

    def _restored(self, learned: Consensus, evidence: Evidence, pool: Calibrated | None) -> VariationalGP:
        restored: VariationalGP = _gp().VariationalGP.restored(
            learned.parameters, evidence.features, _log_pool(pool), self._kernel(evidence), self._device
        )
        return restored

    def _learned_alike(self, learned: Consensus, evidence: Evidence, kernel: CovarianceModule) -> bool:
        """Return True if the consensus has the same classes, features, models and kernel."""
        same = learned.classes == evidence.annotations.classes
        same = same and set(learned.temperatures) == set(evidence.probabilities)
        return same and _gp().fits(learned.parameters, _width(evidence), kernel)

    def _kernel(self, evidence: Evidence) -> CovarianceModule:
        covariance = import_module("hitl.models.priors.covariance")
        made: CovarianceModule = covariance.CovarianceModule(_width(evidence), self.ard)
        return made

    @property
    def _device(self) -> str:
        if self.device != "auto":
            return self.device
        return "cuda" if _gp().torch.cuda.is_available() else "cpu"

    def _kind(self, annotations: Annotations) -> AnnotatorKind:
        """Return the annotator model, with prior confusion rows that weigh EXPECTED_LABELS labels."""
        wrong = EXPECTED_LABELS * (1 - self.accuracy) / (annotations.n_options - 1)
        right = EXPECTED_LABELS * self.accuracy
        pseudo_jl = confusion.on_the_diagonal(annotations.n_classes, annotations.n_options, right, wrong)
        return confusion.PointRows(pseudo_jl) if self.annotators == "map" else DirichletRows(pseudo_jl)


def _learned(
    evidence: Evidence, prior: Any, annotators: Any, q_nj: Floats, *, steps: int, batch: int, rng: np.random.Generator
) -> tuple[Any, Any, Floats]:
    """Return prior, annotators and beliefs (N, J) after `steps` gradient steps that start at the beliefs `q_nj`.

    If a single batch holds all labeled items, the other items keep their beliefs.
    """
    labeled = np.flatnonzero(em.informative(evidence, 1))
    if labeled.size <= batch:
        return _of_all(evidence, prior, annotators, q_nj, labeled, steps)
    q_nj, seen_n = q_nj.copy(), np.zeros(len(q_nj), dtype=bool)
    message_nj = messages(evidence, annotators.log_pi_klj)
    for step, rows in zip(range(steps), _batches(labeled, batch, rng), strict=False):
        prior = prior.paced(True, 1 - step / steps)
        found = prior.over(rows).posterior(message_nj[rows], np.ones(rows.size, dtype=bool))
        q_nj[rows], seen_n[rows] = found.q_nj, True
        prior = prior.learn(found.statistics.standing_for(labeled.size))
        if step % EVERY == EVERY - 1:
            annotators = annotators.learn(kernels.counts(evidence.annotations, q_nj, seen_n))
            message_nj = messages(evidence, annotators.log_pi_klj)
    return prior, annotators, em.expectation(evidence, prior.paced(False, 0.0), annotators.log_pi_klj).q_nj


def _of_all(
    evidence: Evidence, prior: Any, annotators: Any, q_nj: Floats, labeled: npt.NDArray[np.intp], steps: int
) -> tuple[Any, Any, Floats]:
    """Run steps over all items with labels or ground truth; nothing can be learned from the others."""
    counted_n = np.zeros(len(q_nj), dtype=bool)
    counted_n[labeled] = True
    q_nj, everything = q_nj.copy(), np.ones(labeled.size, dtype=bool)
    statistics = prior.over(labeled).statistics(q_nj[labeled], everything)
    for step in range(steps):
        prior = prior.paced(False, 1 - step / steps).learn(statistics)
        annotators = annotators.learn(kernels.counts(evidence.annotations, q_nj, counted_n))
        found = prior.over(labeled).posterior(messages(evidence, annotators.log_pi_klj)[labeled], everything)
        q_nj[labeled], statistics = found.q_nj, found.statistics
    return prior, annotators, q_nj


def _batches(rows: npt.NDArray[np.intp], batch: int, rng: np.random.Generator) -> Iterator[npt.NDArray[np.intp]]:
    """Yield batches of equal size from one shuffled order of the rows after another, leaving out incomplete ones."""
    while True:
        order = rng.permutation(rows)
        for begin in range(0, rows.size - batch + 1, batch):
            yield np.sort(order[begin : begin + batch])


def _gp() -> Any:
    """Import the module that needs torch and gpytorch. Raise MissingExtra."""
    return import_module("hitl.models.priors.variational_gp")


def _log_pool(pool: Calibrated | None) -> Floats | None:
    """Return (N, J) log probabilities of the pool, NaN where all models abstain."""
    return None if pool is None else np.where(pool.abstained_n[:, None], np.nan, pool.log_prior())


def _over(evidence: Evidence, rows: npt.NDArray[np.intp]) -> Evidence:
    """Return evidence with the labels and truth of these items, which must include all labeled items."""
    annotations, place = evidence.annotations, np.zeros(len(evidence.known), dtype=np.int32)
    place[rows] = np.arange(rows.size)
    items = tuple(annotations.items[n] for n in rows.tolist())
    truth = None if evidence.truth is None else evidence.truth[rows]
    return Evidence(replace(annotations, item=place[annotations.item], items=items), truth=truth)


def _known(evidence: Evidence) -> float:
    """Count labels and ground truth."""
    return float(len(evidence.annotations) + evidence.known.sum())


def _width(evidence: Evidence) -> int:
    assert evidence.features is not None
    return int(evidence.features.shape[1])
