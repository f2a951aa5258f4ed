"""The default combiner: Dawid–Skene with a hierarchy of priors, combined with models, and with corrected confidence.

Four additions make Dawid–Skene suit any crowd and any model (figures: docs/benchmarks/honesty.txt):

    hierarchy      priors of the crowd, of each annotator and of each confusion row: a matrix departs from the crowd's
                   only as far as labels support it
    readings       the same labels may mean that annotators overlook one class, or that items of the other are hard
                   (`hierarchical_dawid_skene`): the parameters of both readings are averaged
    observations   the models' prediction is one more observation of an item, relative to their mean prediction: a
                   model that predicts the same for every item changes nothing
    correction     annotators make the same mistakes, so equal answers count for less than under independence, by as
                   much as errors correlate in the labels (`dependence.replicas`)

Let P be the probability that annotators err together, and e the excess of their correlation: uneven errors are counted
by the beliefs of the first reading, and excesses measured against replicas of the second. The weight of the first
reading, which expects shared errors, is  w = P min(1, LEAST_WEIGHT + BY_EXCESS e).  Items of known truth multiply both
readings by their likelihood.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np
from scipy.special import expit, logit

from hitl.annotations import Floats
from hitl.consensus import Consensus
from hitl.crew import EXPECTED_ACCURACY
from hitl.design_effect import DesignEffect
from hitl.errors import BadEvidence
from hitl.evidence import Evidence
from hitl.models.combiner import array_bytes, name_of, used_shards
from hitl.models.dependence.design_effect import held_out, independent, of_crowd
from hitl.models.dependence.replicas import Dependence, dependence, excesses
from hitl.models.dependence.uneven_errors import crowd_counts, log_bayes_factor
from hitl.models.hierarchy.crowd_shares import averaged_shares
from hitl.models.hierarchy.hierarchical_dawid_skene import HierarchicalDawidSkene
from hitl.models.hierarchy.ordered_skills import grid_bytes
from hitl.models.hierarchy.shared_error_fit import has_few_labels_for_its_classes
from hitl.models.inference.em import Beliefs
from hitl.models.inference.engine import Shards, Sums, Table
from hitl.models.inference.observed_outputs import Outputs
from hitl.models.inference.sample import Sample
from hitl.models.inference.warm_start import require_same_classes
from hitl.models.numerics.checks import check_settings
from hitl.models.numerics.clamping import clamp
from hitl.models.numerics.votes import answered
from hitl.tables.shared_errors import share_errors

DEPENDENCE, READINGS = "dependence", "readings"
"""Names under which a consensus stores P, e and the weight of the first reading, and (J, J) how many items of unknown
truth have each pair of labels by the two readings.
"""

TABLES, BELIEFS = 18, 14
"""Arrays (K, L, J) and (N, J) that a fit has at its peak, which is in the second reading. Measured."""

LEAST_WEIGHT, BY_EXCESS = 0.25, 2.5
"""Weight of the first reading if shared errors leave no trace, and what it gains per unit of excess."""

RATIO_VARIANCE = 0.25
"""Variance of the ratio of actual to expected wrong answers of an annotator, which widens the interval of accuracy.

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
        raw, effect = self._learned(shards, start)
        alpha_kjl = raw.annotators.concentration
        beliefs = shards.once(partial(_corrected, learned=raw, alpha_kjl=alpha_kjl, effect=effect))
        answers_k3, doubted_k = shards.total(partial(_answered, beliefs=beliefs))
        answers = answers_k3 + np.outer(RATIO_VARIANCE * doubted_k**2, [0.0, 0.0, 1.0])
        found = raw if shards.table is None else raw.judging(raw.items, beliefs(shards.table))
        found = replace(found, annotators=replace(raw.annotators, answers=answers), design_effect=effect)
        settings = {"method": raw.fit.method, **raw.fit.settings}  # run by its own name, that method corrects nothing
        return replace(found, fit=replace(raw.fit, method=name_of(self), settings=settings))

    def _learned(self, shards: Shards, start: Consensus | None) -> tuple[Consensus, DesignEffect]:
        """Fit both readings. Return their average and its design effect."""
        first, beliefs = self._method.fitted(shards, start)
        classes, outputs = len(first.classes), Outputs.of(shards.tables[0], first)
        uneven = log_bayes_factor(shards.total(partial(_crowd, beliefs=beliefs)))
        uneven = 0.0 if shards.annotations.ordered else uneven  # errors towards neighbors are uneven in any case

        def corrected(raw: Consensus, together: Dependence) -> tuple[DesignEffect, float]:
            """Return the design effect of a fit, and the log probability of the known truths under both."""
            if not shards.size.known:
                return of_crowd(together, outputs, None, classes), 0.0
            alpha_kjl, share_j = raw.annotators.concentration, raw.class_shares
            known = shards.total(partial(held_out, alpha_kjl=alpha_kjl, share_j=share_j, outputs=outputs))
            effect = of_crowd(together, outputs, known, classes)
            return effect, known.log_probability(effect)

        if share_errors(first.annotators.confusion):
            return first, corrected(first, dependence(uneven, None))[0]
        sample = shards.total(partial(Sample.of, beliefs=beliefs))
        share_j = first.class_shares
        if (sample.labels_n >= 2).any():  # single labels fit any shares
            share_j = averaged_shares(sample.votes(shards.annotations.n_options), sample.q_nj, share_j)
        share_j = share_j + outputs.informativeness * (first.class_shares - share_j)  # models tell the shares
        second = self._method.freed(shards, first, beliefs, share_j)
        together = dependence(uneven, excesses(sample, shards.annotations, share_j, partial(self._refit, share_j)))
        weight = together.chance * min(1.0, LEAST_WEIGHT + BY_EXCESS * together.excess)
        log_odds = logit(weight) + corrected(first, together)[1] - corrected(second, together)[1]
        weight = float(expit(log_odds))
        labels_jj = shards.total(partial(_labels, first=first, second=second))
        both = averaged(first, second, weight)
        told = {DEPENDENCE: np.array([together.chance, together.excess, weight]), READINGS: labels_jj}
        return replace(both, parameters={**both.parameters, **told}), corrected(both, together)[0]

    def _refit(self, share_j: Floats, table: Evidence, first_nj: Floats) -> tuple[Floats, Floats]:
        """Fit the second reading to a table. Return Dirichlet parameters (K, J, L) and beliefs (N, J)."""
        shards = Table(table)
        found = self._method.freed(shards, None, lambda _: first_nj, share_j)
        return found.annotators.concentration, found.probabilities

    def memory(self, evidence: Evidence) -> int:
        """Estimate the bytes that a fit takes at its peak."""
        if has_few_labels_for_its_classes(evidence.annotations):
            return self._method.memory(evidence)
        return array_bytes(evidence.annotations, TABLES, BELIEFS) + grid_bytes(evidence.annotations)

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
        if consensus.fit.method != name_of(self) or not self._learned_from_such(consensus, evidence):
            raise BadEvidence(
                f"not learned by the {name_of(self)} combiner of this version from such evidence: "
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


def averaged(first: Consensus, second: Consensus, weight: float) -> Consensus:
    """Return the first fit with the average of the parameters of both, with this weight of the first, in [0, 1]."""
    people, share_j = first.annotators, weight * first.class_shares + (1 - weight) * second.class_shares
    alpha_kjl, prior_jl = (
        weight * getattr(people, name) + (1 - weight) * getattr(second.annotators, name)
        for name in ("concentration", "prior")
    )
    pi_kjl = alpha_kjl / alpha_kjl.sum(axis=2, keepdims=True)
    people = replace(people, concentration=alpha_kjl, confusion=pi_kjl, prior=prior_jl, shares=share_j)
    fit = replace(first.fit, converged=first.fit.converged and second.fit.converged)
    return replace(first, annotators=people, class_shares=share_j, fit=fit)


def _labels(evidence: Evidence, first: Consensus, second: Consensus) -> Floats:
    """Return (J, J) number of items of a shard by their labels under both readings; rows: the first."""
    classes, open_n = len(first.classes), ~evidence.known & (evidence.annotations.labels_per_item > 0)
    pair_n = np.zeros(int(open_n.sum()), dtype=np.intp)
    for raw in (first, second):
        outputs = Outputs.of(evidence, raw)
        log_q_nj = independent(evidence.annotations, raw.annotators.concentration, raw.class_shares, outputs).log_q0_nj
        pair_n = pair_n * classes + log_q_nj[open_n].argmax(axis=1)
    return np.bincount(pair_n, minlength=classes**2).reshape(classes, classes).astype(np.float64)


def _crowd(evidence: Evidence, beliefs: Beliefs) -> Floats:
    return crowd_counts(evidence, beliefs(evidence))


def _answered(evidence: Evidence, beliefs: Beliefs) -> Sums:
    return Sums(answered(evidence.annotations, beliefs(evidence)))
