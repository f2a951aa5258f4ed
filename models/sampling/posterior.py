"""What several Gibbs chains say together: averages over their draws, and whether they agree.

The probabilities of an item are the average over draws of p(t_n | labels, alpha, truths of the other items), which has
less noise than counting the drawn t_n (Rao-Blackwell); so are the moments of pi and p given the drawn alpha and
counts. A row of an annotator's matrix is reported as the Dirichlet with the same means and the same sum of variances.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hitl.annotations import Annotations, Floats
from hitl.consensus import AnnotatorReport, Consensus, Fit, Mixing
from hitl.evidence import Evidence
from hitl.models.inference import warm_start
from hitl.models.numerics.clamping import clamp
from hitl.models.sampling import chains, gibbs
from hitl.models.sampling.chains import Chains

MONITORED = 20
"""Annotators whose accuracies are monitored one by one."""

LARGEST = 1e9
"""Pseudo-counts must stay below: sums of counts and larger ones lose the counts."""


@dataclass(frozen=True, eq=False)
class Posterior:
    """What the chains found.

    Attributes:
        q_nj: (N, J) probabilities of the classes; known truths one-hot.
        hard_n: (N,) probability that the item is hard.
        concentration_kjl: Dirichlet parameters matched to the posterior moments of each row.
        share_j: (J,) mean class shares.
        mixing: how well the chains agree.
        trace_r: mean over chains of a log density after each sweep, burn-in included; it tells whether that was enough.
        dependence_kk: (K, K) correlation of two annotators' right answers given the class; None: they are independent.
    """

    q_nj: Floats
    hard_n: Floats
    concentration_kjl: Floats
    share_j: Floats
    mixing: Mixing
    trace_r: Floats
    dependence_kk: Floats | None = None

    def consensus(
        self, annotations: Annotations, method: str, settings: dict[str, object], seconds: float
    ) -> Consensus:
        """As the result of a combiner, without the difficulty."""
        people = AnnotatorReport(
            names=annotations.annotators,
            classes=annotations.classes,
            options=annotations.options,
            concentration=self.concentration_kjl,
            confusion=self.concentration_kjl / self.concentration_kjl.sum(axis=2, keepdims=True),
            labels=annotations.labels_per_annotator,
            shares=self.share_j,
            dependence=self.dependence_kk,
        )
        trace = tuple(self.trace_r.tolist())
        fit = Fit(method, settings, trace, chains.has_mixed(self.mixing), seconds, self.mixing)
        return Consensus(annotations.items, annotations.classes, self.q_nj, people, self.share_j, fit=fit)


def all_hard(annotations: Annotations, diagonal: float, off: float, smoothing: float) -> gibbs.Prior:
    """The prior of IBCC, in which every item is hard."""
    mean_jl = np.full((annotations.n_classes, annotations.n_options), float(off))
    np.fill_diagonal(mean_jl, diagonal)
    return gibbs.Prior(np.full(annotations.n_classes, float(smoothing)), mean_jl, np.ones_like(mean_jl), 1.0)


def sampled(evidence: Evidence, prior: gibbs.Prior, start: Consensus | None, settings: Chains) -> Posterior:
    """Run the chains and average over their kept draws."""
    annotations = evidence.annotations
    burn_in, draws = settings.thrown_away(start, annotations), settings.draws
    shape = (annotations.n_items, annotations.n_annotators, annotations.n_classes, annotations.n_options)
    table = known_table(evidence)
    weight_ak = accuracy_weights(annotations)
    start_nj = warm_start.first_beliefs(evidence, start, prior.mean_jl)

    def run(rng: np.random.Generator) -> gibbs.Sums:
        sums = gibbs.blank_sums(*shape, len(weight_ak), draws, burn_in + draws)
        state = gibbs.blank_state(*shape)
        gibbs.run_chain(rng, table, prior, start_nj, weight_ak, burn_in, settings.thin, state, sums)
        return sums

    return _averaged(evidence, table, prior, settings.run(run))


def known_table(evidence: Evidence) -> gibbs.Table:
    """What a chain needs of the evidence."""
    a = evidence.annotations
    assert evidence.truth is not None
    informative = np.flatnonzero((a.labels_per_item > 0) | evidence.known).astype(np.int64)
    repeated_n = np.zeros(a.n_items, dtype=np.bool_)
    repeated_n[a.item[1:][(np.diff(a.item) == 0) & (np.diff(a.annotator) == 0)]] = True
    return gibbs.Table(a.item_start, a.annotator, a.label, evidence.truth, informative, repeated_n)


def accuracy_weights(annotations: Annotations) -> Floats:
    """(1 + A, K) weights of the monitored accuracies: of all labels, and of each of the annotators with most labels.

    Chains in which different annotators are the good ones can agree on everything else.
    """
    labels_k = annotations.labels_per_annotator
    return np.vstack((labels_k / max(1, labels_k.sum()), busiest(annotations)[:, None] == np.arange(labels_k.size)))


def busiest(annotations: Annotations) -> npt.NDArray[np.intp]:
    """Codes of the MONITORED annotators with most labels."""
    return np.argsort(-annotations.labels_per_annotator, kind="stable")[:MONITORED]


def _averaged(evidence: Evidence, table: gibbs.Table, prior: gibbs.Prior, runs: list[gibbs.Sums]) -> Posterior:
    count = sum(sums.mean_hard_s.size for sums in runs)
    share_j = np.mean([sums.share_js.mean(axis=1) for sums in runs], axis=0)
    share_j /= share_j.sum()
    # An item of which nothing is known has the class shares, and the prior's chance to be hard.
    q_nj = np.tile(share_j, (evidence.annotations.n_items, 1))
    hard_n = np.full(len(q_nj), prior.hard)
    q_nj[table.informative] = total([sums.q_nj for sums in runs])[table.informative] / count
    hard_n[table.informative] = total([sums.hard_n for sums in runs])[table.informative] / count
    return Posterior(
        clamp(q_nj / q_nj.sum(axis=1, keepdims=True), evidence),
        hard_n,
        matched(total([sums.mean_kjl for sums in runs]) / count, total([sums.square_kjl for sums in runs]) / count),
        share_j,
        chains.mixing(_monitored(evidence.annotations, prior, runs)),
        np.mean([sums.log_joint_r for sums in runs], axis=0),
    )


def _monitored(annotations: Annotations, prior: gibbs.Prior, runs: list[gibbs.Sums]) -> dict[str, Floats]:
    draws = runs[0].mean_hard_s.size
    found = {"log joint": np.stack([sums.log_joint_r[-draws:] for sums in runs])}
    if prior.hard < 1:
        found["hard items"] = np.stack([sums.mean_hard_s for sums in runs])
    for j, name in enumerate(annotations.classes):
        found[f"share of {name}"] = np.stack([sums.share_js[j] for sums in runs])
    for a, name in enumerate(["", *(f" of {annotations.annotators[k]}" for k in busiest(annotations))]):
        found[f"accuracy{name}"] = np.stack([sums.accuracy_as[a] for sums in runs])
    return found


def total(arrays: list[Floats]) -> Floats:
    """The sum over chains."""
    summed: Floats = np.sum(arrays, axis=0)
    return summed


def matched(mean_kjl: Floats, square_kjl: Floats) -> Floats:
    """(K, J, L) Dirichlet parameters with these means and, summed over a row, these variances."""
    spread = np.maximum((square_kjl - mean_kjl**2).sum(axis=2, keepdims=True), 1e-12)
    strength = (mean_kjl * (1 - mean_kjl)).sum(axis=2, keepdims=True) / spread - 1
    concentration: Floats = mean_kjl * np.maximum(strength, 1e-3)
    return concentration
