"""Forecast the number of labels still needed: "About n answers to go to reach a, cost c".

The policy's future is simulated several times (draws), starting from the present beliefs. Each draw consists of

    truth       z_n ~ q_n                              for every open item
    annotators  pi_k ~ Dirichlet(learned parameters)   for each annotator
    order       the least certain items first, each answered by a random annotator who still can; those with more
                capacity come first more often
    answer      l ~ pi_k[z_n, .]                       which updates the belief by the *expected* pi_k

until every item is done or the accuracy reaches its target. A pool without names can answer an item any number of
times, so an item with m labels gets max(m / AT_A_TIME, 1) more at a time. Answers update beliefs as in a consensus:
ln pi_k[., l] is added to ln q0_n, the log posterior under independence, and q_n is q0_n tempered by the design effect.

The simulation leaves out what the fit will still learn about annotators and their shared errors. So the interval
combines the spread of the draws with the deviation of simulated runs from their forecasts. `Forecast.caution` says why
it is wide.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from hitl.active.acquisition.value_of_information import crew_confusion
from hitl.active.assignment.eligibility import Eligibility
from hitl.active.pool_state import PoolState
from hitl.active.stopping import rules
from hitl.active.stopping.rules import Judged
from hitl.annotations import Floats
from hitl.consensus import Consensus
from hitl.crew import Budget, Crew
from hitl.evidence import Evidence
from hitl.formatting import percent
from hitl.tables.shared_errors import as_array, diagonals, given, share_errors

SAMPLE = 1000
"""Maximum number of open items to simulate; larger sets are sampled."""

ROUNDS = 40
"""Maximum number of batches per round of questions about all open items, if their order matters (target accuracy)."""

AT_A_TIME = 10
"""Number of labels that an item has for each label that a pool without names adds at a time.

So an item gets at most a tenth too many.
"""

MODEL, TARGET, UNCHECKED, HARDLY_KNOWN = 0.25, 0.4, 0.4, 0.6
"""Standard deviations of ln (labels needed / labels forecast) in simulated runs, beyond the spread of the draws.

MODEL if every item is to be done. TARGET if an accuracy is to be reached. UNCHECKED if known items contradict the
confidence, or none check it although it was corrected for shared errors. HARDLY_KNOWN if annotators have few labels.
"""

WELL_KNOWN = 20
"""Average number of labels per annotator, on items of known truth or with three labels, above which they are known."""

LARGEST = 5_000_000
"""Maximum number of cells of drawn confusion matrices. Above it the expected matrices are used."""

EARLY = 6.0
"""Ratio of the interval's ends above which the message says that it is too early."""

NEVER, TINY = 1e12, 1e-300

Rows = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Forecast:
    """Labels and cost still to come.

    Attributes:
        labels: expected number of labels, over all questions, until the project is done.
        low, high: ends of its central 95 % interval.
        cost, cost_low, cost_high: the same in the unit of `Crew.cost`.
        accuracy: accuracy expected then, in [0, 1].
        target: the accuracy to reach, or None if the project ends with its items.
        reached: share of the draws in which the target was reached; 1 without a target.
        unfinished: number of open items that will not reach their confidence, because of the label limit or a lack of
            annotators.
        caution: why the forecast is uncertain, in words, or None.
    """

    labels: float
    low: float
    high: float
    cost: float
    cost_low: float
    cost_high: float
    accuracy: float
    target: float | None = None
    reached: float = 1.0
    unfinished: float = 0.0
    caution: str | None = None

    @property
    def too_early(self) -> bool:
        """True if the interval is too wide to plan by: `high` is more than EARLY times `low`."""
        return self.high > EARLY * self.low

    def __str__(self) -> str:
        goal = "" if self.target is None or self.reached < 0.5 else f" to reach {percent(self.target)}"
        if self.too_early:
            text = f"It's too early to forecast the number of answers{goal or ' to go'}."
        else:
            between = f"{self.low:,.0f} to {self.high:,.0f}"
            cost = "" if math.isclose(self.cost, self.labels) else f", cost {self.cost:,.4g}"  # each costs 1: not set
            text = f"About {self.labels:,.0f} answers to go ({between}){goal}{cost}."
        if self.unfinished >= 0.5:
            left = round(self.unfinished)
            items = "One item" if left == 1 else f"{left:,} items"
            text += f" {items} will stay below the target: label limit, or everyone will have answered."
        if not (goal or self.too_early):
            below = "" if self.target is None else f", below the target of {percent(self.target)}"
            text += f" Believed accuracy then: {percent(self.accuracy)}{below}."
        return text


def forecast(questions: Sequence[Judged], crew: Crew, budget: Budget, *, draws: int = 16, seed: int = 0) -> Forecast:
    """Forecast the labels until the project is done, by simulating `draws` futures. `seed` >= 0 is for the draws.

    >>> print(forecast([(evidence, consensus)], Crew(("ann", "bob")), Budget(target_accuracy=0.95)))
    About 1,240 answers to go (830 to 1,850) to reach 95.0 %.
    """
    pool = PoolState.of(questions, budget)
    expected, rows, target = pool.expected, pool.open_rows, budget.target_accuracy
    model, caution = _doubts(pool)
    if target is not None:
        model = max(model, TARGET)
    if not rows.size or (target is not None and rules.reached(expected, target)):
        reached = float(target is None or rules.reached(expected, target))
        return Forecast(0, 0, 0, 0, 0, 0, expected.accuracy, target, reached, 0.0, caution)
    rng = np.random.default_rng(seed)
    future = _Future(pool, crew, budget, draws, rng)
    future.play(rng)
    return Forecast(
        *_interval(future.labels_d * future.scale, model),
        *_interval(future.cost_d * future.scale, model),
        float(future.accuracy_d.mean()),
        target,
        float(future.reached_d.mean()) if target is not None else 1.0,
        float(future.unfinished_d.mean() * future.scale),
        caution,
    )


class Belief:
    """Beliefs about n items in D draws, and the truth of each draw.

    Attributes:
        truth_dn: (D, n) class codes, drawn from the beliefs.
        labels_dn: (D, n) number of labels so far.
        confidence_dn: (D, n) probability of the most probable class.
    """

    def __init__(
        self, evidence: Evidence, consensus: Consensus, rows: Rows, pi_kjl: Floats, draws: int, rng: np.random.Generator
    ) -> None:
        """Start from the beliefs about the items `rows`. Answers update them by the matrices `pi_kjl` (K, J, L)."""
        labels_n = evidence.annotations.labels_per_item[rows].astype(np.intp)
        self.effect, self.predicted_n = consensus.design_effect, evidence.predicted[rows]
        log_q0_nj = self.effect.untemper(consensus.probabilities[rows], labels_n, self.predicted_n)
        self.log_q0_dnj = np.repeat(log_q0_nj[None], draws, axis=0)
        self.labels_dn = np.repeat(labels_n[None], draws, axis=0)
        self.pi_kjl = pi_kjl
        q_nj = self.probabilities(np.zeros(len(rows), np.intp), np.arange(len(rows)))
        self.confidence_dn = np.repeat(q_nj.max(axis=1)[None], draws, axis=0)
        chance = np.cumsum(q_nj, axis=1)
        u_dn = rng.random(self.labels_dn.shape)
        self.truth_dn = (u_dn[:, :, None] * chance[None, :, -1:] > chance[None]).sum(axis=2)

    def update(self, d: Rows, n: Rows, k: Rows, label: Rows) -> None:
        """Add answers (m,): draw d, item n, annotator k of the crew, and option code."""
        self.log_q0_dnj[d, n] += np.log(np.maximum(given(self.pi_kjl, k, label), TINY))
        self.labels_dn[d, n] += 1
        self.confidence_dn[d, n] = self.probabilities(d, n).max(axis=1)

    def update_many(self, d: Rows, n: Rows, k: Rows, count_ml: Rows) -> None:
        """Add several answers for each (m,) draw d, item n and annotator k: `count_ml` (m, L) of each option."""
        for label in range(count_ml.shape[1]):
            said = given(self.pi_kjl, k, np.full(len(k), label))
            self.log_q0_dnj[d, n] += count_ml[:, label, None] * np.log(np.maximum(said, TINY))
        self.labels_dn[d, n] += count_ml.sum(axis=1)
        self.confidence_dn[d, n] = self.probabilities(d, n).max(axis=1)

    def probabilities(self, d: Rows, n: Rows) -> Floats:
        """Return (m, J) beliefs for each (m,) draw d and item n."""
        return self.effect.temper(self.log_q0_dnj[d, n], self.labels_dn[d, n], self.predicted_n[n])


class _Future:
    """Simulated futures. Axes of arrays: d (draw), n (item of the sample), k (annotator of the crew)."""

    def __init__(self, pool: PoolState, crew: Crew, budget: Budget, draws: int, rng: np.random.Generator) -> None:
        rows = pool.open_rows
        sample = np.sort(rng.choice(rows, SAMPLE, replace=False)) if rows.size > SAMPLE else rows
        matrices = [crew_confusion(consensus, crew) for _, consensus in pool]
        self.beliefs = [Belief(*question, sample, pi, draws, rng) for question, pi in zip(pool, matrices, strict=True)]
        self.pi = [_as_they_may_be(c, crew, pi, draws, rng) for (_, c), pi in zip(pool, matrices, strict=True)]
        self.order_dnr = _orders(pool, crew, budget, sample, matrices, draws, rng)
        self.cost_k, self.budget, self.expected = np.array(crew.prices), budget, pool.expected
        self.named = bool(crew.names)
        error = np.where(pool[0][0].known | pool.open, 0.0, pool.error)  # open items are simulated
        self.settled = float(error.sum()), error.size
        self.n_draws, self.n_items, self.scale = draws, sample.size, rows.size / sample.size
        self.asked_dn = np.zeros((draws, sample.size), dtype=np.intp)
        self.labels_d, self.cost_d, self.accuracy_d, self.unfinished_d = np.zeros((4, draws))
        self.reached_d = np.zeros(draws, dtype=bool)

    def play(self, rng: np.random.Generator) -> None:
        in_order = self.budget.target_accuracy is not None
        plan = int(self.budget.open_questions / self.scale)  # all questions of a plan are asked at once
        batch = min(max(plan, -(-self.n_items // ROUNDS)), self.n_items) if in_order else self.n_items
        running_d = np.ones(self.n_draws, dtype=bool)
        while True:
            confidence_dn, active_dn = self._state()
            reached_d = self._reached()
            self.reached_d |= reached_d & running_d
            ended_d = running_d & ((in_order & reached_d) | ~active_dn.any(axis=1))
            self.unfinished_d[ended_d] = (confidence_dn < self.budget.target_confidence).sum(axis=1)[ended_d]
            running_d &= ~ended_d
            if not running_d.any():
                return
            score_dn = np.where(active_dn & running_d[:, None], confidence_dn, np.inf)
            mask = np.isfinite(score_dn)
            if batch < self.n_items:
                np.put_along_axis(mask, np.argpartition(score_dn, batch - 1, axis=1)[:, batch:], False, axis=1)
            d, n = np.nonzero(mask)
            self._answer(d, n, rng)

    def _state(self) -> tuple[Floats, npt.NDArray[np.bool_]]:
        """Return (D, n) confidence of the least certain question, and (D, n) True if the item can still be answered."""
        confidence_dn = np.min([belief.confidence_dn for belief in self.beliefs], axis=0)
        labels_dn, budget = self.beliefs[0].labels_dn, self.budget
        done = (confidence_dn >= budget.target_confidence) & (labels_dn >= budget.min_labels)
        done |= labels_dn >= budget.max_labels
        depth = self.order_dnr.shape[2]
        place = np.minimum(self.asked_dn, depth - 1)[:, :, None]
        answerable = np.take_along_axis(self.order_dnr, place, axis=2)[:, :, 0] >= 0
        return confidence_dn, ~done & answerable & (self.asked_dn < depth)

    def _reached(self) -> npt.NDArray[np.bool_]:
        """Return (D,) True where the target accuracy is reached, and set `accuracy_d`."""
        errors, size = self.settled
        error_d = np.mean([1 - belief.confidence_dn for belief in self.beliefs], axis=0).sum(axis=1)
        self.accuracy_d = 1 - (errors + self.scale * error_d) / size
        target = self.budget.target_accuracy
        return np.asarray(1 - self.accuracy_d <= (-1.0 if target is None else self.expected.permitted(target)))

    def _answer(self, d: Rows, n: Rows, rng: np.random.Generator) -> None:
        """Simulate the next answers about each of these (draw, item) pairs."""
        k = self.order_dnr[d, n, self.asked_dn[d, n]]
        many = np.ones(d.size, np.intp)
        if not self.named:  # a pool adds several labels at once, in proportion to those there are
            labels = self.beliefs[0].labels_dn[d, n]
            many = np.maximum(np.minimum(labels // AT_A_TIME, self.budget.max_labels - labels), 1)
        self.asked_dn[d, n] += many
        np.add.at(self.labels_d, d, many * float(len(self.beliefs)))  # each question gets a label
        np.add.at(self.cost_d, d, many * self.cost_k[k])
        for belief, pi_dkjl in zip(self.beliefs, self.pi, strict=True):
            truth = belief.truth_dn[d, n]
            if share_errors(pi_dkjl):
                chance = pi_dkjl.answers(k, truth)
            else:
                chance = pi_dkjl[d if len(pi_dkjl) > 1 else 0, k, truth]
            if many.max(initial=1) == 1:
                total = np.cumsum(chance, axis=1)
                belief.update(d, n, k, (rng.random(d.size)[:, None] * total[:, -1:] > total).sum(axis=1))
            else:
                belief.update_many(d, n, k, rng.multinomial(many, chance / chance.sum(axis=1, keepdims=True)))


def _as_they_may_be(consensus: Consensus, crew: Crew, pi_kjl: Floats, draws: int, rng: np.random.Generator) -> Floats:
    """Return (D, K, J, L) confusion matrices, drawn from the posterior for annotators who have answered.

    If they are too large to draw, or the crew has no names, return the expected ones (1, K, J, L).
    """
    learned = consensus.annotators
    if share_errors(pi_kjl):  # too large to draw, and kept as `SharedErrors`
        return as_array(pi_kjl)
    if not crew.names or draws * pi_kjl.size > LARGEST:
        return pi_kjl[None]
    place = {name: k for k, name in enumerate(learned.names)}
    learned_rows = np.array([k for k, name in enumerate(crew.names) if name in place], dtype=np.intp)
    drawn = np.repeat(pi_kjl[None], draws, axis=0)
    if learned_rows.size:
        alpha = learned.concentration[[place[crew.names[k]] for k in learned_rows]]
        gamma = rng.gamma(np.maximum(alpha, 1e-3), size=(draws, *alpha.shape)) + 1e-300
        drawn[:, learned_rows] = gamma / gamma.sum(axis=-1, keepdims=True)
    return drawn


def _orders(
    pool: PoolState,
    crew: Crew,
    budget: Budget,
    sample: Rows,
    matrices: list[Floats],
    draws: int,
    rng: np.random.Generator,
) -> Rows:
    """Return (D, n, R) the annotators who answer each item, in order, -1 for none.

    The order is random, as in a race where an annotator's speed is the number of questions they get in a plan. A plan
    of `budget.open_questions` fills the capacities of the most accurate first. Annotators it does not need come last.
    """
    depth = max(1, budget.max_labels - int(pool[0][0].annotations.labels_per_item[sample].min()))
    if not crew.names:
        return np.broadcast_to(np.intp(0), (draws, sample.size, depth))  # a view, because the label limit may be huge
    right_k = np.mean([diagonals(pi) @ c.class_shares for pi, (_, c) in zip(matrices, pool, strict=True)], axis=0)
    free = Eligibility.of(replace(crew, asked=()), pool.annotations)
    free_nk = free.mask_rows(sample) & (free.capacity > 0)
    best = np.argsort(-right_k, kind="stable")
    room, speed_k, later_k = free.capacity[best], np.empty(right_k.size), np.empty(right_k.size)
    speed_k[best] = np.clip(max(budget.open_questions, 1) - (np.cumsum(room) - room), 0, room)
    later_k[best] = 1e6 * (1 + np.arange(right_k.size))
    depth = min(depth, right_k.size)
    order = np.empty((draws, sample.size, depth), dtype=np.intp)
    later = speed_k <= 0
    for d in range(draws):
        time_nk = rng.exponential(size=free_nk.shape)
        time_nk /= np.maximum(speed_k, 1e-9)
        time_nk[:, later] = later_k[later]
        time_nk[~free_nk] = NEVER
        first = np.argpartition(time_nk, depth - 1, axis=1)[:, :depth]
        time = np.take_along_axis(time_nk, first, axis=1)
        first[time >= NEVER] = -1
        order[d] = np.take_along_axis(first, np.argsort(time, axis=1, kind="stable"), axis=1)
    return order


def _interval(values_d: Floats, model: float) -> tuple[float, float, float]:
    """Return (mean, low, high) of these draws. `model` is a standard deviation of the logarithm to add to theirs."""
    mean = float(values_d.mean())
    if mean <= 0:
        return 0.0, 0.0, 0.0
    spread = np.hypot(values_d.std() / mean, model)
    return mean, mean * float(np.exp(-1.96 * spread)), mean * float(np.exp(1.96 * spread))


def _doubts(pool: PoolState) -> tuple[float, str | None]:
    """Return the standard deviation of the logarithm beyond that of the draws, and its cause in words, or None."""
    expected = pool.expected
    if expected.overconfident:
        return UNCHECKED, (
            f"It may take more: confidence is too high, because {expected.wrong:.0f} of {expected.checked} gold items "
            f"would be wrong where {expected.expected_wrong:.0f} were expected."
        )
    if min(_informative_labels(evidence) for evidence, _ in pool) < WELL_KNOWN:
        return HARDLY_KNOWN, (
            "We hardly know yet how accurate the annotators are. A forecast needs about "
            f"{WELL_KNOWN} answers per annotator on gold items or items with three answers."
        )
    if not expected.checked and not all(consensus.design_effect.independent for _, consensus in pool):
        why = "20 or more answered gold items (`hitl gold truth.csv`: item, label) would sharpen this forecast."
        return UNCHECKED, why
    return MODEL, None


def _informative_labels(evidence: Evidence) -> float:
    """Return the mean number of labels per annotator on items with ground truth, or with three labels or more."""
    annotations = evidence.annotations
    informative = evidence.known | (annotations.labels_per_item >= 3)
    people = int((annotations.labels_per_annotator > 0).sum())
    return float(annotations.labels_per_item[informative].sum() / max(people, 1))
