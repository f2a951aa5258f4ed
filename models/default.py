"""The default combiner: Dawid–Skene with a hierarchy of priors, combined with models, and with corrected confidence.

Three parts make Dawid–Skene suit any crowd and any model (docs/decisions.md has figures):

    hierarchy      crowd, person, confusion rows: matrices are trusted only as far as labels support them
    observations   a model's prediction counts in addition to the labels, relative to its prediction for every item: an
                   uninformative model changes nothing
    correction     annotators err together: equal answers are worth less than they seem, unless errors are so even
                   that no item can have misled them
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from hitl.annotations import Floats
from hitl.consensus import Consensus
from hitl.crew import EXPECTED_ACCURACY
from hitl.design_effect import DesignEffect
from hitl.errors import BadEvidence
from hitl.evidence import Evidence
from hitl.models.combiner import name_of, used_shards
from hitl.models.dependence.answers import Answers
from hitl.models.dependence.design_effect import independent, of_annotators
from hitl.models.hierarchy.hierarchical_dawid_skene import HierarchicalDawidSkene
from hitl.models.inference.em import Beliefs
from hitl.models.inference.engine import Shards
from hitl.models.inference.observed_outputs import Outputs
from hitl.models.inference.warm_start import require_same_classes
from hitl.models.numerics.checks import require_chances
from hitl.models.numerics.clamping import clamp


@dataclass(frozen=True, slots=True)
class DefaultCombiner:
    """Dawid–Skene with a hierarchy of priors, combined with models if there are any, and with corrected confidence.

    `accuracy` is the expected accuracy of annotators, in (0, 1).

    Example:
        >>> from hitl import Annotations, Evidence
        >>> from hitl.models import DefaultCombiner
        >>> annotations = Annotations.from_matrix([[0, 0, 1], [1, 1, -1], [1, 1, 0]], classes=["cat", "dog"])
        >>> consensus = DefaultCombiner().fit(Evidence(annotations))
        >>> consensus.frame()[["item", "label"]].values.tolist()
        [[0, 'cat'], [1, 'dog'], [2, 'dog']]
    """

    uses: ClassVar[frozenset[str]] = frozenset({"probabilities", "truth"})
    fits_shards: ClassVar[bool] = True

    accuracy: float = EXPECTED_ACCURACY

    def __post_init__(self) -> None:
        require_chances(self, "accuracy")

    def fit(self, evidence: Evidence | Shards, *, start: Consensus | None = None) -> Consensus:
        """Fit the hierarchy, then correct its confidence."""
        shards = used_shards(self, evidence)
        raw, independent_beliefs = self._method.fitted(shards, start)
        alpha_kjl, outputs = raw.annotators.concentration, Outputs.of(shards[0], raw)
        effect = of_annotators(shards, independent_beliefs, alpha_kjl, raw.class_shares, outputs)
        beliefs = shards.once(_Corrected(raw, alpha_kjl, effect))
        answers = shards.total(_Answered(beliefs)).reported()
        found = raw if shards.table is None else raw.judging(raw.items, beliefs(shards.table))
        found = replace(found, annotators=replace(raw.annotators, answers=answers), design_effect=effect)
        settings = {"method": raw.fit.method, **raw.fit.settings}  # requested by name, that method gives another result
        return replace(found, fit=replace(raw.fit, method="default", settings=settings))

    def apply(self, consensus: Consensus, evidence: Evidence) -> Consensus:
        """Predict other items with the learned parameters."""
        self._require_own(consensus, evidence)
        require_same_classes(consensus, evidence)
        alpha_kjl = self._method.concentration(consensus, evidence.annotations)
        beliefs = _Corrected(consensus, alpha_kjl, consensus.design_effect)
        judged = consensus.judging(evidence.annotations.items, beliefs(evidence))
        return replace(judged, design_effect=consensus.design_effect)

    def _require_own(self, consensus: Consensus, evidence: Evidence) -> None:
        """Raise BadEvidence unless the consensus was learned by this method from evidence of this kind."""
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


@dataclass(frozen=True, eq=False)
class _Corrected:
    """Corrected beliefs of a shard by Dirichlet parameters (K, J, L) of its annotators."""

    learned: Consensus
    alpha_kjl: Floats
    effect: DesignEffect

    def __call__(self, evidence: Evidence) -> Floats:
        outputs = Outputs.of(evidence, self.learned)
        known = independent(evidence.annotations, self.alpha_kjl, self.learned.class_shares, outputs)
        return clamp(known.tempered(self.effect), evidence)


@dataclass(frozen=True, eq=False)
class _Answered:
    beliefs: Beliefs

    def __call__(self, evidence: Evidence) -> Answers:
        return Answers.of(evidence.annotations, self.beliefs(evidence))
