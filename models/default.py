"""The default combiner: Dawid–Skene with a hierarchy of priors, combined with models, and with corrected confidence.

Three additions make Dawid–Skene suit any crowd and any model (docs/decisions.md has figures):

    hierarchy      priors of the crowd, of each annotator and of each confusion row: a matrix departs from the crowd's
                   only as far as labels support it
    observations   the models' prediction is one more observation of an item, relative to their mean prediction: a
                   model that predicts the same for every item changes nothing
    correction     annotators make the same mistakes, so equal answers count for less than under independence, unless
                   errors are so evenly distributed that no item can have misled several annotators
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np

from hitl.annotations import Floats
from hitl.consensus import Consensus
from hitl.crew import EXPECTED_ACCURACY
from hitl.design_effect import DesignEffect
from hitl.errors import BadEvidence
from hitl.evidence import Evidence
from hitl.models.combiner import name_of, used_shards
from hitl.models.dependence.design_effect import independent, of_annotators
from hitl.models.hierarchy.hierarchical_dawid_skene import HierarchicalDawidSkene
from hitl.models.inference.em import Beliefs
from hitl.models.inference.engine import Shards, Sums
from hitl.models.inference.observed_outputs import Outputs
from hitl.models.inference.warm_start import require_same_classes
from hitl.models.numerics.checks import check_settings
from hitl.models.numerics.clamping import clamp
from hitl.models.numerics.votes import answered

RATIO_VARIANCE = 0.25
"""Variance of the ratio of actual to expected wrong answers of an annotator.

Besides the independent errors of single labels, it allows for an error that all labels of an annotator share. It widens
intervals most for annotators whose items are least certain. With it, the intervals contain the share of right answers
for 88 to 94 % of annotators in public crowds with three or more labels per item (docs/benchmarks/honesty.txt), without
it for 68 %.
"""


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
        check_settings(self)

    def fit(self, evidence: Evidence | Shards, *, start: Consensus | None = None) -> Consensus:
        """Fit the hierarchy, then correct its confidence."""
        shards = used_shards(self, evidence)
        raw, independent_beliefs = self._method.fitted(shards, start)
        alpha_kjl, outputs = raw.annotators.concentration, Outputs.of(shards.tables[0], raw)
        effect = of_annotators(shards, independent_beliefs, alpha_kjl, raw.class_shares, outputs)
        beliefs = shards.once(partial(_corrected, learned=raw, alpha_kjl=alpha_kjl, effect=effect))
        answers_k3, doubted_k = shards.total(partial(_answered, beliefs=beliefs))
        answers = answers_k3 + np.outer(RATIO_VARIANCE * doubted_k**2, [0.0, 0.0, 1.0])
        found = raw if shards.table is None else raw.judging(raw.items, beliefs(shards.table))
        found = replace(found, annotators=replace(raw.annotators, answers=answers), design_effect=effect)
        settings = {"method": raw.fit.method, **raw.fit.settings}  # run by its own name, that method corrects nothing
        return replace(found, fit=replace(raw.fit, method="default", settings=settings))

    def memory(self, evidence: Evidence) -> int:
        """Estimate the bytes that a fit takes at its peak."""
        return self._method.memory(evidence)

    def apply(self, consensus: Consensus, evidence: Evidence) -> Consensus:
        """Predict other items with the learned parameters."""
        self._require_own(consensus, evidence)
        require_same_classes(consensus, evidence)
        alpha_kjl = self._method.concentration(consensus, evidence.annotations)
        q_nj = _corrected(evidence, consensus, alpha_kjl, consensus.design_effect)
        judged = consensus.judging(evidence.annotations.items, q_nj)
        return replace(judged, design_effect=consensus.design_effect)

    def _require_own(self, consensus: Consensus, evidence: Evidence) -> None:
        """Raise BadEvidence unless this method learned the consensus from the same kind of evidence and all models."""
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


def _corrected(evidence: Evidence, learned: Consensus, alpha_kjl: Floats, effect: DesignEffect) -> Floats:
    """Return (N, J) beliefs about the items of a shard, corrected for shared errors.

    `alpha_kjl` (K, J, L): Dirichlet parameters of the shard's annotators.
    """
    known = independent(evidence.annotations, alpha_kjl, learned.class_shares, Outputs.of(evidence, learned))
    return clamp(known.tempered(effect), evidence)


def _answered(evidence: Evidence, beliefs: Beliefs) -> Sums:
    return Sums(answered(evidence.annotations, beliefs(evidence)))
