"""The default combiner: picks by what the evidence holds.

    model probabilities   P+L-EM (calibrated models x confusion matrices), its confidence corrected for shared errors
    annotators only       Dawid–Skene with a hierarchy of priors, its confidence corrected for shared errors

Two things make Dawid–Skene fit for any crowd (docs/decisions.md has figures):

    hierarchy      crowd, person, confusion rows: matrices are believed only as far as labels bear them
    correction     annotators err together: alike answers are worth less than they seem, unless errors lie so evenly
                   that no item can have misled them
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from hitl.consensus import Consensus
from hitl.crew import EXPECTED_ACCURACY
from hitl.design_effect import SMALLEST, DesignEffect
from hitl.errors import BadEvidence
from hitl.evidence import Evidence
from hitl.models.combiner import FittedToShards, name_of, used
from hitl.models.dependence import over_shards
from hitl.models.dependence.corrected import Corrected
from hitl.models.dependence.design_effect import (
    Independent,
    beside_models,
    independent,
    log_means,
    of_annotators,
    residual_temperature,
)
from hitl.models.dependence.over_shards import Answers, BesideModels, ByRows, Judged, Tempered
from hitl.models.hierarchy.hierarchical_dawid_skene import HierarchicalDawidSkene
from hitl.models.inference.over_shards import used_of
from hitl.models.inference.passes import IN_TURN, Engine, first_of
from hitl.models.inference.warm_start import require_same_classes
from hitl.models.numerics.checks import require_chances
from hitl.models.numerics.clamping import clamp
from hitl.models.pl_em import PLEM


@dataclass(frozen=True, slots=True)
class DefaultCombiner:
    """P+L-EM where there are model probabilities, else Dawid–Skene with a hierarchy of priors; both corrected.

    `accuracy` is expected of annotators, in (0, 1).

    Example:
        >>> from hitl import Annotations, Evidence
        >>> from hitl.models import DefaultCombiner
        >>> annotations = Annotations.from_matrix([[0, 0, 1], [1, 1, -1], [1, 1, 0]], classes=["cat", "dog"])
        >>> consensus = DefaultCombiner().fit(Evidence(annotations))
        >>> consensus.frame()[["item", "label"]].values.tolist()
        [[0, 'cat'], [1, 'dog'], [2, 'dog']]
    """

    uses: ClassVar[frozenset[str]] = frozenset({"probabilities", "truth"})

    accuracy: float = EXPECTED_ACCURACY

    def __post_init__(self) -> None:
        require_chances(self, "accuracy")

    def fit(self, evidence: Evidence, *, start: Consensus | None = None) -> Consensus:
        """Fit the combiner that suits the evidence."""
        evidence = used(self, evidence)
        return self._corrected(self._method(evidence).fit(evidence, start=start), evidence)

    def fit_shards(
        self, shards: Sequence[Evidence], *, start: Consensus | None = None, engine: Engine = IN_TURN
    ) -> FittedToShards:
        """Fit the combiner that suits the evidence, over shards; see `Shardable`."""
        shards = used_of(self, shards)
        if first_of(shards).probabilities:
            raw = self._with_models.fit_shards(shards, start=start, engine=engine)
            judged: Judged = BesideModels(self._with_models.judge(raw.consensus, first_of(shards)))
            effect = over_shards.beside_models(shards, engine, judged, residual_temperature(raw.consensus))
            return FittedToShards(_named(replace(raw.consensus, design_effect=effect)), Tempered(judged, effect))
        raw = self._without_models.fit_shards(shards, start=start, engine=engine)
        people, shares = raw.consensus.annotators, raw.consensus.class_shares
        judged = ByRows(log_means(people.concentration), shares)
        effect = over_shards.of_annotators(shards, engine, raw.beliefs, people.concentration, shares)
        beliefs = Tempered(judged, effect)
        people = replace(people, answers=over_shards.answers(shards, engine, beliefs).reported())
        found = replace(raw.consensus, annotators=people, design_effect=effect)
        return FittedToShards(_named(found), beliefs)

    def update(self, consensus: Consensus, evidence: Evidence) -> Consensus:
        """What `consensus` becomes with what is known now, in a few iterations; see `Updatable`."""
        method = self._method(evidence)
        if consensus.fit.settings.get("method") != name_of(method):
            return self.fit(evidence)
        return self._corrected(method.update(consensus, evidence), evidence)

    def follow(self, consensus: Consensus, evidence: Evidence) -> Corrected:
        """Follow the labels one by one, beginning with those of `evidence`; see `Followable`."""
        self._require_own(consensus, evidence)
        return Corrected(consensus, self._method(evidence).follow(consensus, evidence), self._corrected)

    def _corrected(self, raw: Consensus, evidence: Evidence) -> Consensus:
        """What the chosen method says, its confidence corrected."""
        if evidence.probabilities:
            known = self._beside_models(raw, evidence)
            effect = beside_models(evidence, known.log_q0_nj, residual_temperature(raw))
            return _named(_tempered(raw, evidence, known, effect))
        alpha_kjl = raw.annotators.concentration
        effect = of_annotators(evidence, alpha_kjl, raw.class_shares, raw.probabilities)
        known = independent(evidence.annotations, alpha_kjl, raw.class_shares)
        judged = _tempered(raw, evidence, known, effect)
        answers = Answers.of(evidence.annotations, judged.probabilities).reported()
        return _named(replace(judged, annotators=replace(raw.annotators, answers=answers)))

    def apply(self, consensus: Consensus, evidence: Evidence) -> Consensus:
        """Judge other items with what was learned."""
        self._require_own(consensus, evidence)
        require_same_classes(consensus, evidence)
        if evidence.probabilities:
            known = self._beside_models(consensus, evidence)
        else:
            alpha_kjl = self._without_models.concentration(consensus, evidence.annotations)
            known = independent(evidence.annotations, alpha_kjl, consensus.class_shares)
        return _tempered(consensus, evidence, known, consensus.design_effect)

    def _require_own(self, consensus: Consensus, evidence: Evidence) -> None:
        """Raise BadEvidence where the consensus was not learned by this method from evidence of this kind."""
        if consensus.fit.method != "default" or consensus.fit.settings.get("method") != name_of(self._method(evidence)):
            raise BadEvidence(
                "not learned by the default combiner of this version from such evidence: "
                + ("with" if evidence.probabilities else "without")
                + " model probabilities (rows of NaN where a model abstains); apply the method that learned it"
            )

    def _beside_models(self, learned: Consensus, evidence: Evidence) -> Independent:
        """The posterior under independence as if no truth were known."""
        applied = self._with_models.apply(learned, replace(evidence, truth=None)).probabilities
        log_q0_nj = np.log(np.maximum(applied, SMALLEST))
        return Independent(evidence.annotations, log_q0_nj, evidence.predicted)

    def _method(self, evidence: Evidence) -> PLEM | HierarchicalDawidSkene:
        return self._with_models if evidence.probabilities else self._without_models

    @property
    def _with_models(self) -> PLEM:
        return PLEM(accuracy=self.accuracy)

    @property
    def _without_models(self) -> HierarchicalDawidSkene:
        return HierarchicalDawidSkene(accuracy=self.accuracy)


def _tempered(learned: Consensus, evidence: Evidence, known: Independent, effect: DesignEffect) -> Consensus:
    judged = learned.judging(evidence.annotations.items, clamp(known.tempered(effect), evidence))
    return replace(judged, design_effect=effect)


def _named(found: Consensus) -> Consensus:
    """The same, under the default's name: the method it chose, asked for by name, finds something else."""
    settings = {"method": found.fit.method, **found.fit.settings}
    return replace(found, fit=replace(found.fit, method="default", settings=settings))
