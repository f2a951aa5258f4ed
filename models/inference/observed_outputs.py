"""Models combined with a prior that ties items together: each prediction is one more observation of its item.

    p(x_n | z_n = j)  ∝  p(z_n = j | x_n) / share[j]

p(z_n | x_n) is the calibrated pool of the models, and share[j] the mean of the pool over the items that they predict.
The division keeps class shares from counting twice, because a chain or a field has its own (the scaled likelihoods of
Bourlard & Morgan 1994). In this way a token classifier is combined with a chain, and a segmentation network with a
field. The weights of the models are estimated first, without truth, and then held fixed (`unsupervised_pool`).

A model that predicts the same for every item carries no information. The informativeness of the models is their
information about the class as a fraction of the entropy of the class, in [0, 1] (the uncertainty coefficient of Theil
1970):

    informativeness  =  1 - mean_n H( p(z_n | x_n) ) / H( share )
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, Self, TypeVar

import numpy as np
import numpy.typing as npt
from scipy.special import softmax

from hitl.annotations import Floats
from hitl.consensus import Consensus
from hitl.design_effect import SMALLEST
from hitl.evidence import Evidence
from hitl.models.calibration.temperature import LogTemperature
from hitl.models.inference.engine import Additive, Shards, Table
from hitl.models.inference.model_pool import ModelPool
from hitl.models.inference.unsupervised_pool import Weigh
from hitl.models.numerics.clamping import clamp
from hitl.models.priors import Mask, Posterior, TruthPrior
from hitl.models.priors.calibrated import RESIDUAL, Calibrated, PoolOn

TEMPERATURE = LogTemperature(0.45)
"""Prior of an unknown model temperature, as in P+L-EM."""

MODEL_SHARES, MODEL_INFORMATIVENESS = "model shares", "model informativeness"

P = TypeVar("P", bound=TruthPrior)


@dataclass(frozen=True, eq=False)
class Observed(Generic[P]):
    """Prior of items that are observed by models: `log_likelihood_nj` (N, J) is added to messages, unless None."""

    prior: P
    log_likelihood_nj: Floats | None

    def posterior(self, message_nj: Floats, counted_n: Mask) -> Posterior:
        if self.log_likelihood_nj is not None:
            message_nj = message_nj + self.log_likelihood_nj
        return self.prior.posterior(message_nj, counted_n)

    def statistics(self, q_nj: Floats, counted_n: Mask) -> Any:
        return self.prior.statistics(q_nj, counted_n)

    def learn(self, statistics: Any) -> Self:
        return replace(self, prior=self.prior.learn(statistics))

    def log_density(self) -> float:
        return self.prior.log_density()


@dataclass(frozen=True, eq=False)
class Outputs:
    """Predictions of all models, pooled.

    Attributes:
        pool: the pool; None without models.
        share_j: (J,) mean probabilities of the pool; uniform without models.
        informativeness: informativeness of the pool, in [0, 1].
        pool_on: function that applies a pool without items to a shard's items; None: `Calibrated.over`.
    """

    pool: Calibrated | None
    share_j: Floats
    informativeness: float = 0.0
    pool_on: PoolOn | None = None

    @classmethod
    def of(cls, evidence: Evidence, learned: Consensus | None = None) -> Outputs:
        """Learn the pool from the labels of a table, or take it from a consensus; it covers the table's items."""
        if learned is None:
            return cls.learned(Table(evidence)).on(evidence)
        if not evidence.probabilities:
            return cls.none(evidence.annotations.n_classes)
        pool, kept = Calibrated.from_evidence(evidence, TEMPERATURE, learned), learned.parameters
        if MODEL_SHARES in kept:
            pool = replace(pool, residual=float(kept[RESIDUAL]))
            return cls(pool, kept[MODEL_SHARES], float(kept.get(MODEL_INFORMATIVENESS, 0.0)))
        predicted = Predicted.by(pool)
        return cls(pool, predicted.share_j, predicted.informativeness)

    @classmethod
    def learned(cls, shards: Shards, weigh: Weigh | None = None) -> Outputs:
        """Learn the pool from all shards; it covers no items. `weigh` as in `ModelPool.unsupervised`."""
        if not shards.models:
            return cls.none(shards.annotations.n_classes)
        pools = ModelPool(shards, TEMPERATURE)
        pool, _ = pools.unsupervised(weigh)
        predicted: Predicted = shards.total(partial(_predicted, pool=pool, on=pools.on))
        return cls(pool, predicted.share_j, predicted.informativeness, pools.on)

    @classmethod
    def none(cls, n_classes: int) -> Outputs:
        """Return outputs without models."""
        return cls(None, np.full(n_classes, 1 / n_classes))

    def on(self, evidence: Evidence) -> Outputs:
        """Apply the same models to the items of a shard."""
        if self.pool is None:
            return self
        pool = self.pool.over(evidence.probabilities) if self.pool_on is None else self.pool_on(self.pool, evidence)
        return replace(self, pool=pool)

    def beside(self, prior: P) -> Observed[P]:
        """Add the models' predictions of each item to the prior."""
        return Observed(prior, self.log_likelihood())

    def log_likelihood(self) -> Floats | None:
        """Return (N, J) log likelihoods from the models, 0 where all abstain, or None without models."""
        if self.pool is None:
            return None
        said_nj: Floats = self.pool.log_prior() - np.log(self.share_j)
        said_nj[self.pool.abstained_n] = 0.0
        return said_nj

    def beside_votes(self, voted_nj: Floats, evidence: Evidence) -> Floats:
        """Return (N, J) beliefs from vote shares and predictions; ground truth stays one-hot."""
        said_nj = self.log_likelihood()
        if said_nj is None:
            return voted_nj
        return clamp(softmax(np.log(np.maximum(voted_nj, SMALLEST)) + said_nj, axis=1), evidence)

    @property
    def predicted_n(self) -> npt.NDArray[np.bool_] | None:
        """(N,) True for items that a model predicts; None without models."""
        return None if self.pool is None else ~self.pool.abstained_n

    @property
    def residual(self) -> float:
        """Further temperature for beliefs, >= 1: that of the pool, scaled by its informativeness."""
        return 1.0 if self.pool is None else 1 + self.informativeness * (self.pool.residual - 1)

    def kept(self, parameters: dict[str, Floats]) -> dict[str, Any]:
        """Return the fields of a consensus that store the models and these parameters of the prior."""
        if self.pool is None:
            return {"parameters": parameters}
        own = self.pool.parameters | {MODEL_SHARES: self.share_j, MODEL_INFORMATIVENESS: np.array(self.informativeness)}
        return {"temperatures": self.pool.temperatures, "parameters": parameters | own}


@dataclass(frozen=True, eq=False)
class Predicted(Additive):
    """Sums over the items that a model predicts.

    Attributes:
        total_j: (J,) sum of the pool's probabilities.
        entropy: sum of their entropies, in nats.
        items: number of the items.
    """

    total_j: Floats
    entropy: float
    items: int

    @classmethod
    def by(cls, pool: Calibrated) -> Predicted:
        """Sum over the items of a pool."""
        log_p_nj = pool.log_prior()[~pool.abstained_n]
        p_nj = np.exp(log_p_nj)
        return cls(p_nj.sum(axis=0), float(-np.einsum("nj,nj->", p_nj, log_p_nj)), len(p_nj))

    @property
    def share_j(self) -> Floats:
        """(J,) mean probabilities; uniform if nothing is predicted."""
        return self.total_j / self.items if self.items else np.full(self.total_j.size, 1 / self.total_j.size)

    @property
    def informativeness(self) -> float:
        """Information of the pool about the class, as a fraction of the entropy of the class, in [0, 1]."""
        share_j = self.share_j
        unknown = self.items * float(-(share_j @ np.log(np.maximum(share_j, np.finfo(float).tiny))))
        return max(1 - self.entropy / unknown, 0.0) if unknown > 0 else 0.0


def _predicted(evidence: Evidence, pool: Calibrated, on: PoolOn) -> Predicted:
    return Predicted.by(on(pool, evidence))
