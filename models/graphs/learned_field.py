"""The fit that methods with a field share, and what they keep of it for items of another graph, or to go on from.

strength       (J,)   log odds that an edge of weight 1 adds for its items to be of a class
field_shares   (J,)   class shares without neighbours; the consensus has those of the items
clear          ()     probability that an item seems to annotators to be what it is
seen_shares    (J,)   what the others seem to be
seen           (K, J, L) Dirichlet parameters of answers about what items seem to be; those of the consensus are about
               their true classes. Kept where `clear` is less than 1
seen_prior     (J, L) the same of annotators not met

How often items mislead (`priors.apparent_classes`) can be seen only once neighbours foretell each other. So the field
is learned first as if none did, and then both; the fit stands under which the labels are likelier. Where labels are
too few to tell of each other, no item is held to mislead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from hitl.annotations import Floats
from hitl.consensus import AnnotatorReport, Consensus
from hitl.errors import BadSettings
from hitl.evidence import Evidence
from hitl.formatting import listed
from hitl.models.annotators import AnnotatorModel
from hitl.models.inference import em
from hitl.models.inference.loop import Expected
from hitl.models.inference.observed_outputs import Observed, Outputs
from hitl.models.inference.warm_start import require_learned, require_same_classes, usable
from hitl.models.numerics import kernels
from hitl.models.numerics.checks import require_between
from hitl.models.numerics.clamping import observe
from hitl.models.numerics.graph import Graph
from hitl.models.numerics.votes import shares
from hitl.models.priors.apparent_classes import ApparentClasses
from hitl.models.priors.graph_field import APPROXIMATIONS, SWEEPS_ALONE, GraphField

STRENGTH, FIELD_SHARES, CLEAR = "strength", "field_shares", "clear"
SEEN_SHARES, SEEN, SEEN_PRIOR = "seen_shares", "seen", "seen_prior"

FIRST_CLEAR = 0.95
"""Share of the items that seem to be what they are, before it is learned. On a graph that says nothing it stays near
this. Chosen on simulated crowds and pubmed among .7, .9, .95 and .99, which differ little."""

LEAST_CLEAR = 0.5
"""Share of the items that seem to be what they are, at or below which a fit is not believed: labels would say less of
the truth than neighbours do, and the field would be learned from itself."""

A = TypeVar("A", bound=AnnotatorModel)

Prior = ApparentClasses[Observed[GraphField]]


def require_approximation(name: str) -> None:
    """Raises BadSettings for a name that is none."""
    if not isinstance(name, str) or name not in APPROXIMATIONS:
        raise BadSettings(f"combine.options.approximation is {name!r}; expected one of {listed(tuple(APPROXIMATIONS))}")


def require_strength(strength: float | None) -> None:
    """Raises BadSettings for what is neither None nor a number of at least 0."""
    if strength is not None and strength != 0:
        require_between("strength", strength, 0)


def require_clear(clear: float | None) -> None:
    """Raises BadSettings for what is neither None nor in (0, 1]."""
    if clear is not None and clear != 1:
        require_between("clear", clear, 0, 1)


@dataclass(frozen=True)
class Settings:
    """Those that methods with a field share; see there."""

    strength: float | None
    clear: float | None
    smoothing: float
    approximation: str
    tolerance: float
    max_iterations: int

    @property
    def loop(self) -> dict[str, Any]:
        """How long to iterate."""
        return {"tolerance": self.tolerance, "max_iterations": self.max_iterations}


def fitted(
    evidence: Evidence, settings: Settings, field: Observed[GraphField], annotators: A, q_nj: Floats
) -> em.Estimate[Prior, A]:
    """The fit from these beliefs, with beliefs about what items seem to be."""
    j = evidence.annotations.n_classes
    prior = ApparentClasses(field, np.full(j, 1 / j), 1.0 if settings.clear is None else settings.clear)
    plain = _climbed(evidence, settings, prior, annotators, q_nj)
    learned = plain.prior.prior.prior
    if settings.clear is not None or settings.strength is not None or not _told_of_each_other(evidence, learned):
        return plain
    misleading = replace(plain.prior, clear=FIRST_CLEAR, share_j=learned.share_j, learned=True)
    begun = replace(plain.statistics, clear=FIRST_CLEAR * plain.statistics.items)
    going_on = Expected(plain.counts_klj, begun, 0.0)
    found = _climbed(evidence, settings, misleading, plain.annotators, plain.q_nj, lambda: going_on)
    likelier = found.objective[-1] > plain.objective[-1] and found.prior.clear > LEAST_CLEAR
    return found if likelier else plain


def _told_of_each_other(evidence: Evidence, field: GraphField) -> bool:
    """Whether most edges of labeled items lead to labeled ones, and any edge has strength.

    An item without labels repeats to its neighbours what it has from them. They would seem to be foretold.
    """
    labeled_n = (evidence.annotations.labels_per_item > 0).astype(np.float64)
    graph = field.graph
    to_labeled, to_any = (
        float(labeled_n @ graph.sums(other_n[:, None])[:, 0]) for other_n in (labeled_n, np.ones_like(labeled_n))
    )
    return bool(field.strength_j.any() and 2 * to_labeled > to_any)


def _climbed(
    evidence: Evidence,
    settings: Settings,
    prior: Prior,
    annotators: A,
    q_nj: Floats,
    begun: Callable[[], Expected] | None = None,
) -> em.Estimate[Prior, A]:
    """From these beliefs; where long steps of the strengths led down, by short ones from there on."""
    found = em.maximise(evidence, prior, annotators, q_nj, begun=begun, **settings.loop)
    trace = found.objective
    enough = settings.tolerance * evidence.annotations.n_items
    if len(trace) < 2 or trace[-1] > trace[-2] - enough or len(trace) >= settings.max_iterations:
        return found
    field = found.prior.prior
    careful = replace(found.prior, prior=replace(field, prior=replace(field.prior, quickest=1.0)))
    going_on = partial(Expected, found.counts_klj, found.statistics, 0.0)
    left = settings.loop | {"max_iterations": settings.max_iterations - len(trace)}
    more = em.maximise(evidence, careful, found.annotators, found.q_nj, begun=going_on, **left)
    return replace(more, objective=(*trace, *more.objective))


def at_start(evidence: Evidence, settings: Settings, start: Consensus | None) -> GraphField:
    """The field before anything is learned, or as `start` learned it of the same classes; as strong as is given."""
    graph, strength = Graph.of(evidence.graph), settings.strength
    n_classes = evidence.annotations.n_classes
    field = GraphField.even(graph, n_classes, strength, settings.smoothing, settings.approximation)
    if start is None or STRENGTH not in start.parameters or not usable(start, evidence.annotations):
        return field
    kept = start.parameters
    return replace(
        field, strength_j=kept[STRENGTH] if strength is None else field.strength_j, share_j=kept[FIELD_SHARES]
    )


def _messages(evidence: Evidence, log_pi_klj: Floats) -> Floats:
    return observe(kernels.messages(evidence.annotations, log_pi_klj), evidence)


def _parameters(prior: Prior, seen: AnnotatorReport) -> dict[str, Floats]:
    """What a consensus keeps; `seen` reports of answers about what items seem to be."""
    field = prior.prior.prior
    kept = {STRENGTH: field.strength_j, FIELD_SHARES: field.share_j, CLEAR: np.array(prior.clear)}
    if prior.clear == 1:
        return kept
    kept |= {SEEN_SHARES: prior.share_j, SEEN: seen.concentration}
    return kept if seen.prior is None else kept | {SEEN_PRIOR: seen.prior}


def as_seen(consensus: Consensus) -> Consensus:
    """The same with annotators who answer about what items seem to be."""
    if SEEN not in consensus.parameters:
        return consensus
    kept = consensus.parameters
    pi_kjl = kept[SEEN] / kept[SEEN].sum(axis=2, keepdims=True)
    people = replace(consensus.annotators, concentration=kept[SEEN], confusion=pi_kjl, prior=kept.get(SEEN_PRIOR))
    return replace(consensus, annotators=people)


def judged(consensus: Consensus, evidence: Evidence, log_pi_klj: Floats, approximation: str) -> Floats:
    """(N, J) beliefs by the field that was learned and these annotators, who answer about what items seem to be.

    Raises BadEvidence for other classes.
    """
    require_same_classes(consensus, evidence)
    require_learned(consensus, STRENGTH, FIELD_SHARES)
    kept, graph = consensus.parameters, Graph.of(evidence.graph)
    field = GraphField(graph, kept[STRENGTH], kept[FIELD_SHARES], approximation=approximation, sweeps=SWEEPS_ALONE)
    prior = Outputs.of(evidence, consensus).beside(field)
    clear = float(kept.get(CLEAR, 1.0))
    return ApparentClasses(prior, kept.get(SEEN_SHARES, kept[FIELD_SHARES]), clear).truths(
        _messages(evidence, log_pi_klj)
    )


def concluded(
    method: Any, began: float, evidence: Evidence, outputs: Outputs, found: em.Estimate[Prior, A], seen: AnnotatorReport
) -> Consensus:
    """The consensus about the true classes; `seen` reports of answers about what items seem to be."""
    kept = outputs.kept(_parameters(found.prior, seen))
    if found.prior.clear < 1:
        message_nj = _messages(evidence, found.annotators.log_pi_klj)
        found = replace(found, q_nj=found.prior.truths(message_nj))
        seen = _of_truths(seen, found.prior, shares(found.q_nj))
    return em.concluded(method, began, evidence, found, seen, **kept)


def _of_truths(seen: AnnotatorReport, prior: Prior, share_j: Floats) -> AnnotatorReport:
    """How often answers are right: an item may mislead, and its answer may be wrong about what it seems to be."""
    step_jj = prior.clear * np.eye(len(prior.share_j)) + (1 - prior.clear) * prior.share_j

    def composed(alpha: Floats) -> Floats:
        total = alpha.sum(axis=-1, keepdims=True)
        rows: Floats = step_jj @ (alpha / total) * total
        return rows

    return replace(
        seen,
        concentration=composed(seen.concentration),
        confusion=step_jj @ seen.confusion,
        prior=None if seen.prior is None else composed(seen.prior),
        shares=share_j,
    )
