"""What a consensus keeps of its field, so that items of another graph are judged, or a fit goes on from it.

strength       (J,)   log odds that an edge of weight 1 adds for its items to be of a class
field_shares   (J,)   class shares without neighbours; the consensus has those of the items
"""

from __future__ import annotations

from dataclasses import replace

from hitl.annotations import Floats
from hitl.consensus import Consensus
from hitl.errors import BadSettings
from hitl.evidence import Evidence
from hitl.models.inference import em
from hitl.models.inference.observed_outputs import Outputs
from hitl.models.inference.warm_start import require_same_classes, usable
from hitl.models.numerics.checks import require_between
from hitl.models.numerics.graph import Graph
from hitl.models.priors.graph_field import APPROXIMATIONS, SWEEPS_ALONE, GraphField
from hitl.shown import listed

STRENGTH, FIELD_SHARES = "strength", "field_shares"


def require_approximation(name: str) -> None:
    """Raises BadSettings for a name that is none."""
    if name not in APPROXIMATIONS:
        raise BadSettings(f"combine.options.approximation is {name!r}; expected one of {listed(tuple(APPROXIMATIONS))}")


def require_strength(strength: float | None) -> None:
    """Raises BadSettings for what is neither None nor a number of at least 0."""
    if strength is not None and strength != 0:
        require_between("strength", strength, 0)


def at_start(
    evidence: Evidence, strength: float | None, smoothing: float, approximation: str, start: Consensus | None
) -> GraphField:
    """The field before anything is learned, or as `start` learned it of the same classes; as strong as is given."""
    graph = Graph.of(evidence.graph)
    field = GraphField.even(graph, evidence.annotations.n_classes, strength, smoothing, approximation)
    if start is None or STRENGTH not in start.parameters or not usable(start, evidence.annotations):
        return field
    kept = start.parameters
    return replace(
        field, strength_j=kept[STRENGTH] if strength is None else field.strength_j, share_j=kept[FIELD_SHARES]
    )


def parameters(prior: GraphField) -> dict[str, Floats]:
    """What a consensus keeps."""
    return {STRENGTH: prior.strength_j, FIELD_SHARES: prior.share_j}


def judged(consensus: Consensus, evidence: Evidence, log_pi_klj: Floats, approximation: str) -> Floats:
    """(N, J) beliefs by the field that was learned and these annotators. Raises BadEvidence for other classes."""
    require_same_classes(consensus, evidence)
    kept, graph = consensus.parameters, Graph.of(evidence.graph)
    field = GraphField(graph, kept[STRENGTH], kept[FIELD_SHARES], approximation=approximation, sweeps=SWEEPS_ALONE)
    prior = Outputs.of(evidence, consensus).beside(field)
    return em.expectation(evidence, prior, log_pi_klj).q_nj
