"""What counts of the labels for the hierarchy, in whole tables (K, L, J); see `hierarchical_dawid_skene`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np

from hitl.annotations import Annotations, Floats
from hitl.consensus import AnnotatorReport
from hitl.evidence import Evidence
from hitl.models.annotators import confusion
from hitl.models.hierarchy.skills import SkilledRows, Skills
from hitl.models.hierarchy.weighed_labels import Left, Pairs, Tally, Weighed
from hitl.models.hierarchy.weighed_shares import WeighedShares
from hitl.models.inference import em
from hitl.models.inference.loop import Expected
from hitl.models.inference.observed_outputs import Observed, Outputs
from hitl.models.priors import Mask

SHARES = 100.0
"""Even items beside those that the shares are learned from."""


class Form(Protocol):
    """What counts of the labels of a table, in some form; the counts and the hierarchy have forms of their own."""

    @classmethod
    def of(cls, evidence: Evidence, anchor: float, outputs: Outputs) -> Self:
        """Of one table."""
        ...

    def by(self, q_nj: Floats) -> Floats:
        """Expected counts by beliefs (N, J)."""
        ...

    def lone(self, q_nj: Floats) -> Floats:
        """(L, J) expected counts of lone labels by beliefs."""
        ...

    def shares(self) -> WeighedShares:
        """The shares before any belief."""
        ...

    def skills(self, counts: Floats, lone_lj: Floats, accuracy: float) -> Any:
        """The hierarchy by expected counts, anchored, and by lone labels."""
        ...

    def climbed(
        self,
        evidence: Evidence,
        prior: Observed[WeighedShares],
        skills: Any,
        q_nj: Floats,
        begun: Callable[[], Expected],
        tolerance: float,
        most: int,
    ) -> em.Estimate[Observed[WeighedShares], Any]:
        """EM from beliefs (N, J), whose expectations `begun` gives, the hierarchy held."""
        ...

    def report(self, annotations: Annotations, skills: Any, counts: Floats, shares: WeighedShares) -> AnnotatorReport:
        """What the fit says of the annotators."""
        ...


@dataclass(frozen=True, eq=False)
class Counted:
    """What counts of the labels, of one table or of all shards.

    Attributes:
        weight: u, in [0, 1).
        anchor: w, weight of the votes, in [0, 1).
        tally: what votes say.
        informativeness: k, in [0, 1].
        model_share_j: (J,) class shares of the models.
        weighed: the labels and what they count, where they are in one table.
    """

    weight: float
    anchor: float
    tally: Tally
    informativeness: float
    model_share_j: Floats
    weighed: Weighed | None = None

    @classmethod
    def of(cls, evidence: Evidence, anchor: float, outputs: Outputs) -> Self:
        """Of one table."""
        weight = Pairs.of(evidence).weight(outputs.informativeness)
        weighed = Weighed.of(evidence, weight, outputs.informativeness)
        return cls(weight, anchor, Tally.of(evidence, weighed), outputs.informativeness, outputs.share_j, weighed)

    def by(self, q_nj: Floats) -> Floats:
        """(K, L, J) expected counts of the table by beliefs (N, J)."""
        assert self.weighed is not None
        return self.weighed.by(q_nj)

    def lone(self, q_nj: Floats) -> Floats:
        """(L, J) expected counts of the table's lone labels by beliefs."""
        assert self.weighed is not None
        return self.weighed.lone(q_nj)

    def skills(self, counts: Floats, lone_lj: Floats, accuracy: float) -> Skills:
        """The hierarchy by expected counts, anchored, and by lone labels."""
        return Skills.learned(self.anchored(counts), accuracy, lone_lj)

    def anchored(self, counts_klj: Floats) -> Floats:
        """(K, L, J) what is learned from, given counts by beliefs."""
        learned_klj: Floats = self.anchor / (1 - self.anchor) * self.tally.votes_klj
        learned_klj += counts_klj
        learned_klj *= 1 - self.anchor
        return learned_klj

    def pseudo_counts(self, skills: Skills) -> Floats:
        """(K, L, J) what stands beside the counts by beliefs, in their unit."""
        pseudo_klj: Floats = self.anchor * self.tally.votes_klj
        pseudo_klj += skills.prior_klj
        pseudo_klj /= 1 - self.anchor
        return pseudo_klj

    def shares(self) -> WeighedShares:
        """The shares before any belief."""
        weight_n = np.empty(0) if self.weighed is None else self.weighed.weight_n
        return shares_before(self.tally, weight_n, self.informativeness, self.model_share_j)

    def climbed(
        self,
        evidence: Evidence,
        prior: Observed[WeighedShares],
        skills: Skills,
        q_nj: Floats,
        begun: Callable[[], Expected],
        tolerance: float,
        most: int,
    ) -> em.Estimate[Observed[WeighedShares], SkilledRows]:
        """EM from beliefs (N, J), whose expectations `begun` gives, the hierarchy held."""
        return em.maximise(
            evidence,
            prior,
            SkilledRows.unlearned(self.pseudo_counts(skills)),
            q_nj,
            tolerance=tolerance,
            max_iterations=most,
            least_labels=least_labels(prior),
            counts=lambda _annotations, q_nj, _among_n, _log_pi_klj: self.by(q_nj),
            begun=begun,
        )

    def report(
        self, annotations: Annotations, skills: Skills, counts: Floats, shares: WeighedShares
    ) -> AnnotatorReport:
        """What the fit says of the annotators."""
        alpha_klj = self.anchored(counts)
        alpha_klj += skills.prior_klj
        return confusion.report_of(annotations, alpha_klj.transpose(0, 2, 1), shares.share_j, prior=skills.crowd_jl)


def shares_before(left: Left, weight_n: Floats, informativeness: float, model_share_j: Floats) -> WeighedShares:
    """Shares before any belief: by the votes, as far as the weights (N,) leave them, beside items spread evenly."""
    even = SHARES * left.labeled / max(left.counted, 1.0)
    even_j = (1 - informativeness) * spread(left.named_j > 0, left.compared) + informativeness * model_share_j
    left_j = left.left_j if left.counted > 0 else np.zeros(len(even_j))
    return WeighedShares.unlearned(weight_n, left_j + even * even_j + 1 / len(even_j))


def spread(named_j: Mask, compared: int) -> Floats:
    """(J,) shares, of which the classes in use have even ones, and the others what is left to classes to come.

    `named_j` (J,): whether a label or a known truth names the class. `compared`: the n items with two labels or known
    truth. The next item is of a new class with probability 1 / (n + 1), as in a Chinese restaurant process of
    concentration 1 (Ewens 1972), or less where few classes are left. Lone labels say nothing of it: of a part of an
    item that one annotator marked, no other annotator could have said that there is nothing.
    """
    unnamed = int(np.count_nonzero(~named_j))
    left = min(unnamed / named_j.size, 1 / (compared + 1))
    named = named_j.size - unnamed
    return np.where(named_j, (1 - left) / max(named, 1), left / max(unnamed, 1))


def least_labels(prior: Observed[WeighedShares]) -> int:
    """Labels of an item at least from which EM learns: one alone tells nothing, but beside models."""
    return 2 if prior.log_likelihood_nj is None else 1
