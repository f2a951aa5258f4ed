"""Set up comparisons of policies: replays of policies and baselines, a target accuracy, and checks of the truth.

Every policy is compared with two baselines that spread labels evenly: with the same combiner, and with majority vote.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from hitl.active.registry import policy
from hitl.active.replay.answers import ResponseModel
from hitl.active.replay.replay import Replay, StopRule, accuracy_of
from hitl.annotations import Name
from hitl.crew import Budget, Crew
from hitl.errors import BadInput
from hitl.evidence import Evidence
from hitl.formatting import percent
from hitl.models.combine import fit
from hitl.models.combiner import seen_by
from hitl.models.learning.learned import Learned
from hitl.models.registry import combiner

EVEN, MAJORITY = "evenly", "majority vote, evenly"
"""Names of the two baselines."""

LEARNING = "learning"
"""Suffix of a policy combined with a model that learns."""

STEPS = 100
"""Default number of batches of a replay."""

PER_ITEM = 10
"""Default maximum of labels per item from simulated annotators."""

NEAR = 0.005
"""Distance of the default target below the accuracy with all recorded labels, unless one item is more."""

ROUNDING = 1e-9
"""Tolerance for rounding: one item below 8 right of 10 is 0.7, but 0.8 - 0.1 > 0.7 in floating point."""

SIMULATED_TARGET = 0.95
"""Target for simulated annotators, who have no recorded labels to compare with."""

FEWEST, FEW = 10, 50
"""Numbers of items with ground truth below which an accuracy is meaningless, and below which it is imprecise."""


def strategies(
    evidence: Evidence,
    policies: Iterable[str],
    method: str = "default",
    *,
    batch: int | None = None,
    labels: int | None = None,
    confidence: float = 1.0,
    crew: Crew | None = None,
    delay: float = 0.0,
    skip: float = 0.0,
    learn: str | None = None,
    groups: Mapping[Name, str] | None = None,
    stop: StopRule | None = None,
) -> dict[str, Replay]:
    """Return name -> replay, for each policy and for the baselines.

    Attributes:
        policies: names of policies (`hitl.active.registry`).
        method: name of the combiner (`hitl.models.registry`).
        batch: questions per round; default: a hundredth of all labels.
        labels: maximum number of labels; default: all recorded ones, or PER_ITEM per item if there are none.
        confidence: confidence at which an item with a label is done, in (0, 1]; 1: never.
        delay: mean number of rounds until an answer comes.
        skip: share of the questions that are skipped, in [0, 1).
        learn: name of a model that learns from the labels (`hitl.models.Learned`); each policy is replayed with it too.
        groups: item -> group of near-duplicates, which are kept in the same fold of that model.
        stop: rule that records where projects would have ended, and the true accuracy there.

    Raise BadSettings for an unknown name.
    """
    recorded = len(evidence.annotations)
    if labels is None and not recorded:
        labels = PER_ITEM * evidence.annotations.n_items
    budget = Budget(batch or max(1, (labels or recorded) // STEPS), confidence, max_labels=2**31 - 1)
    responses = ResponseModel(delay, skip)

    fixed = replace(budget, min_labels=budget.max_labels)  # confidence ends no item of a baseline

    def strategy(judge: str, chooses: str) -> Replay:
        limits = fixed if chooses in ("even", "random") else budget
        return Replay(combiner(judge), policy(chooses), limits, labels, crew or Crew(), responses, stop=stop)

    replays = {name: strategy(method, name) for name in policies if name != "even"}
    if learn is not None:
        learned = Learned(method, learn, groups=groups)
        replays |= {f"{name}, {LEARNING}": replace(replay, combiner=learned) for name, replay in replays.items()}
    replays[EVEN] = strategy(method, "even")
    if method != "majority":
        replays[MAJORITY] = strategy("majority", "even")
    return replays


def near_all_labels(evidence: Evidence, method: str) -> float:
    """Return the accuracy with all recorded labels, less half a point or one item, whichever is more."""
    judge = combiner(method)
    full = accuracy_of(fit(judge, seen_by(judge, replace(evidence, truth=None))), evidence)
    return max(full - max(NEAR, 1 / int(evidence.known.sum())) - ROUNDING, 0.0)


def doubt_about_truth(evidence: Evidence) -> str | None:
    """Warn if fewer than FEW items have ground truth, else return None. Raise BadInput if fewer than FEWEST have."""
    n_known = int(evidence.known.sum())
    if n_known == 0:
        raise BadInput("replay: no item has ground truth; expected --truth with some of the items to score against")
    if n_known < FEWEST:
        raise BadInput(
            f"replay: the truth of {n_known} item{'' if n_known == 1 else 's'} is known; expected {FEWEST} or more, "
            "better some hundreds, or an accuracy says nothing"
        )
    if n_known < FEW:
        return (
            f"the truth of {n_known} items is known: one item is {percent(1 / n_known)} of the accuracy, so "
            "differences are mostly chance"
        )
    return None
