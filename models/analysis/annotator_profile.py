"""Annotator profiles: how often annotators are right, how they err, and how informative their labels are.

A confusion is reported if its posterior (the Beta margin of the row's Dirichlet) is clearly above LEAST_OFTEN, and at
least LEAST_SEEN of the annotator's labels are expected to show it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import betaincinv

from hitl.annotations import Floats, Name, Names
from hitl.consensus import AnnotatorReport, Consensus
from hitl.errors import BadInput
from hitl.evidence import Evidence
from hitl.formatting import OneLineRepr
from hitl.models.analysis.agreement import Agreement, agreement, agreement_with_others
from hitl.models.analysis.communities import Communities, CommunityModel
from hitl.models.analysis.copied_accounts import (
    COPIED,
    CopiedAccounts,
    can_count_once,
    copied_accounts,
    count_copies_once,
)
from hitl.models.analysis.drift import Change, alarms, find_changes
from hitl.models.analysis.information import entropy, information
from hitl.models.analysis.spammers import ALMOST_ALWAYS, WaysToAnswer, compare_ways
from hitl.models.annotators.leave_one_out import Others

if TYPE_CHECKING:
    import numpy.typing as npt
    import pandas as pd

SURE = 0.95
"""Minimum probability at which an annotator is flagged as a spammer or as misleading."""

LITTLE = 0.05
"""A community is described as answering at random if its labels carry less than this share of the class's entropy."""

LEAST_OFTEN = 0.03
"""Minimum probability of a reported confusion, exceeded with 97.5 % probability."""

BETTER = "better"
"""First word of the flag of an annotator whose accuracy rose over time."""

LEAST_SEEN = 3.0
"""Minimum expected number of an annotator's labels with a reported confusion."""


@dataclass(frozen=True)
class Confusion:
    """Recurring wrong answer: `said` for items of class `true`.

    `often` is the probability of that answer, `low` and `high` are the ends of its central 95 % interval.
    """

    true: Name
    said: Name
    often: float
    low: float
    high: float

    def __str__(self) -> str:
        low, high = f"{self.low * 100:.0f}", f"{self.high * 100:.0f}"
        return f"says '{self.said}' for {self.often * 100:.0f} % of '{self.true}' ({low} to {high} %)"


@dataclass(frozen=True)
class CommunityProfile:
    """Community: number of annotators, accuracy of its typical matrix, bits per label, and how its members answer."""

    size: int
    accuracy: float
    bits: float
    words: str


@dataclass(frozen=True, eq=False, repr=False)
class AnnotatorProfiles(OneLineRepr):
    """Profiles of K annotators.

    Attributes:
        people: report of the fit: names, labels, accuracy with its interval, and confusion matrices.
        bits: (K,) information about the class in one label, in bits.
        entropy: entropy of an item's class before any label, in bits.
        confusions: recurring confusions of each annotator, most frequent first.
        agrees: (K,) how often other labels of the same items equal the annotator's, in [0, 1].
        kappa: (K,) that agreement beyond chance.
        ways: probabilities that each annotator works, spams or misleads.
        changes: most likely change of each annotator over time, or None.
        drifts: (K,) True for annotators whose change is significant.
        communities: groups of annotators who decide alike.
        agreement: agreement among all annotators.
        copies: copied accounts.
        once: True if each group of copied accounts counts once in the consensus and in these figures.
        least_accuracy: accuracy that the project requires of annotators, in [0, 1]; 0 if it requires none.
    """

    people: AnnotatorReport
    bits: Floats
    entropy: float
    confusions: tuple[tuple[Confusion, ...], ...]
    agrees: Floats
    kappa: Floats
    ways: WaysToAnswer
    changes: tuple[Change | None, ...]
    drifts: npt.NDArray[np.bool_]
    communities: Communities
    agreement: Agreement
    copies: CopiedAccounts
    once: bool = True
    least_accuracy: float = 0.0

    @property
    def names(self) -> Names:
        """K names."""
        return self.people.names

    def __str__(self) -> str:
        flagged = sum(bool(self.flags(k)) for k in range(len(self.names)))
        return f"{self.people}; to look into: {flagged:,}"

    @cached_property
    def behind(self) -> npt.NDArray[np.bool_]:
        """(K,) True for annotators whose 95 % interval lies below the intervals of most others."""
        low, high = self.people.interval
        active = self.people.labels > 0
        above = np.sort(low[active])  # never an annotator's own, since low <= high
        many_above = len(above) - np.searchsorted(above, high, side="right")
        return np.asarray(active & (2 * many_above > active.sum() - 1))

    def needs_training(self, annotator: int) -> bool:
        """Return True for flagged annotators but those who have only become better or whose account is copied."""
        return any(not flag.startswith((BETTER, COPIED)) for flag in self.flags(annotator))

    def flags(self, annotator: int) -> list[str]:
        """Return the reasons why an annotator needs review, in words."""
        flags = []
        if self.ways.uninformative[annotator] >= SURE:
            favourite = int(self.ways.favourite[annotator])
            flags.append("random answers" if favourite < 0 else f"always '{self.people.options[favourite]}'")
        if self.ways.misleads[annotator] >= SURE:
            flags.append("systematically wrong")
        if not flags and self.behind[annotator]:
            flags.append("right less often than most others")
        if self.people.labels[annotator] and self.people.interval[1][annotator] < self.least_accuracy:
            flags.append(f"below the required {self.least_accuracy * 100:.4g} %")
        change = self.changes[annotator]
        if self.drifts[annotator] and change is not None:
            way = BETTER if change.effect > 0 else "worse"
            flags.append(f"{way} over time ({change.before * 100:.0f} to {change.after * 100:.0f} %)")
        return self.copies.describe(annotator, self.names, once=self.once) + flags

    def kinds(self) -> tuple[CommunityProfile, ...]:
        """Return the profiles of the communities, largest first."""
        share_j, prototype_gjl = self.people.shares, self.communities.prototype
        profiles = []
        for g, bits in enumerate(information(prototype_gjl, share_j).tolist()):
            matrix_jl, size = prototype_gjl[g], int(self.communities.sizes[g])
            accuracy = float(share_j @ matrix_jl.diagonal())
            profiles.append(CommunityProfile(size, accuracy, bits, self._words(matrix_jl, bits)))
        return tuple(profiles)

    def _words(self, matrix_jl: Floats, bits: float) -> str:
        people = self.people
        answer_l = people.shares @ matrix_jl
        if answer_l.max() >= ALMOST_ALWAYS:
            return f"almost always say '{people.options[answer_l.argmax()]}'"
        if bits < LITTLE * self.entropy:
            return "answer at random"
        wrong_jl = matrix_jl * people.shares[:, None]
        np.fill_diagonal(wrong_jl, 0.0)
        j, said = np.unravel_index(wrong_jl.argmax(), wrong_jl.shape)
        often = f"{matrix_jl[j, said] * 100:.0f} %"
        return f"most common error: '{people.options[said]}' for {often} of '{people.classes[j]}'"

    def frame(self) -> pd.DataFrame:
        """Return one row per annotator; times are in seconds since the epoch, communities count from 1."""
        import pandas as pd

        low, high = self.people.interval
        changes = [change if drifts else None for change, drifts in zip(self.changes, self.drifts, strict=True)]
        everyone = range(len(self.names))
        return pd.DataFrame(
            {
                "annotator": list(self.names),
                "labels": self.people.labels,
                "accuracy": self.people.accuracy,
                "low": low,
                "high": high,
                "bits": self.bits,
                "agrees": self.agrees,
                "kappa": self.kappa,
                "spammer": self.ways.uninformative,
                "misleading": self.ways.misleads,
                "confusions": ["; ".join(map(str, confusions)) for confusions in self.confusions],
                "community": pd.array([g + 1 if g >= 0 else None for g in self.communities.main], dtype="Int64"),
                "communities": [_shares(self.communities.of(k)) for k in everyone],
                "change_p_value": [np.nan if change is None else change.p_any_look for change in self.changes],
                "changed_at": [np.nan if change is None else change.when for change in changes],
                "accuracy_before": [np.nan if change is None else change.before for change in changes],
                "accuracy_after": [np.nan if change is None else change.after for change in changes],
                "flags": ["; ".join(self.flags(k)) for k in everyone],
            }
        )


@dataclass(frozen=True, slots=True)
class AnnotatorProfiler:
    """Profiles the annotators of a consensus.

    `least_accuracy`, in [0, 1], is required of annotators: those whose interval lies below it are flagged.
    """

    communities: CommunityModel = field(default_factory=CommunityModel)
    least_accuracy: float = 0.0

    def fit(self, evidence: Evidence, consensus: Consensus) -> AnnotatorProfiles:
        """Profile the annotators of the evidence.

        Raise BadInput if the consensus has other items, annotators, classes or options.
        """
        annotations, people = evidence.annotations, consensus.annotators
        judged = (consensus.items, people.names, people.classes, people.options)
        if judged != (annotations.items, annotations.annotators, annotations.classes, annotations.options):
            raise BadInput(
                "the consensus has other items, annotators or classes than the annotations; combine these first"
            )
        copies, once = copied_accounts(annotations), can_count_once(evidence)
        evidence = count_copies_once(evidence)
        annotations = evidence.annotations
        others = Others(evidence, consensus)
        ways = compare_ways(annotations, others, people.shares)
        changes = find_changes(annotations, others, ways.confusion)
        pool = np.arange(annotations.n_annotators) == (-1 if annotations.anonymous is None else annotations.anonymous)
        return AnnotatorProfiles(
            people,
            information(people.confusion, people.shares),
            entropy(people.shares),
            typical_confusions(people),
            *agreement_with_others(annotations),
            ways,
            tuple(changes),
            alarms(changes),
            self.communities.fit(people, leave_out=pool),
            agreement(annotations),
            copies,
            once,
            self.least_accuracy,
        )


def typical_confusions(people: AnnotatorReport, most: int = 3) -> tuple[tuple[Confusion, ...], ...]:
    """Return at most `most` reported confusions per annotator, by falling expected number of labels."""
    k, j, options = people.concentration.shape
    total_kj = people.concentration.sum(axis=2)
    mean_kjl = people.concentration / total_kj[:, :, None]
    seen_kjl = mean_kjl * people.shares[None, :, None] * people.labels[:, None, None]
    seen_kjl[:, np.arange(j), np.arange(j)] = 0.0
    flat = seen_kjl.reshape(k, j * options)
    most = min(most, flat.shape[1])
    top = np.argpartition(-flat, most - 1, axis=1)[:, :most] if k else np.zeros((0, most), int)
    top = np.take_along_axis(top, np.argsort(-np.take_along_axis(flat, top, axis=1), axis=1, kind="stable"), axis=1)
    true, said = np.divmod(top, options)
    rows = np.arange(k)[:, None]
    a = people.concentration[rows, true, said]
    rest = np.maximum(total_kj[rows, true] - a, 1e-9)
    low, high = betaincinv(a, rest, 0.025), betaincinv(a, rest, 0.975)
    supported = (low >= LEAST_OFTEN) & (seen_kjl[rows, true, said] >= LEAST_SEEN)
    confusions: list[list[Confusion]] = [[] for _ in range(k)]
    for person, rank in zip(*np.nonzero(supported), strict=True):
        j, label = true[person, rank], said[person, rank]
        often, ends = mean_kjl[person, j, label], (float(low[person, rank]), float(high[person, rank]))
        confusions[person].append(Confusion(people.classes[j], people.options[label], float(often), *ends))
    return tuple(map(tuple, confusions))


def _shares(communities: list[tuple[int, float]]) -> str:
    """Format communities and their shares, such as "1 80 %, 3 20 %"; a single community as its number."""
    if len(communities) == 1:
        return str(communities[0][0] + 1)
    return ", ".join(f"{g + 1} {share * 100:.0f} %" for g, share in communities)
