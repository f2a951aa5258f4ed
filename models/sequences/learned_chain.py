"""Markov chain stored in a consensus, from which `apply` and a warm start continue.

first    (J,)    probability of each class at the beginning of a sequence
steps    (J, J)  probability of each class after each class; rows sum to 1

Together with the messages of items it gives a posterior over entire sequences (`ChainPosterior`): beliefs about each
item, the most probable path, and the probability of events over several items, such as the borders of a span.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hitl.annotations import Floats, Ints
from hitl.consensus import Consensus
from hitl.errors import BadEvidence
from hitl.evidence import Evidence
from hitl.models.inference.observed_outputs import Outputs
from hitl.models.inference.warm_start import require_learned, require_same_classes
from hitl.models.numerics.clamping import messages
from hitl.models.numerics.forward_backward import Indices, Passed, forward_backward, most_probable
from hitl.models.priors.markov_chain import NEVER, MarkovChain, Sequences

FIRST, STEPS = "first", "steps"

AT_ONCE = 500_000
"""Number of sequence positions processed at once while probabilities of events are computed."""


def sequences_of(evidence: Evidence) -> Sequences:
    """Return the order of the items. Raise BadEvidence if there is none, or if two items have the same position."""
    if evidence.sequence is None:
        raise BadEvidence(
            "items have no positions in sequences; expected sequence=, in every shard if there are several"
        )
    order = np.lexsort(evidence.sequence.T[::-1])
    same = np.flatnonzero((np.diff(evidence.sequence[order], axis=0) == 0).all(axis=1))
    if same.size:
        first, second = (evidence.annotations.items[row] for row in order[same[0] : same[0] + 2])
        raise BadEvidence(
            f"items {first!r} and {second!r} have the same position in a sequence; expected different positions"
        )
    return Sequences(evidence.sequence)


@dataclass(frozen=True, eq=False)
class ChainPosterior:
    """Posterior of a chain given messages (N, J), which include ground truth and models."""

    message_nj: Floats
    chain: MarkovChain

    @cached_property
    def passed(self) -> Passed:
        """Beliefs, and the log evidence of each sequence."""
        return self._pass(self.message_nj, self.chain.sequences.rows, self.chain.sequences.start)

    @property
    def path(self) -> Ints:
        """(N,) class codes on the most probable path of each sequence."""
        order = self.chain.sequences
        return most_probable(self.message_nj, order.rows, order.start, self.chain.first_j, self.chain.step_ij)

    def probabilities(self, sequence_e: Indices, where: Callable[[int, Floats], None]) -> Floats:
        """Return (E,) probabilities of E events; event e concerns the sequence sequence_e[e].

        `where(e, message_tj)` receives the messages (T, J) of this sequence, item by item. It must set the messages of
        classes that the event rules out to -inf.
        """
        start, rows = self.chain.sequences.start, self.chain.sequences.rows
        log_e = np.empty(len(sequence_e))
        ends = np.cumsum(start[sequence_e + 1] - start[sequence_e])
        parts = np.split(
            np.arange(len(sequence_e)), np.searchsorted(ends, np.arange(AT_ONCE, int(ends[-1:].sum()), AT_ONCE))
        )
        for part in parts:
            copies = [self.message_nj[rows[start[s] : start[s + 1]]] for s in sequence_e[part]]
            for event, message_tj in zip(part.tolist(), copies, strict=True):
                where(event, message_tj)
            if copies:
                borders = np.cumsum([0, *map(len, copies)])
                log_e[part] = self._pass(np.concatenate(copies), np.arange(borders[-1]), borders).log_z_s
        # An event that makes its sequence impossible has probability 0; its log evidence may be NaN.
        return np.nan_to_num(np.exp(log_e - self.passed.log_z_s[sequence_e]), nan=0.0)

    def _pass(self, message_nj: Floats, rows: Indices, start: Indices) -> Passed:
        return forward_backward(message_nj, rows, start, self.chain.first_j, self.chain.step_ij)


def chain_posterior(consensus: Consensus, evidence: Evidence, log_pi_klj: Floats) -> ChainPosterior:
    """Return the posterior of the learned chain given labels and models. Raise BadEvidence for other classes."""
    require_same_classes(consensus, evidence)
    require_learned(consensus, FIRST, STEPS)
    kept = consensus.parameters
    first_j, step_ij = (np.maximum(kept[name], np.exp(NEVER)) for name in (FIRST, STEPS))
    message_nj = messages(evidence, log_pi_klj)
    said_nj = Outputs.of(evidence, consensus).log_likelihood()
    return ChainPosterior(
        message_nj if said_nj is None else message_nj + said_nj,
        MarkovChain(sequences_of(evidence), first_j / first_j.sum(), step_ij / step_ij.sum(axis=1, keepdims=True)),
    )
