"""Estimate how all people would answer each item, and whether they differ on it or someone is wrong.

    P(l | c, k)  = (1 - e_c) sum_j t_cj pi_k[j, l] + e_c t_cl     answer l by annotator k to an item of kind c
    z_nc         = w_c g_nc prod_a P(l_a | c, k_a) / ...            posterior of the kind, from the item's answers a
    w_c          = mean_n z_nc, by EM                               (nonparametric mixing distribution; Laird 1978)
    differ_n     = sum of z_nc over kinds of several classes
    share_nl     = sum_c z_nc mean_k P(l | c, k)                    annotators weighted by their labels

The kind c of an item says what people see in it: one class, two classes in three proportions, or all classes alike
(t_c). And how plainly: they answer what they see with probability e_c (0, 0.5, 0.9), else err as they usually do. Only
disagreement that neither usual errors nor an unclear item explains speaks for several classes. pi_k are the consensus's
confusion matrices, without the item's own label, which would be its own evidence. g_nc is what models say.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from scipy import sparse

from hitl.annotations import Floats, Names
from hitl.consensus import Consensus
from hitl.errors import BadEvidence
from hitl.evidence import Evidence
from hitl.models.analysis.anchoring import model_answers

PROPORTIONS, PLAIN = (0.25, 0.5, 0.75), (0.0, 0.5, 0.9)
"""Parts of the first of two classes, and values of e_c."""

PAIRS = 45
"""Maximum number of pairs of classes, those that most items share in their answers."""

LEARNED, ITERATIONS = 20_000, 200
"""Maximum number of items that w is learned from, drawn at random, and of iterations."""

ENOUGH = 5
"""Labels per item from which `differ` separates simulated items of both sorts."""

CELLS, LARGEST = 20_000_000, 100_000_000
"""Numbers computed at a time, and maximum size of the confusion matrices."""


@dataclass(frozen=True, eq=False)
class Disagreement:
    """Distribution of the answers that people would give to each item.

    Attributes:
        consensus: the consensus beside it, of the same N items.
        options: L names of answers.
        shares: (N, L) share of people who would give each answer; rows sum to 1.
        differ: (N,) probability that people see different classes in the item, in [0, 1]; NaN without answers. If they
            see one class and answers disagree all the same, someone is wrong.
        disputed: (N,) True if the item's answers are not all the same.
        labels: mean number of answers to an item that has any.
    """

    consensus: Consensus
    options: Names
    shares: Floats
    differ: Floats
    disputed: npt.NDArray[np.bool_]
    labels: float

    def __str__(self) -> str:
        expected, disputed = float(self.differ[self.disputed].sum()), int(self.disputed.sum())
        return (
            f"Of {disputed:,} items whose answers disagree, people differ on about {expected:,.0f}; on the other "
            f"{disputed - expected:,.0f} someone is wrong."
            + (f" {self.labels:.1f} labels per item tell little of that." if self.labels < ENOUGH else "")
        )

    def table(self) -> pa.Table:
        """Return an Arrow table: item, label, confidence, differ (null without answers), share_<option>."""
        columns = self.consensus.table().select(["item", "label", "confidence"])
        columns = columns.append_column("differ", pa.array(self.differ, from_pandas=True))
        for name, share_n in zip(self.options, self.shares.T, strict=True):
            columns = columns.append_column(f"share_{name}", pa.array(share_n))
        return columns


def disagreement(evidence: Evidence, consensus: Consensus) -> Disagreement:
    """Estimate how people would answer each item. `consensus` is fitted to this evidence.

    Raises BadEvidence for answers that mark parts of items, without answers, and for confusion matrices that are too
    large.
    """
    answers, people = evidence.annotations, consensus.annotators
    size = len(people.names) * len(people.classes) * len(people.options)
    if evidence.parts is not None or not len(answers) or size > LARGEST:
        raise BadEvidence("soft labels: expected answers about whole items, and at most 100 million confusions")
    n_classes, weight_k = len(people.classes), people.labels / people.labels.sum()
    mean_jl = np.einsum("k,kjl->jl", weight_k, np.asarray(people.confusion))
    kinds = _Kinds.of(evidence)
    asked_n = np.flatnonzero(answers.labels_per_item > 0)
    drawn = np.sort(np.random.default_rng(0).permutation(asked_n)[:LEARNED])
    log_nc = np.concatenate([log for _, log in _log_likelihoods(evidence, consensus, kinds, drawn)])
    weight_c = _learned(log_nc)
    answer_cl = (1 - kinds.plain)[:, None] * (kinds.seen @ mean_jl)
    answer_cl[:, :n_classes] += kinds.plain[:, None] * kinds.seen
    shares, differ = consensus.probabilities @ mean_jl, np.full(answers.n_items, np.nan)
    for items, log in _log_likelihoods(evidence, consensus, kinds, asked_n):
        z_nc = weight_c * np.exp(log - log.max(axis=1, keepdims=True))
        z_nc /= z_nc.sum(axis=1, keepdims=True)
        shares[items], differ[items] = z_nc @ answer_cl, z_nc[:, kinds.several].sum(axis=1)
    first = answers.label[np.minimum(answers.item_start[:-1], len(answers) - 1)]
    disputed = np.bincount(answers.item, answers.label != first[answers.item], answers.n_items) > 0
    return Disagreement(consensus, answers.options, shares, differ, disputed, len(answers) / len(asked_n))


@dataclass(frozen=True, slots=True)
class _Kinds:
    """Kinds of items: (C, J) t_c, (C,) e_c, and (C,) True if people see several classes."""

    seen: Floats
    plain: Floats
    several: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, evidence: Evidence) -> _Kinds:
        answers, n_classes = evidence.annotations, evidence.annotations.n_classes
        shape = (answers.n_items, answers.n_options)
        counts = sparse.coo_array((np.ones(len(answers)), (answers.item, answers.label)), shape=shape).tocsr()
        part = sparse.diags_array(1 / np.maximum(answers.labels_per_item, 1)) @ counts[:, :n_classes]
        both = sparse.triu(part.T @ part, k=1).tocoo()
        top = np.argsort(-both.data, kind="stable")[:PAIRS]
        one = np.eye(n_classes)
        first, second = one[both.coords[0][top]], one[both.coords[1][top]]
        seen = [one, *(share * first + (1 - share) * second for share in PROPORTIONS)]
        seen += [np.full((1, n_classes), 1 / n_classes)] if n_classes > 2 else []
        seen_cj = np.concatenate(seen)
        several = np.arange(len(seen_cj)) >= n_classes
        each = len(PLAIN)
        return cls(np.tile(seen_cj, (each, 1)), np.repeat(PLAIN, len(seen_cj)), np.tile(several, each))


def _log_likelihoods(
    evidence: Evidence, consensus: Consensus, kinds: _Kinds, items: npt.NDArray[np.int64]
) -> Iterator[tuple[npt.NDArray[np.int64], Floats]]:
    """Yield some of the items, and the (n, C) log likelihood of their answers and of what models say."""
    answers, people = evidence.annotations, consensus.annotators
    count_kjl = np.asarray(people.concentration)
    total_kj = count_kjl.sum(axis=2)
    seen_lc = np.zeros((answers.n_options, len(kinds.plain)))
    seen_lc[: answers.n_classes] = kinds.seen.T
    ratio_nj = (
        model_answers(evidence, consensus.temperatures) / consensus.class_shares if evidence.probabilities else None
    )
    step = max(1, int(CELLS * len(items) / (len(kinds.plain) * len(answers))))
    least = np.finfo(float).eps
    for start in range(0, len(items), step):
        some = items[start : start + step]
        rows = np.arange(answers.item_start[some[0]], answers.item_start[some[-1] + 1])
        rows = rows[np.isin(answers.item[rows], some)]
        who, label = answers.annotator[rows], answers.label[rows]
        own = consensus.probabilities[answers.item[rows]]
        pi_aj = np.maximum(count_kjl[who, :, label] - own, least) / np.maximum(total_kj[who] - own, least)
        log_ac = np.log(np.maximum((1 - kinds.plain) * (pi_aj @ kinds.seen.T) + kinds.plain * seen_lc[label], least))
        place = (np.searchsorted(some, answers.item[rows]), np.arange(len(rows)))
        log_nc = sparse.coo_array((np.ones(len(rows)), place), shape=(len(some), len(rows))).tocsr() @ log_ac
        if ratio_nj is not None:
            log_nc += np.log(np.maximum(np.nan_to_num(ratio_nj[some], nan=1.0) @ kinds.seen.T, least))
        yield some, log_nc


def _learned(log_nc: Floats) -> Floats:
    """Return the (C,) shares of the kinds that make these items most likely, with one item of each kind in C more."""
    likelihood_nc = np.exp(log_nc - log_nc.max(axis=1, keepdims=True))
    n_items, n_kinds = likelihood_nc.shape
    weight_c = np.full(n_kinds, 1 / n_kinds)
    for _ in range(ITERATIONS):
        expected_c = weight_c * (likelihood_nc.T @ (1 / (likelihood_nc @ weight_c)))
        before, weight_c = weight_c, (expected_c + 1 / n_kinds) / (n_items + 1)
        if np.abs(weight_c - before).sum() < 1e-6:
            break
    return weight_c
