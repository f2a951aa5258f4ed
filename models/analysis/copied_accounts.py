"""Find accounts that copy each other, or belong to one person, and count each group of them once.

Take the items that accounts a and b have both answered, with x_n and y_n, and the beliefs q_n of all others about them
(VB-IBCC; without accounts as close to a or b as a copy). One answer is copied with probability k, and both accounts
have the confusion rows pi:

    p(x_n, y_n)  =  sum_j q_nj pi[j, x_n] ( k [x_n = y_n] + (1 - k) pi[j, y_n] )                             (1)

Rows and k maximize the likelihood of each pair by EM. Two people who are nearly always right have rows near 1, which
explain their agreement without k. Only equal answers that the others contradict raise k. Items that mislead everybody
raise it too, but for all pairs. So a pair is compared with the other pairs of the crowd:

    null hypothesis   k = k_0 = LEAST + (1 - LEAST) (upper quartile of k among the crowd's pairs)
    p-value           of the likelihood ratio against the best k > k_0 (half chi-square), 1 if there is none

The share of false discoveries (Benjamini & Hochberg 1995) is controlled over all pairs that share enough items. People
who follow rules of their own that nobody else has, such as a separately trained team of two, look like copies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import connected_components
from scipy.special import softmax
from scipy.stats import chi2, false_discovery_control

from hitl.annotations import Annotations, Floats, Name
from hitl.evidence import Evidence
from hitl.models.analysis.agreement import agreement_with_others
from hitl.models.vb_ibcc import VBIBCC

Codes = npt.NDArray[np.integer]

LEAST_SHARED, MOST_SHARED = 20, 300
"""Minimum number of shared items of a pair, and maximum number of them that the test reads."""

SUSPECT, CLOSE = 0.5, 0.85
"""Share of an account's disagreement with others that a pair must lack to be tested, and to be as close as a copy."""

LEAST = 0.3
"""Share of copied answers below which a pair is never reported."""

FALSE_SHARE = 0.001
"""Maximum expected share of false discoveries. Simulated crowds with copies lose little by it (docs/benchmarks)."""

MOST_TESTS, ORDINARY = 300, 100
"""Maximum number of pairs that are tested, the closest ones, and of pairs that represent the crowd."""

MOST_PAIRINGS, MOST_CELLS = 10_000_000, 4_000_000
"""Maximum number of pairs of labels of one item (fewer items are read beyond it), and of cells of (K, J, L)."""

COPIED = "copied by"
"""First words about an account that another one copies."""

STEPS, PSEUDO_LABELS = 40, 0.5
"""EM steps, and the weight of the crowd's rows in the rows of a pair."""


@dataclass(frozen=True, slots=True)
class Copy:
    """Pair of accounts that count as one.

    Attributes:
        copy, original: codes of the accounts. The copy mostly answered later or, without times, has fewer labels.
        shared, agreed: number of items that both have labeled, and of equal labels on these.
        copied: estimated share of copied answers.
        p_value: probability of so much agreement among the pairs of this crowd.
    """

    copy: int
    original: int
    shared: int
    agreed: int
    copied: float
    p_value: float


@dataclass(frozen=True, eq=False)
class CopiedAccounts:
    """Copies among K accounts. `group_k` (K,): number of each account's group; pairs connect accounts to groups."""

    pairs: tuple[Copy, ...]
    group_k: Codes

    def describe(self, account: int, names: Sequence[Name], *, once: bool) -> list[str]:
        """Return what to say about an account. `once`: True if its group counts once in the consensus."""
        end = "count as one" if once else "are not asked about the same items"
        as_copy = [
            f"copies {names[pair.original]} (or both are one person): they agree on {pair.agreed:,} of {pair.shared:,} "
            f"shared items, also where they are wrong; they {end}"
            for pair in self.pairs
            if pair.copy == account
        ]
        return as_copy + [f"{COPIED} {names[pair.copy]}" for pair in self.pairs if pair.original == account]

    def others(self, account: int) -> Codes:
        """Return the other accounts of its group."""
        return np.flatnonzero((self.group_k == self.group_k[account]) & (np.arange(len(self.group_k)) != account))

    def once(self, annotations: Annotations) -> Annotations:
        """Leave out all but one answer of each group to each item. The answer of an original, then of a copy, stays."""
        copied_k = np.zeros(len(self.group_k), bool)
        copied_k[[pair.copy for pair in self.pairs]] = True
        return _one_per_group(annotations, self.group_k, copied_k)


_found: WeakKeyDictionary[Annotations, CopiedAccounts] = WeakKeyDictionary()


def copied_accounts(annotations: Annotations) -> CopiedAccounts:
    """Return the copied accounts, from the labels alone. Repeated calls with the same object do not test again."""
    found = _found.get(annotations)
    if found is None:
        pairs = _pairs(annotations)
        copies, originals = (np.array([getattr(pair, end) for pair in pairs], np.intp) for end in ("copy", "original"))
        groups = _groups(copies, originals, annotations.n_annotators)
        found = _found[annotations] = CopiedAccounts(pairs, groups)
    return found


def count_copies_once(evidence: Evidence) -> Evidence:
    """Return the evidence with one answer of each group of copied accounts per item.

    Return the same object if there are no copies, if annotators mark parts of items, or if the items form sequences,
    because the test takes items for independent.
    """
    found = copied_accounts(evidence.annotations) if can_count_once(evidence) else None
    return replace(evidence, annotations=found.once(evidence.annotations)) if found and found.pairs else evidence


def can_count_once(evidence: Evidence) -> bool:
    """Return True if the labels are about whole items that do not form sequences."""
    return evidence.parts is None and evidence.sequence is None


def _pairs(whole: Annotations) -> tuple[Copy, ...]:
    """Test all pairs that share enough items. Return those that are copies."""
    skip = -(-int((whole.labels_per_item**2).sum()) // MOST_PAIRINGS)
    annotations = whole if skip <= 1 else whole.select(whole.item % skip == 0)
    first, second, differ = _close_pairs(annotations)
    near = np.argsort(differ, kind="stable")[:MOST_TESTS]
    near = near[differ[near] <= 1 - SUSPECT]
    if not near.size or annotations.n_annotators * annotations.n_classes * annotations.n_options > MOST_CELLS:
        return ()
    close = differ <= 1 - CLOSE
    others = _Others(annotations, first[close], second[close])
    copied_p = np.array([others.fit(first[pair], second[pair])[0] for pair in _spread(len(first), ORDINARY)])
    null = LEAST + (1 - LEAST) * _ordinary(copied_p, len(first), annotations.n_annotators)
    fits = {int(pair): others.fit(first[pair], second[pair], null) for pair in near}
    p_values = np.ones(len(first))
    p_values[near] = [chi2.sf(2 * ratio, 1) / 2 if copied > null else 1.0 for copied, ratio in fits.values()]
    found = near[false_discovery_control(p_values)[near] <= FALSE_SHARE]
    return tuple(_copy(whole, first[pair], second[pair], fits[pair][0], float(p_values[pair])) for pair in found)


def _groups(first: Codes, second: Codes, size: int) -> Codes:
    """Return (K,) the number of each account's group, where pairs connect accounts."""
    links = csr_array((np.ones(len(first)), (first, second)), shape=(size, size))
    group_k: Codes = connected_components(links, directed=False)[1].astype(np.intp)
    return group_k


def _one_per_group(annotations: Annotations, group_k: Codes, last_k: npt.NDArray[np.bool_]) -> Annotations:
    """Leave out all but one answer of each group to each item: that of the account with most labels, `last_k` last.

    Different answers within a group are left out too, because most are slips in copying: what remains of a copy shows
    how good it is alone.
    """
    k, many_k = annotations.annotator, annotations.labels_per_annotator
    order = np.lexsort((k, -many_k[k], last_k[k], group_k[k], annotations.item))
    again = (np.diff(annotations.item[order]) == 0) & (np.diff(group_k[k[order]]) == 0)
    if annotations.anonymous is not None:
        again &= k[order[1:]] != annotations.anonymous
    chosen = np.ones(len(order), bool)
    chosen[order[1:][again]] = False
    return annotations.select(chosen)


def _ordinary(copied_p: Floats, pairs: int, people: int) -> float:
    """Return the upper quartile of k in a sample of the pairs of a crowd.

    Pairs that share too few items count as 0, up to three pairs per person: otherwise copies would be compared with
    themselves in crowds in which only copies share many items.
    """
    level = 1 - 0.25 * max(1.0, 3 * people / pairs)
    return float(np.quantile(copied_p, level)) if level > 0 else 0.0


def _close_pairs(annotations: Annotations) -> tuple[Codes, Codes, Floats]:
    """Return (P,) codes of pairs with LEAST_SHARED items, and (P,) how often they differ on these.

    1 is as often as the account that agrees more with others differs from them.
    """
    enough_k = annotations.labels_per_annotator >= LEAST_SHARED
    if annotations.anonymous is not None:
        enough_k[annotations.anonymous] = False
    part = annotations.select(enough_k[annotations.annotator])
    size, answer = part.n_annotators, part.item.astype(np.int64) * part.n_options + part.label
    ones = np.ones(len(part), np.int32)
    labeled_kn = csr_array((ones, (part.annotator, part.item)), shape=(size, part.n_items))
    answered = csr_array((ones, (part.annotator, answer)), shape=(size, part.n_items * part.n_options))
    shared = coo_array(labeled_kn @ labeled_kn.T)
    pairs = (shared.row < shared.col) & (shared.data >= LEAST_SHARED)
    first, second, shared_p = shared.row[pairs], shared.col[pairs], shared.data[pairs]
    same_p = np.asarray((answered @ answered.T).tocsr()[first, second]).ravel() if len(first) else shared_p
    alone_k = 1 - np.nan_to_num(agreement_with_others(annotations)[0], nan=1.0)
    alone_p = np.minimum(alone_k[first], alone_k[second])
    differ_p = np.ones(len(first))
    np.divide(1 - same_p / shared_p, alone_p, out=differ_p, where=alone_p > 0)
    return first, second, differ_p


class _Others:
    """Beliefs of all accounts but those that may be copies of a pair's, and equation (1) for such a pair."""

    def __init__(self, annotations: Annotations, first: Codes, second: Codes) -> None:
        """Fit the crowd. `first` and `second` are the accounts of pairs that may be copies."""
        size = annotations.n_annotators
        self._annotations, self._first, self._second = annotations, first, second
        self._once = once = _one_per_group(annotations, _groups(first, second, size), np.zeros(size, bool))
        fit = VBIBCC().fit(Evidence(once))
        self._log_pi_klj = np.log(np.maximum(fit.annotators.confusion.transpose(0, 2, 1), 1e-6))
        log_q_jn = [
            np.bincount(once.item, log_pi_kl[once.annotator, once.label], once.n_items)
            for log_pi_kl in self._log_pi_klj.transpose(2, 0, 1)
        ]
        self._log_q_nj = np.stack(log_q_jn, axis=1) + np.log(fit.class_shares)
        crowd_lj = np.ones(self._log_pi_klj.shape[1:])
        np.add.at(crowd_lj, once.label, fit.probabilities[once.item])
        self._crowd_lj = crowd_lj / crowd_lj.sum(axis=0)

    def fit(self, a: int, b: int, null: float = 1.0) -> tuple[float, float]:
        """Return the k of a pair and, if it is above the `null` hypothesis, the log likelihood ratio."""
        rows_a, rows_b = (rows[_spread(len(rows), MOST_SHARED)] for rows in _shared_rows(self._annotations, a, b))
        item = self._annotations.item[rows_a]
        log_q_nj = self._log_q_nj[item]
        close = (self._second[np.isin(self._first, (a, b))], self._first[np.isin(self._second, (a, b))])
        for k in {a, b}.union(*map(np.ndarray.tolist, close)):
            at, rows = _rows_on(self._once, k, item)
            log_q_nj[at] -= self._log_pi_klj[k, self._once.label[rows]]
        q_nj = softmax(log_q_nj, axis=1)
        x, y = self._annotations.label[rows_a], self._annotations.label[rows_b]
        copied, log_p = self._maximize(q_nj, x, y, 0.5, free=True)
        if copied <= null:
            return copied, 0.0
        return copied, max(0.0, log_p - self._maximize(q_nj, x, y, null, free=False)[1])

    def _maximize(self, q_nj: Floats, x: Codes, y: Codes, copied: float, *, free: bool) -> tuple[float, float]:
        """Fit the rows of (1), and k if it is `free`, by EM. Return k and the log posterior."""
        options = np.arange(len(self._crowd_lj))[:, None]
        of_x, of_y, equal = (options == x) * 1.0, (options == y) * 1.0, (x == y)[:, None]
        pi_lj = self._crowd_lj
        for _ in range(STEPS):
            second_nj = (1 - copied) * pi_lj[y] + copied * equal
            r_nj = q_nj * pi_lj[x] * second_nj
            total_n = r_nj.sum(axis=1, keepdims=True)
            log_p = float(np.log(total_n).sum() + PSEUDO_LABELS * (self._crowd_lj * np.log(pi_lj)).sum())
            r_nj /= total_n
            copy_nj = r_nj * equal * copied / second_nj
            pi_lj = PSEUDO_LABELS * self._crowd_lj + of_x @ r_nj + of_y @ (r_nj - copy_nj)
            pi_lj /= pi_lj.sum(axis=0)
            if free:
                copied = float(np.clip(copy_nj.sum() / len(x), 1e-3, 1 - 1e-4))
        return copied, log_p


def _shared_rows(annotations: Annotations, a: int, b: int) -> tuple[Codes, Codes]:
    """Return the rows of both accounts' labels on the items that both have labeled."""
    start, rows = annotations.by_annotator
    of_a = rows[start[a] : start[a + 1]]
    at, of_b = _rows_on(annotations, b, annotations.item[of_a])
    return of_a[at], of_b


def _rows_on(annotations: Annotations, account: int, item: Codes) -> tuple[Codes, Codes]:
    """Return the places of the items that an account has labeled, and the rows of its labels."""
    start, rows = annotations.by_annotator
    rows = rows[start[account] : start[account + 1]]
    _, at, of = np.intersect1d(item, annotations.item[rows], assume_unique=True, return_indices=True)
    return at, rows[of]


def _spread(size: int, most: int) -> Codes:
    """Return at most `most` indices, evenly spread."""
    return np.linspace(0, size - 1, min(size, most)).astype(np.intp)


def _copy(annotations: Annotations, a: int, b: int, copied: float, p_value: float) -> Copy:
    row_a, row_b = _shared_rows(annotations, a, b)
    agreed = int((annotations.label[row_a] == annotations.label[row_b]).sum())
    later = 0.0
    if annotations.time is not None:
        later = float(np.nan_to_num(np.sign(annotations.time[row_a] - annotations.time[row_b])).sum())
    labels = annotations.labels_per_annotator
    copy, original = (a, b) if (later, labels[b]) > (0.0, labels[a]) else (b, a)
    return Copy(copy, original, len(row_a), agreed, copied, p_value)
