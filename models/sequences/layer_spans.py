"""What any way to find spans says of one layer of kinds."""

from __future__ import annotations

from dataclasses import dataclass

from hitl.annotations import Floats
from hitl.consensus import AnnotatorReport, Consensus
from hitl.parts import Part


@dataclass(frozen=True, eq=False)
class LayerSpans:
    """The spans of one layer, and what follows for the texts.

    Attributes:
        consensus: about matched spans, or about tokens.
        annotators: how they answer; classes "(nothing)" and the kinds.
        q_cj: (C, J) beliefs in the class of each cluster of `SpanLabels.matched`.
        nothing_d: (D,) probability that there is no span at all, of texts in which nothing was marked.
        spans: of the consensus, and all others that an annotator marked.
        text_probability: (D,) probability that all spans of a text are right, and no others.
    """

    consensus: Consensus
    annotators: AnnotatorReport
    q_cj: Floats
    nothing_d: Floats
    spans: tuple[Part, ...]
    text_probability: Floats
