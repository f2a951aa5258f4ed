"""Incremental EM (Neal & Hinton 1998): labels come, change and go one by one, and no refit follows.

All that a fit knows are the beliefs q_n of the items and sums over the items to learn from:

    C_k[l, j] = sum of u_n q_nj over the labels (n, k, l)        c_j = sum_n u_n q_nj
    V_k[l, j], v_j: the same with shares of agreeing votes in place of beliefs, for anchors w, w' (else 0)

where item n counts u_n: 0 with too few labels, 1 with known truth, else the same u. The parameters follow from the sums
in closed form, with f = ln for posterior modes (Dawid–Skene, P+L-EM) and means (the hierarchy of the default), and
f = psi, the digamma function, for expectations of the logarithm (VB-IBCC):

    T = (1 - w) C + w V         ln pi_k[l, j] = f(T_k[l, j] + a_kjl) - f(sum_l T_k[l, j] + a_kjl)
    t = (1 - w') c + w' v       ln p_j        = f(t_j + s_j) - f(sum_j t_j + s_j)

What `em` climbs is the maximum over q of F(q, parameters) = E_q ln joint + entropy of q. Any step that makes the
beliefs of one item, or the parameters of one annotator, the best given all the rest raises F, in whatever order. So
where the steps come to rest, the fit would too. One item is judged in the time of its labels: the sums change by what
its beliefs change.

A changed label is taken in by such steps for its item and the annotators of its item; then TURNS other items and as
large a share of the annotators have their turn, so that none stays behind for long. But single steps creep where a
fit gathers momentum, and what all annotators depend on (their shared prior, the temperatures of models)
cannot be learned from one item. So after REFRESH_AFTER of all labels have changed, and whenever a consensus is asked
for, a few iterations of the fit follow over everything; and a fit from nothing when half of all labels are others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from hitl.annotations import Annotations, Floats, Name
from hitl.consensus import AnnotatorReport, Consensus
from hitl.errors import BadEvidence
from hitl.evidence import Evidence
from hitl.formatting import listed
from hitl.models.inference import incremental_steps as steps
from hitl.models.inference.mutable_annotations import Codes, GrowingLabels, roomy
from hitl.models.numerics import kernels
from hitl.models.numerics.clamping import clamp
from hitl.models.numerics.special import digamma
from hitl.models.numerics.votes import agreeing, agreement
from hitl.models.priors.followed import FollowedPrior, FollowedShares

TURNS = 128
"""Items that have their turn for each label that changes."""

REFRESH_AFTER = 0.01
"""Share of all labels that change before everything is brought up to date."""

REFRESH_LEAST = 100
"""But not before so many have changed."""

REFIT_AFTER = 0.5
"""Share of all labels that change before everything is fitted from nothing: what was believed of few labels may be
next to the wrong top, and no iteration leaves that."""

ROUNDS = 2
"""How often the annotators of a changed item, and the item itself, are judged in turn."""

Label = tuple[int, int, int]
"""Codes of item, annotator and option (-1: whichever it is)."""


def _shares(evidence: Evidence) -> FollowedPrior:
    """Class shares, the same for all items."""
    return FollowedShares(evidence.annotations.n_classes)


@dataclass(frozen=True, eq=False)
class Rule:
    """How the parameters of a method follow from the sums.

    Attributes:
        pseudo_jl: (J, L) a, pseudo-counts of a confusion row, > 0, of annotators that have none of their own.
        share_smoothing: s, pseudo-items of a class, > 0; a number or (J,).
        variational: whether f is the digamma function, or the logarithm.
        anchor, share_anchor: w and w', weights of the votes, in [0, 1).
        least_labels: labels an item of unknown truth needs to be learned from.
        prior: makes the truth prior, from the evidence that is followed.
        pseudo_klj: (K, L, J) a of the annotators of the fit, or None.
        weight: u, how much an item of unknown truth counts that has labels enough.
        of_a_class: whether labels that are no class ("unsure") are left out of `least_labels`.
        above_mode: what the mean of a row has more than its parameters in each cell: 1 of a mode, 0 of a mean.
    """

    pseudo_jl: Floats
    share_smoothing: float | Floats
    variational: bool = False
    anchor: float = 0.0
    share_anchor: float = 0.0
    least_labels: int = 1
    prior: Callable[[Evidence], FollowedPrior] = field(default=_shares)
    pseudo_klj: Floats | None = None
    weight: float = 1.0
    of_a_class: bool = False
    above_mode: float = 1.0

    def expected_log(self, pseudo: Floats, axis: int) -> Floats:
        """ln of what these counts and pseudo-counts say, normalised over an axis."""
        f = digamma if self.variational else np.log
        logarithm: Floats = f(pseudo) - f(pseudo.sum(axis=axis, keepdims=True))
        return logarithm

    def predictive(self, pseudo_klj: Floats) -> Floats:
        """(K, L, J) ln of the chance of the next answer: the mean of the posterior, which a mode has one more in."""
        raised = pseudo_klj + self.above_mode
        logarithm: Floats = np.log(raised) - np.log(raised.sum(axis=1, keepdims=True))
        return logarithm

    def weights(self, truth: Codes, labels: Codes, informativeness: Floats) -> Floats:
        """(rows,) u of items with these truths (-1: unknown), numbers of labels, and models."""
        return np.where(truth >= 0, 1.0, np.where(labels >= self.least_labels, self.weight, informativeness))

    def pseudo(self, annotators: Codes) -> Floats:
        """(rows, L, J) a of these annotators; (1, L, J) where all have the same."""
        if self.pseudo_klj is None:
            return self.pseudo_jl.T[None]
        met = annotators < len(self.pseudo_klj)
        own_klj = self.pseudo_klj[np.where(met, annotators, 0)]
        return np.where(met[:, None, None], own_klj, self.pseudo_jl.T)


class IncrementalEM:
    """A consensus that follows the labels; a combiner's `follow` makes one.

    It changes with every call, for one thread at a time. A change takes a fraction of a millisecond however many labels
    there are, but for the one with which REFRESH_AFTER of all have changed: that takes as long as `consensus`, some
    iterations over everything. An annotator who asks for a consensus at a quiet time has it behind them.

    Attributes:
        labels: who said what, now.
        rule: how the parameters follow from the sums.
        truth: (N or more,) known class codes, -1 where unknown.
        weight_n: (N or more,) u, how much an item counts in the sums.
        q_nj: (N or more, J) beliefs.
        counts_klj: (K or more, L, J) C;  votes_klj: V (where there is an anchor).
        share_j: (J,) c;  vote_j: v.
        log_pi_klj: (K or more, L, J) the annotators' parameters in force.
    """

    def __init__(
        self,
        consensus: Consensus,
        evidence: Evidence,
        q_nj: Floats,
        rule_of: Callable[[Consensus, Evidence], Rule],
        update: Callable[[Consensus, Evidence], Consensus],
        fit: Callable[[Evidence], Consensus],
    ) -> None:
        """From a consensus, and what it believes (N, J) of the items of this evidence.

        `update` brings a consensus up to date with everything, `fit` makes one from nothing.
        """
        self._rule_of, self._update, self._fit = rule_of, update, fit
        self._item_turn = self._annotator_turn = self._since_fit = 0
        self._begin(consensus, evidence, q_nj)
        self._behind = True

    def _begin(self, consensus: Consensus, evidence: Evidence, q_nj: Floats) -> None:
        assert evidence.truth is not None
        self._consensus, self._changes, self._behind = consensus, 0, False
        self.rule = rule = self._rule_of(consensus, evidence)
        self.labels = GrowingLabels(evidence.annotations)
        self.truth = evidence.truth.astype(np.int64)
        self.prior = rule.prior(evidence)
        informativeness_n = self.prior.informativeness(np.arange(len(self.truth)))
        self.weight_n = rule.weights(self.truth, self._labels_to_learn_from(evidence.annotations), informativeness_n)
        self.q_nj = q_nj.copy()
        self.counts_klj, self.share_j = self._sums(evidence, self.q_nj)
        if rule.anchor:
            self.votes_klj, self.vote_j = self._sums(evidence, clamp(agreement(evidence.annotations), evidence))
        self.log_pi_klj = np.empty_like(self.counts_klj)
        self.estimate(np.arange(self.labels.n_annotators))

    # -- what changes --------------------------------------------------------------------------------------

    def label(self, item: Name, annotator: Name, label: Name) -> None:
        """An annotator labels an item, or labels it anew; items and annotators not met join.

        Raises BadAnnotations for an option that is not among those of the fit.
        """
        option = self.labels.option(label)
        self.labels.check_names([item], [annotator])
        self._change([(self._item(item), self._annotator(annotator), option)], [])

    def withdraw(self, item: Name, annotator: Name, label: Name | None = None) -> None:
        """An annotator takes a label back; of the anonymous pool, say which. Raises BadEvidence where there is none."""
        option = -1 if label is None else self.labels.option(label)
        self._change([], self._present([(item, annotator, option)]))

    def change(self, given: Evidence | None = None, withdrawn: Annotations | None = None) -> None:
        """Take in many changes at once, and only those, matched by name to what is known.

        The labels of `given` are new, or in place of the same person's earlier ones; its known truths and predictions
        replace those of its items; its items join where they are new, labeled or not. `withdrawn` are labels taken
        back, before new ones are put in. Raises BadEvidence or BadAnnotations, before anything has changed, for other
        classes, options or models, and for a withdrawn label that is not there.
        """
        if given is not None:
            self._check(given)
        gone = [] if withdrawn is None else self._present(self._rows(withdrawn))
        if given is None:
            self._change([], gone)
            return
        new = given.annotations
        items = np.array([self._item(name) for name in new.items], dtype=np.int64)
        annotators = [self._annotator(name, k == new.anonymous) for k, name in enumerate(new.annotators)]
        options = [self.labels.option(name) for name in new.options]
        self.prior.predict(items, given.probabilities)
        codes = zip(new.item.tolist(), new.annotator.tolist(), new.label.tolist(), strict=True)
        self._change([(int(items[n]), annotators[k], options[o]) for n, k, o in codes], gone, items, given.truth)

    def _check(self, given: Evidence) -> None:
        new = given.annotations
        if new.classes != self.labels.classes:
            before, now = listed(self.labels.classes), listed(new.classes)
            raise BadEvidence(f"the labels so far have the classes {before}; these have {now}")
        others = sorted(set(given.probabilities) - set(self.prior.predictions))
        if self.prior.predictions and others:
            raise BadEvidence(f"probabilities of {', '.join(others)}: had no part in the fit; fit again to add a model")
        for option in new.options:
            self.labels.option(option)
        self.labels.check_names(new.items, new.annotators)

    # -- what follows --------------------------------------------------------------------------------------

    def belief(self, item: Name) -> Floats:
        """(J,) what is believed of an item now, at once. Raises BadEvidence for one not met."""
        n = self.labels.find_item(item)
        if n < 0:
            raise BadEvidence(f"item {item!r} is not among the {self.labels.n_items} items")
        belief: Floats = self.q_nj[n].copy()
        return belief

    def consensus(self) -> Consensus:
        """What all labels say together, in a few iterations over everything; at once where nothing has changed."""
        if self._behind:
            evidence = self.evidence()
            if self._since_fit >= REFIT_AFTER * len(self.labels):
                consensus, self._since_fit = self._fit(evidence), 0
            else:
                consensus = self._update(self.snapshot(), evidence)
            self._begin(consensus, evidence, consensus.probabilities)
        return self._consensus

    def snapshot(self) -> Consensus:
        """What is believed so far, in no iteration: items that had no turn yet may be behind."""
        names, q_nj = self.labels, self.q_nj[: self.labels.n_items].copy()
        alpha_kjl = np.ascontiguousarray(self._pseudo(np.arange(names.n_annotators)).transpose(0, 2, 1))
        share_j = self._shares(q_nj)
        report = AnnotatorReport(
            names=names.annotators,
            classes=names.classes,
            options=names.options,
            concentration=alpha_kjl,
            confusion=alpha_kjl / alpha_kjl.sum(axis=2, keepdims=True),
            labels=names.labels_per_annotator,
            shares=share_j,
            prior=None if self.rule.above_mode else self.rule.pseudo_jl,
        )
        temperatures, parameters = self.prior.report()
        fit = replace(self._consensus.fit, objective=(), converged=False)
        return Consensus(names.items, names.classes, q_nj, report, share_j, temperatures, fit, parameters=parameters)

    def evidence(self) -> Evidence:
        """The labels and truths as they are now, and predictions if the method uses them; nothing else is followed."""
        n = self.labels.n_items
        predictions = {model: rows[:n] for model, rows in self.prior.predictions.items()}
        return Evidence(self.labels.annotations(), predictions, truth=self.truth[:n].astype(np.int32))

    # -- the steps; each raises F --------------------------------------------------------------------------

    def judge(self, items: Codes) -> None:
        """E-step of these items: beliefs by the parameters in force, and the sums after them."""
        where = self.labels.first, self.labels.size, self.labels.cells
        log_share_j = self.prior.log_shares(self.rule.expected_log(self._raised_shares()[None], 1)[0])
        parameters = _by_cell(self.log_pi_klj), log_share_j, self.prior.log_items()
        sums = _by_cell(self.counts_klj), self.share_j
        steps.judge(items, *where, *parameters, self.truth, self.weight_n, self.q_nj, *sums)

    def estimate(self, annotators: Codes) -> None:
        """M-step of these annotators."""
        self.log_pi_klj[annotators] = self.rule.expected_log(self._pseudo(annotators), axis=1)

    # -- taking a change in --------------------------------------------------------------------------------

    def _change(
        self,
        given: Sequence[Label],
        gone: Sequence[Label],
        items: Codes | None = None,
        known: npt.NDArray[np.integer[Any]] | None = None,
    ) -> None:
        """Labels given and gone; truths known of some `items` (-1: nothing new)."""
        self._behind = True
        touched = _distinct([n for n, _, _ in (*given, *gone)], items)
        before = self._annotators_of(touched)
        self._count(touched, -1.0)
        for label in gone:
            self.labels.take(*label)
        for label in given:
            self.labels.put(*label)
        if items is not None and known is not None:
            self.truth[items] = np.where(known >= 0, known, self.truth[items])
        self.weight_n[touched] = 0.0  # judged without their own labels, then counted
        annotators = _distinct(before, self._annotators_of(touched))
        self.log_pi_klj[annotators] = self.rule.predictive(self._pseudo(annotators))
        self.judge(touched)
        self._vote(touched, annotators[self.counts_klj[annotators].sum(axis=(1, 2)) > 0])
        labels_n = [self._counting(self.labels.of(n) % len(self.labels.options)).sum() for n in touched]
        self.weight_n[touched] = self.rule.weights(
            self.truth[touched], np.array(labels_n), self.prior.informativeness(touched)
        )
        self._count(touched, 1.0)
        for _ in range(ROUNDS):
            self.estimate(annotators)
            self.judge(touched)
        self._turns(len(given) + len(gone))

    def _turns(self, changes: int) -> None:
        """The next items and annotators have their turn; from time to time, all."""
        self._changes += changes
        self._since_fit += changes
        if self._changes >= max(REFRESH_LEAST, REFRESH_AFTER * len(self.labels)):
            self.consensus()
            return
        n, k = self.labels.n_items, max(1, self.labels.n_annotators)
        items = min(n, TURNS * changes)
        annotators = min(self.labels.n_annotators, -(-items * k // n))
        self.judge((self._item_turn + np.arange(items)) % n)
        self.estimate((self._annotator_turn + np.arange(annotators)) % k)
        self._item_turn, self._annotator_turn = (self._item_turn + items) % n, (self._annotator_turn + annotators) % k

    def _count(self, items: Codes, sign: float) -> None:
        """Put these items into the sums (1) or take them out (-1), those to learn from."""
        items = items[self.weight_n[items] > 0]
        where = self.labels.first, self.labels.size, self.labels.cells
        by = sign * self.weight_n[items][:, None]
        steps.add(items, *where, by * self.q_nj[items], _by_cell(self.counts_klj), self.share_j)
        if self.rule.anchor:
            steps.add(items, *where, by * self._voted(items), _by_cell(self.votes_klj), self.vote_j)

    def _vote(self, items: Codes, met: Codes) -> None:
        """Votes decide where only annotators not met have labeled: even beliefs say nothing of them, ever."""
        if not self.prior.uninformed:
            return
        n_classes, n_options = len(self.labels.classes), len(self.labels.options)
        for n in items[(self.truth[items] < 0) & (self.labels.size[items] > 0)]:
            cells = self.labels.of(n)
            if not np.isin(cells // n_options, met).any():
                raised = np.bincount(cells % n_options, minlength=n_options)[:n_classes] + 1 / n_classes
                self.q_nj[n] = raised / raised.sum()

    def _voted(self, items: Codes) -> Floats:
        """(rows, J) what the votes say of these items; known truths as they are."""
        n_classes, n_options = len(self.labels.classes), len(self.labels.options)
        votes_nj = [np.bincount(self.labels.of(n) % n_options, minlength=n_options)[:n_classes] for n in items]
        voted_nj = agreeing(np.array(votes_nj, np.float64).reshape(-1, n_classes))
        known = self.truth[items] >= 0
        voted_nj[known] = np.eye(n_classes)[self.truth[items[known]]]
        return voted_nj

    def _counting(self, options: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.bool_]:
        """Which of these labels count towards `least_labels`."""
        return options < len(self.labels.classes if self.rule.of_a_class else self.labels.options)

    def _labels_to_learn_from(self, annotations: Annotations) -> Codes:
        """(N,) labels of each item that count towards `least_labels`."""
        return np.bincount(annotations.item[self._counting(annotations.label)], minlength=annotations.n_items)

    def _sums(self, evidence: Evidence, rows_nj: Floats) -> tuple[Floats, Floats]:
        """(K, L, J) sums over the labels and (J,) over the items, of those to learn from."""
        return kernels.counts(evidence.annotations, rows_nj, self.weight_n), kernels.totals(rows_nj, self.weight_n)

    def _pseudo(self, annotators: Codes) -> Floats:
        """(rows, L, J) T + a of these annotators."""
        learned_klj, w = self.counts_klj[annotators], self.rule.anchor
        if w:
            learned_klj = (1 - w) * learned_klj + w * self.votes_klj[annotators]
        return np.maximum(learned_klj, 0.0) + self.rule.pseudo(
            annotators
        )  # what was added and taken away leaves rounding

    def _raised_shares(self) -> Floats:
        """(J,) t + s."""
        w = self.rule.share_anchor
        learned_j = (1 - w) * self.share_j + w * self.vote_j if w else self.share_j
        raised: Floats = learned_j + self.rule.share_smoothing
        return raised

    def _shares(self, q_nj: Floats) -> Floats:
        """(J,) class shares of a consensus."""
        raised = self._raised_shares()
        return self.prior.reported_shares(q_nj, raised / raised.sum())

    # -- names to codes ------------------------------------------------------------------------------------

    def _item(self, name: Name) -> int:
        """The code of an item; one not met joins, and believes what the prior says."""
        n = self.labels.item(name)
        self.truth = roomy(self.truth, n + 1, -1)
        self.weight_n = roomy(self.weight_n, n + 1)
        self.q_nj = roomy(self.q_nj, n + 1)
        self.prior.join(n + 1)
        return n

    def _annotator(self, name: Name, anonymous: bool = False) -> int:
        """The code of an annotator; one not met joins, at the prior."""
        met = self.labels.n_annotators
        k = self.labels.annotator(name, anonymous)
        if k == met:
            self.counts_klj = roomy(self.counts_klj, k + 1)
            self.log_pi_klj = roomy(self.log_pi_klj, k + 1)
            if self.rule.anchor:
                self.votes_klj = roomy(self.votes_klj, k + 1)
            self.estimate(np.array([k]))
        return k

    def _present(self, rows: Iterable[tuple[Name, Name, int]]) -> list[Label]:
        """The codes of labels that are there. Raises BadEvidence for one that is not."""
        labels = self.labels
        found: Counter[Label] = Counter()
        for item, annotator, option in rows:
            n, k = labels.find_item(item), labels.find_annotator(annotator)
            if k == labels.anonymous and option < 0:
                raise BadEvidence(
                    f"withdrawn: which label of {annotator!r} on item {item!r}? Its annotators have no ids"
                )
            label = (n, k, option if k == labels.anonymous else -1)
            found[label] += 1
            if found[label] > (labels.count(*label) if n >= 0 and k >= 0 else 0):
                raise BadEvidence(f"withdrawn: annotator {annotator!r} has no such label on item {item!r}")
        return list(found.elements())

    def _rows(self, annotations: Annotations) -> list[tuple[Name, Name, int]]:
        """Names of item and annotator, and code of the option, of each label."""
        options = [self.labels.option(name) for name in annotations.options]
        codes = zip(annotations.item, annotations.annotator, annotations.label, strict=True)
        return [(annotations.items[n], annotations.annotators[k], options[option]) for n, k, option in codes]

    def _annotators_of(self, items: Codes) -> Codes:
        """Who labeled one of these items."""
        cells = [self.labels.of(n) for n in items]
        return _distinct(np.concatenate(cells) // len(self.labels.options) if cells else [])


def _by_cell(rows_klj: Floats) -> Floats:
    """(K L, J) the same numbers by cell."""
    return rows_klj.reshape(-1, rows_klj.shape[2])


def _distinct(*codes: Codes | Sequence[int] | None) -> Codes:
    """All codes, each once."""
    distinct: Codes = np.unique(np.concatenate([np.asarray(each, np.int64) for each in codes if each is not None]))
    return distinct
