"""Dawid–Skene with a hierarchy of crowd, person and confusion rows, for crowds with few or many labels.

    z_n ~ Cat(p)        l_nk | z_n = j ~ Cat(pi_kj)        pi_kj ~ Dirichlet, its prior learned (`skills`)

EM over class shares and rows, with the hierarchy held fixed, alternates with learning the hierarchy from the expected
counts. Counts are weighted by how much information labels have about annotators:

    weight     u = sum (m_n - 1) / sum m_n over the items with m_n >= 2 class labels, because one label per item
               is used up for its class; an item with ground truth counts 1
    lone       an item with one label counts u too, but all of an annotator's such labels together count at most as
               much as those that others answered too: they show which answers get compared, but compare nothing
    anchor     beliefs count (1 - v) and agreeing pairs of votes count v, so that no class drifts away from the
               annotators who vote for it; v is `ANCHOR`, and `ANCHOR_OF_TWO` with two classes
    shares     the remainder of an item, 1 - u or all of it, counts by its votes, and `SHARES` pseudo-items are added:
               uniform over the classes in use, except for 1 / (n + 1) of them, with n items of two or more labels, for
               classes that may still occur

If earlier answers decide which items get more labels, then whether an item has only one label depends on that label.
Hence all labels have the same weight. Without lone labels, answers that are never asked about again would seem rarer
than they are, and the crowd would seem to overlook their class (docs/decisions.md, 2026-11-29).

With two labels per item only the votes distinguish classes from errors: the same labels arise if most answers of a kind
are errors, or if most items are of that class. Hence the shares stay near uniform until there are hundreds of pairs.

So there are two readings of the same labels (`Reading`). The one above expects of annotators that they recognize all
classes about equally well. In the second (`freed`) the crowd may overlook a class: the strength of the recalls' prior
is learned, votes have no weight (v = 0), and the shares are given (`crowd_shares`).

A model prediction is one more observation of its item, p(x_n | z_n) (`observed_outputs`). It is divided by the class
shares of the models, because these may be as wrong as the labels that a model was trained on. With models of
informativeness k, in [0, 1], only 1 - k labels of a predicted item are used up for its class:

    weight     u = sum (m_n - 1 + k) / sum m_n; an item with fewer than two labels counts at least k
    shares     of the `SHARES` pseudo-items, 1 - k are uniform and k follow the models
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from hitl.annotations import Annotations, Floats
from hitl.consensus import Consensus
from hitl.crew import EXPECTED_ACCURACY
from hitl.evidence import Evidence
from hitl.models import combiner
from hitl.models.annotators import confusion
from hitl.models.annotators.dirichlet_confusion import learned_concentration
from hitl.models.annotators.mean_rows import messages
from hitl.models.combiner import array_bytes, used_shards
from hitl.models.hierarchy.counted import Counted, Left, Pairs, Reading, Weighed, least_labels, shares_before
from hitl.models.hierarchy.ordered_skills import grid_bytes
from hitl.models.hierarchy.shared_error_fit import fit_shared_errors, has_few_labels_for_its_classes
from hitl.models.hierarchy.skills import CROWD
from hitl.models.inference import em, warm_start
from hitl.models.inference.engine import Shards
from hitl.models.inference.loop import Expected
from hitl.models.inference.observed_outputs import Outputs
from hitl.models.inference.unsupervised_pool import weights_per_item
from hitl.models.inference.warm_start import require_same_classes
from hitl.models.numerics.checks import check_settings
from hitl.models.numerics.clamping import observe
from hitl.models.numerics.votes import voted
from hitl.models.priors.calibrated import learned_shares
from hitl.tables.shared_errors import as_array, share_errors

ANCHOR, ANCHOR_OF_TWO = 0.5, 0.2
"""Weight of the votes in the counts. It keeps a class from taking over a similar one, so two classes need less."""

ROUNDS, STEPS = 12, 10
"""Maximum number of rounds, each of which learns the hierarchy, and maximum iterations of EM per round."""

AT_REST = 1e-4
"""Mean absolute change of a belief in a round below which rounds end."""


@dataclass(frozen=True, slots=True)
class HierarchicalDawidSkene:
    """Dawid–Skene with a hierarchy of priors: crowd, person, confusion rows; models are observations of the items.

    Attributes:
        accuracy: accuracy expected of annotators before any label is seen, in (0, 1).
        anchor: weight of agreeing votes in the counts, in [0, 1); None: .5, or .2 with two classes.
        tolerance: EM stops when an iteration gains less, in nats per item.
        max_iterations: maximum number of iterations of EM after the last round.

    Example:
        >>> from hitl import Annotations, Evidence
        >>> from hitl.models.hierarchy.hierarchical_dawid_skene import HierarchicalDawidSkene
        >>> evidence = Evidence(Annotations.from_matrix([[0, 0, 1], [1, 1, -1], [1, 1, 0]]))
        >>> HierarchicalDawidSkene().fit(evidence).labels.tolist()
        [0, 1, 1]
    """

    uses: ClassVar[frozenset[str]] = frozenset({"probabilities", "truth"})
    fits_shards: ClassVar[bool] = True

    accuracy: float = EXPECTED_ACCURACY
    anchor: float | None = None
    tolerance: float = 1e-6
    max_iterations: int = 500

    def __post_init__(self) -> None:
        check_settings(self)

    def fit(self, evidence: Evidence | Shards, *, start: Consensus | None = None) -> Consensus:
        """Learn the hierarchy, confusion rows and beliefs in turn, starting from the votes or from `start`."""
        return self.fitted(used_shards(self, evidence), start)[0]

    def memory(self, evidence: Evidence) -> int:
        """Estimate the bytes that a fit takes at its peak."""
        few = has_few_labels_for_its_classes(evidence.annotations)
        return array_bytes(evidence.annotations, *((0, 26) if few else (10, 14))) + grid_bytes(evidence.annotations)

    def fitted(self, shards: Shards, start: Consensus | None) -> tuple[Consensus, em.Beliefs]:
        """Fit the first reading to shards. Also return the beliefs of a shard at the end of the fit."""
        began = time.perf_counter()
        outputs = Outputs.learned(shards, weigh=weights_per_item)
        if shards.table is not None and has_few_labels_for_its_classes(shards.annotations):
            return self._with_shared_errors(shards.table, outputs.on(shards.table), began)
        first: em.Beliefs = shards.once(partial(self._first, start=start, outputs=outputs))
        return self._fitted(shards, Reading(self._anchor(shards.annotations)), outputs, first, began)

    def freed(self, shards: Shards, fitted: Consensus | None, first: em.Beliefs, share_j: Floats) -> Consensus:
        """Fit the second reading, with shares (J,), from first beliefs, with the models of the first; None: without."""
        outputs = Outputs.none(share_j.size) if fitted is None else Outputs.of(shards.tables[0], fitted)
        return self._fitted(shards, Reading(0.0, None, share_j), outputs, first, time.perf_counter())[0]

    def _fitted(
        self, shards: Shards, reading: Reading, outputs: Outputs, first: em.Beliefs, began: float
    ) -> tuple[Consensus, em.Beliefs]:
        counted = Counted.of(shards, reading, outputs)
        prior, before = counted.shares(), first
        expected = counted.first(before)
        skills = counted.skills(expected.counts_klj, self.accuracy)
        for _ in range(ROUNDS):
            found, after = counted.run_em(prior, skills, expected, self.tolerance, STEPS)
            moved = counted.moved(before, after)
            skills = counted.skills(found.counts_klj, self.accuracy)
            expected, prior, before = Expected(found.counts_klj, found.statistics, 0.0), found.prior, after
            del found, after  # with many classes their tables take most of the memory
            if moved / max(1, shards.size.counted(0) * shards.annotations.n_classes) < AT_REST:
                break
        del before
        found, beliefs = counted.run_em(prior, skills, expected, self.tolerance, self.max_iterations)
        people = counted.report(skills, found.counts_klj, found.prior)
        return em.concluded(self, began, shards, found, people, **outputs.kept({})), beliefs

    def _with_shared_errors(self, evidence: Evidence, outputs: Outputs, began: float) -> tuple[Consensus, em.Beliefs]:
        """Fit a table of many classes, with one accuracy per annotator; see `shared_error_fit`."""
        weighed = Weighed.of(evidence, Pairs.of(evidence), outputs.informativeness)
        left = Left.by_weights(evidence, weighed)
        shares = shares_before(left, weighed.weight_n, outputs.informativeness, outputs.share_j)
        prior = outputs.beside(shares)
        q_nj = outputs.beside_votes(voted(evidence), evidence)
        informative_n = em.informative(evidence, least_labels(outputs))
        found = fit_shared_errors(evidence, q_nj, prior, weighed, informative_n, self.accuracy)
        consensus = combiner.concluded(
            self,
            began,
            evidence,
            found.q_nj,
            found.report(evidence.annotations),
            objective=found.objective,
            converged=found.converged,
            **outputs.kept({}),
        )
        return consensus, lambda _: found.q_nj

    def apply(self, consensus: Consensus, evidence: Evidence) -> Consensus:
        """Predict other items, by the same or new annotators, with the learned parameters."""
        require_same_classes(consensus, evidence)
        prior = Outputs.of(evidence, consensus).beside(learned_shares(consensus))
        if share_errors(consensus.annotators.confusion):
            message_nj = messages(evidence.annotations, self.concentration(consensus, evidence.annotations))
            everything = np.ones(evidence.annotations.n_items, dtype=bool)
            q_nj = prior.posterior(observe(message_nj, evidence), everything).q_nj
            return consensus.judging(evidence.annotations.items, q_nj)
        known = consensus.annotators.prior
        unmet_jl = self._unmet(evidence.annotations) if known is None else known
        return warm_start.applied_under(prior, consensus, evidence, unmet_jl)

    def concentration(self, consensus: Consensus, annotations: Annotations) -> Floats:
        """Return (K, J, L) learned Dirichlet parameters of these annotators; new annotators get the crowd's."""
        people = consensus.annotators
        if share_errors(people.confusion):
            right = dict(zip(people.names, people.confusion.right_k.tolist(), strict=True))
            average = float(np.average(people.confusion.right_k, weights=people.labels + 1.0))
            return as_array(people.confusion.of(np.array([right.get(k, average) for k in annotations.annotators])))
        return learned_concentration(consensus.annotators, self._unmet(annotations), annotations)

    def _first(self, evidence: Evidence, start: Consensus | None, outputs: Outputs) -> Floats:
        """Return (N, J) first beliefs: models combined with the votes or, where possible, with the fit `start`."""
        outputs = outputs.on(evidence)

        def judge(learned: Consensus) -> Floats:
            prior, unmet_jl = outputs.beside(learned_shares(learned)), self._unmet(evidence.annotations)
            return warm_start.applied_under(prior, learned, evidence, unmet_jl).probabilities

        return warm_start.begin(evidence, start, judge, outputs.beside_votes(voted(evidence), evidence))

    def _anchor(self, annotations: Annotations) -> float:
        if self.anchor is not None:
            return self.anchor
        return ANCHOR if annotations.n_classes > 2 else ANCHOR_OF_TWO

    def _unmet(self, annotations: Annotations) -> Floats:
        """Return (J, L) Dirichlet parameters of an annotator without any data."""
        wrong = CROWD * (1 - self.accuracy) / (annotations.n_options - 1)
        return confusion.on_the_diagonal(annotations.n_classes, annotations.n_options, CROWD * self.accuracy, wrong)
