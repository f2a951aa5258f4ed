"""Models beside a prior that ties items together: what a model says of an item is one more observation of it.

    p(x_n | z_n = j)  ∝  p(z_n = j | x_n) / share[j]

with p(z_n | x_n) the calibrated pool of the models, and share[j] its mean over the items they predict: a chain or a
field has its own shares, which must not count twice (the scaled likelihoods of Bourlard & Morgan 1994). So a token
classifier joins a chain, and a segmentation network a field. What the models are worth is found first, without truth,
and held (`unsupervised_pool`).

A model that says the same of every item says nothing. The informativeness of the models is the information that they
have about a class, as a share of its entropy, in [0, 1] (the uncertainty coefficient of Theil 1970):

    informativeness  =  1 - mean_n H( p(z_n | x_n) ) / H( share )
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Self, TypeVar

import numpy as np
import numpy.typing as npt
from scipy.special import softmax

from hitl.annotations import Floats
from hitl.consensus import Consensus
from hitl.design_effect import SMALLEST
from hitl.evidence import Evidence
from hitl.models.calibration.temperature import LogTemperature
from hitl.models.inference.passes import Additive, Engine, first_of
from hitl.models.inference.pool_over_shards import PoolOverShards
from hitl.models.inference.unsupervised_pool import Weigh, unsupervised, weights_by
from hitl.models.numerics.clamping import clamp
from hitl.models.priors import Mask, Posterior, TruthPrior
from hitl.models.priors.calibrated import RESIDUAL, Calibrated

TEMPERATURE = LogTemperature(0.45)
"""Expected of a model whose temperature is not known, as in P+L-EM."""

MODEL_SHARES, MODEL_INFORMATIVENESS = "model shares", "model informativeness"

P = TypeVar("P", bound=TruthPrior)


@dataclass(frozen=True, eq=False)
class Observed(Generic[P]):
    """A prior whose items have been observed: `log_likelihood_nj` (N, J) is added to their messages; None: nothing."""

    prior: P
    log_likelihood_nj: Floats | None

    def posterior(self, message_nj: Floats, counted_n: Mask) -> Posterior:
        """Beliefs given messages and observations."""
        if self.log_likelihood_nj is not None:
            message_nj = message_nj + self.log_likelihood_nj
        return self.prior.posterior(message_nj, counted_n)

    def statistics(self, q_nj: Floats, counted_n: Mask) -> Any:
        """Those of the prior."""
        return self.prior.statistics(q_nj, counted_n)

    def learn(self, statistics: Any) -> Self:
        """The prior learns; what was observed stays."""
        return replace(self, prior=self.prior.learn(statistics))

    def log_density(self) -> float:
        """That of the prior."""
        return self.prior.log_density()


@dataclass(frozen=True, eq=False)
class Outputs:
    """What the models of the evidence say.

    Attributes:
        pool: the pool of them, or None where there is no model.
        share_j: (J,) its mean probabilities; even ones where there is no model.
        informativeness: of the pool, in [0, 1].
    """

    pool: Calibrated | None
    share_j: Floats
    informativeness: float = 0.0

    @classmethod
    def of(cls, evidence: Evidence, learned: Consensus | None = None, weigh: Weigh = weights_by) -> Outputs:
        """As the labels of the evidence suggest, or as a consensus has learned; `weigh`: see `unsupervised`."""
        j = evidence.annotations.n_classes
        if not evidence.probabilities:
            return cls(None, np.full(j, 1 / j))
        pool = Calibrated.from_evidence(evidence, TEMPERATURE, learned)
        if learned is None:
            pool, _ = unsupervised(evidence, pool, weigh)
        kept = {} if learned is None else learned.parameters
        if MODEL_SHARES in kept:
            pool = replace(pool, residual=float(kept[RESIDUAL]))
            return cls(pool, kept[MODEL_SHARES], float(kept.get(MODEL_INFORMATIVENESS, 0.0)))
        said = Said.by(pool)
        return cls(pool, said.share_j, said.informativeness)

    @classmethod
    def over_shards(cls, shards: Sequence[Evidence], engine: Engine, weigh: Weigh = weights_by) -> Outputs:
        """What `of` finds of the labels of one table; the pool is over no items."""
        annotations, models = first_of(shards).annotations, first_of(shards).probabilities
        if not models:
            return cls(None, np.full(annotations.n_classes, 1 / annotations.n_classes))
        pool, _ = PoolOverShards(shards, engine, TEMPERATURE).unsupervised(weigh)
        said: Said = engine.total(_Said(pool), shards)
        return cls(pool, said.share_j, said.informativeness)

    def on(self, evidence: Evidence) -> Outputs:
        """The same models over the items of a shard."""
        return self if self.pool is None else replace(self, pool=self.pool.over(evidence.probabilities))

    def beside(self, prior: P) -> Observed[P]:
        """The prior with what the models say of each item."""
        return Observed(prior, self.log_likelihood())

    def log_likelihood(self) -> Floats | None:
        """(N, J) what the models say of each item, 0 where all of them abstain; None where there is no model."""
        if self.pool is None:
            return None
        said_nj: Floats = self.pool.log_prior() - np.log(self.share_j)
        said_nj[self.pool.abstained_n] = 0.0
        return said_nj

    def beside_votes(self, voted_nj: Floats, evidence: Evidence) -> Floats:
        """(N, J) beliefs by shares of votes and by what the models say; known truths as they are."""
        said_nj = self.log_likelihood()
        if said_nj is None:
            return voted_nj
        return clamp(softmax(np.log(np.maximum(voted_nj, SMALLEST)) + said_nj, axis=1), evidence)

    @property
    def predicted_n(self) -> npt.NDArray[np.bool_] | None:
        """(N,) items that a model predicts; None where there is no model."""
        return None if self.pool is None else ~self.pool.abstained_n

    @property
    def residual(self) -> float:
        """Temperature that beliefs still need as far as models tell them, >= 1."""
        return 1.0 if self.pool is None else 1 + self.informativeness * (self.pool.residual - 1)

    def kept(self, parameters: dict[str, Floats]) -> dict[str, Any]:
        """Fields of a consensus that keeps the models, and these parameters of the prior."""
        if self.pool is None:
            return {"parameters": parameters}
        own = self.pool.parameters | {MODEL_SHARES: self.share_j, MODEL_INFORMATIVENESS: np.array(self.informativeness)}
        return {"temperatures": self.pool.temperatures, "parameters": parameters | own}


@dataclass(frozen=True, eq=False)
class Said(Additive):
    """Sums over the items that a model predicts: (J,) a pool's probabilities, their entropy in nats, and the number."""

    total_j: Floats
    entropy: float
    items: int

    @classmethod
    def by(cls, pool: Calibrated) -> Said:
        """By a pool over its items."""
        log_p_nj = pool.log_prior()[~pool.abstained_n]
        p_nj = np.exp(log_p_nj)
        return cls(p_nj.sum(axis=0), float(-np.einsum("nj,nj->", p_nj, log_p_nj)), len(p_nj))

    @property
    def share_j(self) -> Floats:
        """(J,) the mean; even where nothing is predicted."""
        return self.total_j / self.items if self.items else np.full(self.total_j.size, 1 / self.total_j.size)

    @property
    def informativeness(self) -> float:
        """What the pool tells of a class, in [0, 1]."""
        share_j = self.share_j
        unknown = self.items * float(-(share_j @ np.log(np.maximum(share_j, np.finfo(float).tiny))))
        return max(1 - self.entropy / unknown, 0.0) if unknown > 0 else 0.0


@dataclass(frozen=True, eq=False)
class _Said:
    pool: Calibrated

    def __call__(self, evidence: Evidence) -> Said:
        return Said.by(self.pool.over(evidence.probabilities))
