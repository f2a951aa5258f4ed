"""Estimate how far suggestions pull answers, from items that were drawn at random to be answered without one.

    y_i        share of the answers to item i that equal the suggestion
    x_i        probability that the model gives its suggestion
    p_arm      value at the mean of x of the line that fits y_i best, over the items of one arm: shown, blind (Lin 2013)
    var p_arm  1 / (n (n - 2)) sum_i (y_i - line)^2
    pull       p_shown - p_blind +- t sqrt(var p_shown + var p_blind)    degrees of freedom by Welch and Satterthwaite

Items are drawn, not answers, so an item is one unit with all of its answers. Where the model is surer, people agree
more; taking this out makes the interval narrower. Each arm gets two items more, at its mean x, one with y = 1 and one
with y = 0 (Agresti & Caffo 2000): otherwise an arm in which all agree would have no variance.

    copies    share of the answers under a suggestion that are copies, c = pull / (1 - p_blind); of those equal to it,
              c / p_shown: this share is left out of the consensus (`thinned`)

Answers count by what was drawn for their item, not by whether the annotator kept the suggestion. Those who kept it
agree with it, so a comparison with the others would find a pull in every project.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.special import softmax
from scipy.stats import t as student

from hitl.annotations import Floats
from hitl.evidence import Evidence

LEAST_ITEMS = 20
"""Minimum number of items in each arm for an estimate."""

Mask = npt.NDArray[np.bool_]


def is_drawn(share: float, *names: str) -> bool:
    """Return True with probability `share`, and always the same for the same names."""
    digest = hashlib.blake2b("\0".join(names).encode(), digest_size=8).digest()
    return int.from_bytes(digest) < share * 2**64


def is_blind(project: str, item: str, share: float) -> bool:
    """Return True if the item is answered without a suggestion: always the same `share` of a project's items."""
    return is_drawn(share, project, item)


def model_answers(evidence: Evidence, temperatures: Mapping[str, float], rows: slice = slice(None)) -> Floats:
    """Return the (N, J) mean prediction of the models, each recalibrated by its temperature; NaN if all abstain."""
    total_nj, count_n = np.zeros((1, 1)), np.zeros(1)
    for name, p_nj in evidence.probabilities.items():
        log_nj = np.log(np.maximum(p_nj[rows], np.finfo(float).tiny))
        calibrated_nj = softmax(log_nj / float(temperatures.get(name, 1.0)), axis=1)
        total_nj, count_n = total_nj + np.nan_to_num(calibrated_nj), count_n + ~np.isnan(calibrated_nj[:, 0])
    with np.errstate(invalid="ignore"):
        return np.asarray(total_nj / count_n[:, None])


@dataclass(frozen=True, slots=True)
class Pull:
    """Pull of suggestions: how much more often answers equal one that is shown.

    Attributes:
        shown, blind: number of answers to items with and without a suggestion.
        items: number of these items, with and without.
        agree_shown, agree_blind: share of answers that equal the suggestion, mean over items, as if the model were
            equally sure of both; NaN without answers.
        effect, low, high: difference of the two, and its 95 % interval, in [-1, 1]; NaN with fewer than LEAST_ITEMS
            items in an arm.
    """

    shown: int
    blind: int
    items: tuple[int, int]
    agree_shown: float
    agree_blind: float
    effect: float
    low: float
    high: float

    @property
    def copied(self) -> float:
        """Share of the answers under a suggestion that are copies of it, in [0, 1], if others are as without one."""
        return min(max(self.effect / (1 - self.agree_blind), 0.0), 1.0) if self.agree_blind < 1 else math.nan

    @property
    def copies_among_equal(self) -> float:
        """Share of the answers equal to a suggestion that are copies of it, in [0, 1]; 0 unless the pull is clear."""
        return min(self.copied / self.agree_shown, 1.0) if self.low > 0 and self.agree_blind < 1 else 0.0

    def __str__(self) -> str:
        if math.isnan(self.effect):
            return (
                f"No estimate yet of how far suggestions pull answers: {self.items[1]:,} items were answered without "
                f"one and {self.items[0]:,} with one, and each takes {LEAST_ITEMS} (serve.blind_share)."
            )
        low, high = self.low * 100, self.high * 100
        found = "Suggestions pull answers" if low > 0 else "No clear pull" if high > 0 else "Suggestions repel answers"
        told = (
            f"{found}: {self.agree_shown * 100:.1f} % of {self.shown:,} answers equal the model's where it is shown, "
            f"and {self.agree_blind * 100:.1f} % of {self.blind:,} where it is not. The difference is "
            f"{self.effect * 100:+.1f} points ({low:+.1f} to {high:+.1f})."
        )
        copies = f" The consensus leaves out {self.copies_among_equal * 100:.0f} % of those equal where it is shown."
        return told + copies if self.copies_among_equal else told


@dataclass(frozen=True, slots=True)
class Pulls:
    """The pull on all answers of a project, and on each annotator who answered LEAST_ITEMS items in each arm."""

    overall: Pull
    annotators: Mapping[str, Pull]


def randomized(evidence: Evidence, suggested_nj: Floats, blind_n: Mask, start_k: Floats, end_k: Floats) -> pd.DataFrame:
    """Return the answers to one question that enter the comparison: item (code), annotator, agrees, sure, blind.

    Args:
        suggested_nj: (N, J) `model_answers`, NaN too where the item's arm is not certain.
        blind_n: (N,) True if the item is answered without a suggestion.
        start_k, end_k: (K,) times of an annotator's first and last answer under a suggestion. Answers in between count.
            These two do not, because an answer that keeps a suggestion agrees with it.
    """
    answers = evidence.annotations
    item, annotator = answers.item, answers.annotator
    time = np.full(len(answers), np.nan) if answers.time is None else answers.time
    columns = {
        "item": item,
        "annotator": np.array(list(map(str, answers.annotators)), object)[annotator],
        "agrees": answers.label == np.nan_to_num(suggested_nj).argmax(axis=1)[item],
        "sure": suggested_nj.max(axis=1)[item],
        "blind": blind_n[item],
    }
    return pd.DataFrame(columns)[(start_k[annotator] < time) & (time < end_k[annotator])].dropna(subset="sure")


def thinned(evidence: Evidence, answers: pd.DataFrame, share: float, *names: str) -> Evidence:
    """Leave out this share of the answers that equal a suggestion that was shown; the same ones for the same `names`.

    What is left agrees with suggestions as often as answers do without one. It is not known which answers are copies.
    """
    equal = answers[answers.agrees & ~answers.blind]
    items = map(str, map(evidence.annotations.items.__getitem__, equal["item"]))
    copied = [is_drawn(share, *names, item, who) for item, who in zip(items, equal.annotator, strict=True)]
    kept_m = np.ones(len(evidence.annotations), dtype=bool)
    kept_m[equal.index[copied]] = False
    return replace(evidence, annotations=evidence.annotations.select(kept_m))


def pull(answers: pd.DataFrame) -> Pull:
    """Compare the answers of both arms (`randomized`)."""
    by_item = answers.groupby("item")[["agrees", "sure", "blind"]].mean()
    arms = [by_item[by_item.blind == blind] for blind in (False, True)]
    items, numbers = (len(arms[0]), len(arms[1])), (int((~answers.blind).sum()), int(answers.blind.sum()))
    shares, variances, shrunk = zip(*(_arm(arm, by_item.sure.mean()) for arm in arms), strict=True)
    if min(items) < LEAST_ITEMS:
        return Pull(*numbers, items, shares[0], shares[1], math.nan, math.nan, math.nan)
    effect, total = shares[0] - shares[1], sum(variances)
    df = total**2 / sum(variance**2 / n for variance, n in zip(variances, items, strict=True))
    half = float(student.ppf(0.975, df)) * math.sqrt(total)
    low, high = shrunk[0] - shrunk[1] - half, shrunk[0] - shrunk[1] + half
    return Pull(*numbers, items, shares[0], shares[1], effect, max(min(low, effect), -1.0), min(max(high, effect), 1.0))


def _arm(arm: pd.DataFrame, at: float) -> tuple[float, float, float]:
    """Return p at this mean of x, its variance, and p with the two items more that the variance is of."""
    n = len(arm)
    if not n:
        return math.nan, math.nan, math.nan
    x_i = np.append(arm.sure.to_numpy() - arm.sure.mean(), [0, 0])
    y_i = np.append(arm.agrees.to_numpy(float), [1, 0])
    spread = float(x_i @ x_i)
    slope = float(x_i @ y_i) / spread if spread > 1e-9 else 0.0  # a model that is equally sure of all says nothing
    moved = slope * (at - float(arm.sure.mean()))
    residual_i = y_i - y_i.mean() - slope * x_i
    return float(arm.agrees.mean()) + moved, float(residual_i @ residual_i) / (n * (n + 2)), float(y_i.mean()) + moved


def pulls(answers: pd.DataFrame) -> Pulls:
    """Compare the answers of both arms (`randomized`), all together and by annotator."""
    by_annotator = {str(name): pull(own) for name, own in answers.groupby("annotator")}
    return Pulls(pull(answers), {name: one for name, one in by_annotator.items() if min(one.items) >= LEAST_ITEMS})
