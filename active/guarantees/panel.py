"""Estimate from items that people have read what a panel of judges is worth, and how many items pass.

Judges are the models of the evidence. What people say is the reference. The judges are combined without people's
labels, by fits that learn from what people said about other items: the items that were read are split into FOLDS, and
each is believed by a fit that does not know its answer. That belief is the proxy of `share_of`. So judges make the
intervals narrower and cannot make them wrong, if the items that people read were drawn at random. Judges may count as
models, which are calibrated as a pool, or as annotators, who have confusion matrices: the role is taken in which these
fits predict what people said better.

They need not be recorded as drawn. SHA-256 of its name gives every item a place in one random order. The beginning of
that order is a random sample, and those who have read it can prove it later.

The worth of K judges is the number of judges who err independently and whose errors average out as well:

    worth  =  K / (1 + (K - 1) rho)        rho = mean correlation of two judges' errors

(Kish's design effect, of errors.) Three copies of one judge are worth one. The interval is a bootstrap over items.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256

import numpy as np
import numpy.typing as npt

from hitl.active.guarantees.intervals import Interval, share_of
from hitl.annotations import Annotations, Floats, Ints
from hitl.consensus import Consensus
from hitl.errors import BadEvidence
from hitl.evidence import Evidence
from hitl.score import log_loss

Codes = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

FOLDS = 5
FEW = 20
"""Items read by people below which judges do not learn from them, and their worth is not estimated."""

READ = 0.95
"""Share of the beginning of the random order that must be read to count as a sample: some items cannot be judged."""

RESAMPLES = 1000
SEED = 0


@dataclass(frozen=True, slots=True)
class Judge:
    """One judge: the number of its answers, and how often they are right, or None if people read none of its items."""

    name: str
    answers: int
    right: Interval | None


@dataclass(frozen=True, slots=True)
class Next:
    """An item that people should read.

    `why`: "random", which the intervals rest on, or "doubt", where the judges leave most doubt.
    `doubt`: probability that the panel's label is wrong.
    """

    item: int
    why: str
    doubt: float


@dataclass(frozen=True, eq=False)
class Panel:
    """Estimates about the judges of N items, and about the items.

    Attributes:
        judges: each judge, in the order of the models.
        passing: share of the items that pass; None if people have read nothing.
        worth: number of independent judges that the panel is worth; None if too little is known, or no two judges err.
        read: number of items that people have read.
        drawn: number of these that are the beginning of the random order; 0 if there is no such beginning of FEW items.
        next: items to read, in order.
        losses: role of the judges ("models", "annotators") -> mean log loss, in nats, of what people said, by fits that
            do not know it. The role with the lower one is taken. Empty if fewer than FEW items were read, or if the
            method needs models: then judges count as models.
        answer_nk: (N, K) codes of the judges' answers, -1 for none.
    """

    judges: tuple[Judge, ...]
    passing: Interval | None
    worth: Interval | None
    read: int
    drawn: int
    next: tuple[Next, ...]
    losses: dict[str, float]
    answer_nk: Codes


def judged(
    evidence: Evidence,
    passing: Collection[int],
    fit: Callable[[Evidence], Consensus],
    many: int,
    confidence: float = 0.95,
) -> Panel:
    """Estimate what the judges are worth, and how many items pass.

    Args:
        evidence: labels of people, known answers, and probabilities of models, which are the judges.
        passing: codes of the classes that pass.
        fit: combines evidence, as the default method does.
        many: number of items to read next at most.
        confidence: of each interval.

    Raises BadEvidence if there is no judge.
    """
    if not evidence.probabilities:
        raise BadEvidence("no judge; expected probabilities of models, or annotators that are named as judges")
    labels = evidence.annotations
    answer_nk = np.stack([_answers(p_nj) for p_nj in evidence.probabilities.values()], axis=1)
    reference_n, place_n = _reference(evidence, fit), _random_places(labels)
    alone = replace(evidence, annotations=labels.select(np.zeros(len(labels), bool)))
    read_n, roles = reference_n >= 0, {"models": _beliefs(alone, reference_n, place_n, fit)}
    if read_n.sum() >= FEW:
        with suppress(BadEvidence):  # a method that needs models
            roles["annotators"] = _beliefs(_as_annotators(alone, answer_nk), reference_n, place_n, fit)
    losses = {role: log_loss(q_nj, reference_n) for role, q_nj in roles.items()} if len(roles) > 1 else {}
    belief_nj = roles[min(losses, key=losses.__getitem__, default="models")]
    drawn_n = _drawn(read_n, place_n)
    known_n = drawn_n if drawn_n.any() else read_n

    def interval(true_n: Flags, believed_n: Floats, counted_n: Flags) -> Interval | None:
        rows = known_n & counted_n
        if not rows.any():
            return None
        mean, size = float(believed_n[counted_n].mean()), int(counted_n.sum())
        return share_of(true_n[rows].astype(float), believed_n[rows], mean, size, confidence)

    items, codes = np.arange(labels.n_items), list(passing)
    judges = []
    for name, answer_n in zip(evidence.probabilities, answer_nk.T, strict=True):
        answered = answer_n >= 0
        right = interval(answer_n == reference_n, belief_nj[items, answer_n], answered)
        judges.append(Judge(name, int(answered.sum()), right))
    wrong_nk = np.where(answer_nk < 0, np.nan, answer_nk != reference_n[:, None])[known_n]
    return Panel(
        judges=tuple(judges),
        passing=interval(np.isin(reference_n, codes), belief_nj[:, codes].sum(axis=1), np.ones(len(items), bool)),
        worth=_worth(wrong_nk, confidence) if len(wrong_nk) >= FEW else None,
        read=int(read_n.sum()),
        drawn=int(drawn_n.sum()),
        next=_next(read_n, place_n, 1 - belief_nj.max(axis=1), many),
        losses=losses,
        answer_nk=answer_nk,
    )


def _answers(p_nj: Floats) -> Codes:
    """Return (N,) the most likely class of a model's probabilities, -1 where it abstains."""
    return np.where(np.isnan(p_nj[:, 0]), -1, np.nan_to_num(p_nj).argmax(axis=1))


def _as_annotators(judges: Evidence, answer_nk: Codes) -> Evidence:
    """Return the evidence with the judges' answers as labels instead of probabilities."""
    labels = judges.annotations
    items, judge = np.nonzero(answer_nk >= 0)
    given = Annotations(
        items.astype(np.int32),
        judge.astype(np.int32),
        answer_nk[items, judge].astype(np.int32),
        labels.items,
        tuple(judges.probabilities),
        labels.classes,
        labels.classes,
        ordered=labels.ordered,
    )
    return Evidence(given)


def _reference(evidence: Evidence, fit: Callable[[Evidence], Consensus]) -> Ints:
    """Return (N,) the class that people give each item, -1 for none: a known answer, else the best of those given."""
    labels, truth_n = evidence.annotations, evidence.truth
    assert truth_n is not None
    if not len(labels):
        return truth_n
    given_nj = np.zeros((labels.n_items, labels.n_classes))
    of_class = labels.label < labels.n_classes
    rows, codes = labels.item[of_class], labels.label[of_class]
    several = labels.labels_per_item.max() > 1
    believed_nj = fit(Evidence(labels, truth=truth_n)).probabilities if several else np.ones_like(given_nj)
    given_nj[rows, codes] = np.maximum(believed_nj[rows, codes], np.finfo(float).tiny)
    best_n = np.where(given_nj.any(axis=1), given_nj.argmax(axis=1), -1)
    return np.where(truth_n >= 0, truth_n, best_n).astype(np.int32)


def _random_places(annotations: Annotations) -> Codes:
    """Return (N,) the place of each item in a random order, which its name alone determines."""
    keys = [sha256(str(name).encode()).digest() for name in annotations.items]
    place_n = np.empty(len(keys), np.int64)
    place_n[sorted(range(len(keys)), key=keys.__getitem__)] = np.arange(len(keys))
    return place_n


def _drawn(read_n: Flags, place_n: Codes) -> Flags:
    """Return (N,) True for read items at the start of the random order, up to where nearly all are read."""
    many = np.cumsum(read_n[np.argsort(place_n)])
    enough = np.flatnonzero(many >= READ * np.arange(1, len(many) + 1))
    end = int(enough[-1]) + 1 if enough.size else 0
    return read_n & (place_n < end) if end and many[end - 1] >= FEW else np.zeros(len(read_n), bool)


def _beliefs(judges: Evidence, reference_n: Ints, place_n: Codes, fit: Callable[[Evidence], Consensus]) -> Floats:
    """Return (N, J) the beliefs from judges alone, by fits that do not know the reference of the item."""
    read = np.flatnonzero(reference_n >= 0)
    if len(read) < FEW:
        return fit(replace(judges, truth=None)).probabilities
    fold = np.argsort(np.argsort(place_n[read])) % FOLDS
    total_nj = np.zeros((len(reference_n), judges.annotations.n_classes))
    belief_nj = total_nj.copy()
    for number in range(FOLDS):
        truth_n = reference_n.copy()
        hidden = read[fold == number]
        truth_n[hidden] = -1
        p_nj = fit(replace(judges, truth=truth_n)).probabilities
        total_nj += p_nj / FOLDS
        belief_nj[hidden] = p_nj[hidden]
    unread = reference_n < 0
    belief_nj[unread] = total_nj[unread]
    return belief_nj


def _worth(wrong_nk: Floats, confidence: float) -> Interval | None:
    """Return the number of independent judges, from (n, K) errors, NaN where a judge did not answer."""
    there_nk = ~np.isnan(wrong_nk)
    error_nk = np.nan_to_num(wrong_nk)
    judges = wrong_nk.shape[1]
    best = _worths(np.ones((1, len(wrong_nk))), error_nk, there_nk)[0]
    if not np.isfinite(best):
        return None
    rng = np.random.default_rng(SEED)
    weight_bn = rng.multinomial(len(wrong_nk), np.full(len(wrong_nk), 1 / len(wrong_nk)), RESAMPLES)
    drawn = _worths(weight_bn.astype(float), error_nk, there_nk)
    tail = (1 - confidence) / 2
    low, high = np.quantile(drawn[np.isfinite(drawn)], [tail, 1 - tail])
    return Interval(float(best), max(1.0, float(low)), min(float(judges), float(high)), len(wrong_nk))


def _worths(weight_bn: Floats, error_nk: Floats, there_nk: Flags) -> Floats:
    """Return (B,) the worth of the judges for each row of weights of the n items; NaN where no two judges err."""
    judges = error_nk.shape[1]
    first, second = np.triu_indices(judges, 1)
    both = (there_nk[:, first] & there_nk[:, second]).astype(float)
    e, f = error_nk[:, first] * both, error_nk[:, second] * both
    with np.errstate(invalid="ignore", divide="ignore"):
        many = weight_bn @ both
        share_e, share_f, share_ef = ((weight_bn @ wrong) / many for wrong in (e, f, e * f))
        variance = share_e * (1 - share_e) * share_f * (1 - share_f)
        rho = (share_ef - share_e * share_f) / np.sqrt(variance)  # 0 / 0 where a judge of the pair never errs
    known = np.isfinite(rho)
    mean_b = np.where(known, rho, 0).sum(axis=1) / np.maximum(known.sum(axis=1), 1)
    worth = np.clip(judges / (1 + (judges - 1) * mean_b), 1, judges)
    return np.where(known.any(axis=1), worth, np.nan)


def _next(read_n: Flags, place_n: Codes, doubt_n: Floats, many: int) -> tuple[Next, ...]:
    """Return items to read: alternately the next of the random order, and the one with most doubt."""
    unread = np.flatnonzero(~read_n)
    by_place = unread[np.argsort(place_n[unread])][:many]
    by_doubt = unread[np.lexsort((place_n[unread], -doubt_n[unread]))][: 2 * many]
    chosen: dict[int, str] = {}
    for random, doubtful in zip(by_place, by_doubt, strict=False):
        chosen.setdefault(int(random), "random")
        chosen.setdefault(int(doubtful), "doubt")
    return tuple(Next(item, why, float(doubt_n[item])) for item, why in list(chosen.items())[:many])
