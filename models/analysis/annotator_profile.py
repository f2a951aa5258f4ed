"""What a lead wants to know of annotators: how often they are right, how they err, what a label of theirs tells.

Puts together what the other files find: bits of information (`information`), agreement (`agreement`),
annotators who answer without looking (`spammers`), change over time (`drift`), communities (`communities`). A
confusion is worth a word where its posterior (the Beta margin of the row's Dirichlet) leaves no doubt that it happens,
and some have been seen.
"""

from __future__ import annotations

from dataclasses import dataclass, field
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
from hitl.models.analysis.drift import Change, DriftTest
from hitl.models.analysis.information import entropy, information
from hitl.models.analysis.spammers import ALMOST_ALWAYS, SpammerModel, WaysToAnswer
from hitl.models.annotators.leave_one_out import Others

if TYPE_CHECKING:
    import numpy.typing as npt
    import pandas as pd

SURE = 0.95
"""Probability from which an annotator is called a spammer or misleading."""

LITTLE = 0.05
"""Share of the bits missing below which a community is said to answer at random."""

LEAST_OFTEN = 0.03
"""A confusion is worth a word where its chance is above this with 97.5 % probability, ..."""

LEAST_SEEN = 3.0
"""... and it is expected among so many of the annotator's labels."""


@dataclass(frozen=True)
class Confusion:
    """A wrong answer that an annotator gives again and again: `said` for items of class `true`.

    Attributes:
        true, said: the names of the class and of the answer.
        often: posterior mean chance of this answer for such an item, in [0, 1].
        low, high: its central 95 % interval.
    """

    true: Name
    said: Name
    often: float
    low: float
    high: float

    def __str__(self) -> str:
        """In words: says 'cat' for 14 % of 'dog' (7 to 23 %)."""
        low, high = f"{self.low * 100:.0f}", f"{self.high * 100:.0f}"
        return f"says '{self.said}' for {self.often * 100:.0f} % of '{self.true}' ({low} to {high} %)"


@dataclass(frozen=True)
class CommunityProfile:
    """What the members of a community have in common.

    Attributes:
        size: annotators that belong to it most.
        accuracy: of its typical matrix, by class share, in [0, 1].
        bits: one label of such an annotator carries.
        words: how they answer.
    """

    size: int
    accuracy: float
    bits: float
    words: str


@dataclass(frozen=True, eq=False, repr=False)
class AnnotatorProfiles(OneLineRepr):
    """Everything known of K annotators.

    Attributes:
        people: names, labels, accuracy with its interval, and confusion matrices, as the fit left them.
        bits: (K,) bits of information one label carries about the class.
        entropy: bits that are missing before any label: the entropy of the class shares.
        confusions: for each annotator the typical ones, most frequent first.
        agrees: (K,) how often another annotator's label of the same item equals theirs; NaN without such labels.
        kappa: (K,) the same beyond chance.
        ways: probability that each works, spams or misleads.
        changes: for each annotator the most likely change over time, or None.
        drifts: (K,) whose change is to be believed.
        communities: who decides alike.
        agreement: of all annotators together.
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

    @property
    def names(self) -> Names:
        """K names."""
        return self.people.names

    def __str__(self) -> str:
        flagged = sum(bool(self.flags(k)) for k in range(len(self.names)))
        return f"{self.people}; to look into: {flagged:,}"

    def flags(self, annotator: int) -> list[str]:
        """What to look into, in words; empty where there is nothing."""
        found = []
        if self.ways.uninformative[annotator] >= SURE:
            favourite = int(self.ways.favourite[annotator])
            found.append("random answers" if favourite < 0 else f"always '{self.people.options[favourite]}'")
        if self.ways.misleads[annotator] >= SURE:
            found.append("systematically wrong")
        change = self.changes[annotator]
        if self.drifts[annotator] and change is not None:
            way = "better" if change.effect > 0 else "worse"
            found.append(f"{way} over time ({change.before * 100:.0f} to {change.after * 100:.0f} %)")
        return found

    def kinds(self) -> tuple[CommunityProfile, ...]:
        """The communities, largest first."""
        share_j, classes = self.people.shares, np.arange(len(self.people.classes))
        found = []
        for size, matrix in zip(self.communities.sizes, self.communities.prototype, strict=True):
            bits = float(information(matrix[None], share_j)[0])
            accuracy = float(share_j @ matrix[classes, classes])
            found.append(CommunityProfile(int(size), accuracy, bits, self._in_words(matrix, bits)))
        return tuple(found)

    def _in_words(self, matrix_jl: Floats, bits: float) -> str:
        share_j = self.people.shares
        answer_l = share_j @ matrix_jl
        if answer_l.max() >= ALMOST_ALWAYS:
            return f"almost always say '{self.people.options[answer_l.argmax()]}'"
        if bits < LITTLE * self.entropy:
            return "answer at random"
        wrong_jl = matrix_jl * share_j[:, None]
        classes = np.arange(len(share_j))
        wrong_jl[classes, classes] = 0.0
        j, said = np.unravel_index(wrong_jl.argmax(), wrong_jl.shape)
        often = f"{matrix_jl[j, said] * 100:.0f} %"
        return f"most common error: '{self.people.options[said]}' for {often} of '{self.people.classes[j]}'"

    def frame(self) -> pd.DataFrame:
        """One row an annotator; times are seconds since the epoch, communities count from 1, empty is unknown."""
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
                "confusions": ["; ".join(map(str, found)) for found in self.confusions],
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
    """Profiles the annotators of a consensus, with the settings of each part."""

    spammers: SpammerModel = field(default_factory=SpammerModel)
    drift: DriftTest = field(default_factory=DriftTest)
    communities: CommunityModel = field(default_factory=CommunityModel)

    def fit(self, evidence: Evidence, consensus: Consensus) -> AnnotatorProfiles:
        """What the evidence and a consensus over it say of the annotators. Raises BadInput where they do not match."""
        annotations, people = evidence.annotations, consensus.annotators
        for kind, given, judged in (
            ("items", annotations.items, consensus.items),
            ("annotators", annotations.annotators, people.names),
            ("classes", annotations.classes, people.classes),
            ("options", annotations.options, people.options),
        ):
            if given != judged:
                raise BadInput(
                    f"the consensus is over other {kind} ({len(judged):,}) than the annotations ({len(given):,}); "
                    "combine these annotations first"
                )
        others = Others(evidence, consensus)
        ways = self.spammers.fit(annotations, others, people.shares)
        changes = self.drift.fit(annotations, others, ways.confusion)
        agrees, kappa = agreement_with_others(annotations)
        pool = np.zeros(annotations.n_annotators, bool)
        if annotations.anonymous is not None:
            pool[annotations.anonymous] = True
        return AnnotatorProfiles(
            people,
            information(people.confusion, people.shares),
            entropy(people.shares),
            typical_confusions(people),
            agrees,
            kappa,
            ways,
            tuple(changes),
            self.drift.alarms(changes),
            self.communities.fit(people, leave_out=pool),
            agreement(annotations),
        )


def typical_confusions(people: AnnotatorReport, most: int = 3) -> tuple[tuple[Confusion, ...], ...]:
    """For each annotator the confusions worth a word, at most `most`: those among most of their labels first."""
    k, j, options = people.concentration.shape
    total_kj1 = people.concentration.sum(axis=2, keepdims=True)
    mean_kjl = people.concentration / total_kj1
    seen_kjl = mean_kjl * people.shares[None, :, None] * people.labels[:, None, None]
    seen_kjl[:, np.arange(j), np.arange(j)] = 0.0
    flat = seen_kjl.reshape(k, j * options)
    most = min(most, flat.shape[1])
    top = np.argpartition(-flat, most - 1, axis=1)[:, :most] if k else np.zeros((0, most), int)
    top = np.take_along_axis(top, np.argsort(-np.take_along_axis(flat, top, axis=1), axis=1, kind="stable"), axis=1)
    true, said = np.divmod(top, options)
    rows = np.arange(k)[:, None]
    a = people.concentration[rows, true, said]
    rest = np.maximum(total_kj1[rows, true, 0] - a, 1e-9)
    low, high = betaincinv(a, rest, 0.025), betaincinv(a, rest, 0.975)
    supported = (low >= LEAST_OFTEN) & (seen_kjl[rows, true, said] >= LEAST_SEEN)
    return tuple(
        tuple(
            Confusion(
                people.classes[true[person, rank]],
                people.options[said[person, rank]],
                float(mean_kjl[person, true[person, rank], said[person, rank]]),
                float(low[person, rank]),
                float(high[person, rank]),
            )
            for rank in range(most)
            if supported[person, rank]
        )
        for person in range(k)
    )


def _shares(communities: list[tuple[int, float]]) -> str:
    """1 80 %, 3 20 %; the number alone where there is one."""
    if len(communities) == 1:
        return str(communities[0][0] + 1)
    return ", ".join(f"{g + 1} {share * 100:.0f} %" for g, share in communities)
