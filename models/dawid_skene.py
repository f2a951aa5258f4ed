"""Dawid–Skene (Dawid & Skene 1979): class shares and one confusion matrix per annotator, by EM.

    z_n ~ Cat(p)        l_nk | z_n = j ~ Cat(pi_k[j])        q_nj = p(z_n = j | labels)

    E   q_nj ∝ p_j prod_k pi[k, j, l_nk]                                   (eq. 2.5)
    M   pi[k, j, l] ∝ sum_{n: l_nk = l} q_nj + b_jl,   p_j ∝ sum_n q_nj + b  (eqs. 2.3, 2.4, as posterior modes)

EM starts from the votes. With `smoothing` b = 0.01 the estimates are close to maximum likelihood. If `accuracy` is set,
the prior of each row expects that accuracy with the weight of a few labels (Kerrigan 2021), which regularizes
annotators with few labels. There may be more label options than classes. Items with ground truth keep it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from hitl.annotations import Annotations, Floats
from hitl.consensus import Consensus
from hitl.crew import EXPECTED_LABELS
from hitl.evidence import Evidence
from hitl.models.annotators import confusion
from hitl.models.combiner import used_shards
from hitl.models.inference import em, uncompared, warm_start
from hitl.models.inference.engine import Shards
from hitl.models.numerics.checks import check_settings
from hitl.models.priors.shares import Shares


@dataclass(frozen=True, slots=True)
class DawidSkene:
    """Dawid–Skene by maximum a posteriori.

    Attributes:
        smoothing: pseudo-count of each confusion cell if `accuracy` is None, > 0.
        accuracy: expected accuracy of annotators in (0, 1), or None for a uniform prior.
        strength: sum of the pseudo-counts of a confusion row if `accuracy` is set, > 0.
        share_smoothing: number of pseudo-items per class in the class shares, > 0; large values keep shares uniform.
        least_labels: minimum number of labels of an item to learn from it, unless its truth is known. All items
            are predicted. A single label does not show who is right, so 2 keeps a project with few labels from
            collapsing into one class.
        tolerance: EM stops when an iteration gains less than this, in nats per item.

    Example:
        >>> from hitl import Annotations, Evidence, models
        >>> evidence = Evidence(Annotations.from_matrix([[0, 0, 1], [1, 1, -1], [1, 1, 0]]))
        >>> models.DawidSkene().fit(evidence).labels.tolist()
        [0, 1, 1]
    """

    uses: ClassVar[frozenset[str]] = frozenset({"truth"})
    fits_shards: ClassVar[bool] = True

    smoothing: float = 0.01
    accuracy: float | None = None
    strength: float = EXPECTED_LABELS
    share_smoothing: float = 0.01
    least_labels: int = 1
    tolerance: float = 1e-7
    max_iterations: int = 1000

    def __post_init__(self) -> None:
        check_settings(self)

    def fit(self, evidence: Evidence | Shards, *, start: Consensus | None = None) -> Consensus:
        """Run EM from the votes, or from `start`."""
        shards = used_shards(self, evidence)
        began = time.perf_counter()
        annotations = shards.annotations
        pseudo_jl = self._pseudo_counts(annotations)
        found = uncompared.run_em(
            shards,
            Shares.even(annotations.n_classes, self.share_smoothing),
            confusion.Confusion.unlearned(pseudo_jl, annotations.n_annotators),
            partial(warm_start.first_beliefs, start=start, unmet_jl=pseudo_jl),
            tolerance=self.tolerance,
            max_iterations=self.max_iterations,
            least_labels=self.least_labels,
        )
        people = confusion.report(annotations, found.counts_klj, pseudo_jl, found.prior.share_j)
        return em.concluded(self, began, shards, found, people)

    def apply(self, consensus: Consensus, evidence: Evidence) -> Consensus:
        """Predict other items, labeled by the same or new annotators, with the learned parameters."""
        return warm_start.applied(consensus, evidence, self._unmet(consensus, evidence.annotations))

    def _pseudo_counts(self, annotations: Annotations) -> Floats:
        j, options = annotations.n_classes, annotations.n_options
        if self.accuracy is None:
            return confusion.even_pseudo_counts(j, options, self.smoothing)
        off = self.strength * (1 - self.accuracy) / (options - 1)
        return confusion.accurate_pseudo_counts(j, options, self.accuracy, off)

    def _unmet(self, learned: Consensus, annotations: Annotations) -> Floats:
        """Return (J, L) confusion rows of new annotators, on any scale: the crowd's if the prior is uniform."""
        prior_jl = self._pseudo_counts(annotations)
        return prior_jl if self.accuracy else confusion.crowd_rows(learned.annotators, annotations, prior_jl)
