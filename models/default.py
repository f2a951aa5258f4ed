"""The default combiner: Dawid–Skene with a hierarchy of priors, beside models; its confidence corrected.

Three things make Dawid–Skene fit for any crowd and any model (docs/decisions.md has figures):

    hierarchy      crowd, person, confusion rows: matrices are believed only as far as labels bear them
    observations   what models say of an item counts beside its labels, less what they say of every item: a model that
                   tells nothing changes nothing
    correction     annotators err together: alike answers are worth less than they seem, unless errors lie so evenly
                   that no item can have misled them
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from hitl.consensus import Consensus
from hitl.crew import EXPECTED_ACCURACY
from hitl.design_effect import DesignEffect
from hitl.errors import BadEvidence
from hitl.evidence import Evidence
from hitl.models.annotators.mean_rows import log_means
from hitl.models.combiner import FittedToShards, name_of, used
from hitl.models.dependence import over_shards
from hitl.models.dependence.design_effect import Independent, independent, of_annotators
from hitl.models.dependence.over_shards import Answers, ByRows, Tempered
from hitl.models.hierarchy.hierarchical_dawid_skene import HierarchicalDawidSkene
from hitl.models.inference.observed_outputs import Outputs
from hitl.models.inference.over_shards import used_of
from hitl.models.inference.passes import IN_TURN, Engine, first_of
from hitl.models.inference.warm_start import require_same_classes
from hitl.models.numerics.checks import require_chances
from hitl.models.numerics.clamping import clamp


@dataclass(frozen=True, slots=True)
class DefaultCombiner:
    """Dawid–Skene with a hierarchy of priors, beside models where there are any; its confidence corrected.

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
        """Fit to a table."""
        evidence = used(self, evidence)
        return self._corrected(self._method.fit(evidence, start=start), evidence)

    def fit_shards(
        self, shards: Sequence[Evidence], *, start: Consensus | None = None, engine: Engine = IN_TURN
    ) -> FittedToShards:
        """Fit to shards; see `Shardable`."""
        shards = used_of(self, shards)
        raw = self._method.fit_shards(shards, start=start, engine=engine)
        people, shares = raw.consensus.annotators, raw.consensus.class_shares
        outputs = Outputs.of(first_of(shards), raw.consensus)
        judged = ByRows(log_means(people.concentration), shares, outputs)
        effect = over_shards.of_annotators(shards, engine, raw.beliefs, people.concentration, shares, outputs)
        beliefs = Tempered(judged, effect)
        people = replace(people, answers=over_shards.answers(shards, engine, beliefs).reported())
        found = replace(raw.consensus, annotators=people, design_effect=effect)
        return FittedToShards(_named(found), beliefs)

    def apply(self, consensus: Consensus, evidence: Evidence) -> Consensus:
        """Judge other items with what was learned."""
        self._require_own(consensus, evidence)
        require_same_classes(consensus, evidence)
        alpha_kjl = self._method.concentration(consensus, evidence.annotations)
        outputs = Outputs.of(evidence, consensus)
        known = independent(evidence.annotations, alpha_kjl, consensus.class_shares, outputs)
        return _tempered(consensus, evidence, known, consensus.design_effect)

    def _corrected(self, raw: Consensus, evidence: Evidence) -> Consensus:
        """What the hierarchy says, its confidence corrected."""
        alpha_kjl, outputs = raw.annotators.concentration, Outputs.of(evidence, raw)
        effect = of_annotators(evidence, alpha_kjl, raw.class_shares, raw.probabilities, outputs)
        known = independent(evidence.annotations, alpha_kjl, raw.class_shares, outputs)
        judged = _tempered(raw, evidence, known, effect)
        answers = Answers.of(evidence.annotations, judged.probabilities).reported()
        return _named(replace(judged, annotators=replace(raw.annotators, answers=answers)))

    def _require_own(self, consensus: Consensus, evidence: Evidence) -> None:
        """Raise BadEvidence where the consensus was not learned by this method from evidence of this kind."""
        if consensus.fit.method != "default" or not self._learned_from_such(consensus, evidence):
            raise BadEvidence(
                "not learned by the default combiner of this version from such evidence: "
                + ("with" if evidence.probabilities else "without")
                + " model probabilities (rows of NaN where a model abstains); apply the method that learned it"
            )
        unmet = sorted(set(evidence.probabilities) - set(consensus.temperatures))
        if unmet:
            raise BadEvidence(f"probabilities of {', '.join(unmet)}: had no part in the fit; fit again to add a model")

    def _learned_from_such(self, consensus: Consensus, evidence: Evidence) -> bool:
        own = consensus.fit.settings.get("method") == name_of(self._method)
        return own and bool(consensus.temperatures) == bool(evidence.probabilities)

    @property
    def _method(self) -> HierarchicalDawidSkene:
        return HierarchicalDawidSkene(accuracy=self.accuracy)


def _tempered(learned: Consensus, evidence: Evidence, known: Independent, effect: DesignEffect) -> Consensus:
    judged = learned.judging(evidence.annotations.items, clamp(known.tempered(effect), evidence))
    return replace(judged, design_effect=effect)


def _named(found: Consensus) -> Consensus:
    """The same, under the default's name: the method it chose, asked for by name, finds something else."""
    settings = {"method": found.fit.method, **found.fit.settings}
    return replace(found, fit=replace(found.fit, method="default", settings=settings))
