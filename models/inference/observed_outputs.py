"""Models beside a prior that ties items together: what a model says of an item is one more observation of it.

    p(x_n | z_n = j)  ∝  p(z_n = j | x_n) / share[j]

with p(z_n | x_n) the calibrated pool of the models, and share[j] its mean over the items they predict: a chain or a
field has its own shares, which must not count twice (the scaled likelihoods of Bourlard & Morgan 1994). So a token
classifier joins a chain, and a segmentation network a field. What the models are worth is found first, without truth,
and held (`unsupervised_pool`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Self, TypeVar

import numpy as np

from hitl.annotations import Floats
from hitl.consensus import Consensus
from hitl.evidence import Evidence
from hitl.models.calibration.temperature import LogTemperature
from hitl.models.inference.passes import Additive, Engine, first_of
from hitl.models.inference.pool_over_shards import PoolOverShards
from hitl.models.inference.unsupervised_pool import unsupervised
from hitl.models.priors import Mask, Posterior, TruthPrior
from hitl.models.priors.calibrated import Calibrated

TEMPERATURE = LogTemperature(0.45)
"""Expected of a model whose temperature is not known, as in P+L-EM."""

MODEL_SHARES = "model shares"

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
    """The pool of the evidence's models and its mean probabilities (J,); None and even ones where there is no model."""

    pool: Calibrated | None
    share_j: Floats

    @classmethod
    def of(cls, evidence: Evidence, learned: Consensus | None = None) -> Outputs:
        """As the labels of the evidence suggest, or as a consensus has learned."""
        j = evidence.annotations.n_classes
        if not evidence.probabilities:
            return cls(None, np.full(j, 1 / j))
        pool = Calibrated.from_evidence(evidence, TEMPERATURE, learned)
        if learned is None:
            pool, _ = unsupervised(evidence, pool)
        kept = None if learned is None else learned.parameters.get(MODEL_SHARES)
        return cls(pool, np.exp(pool.log_prior())[~pool.abstained_n].mean(axis=0) if kept is None else kept)

    @classmethod
    def over_shards(cls, shards: Sequence[Evidence], engine: Engine) -> Outputs:
        """What `of` finds of the labels of one table; the pool is over no items."""
        annotations, models = first_of(shards).annotations, first_of(shards).probabilities
        if not models:
            return cls(None, np.full(annotations.n_classes, 1 / annotations.n_classes))
        pool, _ = PoolOverShards(shards, engine, TEMPERATURE).unsupervised()
        said: Said = engine.total(_Said(pool), shards)
        return cls(pool, said.total_j / max(1, said.items))

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

    def kept(self, parameters: dict[str, Floats]) -> dict[str, Any]:
        """Fields of a consensus that keeps the models, and these parameters of the prior."""
        if self.pool is None:
            return {"parameters": parameters}
        own = self.pool.parameters | {MODEL_SHARES: self.share_j}
        return {"temperatures": self.pool.temperatures, "parameters": parameters | own}


@dataclass(frozen=True, eq=False)
class Said(Additive):
    """(J,) sum of a pool's probabilities over the items that a model predicts, and their number."""

    total_j: Floats
    items: int


@dataclass(frozen=True, eq=False)
class _Said:
    pool: Calibrated

    def __call__(self, evidence: Evidence) -> Said:
        pool = self.pool.over(evidence.probabilities)
        p_nj = np.exp(pool.log_prior())[~pool.abstained_n]
        return Said(p_nj.sum(axis=0), len(p_nj))
