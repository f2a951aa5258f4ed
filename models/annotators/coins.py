"""Annotator model with coins: an annotator is right with one probability, or with one per true class.

    l = j           with chance   s_k a_kj                        a_kj = (R_kj + r) / (R_kj + W_kj + r + w)
    l another class with chance   s_k (1 - a_kj) / (J - 1)        R, W expected numbers of right and wrong answers
    l no class      with its own chance, whatever j: it carries no information

`coins` (OneCoin, TwoCoin) has the sources.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from hitl.annotations import Annotations, Floats
from hitl.consensus import AnnotatorReport
from hitl.models.annotators.confusion import report_of

PASS = 0.1
"""Pseudo-count of each answer that is no class, and of answering with a class."""


@dataclass(frozen=True, eq=False)
class Coins:
    """Coins of all annotators at their posterior mode.

    Attributes:
        one: True if an annotator has one coin for all classes.
        right, wrong: pseudo-counts r and w, > 0.
        accuracy_kj: (K, J) chance of the right class among answers that are a class, in (0, 1).
        said_ko: (K, 1 + L - J) chance of an answer that is a class, and of each other option; rows sum to 1.
    """

    one: bool
    right: float
    wrong: float
    accuracy_kj: Floats
    said_ko: Floats

    @classmethod
    def unlearned(cls, size: tuple[int, int, int], one: bool, right: float, wrong: float) -> Coins:
        """Build (annotators, options, classes) coins at the prior's mode."""
        return cls(one, right, wrong, np.zeros(0), np.zeros(0)).learn(np.zeros(size))

    @property
    def log_pi_klj(self) -> Floats:
        """(K, L, J) log chance of each answer."""
        n_annotators, n_classes = self.accuracy_kj.shape
        log_pi = np.empty((n_annotators, n_classes + self.said_ko.shape[1] - 1, n_classes))
        log_pi[:, :n_classes] = np.log1p(-self.accuracy_kj[:, None]) - np.log(n_classes - 1)
        j = np.arange(n_classes)
        log_pi[:, j, j] = np.log(self.accuracy_kj)
        log_pi[:, :n_classes] += np.log(self.said_ko[:, 0])[:, None, None]
        log_pi[:, n_classes:] = np.log(self.said_ko[:, 1:])[:, :, None]
        return log_pi

    def learn(self, counts_klj: Floats) -> Self:
        n_classes = counts_klj.shape[2]
        right_kj, wrong_kj = tosses(counts_klj)
        passes_ko = counts_klj[:, n_classes:].sum(axis=2)
        said_ko = np.column_stack(((right_kj + wrong_kj).sum(axis=1), passes_ko)) + PASS
        if self.one:
            for toss_kj in (right_kj, wrong_kj):
                toss_kj[:] = toss_kj.sum(axis=1, keepdims=True)
        accuracy_kj = (right_kj + self.right) / (right_kj + wrong_kj + self.right + self.wrong)
        return replace(self, accuracy_kj=accuracy_kj, said_ko=said_ko / said_ko.sum(axis=1, keepdims=True))

    def log_density(self) -> float:
        coin = self.accuracy_kj[:, :1] if self.one else self.accuracy_kj
        beta = self.right * np.log(coin).sum() + self.wrong * np.log1p(-coin).sum()
        return float(beta + PASS * np.log(self.said_ko).sum())

    def report(self, annotations: Annotations, counts_klj: Floats, share_j: Floats) -> AnnotatorReport:
        """Report the annotators.

        A row of a confusion matrix weighs as many answers as its coin has seen. The answers of a single coin are
        divided among the rows by class share, so that the accuracy is as uncertain as the coin.
        """
        pi_kjl = np.exp(self.log_pi_klj).transpose(0, 2, 1)
        seen_kj = counts_klj.sum(axis=1)
        if self.one:
            seen_kj = (seen_kj.sum(axis=1, keepdims=True) + self.right + self.wrong) * share_j
        else:
            seen_kj = seen_kj + self.right + self.wrong
        mean_kjl = np.ascontiguousarray(pi_kjl / pi_kjl.sum(axis=2, keepdims=True))
        return report_of(annotations, seen_kj[:, :, None] * pi_kjl, share_j, pi_kjl=mean_kjl)


def tosses(counts_klj: Floats) -> tuple[Floats, Floats]:
    """Return (K, J) right and (K, J) wrong answers for items of each class; answers that are no class are neither."""
    classes = counts_klj[:, : counts_klj.shape[2]]
    right_kj = np.einsum("kjj->kj", classes).copy()
    return right_kj, np.maximum(classes.sum(axis=1) - right_kj, 0.0)
