"""Dawid–Skene whose annotators are known in steps: crowd, person, rows; for crowds that label little and much.

    z_n ~ Cat(p)        l_nk | z_n = j ~ Cat(pi_kj)        pi_kj ~ Dirichlet, its prior learned (`skills`)

EM by class shares and rows with the hierarchy held, and the hierarchy learned anew from the expected counts, in turn.
What is learned is what labels can tell:

    weight     u = sum (m_n - 1) / sum m_n over the items with m_n >= 2 labels that are a class, for one label of each
               is spent on its class; an item of known truth counts 1
    lone       an item with one label says what the crowd answers, and nothing of how good its annotator is: it counts
               u for the crowd and nothing for persons
    anchor     (1 - w) of the beliefs and w of the agreeing pairs of votes count, so that no class drifts away from
               those who vote for it
    shares     what is left of an item, 1 - u or all, counts as its votes say, and `SHARES` even items count beside

Where questions are chosen by what was answered, contested items have more labels than others, and which items have one
label depends on that label. Hence all labels weigh alike, and lone ones count for the crowd: by weights (m_n - 1) / m_n
annotators seem worse than they are, and in replays whole classes were lost (docs/decisions.md, 2026-11-23).

With two labels an item nothing but the votes tells classes from errors: that most answers of a kind are errors, or
that most items are of it, explains the same labels. Hence the shares stay near even until hundreds of pairs say more.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from scipy import sparse

from hitl.annotations import Annotations, Floats
from hitl.consensus import Consensus
from hitl.crew import EXPECTED_ACCURACY
from hitl.evidence import Evidence
from hitl.models.annotators import confusion
from hitl.models.annotators.dirichlet_confusion import learned_concentration
from hitl.models.combiner import used
from hitl.models.hierarchy.skills import CROWD, SkilledRows, Skills
from hitl.models.hierarchy.weighed_shares import WeighedShares
from hitl.models.inference import em, warm_start
from hitl.models.inference.incremental import IncrementalEM, Rule
from hitl.models.inference.warm_start import goes_on, iterations, require_same_classes
from hitl.models.numerics import kernels
from hitl.models.numerics.checks import require_between, require_chances, require_counts, require_positive
from hitl.models.numerics.clamping import clamp
from hitl.models.numerics.votes import agreement, votes

ANCHOR, ANCHOR_OF_TWO = 0.5, 0.2
"""Weight of the votes in what is learned from; with two classes there is no third that could be taken over."""

SHARES = 100.0
"""Even items beside those that the shares are learned from."""

ROUNDS, STEPS = 12, 10
"""Times that the hierarchy is learned at most, and iterations of EM between them."""

ROUNDS_OF_UPDATE = 2
"""The same in an update, which begins next to where it ends."""

AT_REST = 1e-4
"""Mean change of a belief in a round that ends the rounds."""


@dataclass(frozen=True, slots=True)
class HierarchicalDawidSkene:
    """Dawid–Skene with a hierarchy of priors: crowd, person, confusion rows.

    Attributes:
        accuracy: expected of annotators before any label is seen, in (0, 1).
        anchor: weight of agreeing votes in what is learned from, in [0, 1); None: .5, with two classes .2.
        tolerance: an iteration of EM that gains less, in nats an item, is the last.
        max_iterations: most iterations of EM after the last round.

    Example:
        >>> from hitl import Annotations, Evidence
        >>> from hitl.models.hierarchy.hierarchical_dawid_skene import HierarchicalDawidSkene
        >>> evidence = Evidence(Annotations.from_matrix([[0, 0, 1], [1, 1, -1], [1, 1, 0]]))
        >>> HierarchicalDawidSkene().fit(evidence).labels.tolist()
        [0, 1, 1]
    """

    uses: ClassVar[frozenset[str]] = frozenset({"truth"})

    accuracy: float = EXPECTED_ACCURACY
    anchor: float | None = None
    tolerance: float = 1e-6
    max_iterations: int = 500

    def __post_init__(self) -> None:
        require_chances(self, "accuracy")
        require_positive(self, "tolerance")
        require_counts(self, "max_iterations")
        if self.anchor is not None:
            require_between("anchor", self.anchor, -1e-300, 1)

    def fit(self, evidence: Evidence, *, start: Consensus | None = None) -> Consensus:
        """Learn hierarchy, rows and beliefs in turn, from the votes or from what `start` learned."""
        return self._fitted(used(self, evidence), start, ROUNDS, self.max_iterations)

    def _fitted(self, evidence: Evidence, start: Consensus | None, rounds: int, max_iterations: int) -> Consensus:
        began = time.perf_counter()
        counted = Counted.of(evidence, self._anchor(evidence.annotations))
        prior = counted.shares(evidence)
        q_nj = warm_start.first_beliefs(evidence, start, self._unmet(evidence.annotations))
        skills = counted.skills(counted.by(q_nj), q_nj, self.accuracy)
        for _ in range(rounds):
            found = self._climbed(evidence, prior, skills, q_nj, counted, STEPS)
            skills = counted.skills(found.counts_klj, found.q_nj, self.accuracy)
            moved, q_nj, prior = _moved(found.q_nj, q_nj), found.q_nj, found.prior
            del found  # of many classes its tables are the largest part of memory
            if moved < AT_REST:
                break
        found = self._climbed(evidence, prior, skills, q_nj, counted, max_iterations)
        alpha_klj = counted.anchored(found.counts_klj)
        alpha_klj += skills.prior_klj
        people = confusion.report_of(
            evidence.annotations, alpha_klj.transpose(0, 2, 1), found.prior.share_j, prior=skills.crowd_jl
        )
        return em.concluded(self, began, evidence, found, people)

    def apply(self, consensus: Consensus, evidence: Evidence) -> Consensus:
        """Judge other items, by the same or new annotators, with what was learned."""
        known = consensus.annotators.prior
        return warm_start.applied(consensus, evidence, self._unmet(evidence.annotations) if known is None else known)

    def concentration(self, consensus: Consensus, annotations: Annotations) -> Floats:
        """(K, J, L) Dirichlet parameters of these annotators by what was learned; those not met as the crowd."""
        return learned_concentration(consensus.annotators, self._unmet(annotations), annotations)

    def update(self, consensus: Consensus, evidence: Evidence) -> Consensus:
        """What `consensus` becomes with the labels as they are now, in a few iterations; see `Updatable`."""
        return self._again(consensus, evidence) if goes_on(consensus, evidence) else self.fit(evidence)

    def follow(self, consensus: Consensus, evidence: Evidence) -> IncrementalEM:
        """Follow the labels one by one, the hierarchy held; see `Followable`."""
        require_same_classes(consensus, evidence)
        q_nj = warm_start.first_beliefs(evidence, consensus, self._unmet(evidence.annotations))
        return IncrementalEM(consensus, evidence, q_nj, self._rule, self._again, self.fit)

    def _again(self, consensus: Consensus, evidence: Evidence) -> Consensus:
        return self._fitted(evidence, consensus, ROUNDS_OF_UPDATE, iterations(self.max_iterations))

    def _rule(self, consensus: Consensus, evidence: Evidence) -> Rule:
        counted = Counted.of(evidence, self._anchor(evidence.annotations))
        q_nj = warm_start.first_beliefs(evidence, consensus, self._unmet(evidence.annotations))
        skills = counted.skills(counted.by(q_nj), q_nj, self.accuracy)
        return Rule(
            skills.crowd_jl,
            counted.shares(evidence).pseudo_j,
            anchor=counted.anchor,
            least_labels=2,
            pseudo_klj=skills.prior_klj,
            weight=counted.weight,
            of_a_class=True,
            above_mode=0.0,
        )

    def _climbed(
        self, evidence: Evidence, prior: WeighedShares, skills: Skills, q_nj: Floats, counted: Counted, most: int
    ) -> em.Estimate[WeighedShares, SkilledRows]:
        return em.maximise(
            evidence,
            prior,
            SkilledRows.unlearned(counted.pseudo_counts(skills)),
            q_nj,
            tolerance=self.tolerance,
            max_iterations=most,
            least_labels=2,
            counts=lambda _annotations, q_nj, _among_n, _log_pi_klj: counted.by(q_nj),
        )

    def _anchor(self, annotations: Annotations) -> float:
        if self.anchor is not None:
            return self.anchor
        return ANCHOR if annotations.n_classes > 2 else ANCHOR_OF_TWO

    def _unmet(self, annotations: Annotations) -> Floats:
        """(J, L) rows of an annotator of whom nothing is known."""
        wrong = CROWD * (1 - self.accuracy) / (annotations.n_options - 1)
        return confusion.on_the_diagonal(annotations.n_classes, annotations.n_options, CROWD * self.accuracy, wrong)


def _moved(new_nj: Floats, old_nj: Floats) -> float:
    return float(np.abs(new_nj - old_nj).mean()) if new_nj.size else 0.0


@dataclass(frozen=True, eq=False)
class Counted:
    """What counts of the labels, and how much.

    Attributes:
        annotations: the labels.
        weight_n: (N,) how much an item counts: u, 1 with known truth, 0 with less than two labels.
        lone_m: which labels are about items with one.
        weight: u, in [0, 1).
        anchor: w, weight of the votes, in [0, 1).
        votes_klj: (K, L, J) counts by the shares of agreeing pairs of votes, weighed.
    """

    annotations: Annotations
    weight_n: Floats
    lone_m: npt.NDArray[np.intp]
    weight: float
    anchor: float
    votes_klj: Floats

    @classmethod
    def of(cls, evidence: Evidence, anchor: float) -> Counted:
        """By the number of labels of each item, and by known truth."""
        annotations = evidence.annotations
        of_a_class = annotations.label < annotations.n_classes
        labels_n = np.bincount(annotations.item[of_a_class], minlength=annotations.n_items)
        several_n = labels_n >= 2
        weight = 1 - several_n.sum() / max(labels_n[several_n].sum(), 1) if several_n.any() else 0.0
        weight_n = np.where(evidence.known, 1.0, weight * several_n)
        lone_m = np.flatnonzero(((labels_n == 1) & ~evidence.known)[annotations.item])
        agreed_nj = clamp(agreement(annotations), evidence)
        votes_klj = kernels.counts(annotations, agreed_nj * weight_n[:, None])
        return cls(annotations, weight_n, lone_m, weight, anchor, votes_klj)

    def by(self, q_nj: Floats) -> Floats:
        """(K, L, J) expected counts by beliefs (N, J)."""
        return kernels.counts(self.annotations, q_nj * self.weight_n[:, None])

    def skills(self, counts_klj: Floats, q_nj: Floats, accuracy: float) -> Skills:
        """The hierarchy by expected counts, anchored, and by lone labels."""
        return Skills.learned(self.anchored(counts_klj), accuracy, self._lone(q_nj))

    def _lone(self, q_nj: Floats) -> Floats:
        """(L, J) expected counts of lone labels by beliefs."""
        label_m, q_mj = self.annotations.label[self.lone_m], q_nj[self.annotations.item[self.lone_m]]
        options = self.annotations.n_options
        said = np.ones(len(label_m)), (label_m, np.arange(len(label_m)))
        lone_lj: Floats = sparse.csr_array(said, shape=(options, len(label_m))) @ q_mj
        return self.weight * lone_lj

    def anchored(self, counts_klj: Floats) -> Floats:
        """(K, L, J) what is learned from, given counts by beliefs."""
        learned_klj: Floats = self.anchor / (1 - self.anchor) * self.votes_klj
        learned_klj += counts_klj
        learned_klj *= 1 - self.anchor
        return learned_klj

    def pseudo_counts(self, skills: Skills) -> Floats:
        """(K, L, J) what stands beside the counts by beliefs, in their unit."""
        pseudo_klj: Floats = self.anchor * self.votes_klj
        pseudo_klj += skills.prior_klj
        pseudo_klj /= 1 - self.anchor
        return pseudo_klj

    def shares(self, evidence: Evidence) -> WeighedShares:
        """The shares before any belief: what the weights leave of the items counts by votes, beside items spread
        evenly over the classes that anybody has named."""
        labeled_n = (self.annotations.labels_per_item > 0) | evidence.known
        votes_nj = clamp(votes(self.annotations), evidence)
        votes_nj = votes_nj / np.maximum(votes_nj.sum(axis=1, keepdims=True), 1.0)
        counted, used_j = self.weight_n.sum(), votes_nj.any(axis=0)
        even = SHARES * labeled_n.sum() / max(counted, 1.0)
        even_j = np.where(used_j, even / max(used_j.sum(), 1), 0.0) + 1 / used_j.size
        left_n = np.where(counted > 0, 1 - self.weight_n, 0.0)
        return WeighedShares.unlearned(self.weight_n, left_n @ votes_nj + even_j)
